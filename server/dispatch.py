"""From a frame to a handler and back: header, look-up, decode, handle, encode.

The place that turns exceptions into answers. The peer's mistakes: an unreadable frame, an unknown API or a
version out of range closes the connection without an answer, as Apache Kafka does; ApiVersions alone answers an
unknown version, in format 0, so that the client can try again (KIP-511). Our mistakes: logged once with their
context, answered with UNKNOWN_SERVER_ERROR, and nobody else notices.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

import trio

from kproto import (
    ApiKey,
    DecodeError,
    ErrorCode,
    KafkaError,
    Part,
    decoder,
    encoder,
    request_class,
    response_class,
)
from kproto.frame import parse_request_header, response_frame
from server.api import PENDING, Api
from server.connection import Connection, ProtocolViolation
from server.containment import contain
from server.context import RequestContext
from server.request_bounds import bounds_of
from server.services import Services

log = logging.getLogger("barnabas.requests")


class Route:
    """One (API, version): its codec functions, compiled when first used."""

    __slots__ = ("api", "decode", "elements_max", "encode", "handle", "is_async", "learn", "pipelined", "version")

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        is_old = api.old is not None and version <= api.old.last
        self.handle = api.old.handle if api.old is not None and is_old else api.handle
        self.pipelined = api.pipelined and not is_old
        self.learn = None if is_old else api.learn
        self.is_async = inspect.iscoroutinefunction(self.handle)
        decode = decoder(request_class(api.key), version)
        # What a task keeps must not lie in the round's receive buffer.
        self.decode: Callable[[Any, int, int], tuple[Any, int]] = (
            (lambda frame, offset, room: decode(bytes(frame), offset, room)) if self.is_async else decode
        )
        self.elements_max = bounds_of(api.key).elements
        self.encode: Callable[[Any], list[Part]] = encoder(response_class(api.key), version)

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]:
        return response_frame(self.api.key, self.version, correlation_id, self.encode(response))

    def error_response(self, request: Any, code: ErrorCode) -> Any:
        """The answer that says that the whole request failed."""
        if self.api.on_error is not None:
            return self.api.on_error(request, code, self.version)
        response = response_class(self.api.key)()
        if hasattr(response, "error_code"):
            response.error_code = code
            return response
        raise KafkaError(code, f"{self.api.key.name} has no place for an error of the whole request")


class Dispatcher:
    """Routes frames to the handlers of `apis`. `nursery` runs the `async` ones."""

    def __init__(self, apis: Iterable[Api], services: Services, nursery: trio.Nursery) -> None:
        self._apis = {int(api.key): api for api in apis}
        self._services = services
        self._nursery = nursery
        self._routes: dict[int, Route] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> RequestContext:
        """Take up one request; its context is answered now or later. Raises ProtocolViolation."""
        if connection.repeated is not None:
            taken = connection.repeated.take(connection, frame)
            if taken is not None:
                return taken
        if connection.repeated_fetch is not None:
            taken = connection.repeated_fetch.take(connection, frame)
            if taken is not None:
                return taken
        try:
            header = parse_request_header(frame)
        except DecodeError as error:
            raise ProtocolViolation(f"unreadable request header: {error}") from None
        version = header.api_version
        route = self._routes.get(header.api_key << 16 | (version & 0xFFFF))
        if route is None:
            route = self._route(header.api_key, version)
            if route is None:
                return self._unsupported_api_versions(connection, header.correlation_id, header.client_id)
        context = RequestContext(connection, route, version, header.correlation_id, header.client_id)
        try:
            request, _ = route.decode(frame, header.body_offset, route.elements_max)
        except DecodeError as error:
            raise ProtocolViolation(f"unreadable {route.api.key.name} v{version} request: {error}") from None
        if not route.pipelined:  # else it would keep the records of many requests in memory
            context.request = request
        if route.is_async:
            self._nursery.start_soon(self._run, context, request)
            return context
        try:
            response = route.handle(self._services, context, request)
        except Exception as error:
            self._failed(context, request, error)
            return context
        if response is not PENDING:
            context.reply(response)
        if route.learn is not None:
            try:
                route.learn(self._services, context, frame, request)
            except Exception as error:
                contain(log, f"taking {context} as an example", error)
        return context

    def _route(self, api_key: int, version: int) -> Route | None:
        api = self._apis.get(api_key)
        if api is None:
            raise ProtocolViolation(f"API key {api_key} is not served here")
        if not api.versions[0] <= version <= api.versions[1]:
            if api.key == ApiKey.API_VERSIONS:
                return None
            raise ProtocolViolation(f"{api.key.name} v{version} is not served here")
        route = self._routes[api_key << 16 | version] = Route(api, version)
        return route

    def _unsupported_api_versions(
        self, connection: Connection, correlation_id: int, client_id: str | None
    ) -> RequestContext:
        api = self._apis[ApiKey.API_VERSIONS]
        route = self._routes.get(ApiKey.API_VERSIONS << 16) or Route(api, 0)
        context = RequestContext(connection, route, 0, correlation_id, client_id)
        context.reply(route.error_response(None, ErrorCode.UNSUPPORTED_VERSION))
        return context

    async def _run(self, context: RequestContext, request: Any) -> None:
        try:
            response = await context.route.handle(self._services, context, request)
        except Exception as error:
            self._failed(context, request, error)
            return
        if response is not PENDING:
            context.reply(response)

    def _failed(self, context: RequestContext, request: Any, error: Exception) -> None:
        """A handler has raised. What it has begun may still want to answer, which is not heard any more."""
        context.request = request
        if isinstance(error, KafkaError):
            became = context.refuse(error.code)
            if context.parts is None:
                log.error("%s: %s", context, became, exc_info=error)
        else:
            became = context.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            log.error("%s failed: %s", context, became, exc_info=error)
