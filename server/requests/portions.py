"""Changes of very many things by one request: a portion at a time, each staged, written, and answered by itself.

A record costs some 5 us from the machine's decision to its replay, so some hundred of them are a turn. To the client
it is one request with one answer. In Apache Kafka it would be one batch, that is all or nothing; here the code of each
item says what became of it, which is what the protocol has them for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from barnabas.kproto import ErrorCode
from barnabas.server.requests.services import Services

AT_ONCE = 500
"""How many items are one portion. A request with no more goes the direct way."""


class Collector(Protocol):
    """Who answers a request when it has the codes of all its items."""

    def let_go(self) -> str:
        """As in `barnabas.server.runtime.containment.Concerned`."""


class Codes:
    """The codes of `count` items, which come in portions; `done(codes)` is called with all of them, once.

    `portion` makes the tokens to hand out. A portion may be answered with one code, for all of it.
    """

    def __init__(self, count: int, done: Callable[[list[ErrorCode]], None], whole: Collector) -> None:
        self._codes: list[ErrorCode] = [ErrorCode.NONE] * count
        self._owed = count
        self._done = done
        self._whole = whole

    def portion(self, first: int, end: int) -> Portion:
        """The token for the items from `first` up to `end`, without that one."""
        return Portion(self, first, end)

    def answered(self, first: int, codes: list[ErrorCode]) -> None:
        """Called by a portion."""
        self._codes[first : first + len(codes)] = codes
        self._owed -= len(codes)
        if not self._owed:
            self._done(self._codes)

    def let_go(self) -> str:
        """Part of `Concerned`."""
        return self._whole.let_go()


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

    def let_go(self) -> str:
        """Part of `Concerned`."""
        return self._codes.let_go()


async def in_portions(svc: Services, count: int, change: Callable[[int, int], Any]) -> None:
    """Call `change(first, end)` for one portion of `count` items after the other, in turns, and have each written."""
    for first in range(0, count, AT_ONCE):
        async with svc.turns.mine:
            change(first, min(first + AT_ONCE, count))
            svc.partitions.write_staged()
