"""One thread of virtual time: the clock, what happens at a time, processes that stand still, and the trace of it all.

Time moves only when no task can run, to the next moment at which anything is due: a task's deadline, or a callback of
`World.at` (network and store are made of those: no task is spent on a delay). Seconds, from 0.

A *domain* is a name that tasks inherit from the task that started them: the brokers have one each. `freeze(domain)`
holds its tasks as SIGSTOP does: whatever wakes them (bytes, timers, cancellation) waits until `thaw`; deadlines pass
meanwhile. `in_domain(domain, fn)` calls `fn` so that the tasks it starts belong there.

This file knows trio's inside (`trio._core._run`: the queue of runnable tasks, the seed of the scheduler) and is the
only one that does; written for trio 0.30 to 0.35.
"""

from __future__ import annotations

import gc
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

T = TypeVar("T")

DOMAIN: ContextVar[str] = ContextVar("domain", default="")
"""Which simulated process a task belongs to; empty for the simulation itself."""

START_OF_TIME = 1_750_000_000.0
"""Wall clock at virtual time 0, in seconds since 1970."""


class Call:
    """Something due at `time`; `cancel()` at any time."""

    __slots__ = ("args", "fn", "time")

    def __init__(self, time: float, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.time = time
        self.fn: Callable[..., object] | None = fn
        self.args = args

    def cancel(self) -> None:
        self.fn = None
        self.args = ()


class World:
    """See the module. Random numbers come from `rng(name)`, one stream per user: they do not disturb each other.

    violations: what was found to be wrong; the first ends the run. is_over: it has ended. keep: keep the trace's lines,
    for people; its hash is kept in any case. echo: called with each line.
    """

    def __init__(self, seed: int, *, keep: bool = False, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.violations: list[str] = []
        self.is_over = False
        self.lines: list[str] = []
        self.nursery: trio.Nursery
        self._keep = keep
        self._echo = echo
        self._hash = hashlib.blake2b(digest_size=16)
        self._clock = MockClock(autojump_threshold=0)
        self._clock._real_clock = lambda: 0.0
        self._clock.current_time = self._now  # type: ignore[method-assign]
        self._clock._autojump = self._jump  # type: ignore[method-assign]
        self._time = 0.0
        self._calls: list[tuple[float, int, Call]] = []
        self._serial = 0
        self._queue: _Runnable
        self._main: trio.CancelScope | None = None

    # -- randomness and time -----------------------------------------------------------------------------------------

    def rng(self, name: str) -> Random:
        """A stream of random numbers of its own."""
        return Random(f"{self.seed}/{name}")

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._time

    def wall_clock(self) -> float:
        """Seconds since 1970."""
        return START_OF_TIME + self._time

    def _now(self) -> float:
        return self._time

    def at(self, time: float, fn: Callable[..., object], *args: Any) -> Call:
        """Call `fn(*args)` when it is `time`; calls of the same time in the order of `at`."""
        call = Call(time, fn, args)
        self._serial += 1
        heappush(self._calls, (time, self._serial, call))
        return call

    def after(self, seconds: float, fn: Callable[..., object], *args: Any) -> Call:
        return self.at(self._time + seconds, fn, *args)

    def _jump(self) -> None:
        """Nothing can run: go to what is due next, and do it. trio looks at its own deadlines right after."""
        calls = self._calls
        while calls and calls[0][2].fn is None:
            heappop(calls)
        time = trio._core._run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if calls and calls[0][0] <= time:
            time = calls[0][0]
            self._time = max(self._time, time)
            while calls and calls[0][0] <= time:
                call = heappop(calls)[2]
                fn, call.fn = call.fn, None
                if fn is not None:
                    fn(*call.args)
        elif time < float("inf"):
            self._time = max(self._time, time)
        else:
            raise RuntimeError("everything waits and nothing is due")

    # -- domains -----------------------------------------------------------------------------------------------------

    def in_domain(self, domain: str, fn: Callable[..., T], *args: Any) -> T:
        """`fn(*args)`, called as the domain: what it starts belongs there."""
        context = copy_context()
        context.run(DOMAIN.set, domain)
        return context.run(fn, *args)

    def freeze(self, domain: str) -> None:
        """Hold all tasks of the domain where they are."""
        self._queue.held.setdefault(domain, [])

    def thaw(self, domain: str) -> None:
        """Let the tasks of the domain go on."""
        self._queue.extend(self._queue.held.pop(domain, ()))

    def _thaw_all(self) -> None:
        for domain in list(self._queue.held):
            self.thaw(domain)

    def is_frozen(self, domain: str) -> bool:
        return domain in self._queue.held

    # -- trace and verdict -------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Something happened. Part of the trace that two runs of a seed must have in common."""
        line = f"{self._time:10.4f} {text}"
        self._hash.update(line.encode())
        self.say(line)

    def mix(self, *values: object) -> None:
        """Something too small to be shown, but a part of the trace."""
        self._hash.update(repr((self._time, values)).encode())

    def say(self, line: str) -> None:
        """For people; not a part of the trace."""
        if self._keep:
            self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    def violation(self, text: str) -> None:
        """Something that must hold does not. Ends the run."""
        if self.is_over:
            return
        self.is_over = True
        self.note(f"VIOLATION {text}")
        self.violations.append(f"at {self._time:.3f} s: {text}")
        if self._main is not None:
            self._main.cancel()
            self._thaw_all()  # or they could not end

    @property
    def digest(self) -> str:
        """Hash of the trace."""
        return self._hash.hexdigest()

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` with `nursery` open, until it returns or a violation is found."""
        inside: Any = trio._core._run
        deterministic, state = inside._ALLOW_DETERMINISTIC_SCHEDULING, inside._r.getstate()
        collecting = gc.isenabled()
        inside._ALLOW_DETERMINISTIC_SCHEDULING = True
        inside._r.seed(f"{self.seed}/scheduler")
        gc.disable()  # a finalizer that runs at another moment is another run
        try:
            trio.run(self._run, main, clock=self._clock)
        finally:
            inside._ALLOW_DETERMINISTIC_SCHEDULING = deterministic
            inside._r.setstate(state)
            if collecting:
                gc.enable()

    async def _run(self, main: Callable[[], Awaitable[None]]) -> None:
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        self._queue = runner.runq = _Runnable(runner.runq)
        with trio.CancelScope() as self._main:
            async with trio.open_nursery() as self.nursery:
                if self.violations:
                    self._main.cancel()
                await main()
                self.is_over = True
                self._thaw_all()
                self.nursery.cancel_scope.cancel()


class _Runnable(deque[Any]):
    """The queue of runnable tasks; those of a frozen domain are kept in `held` instead."""

    def __init__(self, tasks: deque[Any]) -> None:
        super().__init__(tasks)
        self.held: dict[str, list[Any]] = {}

    def append(self, task: Any) -> None:
        if self.held:
            domain = task.context.get(DOMAIN)
            if domain in self.held:
                self.held[domain].append(task)
                return
        super().append(task)
