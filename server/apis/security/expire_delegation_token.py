"""ExpireDelegationToken (key 40, versions 0-2): set the end of a token, named by its secret, or end it (KIP-48).

Behaviour: the owner and the renewers may, whatever ACLs there are. The new end is `expiry_time_period_ms` from now,
though never beyond the token's last possible end; below 0 the token is removed, even one that has expired. Sessions
that were authenticated with it last to the end that it had then. Any broker serves it.

| wrong | error, in this order |
| --- | --- |
| a session that may not use tokens (`barnabas.server.requests.token_requests`) | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| no `delegation.token.secret.key` | DELEGATION_TOKEN_AUTH_DISABLED |
| no token has this secret | DELEGATION_TOKEN_NOT_FOUND |
| neither owner nor renewer | DELEGATION_TOKEN_OWNER_MISMATCH |
| it has expired | DELEGATION_TOKEN_EXPIRED |
| the store rejects it | UNKNOWN_SERVER_ERROR |

Versions:

- 2: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, KafkaError
from barnabas.kproto.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.token_requests import end_of_refused, tokens_for


async def handle(
    svc: Services, ctx: RequestContext, req: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        tokens = tokens_for(svc, ctx.session)
        expiry_ms = await tokens.expire(ctx.session.principal, bytes(req.hmac), req.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=end_of_refused(error.code))
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, (0, 2), handle, access=unrestricted)
