"""The window of a share partition: all offsets between the first that is not settled and the first that nobody ever
acquired, in pieces that have one state each.

    start_offset                                        end_offset
         │ acquired │ available │ a gap │ acknowledged │   never acquired
         └── piece ─┴── piece ──┘       └─── piece ────┘

Offsets without a piece are gaps: after a load, what was delivered and had nothing stored about it. They may be acquired
like new ones. An empty window has its start and end at one offset. Here are the pieces and their books (how many are
settled, where the first one lies that can be acquired, which lock expires next); what happens to them and why is
decided elsewhere.

Ends of ranges are included (`last`) unless they are called `end` or `after`. Deadlines are seconds of the monotonic
clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from barnabas.coordinator.machine import Deadlines
from barnabas.coordinator.share.batches import StateBatch
from barnabas.coordinator.share.states import SETTLED, RecordState


class Piece:
    """Neighbouring offsets of one state. `count`: how often they were acquired. `whole`: how many offsets there were
    when they were acquired first, or loaded, together. `member`, `deadline`: who has them, and until when; None and 0.0
    unless they are ACQUIRED. `becoming`: the state they will have when `change` is stored; None when nothing is under
    way. Changed by `Window` alone.
    """

    __slots__ = ("becoming", "change", "count", "deadline", "first", "last", "member", "state", "whole")

    def __init__(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.whole = last - first + 1
        self.member: str | None = None
        self.deadline = 0.0
        self.becoming: RecordState | None = None
        self.change: Any = None

    def __repr__(self) -> str:
        becoming = "" if self.becoming is None else f" becoming {self.becoming.name}"
        return f"<{self.first}-{self.last} {self.state.name}{becoming}, {self.count}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def is_held(self) -> bool:
        """Acquired, and nothing is said about it yet."""
        return self.state is RecordState.ACQUIRED and self.becoming is None

    def as_batch(self) -> StateBatch:
        return StateBatch(self.first, self.last, int(self.state), self.count)


class Window:
    """See the module. `settled_count`: offsets in settled pieces."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """batches: as stored; sorted, disjoint, not below `start_offset`, none ACQUIRED."""
        self.pieces = [Piece(first, last, RecordState(state), count) for first, last, state, count in batches]
        self._firsts = [piece.first for piece in self.pieces]
        self.start_offset = start_offset
        self.end_offset = self.pieces[-1].last + 1 if self.pieces else start_offset
        self.settled_count = sum(piece.size for piece in self.pieces if piece.is_settled)
        self.deadlines: Deadlines[int] = Deadlines()
        # Below this offset there is nothing to acquire.
        self._none_below = start_offset
        self.advance()

    # -- looking ----------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How wide the window is, gaps and settled pieces included."""
        return self.end_offset - self.start_offset

    def index(self, offset: int) -> int:
        """Of the first piece that ends at `offset` or later."""
        at = bisect_right(self._firsts, offset) - 1
        return at if at >= 0 and self.pieces[at].last >= offset else at + 1

    def at(self, offset: int) -> Piece | None:
        """The piece that holds the offset."""
        index = self.index(offset)
        return self.pieces[index] if index < len(self.pieces) and self.pieces[index].first <= offset else None

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired: available, in a gap, or never acquired before."""
        offset = max(self._none_below, self.start_offset)
        for index in range(self.index(offset), len(self.pieces)):
            piece = self.pieces[index]
            if piece.first > offset or piece.state is RecordState.AVAILABLE:
                break
            offset = piece.last + 1
        self._none_below = offset
        return offset

    # -- changing ---------------------------------------------------------------------------------

    def cut(self, offset: int) -> int:
        """Let a piece begin at `offset`, if one holds it. Returns the index of the first piece from there on."""
        index = self.index(offset)
        if index == len(self.pieces) or self.pieces[index].first >= offset:
            return index
        left = self.pieces[index]
        right = Piece(offset, left.last, left.state, left.count)
        right.whole = left.whole
        right.member, right.deadline, right.becoming, right.change = (
            left.member, left.deadline, left.becoming, left.change,
        )  # fmt: skip
        left.last = offset - 1
        if left.first in self.deadlines:
            self.deadlines.set(offset, right.deadline)
        self.pieces.insert(index + 1, right)
        self._firsts.insert(index + 1, offset)
        return index + 1

    def between(self, first: int, last: int) -> list[Piece]:
        """The pieces from `first` to `last`, cut so that none reaches beyond."""
        begin = self.cut(first)
        return self.pieces[begin : self.cut(last + 1)]

    def put(self, first: int, last: int, state: RecordState, count: int = 0) -> Piece:
        """A piece for offsets that have none: in a gap, or at the end, behind which no gap may be left."""
        piece = Piece(first, last, state, count)
        index = bisect_left(self._firsts, first)
        self.pieces.insert(index, piece)
        self._firsts.insert(index, first)
        self.end_offset = max(self.end_offset, last + 1)
        if state in SETTLED:
            self.settled_count += piece.size
        elif state is RecordState.AVAILABLE:
            self._none_below = min(self._none_below, first)
        return piece

    def acquire(self, piece: Piece, member: str, deadline: float) -> None:
        """A member gets an available piece, until `deadline`."""
        piece.state, piece.member = RecordState.ACQUIRED, member
        piece.count += 1
        self.lock(piece, deadline)

    def lock(self, piece: Piece, deadline: float) -> None:
        """The lock of an acquired piece runs from now to `deadline`."""
        piece.deadline = deadline
        self.deadlines.set(piece.first, deadline)

    def move(self, piece: Piece, state: RecordState) -> None:
        """The piece, which is not settled, goes over to AVAILABLE or is settled."""
        piece.state, piece.member, piece.deadline = state, None, 0.0
        piece.becoming = piece.change = None
        self.deadlines.cancel(piece.first)
        if state in SETTLED:
            self.settled_count += piece.size
        else:
            self._none_below = min(self._none_below, piece.first)

    def advance(self) -> bool:
        """Let the window begin behind the settled pieces that it begins with. Returns whether it moved."""
        done = 0
        while done < len(self.pieces):
            piece = self.pieces[done]
            if piece.first != self.start_offset or not piece.is_settled:
                break
            self.start_offset = piece.last + 1
            self.settled_count -= piece.size
            done += 1
        if done:
            del self.pieces[:done], self._firsts[:done]
        return done > 0

    def begin_at(self, offset: int) -> None:
        """Forget everything below `offset`, which lies behind the start: whoever has it, it is gone from the log."""
        count = self.cut(offset)
        for piece in self.pieces[:count]:
            self.deadlines.cancel(piece.first)
            if piece.is_settled:
                self.settled_count -= piece.size
        del self.pieces[:count], self._firsts[:count]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self.advance()

    def join_settled(self, first: int, last: int) -> None:
        """Neighbours from `first` to `last` that were settled in the same way become one piece."""
        index = max(self.index(first) - 1, 0)
        while index + 1 < len(self.pieces) and self.pieces[index].first <= last:
            left, right = self.pieces[index], self.pieces[index + 1]
            if (
                left.is_settled
                and (left.state, left.count, left.last + 1) == (right.state, right.count, right.first)
            ):  # fmt: skip
                left.last = right.last
                del self.pieces[index + 1], self._firsts[index + 1]
            else:
                index += 1
