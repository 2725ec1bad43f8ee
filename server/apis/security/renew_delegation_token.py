"""RenewDelegationToken (key 39, versions 0-2): move the end of a token, named by its secret (KIP-48).

Behaviour: the owner and the renewers may, whatever ACLs there are. The new end is `renew_period_ms` from now, the usual
time (`delegation.token.expiry.time.ms`) at most, and never beyond the token's last possible end; 0 or less: the usual
time. Any broker serves it.

| wrong | error, in this order |
| --- | --- |
| a session that may not use tokens (`barnabas.server.requests.token_requests`) | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| no `delegation.token.secret.key` | DELEGATION_TOKEN_AUTH_DISABLED |
| no token has this secret | DELEGATION_TOKEN_NOT_FOUND |
| it has expired | DELEGATION_TOKEN_EXPIRED |
| neither owner nor renewer | DELEGATION_TOKEN_OWNER_MISMATCH |
| the store rejects it | UNKNOWN_SERVER_ERROR |

Versions:

- 2: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, KafkaError
from barnabas.kproto.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.token_requests import end_of_refused, tokens_for


async def handle(svc: Services, ctx: RequestContext, req: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    try:
        tokens = tokens_for(svc, ctx.session)
        expiry_ms = await tokens.renew(ctx.session.principal, bytes(req.hmac), req.renew_period_ms)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=end_of_refused(error.code))
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


API = Api(ApiKey.RENEW_DELEGATION_TOKEN, (0, 2), handle, access=unrestricted)
