"""Timers of the broker: one heap, one trio task, callbacks instead of tasks.

A long poll costs a heap entry here and nothing else; a cancelled timer stays in the heap until its time (usually
a fetch is answered long before its `max_wait_ms`), so arming one rarely has to wake the task. Times are seconds
of trio's clock, so that a mock clock drives everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

import trio

from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.timers")

SLEEP_MAX_S = 60.0
"""Trio keeps the deadline of each sleep that ended early until it has come, up to a thousand of them."""


class Timer:
    """A timer that was armed; `cancel()` may be called at any time, also after it fired."""

    __slots__ = ("_timers", "callback", "deadline")

    def __init__(self, timers: Timers, deadline: float, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.cancelled()


class Timers:
    """See the module. `run` must be running for anything to fire."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = count()
        self._dead = 0
        self._wake = Wakeup()
        self._sleeping_until = float("inf")

    def at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once when trio's clock reaches `deadline` (seconds)."""
        timer = Timer(self, deadline, callback)
        heappush(self._heap, (deadline, next(self._serial), timer))
        if deadline < self._sleeping_until:
            self._wake.set()
        return timer

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.at(trio.current_time() + seconds, callback)

    def cancelled(self) -> None:
        """Sweep the heap when most of it is dead: 10-minute timers cancelled immediately must not pile up."""
        self._dead += 1
        if self._dead > 1024 and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._dead = 0

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            self._fire(trio.current_time())
            self._sleeping_until = trio.current_time() + SLEEP_MAX_S
            if self._heap and self._heap[0][0] < self._sleeping_until:
                self._sleeping_until = self._heap[0][0]
            with trio.move_on_at(self._sleeping_until):
                await self._wake.wait()
            self._sleeping_until = float("-inf")
            self._wake.clear()
            await trio.lowlevel.checkpoint()

    def _fire(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            timer = heappop(heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._dead -= self._dead > 0
                continue
            try:
                callback()
            except Exception as error:
                contain(log, f"a timer's callback ({callback!r})", error, callback)
            heap = self._heap
