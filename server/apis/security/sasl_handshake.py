"""SaslHandshake (key 17, versions 0-1): the mechanism that a client logs in with (KIP-43).

Behaviour: on a listener with SASL `barnabas.server.network.login` answers it, before there is a session, and again to
renew a session that expires. A request that reaches this handler is out of place: ILLEGAL_SASL_STATE, without
mechanisms, and the connection stays open.

Versions:

- 0: tokens follow without headers
- 1: tokens follow in SaslAuthenticate (KIP-152)
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.security.sasl import HANDSHAKE_VERSIONS


def handle(svc: Services, ctx: RequestContext, req: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSIONS, handle, access=unrestricted)
