"""One partition of a topic as one share group has it, on the broker that leads the partition: which records are with
which member, how often each was delivered, what is done with (KIP-932).

A value without clock or task, of the shape that `barnabas.coordinator.machine` describes, with a store elsewhere
instead of a log: `Result.replies` answer tokens, `Result.effects` are

- `ReadState`, `ResolveStart`, `WriteState`: see there what is to be called;
- `Acquirable`: there may be something to acquire that was not there before; whoever waits should try again.

Life: `load`, `loaded`, perhaps `resolved`; then `acquire` whenever the log was read from `next_fetch_offset` on,
`acknowledge`, `release`, and `expire` whenever `deadline` has come; `end` when this broker leads the partition no more.

Acknowledged records are settled only when the store has them, so none is delivered again that was confirmed to a
member. Counts of deliveries, and who has what, are stored with the next write that touches the record, or never: a
crash may forget the deliveries of records about which nothing was ever said. What has no answer in the store at a load
is delivered again.

Differences from Apache Kafka: writes follow each other and share what came up meanwhile, there they overtake each
other; locks that expire together do so at once, there per offset; acquired records below a log start that has moved are
forgotten at once, there with their locks; one that the store has forgotten is loaded again, there it goes on refusing
what members say of it. Sources: KIP-932, `SharePartition` of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.coordinator.machine import NOTHING, Decision, Now, Result, answer
from barnabas.coordinator.share.acknowledging import (
    Acknowledgement,
    check_batches,
    check_state,
    given_back,
    outcome,
)
from barnabas.coordinator.share.acquiring import Acquired, LogBatch, Wanted, acquire
from barnabas.coordinator.share.batches import StateBatch, add, are_in_order
from barnabas.coordinator.share.states import STORED, AcknowledgeType, RecordState, ShareSettings
from barnabas.coordinator.share.window import Piece, Window
from barnabas.coordinator.share.writes import Change, StateWrites, WriteState
from barnabas.kproto import ErrorCode, KafkaError

log = logging.getLogger("barnabas.groups")

NOT_KNOWN: Final = -1
"""The start of a partition that no member has read from yet."""


class ReadState(NamedTuple):
    """Effect: read what is stored (ReadShareGroupState) and call `SharePartition.loaded` once."""

    leader_epoch: int


class ResolveStart(NamedTuple):
    """Effect: find where the group begins, by `share.auto.offset.reset`, and call `SharePartition.resolved` once."""


class Acquirable(NamedTuple):
    """Effect: try to acquire again."""


class PartitionState(Enum):
    EMPTY = "nothing is loaded"
    INITIALIZING = "it is being loaded"
    ACTIVE = "it is served"
    ENDED = "it is not served here; its `error` says why"


class SharePartition:
    """See the module. leader_epoch: in which this broker leads the partition. settings: of the group, asked for with
    each operation. error: what answers requests unless it is ACTIVE; NONE while it is being loaded.
    """

    def __init__(self, leader_epoch: int, settings: Callable[[], ShareSettings]) -> None:
        self.leader_epoch = leader_epoch
        self.state = PartitionState.EMPTY
        self.error = ErrorCode.NONE
        self._settings = settings
        self._window = Window(0)
        self._writes = StateWrites(0, leader_epoch)

    def __repr__(self) -> str:
        window = self._window
        return f"<{self.state.name} {window.start_offset} to {window.end_offset}, {window.pieces}>"

    # -- life -------------------------------------------------------------------------------------

    def load(self) -> Result:
        """Begin. Calling it again changes nothing."""
        if self.state is not PartitionState.EMPTY:
            return NOTHING
        self.state = PartitionState.INITIALIZING
        return Result(effects=(ReadState(self.leader_epoch),))

    def loaded(self, code: ErrorCode, state_epoch: int, start_offset: int, batches: Sequence[StateBatch]) -> Result:
        """What came of `ReadState`. start_offset: -1 if no member has read yet."""
        if self.state is not PartitionState.INITIALIZING:
            return NOTHING
        if code != ErrorCode.NONE:
            # A group that was never initialised here (INVALID_REQUEST) is about to be: its members wait.
            return self.end(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if code == ErrorCode.INVALID_REQUEST else persister_error(code)
            )
        self._writes = StateWrites(state_epoch, self.leader_epoch)
        if start_offset == NOT_KNOWN:
            return Result(effects=(ResolveStart(),))
        # AlterShareGroupOffsets takes any offset; one below the log is moved to its start by the first read.
        start_offset = max(start_offset, 0)
        if not are_in_order(batches, start_offset) or not STORED.issuperset(batch.state for batch in batches):
            log.error("stored state of a share partition cannot be used: start %d, %s", start_offset, list(batches))
            return self.end(ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._begin(Window(start_offset, batches))

    def resolved(self, start: int | ErrorCode) -> Result:
        """What came of `ResolveStart`: the offset, which is stored with the first write, or why there is none."""
        if self.state is not PartitionState.INITIALIZING:
            return NOTHING
        if isinstance(start, ErrorCode):
            return self.end(start)
        return self._begin(Window(start))

    def _begin(self, window: Window) -> Result:
        self._window = window
        self.state = PartitionState.ACTIVE
        return Result(effects=(Acquirable(),))

    def end(self, error: ErrorCode, unstored: ErrorCode | None = None) -> Result:
        """It is not served here any more; `error` answers whoever waits or comes, `unstored`, if given, what is
        not stored. Writes that are under way may still arrive: the store tells them from the next leader's by the
        leader epoch.
        """
        if self.state is PartitionState.ENDED:
            return NOTHING
        self.state, self.error = PartitionState.ENDED, error
        out = Decision()
        for change in self._writes.give_up():
            _answer(change, unstored or error, out)
        self._window = Window(self._window.start_offset)
        out.effects.append(Acquirable())
        return out.result()

    # -- what there is ----------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is not settled."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that was never acquired."""
        return self._window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from the start on are settled."""
        return self._window.settled_count

    @property
    def next_fetch_offset(self) -> int:
        """Where the log is to be read for the next `acquire`."""
        return self._window.next_fetch_offset()

    @property
    def can_acquire(self) -> bool:
        """Whether there is something in flight to be acquired again, or room for more."""
        if self.state is not PartitionState.ACTIVE:
            return False
        window = self._window
        return window.in_flight < self._settings().max_record_locks or window.next_fetch_offset() < window.end_offset

    @property
    def room(self) -> int:
        """How many offsets may be acquired that never were; 0 or less: none."""
        return self._settings().max_record_locks - self._window.in_flight

    # -- operations -------------------------------------------------------------------------------

    def acquire(
        self,
        wanted: Wanted,
        fetch_offset: int,
        read: Sequence[LogBatch],
        aborted: Sequence[tuple[int, int]],
        now: Now,
    ) -> list[Acquired]:
        """Give a member records; none are left of what was read if all of it is of aborted transactions, and then
        `next_fetch_offset` has moved on.

        read: the log's batches from `fetch_offset` on, in order and as far as the group may read; aborted: those ranges
        of them, in order and both ends included, that it may not see.
        """
        if not self.can_acquire:
            return []
        settings = self._settings()
        deadline = now.seconds + settings.record_lock_duration_ms / 1000
        return acquire(self._window, wanted, fetch_offset, read, aborted, settings, deadline)

    def acknowledge(
        self, member_id: str, batches: Sequence[Acknowledgement], is_renew: bool, token: Any, now: Now
    ) -> Result:
        """What a member says about records that it has. is_renew: the request allows locks to be renewed.

        Answers an `ErrorCode`, once it is stored. See `barnabas.coordinator.share.acknowledging` for errors.
        """
        settings = self._settings()
        try:
            check_batches(batches, is_renew)
            if self.state is not PartitionState.ACTIVE:
                return answer(token, self.error or ErrorCode.COORDINATOR_NOT_AVAILABLE)
            said = check_state(self._window, member_id, batches, settings)
        except KafkaError as error:
            return answer(token, error.code)
        changed: list[tuple[Piece, RecordState]] = []
        deadline = now.seconds + settings.record_lock_duration_ms / 1000
        for first, last, what in said:
            for piece in self._window.between(first, last):
                if what is AcknowledgeType.RENEW:
                    self._window.lock(piece, deadline)
                else:
                    changed.append((piece, outcome(what, piece.count, settings.delivery_count_limit)))
        return self._store(changed, token)

    def release(self, member_id: str, token: Any = None) -> Result:
        """A member's session has ended: others may have what it holds. Answers an `ErrorCode`, once it is stored."""
        limit = self._settings().delivery_count_limit
        return self._store(
            [
                (piece, given_back(piece.count, limit))
                for piece in self._window.pieces
                if piece.is_held and piece.member == member_id
            ],
            token,
        )

    def _store(self, changed: Sequence[tuple[Piece, RecordState]], token: Any) -> Result:
        out = Decision()
        if not changed:
            return NOTHING if token is None else answer(token, ErrorCode.NONE)
        batches: list[StateBatch] = []
        change = Change(batches, token)
        for piece, state in changed:
            piece.becoming, piece.change = state, change
            add(batches, StateBatch(piece.first, piece.last, int(state), piece.count))
        self._writes.add(change, self._window, out)
        return out.result()

    def written(self, write: WriteState, code: ErrorCode, now: Now) -> Result:
        """What came of a `WriteState`. An error undoes what it was about, but for locks that expired."""
        if self._writes.under_way is not write:
            return NOTHING
        error = persister_error(code)
        if error in _ENDING:
            return self.end(error)
        if code == ErrorCode.INVALID_REQUEST:
            # The store has forgotten it, with the group or its offsets: no later write would be better received.
            return self.end(ErrorCode.COORDINATOR_NOT_AVAILABLE, unstored=error)
        out = Decision()
        late: list[Piece] = []
        for change in self._writes.finished():
            if not change.is_done:
                late += self._settle(change, error == ErrorCode.NONE, now)
            _answer(change, error, out)
        self._window.advance()
        if late:
            self._expire_all(late, out)
        self._writes.next(self._window, out)
        out.effects.append(Acquirable())
        return out.result()

    def _settle(self, change: Change, is_stored: bool, now: Now) -> list[Piece]:
        """The pieces of a change become what was said, or are as before. Returns those whose lock expired meanwhile."""
        window = self._window
        late: list[Piece] = []
        for batch in change.batches:
            first, last = max(batch.first_offset, window.start_offset), batch.last_offset
            if last < first:
                continue
            for piece in window.between(first, last):
                if piece.change is not change or piece.becoming is None:
                    continue
                if is_stored:
                    window.move(piece, piece.becoming)
                else:
                    piece.becoming = piece.change = None
                    if piece.deadline <= now.seconds:
                        late.append(piece)
            window.join_settled(first, last)
        return late

    def log_start_moved(self, log_start_offset: int) -> Result:
        """The log begins later than before: what lies below is gone, whoever has it."""
        if self.state is not PartitionState.ACTIVE or log_start_offset <= self._window.start_offset:
            return NOTHING
        self._window.begin_at(log_start_offset)
        return Result(effects=(Acquirable(),))

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self._window.deadlines.next()

    def expire(self, now: Now) -> Result:
        """Members that had records too long lose them; all that are due at once."""
        window, late = self._window, []
        while (first := window.deadlines.pop(now.seconds)) is not None:
            piece = window.at(first)
            # What is being stored is decided when that is over.
            if piece is not None and piece.is_held:
                late.append(piece)
        out = Decision()
        if late:
            self._expire_all(sorted(late, key=lambda piece: piece.first), out)
        return out.result()

    def _expire_all(self, late: Sequence[Piece], out: Decision) -> None:
        limit = self._settings().delivery_count_limit
        batches: list[StateBatch] = []
        for piece in late:
            self._window.move(piece, given_back(piece.count, limit))
            add(batches, piece.as_batch())
        self._window.advance()
        self._writes.add(Change(batches, is_done=True), self._window, out)
        out.effects.append(Acquirable())


_COORDINATOR_MOVES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_ENDING: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""After these the partition is not served any more: whoever comes makes a new one."""


def persister_error(code: ErrorCode) -> ErrorCode:
    """What answers a member when the store answers `code`."""
    if code in _COORDINATOR_MOVES:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND):
        return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _answer(change: Change, code: ErrorCode, out: Decision) -> None:
    if change.token is not None:
        out.reply(change.token, code)
