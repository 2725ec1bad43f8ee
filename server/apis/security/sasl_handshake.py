"""SaslHandshake (key 17, versions 0-1): which mechanism a client logs in with (KIP-43).

Behaviour: on a listener with SASL this is answered before there is a session, and again while one lasts that ends
(`barnabas.server.network.login`). What comes here has no place for it: ILLEGAL_SASL_STATE, without mechanisms, and the
connection stays.

Versions: after 0 tokens follow without headers, after 1 in SaslAuthenticate (KIP-152).
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
