"""Acquiring: which records of a share partition a member gets, out of what was read from the log.

In the order of offsets: what is in flight and available, gaps, then what was never acquired. How much of it:

- With `AcquireMode.BATCH_OPTIMIZED` the limit of records is soft. New offsets are acquired to the end of the batch of
  the log in which the limit falls, and cut into ranges at ends of batches once they hold `batch_size`. Pieces in flight
  are acquired whole. With `RECORD_LIMIT` it is hard.
- The window may not get wider than the group's limit, but for the rest of a batch, or by filling gaps.
- Records that were delivered often are handed out with care, so that the one that is to blame takes no others down with
  it: from half of the deliveries that the group allows on, what was one piece at first goes out in smaller and smaller
  parts, each alone in its answer, and records that have their last delivery one by one.

Control records and offsets that compaction has removed are acquired as well; members acknowledge them as gaps. Sources:
KIP-932, KIP-1222, `SharePartition.acquire` of Apache Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.share.states import AcquireMode, RecordState, ShareSettings
from barnabas.coordinator.share.window import Piece, Window


class LogBatch(NamedTuple):
    """A batch of the log as it was read; both offsets are included."""

    base_offset: int
    last_offset: int


class Wanted(NamedTuple):
    """What a member asks for. Both limits are at least 1."""

    member_id: str
    mode: AcquireMode
    batch_size: int
    max_records: int


class Acquired(NamedTuple):
    """Offsets that a member has got; both are included. `delivery_count`: this delivery counts."""

    first_offset: int
    last_offset: int
    delivery_count: int


def acquire(
    window: Window,
    wanted: Wanted,
    fetch_offset: int,
    log: Sequence[LogBatch],
    aborted: Sequence[tuple[int, int]],
    settings: ShareSettings,
    deadline: float,
) -> list[Acquired]:
    """The offsets that the member gets, ascending; locked until `deadline`.

    fetch_offset: where the log was read. log: the batches that were found, in order, the first of which may begin
    earlier. aborted: ranges, both ends included, in order, that readers of committed data must not see.
    """
    if not log:
        return []
    # What the log does not have makes the window wider, but takes no room from what it has.
    room = settings.max_record_locks - window.in_flight
    _skip_missing(window, fetch_offset, log[0].base_offset)
    run = _Run(window, wanted, log, room, settings.delivery_count_limit, deadline)
    run.go()
    taken = [Acquired(piece.first, piece.last, piece.count) for piece in run.taken]
    if taken and aborted:
        taken = _without(window, taken, aborted)
    window.advance()
    return taken


def _skip_missing(window: Window, fetch_offset: int, base_offset: int) -> None:
    """The log has nothing from where it was read to its first batch: compaction, or retention, was there."""
    offset = max(fetch_offset, window.start_offset)
    if base_offset <= offset:
        return
    if window.in_flight == 0:
        window.begin_at(base_offset)
        return
    while offset < base_offset:
        index = window.cut(offset)
        piece = window.pieces[index] if index < len(window.pieces) else None
        if piece is None or piece.first > offset:
            last = base_offset - 1 if piece is None else min(piece.first, base_offset) - 1
            window.put(offset, last, RecordState.ARCHIVED)
            offset = last + 1
        else:
            window.cut(base_offset)
            if piece.state is RecordState.AVAILABLE:
                window.move(piece, RecordState.ARCHIVED)
            offset = piece.last + 1


def _without(window: Window, taken: Sequence[Acquired], aborted: Sequence[tuple[int, int]]) -> list[Acquired]:
    """Nobody gets records of aborted transactions. That is not stored: whoever loads the partition sees it again."""
    for first, last in aborted:
        if first <= taken[-1].last_offset and last >= taken[0].first_offset:
            window.cut(first)
            window.cut(last + 1)
    firsts = [first for first, _ in aborted]
    kept = []
    for acquired in taken:
        for piece in window.between(acquired.first_offset, acquired.last_offset):
            at = bisect_right(firsts, piece.first) - 1
            if at >= 0 and piece.first <= aborted[at][1]:
                window.move(piece, RecordState.ARCHIVED)
            else:
                kept.append(Acquired(piece.first, piece.last, piece.count))
    return kept


def careful_part(piece: Piece, limit: int) -> int | None:
    """How many records of an available piece may go out together, if they were delivered often already; else None.
    limit: of deliveries.
    """
    often = max(2, (limit + 1) // 2)
    if piece.count < often:
        return None
    if limit > 2 and piece.count >= limit - 1:
        return 1
    return min(piece.size, max(1, piece.whole >> (piece.count - often + 1)))


class _Run:
    """One run over what was read. room: for offsets that were never acquired. limit: of deliveries. `taken`: the pieces
    that the member has got.
    """

    def __init__(
        self, window: Window, wanted: Wanted, log: Sequence[LogBatch], room: int, limit: int, deadline: float
    ) -> None:
        self._window = window
        self._wanted = wanted
        self._log = log
        self._log_at = 0
        self._room = room
        self._limit = limit
        self._deadline = deadline
        self._is_hard = wanted.mode is AcquireMode.RECORD_LIMIT
        self._left = wanted.max_records
        self.taken: list[Piece] = []

    def go(self) -> None:
        window, last_read = self._window, self._log[-1].last_offset
        offset = max(self._log[0].base_offset, window.start_offset)
        while offset <= last_read and self._left > 0:
            index = window.index(offset)
            piece = window.pieces[index] if index < len(window.pieces) else None
            if piece is None or piece.first > offset:
                offset = self._new(offset, last_read if piece is None else min(piece.first - 1, last_read))
            elif piece.state is RecordState.AVAILABLE:
                offset = self._again(offset, last_read)
            else:
                offset = piece.last + 1

    def _new(self, first: int, last: int) -> int:
        """Acquire from `first` on, at most to `last`, what has no piece. Returns where to go on."""
        is_new = first >= self._window.end_offset
        room = min(self._left, self._room) if is_new else self._left
        if room <= 0:
            self._left = 0
            return first
        if self._is_hard:
            after = self._new_piece(first, min(last, first + room - 1))
        else:
            after = self._new_pieces(first, last, room)
        if is_new:
            self._room -= after - first
        return after

    def _new_piece(self, first: int, last: int) -> int:
        self._take(self._window.put(first, last, RecordState.AVAILABLE))
        return last + 1

    def _new_pieces(self, first: int, last: int, room: int) -> int:
        """Cut at ends of batches, and to the end of the one in which there is no more room."""
        begin = first
        while begin <= last:
            while self._log[self._log_at].last_offset < begin:
                self._log_at += 1
            end = min(self._log[self._log_at].last_offset, last)
            while end < last and end - begin + 1 < self._wanted.batch_size and end - first + 1 < room:
                self._log_at += 1
                end = min(self._log[self._log_at].last_offset, last)
            begin = self._new_piece(begin, end)
            if begin - first >= room:
                break
        return begin

    def _again(self, offset: int, last_read: int) -> int:
        """Acquire what is available from `offset` on, in one piece. Returns where to go on."""
        window = self._window
        window.cut(last_read + 1)
        piece = window.pieces[window.cut(offset)]
        size = piece.size
        part = careful_part(piece, self._limit)
        if part is not None:
            if self.taken:
                self._left = 0
                return offset
            size = part
        if self._is_hard:
            size = min(size, self._left)
        window.cut(offset + size)
        self._take(piece)
        if part is not None:
            self._left = 0
        return offset + size

    def _take(self, piece: Piece) -> None:
        self._window.acquire(piece, self._wanted.member_id, self._deadline)
        self._left -= piece.size
        self.taken.append(piece)
