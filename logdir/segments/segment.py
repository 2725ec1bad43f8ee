"""One segment: a `.log` file with its indexes, from a base offset up to the next segment's.

Only the log file is the truth; everything else is made from it. Files are opened, and indexes read, when first
needed, and released by the pool (files.py), so that an idle partition costs no descriptor. New index entries stay
in memory and are appended to their files every `SAVE_EVERY` entries and by flush, roll and close.

The active segment remembers where its last batches start. Reads near the end, that is those of consumers and
followers that keep up, and the high watermark find their position there without touching a file; others go through
the index and walk over at most `index.interval.bytes` and one batch.

Offsets count records, positions and sizes bytes, timestamps are milliseconds.

Threads: everything belongs to the loop, but `save_indexes` under the log's lock, and `sync`.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.disk import Disk, read_file, sync_file, write_file, write_fully
from barnabas.logdir.files.errors import OURS, CorruptFile
from barnabas.logdir.files.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from barnabas.logdir.files.open_files import LogFile, Pool, new_log_file
from barnabas.logdir.files.scan import StoredBatch, find_batch, iter_batches
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.segments.reindex import is_padding, last_saved_time, made_anew, note_saved
from barnabas.logdir.segments.timed_batch import TimedBatch, timed

SAVE_EVERY = 256
TAIL = 64
UNKNOWN = -2
"""A timestamp that was not looked up yet; -1 is Kafka's "none"."""
_NO_TAIL: Final = array("q")
"""Of segments that nothing was written to since they were opened, which are most: never changed."""


