"""The life of a token: how long it lasts, who may move its end, and where to.

Source: `DelegationTokenControlManager.java` (4.3), `DelegationTokenManagerZk.scala` (3.9). Where they differ this is
4.3: a period of renewal is at most the usual one, and expiry is reported before a wrong owner. Different from both: an
owner of another type than User is rejected, since a log-in with the token is one as the user of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.security.principals import USER, Principal
from barnabas.server.security.tokens.model import DelegationToken

TIME_MAX: Final = 2**63 - 1


class TokenRules(NamedTuple):
    """`max_lifetime_ms`: from a token's issue to its last possible end. `expiry_time_ms`: to its end, at its issue and
    when it is renewed.
    """

    max_lifetime_ms: int
    expiry_time_ms: int

    def issued(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """A new token. max_lifetime_ms: what is asked for, 0 or less: as long as may be. Raises KafkaError
        INVALID_PRINCIPAL_TYPE.
        """
        renewers = tuple(renewers)
        check_types(owner, *renewers)
        lifetime_ms = min(max_lifetime_ms, self.max_lifetime_ms) if max_lifetime_ms > 0 else self.max_lifetime_ms
        max_ms = min(now_ms + lifetime_ms, TIME_MAX)
        expiry_ms = min(now_ms + self.expiry_time_ms, max_ms)
        return DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expiry_ms)

    def renewed(self, token: DelegationToken, caller: Principal, period_ms: int, now_ms: int) -> DelegationToken:
        """The token with its end at `period_ms` from now; 0 or less: the usual time. Raises KafkaError
        DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
        """
        _check_lives(token, now_ms)
        _check_caller(token, caller)
        period_ms = min(period_ms, self.expiry_time_ms) if period_ms > 0 else self.expiry_time_ms
        return replace(token, expiry_ms=min(now_ms + period_ms, token.max_ms))


def expired(token: DelegationToken, caller: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with its end at `period_ms` from now; None: it ends now, as with a period below 0. Raises KafkaError
    DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    _check_caller(token, caller)
    if period_ms < 0:
        return None
    _check_lives(token, now_ms)
    return replace(token, expiry_ms=min(now_ms + period_ms, token.max_ms))


def check_types(*principals: Principal) -> None:
    """Only users own tokens and renew them. Raises KafkaError INVALID_PRINCIPAL_TYPE."""
    if any(each.kind != USER for each in principals):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)


def _check_lives(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_caller(token: DelegationToken, caller: Principal) -> None:
    if not token.may_renew(caller):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
