"""What the fast paths share: requests that differ in numbers only, answers with room for numbers, and who keeps them.

Form         a frame of fixed size in which known numbers may differ: `numbers(frame)`, or None
Repeated     a `FastPath` of such frames: looks up an example by size, and hands it the numbers
AnswerForm   an encoded answer with places for three numbers each, and for the correlation id
fast_path_of the path of a kind that a connection has
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas.server.network.connection import Connection, FastPath
from barnabas.server.requests.context import RequestContext, Route
from barnabas.server.requests.services import Services

CORRELATION_ID_AT: Final = 4
"""In a request's frame, without its length: after the API's key and version. In an answer's: after its length."""
BODY_AT: Final = 8

int_at = Struct(">i").unpack_from
"""int_at(frame, position) -> (int32,)"""
long_at = Struct(">q").unpack_from
"""long_at(frame, position) -> (int64,)"""

MARKS: Final = (0x0123456789ABCDEF, 0x1123456789ABCDEF, 0x2123456789ABCDEF)
"""Placeholders in an answer for three consecutive int64 that differ from answer to answer. No text has their bytes, and
they are longer than an id.
"""
_MARKED: Final = Struct(">qqq").pack(*MARKS)

INT_BYTES: Final = 4
LONG_BYTES: Final = 8
_FIELD_BYTES: Final = {"h": 2, "i": INT_BYTES, "q": LONG_BYTES}

P = TypeVar("P", bound=FastPath)


class Form:
    """A request's frame, and what may differ in another one that means the same: the correlation id, and `fields`, the
    positions of numbers, rising, with their `struct` letters ("h", "i", "q").
    """

    __slots__ = ("_constants", "_unpack", "size")

    def __init__(self, frame: bytes, fields: Sequence[tuple[int, str]]) -> None:
        self.size = len(frame)
        form, end = ">", 0
        for at, letter in ((CORRELATION_ID_AT, "i"), *fields):
            form += f"{at - end}s{letter}"
            end = at + _FIELD_BYTES[letter]
        self._unpack = Struct(f"{form}{self.size - end}s").unpack
        self._constants = self._unpack(frame)[::2]

    def numbers(self, frame: memoryview | bytes) -> tuple[int, ...] | None:
        """The correlation id and the fields of a frame of `size` bytes whose other bytes are equal; else None."""
        parts = self._unpack(frame)
        return parts[1::2] if parts[::2] == self._constants else None


def around_marks(route: Route, response: Any) -> tuple[bytes, ...]:
    """An encoded answer that has `MARKS` in it, once or more, or not at all: the bytes between its correlation id and
    the first marks, those behind them, and so on. A frame is its length, a correlation id, and these around numbers.
    """
    frame = b"".join(bytes(part) for part in route.encode_frame(0, response))  # type: ignore[arg-type]
    return tuple(frame[BODY_AT:].split(_MARKED))


class Example(Protocol):
    """A request that was handled, and what its like need for their answer."""

    @property
    def form(self) -> Form: ...

    def take(self, connection: Connection, numbers: tuple[int, ...]) -> RequestContext | None:
        """Take up a request like this one with these numbers; None: it is left to the slow path, and nothing has
        happened. The clients' quotas need not be looked at.
        """


E = TypeVar("E", bound=Example)


class Repeated(Generic[E]):
    """A `FastPath` of requests whose frames have a `Form`: those remembered of one connection, by size. One class for
    each kind, derived from it. `EXAMPLES_MAX`: how many; a new one takes the place of the oldest. `FRAME_BYTES_MAX`:
    of each.

    To learn costs as much as ten requests gain: of a client for which it does not pay, learning becomes rare.
    """

    __slots__ = ("_examples", "_in_vain", "_pause", "_svc", "_taken")

    EXAMPLES_MAX = 1
    FRAME_BYTES_MAX = 2048
    """A header's tagged fields may have any size."""

    def __init__(self, svc: Services) -> None:
        self._svc = svc
        self._examples: dict[int, E] = {}
        self._taken = 0
        self._in_vain = 0
        self._pause = 0

    def take(self, connection: Connection, frame: memoryview) -> RequestContext | None:
        """Part of `FastPath`."""
        example = self._examples.get(len(frame))
        if example is None:
            return None
        numbers = example.form.numbers(frame)
        if numbers is None or self._svc.quotas.limits_requests:
            return None
        context = example.take(connection, numbers)
        if context is not None:
            self._taken += 1
        return context

    def take_run(self, connection: Connection, view: memoryview, position: int) -> None:
        """Part of `FastPath`. Who waits for the answer before the next request sends no runs."""

    def may_learn(self, frame: memoryview) -> bool:
        """Whether to learn from a request that was not taken: it is like no example, and learning pays."""
        example = self._examples.get(len(frame))
        if example is not None and example.form.numbers(frame) is not None:
            return False
        self._pause -= 1
        return self._pause < 0

    def remember(self, example: E) -> None:
        """Have the next requests like this one be taken."""
        examples = self._examples
        is_new = example.form.size not in examples
        if not is_new or len(examples) >= self.EXAMPLES_MAX:
            self._in_vain = 0 if self._taken >= _PAYS_FROM else min(self._in_vain + 1, _IN_VAIN_MAX)
            self._pause = (1 << self._in_vain) - 1
            if is_new:
                del examples[next(iter(examples))]
        self._taken = 0
        examples[example.form.size] = example


_PAYS_FROM: Final = 10
"""So many requests must be taken for each one that was learnt."""
_IN_VAIN_MAX: Final = 5
"""At the worst one of 32 is learnt."""


def fast_path_of(connection: Connection, kind: type[P]) -> P | None:
    """The connection's fast path of this kind."""
    for path in connection.fast_paths:
        if type(path) is kind:
            return path
    return None
