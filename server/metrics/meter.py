"""The meter of requests: how many there are, by API and by client, how large, and how long they take.

All requests pass `Connection`, those of fast paths too. There they are counted: by the `Route` of their API and
version, and by the connection, which knows its client. That is some 0.1 us for each, and the rest is done seldom:

- Produce, Fetch of consumers, and whatever takes a fast path, are timed in one round in `TIMED_EVERY_NS`, `TIMED_MAX`
  of them. Each stands for its share of all of its kind since the last such round: the histograms have as many entries
  as there were requests.
- Requests of all other APIs, and fetches of followers, are timed each: their handlers are wrapped (`watch`).

    received          taken up          handled              answered            sent
       │───── queue ─────│── handling ─────│───── waiting ──────│───── sending ─────│
       └──────────────────────────────── total ─────────────────────────────────────┘

- *queue*: from the start of the round that has received it. (The kernel's buffer is not seen.)
- *handling*: the handler's call; of a handler that is a task or works in turns only its first turn.
- *waiting*: for the round's write, other replicas, records, members of a group, a thread, or more turns.
- *sending*: until the round has sent all there was for the connection; for answers that the socket did not take at
  once, until it has.

Not obvious: a connection's counters are those of one client id. One that changes its client id on the way (a proxy) is
noticed by requests that are timed.

Not counted: frames of log-ins. Sizes are those of frames with the four bytes of their length.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.kproto import ApiKey
from barnabas.server.metrics.error_codes import ErrorCounts
from barnabas.server.metrics.histogram import Histogram, Recent
from barnabas.server.network.connection import Connection, Slot

if TYPE_CHECKING:
    from barnabas.server.requests.api import Handler
    from barnabas.server.requests.route import Route

TIMED_EVERY_NS: Final = 50_000_000
TIMED_MAX: Final = 32
"""Requests of one round that are timed, at 3 us each."""
PHASES: Final = ("queue", "handling", "waiting", "sending", "total")
OTHER: Final = "other"
LATE_MAX: Final = 10_000
"""Answers that sockets have not taken yet; the times of more are not taken."""
_REPLICA_STATE_FROM: Final = 15
_OFTEN: Final = (ApiKey.PRODUCE, ApiKey.FETCH)


class ApiUsage:
    """One API, by the name that metrics show, and its times in `phases`, in the order of `PHASES`. routes: its
    versions; counted: its requests by version where no route counts them; elsewhere: those of its routes that another
    usage counts. accounted: requests that the times stand for.
    """

    __slots__ = ("accounted", "counted", "elsewhere", "name", "phases", "recent", "routes")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.routes: list[Route] = []
        self.counted: Counter[int] = Counter()
        self.elsewhere: Counter[int] = Counter()
        self.phases = [Histogram() for _ in PHASES]
        self.recent = [Recent(phase, now) for phase in self.phases]
        self.accounted = 0

    @property
    def requests(self) -> dict[int, int]:
        """Requests by version, those without any left out."""
        counts = Counter({route.version: route.taken for route in self.routes})
        counts.update(self.counted)
        counts.subtract(self.elsewhere)
        return {version: count for version, count in sorted(counts.items()) if count > 0}

    def add(self, measured: Measured, sent_ns: int) -> None:
        """A request is done."""
        queue, handling, waiting, sending, total = self.phases
        weight = measured.weight
        queue.add(measured.taken_ns - measured.received_ns, weight)
        handling.add(measured.handled_ns - measured.taken_ns, weight)
        waiting.add(measured.answered_ns - measured.handled_ns, weight)
        sending.add(sent_ns - measured.answered_ns, weight)
        total.add(sent_ns - measured.received_ns, weight)


class ClientUsage:
    """One client id: what it has sent, and what it was answered."""

    __slots__ = ("bytes_in", "bytes_out", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0


class Measured:
    """A request that is timed. weight: for how many it stands. answered_ns 0: it is not answered."""

    __slots__ = ("answered_ns", "handled_ns", "received_ns", "taken_ns", "usage", "weight")

    def __init__(self, usage: ApiUsage, received_ns: int, taken_ns: int, handled_ns: int = 0, weight: int = 1) -> None:
        self.usage = usage
        self.received_ns = received_ns
        self.taken_ns = taken_ns
        self.handled_ns = handled_ns
        self.answered_ns = 0
        self.weight = weight


Noted = tuple[Connection, Slot, int, int]
"""A request that was taken up, and when its handler was called and had returned, in nanoseconds."""


class Meter:
    """See the module. now(): seconds of trio's clock. clients_max: more client ids are counted together as `other`.

    clock(): nanoseconds, for durations; `Connection` calls it, too.
    """

    def __init__(
        self,
        now: Callable[[], float],
        clients_max: Callable[[], int],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._now = now
        self._clients_max = clients_max
        self.clock = clock
        self.note: Callable[[Noted], None] | None = None
        self.errors = ErrorCounts()
        self.apis: dict[str, ApiUsage] = {}
        self._clients: dict[str, ClientUsage] = {}
        self._noted: list[Noted] = []
        self._open: list[Any] = []
        self._answered: list[tuple[Connection, Measured]] = []
        self._late: dict[Connection, list[Measured]] = {}
        self._late_count = 0
        self._in_round = False
        self._round_ns = self._written_ns = self._timed_again_ns = 0

    # -- called by the network ---------------------------------------------------------------------------------------

    def round_begins(self) -> None:
        """Part of `barnabas.server.network.connection.Meter`."""
        self._in_round = True
        self._round_ns = now_ns = self.clock()
        if now_ns >= self._timed_again_ns:
            self.note = self._noted.append

    def round_written(self) -> None:
        """Part of `barnabas.server.network.connection.Meter`."""
        self._written_ns = self.clock()

    def answered(self, connection: Connection, measured: Measured) -> None:
        """Part of `barnabas.server.network.connection.Meter`."""
        measured.answered_ns = self.clock()
        self._answered.append((connection, measured))

    def round_ends(self) -> None:
        """Part of `barnabas.server.network.connection.Meter`."""
        self._in_round = False
        if not (self._noted or self._open or self._answered or self._late):
            return
        now_ns = self.clock()
        if self._noted:
            self._time(self._noted[:: (len(self._noted) - 1) // TIMED_MAX + 1], now_ns)
            self._noted.clear()
            self.note = None
            self._timed_again_ns = now_ns + TIMED_EVERY_NS
        if self._open:
            self._close(now_ns)
        if self._answered:
            answered, self._answered = self._answered, []
            for connection, measured in answered:
                self._sent(connection, measured, now_ns)
        if self._late:
            self._look_at_late(now_ns)

    def lost(self, connection: Connection) -> None:
        """Part of `barnabas.server.network.connection.Meter`."""
        self._take_from(connection)

    # -- called for routes -------------------------------------------------------------------------------------------

    def watch(self, route: Route) -> None:
        """Count the errors in a new route's answers; time its requests, if they are not frequent."""
        key = route.api.key
        name = name_of(key)
        route.encode = self.errors.watched(key, name, route.encode)
        if key == ApiKey.FETCH:
            consumers, followers = self._usage("FetchConsumer"), self._usage("FetchFollower")
            consumers.routes.append(route)
            consumers.elsewhere = followers.counted
            route.handle = self._watched_fetch(route.handle, followers)
            return
        usage = self._usage(name)
        usage.routes.append(route)
        if key not in _OFTEN:
            route.handle = self._timed(route.handle, usage)

    def _timed(self, handle: Handler, usage: ApiUsage) -> Handler:
        def timed(services: Any, context: Any, request: Any) -> Any:
            taken_ns = self.clock()
            received_ns = self._round_ns if self._in_round else taken_ns
            measured = context.measured = Measured(usage, received_ns, taken_ns)
            usage.accounted += 1
            self._open.append(context)
            self._named(context.connection, context.client_id)
            try:
                return handle(services, context, request)
            finally:
                measured.handled_ns = self.clock()

        return timed

    def _watched_fetch(self, handle: Handler, followers: ApiUsage) -> Handler:
        timed = self._timed(handle, followers)

        def watched(services: Any, context: Any, request: Any) -> Any:
            version = context.api_version
            replica_id = request.replica_state.replica_id if version >= _REPLICA_STATE_FROM else request.replica_id
            if replica_id < 0:
                return handle(services, context, request)
            followers.counted[version] += 1
            return timed(services, context, request)

        return watched

    def _usage(self, name: str) -> ApiUsage:
        usage = self.apis.get(name)
        if usage is None:
            usage = self.apis[name] = ApiUsage(name, self._now())
        return usage

    # -- times -------------------------------------------------------------------------------------------------------

    def _time(self, noted: list[Noted], now_ns: int) -> None:
        """The requests of a timed round: of each kind they stand for all since the last one."""
        kinds: dict[ApiUsage, list[tuple[Connection, Slot, Measured]]] = {}
        written_ns, round_ns = self._written_ns, self._round_ns
        for connection, slot, taken_ns, handled_ns in noted:
            if slot.measured is not None or not slot.request_count:
                continue
            name = slot.route.name  # type: ignore[attr-defined]
            usage = self.apis.get("FetchConsumer" if name == ApiKey.FETCH.name else name_of(ApiKey[name]))
            if usage is None:
                continue
            self._named(connection, slot.client_id)  # type: ignore[attr-defined]
            measured = Measured(usage, min(round_ns, taken_ns), taken_ns, handled_ns)
            kinds.setdefault(usage, []).append((connection, slot, measured))
        for usage, requests in kinds.items():
            total = sum(usage.requests.values())
            weight, more = divmod(total - usage.accounted, len(requests))
            usage.accounted = total
            for number, (connection, slot, measured) in enumerate(requests):
                measured.weight = weight + (number < more)
                if slot.parts is None:
                    slot.measured = measured
                else:
                    # Taken up while the answers of others were being sent: it was not part of that write.
                    measured.answered_ns = max(written_ns, measured.handled_ns)
                    self._sent(connection, measured, now_ns)

    def _close(self, now_ns: int) -> None:
        """Requests that were answered by their handlers."""
        opened, self._open = self._open, []
        for context in opened:
            measured = context.measured
            if context.parts is not None and not measured.answered_ns:
                measured.answered_ns = measured.handled_ns
                self._sent(context.connection, measured, now_ns)

    def _sent(self, connection: Connection, measured: Measured, now_ns: int) -> None:
        """An answer was given to the socket, if that has taken it."""
        if not connection.out:
            measured.usage.add(measured, now_ns)
        elif self._late_count < LATE_MAX:
            self._late.setdefault(connection, []).append(measured)
            self._late_count += 1

    def _look_at_late(self, now_ns: int) -> None:
        """Sockets that have taken everything by now."""
        for connection in [one for one in self._late if one.closed or not one.out]:
            late = self._late.pop(connection)
            self._late_count -= len(late)
            for measured in late:
                measured.usage.add(measured, now_ns)

    # -- clients -----------------------------------------------------------------------------------------------------

    def clients(self, connections: Iterable[Connection]) -> dict[str, ClientUsage]:
        """By client id, with what these connections have counted since the last call."""
        for connection in connections:
            self._take_from(connection)
        return self._clients

    def _named(self, connection: Connection, client_id: str | None) -> None:
        """A connection's client calls itself so."""
        if connection.client_id != client_id:
            if connection.client_id is not None:
                self._take_from(connection)
            connection.client_id = client_id

    def _take_from(self, connection: Connection) -> None:
        name = connection.client_id or ""
        usage = self._clients.get(name)
        if usage is None:
            if len(self._clients) >= self._clients_max():
                name = OTHER
            usage = self._clients.setdefault(name, ClientUsage())
        usage.requests += connection.requests
        usage.bytes_in += connection.bytes_in
        usage.bytes_out += connection.bytes_out
        connection.requests = connection.bytes_in = connection.bytes_out = 0


def name_of(key: ApiKey) -> str:
    """An API's name as Apache Kafka spells it: `InitProducerId`."""
    return "".join(word.capitalize() for word in key.name.split("_"))
