"""Cutting records off a log's end: where, and what then is left to be done on the disk.

A log is first read to find out how it will end, and nothing has changed if that fails. Then it is cut in memory, at
once and whole. Then come its files, step by step (tail_repair.py). If one of the steps fails with an error that is not
the disk's, the log is as short as it has to be, and nothing can be written to it until the rest is done: the next
write, roll, truncation or close continues where this one stopped. A crash in between brings records back, as one before
the cut would.

Offsets count records, positions are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.segments.segment import Segment


class CutPoint(NamedTuple):
    """Where a segment will end. newest: the largest timestamp before, and the last offset of the batch that has it."""

    end: int
    position: int
    newest: tuple[int, int]


def find_cut(segment: Segment, offset: int) -> CutPoint:
    """Where `segment` ends without the batch that holds `offset` and those behind it. Raises OSError,
    `CorruptRecords`.
    """
    found = segment.find(offset)
    position = segment.size if found is None else found[0]
    offsets, times = segment.indexes()
    end = segment.base_offset
    for batch in segment.batches(offsets.lookup(offset - 1)):
        if batch.position >= position:
            break
        end = batch.last_offset + 1
    newest = max(((time, at) for time, at in times.entries() if at < end), default=(-1, segment.base_offset))
    for batch in segment.batches(offsets.lookup(newest[1])):
        if batch.position >= position:
            break
        if batch.max_timestamp > newest[0]:
            newest = batch.max_timestamp, batch.last_offset
    return CutPoint(end, position, newest)


@dataclass(slots=True)
class Cut:
    """What is left to be done on the disk.

    segments: out of the log, and still there. due_ms: when their files go. is_new: the active segment has no files yet.
    snapshots_to: those of producers behind this offset go. aborted: see `Segment.save_cut`. fell: the checkpoint says
    that more is safe.
    """

    segments: list[Segment]
    due_ms: int
    is_new: bool
    snapshots_to: int
    aborted: int | None
    fell: bool

    def delete_segments(self, keeper: Keeper) -> None:
        """From the end, so that a crash leaves no gap. Raises OSError; then it can be called again."""
        while self.segments:
            keeper.remove_later(self.segments[-1].mark_deleted(), self.due_ms)
            self.segments.pop()
