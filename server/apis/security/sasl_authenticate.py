"""SaslAuthenticate (key 36, versions 0-2): the tokens of a log-in (KIP-152).

Behaviour: as SaslHandshake (`sasl_handshake`): a request that reaches this handler is out of place, ILLEGAL_SASL_STATE.

Versions:

- 1: adds the session's lifetime (KIP-368)
- 2: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.security.sasl import AUTHENTICATE_VERSIONS

_WHY = "There is no log-in under way on this connection."


def handle(svc: Services, ctx: RequestContext, req: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_WHY)


API = Api(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSIONS, handle, access=unrestricted)
