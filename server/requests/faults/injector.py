"""One request that a fault concerns: delayed, refused, cut, or answered from before; and the faults themselves.

Such a request is handled in a task. Its route changes the answer when it is encoded, whoever answers, and from where.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, Part
from barnabas.kproto.frame import parse_request_header
from barnabas.logdir import FileSlice
from barnabas.server.requests.faults import names
from barnabas.server.requests.faults.names import Listed, Partitioned, Read
from barnabas.server.requests.faults.placing import Placed, placed
from barnabas.server.requests.faults.reads import placed_in_read
from barnabas.server.requests.faults.rules import Act, Decision, Fault, FaultRules, Item, Rule
from barnabas.server.requests.faults.stale import as_it_was
from barnabas.server.runtime.containment import contain

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.network.connection import Connection, Slot
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.dispatch import Dispatcher
    from barnabas.server.requests.services import Services

log = logging.getLogger("barnabas.requests")

STALE_APIS: Final = frozenset((ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS))
"""Which can be answered from an earlier image."""


class FaultInjector:
    """See the module. changed: called before a new fault holds."""

    def __init__(
        self, dispatch: Dispatcher, services: Services, nursery: trio.Nursery, changed: Callable[[], None]
    ) -> None:
        self.rules = FaultRules(names.OWN_APIS)
        self._dispatch = dispatch
        self._services = services
        self._nursery = nursery
        self._changed = changed
        self._images: dict[int, Image] = {}

    # -- faults ------------------------------------------------------------------------------------------------------

    def add(self, fault: Fault) -> Rule:
        """Begin with a fault: for requests that arrive from now on. Raises TooManyRules."""
        self._changed()
        rule = self.rules.add(fault)
        if fault.act is Act.STALE:
            self._images[rule.number] = self._services.image
        return rule

    def remove(self, number: int) -> Rule | None:
        """End a fault; None: there is none of this number."""
        self._images.pop(number, None)
        return self.rules.remove(number)

    def clear(self) -> None:
        """End all."""
        self._images.clear()
        self.rules.clear()

    # -- requests ----------------------------------------------------------------------------------------------------

    def taken(self, connection: Connection, frame: memoryview) -> Slot | None:
        """Take up a request that a fault strikes; None: nothing has happened, it is to be handled as usual. Raises
        ProtocolViolation.
        """
        try:
            header = parse_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
        except (DecodeError, ValueError):
            return None
        if not self.rules.may_concern(key, header.client_id):
            return None
        route = self._dispatch.route(key, version)
        if route is None:
            return None
        try:
            request, _ = route.decode(_kept(frame), header.body_offset, route.elements_max)
        except DecodeError:
            return None
        if names.of_broker(key, version, request):
            return None
        services = self._services
        items = names.items_of(services, key, version, request)
        decision = self.rules.decide(key, header.client_id, items)
        if decision is None:
            return None
        struck = FaultedRoute(route, connection, decision)
        context = self._dispatch.begin(connection, struck, header, len(frame))
        context.pipelined = False
        context.request = request
        self._nursery.start_soon(self._carry_out, context, struck, key, request, items, decision)
        return context

    async def _carry_out(
        self,
        context: RequestContext,
        route: FaultedRoute,
        key: ApiKey,
        request: Any,
        items: list[Item],
        decision: Decision,
    ) -> None:
        try:
            if decision.delay_ms:
                await trio.sleep(decision.delay_ms / 1000)
            await self._handle(context, route, key, request, items, decision)
        except Exception as error:
            contain(log, f"a fault of {context}", error, context)

    async def _handle(
        self,
        context: RequestContext,
        route: FaultedRoute,
        key: ApiKey,
        request: Any,
        items: list[Item],
        decision: Decision,
    ) -> None:
        if decision.ending is Act.DROP:
            context.no_reply()
            context.connection.end()
            return
        is_silent = key is ApiKey.PRODUCE and request.acks == 0
        services = self._services
        for rule in decision.stale:
            services = as_it_was(services, self._images.get(rule.number, services.image), rule.fault.topic)
        route.services = services
        rest: Any = request
        if decision.errors:
            if is_silent:
                rest = self._without_answers(context, request, decision)
            else:
                found = _placed(services, key, context.api_version, request, items, decision, route.error_response)
                rest, route.amend = found
        if rest is None:
            context.no_reply() if is_silent else context.reply(None)
        else:
            context.request = rest
            await self._dispatch.run(context, rest)
        if is_silent and (decision.errors or decision.ending is not Act.NOTHING):
            context.connection.end()  # the only sign that such a client can see

    @staticmethod
    def _without_answers(context: RequestContext, request: Any, decision: Decision) -> Any:
        """What is left of a Produce with acks=0."""
        shape = names.shape_of(ApiKey.PRODUCE, context.api_version)
        assert isinstance(shape, Partitioned)
        return placed(shape, request, decision.errors, lambda some, code: None).rest


def _kept(frame: memoryview) -> memoryview:
    """A copy that outlives the round, and in which offsets can be written into batches."""
    return memoryview(bytearray(frame))


def _placed(
    services: Services,
    key: ApiKey,
    version: int,
    request: Any,
    items: list[Item],
    decision: Decision,
    refuse: Callable[[Any, ErrorCode], Any],
) -> Placed:
    shape = names.shape_of(key, version)
    if isinstance(shape, Read):
        return placed_in_read(services, key, version, request, items, decision.errors, refuse)
    if isinstance(shape, Partitioned | Listed) and any(item != Item() for item in items):
        is_empty = isinstance(shape, Partitioned) and items[0].partition is None
        if not is_empty:
            return placed(shape, request, decision.errors, refuse)
    response = refuse(request, next(iter(decision.errors.values())))
    return Placed(None, lambda _: response)


class FaultedRoute:
    """The route of one request that is struck. amend: changes the answer, once, before it is encoded. services: for the
    handler, if they are not the broker's own.
    """

    learn = None
    pipelined = False

    def __init__(self, route: Any, connection: Connection, decision: Decision) -> None:
        self._route = route
        self._connection = connection
        self._ending = decision.ending
        self._amended: Any = self
        self.amend: Callable[[Any], Any] | None = None
        self.services: Services | None = None
        self.name: str = route.name
        self.elements_max: int = route.elements_max
        self.decode: Callable[[Any, int, int], tuple[Any, int]] = route.decode

    @property
    def taken(self) -> int:
        return int(self._route.taken)

    @taken.setter
    def taken(self, count: int) -> None:
        self._route.taken = count

    def handle(self, services: Any, context: Any, request: Any) -> Any:
        return self._route.handle(self.services or services, context, request)

    def is_large(self, response: Any) -> bool:
        """Never: it is changed on the loop."""
        return False

    def error_response(self, request: Any, code: ErrorCode) -> Any:
        return self._route.error_response(request, code)

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]:
        if self.amend is not None and (response is None or response is not self._amended):
            response = self._amended = self.amend(response)
        parts: list[Part] = self._route.encode_frame(correlation_id, response)
        if self._ending is Act.NOTHING:
            return parts
        self._connection.end()
        return [_half(parts)] if self._ending is Act.HALF else []


def _half(parts: list[Part]) -> bytes:
    """The first half of an answer, with its length and correlation id."""
    pieces: list[Any] = [part.read() if isinstance(part, FileSlice) else part for part in parts]
    whole = b"".join(pieces)
    return whole[: max(len(whole) // 2, _HEAD_BYTES)]


_HEAD_BYTES: Final = 8
