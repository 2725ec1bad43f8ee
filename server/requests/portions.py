"""Requests that change very many items: one portion at a time, each staged, written, and answered by itself.

A record costs some 5 us from the machine's decision to its replay, so some hundred of them are a turn. To the client it
is one request with one answer. In Apache Kafka it would be one batch, all or nothing; here each item has its own error
code, as the protocol provides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from barnabas.kproto import ErrorCode
from barnabas.server.requests.services import Services

AT_ONCE = 500
"""Items per portion. A request with no more is handled in one step."""


class Collector(Protocol):
    """Answers a request once it has the codes of all its items."""

    def release_waiters(self) -> str:
        """As in `barnabas.server.runtime.containment.HasWaiters`."""


class Codes:
    """The codes of `count` items, which come in portions; `done(codes)` is called with all of them, once.

    `portion` makes the tokens. A portion may be answered with one code, for all of it.
    """

    def __init__(self, count: int, done: Callable[[list[ErrorCode]], None], whole: Collector) -> None:
        self._codes: list[ErrorCode] = [ErrorCode.NONE] * count
        self._pending = count
        self._done = done
        self._whole = whole

    def portion(self, first: int, end: int) -> Portion:
        """The token for the items from `first` to `end`, exclusive."""
        return Portion(self, first, end)

    def answered(self, first: int, codes: list[ErrorCode]) -> None:
        """Called by a portion."""
        self._codes[first : first + len(codes)] = codes
        self._pending -= len(codes)
        if not self._pending:
            self._done(self._codes)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._whole.release_waiters()


class Portion:
    """A token for some of the items."""

    __slots__ = ("_codes", "_end", "_first")

    def __init__(self, codes: Codes, first: int, end: int) -> None:
        self._codes = codes
        self._first = first
        self._end = end

    def reply(self, codes: list[ErrorCode] | ErrorCode) -> None:
        if isinstance(codes, ErrorCode):
            codes = [codes] * (self._end - self._first)
        self._codes.answered(self._first, codes)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._codes.release_waiters()


async def in_portions(svc: Services, count: int, change: Callable[[int, int], Any]) -> None:
    """Call `change(first, end)` for each portion of `count` items, in turns, and write each."""
    for first in range(0, count, AT_ONCE):
        async with svc.turns.mine:
            change(first, min(first + AT_ONCE, count))
            svc.partitions.write_staged()
