"""Compaction: what is decided about a log, as values and arithmetic. How a run works is in compaction_run.py, how its
result takes the place of the old segments in compacted.py.

Compaction keeps of every key the last record (`cleanup.policy=compact`). A log is clean below its first dirty offset,
which the cleaner checkpoint remembers; what follows is dirty up to the first uncleanable offset, the base of the first
segment of which something

- is still appended to (the active segment),
- may still be undecided (last stable offset, high watermark) or is not synced,
- is younger than `min.compaction.lag.ms`, by the segment's largest timestamp.

A log is due when the dirty part is more than `min.cleanable.dirty.ratio` of both together, or when the first batch of
a dirty segment is older than `max.compaction.lag.ms`; the dirtiest goes first (KIP-58, KIP-354). Segments are cleaned
in groups, each of which becomes one segment no larger than a segment may be.

Facts are Apache Kafka's (LogCleanerManager, Cleaner). Offsets count records, sizes are bytes, times milliseconds.
Everything here can be pickled: a run may be another process's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.txn_index import AbortedTxn

K = TypeVar("K")
MAX_RELATIVE_OFFSET = 2**31 - 1


class CompactionAborted(Exception):
    """The log was truncated or deleted meanwhile, or the run was cancelled: nothing of it is used."""


class CompactionState(NamedTuple):
    """How much of a log is dirty, and how much of that can be cleaned."""

    first_dirty_offset: int
    """The checkpoint, or the log start where it cannot be right."""
    first_uncleanable_offset: int
    """Base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    """What is dirty and cannot be cleaned yet."""
    delay_ms: int
    """For how long the log should have been cleaned by `max.compaction.lag.ms`, 0 if it need not."""
    checkpoint_invalid: bool
    """`first_dirty_offset` is not what the checkpoint said and must be written there."""
    min_ratio: float
    """`min.cleanable.dirty.ratio`"""

    @property
    def dirty_ratio(self) -> float:
        """Between 0 and 1; 0 for a log that is empty up to the first uncleanable offset."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def must_clean(self) -> bool:
        """Cleaning is due."""
        return self.dirty_ratio > self.min_ratio or (self.delay_ms > 0 and self.cleanable_bytes > 0)


def dirtiest(states: Mapping[K, CompactionState]) -> K | None:
    """Which log is to be cleaned next, of all that are compacted and not being cleaned; None if none is due."""
    due = [(state.dirty_ratio, key) for key, state in states.items() if state.must_clean]
    return max(due, key=lambda pair: pair[0])[1] if due else None


class SegmentFacts(Protocol):
    """What is asked about a segment. The timestamps may cost a read, so they are asked for only where they count."""

    base_offset: int
    size: int

    @property
    def first_timestamp(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...


def state_of(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    checkpoint: int | None,
    truncated_to: int | None,
    log_start_offset: int,
    log_end_offset: int,
    upper_bound: int,
    now_ms: int,
) -> CompactionState:
    """The state of a log of `segments`, the last of which is active. `checkpoint`: its first dirty offset by the file,
    None if that does not know it; `truncated_to`: the lowest offset to which it was cut since the last cleaning;
    `upper_bound`: nothing at or above it may be touched.
    """
    dirty = log_start_offset if checkpoint is None else checkpoint
    if truncated_to is not None and dirty > truncated_to:
        dirty = truncated_to
    if not log_start_offset <= dirty <= log_end_offset:
        dirty = log_start_offset
    invalid = checkpoint is not None and dirty != checkpoint

    closed = segments[:-1]
    active = segments[-1].base_offset
    first = _at(segments, dirty)
    uncleanable = min(upper_bound, active)
    if config.min_compaction_lag_ms > 0:
        newest = now_ms - config.min_compaction_lag_ms
        for segment in closed[first:]:
            if segment.base_offset >= uncleanable:
                break
            if segment.max_timestamp > newest:
                uncleanable = segment.base_offset
                break
    uncleanable = max(uncleanable, dirty)
    # Down to the base of the segment that holds it.
    end = _at(segments, uncleanable) if uncleanable < active else len(closed)
    sizes = [segment.size for segment in segments]
    clean = sum(size for segment, size in zip(segments, sizes, strict=True) if segment.base_offset < dirty)
    return CompactionState(
        first_dirty_offset=dirty,
        first_uncleanable_offset=segments[end].base_offset,
        clean_bytes=clean,
        cleanable_bytes=sum(sizes[first:end]),
        uncleanable_bytes=sum(sizes[max(first, end) :]),
        delay_ms=_delay(closed[first:], config, now_ms),
        checkpoint_invalid=invalid,
        min_ratio=config.min_cleanable_dirty_ratio,
    )


def _at(segments: Sequence[SegmentFacts], offset: int) -> int:
    """Number of the segment that holds `offset`, the first if it is before all."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def _base_offset(segment: SegmentFacts) -> int:
    return segment.base_offset


