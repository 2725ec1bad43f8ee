"""DescribeDelegationToken (key 41, versions 0-3): the tokens that the caller may see, with their secrets (KIP-48).

Behaviour: his own, those that he may renew, and those that he had made for others; more with DESCRIBE on the token or
DESCRIBE_TOKENS on the resource USER of the name `User:<owner>` (KIP-373). Without an authorizer he sees all. Owners
that are asked for stand for the same three kinds of tokens; null: all, none: no token. Expired tokens that are not
removed yet are included. Any broker answers, from what it knows. DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
DELEGATION_TOKEN_AUTH_DISABLED as for the other APIs of tokens.

Versions:

- 2: flexible
- 3: the requester
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.kproto import ApiKey, KafkaError
from barnabas.kproto.messages import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from barnabas.server.requests.access import DELEGATION_TOKEN, USER, AccessCheck, Op, amended
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.token_requests import tokens_for
from barnabas.server.runtime.turns import Steps
from barnabas.server.security.principals import Principal
from barnabas.server.security.tokens.model import DelegationToken

_Token = DescribeDelegationTokenResponse.DescribedDelegationToken
_REQUESTER_FROM = 3


def handle(
    svc: Services, ctx: RequestContext, req: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    try:
        known = tokens_for(svc, ctx.session).known
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners: set[Principal] | None = None
    if req.owners is not None:
        owners = set()
        for owner in req.owners:
            owners.add(Principal(owner.principal_type, owner.principal_name))
            yield 1
    response = DescribeDelegationTokenResponse()
    for token in known:
        yield 1 + len(token.renewers)
        if owners is None or token.concerns(owners):
            response.tokens.append(_described(token, known.hmac_of(token.token_id), ctx.api_version))
    return response


def _described(token: DelegationToken, secret: bytes, version: int) -> _Token:
    described = _Token(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer(
                principal_type=renewer.kind, principal_name=renewer.name
            )
            for renewer in token.renewers
        ],
    )
    if version >= _REQUESTER_FROM:
        described.token_requester_principal_type = token.requester.kind
        described.token_requester_principal_name = token.requester.name
    return described


def _amend(check: AccessCheck, response: DescribeDelegationTokenResponse) -> Generator[int, None, None]:
    tokens = check.services.tokens
    caller = {check.session.principal}
    seen = []
    for each in response.tokens:
        yield 1 + len(each.renewers)
        token = None if tokens is None else tokens.known.with_hmac(bytes(each.hmac))
        if (
            (token is not None and token.concerns(caller))
            or check.would_allow(Op.DESCRIBE, DELEGATION_TOKEN, each.token_id)
            or check.would_allow(Op.DESCRIBE_TOKENS, USER, f"{each.principal_type}:{each.principal_name}")
        ):
            seen.append(each)
    response.tokens = seen


API = Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, (0, 3), handle, access=amended(_amend))
