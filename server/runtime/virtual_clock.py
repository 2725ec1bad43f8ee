"""The clock of a broker under test: it goes as fast as any clock, and jumps forwards when it is told to.

It is the clock of the trio loop, and says what time it is in the world (`wall`), so that timers and the timestamps of
records stay together. A broker that serves has none of this: trio's own clock and `time.time` (`Broker`).

An advance goes from deadline to deadline, as trio knows them, and lets everything run in between (`Settling`), with
the clock at a standstill: what happens at each deadline happens at its time, in the order of the deadlines, and what it
sets in motion has its own deadline after that. `GRAIN` bounds the number of steps: those that are far from both
ends of the advance are at least that part of the way to the nearer end, and deadlines that they pass are due together.
So what is due early, or shortly before the end, is on time to the hundredth of a second; and a timer far from both is
late by one percent of its time at most. Without that, seven days would be a million steps, most of them of upkeep
that is due every few seconds and finds nothing to do.

Several clocks, of brokers in processes of their own, are moved by somebody who moves all in step (`barnabas.Cluster`):
`hold`, then `step` as often as it takes, and `release`.

Seconds everywhere. Forwards only: trio's time never goes back. `wall` may, when a broker is restored
(`ahead_of_wall`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import trio

from barnabas.server.runtime.outside import Outside

GRAIN: Final = 0.01
"""The smallest step, as a part of the way to the nearer end of the advance."""
GRAIN_MIN_S: Final = 0.01
ADVANCE_MAX_S: Final = 100 * 366 * 86400.0


class InACluster(Exception):
    """The clock of a broker in a cluster is not moved alone, and it alone is not restored; the message says so."""


class Held(Exception):
    """The clock is held, or is not; the message says which."""


class Stood(NamedTuple):
    """How it is after a step. is_at_rest: nothing has run, and no answer is on its way that does not wait for time to
    pass; if that holds for all brokers of a cluster, time may go on. next_s: when something is due, in seconds.
    """

    is_at_rest: bool
    next_s: float


class VirtualClock(trio.abc.Clock):
    """See the module. For `trio.run(clock=…)`.

    monotonic, wall: real clocks, in seconds. `followers`: called with the seconds of each step, before anything runs at
    the new time.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._real_wall = wall
        self._ahead_s = 0.0  # of `monotonic`
        self._ahead_of_wall_s = 0.0
        self._stands_at: float | None = None  # during an advance
        self._wall_stands_at = 0.0
        self._next_deadline = float("inf")
        self._moved_s: float | None = None  # since it is held
        self.outside = Outside()
        self.followers: list[Callable[[float], None]] = [self.outside.time_jumped]

    # -- what trio asks ----------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        at = self._stands_at
        return self._monotonic() + self._ahead_s if at is None else at

    def deadline_to_sleep_time(self, deadline: float) -> float:
        self._next_deadline = deadline
        if self._stands_at is None:
            return deadline - self.current_time()
        return 0.0 if deadline <= self._stands_at else float("inf")

    # -- what others ask ---------------------------------------------------------------------------------------------

    def wall(self) -> float:
        """What time it is in the world of the broker, in seconds since the epoch."""
        return self._real_wall() + self._ahead_of_wall_s if self._stands_at is None else self._wall_stands_at

    @property
    def is_advancing(self) -> bool:
        return self._stands_at is not None

    @property
    def is_held(self) -> bool:
        """It stands still until `release`."""
        return self._moved_s is not None

    @property
    def ahead_of_wall_s(self) -> float:
        """How far `wall` is ahead of the real one. Set it where a broker begins a life, and nobody remembers another
        time; not during an advance.
        """
        return self._ahead_of_wall_s

    @ahead_of_wall_s.setter
    def ahead_of_wall_s(self, seconds: float) -> None:
        assert not self.is_advancing
        self._ahead_of_wall_s = seconds

    async def advance(self, seconds: float, settled: Callable[[], Awaitable[bool]]) -> None:
        """Let so much time pass at once; returns when everything that was due then is done. One at a time.

        settled: `Settling.wait`; awaited before the first step and after each. Raises ValueError for a time that is not
        from 0 to `ADVANCE_MAX_S`. Cancelled half way, the clock goes on from where it is.
        """
        if not 0 <= seconds <= ADVANCE_MAX_S:  # nan is refused as well
            raise ValueError(f"the clock can be advanced by 0 to {ADVANCE_MAX_S:.0f} seconds, not by {seconds:g}")
        assert not self.is_advancing
        begin = self.current_time()
        self._wall_stands_at = self.wall()
        self._stands_at = begin
        try:
            await self._advance(begin, begin + seconds, settled)
        finally:
            at, self._stands_at = self.current_time(), None
            self._ahead_s = at - self._monotonic()
            self._ahead_of_wall_s = self._wall_stands_at - self._real_wall()

    async def _advance(self, begin: float, end: float, settled: Callable[[], Awaitable[bool]]) -> None:
        now = begin
        is_settled = await settled()
        while now < end:
            least_s = max(GRAIN_MIN_S, GRAIN * min(now - begin, end - now))
            # The next deadline is what trio has last asked for, which is the truth only once all tasks wait.
            following = self._next_deadline if is_settled else now
            now = min(max(now + least_s, following), end)
            self._step_to(now)
            is_settled = await settled()

    # -- step by step ------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let the clock stand still until `release`."""
        assert not self.is_advancing
        self._wall_stands_at = self.wall()
        self._stands_at = self.current_time()
        self._moved_s = 0.0

    def step(self, seconds: float) -> None:
        """Let a clock that is held stand so much later. What is due then runs when the caller waits. Raises ValueError
        as `advance` does.
        """
        if not 0 <= seconds <= ADVANCE_MAX_S:
            raise ValueError(f"the clock can be moved by 0 to {ADVANCE_MAX_S:.0f} seconds, not by {seconds:g}")
        assert self._stands_at is not None
        assert self._moved_s is not None
        self._moved_s += seconds
        self._step_to(self._stands_at + seconds)

    def release(self) -> None:
        """Let the clock go on. `wall` is ahead by exactly the sum of the steps more: so are others that were moved
        likewise, however long each was held. For trio nothing was missed: it goes on from where it stood.
        """
        assert self._moved_s is not None
        at, self._stands_at = self.current_time(), None
        self._ahead_s = at - self._monotonic()
        self._ahead_of_wall_s += self._moved_s
        self._moved_s = None

    @property
    def next_deadline_s(self) -> float:
        """How much later something is due in this loop, for a clock that is held and a loop in which all tasks wait."""
        assert self._stands_at is not None
        return max(0.0, self._next_deadline - self._stands_at)

    def _step_to(self, at: float) -> None:
        assert self._stands_at is not None
        step_s = at - self._stands_at
        self._stands_at = at
        self._wall_stands_at += step_s
        for follower in self.followers:
            follower(step_s)