def _delay(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    until = now_ms - max(config.max_compaction_lag_ms, 0)
    if until <= 0:
        return 0
    earliest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=until)
    return max(until - earliest, 0)


# ---- one run


class CompactionLimits(NamedTuple):
    """What one run may use: `log.cleaner.dedupe.buffer.size` and `log.cleaner.io.buffer.size`, each divided by the
    number of cleaners, and `log.cleaner.io.buffer.load.factor`. A batch larger than the buffer takes its own size.
    """

    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int


class Source(NamedTuple):
    """A closed segment. `mtime_ms`: when its file was last written."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    mtime_ms: int


class CompactionPlan(NamedTuple):
    """Everything that a run needs to know of a log (`PartitionLog.begin_compaction`)."""

    directory: str
    first_dirty_offset: int
    first_uncleanable_offset: int
    sources: tuple[Source, ...]
    """Every segment below `first_uncleanable_offset`."""
    aborted: tuple[AbortedTxn, ...]
    """The aborted transactions with records in them."""
    producers: dict[int, tuple[int, int]]
    """Producer id to the offset of its last record (-1 if only its last marker is known) and its epoch."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int

    @property
    def legacy_horizon_ms(self) -> int:
        """Tombstones of formats 0 and 1 go when their file was last written at or before this: `delete.retention.ms`
        before the last clean segment was.
        """
        clean = [source.mtime_ms for source in self.sources if source.base_offset < self.first_dirty_offset]
        return clean[-1] - self.delete_retention_ms if clean else 0

    def groups(self, end_offset: int) -> list[list[Source]]:
        """The segments that begin below `end_offset`, put together as far as their sum is a segment: by size of the
        log, of the indexes, and by the span of offsets.
        """
        grouped: list[list[Source]] = []
        size = index_size = time_index_size = 0
        for number, source in enumerate(self.sources):
            if source.base_offset >= end_offset:
                break
            following = self.sources[number + 1] if number + 1 < len(self.sources) else None
            last = (following.base_offset if following else self.first_uncleanable_offset) - 1
            if (
                grouped
                and size + source.size <= self.segment_bytes
                and index_size + source.index_size <= self.segment_index_bytes
                and time_index_size + source.time_index_size <= self.segment_index_bytes
                and (source.size == 0 or last - grouped[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
            ):
                grouped[-1].append(source)
                size += source.size
                index_size += source.index_size
                time_index_size += source.time_index_size
            else:
                grouped.append([source])
                size, index_size, time_index_size = source.size, source.index_size, source.time_index_size
        return grouped


class CleanedSegment(NamedTuple):
    """What became of one group: `.cleaned` files that are synced, to be put in place of segments."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments it stands for."""
    size: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int


@dataclass(slots=True)
class CompactionStats:
    """What a run did so far."""

    map_bytes: int = 0
    map_records: int = 0
    map_fill: float = 0.0
    """How full the table of keys became, 0 to 1."""
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    invalid_records: int = 0
    """Records without a key: they have no place in a compacted topic, and go."""
