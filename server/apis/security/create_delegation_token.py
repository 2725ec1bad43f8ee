"""CreateDelegationToken (key 38, versions 0-3): a token that logs its holder in as the owner (KIP-48, KIP-373).

Behaviour: the owner is the caller, or from version 3 on another user, for which the caller needs CREATE_TOKENS on the
resource USER of the name `User:<owner>`. The answer has the secret. By then this broker knows the token; the others are
notified immediately. Any broker serves it.

| wrong | error, in this order |
| --- | --- |
| a session that may not use tokens (`barnabas.server.requests.token_requests`) | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| another owner, without permission | DELEGATION_TOKEN_AUTHORIZATION_FAILED |
| more than 1000 renewers | INVALID_REQUEST |
| a renewer or owner that is no user | INVALID_PRINCIPAL_TYPE |
| no `delegation.token.secret.key` | DELEGATION_TOKEN_AUTH_DISABLED |
| the store rejects it | UNKNOWN_SERVER_ERROR |

Owner and requester are returned in any case. Apache Kafka limits the renewers only by the size of what it stores; here
very many would delay all other requests.

Versions:

- 2: flexible
- 3: another owner, the requester
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from barnabas.server.requests.access import USER, AccessCheck, Admitted, Op, Outcome, Refused
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.token_requests import NO_TIME, enabled, may_ask
from barnabas.server.security.principals import ANONYMOUS, Principal
from barnabas.server.security.tokens.rules import check_types

_REQUESTER_FROM = 3
_RENEWERS_MAX = 1000


async def handle(
    svc: Services, ctx: RequestContext, req: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    caller = ctx.session.principal
    owner = _owner(req, caller)
    if not may_ask(ctx.session):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, caller, ctx.api_version, NO_TIME)
    if len(req.renewers) > _RENEWERS_MAX:
        return _refused(ErrorCode.INVALID_REQUEST, owner, caller, ctx.api_version, NO_TIME)
    renewers = [Principal(each.principal_type, each.principal_name) for each in req.renewers]
    time = NO_TIME
    try:
        check_types(owner, *renewers)
        time = 0  # as Apache Kafka's controller has it
        tokens = enabled(svc)
        token = await tokens.create(owner, caller, renewers, req.max_lifetime_ms)
    except KafkaError as error:
        return _refused(error.code, owner, caller, ctx.api_version, time)
    response = _named(token.owner, token.requester, ctx.api_version)
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = tokens.known.hmac_of(token.token_id)
    return response


def _owner(req: CreateDelegationTokenRequest, caller: Principal) -> Principal:
    if not req.owner_principal_name:
        return caller
    return Principal(req.owner_principal_type or "", req.owner_principal_name)


def _named(owner: Principal, requester: Principal, version: int) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(principal_type=owner.kind, principal_name=owner.name)
    if version >= _REQUESTER_FROM:
        response.token_requester_principal_type = requester.kind
        response.token_requester_principal_name = requester.name
    return response


def _refused(
    code: ErrorCode, owner: Principal, requester: Principal, version: int, time: int
) -> CreateDelegationTokenResponse:
    response = _named(owner, requester, version)
    response.error_code = code
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = time
    return response


def _access(check: AccessCheck) -> Generator[int, None, Outcome]:
    """A caller needs no permission for its own tokens; the handler rejects sessions that may have none."""
    session = check.session
    owner = _owner(check.request, session.principal)
    if owner == session.principal or not may_ask(session) or check.allows(Op.CREATE_TOKENS, USER, str(owner)):
        return Admitted(check.request)
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return Refused(_refused(code, owner, session.principal, check.version, NO_TIME))
    yield


def _on_error(req: Any, code: ErrorCode, version: int) -> CreateDelegationTokenResponse:
    return _refused(code, ANONYMOUS, ANONYMOUS, version, NO_TIME)


API = Api(ApiKey.CREATE_DELEGATION_TOKEN, (0, 3), handle, access=_access, on_error=_on_error)
