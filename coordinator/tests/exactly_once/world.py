"""Virtual time, a network, and clients written as generators.

Everything is an event at a time; equal times in the order of making. A client yields how many seconds it sleeps, or a
`Call`, whose answer it gets back: None if there is none in time. A call is lost, or delayed, there or back, and may
arrive after its sender gave up, crashed, or sent another: nothing is ever taken back. Times are seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from barnabas.coordinator.machine import Now

WALL_START_MS = 1_700_000_000_000
LATE_S = 8.0
"""No message takes longer."""

Answer = Callable[[Any], None]
Serve = Callable[[Answer], None]
"""Takes a request up, and answers it once, at any later time, or never."""


class Call(NamedTuple):
    """A request: `serve` runs where it arrives, and calls what it is given with the answer. `may_be_late`: it can
    arrive seconds after it was sent, when its sender has long given up, asked again and gone on.
    """

    serve: Serve
    may_be_late: bool = True
    timeout_s: float = 3.0


Life = Generator["Call | float", Any, None]


class World:
    """See the module."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.seconds = 0.0
        self.loss = 0.0
        """Of how many messages one is lost, 0 to 1."""
        self.late = 0.0
        """Of how many messages one takes seconds instead of milliseconds."""
        self.events = 0
        self.trace: list[str] | None = [] if trace else None
        self._serial = count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_START_MS + round(self.seconds * 1000))

    def note(self, text: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.seconds:9.3f} {text}")

    # -- time -------------------------------------------------------------------------------------

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heappush(self._queue, (self.seconds + seconds, next(self._serial), act))

    def run_until(self, seconds: float) -> None:
        """Do what is due by then."""
        queue = self._queue
        while queue and queue[0][0] <= seconds:
            self.seconds, _, act = heappop(queue)
            self.events += 1
            act()
        self.seconds = seconds

    # -- the network ------------------------------------------------------------------------------

    def send(self, arrive: Callable[[], None], may_be_late: bool = True) -> None:
        """One message: it arrives later, or never."""
        rng = self.rng
        if self.loss and rng.random() < self.loss:
            return
        is_late = may_be_late and self.late and rng.random() < self.late
        delay = rng.uniform(0.5, LATE_S) if is_late else rng.uniform(0.0005, 0.01)
        self.after(delay, arrive)

    def ask(self, serve: Serve, answered: Callable[[Any], None], timeout_s: float, may_be_late: bool = True) -> None:
        """A request there and its answer back; None after the time-out. `answered` is called once."""
        is_open = True

        def close(answer: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                answered(answer)

        self.send(lambda: serve(lambda answer: self.send(lambda: close(answer))), may_be_late)
        self.after(timeout_s, lambda: close(None))

    # -- clients ----------------------------------------------------------------------------------

    def live(self, life: Life, is_alive: Callable[[], bool]) -> None:
        """Let a client live until it ends, or `is_alive` is no more."""

        def go_on(value: Any) -> None:
            if not is_alive():
                life.close()
                return
            try:
                step = life.send(value)
            except StopIteration:
                return
            if isinstance(step, Call):
                self.ask(step.serve, go_on, step.timeout_s, step.may_be_late)
            else:
                self.after(step, lambda: go_on(None))

        self.after(0, lambda: go_on(None))
