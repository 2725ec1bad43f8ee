"""Many items, each for the broker that is responsible for it: a request split, its answers put together. Without IO.

    errands = Errands(partitions, now=…, limit_s=…, pauses=…)
    while not errands.is_done:
        if errands.lookups(now): … find out who is responsible …
        for trip in errands.plan(whose, now): … ask trip.broker_id for trip.items; tell `answered` or `lost` …
        … sleep until errands.due(now) …
    errands.results

Items are partitions and their leaders, groups or transactional ids and their coordinators, or brokers themselves. Each
item has tries and pauses of its own: one partition without a leader delays no other. When the time is over, what has
no answer gets its last error as a result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.kproto import ErrorCode
from barnabas.server.client.failures import Failed
from barnabas.server.client.retrying import Pauses, Verdict, of_leaders

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PORTION: Final = 1000
"""Items in one request. Brokers take more, but hold up others while they answer."""


class Trip(NamedTuple, Generic[K]):
    """One request: these items to this broker."""

    broker_id: int
    items: list[K]


class _State:
    __slots__ = ("due", "error", "is_away", "lost", "sought", "tries")

    def __init__(self, now: float) -> None:
        self.due = now
        self.tries = 0
        self.error: Failed | None = None
        self.is_away = False
        self.lost = False
        """Whoever is responsible must be looked up before the next try."""
        self.sought = False
        """It was looked up since the last try."""


class Errands(Generic[K, V]):
    """See the module. judge(code): what follows from an item's error. repeatable: an item whose connection broke after
    the request was sent is sent again.
    """

    def __init__(
        self,
        items: Iterable[K],
        *,
        now: float,
        limit_s: float,
        pauses: Pauses,
        judge: Callable[[ErrorCode], Verdict] = of_leaders,
        portion: int = PORTION,
        repeatable: bool = True,
    ) -> None:
        self._open = {item: _State(now) for item in items}
        self._until = now + limit_s
        self._pauses = pauses
        self._judge = judge
        self._portion = portion
        self._repeatable = repeatable
        self.results: dict[K, V | Failed] = {}

    @property
    def is_done(self) -> bool:
        return not self._open

    @property
    def until(self) -> float:
        """When it ends in any case."""
        return self._until

    def lookups(self, now: float) -> list[K]:
        """The items that are due, and of which it must be found out who is responsible."""
        return [item for item, state in self._open.items() if state.lost and not state.is_away and state.due <= now]

    def looked_up(self, items: Iterable[K]) -> None:
        """It was found out, as far as it can be."""
        for item in items:
            if item in self._open:
                self._open[item].lost = False
                self._open[item].sought = True

    def plan(self, whose: Callable[[K], int | Failed | None], now: float) -> list[Trip[K]]:
        """What to send now, at most one portion for each broker at a time. whose(item): the broker; Failed: there is
        none, and never will be; None: not known, so look it up and try later.
        """
        if now >= self._until:
            self._give_up()
            return []
        trips: dict[int, list[K]] = {}
        for item, state in list(self._open.items()):
            if state.is_away or state.due > now or state.lost:
                continue
            broker_id = whose(item)
            if isinstance(broker_id, Failed):
                self._end(item, broker_id)
            elif broker_id is None and not state.sought:
                state.lost = True
            elif broker_id is None:
                self._try_again(item, state, state.error or Failed(ErrorCode.LEADER_NOT_AVAILABLE), now, lost=True)
            elif len(trips.setdefault(broker_id, [])) < self._portion:
                trips[broker_id].append(item)
                state.is_away = True
        return [Trip(broker_id, items) for broker_id, items in trips.items()]

    def answered(self, item: K, result: V | Failed, now: float) -> None:
        """An answer for one item has come."""
        state = self._open.get(item)
        if state is None:
            return  # the broker speaks of what it was not asked for
        state.is_away = False
        if isinstance(result, Failed):
            what = self._judge(result.code)
            if what is not Verdict.FINAL:
                self._try_again(item, state, result, now, lost=what is Verdict.ELSEWHERE)
                return
        self._end(item, result)

    def unanswered(self, trip: Trip[K], now: float) -> None:
        """The answer has come, and leaves out what is still away: a broker that does not say all."""
        for item in trip.items:
            if item in self._open and self._open[item].is_away:
                self.answered(item, Failed(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves it out"), now)

    def lost(self, trip: Trip[K], why: str, now: float, *, sent: bool) -> None:
        """The request got no answer. sent: the broker may have seen it."""
        failed = Failed(ErrorCode.NETWORK_EXCEPTION, why)
        for item in trip.items:
            state = self._open.get(item)
            if state is None:
                continue
            state.is_away = False
            if sent and not self._repeatable:
                self._end(item, Failed(ErrorCode.NETWORK_EXCEPTION, f"{why}; whether it was done is not known"))
            else:
                self._try_again(item, state, failed, now, lost=True)

    def due(self, now: float) -> float:
        """When to plan again if nothing else happens."""
        waiting = [state.due for state in self._open.values() if not state.is_away]
        return min([self._until, *waiting])

    def _try_again(self, item: K, state: _State, failed: Failed, now: float, *, lost: bool) -> None:
        state.error = failed
        state.tries += 1
        state.due = now + self._pauses.after(state.tries)
        state.lost = lost
        state.sought = False
        if state.due >= self._until:
            self._end(item, failed)

    def _give_up(self) -> None:
        for item, state in list(self._open.items()):
            self._end(item, state.error or Failed(ErrorCode.REQUEST_TIMED_OUT))

    def _end(self, item: K, result: V | Failed) -> None:
        del self._open[item]
        self.results[item] = result
