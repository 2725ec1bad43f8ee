"""Throttling: requests of clients with quotas are measured, and clients over their quota are delayed.

While there are quotas of requests (`ClientQuotas.limits_requests`), the dispatcher gives each request a
`ThrottledContext`, and fast paths are not used. Without quotas nothing here is reached.

The response itself is not delayed, as in Apache Kafka: it carries `throttle_time_ms`, and the connection is not read
for that long (`Connection.mute`). A client that sends nevertheless fills its own socket, not our memory, and affects no
other client. Sources: `ClientQuotaManager.java`, `ClientRequestQuotaManager.java`, `RequestHandlerHelper.scala` (4.3).

| quota | what counts | when | over the quota |
| --- | --- | --- | --- |
| produce | the frame, refused partitions too | it arrives | answered as usual, or not at all (acks=0) |
| fetch | what the answer holds, of consumers | before it leaves | an empty answer, nothing counted, the session as is |
| fetch | what the answer to a ShareFetch holds | before it leaves | as usual: the member has these records |
| request | time on the loop, in percent | before the answer leaves | as usual; a Fetch: an empty answer |
| controller mutations | partitions created, added, deleted | before they are | see `charge` |

Not obvious:

- A Produce is counted when it arrives and not when it is answered, so that a client that sends many at a time is
  stopped at the first one over the quota.
- Time is the CPU time of this thread in the handler, its steps and its task. Time after the response is made counts for
  no client. There is one such thread, so 100 percent is the maximum.
- Requests of brokers, fetches of followers and acks=0 count no time.
- A fetch is limited to the full burst of its quota; a single batch larger than that never passes, as in Apache Kafka.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError, Part
from barnabas.server.requests.context import RequestContext, Route

if TYPE_CHECKING:
    from barnabas.kproto.frame import RequestHeader
    from barnabas.server.cluster.client_quotas import ClientQuotas
    from barnabas.server.network.connection import Connection
    from barnabas.server.runtime.timers import Timers

_EXEMPT = frozenset(
    key.name
    for key in (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    )
)


class Throttle:
    """now(): seconds of trio's clock. cpu_s(): CPU time of this thread, in seconds. delays, delays_ms: how many
    requests were throttled, and for how long in all, by API.
    """

    def __init__(
        self, quotas: ClientQuotas, timers: Timers, now: Callable[[], float], cpu_s: Callable[[], float]
    ) -> None:
        self.quotas = quotas
        self.now = now
        self.cpu_s = cpu_s
        self._timers = timers
        self._timed: dict[int, TimedRoute] = {}
        self.delays: Counter[str] = Counter()
        self.delays_ms: Counter[str] = Counter()

    def route(self, route: Any) -> Any:
        """The route, with timed handlers if there is a request-time quota."""
        if not self.quotas.request.limits:
            return route
        timed = self._timed.get(id(route))
        if timed is None:
            timed = self._timed[id(route)] = TimedRoute(route, self.cpu_s)
        return timed

    def mute(self, connection: Connection, delay_ms: int) -> None:
        """Do not read a connection for that time."""
        until = self.now() + delay_ms / 1000
        if connection.mute(until):
            # It may be closed long before that time is over.
            found = weakref.ref(connection)

            def unmute() -> None:
                muted = found()
                if muted is not None:
                    muted.unmute(self.now())

            self._timers.at(until, unmute)


class ThrottledContext(RequestContext):
    """See the module."""

    __slots__ = ("_client_id", "_counts_time", "_delay_ms", "_is_exempt", "_throttle", "_user", "begun_s", "spent_s")

    def __init__(
        self,
        throttle: Throttle,
        connection: Connection,
        route: Route,
        api_version: int,
        header: RequestHeader,
        frame_bytes: int,
    ) -> None:
        super().__init__(connection, route, api_version, header.correlation_id, header.client_id)
        self._throttle = throttle
        self._user = connection.session.principal.name
        self._client_id = header.client_id or ""
        self._delay_ms = 0
        self._is_exempt = False
        self._counts_time = bool(throttle.quotas.request.limits) and route.name not in _EXEMPT
        self.begun_s: float | None = None  # while its handler runs
        self.spent_s = 0.0
        if route.name == ApiKey.PRODUCE.name:
            self._wait(throttle.quotas.produce.record(self._user, self._client_id, frame_bytes, throttle.now()))

    def reply(self, response: Any) -> None:
        if self.parts is None and not self.connection.closed:
            self.settle(response)
        super().reply(response)

    def settle(self, response: Any) -> None:
        """Part of `RequestContext`."""
        self._count_time()
        if self._delay_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self._delay_ms)

    def exempt(self) -> None:
        """Part of `RequestContext`."""
        self._counts_time = False
        self._is_exempt = True

    @property
    def fetch_bytes_max(self) -> float | None:
        """Part of `RequestContext`."""
        if self._is_exempt:
            return None
        return self._throttle.quotas.fetch.at_once(self._user, self._client_id)

    def withholds(self, size: int) -> bool:
        """Part of `RequestContext`. A response that is withheld does not count."""
        if self._is_exempt:
            return False
        fetch, now = self._throttle.quotas.fetch, self._throttle.now()
        self._count_time()
        self._wait(fetch.record(self._user, self._client_id, size, now))
        if self._delay_ms:
            fetch.take_back(self._user, self._client_id, size, now)
        return self._delay_ms > 0

    def count_fetched(self, size: int) -> None:
        """Part of `RequestContext`."""
        if size:
            self._wait(self._throttle.quotas.fetch.record(self._user, self._client_id, size, self._throttle.now()))

    def charge(self, count: int, *, strict: bool) -> None:
        """Part of `RequestContext`."""
        throttle = self._throttle
        delay_ms = throttle.quotas.mutations.take(self._user, self._client_id, count, throttle.now(), strict=strict)
        self._wait(delay_ms)
        if strict and delay_ms:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def _wait(self, delay_ms: int) -> None:
        if delay_ms > self._delay_ms:
            throttle, name = self._throttle, self.route.name
            throttle.delays[name] += not self._delay_ms
            throttle.delays_ms[name] += delay_ms - self._delay_ms
            self._delay_ms = delay_ms
            self._throttle.mute(self.connection, delay_ms)

    def _count_time(self) -> None:
        if not self._counts_time:
            return
        self._counts_time = False
        throttle = self._throttle
        spent_s = self.spent_s
        if self.begun_s is not None:
            spent_s += throttle.cpu_s() - self.begun_s
        self._wait(throttle.quotas.request.record(self._user, self._client_id, 100 * spent_s, throttle.now()))


class TimedRoute:
    """A route whose handlers of all kinds are timed. No fast path learns from it."""

    learn = None

    def __init__(self, route: Any, cpu_s: Callable[[], float]) -> None:
        self._route = route
        self._cpu_s = cpu_s
        self.pipelined: bool = route.pipelined
        self.name: str = route.name
        self.elements_max: int = route.elements_max
        self.decode: Callable[[Any, int, int], tuple[Any, int]] = route.decode
        self.is_async: bool = route.is_async
        self.round_bytes: int = route.round_bytes

    @property
    def taken(self) -> int:
        return int(self._route.taken)

    @taken.setter
    def taken(self, count: int) -> None:
        self._route.taken = count

    def is_large(self, response: Any) -> bool:
        return bool(self._route.is_large(response))

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]:
        return self._route.encode_frame(correlation_id, response)  # type: ignore[no-any-return]

    def error_response(self, request: Any, code: ErrorCode) -> Any:
        return self._route.error_response(request, code)

    def handle(self, services: Any, context: Any, request: Any) -> Any:
        context.begun_s = self._cpu_s()
        try:
            response = self._route.handle(services, context, request)
        finally:
            self._stop(context)
        if type(response) is CoroutineType:
            return self._timed_task(context, response)
        if type(response) is GeneratorType:
            return self._timed_steps(context, response)
        return response

    async def _timed_task(self, context: ThrottledContext, task: Coroutine[Any, Any, Any]) -> Any:
        return await _Driven(self._timed_steps(context, task))

    def _timed_steps(self, context: ThrottledContext, steps: Any) -> Generator[Any, Any, Any]:
        step, given = steps.send, None
        while True:
            context.begun_s = self._cpu_s()
            try:
                made = step(given)
            except StopIteration as done:
                return done.value
            finally:
                self._stop(context)
            try:
                step, given = steps.send, (yield made)
            except BaseException as error:  # thrown in by the caller: cancelled, or abandoned
                step, given = steps.throw, error

    def _stop(self, context: ThrottledContext) -> None:
        if context.begun_s is not None:
            context.spent_s += self._cpu_s() - context.begun_s
            context.begun_s = None


class _Driven:
    """Steps as an awaitable."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps
