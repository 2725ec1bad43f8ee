"""Answers before authentication: ApiVersions, and errors for all other APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, Part
from barnabas.kproto.frame import RequestHeader, parse_request_header
from barnabas.server.network.connection import Connection
from barnabas.server.requests.api import AnyApi
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.route import Route
from barnabas.server.requests.services import Services

ELEMENTS_MAX: Final = 10_000
"""Elements in a request of a peer that has not authenticated."""


class BeforeLogin:
    """`barnabas.server.security.sasl.authenticator.Served` of one connection."""

    def __init__(self, apis: Iterable[AnyApi], services: Services, connection: Connection) -> None:
        self._apis = apis
        self._services = services
        self._connection = connection

    def api_versions(self, frame: memoryview) -> tuple[bytes, bool]:
        """The answer, and whether it lists the versions. Raises DecodeError."""
        header = parse_request_header(frame)
        api = self._api(ApiKey.API_VERSIONS)
        assert api is not None
        if not api.versions[0] <= header.api_version <= api.versions[1]:
            route = Route(api, 0)
            return _joined(route, header, route.error_response(None, ErrorCode.UNSUPPORTED_VERSION)), False
        route = Route(api, header.api_version)
        request, _ = route.decode(frame, header.body_offset, ELEMENTS_MAX)
        context = RequestContext(self._connection, route, header.api_version, header.correlation_id, header.client_id)
        response = route.handle(self._services, context, request)
        return _joined(route, header, response), not response.error_code

    def refusal(self, frame: memoryview, code: ErrorCode) -> bytes | None:
        """The answer of the request's own API; None if that is not served, cannot be read, or has no answer."""
        try:
            header = parse_request_header(frame)
            api = self._api(header.api_key)
            if api is None or not api.versions[0] <= header.api_version <= api.versions[1]:
                return None
            route = Route(api, header.api_version)
            request, _ = route.decode(frame, header.body_offset, ELEMENTS_MAX)
        except DecodeError:
            return None
        if api.key is ApiKey.PRODUCE and request.acks == 0:
            return None
        return _joined(route, header, route.error_response(request, code))

    def _api(self, key: int) -> AnyApi | None:
        return next((api for api in self._apis if api.key == key), None)


def _joined(route: Route, header: RequestHeader, response: object) -> bytes:
    parts: list[Part] = route.encode_frame(header.correlation_id, response)
    return b"".join(parts)  # type: ignore[arg-type]
