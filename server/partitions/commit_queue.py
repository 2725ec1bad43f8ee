"""Who waits for the high watermark of a partition to reach an offset: producers with acks=all, coordinators.

A heap by offset; whoever waits no longer is passed over when its turn comes. A callback is called once, with what came
of it, or never if it was dropped. One that fails does not keep the others from being called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from barnabas.kproto import ErrorCode
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.partition")

DROPPED_MAX = 256
"""How many callbacks nobody waits for any more are kept before they are looked for."""

CommitCallback = Callable[[ErrorCode], None]


class CommitQueue:
    """The waiters of one partition. Its length counts the dropped ones, too."""

    __slots__ = ("_dropped", "_serial", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, CommitCallback]] = []
        self._dropped: dict[CommitCallback, None] = {}
        self._serial = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: CommitCallback) -> None:
        """Wait for `offset`."""
        heappush(self._waiting, (offset, next(self._serial), callback))

    def drop(self, callback: CommitCallback) -> None:
        """`callback` was added once, was not called, and waits no longer."""
        dropped = self._dropped
        dropped[callback] = None
        if len(dropped) > DROPPED_MAX and len(dropped) * 2 > len(self._waiting):
            self._waiting[:] = [entry for entry in self._waiting if entry[2] not in dropped]
            heapify(self._waiting)
            dropped.clear()

    def answer(self, offset: int, code: ErrorCode) -> None:
        """The high watermark has reached `offset`."""
        # A callback may drop others, or end the leadership, which answers everybody.
        while self._waiting and self._waiting[0][0] <= offset:
            callback = heappop(self._waiting)[2]
            if callback in self._dropped:
                del self._dropped[callback]
            else:
                try:
                    callback(code)
                except Exception as error:
                    contain(log, "answering a request that waited for a commit", error, callback)

    def give_up(self, code: ErrorCode) -> None:
        """Answer everybody, wherever the high watermark is."""
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, {}
        for _, _, callback in waiting:
            if callback not in dropped:
                try:
                    callback(code)
                except Exception as error:
                    contain(log, "failing a request that waited for a commit", error, callback)
