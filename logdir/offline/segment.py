"""One segment as an offline reader sees it: a `.log` file of a fixed size, and the indexes beside it if they help.

Nothing is believed of an index: it is used where its entry leads to a batch that is what the entry says, otherwise
the log is read from its start. Positions and sizes are bytes, timestamps milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.disk import ReadOnlyDisk, read_file
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import OffsetIndex, TimeIndex
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.offline.batch import Batch
from barnabas.logdir.offline.errors import SegmentGone
from barnabas.logdir.offline.source import LOWEST, Bounds, Source, WholeLog
from barnabas.logdir.offline.walk import Damaged, walk


class IndexEntry(NamedTuple):
    """`position` is where the batch starts whose last offset is `last_offset`, or an earlier one."""

    last_offset: int
    position: int


class SegmentReader(Source):
    """`path`: of the log file. `size`: its bytes when it was opened; what is appended later is not seen.
    `next_base_offset`: where the next segment starts, None for the last one.
    """

    __slots__ = ("_disk", "_identity", "_log", "_stem", "base_offset", "next_base_offset", "path", "size")

    def __init__(
        self,
        disk: ReadOnlyDisk,
        log: WholeLog,
        path: str,
        base_offset: int,
        size: int,
        next_base_offset: int | None,
    ) -> None:
        self._disk: Final = disk
        self._log: Final = log
        self._stem: Final = path[: -len(layout.LOG)] if path.endswith(layout.LOG) else None
        self._identity: Final = disk.identity(path)
        self.path: Final = path
        self.base_offset: Final = base_offset
        self.size: Final = size
        self.next_base_offset: Final = next_base_offset

    def __repr__(self) -> str:
        return f"SegmentReader({self.path!r}, size={self.size})"

    # ---- the Source

    @property
    def log(self) -> WholeLog:
        return self._log

    def _read(self, bounds: Bounds, *, whole: bool, check_crcs: bool) -> Iterator[Batch]:
        start = self._seek(bounds)
        return self._between(start, self.size, bounds, whole=whole, check_crcs=check_crcs)

    # ---- positions

    def batches_between(
        self,
        start_position: int,
        end_position: int | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        min_timestamp_ms: int | None = None,
        max_timestamp_ms: int | None = None,
        check_crcs: bool = True,
    ) -> Iterator[Batch]:
        """The batches, with their bytes, that start in [start_position, end_position) and may hold wanted records; both
        positions are those of batches, as `index_entries` gives them. Bounds and errors as in `batches`.
        """
        bounds = Bounds.of(start_offset, end_offset, min_timestamp_ms, max_timestamp_ms)
        end = self.size if end_position is None else min(end_position, self.size)
        return self._between(start_position, end, bounds, whole=True, check_crcs=check_crcs)

    def _between(self, start: int, end: int, bounds: Bounds, *, whole: bool, check_crcs: bool) -> Iterator[Batch]:
        floor = self.base_offset
        try:
            for batch in self._walk(start, whole=whole, end=end):
                if (batch.base_offset if batch.magic == 2 or not batch.codec else floor) >= bounds.end:
                    return
                floor = batch.last_offset + 1
                if bounds.may_hold(batch):
                    if check_crcs and whole:
                        batch.check()
                    yield batch
                if floor >= bounds.end:
                    return
        except Damaged as damage:
            if not (damage.torn and self.next_base_offset is None):
                raise

    def _walk(self, start: int = 0, *, whole: bool = False, end: int | None = None) -> Iterator[Batch]:
        fd = self._open()
        try:
            yield from walk(self._disk, fd, self.path, start, self.size if end is None else end, whole=whole)
        finally:
            self._disk.close(fd)

    def _open(self) -> int:
        """A descriptor of the file that was listed. Raises `SegmentGone`, OSError."""
        try:
            fd = self._disk.open(self.path)
        except FileNotFoundError:
            raise SegmentGone(f"{self.path} was there and is gone") from None
        if self._disk.identity(fd) != self._identity or self._disk.size(fd) < self.size:
            self._disk.close(fd)
            raise SegmentGone(f"{self.path} was replaced or cut since it was opened")
        return fd

    def walk(self, *, whole: bool = False) -> Iterator[Batch]:
        """All batches of the file, checksums unlooked at, up to its end or to what is no batch. Raises `Damaged` (a
        `CorruptRecords`) there, `SegmentGone`, OSError.
        """
        return self._walk(whole=whole)

    def _seek(self, bounds: Bounds) -> int:
        """A position of a batch before which there is nothing that is wanted."""
        start = bounds.start
        by_time = bounds.oldest > LOWEST
        if start <= self.base_offset and not by_time:
            return 0
        offsets = self._offset_index()
        if offsets is None or not len(offsets):
            return 0
        if by_time:
            times = self._time_index()
            if times is not None:
                timestamp, offset = times.lookup(bounds.oldest - 1)
                if timestamp >= 0 and offset > start:
                    position = offsets.lookup(offset)
                    for batch in self._from_entry(position):
                        if batch.last_offset >= offset:
                            if batch.max_timestamp == timestamp and batch.base_offset <= offset:
                                return position
                            break
        position = offsets.lookup(start) if start > self.base_offset else 0
        return position if any(True for _ in self._from_entry(position)) else 0

    def _from_entry(self, position: int) -> Iterator[Batch]:
        """The batches from an indexed position on, without bytes, for as long as there are some; none if there is no
        sound batch there.
        """
        try:
            yield from self._walk(position)
        except CorruptRecords:
            return

    def _offset_index(self) -> OffsetIndex | None:
        """None if there is none that can be believed."""
        data = self._beside(layout.OFFSET_INDEX)
        if data is None:
            return None
        try:
            index = OffsetIndex(self.base_offset, data)
        except CorruptFile:
            return None
        last_offset, position = index.last()
        if not len(index):
            return index
        if position >= self.size:
            # Of a log that is written to: made after we looked at its size. Else it is of another log.
            index.truncate(last_offset)
            last_offset, position = index.last()
            if position >= self.size:
                return None
        # Several batches that came at once may share one entry: the last offset of all, the position of the first.
        first = next(self._from_entry(position), None)
        return index if first is not None and (not len(index) or first.base_offset <= last_offset) else None

    def _time_index(self) -> TimeIndex | None:
        data = self._beside(layout.TIME_INDEX)
        if data is None:
            return None
        try:
            return TimeIndex(self.base_offset, data)
        except CorruptFile:
            return None

    def _beside(self, suffix: str) -> bytes | None:
        """The file of the same name with that suffix; None if there is none that can be read."""
        if self._stem is None:
            return None
        try:
            return read_file(self._disk, self._stem + suffix)
        except OSError:
            return None

    # ---- facts

    def has_grown(self) -> bool:
        """Whether a broker has written more to it since it was opened. Raises `SegmentGone`, OSError."""
        fd = self._open()
        try:
            return self._disk.size(fd) > self.size
        finally:
            self._disk.close(fd)

    def index_entries(self) -> list[IndexEntry]:
        """What the offset index says, as far as it can be believed: places to split at, rising, all inside `size`."""
        index = self._offset_index()
        if index is None:
            return []
        entries = [IndexEntry(offset, position) for offset, position in index.entries() if 0 < position < self.size]
        rising = all(a < b and a.position < b.position for a, b in pairwise(entries))
        return entries if rising else []

    def end_offset(self) -> int:
        """The offset behind the last whole batch; `base_offset` if there is none. Raises as `batches`."""
        index = self._offset_index()
        end = self.base_offset
        try:
            for batch in self._walk(index.last()[1] if index is not None else 0):
                end = batch.last_offset + 1
        except Damaged as damage:
            if not (damage.torn and self.next_base_offset is None):
                raise
        return end

    def largest_timestamp(self) -> int:
        """Of all records, -1 if none has one: from the time index and the batches behind its last entry. Raises as
        `batches`.
        """
        newest = -1
        start = 0
        times, index = self._time_index(), self._offset_index()
        if times is not None and index is not None and len(times):
            timestamp, offset = times.last()
            position = index.lookup(offset)
            holder = next((batch for batch in self._from_entry(position) if batch.last_offset >= offset), None)
            if holder is not None and holder.max_timestamp == timestamp and holder.base_offset <= offset:
                newest, start = timestamp, position
        try:
            for batch in self._walk(start):
                if batch.record_count:
                    newest = max(newest, batch.max_timestamp)
        except Damaged as damage:
            if not (damage.torn and self.next_base_offset is None):
                raise
        return newest

    def aborted(self) -> list[AbortedTxn]:
        """The entries of its transaction index. Raises `CorruptFile`, OSError."""
        if self._stem is None:
            return []
        try:
            data = read_file(self._disk, self._stem + layout.TXN_INDEX)
        except FileNotFoundError:
            return []
        return txn_index.decode(data, self.base_offset)
