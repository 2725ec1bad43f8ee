"""Long requests take turns with everything else: work in steps, so that no request holds up the loop.

A handler that may have many items to go through is a generator: it yields after each of them what that was worth, in
*units*, and returns the response. One unit is an item whose answer has a few fields: some 3 us with its share of the
encoding. `first_turn` runs a generator within the reactor's round, and most requests are answered by then; what takes
longer continues in a task (`Turns.run`), one turn at a time for the whole broker, first come, first served. So the loop
goes round after each turn however many long requests there are, and ten of them take as long together as they would one
after the other.

Units are counted, not measured: under virtual time a request is split at the same places whatever the machine does.

What cannot be split, because it is one call (decoding a large frame, encoding a large answer), leaves the loop
(`Turns.elsewhere`), also one at a time: the thread gives the interpreter back every few milliseconds.

Between two turns everything may change but the request and an image of the cluster that was kept. A generator must not
stage a write in one turn and rely on it in another.
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
"""What is done in one turn: less than 5 ms."""

LARGE_FRAME_BYTES = 1 << 16
"""Frames above this are decoded off the loop. An element of an array takes a byte at least."""

ROUND_FRAME_BYTES = 1 << 13
"""Frames above this, up to 10 ms each, are decoded in turns: a round takes up a request of each connection."""

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
    """Whose turn it is; one per broker. The nursery is for `start`."""

    def __init__(self, offload: Offload, nursery: trio.Nursery | None = None) -> None:
        self._offload = offload
        self._nursery = nursery
        self._turn = trio.Lock()

    @property
    def mine(self) -> trio.Lock:
        """For a task that does its portions itself: `async with turns.mine`, around each of them."""
        return self._turn

    async def run(self, steps: Steps[T], is_wanted: Callable[[], bool] = lambda: True) -> T:
        """Run a generator to its end, turn by turn, or until it is not wanted any more: raises Abandoned."""
        while True:
            async with self._turn:  # goes round the loop, whether anybody else holds it or not
                if not is_wanted():
                    steps.close()
                    raise Abandoned
                value = first_turn(steps)
            if value is not UNFINISHED:
                return value  # type: ignore[no-any-return]

    def start(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """Go on in a task, from where nothing can be awaited. what: it is, for the log."""
        assert self._nursery is not None, "not running"
        self._nursery.start_soon(attempt, log, what, work)

    async def here(self, function: Callable[..., T], *args: Any) -> T:
        """Call something pure that takes a turn's time, or a few."""
        async with self._turn:
            return function(*args)

    async def elsewhere(self, function: Callable[..., T], *args: Any) -> T:
        """Call something pure, and long, off the loop."""
        async with self._turn:
            return await self._offload(function, *args)


class Place:
    """There is one; who wants it waits, first come, first served. It may be left early, before who has it is done."""

    def __init__(self) -> None:
        self._free = trio.Semaphore(1)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Callable[[], None]]:
        """Take it; what is given leaves it, at the end at the latest."""
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
    """Nobody waits for the outcome."""


class Arrays:
    """Where the arrays of a message are, to count their elements. `struct`: of its class's `__description__`."""

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