class Segment:
    """See the module. `size`: bytes written; more may lie behind them in the file after a failed write."""

    __slots__ = (
        "_damage",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp",
        "_lock",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_pool",
        "_since_index",
        "_tail_floor",
        "_tail_lasts",
        "_tail_positions",
        "_times",
        "_txns",
        "base_offset",
        "created_ms",
        "dirty",
        "indexes_dirty",
        "jitter_ms",
        "size",
        "unfinished",
        "used",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        size: int,
        pool: Pool,
        lock: threading.RLock,
        *,
        now_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        """A segment that is there; `create` makes a new one. `now_ms` is when it was made or opened, for rolling by
        age.
        """
        self._disk = disk
        self._directory = directory
        self._pool = pool
        self._lock = lock
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.used = False
        self.dirty = False
        self.indexes_dirty = False
        self.unfinished = False
        self._file: LogFile | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._txns: list[AbortedTxn] | None = None
        self._damage = ""  # what `_made_anew` met
        self._since_index = 0
        self._first_timestamp = UNKNOWN
        self._max_timestamp = UNKNOWN
        self._max_timestamp_offset = base_offset
        self._tail_lasts = self._tail_positions = _NO_TAIL
        self._tail_floor: int | None = None

    @classmethod
    def new(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        pool: Pool,
        lock: threading.RLock,
        *,
        now_ms: int,
        jitter_ms: int = 0,
    ) -> Segment:
        """An empty segment that has no files yet: `make_files`, or `make_log_file`, comes next. Its index files are
        made, or leftovers of the same names emptied, when they are first saved.
        """
        segment = cls(disk, directory, base_offset, 0, pool, lock, now_ms=now_ms, jitter_ms=jitter_ms)
        segment._tail_floor = base_offset - 1
        segment._max_timestamp = segment._first_timestamp = -1
        segment._offsets = OffsetIndex(base_offset)
        segment._times = TimeIndex(base_offset)
        segment._offsets.stale = segment._times.stale = True
        segment._txns = []
        return segment

    def make_files(self) -> None:
        """Make what an empty segment needs before it is written to; leftovers of the same names are emptied. The
        directory is not synced. Raises OSError.
        """
        txn_index.replace(self._disk, self.path(layout.TXN_INDEX), [])
        self._file = new_log_file(self._disk, self.path())
        self.dirty = True
        self._pool.add(self)

    def make_log_file(self) -> None:
        """As `make_files`, in a new directory, and from any thread: nothing is opened for good. Raises OSError."""
        new_log_file(self._disk, self.path())
        self.dirty = True

    def __repr__(self) -> str:
        return f"Segment({self.path()!r}, size={self.size})"

    def path(self, suffix: str = layout.LOG) -> str:
        return f"{self._directory}/{layout.file_name(self.base_offset, suffix)}"

    # ---- what is open

    def file(self) -> LogFile:
        """The open log file. Raises OSError."""
        self.used = True
        file = self._file
        if file is None:
            file = self._file = LogFile(self._disk, self.path())
            self._pool.add(self)
        return file

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes; a missing or impossible one is rebuilt from the log. Raises OSError, `CorruptRecords`."""
        offsets, times = self._offsets, self._times
        if offsets is not None and times is not None:
            return offsets, times
        if self._damage:
            raise CorruptRecords(self._damage)
        try:
            offsets = OffsetIndex(self.base_offset, read_file(self._disk, self.path(layout.OFFSET_INDEX)))
            times = TimeIndex(self.base_offset, read_file(self._disk, self.path(layout.TIME_INDEX)))
            is_ahead = offsets.last()[1] > max(self.size - 1, 0)
            if is_ahead or is_padding(self._disk, lambda: self.file().fd, self.size, times):
                raise CorruptFile(f"the indexes of {self.path()} are not of this log")
        except (CorruptFile, FileNotFoundError):
            offsets, times = self._made_anew()
        self._offsets, self._times = offsets, times
        self._pool.add(self, offsets.size + times.size)
        return offsets, times

    def _made_anew(self) -> tuple[OffsetIndex, TimeIndex]:
        try:
            made = made_anew(self._disk, self.file().fd, self.base_offset, self.size)
        except CorruptRecords as error:
            self._damage = str(error.message)  # the next caller need not read all of it again
            raise
        for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX):
            write_file(self._disk, self.path(suffix), b"", sync=False)
        self.indexes_dirty = True
        return made

    def release(self) -> None:
        """Release the file and the indexes; they are opened again when needed."""
        try:
            with self._lock:
                self.save_indexes()
        except OSError:
            # Unsaved entries must not be lost while the log is open: keep them, and let a flush report the disk.
            pass
        else:
            self._offsets = self._times = None
            if self._txns:
                self._txns = None  # that there are none is worth remembering, and costs nothing
        self._file = None
        self._tail_floor = None
        self._tail_lasts = self._tail_positions = _NO_TAIL

    def close(self) -> None:
        """`release`, for good. The caller has saved what is to be kept."""
        self._pool.discard(self)
        self._offsets = self._times = None
        self._txns = None
        self._file = None

    # ---- appending

    def ready(self, next_offset: int) -> LogFile:
        """Everything that recording a write needs is in memory; the file to write to. Raises OSError."""
        if self._offsets is None or self._times is None:
            self.indexes()
        if self._max_timestamp == UNKNOWN:
            self._look_up_max_timestamp()
        if self._tail_floor is None:
            self._tail_floor = next_offset - 1
        if self._tail_lasts is _NO_TAIL:
            self._tail_lasts, self._tail_positions = array("q"), array("q")
        return self.file()

    def wrote(self, batches: list[tuple[int, int, int]], interval_bytes: int, max_index_bytes: int) -> bool:
        """Batches, as (last offset, size, max timestamp), were written behind `size`. `ready` was called before.
        Returns whether the indexes may be full now, or have `SAVE_EVERY` entries that are not saved.
        """
        offsets, times = self._offsets, self._times
        assert offsets is not None
        assert times is not None
        position = self.size
        since = self._since_index
        lasts, positions = self._tail_lasts, self._tail_positions
        newest, newest_offset = self._max_timestamp, self._max_timestamp_offset
        room = None
        if position == 0:
            self._first_timestamp = batches[0][2]
        for last_offset, size, timestamp in batches:
            if timestamp > newest:
                newest = timestamp
                newest_offset = last_offset
            if since > interval_bytes:
                # A round of batches may fill the index after the roll was decided: sparser is as good.
                if room is None:
                    room = self._index_room(max_index_bytes)
                if room > 0:
                    room -= 1
                    offsets.add(last_offset, position)
                    if newest >= 0:
                        times.add(newest, newest_offset)
                since = 0
            since += size
            lasts.append(last_offset)
            positions.append(position)
            position += size
        self._max_timestamp, self._max_timestamp_offset = newest, newest_offset
        self.size = position
        self._since_index = since
        self.dirty = self.unfinished = True
        if len(lasts) > 2 * TAIL:
            self._tail_floor = lasts[-TAIL - 1]
            del lasts[:-TAIL]
            del positions[:-TAIL]
        return room is not None and (room < 1 or len(offsets) - offsets.saved >= SAVE_EVERY)

    def _index_room(self, max_index_bytes: int) -> int:
        """How many entries each index can take: the time index keeps a place for the one that closing adds."""
        offsets, times = self._offsets, self._times
        assert offsets is not None
        assert times is not None
        return min((max_index_bytes - offsets.size) // OFFSET_ENTRY, (max_index_bytes - times.size) // TIME_ENTRY - 1)

    def index_is_full(self, max_index_bytes: int) -> bool:
        """No room for another entry. Only for a segment that was `ready`."""
        return self._offsets is not None and self._times is not None and self._index_room(max_index_bytes) < 1

    @property
    def unsaved(self) -> int:
        """Index entries that are in memory only."""
        return len(self._offsets) - self._offsets.saved if self._offsets is not None else 0

    def append_aborted(self, file: LogFile, entry: AbortedTxn) -> None:
        """Add to the transaction index, whose file is `file`; the directory is not synced. Raises OSError,
        `CorruptFile`.
        """
        entries = self.aborted()
        txn_index.append(self._disk, file.fd, len(entries), entry)
        entries.append(entry)
        self.indexes_dirty = True

    # ---- saving

    def save_indexes(self) -> None:
        """Bring the index files up to what is in memory, not synced. The caller holds the log's lock. Raises
        OSError.
        """
        for suffix, entry_size, index in (
            (layout.OFFSET_INDEX, OFFSET_ENTRY, self._offsets),
            (layout.TIME_INDEX, TIME_ENTRY, self._times),
        ):
            if index is None or (index.saved == len(index) and not index.stale):
                continue
            fd = self._disk.open(self.path(suffix), create=True)
            try:
                if index.stale:
                    self._disk.truncate(fd, index.saved * entry_size)
                    index.stale = False
                data = index.encode(index.saved)
                if data:
                    write_fully(self._disk, fd, (data,), index.saved * entry_size)
                    index.saved += len(data) // entry_size
            finally:
                self._disk.close(fd)
            self.indexes_dirty = True

    def complete(self) -> None:
        """Nothing more will be appended for now: the last time index entry, in memory. The caller holds the log's lock.
        Raises OSError.
        """
        if self.unfinished:
            _, times = self.indexes()
            if self._max_timestamp >= 0:
                times.add(self._max_timestamp, self._max_timestamp_offset)
            self.unfinished = False

    def finish(self) -> None:
        """`complete`, and both indexes saved. The caller holds the log's lock. Raises OSError."""
        self.complete()
        self.save_indexes()

    def sync(self) -> None:
        """What was written and saved so far is on the disk when this returns. May run in a thread. Raises OSError."""
        try:
            if self.dirty:
                self.dirty = False
                try:
                    file = self._file or LogFile(self._disk, self.path())
                    self._disk.sync(file.fd)
                except FileNotFoundError:
                    return  # deleted meanwhile
                except OSError:
                    self.dirty = True
                    raise
            if self.indexes_dirty:
                self.indexes_dirty = False
                for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX):
                    sync_file(self._disk, self.path(suffix))
        except OSError:
            self.indexes_dirty = True
            raise

    # ---- reading

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset is `offset` or more, None if there is none. Raises
        OSError, `CorruptRecords`.
        """
        lasts = self._tail_lasts
        if self._tail_floor is not None and offset > self._tail_floor:
            at = bisect_left(lasts, offset)
            if at == len(lasts):
                return None
            position = self._tail_positions[at]
            end = self._tail_positions[at + 1] if at + 1 < len(lasts) else self.size
            return position, end - position
        offsets = self._offsets
        if offsets is None:
            offsets, _ = self.indexes()
        start = offsets.lookup(offset)
        return find_batch(self._disk, self.file().fd, start, self.size, offset)

    def end(self) -> tuple[int, int]:
        """(offset, position) behind the last whole batch; (base offset, 0) if there is none. Raises OSError,
        `CorruptRecords`.
        """
        end, position = self.base_offset, 0
        if self.size:
            offsets, _ = self.indexes()
            for batch in iter_batches(self._disk, self.file().fd, offsets.last()[1], self.size):
                end, position = batch.last_offset + 1, batch.position + batch.size
        return end, position

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file. Raises OSError."""
        return self._disk.pread(self.file().fd, size, position)

    def batches(self, position: int = 0, *, whole: bool = False) -> Iterator[StoredBatch]:
        """An iterator over the batches from `position` on; with `whole` checked and with their data. Raises OSError,
        `CorruptRecords`.
        """
        return iter_batches(self._disk, self.file().fd, position, self.size, whole=whole)

    # ---- time

    @property
    def first_timestamp(self) -> int:
        """Max timestamp of the first batch, -1 if there is none: the age of a segment counts from it. Raises OSError,
        `CorruptRecords`.
        """
        if self._first_timestamp == UNKNOWN:
            self._first_timestamp = -1
            for batch in iter_batches(self._disk, self.file().fd, 0, self.size):
                self._first_timestamp = batch.max_timestamp
                break
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, -1 if there is none. Raises OSError."""
        if self._max_timestamp == UNKNOWN:
            self._look_up_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch that has it. Raises OSError."""
        if self._max_timestamp == UNKNOWN:
            self._look_up_max_timestamp()
        return self._max_timestamp_offset

    def _look_up_max_timestamp(self) -> None:
        """A segment that was closed or rolled has it as the last entry of its time index: 12 bytes to read."""
        found = None
        if self._times is None:
            found = last_saved_time(self._disk, self.path(layout.TIME_INDEX), self.base_offset)
        self._max_timestamp, self._max_timestamp_offset = self.indexes()[1].last() if found is None else found

    def retention_timestamp(self) -> int:
        """The age for retention: the largest timestamp, or when the file was last written if no record has one.
        Raises OSError, `CorruptRecords`.
        """
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.written_ms()

    def written_ms(self) -> int:
        """When the log file was last written. Raises OSError."""
        name = layout.file_name(self.base_offset, layout.LOG)
        return next(
            (entry.mtime_ms for entry in self._disk.list(self._directory) if entry.name == name), self.created_ms
        )

    def timed_batch(self, target_ms: int, start_offset: int) -> TimedBatch | None:
        """The first batch that has records at or after `target_ms`, and ends at `start_offset` or behind it. Raises
        OSError, `CorruptRecords`.
        """
        offsets, times = self.indexes()
        _, offset = times.lookup(target_ms)
        position = offsets.lookup(max(offset, start_offset))
        file = self.file()
        for batch in iter_batches(self._disk, file.fd, position, self.size):
            if batch.max_timestamp >= target_ms and batch.last_offset >= start_offset:
                return timed(batch, self._disk.pread(file.fd, batch.size, batch.position))
        return None

    # ---- transactions

    def aborted(self) -> list[AbortedTxn]:
        """The entries of the transaction index. Raises OSError, `CorruptFile`."""
        entries = self._txns
        if entries is None:
            entries = self._txns = txn_index.read(self._disk, self.path(layout.TXN_INDEX), self.base_offset)
            if entries:
                self._pool.add(self, len(entries) * txn_index.ENTRY)
        return entries

    def set_aborted(self, entries: list[AbortedTxn], *, save: bool) -> None:
        """What the transaction index holds, known without reading it; with `save` its file is to hold it too. Raises
        OSError.
        """
        if save:
            txn_index.replace(self._disk, self.path(layout.TXN_INDEX), entries)
            self.indexes_dirty = True
        self._txns = entries

    def upper_bound(self, position: int) -> int | None:
        """An offset above those of all batches before `position`, from the offset index; None if that ends before.
        Raises OSError, `CorruptRecords`.
        """
        return self.indexes()[0].upper_bound(position)

    # ---- cutting

    def cut(self, offset: int, end: int, position: int, newest: tuple[int, int]) -> None:
        """It ends with the offset `end` and at `position`, before the batch that holds `offset`: in memory, which
        cannot fail; `save_cut` comes next. newest: the largest timestamp that is left, and its offset. `indexes` and
        `aborted` are in memory.
        """
        offsets, times = self.indexes()
        self.size = position
        offsets.truncate(offset)
        times.truncate(offset)
        times.truncate(end)
        self._txns = [entry for entry in self.aborted() if entry.last_offset < end]
        self._since_index = 0
        self._tail_lasts = self._tail_positions = _NO_TAIL
        self._tail_floor = end - 1
        self._max_timestamp, self._max_timestamp_offset = newest
        if position == 0:
            self._first_timestamp = -1
        self.dirty = self.indexes_dirty = self.unfinished = True

    def save_cut(self, aborted: int | None) -> None:
        """Cut the files, and sync them: what ends below the recovery point is believed with its indexes. aborted: so
        many entries stay in the transaction index; None for all. The caller holds the log's lock. Raises OSError; then
        it can be called again.
        """
        self.cut_back()
        self.save_indexes()
        if aborted is not None:
            txn_index.cut(self._disk, self.path(layout.TXN_INDEX), aborted)
        self.sync()

    def renew_max_timestamp(self) -> None:
        """Look for it behind the last entry of the time index, which may not be the one that `finish` adds. Raises
        OSError, `CorruptRecords`.
        """
        offsets, times = self.indexes()
        self.unfinished = True
        newest, newest_offset = times.last()
        for batch in iter_batches(self._disk, self.file().fd, offsets.lookup(newest_offset), self.size):
            if batch.max_timestamp > newest:
                newest, newest_offset = batch.max_timestamp, batch.last_offset
        self._max_timestamp, self._max_timestamp_offset = newest, newest_offset

    def rebuilt(
        self,
        size: int,
        offsets: OffsetIndex,
        times: TimeIndex,
        aborted: list[AbortedTxn],
        max_timestamp: int,
        max_timestamp_offset: int,
    ) -> None:
        """Recovery read the log: what is behind `size` is not right, everything else is to be as said. Raises
        OSError.
        """
        if size < self.size:
            self._disk.truncate(self.file().fd, size)
            self.size = size
        self._pool.add(self, offsets.size + times.size)
        self.set_aborted(aborted, save=bool(aborted) or self._txns != [])  # None: there is a file
        if max_timestamp >= 0:
            times.add(max_timestamp, max_timestamp_offset)  # as `finish` does
        for suffix, index in ((layout.OFFSET_INDEX, offsets), (layout.TIME_INDEX, times)):
            note_saved(self._disk, self.path(suffix), index)
        self._offsets, self._times = offsets, times
        self._max_timestamp, self._max_timestamp_offset = max_timestamp, max_timestamp_offset
        self.dirty = self.indexes_dirty = True
        self.unfinished = False
        self.save_indexes()

    def moved_to(self, directory: str) -> None:
        """Its files are in `directory` now; a file that is open stays so."""
        self._directory = directory
        if self._file is not None:
            self._file.path = self.path()

    def cut_back(self) -> None:
        """Cut what a failed write left behind `size`, for good: what was refused must not come back in place of what is
        written there next. Raises OSError.
        """
        file = self.file()
        self._disk.truncate(file.fd, self.size)
        self._disk.sync(file.fd)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted` and release them; the new paths. A `FileSlice` in use stays readable.
        Raises OSError: of an error that is not the disk's nothing was done. Without its log file a segment is gone; if
        another file of it stays, the next start, or a segment of that name, clears it away.
        """
        renamed = []
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            try:
                self._disk.rename(path, path + layout.DELETED)
            except FileNotFoundError:
                continue
            except OSError as error:
                if suffix == layout.LOG or error.errno not in OURS:
                    raise
                continue
            renamed.append(path + layout.DELETED)
        self.close()
        return renamed
