"""Callbacks that wait for a partition's high watermark to reach an offset: of producers with acks=all, of coordinators.

A heap by offset; dropped callbacks are skipped when they come up. A callback is called once, with the outcome, or never
if it was dropped. One that fails does not prevent the others from being called.
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
"""Dropped callbacks that are kept before the heap is cleaned."""

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
        """Drop `callback`, which was added once and not called."""
        dropped = self._dropped
        dropped[callback] = None
        if len(dropped) > DROPPED_MAX and len(dropped) * 2 > len(self._waiting):
            self._waiting[:] = [entry for entry in self._waiting if entry[2] not in dropped]
            heapify(self._waiting)
            dropped.clear()

    def answer(self, offset: int, code: ErrorCode) -> None:
        """Call the callbacks up to `offset`, the new high watermark."""
        # A callback may drop others, or end the leadership, which calls all of them.
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
        """Call all callbacks, wherever the high watermark is."""
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, {}
        for _, _, callback in waiting:
            if callback not in dropped:
                try:
                    callback(code)
                except Exception as error:
                    contain(log, "failing a request that waited for a commit", error, callback)
