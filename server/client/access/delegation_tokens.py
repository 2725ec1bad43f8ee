"""Delegation tokens (KIP-48, KIP-373): CreateDelegationToken 0-3, RenewDelegationToken 0-2, ExpireDelegationToken 0-2,
DescribeDelegationToken 0-3, of any broker. Only who has logged in, and not with a token, may ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from barnabas.server.client.client import Client, Job
from barnabas.server.client.failures import Failed, Refused, Unsupported

_REQUESTER_FROM: Final = 3
_WHOLE: Final = ""
"""The item of a request that has none."""


class Holder(NamedTuple):
    """A principal; `kind` is mostly `User`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def of(cls, text: str) -> Holder:
        """`User:alice`, or `alice`."""
        kind, colon, name = text.strip().partition(":")
        return cls(kind, name) if colon else cls("User", kind)


@dataclass(frozen=True, slots=True)
class Token:
    """Times are ms since the epoch: it ends at `expiry_ms`, which may be moved, but not beyond `max_ms`. `hmac`: its
    secret. `requester` None: the broker does not tell.
    """

    token_id: str
    owner: Holder
    requester: Holder | None
    renewers: tuple[Holder, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


async def describe_tokens(client: Client) -> list[Token]:
    """All that this client may see, those that end first first. Raises ClientError."""
    request = DescribeDelegationTokenRequest(owners=None)
    answer = await client.ask_patiently(
        ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda version: request, lambda answer: answer.error_code
    )
    found = [
        Token(
            row.token_id,
            Holder(row.principal_type, row.principal_name),
            _requester(row),
            tuple(Holder(each.principal_type, each.principal_name) for each in row.renewers),
            row.issue_timestamp,
            row.expiry_timestamp,
            row.max_timestamp,
            bytes(row.hmac),
        )
        for row in answer.tokens
    ]
    return sorted(found, key=lambda token: (token.expiry_ms, token.token_id))


async def create_token(
    client: Client, owner: Holder | None, renewers: Sequence[Holder], lifetime_ms: int
) -> Token | Failed:
    """owner: None: whoever asks; another one is for brokers from Apache Kafka 3.3 on. lifetime_ms: 0 or less: as long
    as may be. Raises ClientError; Unsupported for another owner where that cannot be.
    """
    if owner is not None and await client.highest(ApiKey.CREATE_DELEGATION_TOKEN) < _REQUESTER_FROM:
        raise Unsupported("these brokers make tokens for whoever asks, and for nobody else")

    def make(items: list[str], version: int) -> CreateDelegationTokenRequest:
        request = CreateDelegationTokenRequest(
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=each.kind, principal_name=each.name)
                for each in renewers
            ],
            max_lifetime_ms=lifetime_ms if lifetime_ms > 0 else -1,
        )
        if owner is not None and version >= _REQUESTER_FROM:
            request.owner_principal_type, request.owner_principal_name = owner.kind, owner.name
        return request

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Token | Failed]]:
        if answer.error_code:
            yield _WHOLE, Failed.of(answer.error_code)
            return
        yield (
            _WHOLE,
            Token(
                answer.token_id,
                Holder(answer.principal_type, answer.principal_name),
                _requester(answer),
                tuple(renewers),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                bytes(answer.hmac),
            ),
        )

    job: Job[str, Token | Failed] = Job(ApiKey.CREATE_DELEGATION_TOKEN, make, read)
    return (await client.by_controller([_WHOLE], job, repeatable=False))[_WHOLE]


async def renew_token(client: Client, hmac: bytes, period_ms: int) -> int | Failed:
    """When it ends now, in ms since the epoch. period_ms: from now on; 0 or less: the usual time. Raises
    ClientError.
    """
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms if period_ms > 0 else -1)
    return await _moved(client, ApiKey.RENEW_DELEGATION_TOKEN, request)


async def end_token(client: Client, hmac: bytes) -> int | Failed:
    """Remove it now. Raises ClientError."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    return await _moved(client, ApiKey.EXPIRE_DELEGATION_TOKEN, request)


async def _moved(client: Client, key: ApiKey, request: Any) -> int | Failed:
    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, int | Failed]]:
        yield _WHOLE, Failed.of(answer.error_code) if answer.error_code else answer.expiry_timestamp_ms

    job: Job[str, int | Failed] = Job(key, lambda items, version: request, read)
    return (await client.by_controller([_WHOLE], job, repeatable=False))[_WHOLE]


def why_none(error: Refused | Unsupported) -> str | None:
    """Why there are no tokens for this client, for a person; None: something else is wrong."""
    if isinstance(error, Unsupported):
        return str(error)
    if error.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        return "delegation tokens are not enabled here: the brokers have no delegation.token.secret.key"
    if error.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        return (
            "brokers tell of delegation tokens to who has logged in by SASL or a certificate, and not with a token; "
            "this console has not (--command-config, --login)"
        )
    return None


def _requester(row: Any) -> Holder | None:
    name = row.token_requester_principal_name
    return Holder(row.token_requester_principal_type, name) if name else None
