"""AlterUserScramCredentials (key 51, version 0): set or delete users' SCRAM credentials (KIP-554).

Behaviour: each user's changes succeed or fail as a whole, with one result. The client has salted the password already;
what is derived from it is stored beside the user's quotas. When the answer is sent the change is in force here; other
brokers are notified immediately.

| wrong | error |
| --- | --- |
| no name, too few (below 4096) or too many (above 16384) iterations, nothing for a password | UNACCEPTABLE_CREDENTIAL |
| an unknown mechanism | UNSUPPORTED_SASL_MECHANISM |
| the same user and mechanism twice | DUPLICATE_RESOURCE |
| a credential to be deleted that does not exist | RESOURCE_NOT_FOUND |
| this broker is not the controller | NOT_CONTROLLER, for all |

A user may be given both mechanisms in one request, as by Apache Kafka on ZooKeeper; one under KRaft refuses that.
Source: `ZkAdminManager.scala` (3.9), `ScramControlManager.java` (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.security.sasl.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
)

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@dataclass(slots=True)
class _Wanted:
    """A user's new credentials by mechanism, None to delete one. `error`: why none of the changes is made."""

    credentials: dict[ScramMechanism, ScramCredential | None] = field(default_factory=dict)
    error: KafkaError | None = None


async def handle(
    svc: Services, ctx: RequestContext, req: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    if not svc.cluster.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    response = AlterUserScramCredentialsResponse()
    for name, wanted in (await _sorted(req)).items():
        await trio.lowlevel.checkpoint()
        result = _Result(user=name, error_message=None)
        try:
            if wanted.error is not None:
                raise wanted.error
            await svc.users.alter(name, partial(_edit, wanted))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or None
        response.results.append(result)
    return response


async def _sorted(req: AlterUserScramCredentialsRequest) -> dict[str, _Wanted]:
    users: dict[str, _Wanted] = {}
    items: list[Any] = [*req.deletions, *req.upsertions]
    for number, item in enumerate(items, 1):
        if number % 1000 == 0:
            await trio.lowlevel.checkpoint()
        wanted = users.setdefault(item.name, _Wanted())
        if wanted.error is not None:
            continue
        try:
            mechanism = _mechanism(item.name, item.mechanism)
            if mechanism in wanted.credentials:
                why = "A credential of a user may stand in a request once."
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, why)
            is_deletion = isinstance(item, AlterUserScramCredentialsRequest.ScramCredentialDeletion)
            wanted.credentials[mechanism] = None if is_deletion else _credential(mechanism, item)
        except KafkaError as error:
            wanted.error = error
    return users


def _mechanism(name: str, number: int) -> ScramMechanism:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user must have a name.")
    mechanism = ScramMechanism.of_number(number)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"There is no SCRAM mechanism {number}.")
    return mechanism


def _credential(
    mechanism: ScramMechanism, item: AlterUserScramCredentialsRequest.ScramCredentialUpsertion
) -> ScramCredential:
    if not ITERATIONS_MIN <= item.iterations <= ITERATIONS_MAX:
        why = f"{item.iterations} iterations; from {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed."
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
    if not item.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The password is missing.")
    return credential_of(mechanism, bytes(item.salted_password), bytes(item.salt), item.iterations)


def _edit(wanted: _Wanted, stored: Mapping[str, str]) -> Mapping[str, str]:
    after = dict(stored)
    for mechanism, credential in wanted.credentials.items():
        if credential is not None:
            after[mechanism.value] = credential.text()
        elif after.pop(mechanism.value, None) is None:
            why = f"The user has no {mechanism.value} credential that could be deleted."
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, why)
    return after


def _refusal(req: AlterUserScramCredentialsRequest, code: ErrorCode, version: int) -> AlterUserScramCredentialsResponse:
    items: list[Any] = [*req.deletions, *req.upsertions]
    names = dict.fromkeys(item.name for item in items)
    results = [_Result(user=name, error_code=code, error_message=None) for name in names]
    return AlterUserScramCredentialsResponse(results=results)


API = Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), handle, access=needs(on_cluster(Op.ALTER)), on_error=_refusal)
