"""What has to be stored of a share partition: one write at a time, in which everything goes that came up during the one
before.

A `Change` is what one operation made of records: an acknowledgement, a session that ended, locks that expired. With a
token it waits for the store, and its pieces stay ACQUIRED until the write has succeeded; without, the pieces have
changed already, and the write is an attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.coordinator.machine import Decision
from barnabas.coordinator.share.batches import StateBatch, merge, settled_count
from barnabas.coordinator.share.window import Window

_COUNT_MAX: Final = 2**31 - 1


class WriteState(NamedTuple):
    """Effect: store this (WriteShareGroupState), and call `SharePartition.written` once. `start_offset`: the window's,
    before it moves because of this. `batches`: only what changed.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Change:
    """See the module. `token`: who is answered when it is stored; None: nobody. `is_done`: its pieces have changed
    already. `batches`: what they become, in order.
    """

    __slots__ = ("batches", "is_done", "token")

    def __init__(self, batches: Sequence[StateBatch], token: Any = None, is_done: bool = False) -> None:
        self.batches = batches
        self.token = token
        self.is_done = is_done


class StateWrites:
    """The changes of one partition that are not stored yet. `under_way`: the write that is, if any."""

    def __init__(self, state_epoch: int, leader_epoch: int) -> None:
        self._state_epoch = state_epoch
        self._leader_epoch = leader_epoch
        self.under_way: WriteState | None = None
        self._written: list[Change] = []
        self._waiting: list[Change] = []

    def add(self, change: Change, window: Window, out: Decision) -> None:
        """Have a change stored, at once or after the write that is under way."""
        self._waiting.append(change)
        self.next(window, out)

    def next(self, window: Window, out: Decision) -> None:
        """Begin the next write, if there is something to write and none is under way."""
        if self.under_way is not None or not self._waiting:
            return
        changes = self._written = self._waiting
        self._waiting = []
        start_offset = window.start_offset
        batches = merge(start_offset, (batch for change in changes for batch in change.batches))
        to_come = merge(start_offset, (batch for change in changes if not change.is_done for batch in change.batches))
        # A hole that compaction has left may be wider than what can be stored.
        settled = min(window.settled_count + settled_count(to_come), _COUNT_MAX)
        self.under_way = WriteState(self._state_epoch, self._leader_epoch, start_offset, settled, batches)
        out.effects.append(self.under_way)

    def finished(self) -> list[Change]:
        """The write that was under way is over. Returns what was in it."""
        changes, self._written, self.under_way = self._written, [], None
        return changes

    def give_up(self) -> list[Change]:
        """Returns all changes that are not stored: nobody waits for a write any more."""
        changes = [*self.finished(), *self._waiting]
        self._waiting = []
        return changes
