"""From a frame to a handler and back: header, look-up, decode, handle, encode.

Exceptions become answers here. The peer's errors: an unreadable frame, an unknown API or a version out of range closes
the connection without an answer, as in Apache Kafka; only ApiVersions answers an unknown version, in version 0, so that
the client can retry (KIP-511). Our errors are logged once with their context, answered with UNKNOWN_SERVER_ERROR, and
affect no other request.

A long request continues in a task, in turns with all other work (`barnabas.server.runtime.turns`): one with a large
frame, or whose handler is a generator with more work than fits into a round. Only Produce never does (`pipelined`).

A decoded frame may take a hundred times its bytes. Of the frames that are too large for a round only one of up to
`LARGE_FRAME_BYTES` and one of more are decoded at a time: a request takes a place before decoding, and leaves it when
its answer is encoded, or before it waits for the controller or a disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import CoroutineType, GeneratorType
from typing import Any

import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, KafkaError, Part
from barnabas.kproto.frame import RequestHeader, parse_request_header
from barnabas.server.network.connection import Connection, ProtocolViolation, Slot
from barnabas.server.requests.api import PENDING, AnyApi
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.context import Route as AnyRoute
from barnabas.server.requests.route import Route
from barnabas.server.requests.services import Services
from barnabas.server.requests.throttling import ThrottledContext, TimedRoute
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.turns import LARGE_FRAME_BYTES, UNFINISHED, Abandoned, Place, first_turn

log = logging.getLogger("barnabas.requests")


def _nothing() -> None:
    """Requests that are decoded within a round have no place."""


class Dispatcher:
    """Routes frames to the handlers of `apis`. `nursery` runs the `async` ones. made: called with each new route."""

    def __init__(
        self,
        apis: Iterable[AnyApi],
        services: Services,
        nursery: trio.Nursery,
        made: Callable[[Route], None] | None = None,
    ) -> None:
        self._apis = {int(api.key): api for api in apis}
        self._services = services
        self._nursery = nursery
        self._made = made
        self._routes: dict[int, Route] = {}
        self._places = Place(), Place()

    def __call__(self, connection: Connection, frame: memoryview) -> Slot:
        """Handle one request; its context is answered now or later. Raises ProtocolViolation."""
        try:
            header = parse_request_header(frame)
        except DecodeError as error:
            raise ProtocolViolation(f"unreadable request header: {error}") from None
        version = header.api_version
        route: Route | TimedRoute | None = self._routes.get(header.api_key << 16 | (version & 0xFFFF))
        if route is None:
            route = self._route(header.api_key, version)
            if route is None:
                return self._unsupported_api_versions(connection, header.correlation_id, header.client_id)
        context: RequestContext
        if self._services.quotas.limits_requests:
            throttle = self._services.throttle
            route = throttle.route(route)
            context = ThrottledContext(throttle, connection, route, version, header, len(frame))
        else:
            context = RequestContext(connection, route, version, header.correlation_id, header.client_id)
        if len(frame) > route.round_bytes:
            self._nursery.start_soon(self._run_large, context, bytes(frame), header.body_offset)
            return context
        try:
            request, end = route.decode(frame, header.body_offset, route.elements_max)
        except DecodeError as error:
            raise ProtocolViolation(f"unreadable {route.name} v{version} request: {error}") from None
        if not route.pipelined:  # else it would keep the records of many requests in memory
            context.request = request
        if route.is_async:
            self._nursery.start_soon(self.run, context, request)
            return context
        try:
            response = route.handle(self._services, context, request)
            if response is not PENDING:
                if type(response) is GeneratorType:
                    steps = response
                    response = first_turn(steps)
                    if response is UNFINISHED:
                        response = steps
                kind = type(response)
                if kind is GeneratorType or kind is CoroutineType:
                    self._nursery.start_soon(self._finish, context, request, response)
                    return context
                if response is not PENDING:
                    context.reply(response)
        except Exception as error:
            self._failed(context, request, error)
            return context
        # What follows the message is ignored, as Apache Kafka does, but such a frame is not learnt.
        if route.learn is not None and end == len(frame):
            try:
                route.learn(self._services, context, frame, request)
            except Exception as error:
                contain(log, f"learning {context}", error)
        return context

    # For those who stand between a connection and this: faults on purpose (`barnabas.server.requests.faults`).

    def route(self, api_key: int, version: int) -> Route | TimedRoute | None:
        """The route of a request; None: of an ApiVersions in an unknown version. Raises ProtocolViolation."""
        route = self._routes.get(api_key << 16 | (version & 0xFFFF)) or self._route(api_key, version)
        if route is not None and self._services.quotas.limits_requests:
            return self._services.throttle.route(route)  # type: ignore[no-any-return]
        return route

    def begin(self, connection: Connection, route: AnyRoute, header: RequestHeader, frame_bytes: int) -> RequestContext:
        """The context of a request that has arrived. route: that of `route`, or one around it."""
        if self._services.quotas.limits_requests:
            return ThrottledContext(self._services.throttle, connection, route, header.api_version, header, frame_bytes)
        return RequestContext(connection, route, header.api_version, header.correlation_id, header.client_id)

    def _route(self, api_key: int, version: int) -> Route | None:
        api = self._apis.get(api_key)
        if api is None:
            raise ProtocolViolation(f"API key {api_key} is not served")
        if not api.versions[0] <= version <= api.versions[1]:
            if api.key == ApiKey.API_VERSIONS:
                return None
            raise ProtocolViolation(f"{api.key.name} v{version} is not served")
        try:
            route = Route(api, version, self._services.authorizer)
        except (ImportError, OSError) as error:  # of a `LateApi`
            why = f"{api.key.name} cannot be loaded ({error}); restart the broker if its files were replaced"
            raise ProtocolViolation(why) from error
        if self._made is not None:
            self._made(route)
        self._routes[api_key << 16 | version] = route
        return route

    def _unsupported_api_versions(
        self, connection: Connection, correlation_id: int, client_id: str | None
    ) -> RequestContext:
        api = self._apis[ApiKey.API_VERSIONS]
        route = self._routes.get(ApiKey.API_VERSIONS << 16) or Route(api, 0)
        context = RequestContext(connection, route, 0, correlation_id, client_id)
        context.reply(route.error_response(None, ErrorCode.UNSUPPORTED_VERSION))
        return context

    async def _run_large(self, context: RequestContext, frame: bytes, offset: int) -> None:
        """Decode and handle a request whose frame is too large for a round."""
        route, turns = context.route, self._services.turns
        is_large = len(frame) > LARGE_FRAME_BYTES
        async with self._places[is_large].taken() as leave:
            if context.closed:
                return
            try:
                request, _ = await (turns.elsewhere if is_large else turns.here)(
                    route.decode, frame, offset, route.elements_max
                )
            except DecodeError as error:
                what = f"{route.name} v{context.api_version}"
                log.warning("closing the connection of %s: unreadable %s request: %s", context.client_host, what, error)
                context.connection.abort()
                return
            except Exception as error:  # the thread's
                self._failed(context, None, error)
                return
            context.request = request
            if not context.closed:
                await self.run(context, request, True, leave)

    async def run(
        self, context: RequestContext, request: Any, is_large: bool = False, leave: Callable[[], None] = _nothing
    ) -> None:
        """Run a handler of any kind, outside of a round. leave: leaves the request's place."""
        try:
            response = context.route.handle(self._services, context, request)
        except Exception as error:
            await self._failed_late(context, request, error, is_large)
        else:
            await self._finish(context, request, response, is_large, leave)

    async def _finish(
        self,
        context: RequestContext,
        request: Any,
        response: Any,
        is_large: bool = False,
        leave: Callable[[], None] = _nothing,
    ) -> None:
        """Run the coroutine or generator that a handler has returned, and answer."""
        try:
            while True:  # each may return another one
                if type(response) is CoroutineType:
                    leave()
                    response = await response
                elif type(response) is GeneratorType:
                    response = await self._services.turns.run(response, lambda: not context.closed)
                else:
                    break
            await self._answer(context, response)
        except Abandoned:
            pass
        except Exception as error:
            await self._failed_late(context, request, error, is_large)

    async def _answer(self, context: RequestContext, response: Any) -> None:
        """Answer with a task's response. Without a round to do it, staged appends are written here."""
        if response is PENDING:
            self._services.partitions.write_staged()
        elif context.route.is_large(response) and not context.closed:
            context.settle(response)
            encode = context.route.encode_frame
            context.reply_encoded(*await self._services.turns.elsewhere(encode, context.correlation_id, response))
        else:
            context.reply(response)

    async def _failed_late(self, context: RequestContext, request: Any, error: Exception, is_large: bool) -> None:
        """As `_failed`, in a task. is_large: the request has so many items that encoding its refusal takes long."""
        if is_large and isinstance(error, KafkaError) and context.parts is None and not context.closed:
            route, code = context.route, error.code

            def refusal() -> list[Part]:
                return route.encode_frame(context.correlation_id, route.error_response(request, code))

            try:
                context.reply_encoded(*await self._services.turns.elsewhere(refusal))
            except Exception as worse:
                error = worse
            else:
                return
        self._failed(context, request, error)

    def _failed(self, context: RequestContext, request: Any, error: Exception) -> None:
        """A handler has raised. Answers of work that it had started are ignored."""
        context.request = request
        if isinstance(error, KafkaError):
            became = context.refuse(error.code)
            if context.parts is None:
                log.error("%s: %s", context, became, exc_info=error)
        else:
            became = context.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            log.error("%s failed: %s", context, became, exc_info=error)
