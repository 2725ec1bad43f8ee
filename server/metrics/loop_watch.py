"""How late the event loop is, and how busy its thread.

A task sleeps for a moment, again and again, and notes how much later than asked it goes on: everybody else who waits in
the loop waits as long. The thread's CPU time says the rest, without any cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from barnabas.server.metrics.histogram import Histogram

TICK_S = 0.25
BUSY_SPAN_S = 5.0
"""The shortest time over which the share of busy time is taken."""


class LoopWatch:
    """cpu_s(): CPU seconds of the loop's thread."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        self.delays = Histogram()
        self._marks = [(trio.current_time(), cpu_s())]

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            due = trio.current_time() + TICK_S
            await trio.sleep_until(due)
            self.delays.add(int((trio.current_time() - due) * 1e9))

    def cpu_seconds(self) -> float:
        """Of the loop's thread, in all."""
        return self._cpu_s()

    def idle_share(self) -> float:
        """Of the loop's thread, from 0 to 1, since the look before the last; at least over `BUSY_SPAN_S`."""
        now, cpu_s = trio.current_time(), self._cpu_s()
        marks = self._marks
        if now - marks[-1][0] >= BUSY_SPAN_S:
            self._marks = marks = [marks[-1], (now, cpu_s)]
        before, cpu_before = marks[0]
        if now <= before:
            return 1.0
        return min(max(1.0 - (cpu_s - cpu_before) / (now - before), 0.0), 1.0)
