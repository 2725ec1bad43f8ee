"""The log's side of compaction: how much is dirty, what a run needs to know, and putting its result in place.

A run (compaction_run.py) writes the files of one new segment with the mark `.cleaned`. They take the place of one or
more old segments in five steps, so that nothing slow holds up the loop and a crash leaves either the old or the new:

    swap = log.begin_swap(plan, cleaned, now_ms)   loop
    swap.prepare()                         thread: `.cleaned` becomes `.swap`; the directory is synced. From here on
                                           recovery finishes the swap, before it would remove the new files
    log.replace_segments(swap)             loop: readers see the new segment
    swap.complete()                        thread: old files become `.deleted`; synced; `.swap` goes from the new ones;
                                           synced
    log.end_swap(swap)                     loop: the old files are removed after `file.delete.delay.ms`

Slices that were handed out still read the old files. While a compaction is under way `retain` deletes nothing, as
in Apache Kafka. A truncation below its end stops it: of a swap that is only begun nothing is used, one that is
prepared is ended first, as recovery would do it. So does a deletion, a move or the close of the log.

Producer snapshots of replaced segments go with them but for the first one's; leader epochs do not change. Offsets
count records, sizes are bytes.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from enum import Enum
from functools import partial

from barnabas.logdir.compaction.plan import (
    CleanedSegment,
    CompactionAborted,
    CompactionPlan,
    CompactionState,
    Source,
    state_of,
)
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.disk import Disk, Entry, read_file, remove_if_there
from barnabas.logdir.files.errors import CorruptFile, StorageError
from barnabas.logdir.files.index import OffsetIndex, TimeIndex
from barnabas.logdir.files.open_files import LogFile, Pool
from barnabas.logdir.logs.reader import Reader
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.segment import Segment


class Step(Enum):
    BEGUN = 0
    PREPARED = 1
    REPLACED = 2
    COMPLETED = 3
    ENDED = 4
    CANCELLED = 5


class Compaction:
    """How dirty a log is, the run that is under way, and the swap at its end. See the module."""

    __slots__ = ("_plan", "_reader", "_state", "_swap")

    def __init__(self, state: LogState, reader: Reader) -> None:
        self._state = state
        self._reader = reader
        self._plan: CompactionPlan | None = None
        self._swap: Swap | None = None

    # ---- looking

    def state(self, first_dirty_offset: int | None, now_ms: int, upper_bound: int) -> CompactionState:
        """How dirty the log is. `first_dirty_offset`: that of the cleaner checkpoint, None if it has none;
        `upper_bound`: the last stable offset. Cheap, as long as neither lag is set. Raises KafkaError
        CORRUPT_MESSAGE, `StorageError`.
        """
        state = self._state
        try:
            return state_of(
                state.segments,
                state.config,
                checkpoint=first_dirty_offset,
                truncated_to=state.truncated_to,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.log_end_offset,
                # What is not synced could be lost by a crash, and the batches that made others superfluous with it.
                upper_bound=min(upper_bound, state.recovery_point),
                now_ms=now_ms,
            )
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error

    @property
    def is_under_way(self) -> bool:
        """A compaction was begun and neither ended nor stopped."""
        return self._plan is not None

    # ---- a run

    def begin(self, dirty: CompactionState, now_ms: int) -> CompactionPlan:
        """What a run needs that cleans what `dirty` says. It must be ended by `end`. An earlier run must not write any
        more: their files have the same names.

        Raises RuntimeError if a compaction is under way, KafkaError CORRUPT_MESSAGE, `StorageError`.
        """
        state = self._state
        if self._plan is not None:
            raise RuntimeError(f"{state.directory} is being compacted")
        self.stop()  # a swap that could not be ended before
        end = dirty.first_uncleanable_offset
        try:
            entries = {entry.name: entry for entry in state.disk.list(state.directory)}
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error
        config = state.config
        plan = CompactionPlan(
            directory=state.directory,
            first_dirty_offset=dirty.first_dirty_offset,
            first_uncleanable_offset=end,
            sources=tuple(_source(segment, entries) for segment in state.segments if segment.base_offset < end),
            aborted=tuple(self._reader.aborted_transactions(state.segments[0].base_offset, end)),
            producers={
                producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for producer_id, entry in state.producers.entries.items()
            },
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
        )
        self._plan = plan
        state.truncated_to = None
        return plan

    def end(self, plan: CompactionPlan) -> None:
        """The run of `plan` is over, successfully or not; what it left unused is removed. Raises `StorageError`."""
        state = self._state
        if self._plan is plan:
            self.stop()
        if self._plan is not None or state.abandoned:
            return
        try:
            for entry in state.disk.list(state.directory):
                parsed = layout.parse_marked_name(entry.name)
                if parsed is not None and parsed[2] == layout.CLEANED:
                    remove_if_there(state.disk, f"{state.directory}/{entry.name}")
        except OSError as error:
            raise StorageError(f"removing what compaction left in {state.directory}", error) from error

    def stop(self) -> None:
        """Nothing more of a compaction that is under way will be used; a swap that is half done is ended here. Does
        nothing if there is none. Raises `StorageError`.
        """
        self._plan = None
        swap = self._swap
        if swap is None:
            return
        if not swap.stop():
            if self._state.failure is not None:
                raise self._state.failure  # recovery will end it
            self.replace_segments(swap)
            swap.complete()
            self.end_swap(swap)

    def stop_for_truncation(self, offset: int) -> None:
        """The log is about to be cut at `offset`."""
        if self._plan is not None and offset < self._plan.first_uncleanable_offset:
            self.stop()

    def abandon(self) -> None:
        """The log is not ours any more; recovery ends what is half done."""
        self._plan = None
        if self._swap is not None:
            self._swap.abandon()

    # ---- a swap

    def swap_is_over(self, swap: Swap) -> None:
        """For `Swap`: it is ended or cancelled."""
        if self._swap is swap:
            self._swap = None

    def failed(self, error: OSError, *, can_continue: bool = False) -> StorageError:
        """For `Swap`: what to raise. can_continue: it can be continued later."""
        state = self._state
        return state.refused("compacting", error) if can_continue else state.broken("compacting", error)

    def begin_swap(self, plan: CompactionPlan, cleaned: CleanedSegment, now_ms: int) -> Swap:
        """Step 1. Raises `CompactionAborted` if the compaction was stopped meanwhile."""
        state = self._state
        if self._plan is not plan or state.abandoned:
            raise CompactionAborted(f"the compaction of {state.directory} was stopped")
        if self._swap is not None:
            raise RuntimeError(f"{state.directory} has another swap under way")
        make = partial(SwappedSegment, state.disk, state.directory, cleaned, state.keeper.pool, state.lock, now_ms)
        self._swap = Swap(self, state, cleaned, now_ms, make)
        return self._swap

    def replace_segments(self, swap: Swap) -> None:
        """Step 3. Does nothing if the swap was ended meanwhile. Raises `CompactionAborted`."""
        if swap.step is Step.CANCELLED:
            raise CompactionAborted(f"the compaction of {self._state.directory} was stopped")
        if swap.step is Step.PREPARED:
            self._replace(swap)

    def _replace(self, swap: Swap) -> None:
        state = self._state
        assert swap.segment is not None
        with state.lock:
            bases = [segment.base_offset for segment in state.segments]
            first = bases.index(swap.cleaned.base_offset)
            end = first + len(swap.cleaned.replaced)
            if tuple(bases[first:end]) != swap.cleaned.replaced or end >= len(bases):
                raise RuntimeError(f"{state.directory}: segments {swap.cleaned.replaced} are not {bases[first:end]}")
            swap.old = state.segments[first:end]
            state.segments[first:end] = [swap.segment]
            for segment in swap.old:
                segment.close()
            swap.step = Step.REPLACED

    def end_swap(self, swap: Swap) -> None:
        """Step 5. Does nothing if the swap was ended meanwhile. Raises `CompactionAborted`, `StorageError`."""
        state = self._state
        if swap.step is Step.CANCELLED:
            raise CompactionAborted(f"the compaction of {state.directory} was stopped")
        if swap.step is not Step.COMPLETED:
            return
        assert swap.segment is not None
        swap.step = Step.ENDED
        self.swap_is_over(swap)
        swap.segment.join_pool()
        state.keeper.remove_later(swap.deleted, swap.now_ms + state.config.file_delete_delay_ms)
        try:
            gone = set(swap.cleaned.replaced[1:])
            state.drop_snapshots(lambda at: at in gone)
        except OSError as error:
            raise state.refused("compacting", error) from error

    def swap_in(self, plan: CompactionPlan, cleaned: CleanedSegment, now_ms: int) -> None:
        """All five steps. Raises `CompactionAborted`, `StorageError`."""
        swap = self.begin_swap(plan, cleaned, now_ms)
        swap.prepare()
        self.replace_segments(swap)
        swap.complete()
        self.end_swap(swap)


class SwappedSegment(Segment):
    """The new segment, out of `.swap` files. Until they have their names for good it stays open, beside the pool, as
    opening it again would look for another name.
    """

    __slots__ = ()

    def __init__(
        self, disk: Disk, directory: str, cleaned: CleanedSegment, pool: Pool, lock: threading.RLock, now_ms: int
    ) -> None:
        """Raises OSError, `CorruptFile`."""
        super().__init__(disk, directory, cleaned.base_offset, cleaned.size, pool, lock, now_ms=now_ms)
        self._file = LogFile(disk, self.path() + layout.SWAP)
        self._file.path = self.path()
        base = cleaned.base_offset
        self._offsets = OffsetIndex(base, read_file(disk, self.path(layout.OFFSET_INDEX) + layout.SWAP))
        self._times = TimeIndex(base, read_file(disk, self.path(layout.TIME_INDEX) + layout.SWAP))
        self._txns = txn_index.read(disk, self.path(layout.TXN_INDEX) + layout.SWAP, base)
        self._first_timestamp = cleaned.first_timestamp
        self._max_timestamp = cleaned.max_timestamp
        self._max_timestamp_offset = cleaned.max_timestamp_offset

    def join_pool(self) -> None:
        """The files have their names. On the loop."""
        if self._offsets is not None and self._times is not None:
            self._pool.add(self, self._offsets.size + self._times.size)


class Swap:
    """One cleaned segment being swapped into the log. Its own lock is held during renames and syncs: appends and
    flushes, which use the log's, do not wait for that; a thread that stops the compaction does.
    """

    __slots__ = (
        "_compaction",
        "_directory",
        "_lock",
        "_make",
        "_old_are_gone",
        "_renamed",
        "_state",
        "cleaned",
        "deleted",
        "now_ms",
        "old",
        "segment",
        "step",
    )

    def __init__(
        self,
        compaction: Compaction,
        state: LogState,
        cleaned: CleanedSegment,
        now_ms: int,
        make: Callable[[], SwappedSegment],
    ) -> None:
        self._compaction = compaction
        self._state = state
        self._directory = state.directory
        self._make = make
        self._lock = threading.Lock()
        self.cleaned = cleaned
        self.now_ms = now_ms
        self.step = Step.BEGUN
        self._old_are_gone = False
        self._renamed: set[str] = set()
        self.segment: SwappedSegment | None = None
        self.old: list[Segment] = []
        self.deleted: list[str] = []

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{layout.file_name(self.cleaned.base_offset, suffix)}"

    def prepare(self) -> None:
        """Step 2, in a thread. Raises `CompactionAborted`, `StorageError`."""
        with self._lock:
            self._check()
            if self.step is not Step.BEGUN:
                return
            try:
                # While one `.cleaned` file is left, recovery removes all of them.
                self._rename(layout.CLEANED, layout.SWAP)
                self._state.disk.sync_dir(self._directory)
                self.segment = self._make()
            except FileNotFoundError as error:
                self._undo()
                raise CompactionAborted(
                    f"what compaction made in {self._directory} is gone: {error.filename}"
                ) from error
            except (OSError, CorruptFile) as error:
                if isinstance(error, CorruptFile):
                    error = OSError(errno.EIO, str(error))
                self._undo()
                raise StorageError(f"compacting {self._directory}", error) from error
            self.step = Step.PREPARED

    def _undo(self) -> None:
        """No `.swap` file may stay: the log keeps growing, and may be truncated, as if nothing had happened."""
        self._cancel()
        try:
            for suffix in layout.SEGMENT_SUFFIXES:
                for mark in (layout.SWAP, layout.CLEANED):
                    remove_if_there(self._state.disk, self._path(suffix) + mark)
            self._state.disk.sync_dir(self._directory)
        except OSError as error:
            raise self._compaction.failed(error) from error

    def complete(self) -> None:
        """Step 4, in a thread. Raises `CompactionAborted`, `StorageError`: called again, it continues where it stopped.
        After a failure of the disk opening the log again ends the swap.
        """
        with self._lock:
            self._check()
            if self.step is not Step.REPLACED:
                return
            try:
                if not self._old_are_gone:
                    for base_offset in self.cleaned.replaced:
                        self._delete(base_offset)
                    # Else a crash could bring an old segment back beside the new one.
                    self._state.disk.sync_dir(self._directory)
                    self._old_are_gone = True  # from here on their names are the new one's
                self._rename(layout.SWAP, "")
                self._state.disk.sync_dir(self._directory)
            except OSError as error:
                raise self._compaction.failed(error, can_continue=True) from error
            self.step = Step.COMPLETED

    def _delete(self, base_offset: int) -> None:
        # The log file first: what is left of a segment without it is nothing.
        for suffix in layout.SEGMENT_SUFFIXES:
            path = f"{self._directory}/{layout.file_name(base_offset, suffix)}"
            try:
                self._state.disk.rename(path, path + layout.DELETED)
            except FileNotFoundError:
                continue
            self.deleted.append(path + layout.DELETED)

    def _rename(self, old: str, new: str) -> None:
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self._path(suffix)
            if path + new in self._renamed:
                continue
            try:
                self._state.disk.rename(path + old, path + new)
            except FileNotFoundError:
                if suffix != layout.TXN_INDEX:
                    raise
            self._renamed.add(path + new)

    def _check(self) -> None:
        if self.step is Step.CANCELLED or self._state.abandoned or self._state.failure is not None:
            raise CompactionAborted(f"the compaction of {self._directory} was stopped")

    def stop(self) -> bool:
        """Wait for what a thread does. True if the swap is cancelled now, False if it has come so far that it must be
        ended.
        """
        with self._lock:
            if self.step is Step.BEGUN:
                self._cancel()
            return self.step is Step.CANCELLED

    def abandon(self) -> None:
        """Wait for what a thread does; nothing more is to be done."""
        with self._lock:
            self._cancel()

    def _cancel(self) -> None:
        self.step = Step.CANCELLED
        self._compaction.swap_is_over(self)


def _source(segment: Segment, entries: dict[str, Entry]) -> Source:
    def of(suffix: str) -> Entry | None:
        return entries.get(layout.file_name(segment.base_offset, suffix))

    log, offsets, times = of(layout.LOG), of(layout.OFFSET_INDEX), of(layout.TIME_INDEX)
    return Source(
        segment.base_offset,
        segment.size,
        offsets.size if offsets else 0,
        times.size if times else 0,
        log.mtime_ms if log else 0,
    )
