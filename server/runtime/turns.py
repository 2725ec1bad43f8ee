"""Long requests take turns with all other work: they run in steps, so that no request blocks the loop.

A handler that may have many items to process is a generator: after each of them it yields its cost, in *units*, and
returns the response. One unit is an item whose answer has a few fields: some 3 us with its share of the
encoding. `first_turn` runs a generator within the reactor's round, and most requests are answered by then; what takes
longer continues in a task (`Turns.run`), one turn at a time for the whole broker, first come, first served. So the loop
makes a round after each turn however many long requests there are, and ten of them take as long together as one after
the other.

Units are counted, not measured: under virtual time a request is always split at the same places.

What cannot be split, because it is one call (decoding a large frame, encoding a large answer), leaves the loop
(`Turns.elsewhere`), also one at a time: the thread yields the interpreter every few milliseconds.

Between two turns everything may change except the request and an image of the cluster that was kept. A generator must
not stage a write in one turn and rely on it in another.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from barnabas.server.runtime.containment import attempt
from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.requests")

T = TypeVar("T")

Steps = Generator[int, None, T]

TURN_UNITS = 1500
"""The units of one turn: less than 5 ms."""

LARGE_FRAME_BYTES = 1 << 16
"""Frames above this are decoded off the loop. An element of an array takes a byte at least."""

ROUND_FRAME_BYTES = 1 << 13
"""Frames above this, up to 10 ms each, are decoded in turns: a round decodes a request of each connection."""

LARGE_ANSWER_ITEMS = 10_000
"""Answers with more elements in their arrays are encoded off the loop: one takes up to a microsecond."""

UNFINISHED: Final = object()


def first_turn(steps: Steps[Any]) -> Any:
    """Run a generator for one turn: what it returns, or `UNFINISHED`. Raises what it raises."""
    left = TURN_UNITS
    try:
        while left > 0:
            left -= next(steps)
    except StopIteration as done:
        return done.value
    return UNFINISHED


class Turns:
    """Hands out turns, one at a time; one per broker. The nursery is for `start`."""

    def __init__(self, offload: Offload, nursery: trio.Nursery | None = None) -> None:
        self._offload = offload
        self._nursery = nursery
        self._turn = trio.Lock()

    @property
    def mine(self) -> trio.Lock:
        """For a task that splits its work itself: `async with turns.mine` around each portion."""
        return self._turn

    async def run(self, steps: Steps[T], is_wanted: Callable[[], bool] = lambda: True) -> T:
        """Run a generator to its end, turn by turn, or until it is not wanted any more: then raises Abandoned."""
        while True:
            async with self._turn:  # a round of the loop, also if the lock is free
                if not is_wanted():
                    steps.close()
                    raise Abandoned
                value = first_turn(steps)
            if value is not UNFINISHED:
                return value  # type: ignore[no-any-return]

    def start(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """Continue in a task, from synchronous code. what: for the log."""
        assert self._nursery is not None, "not running"
        self._nursery.start_soon(attempt, log, what, work)

    async def here(self, function: Callable[..., T], *args: Any) -> T:
        """Call a pure function that takes one turn's time, or a few."""
        async with self._turn:
            return function(*args)

    async def elsewhere(self, function: Callable[..., T], *args: Any) -> T:
        """Call a long pure function off the loop."""
        async with self._turn:
            return await self._offload(function, *args)


class Place:
    """A lock, first come, first served, that its holder may release before the end of its `async with`."""

    def __init__(self) -> None:
        self._free = trio.Semaphore(1)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Callable[[], None]]:
        """Take it; the function returned releases it, the end of the context at the latest."""
        await self._free.acquire()
        is_taken = True

        def leave() -> None:
            nonlocal is_taken
            if is_taken:
                is_taken = False
                self._free.release()

        try:
            yield leave
        finally:
            leave()


class Abandoned(Exception):
    """The outcome is not wanted any more."""


class Arrays:
    """The positions of a message's arrays, to count their elements. `struct`: of its class's `__description__`."""

    __slots__ = ("_fields",)

    def __init__(self, struct: Any) -> None:
        self._fields: tuple[tuple[str, Arrays | None], ...] = tuple(
            (field.name, None if field.struct is None else Arrays(field.struct))
            for field in struct.fields
            if field.is_array
        )

    def has_more_than(self, limit: int, message: Any) -> bool:
        """Whether there are more than `limit` elements in all arrays of a message together."""
        return self._left(limit, message) < 0

    def _left(self, left: int, message: Any) -> int:
        for name, inner in self._fields:
            elements: Iterable[Any] = getattr(message, name) or ()
            left -= len(elements)  # type: ignore[arg-type]
            if inner is not None and inner._fields:
                for element in elements:
                    if left < 0:
                        return left
                    left = inner._left(left, element)
        return left
