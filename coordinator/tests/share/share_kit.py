"""A share partition without a broker: a log that is a list of batches, a store that is one value for each offset, and a
clock that tests move.

The store is told apart from the machine's own idea of one: per offset it keeps the larger (count, state), as the rule
of merging says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.coordinator.machine import Now, Result
from barnabas.coordinator.share import (
    Acknowledgement,
    Acquired,
    AcquireMode,
    LogBatch,
    ReadState,
    ResolveStart,
    SharePartition,
    ShareSettings,
    StateBatch,
    Wanted,
    WriteState,
)
from barnabas.kproto import ErrorCode

PLENTY = 1_000_000


class Store:
    """What the share coordinator has of one partition."""

    def __init__(self, start_offset: int = -1) -> None:
        self.start_offset = start_offset
        self.offsets: dict[int, tuple[int, int]] = {}
        self.delivery_complete_count = -1
        self.writes: list[WriteState] = []

    def write(self, write: WriteState) -> None:
        self.writes.append(write)
        self.start_offset = write.start_offset
        self.delivery_complete_count = write.delivery_complete_count
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (0, 0)), (count, state))
        self.offsets = {offset: value for offset, value in self.offsets.items() if offset >= self.start_offset}

    def batches(self) -> list[StateBatch]:
        return [StateBatch(offset, offset, state, count) for offset, (count, state) in sorted(self.offsets.items())]


class PartitionKit:
    """One share partition. store_waits: writes are kept until `store_now`. refuse: what the store answers then."""

    def __init__(self, *, start_offset: int = 0, settings: ShareSettings | None = None) -> None:
        self.settings = settings or ShareSettings()
        self.store = Store(start_offset)
        self.resolves_to: int | ErrorCode = 0
        self.seconds = 1_000.0
        self.log: list[LogBatch] = []
        self.aborted: list[tuple[int, int]] = []
        self.high_watermark = 0
        self.store_waits = False
        self.refuse = ErrorCode.NONE
        self.waiting: list[WriteState] = []
        self.answers: dict[int, ErrorCode] = {}
        self.asked = 0
        self.woken = 0
        self.leader_epoch = 0
        self.partition = SharePartition(0, lambda: self.settings)
        self.load()

    @property
    def now(self) -> Now:
        return Now(self.seconds, int(self.seconds * 1_000))

    def load(self) -> None:
        """Another leader, or the same after a crash."""
        self.waiting.clear()
        self.leader_epoch += 1
        self.partition = SharePartition(self.leader_epoch, lambda: self.settings)
        self.run(self.partition.load())

    def run(self, result: Result) -> None:
        for token, code in result.replies:
            assert token not in self.answers, "a token is answered once"
            self.answers[token] = code
        assert not result.records
        assert not result.held
        for effect in result.effects:
            if isinstance(effect, ReadState):
                assert effect.leader_epoch == self.leader_epoch
                store = self.store
                self.run(self.partition.loaded(ErrorCode.NONE, 3, store.start_offset, store.batches()))
            elif isinstance(effect, ResolveStart):
                self.run(self.partition.resolved(self.resolves_to))
            elif isinstance(effect, WriteState):
                self.waiting.append(effect)
                if not self.store_waits:
                    self.store_now()
            else:
                self.woken += 1

    def store_now(self, *, is_lost: bool = False) -> None:
        """The oldest write reaches the store. is_lost: its answer does not come back in time."""
        write = self.waiting.pop(0)
        assert (write.state_epoch, write.leader_epoch) == (3, self.leader_epoch)
        if self.refuse == ErrorCode.NONE:
            self.store.write(write)
        code = ErrorCode.REQUEST_TIMED_OUT if is_lost else self.refuse
        self.run(self.partition.written(write, code, self.now))

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what falls due at its time."""
        end = self.seconds + seconds
        while (due := self.partition.deadline()) is not None and due <= end:
            self.seconds = max(self.seconds, due)
            self.run(self.partition.expire(self.now))
            following = self.partition.deadline()
            assert following is None or following > self.seconds
        self.seconds = end

    # -- the log ----------------------------------------------------------------------------------

    def produce(self, *sizes: int) -> None:
        """Batches with so many records each."""
        for size in sizes:
            self.log.append(LogBatch(self.high_watermark, self.high_watermark + size - 1))
            self.high_watermark += size

    def read(self, offset: int, batch_count: int = PLENTY) -> Sequence[LogBatch]:
        return [batch for batch in self.log if batch.last_offset >= offset][:batch_count]

    # -- members ----------------------------------------------------------------------------------

    def acquire(
        self,
        member: str = "a",
        max_records: int = 500,
        *,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batch_size: int | None = None,
        batch_count: int = PLENTY,
    ) -> list[tuple[int, int, int]]:
        """(first, last, delivery count) of what the member gets."""
        offset = self.partition.next_fetch_offset
        wanted = Wanted(member, mode, max_records if batch_size is None else batch_size, max_records)
        read = self.read(offset, batch_count)
        found = self.partition.acquire(wanted, offset, read, self.aborted, self.now)
        check_ranges(found, read)
        return [tuple(each) for each in found]  # type: ignore[misc]

    def acknowledge(self, member: str, *batches: tuple[int, int, Any], is_renew: bool = False) -> int:
        """Returns the token. The last of each batch: one type, or a list."""
        self.asked += 1
        made = [
            Acknowledgement(first, last, types if isinstance(types, list) else [types])
            for first, last, types in batches
        ]
        self.run(self.partition.acknowledge(member, made, is_renew, self.asked, self.now))
        return self.asked

    def said(self, member: str, *batches: tuple[int, int, Any], is_renew: bool = False) -> ErrorCode | None:
        """The answer; None while there is none."""
        return self.answers.get(self.acknowledge(member, *batches, is_renew=is_renew))

    def states(self) -> str:
        """One letter for each offset from the start of the window on: v is available, q acquired, k acknowledged, x
        archived, - a gap; large while that is not stored.
        """
        letters = {"AVAILABLE": "v", "ACQUIRED": "q", "ACKNOWLEDGED": "k", "ARCHIVED": "x"}
        found = ["-"] * (self.partition.end_offset - self.partition.start_offset)
        for piece in self.partition._window.pieces:
            state = piece.state if piece.becoming is None else piece.becoming
            letter = letters[state.name] if piece.becoming is None else letters[state.name].upper()
            for offset in range(piece.first, piece.last + 1):
                found[offset - self.partition.start_offset] = letter
        return "".join(found)


def check_ranges(found: Sequence[Acquired], read: Sequence[LogBatch]) -> None:
    """What holds for every answer: the ranges are ascending, disjoint, and inside of what was read."""
    before = -1
    for first, last, count in found:
        assert before < first <= last, found
        assert count >= 1
        before = last
    if found:
        assert read[0].base_offset <= found[0].first_offset
        assert found[-1].last_offset <= read[-1].last_offset
