"""One partition's log without a broker: its segments, where it starts and ends, what is committed of it.

`open_log` takes a partition's directory, ours or Apache Kafka's, in use or a copy, or one `.log` file (or a KRaft
snapshot, `.checkpoint`). Nothing is written and nothing is locked. What is there is listed once; a broker that
continues working shows in `SegmentGone`, and in records that come later and are not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.logdir.files import layout
from barnabas.logdir.files.checkpoint import HIGH_WATERMARK, LOG_START, decode_offsets
from barnabas.logdir.files.disk import ReadOnlyDisk, read_file
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.txn_index import AbortedTxn, overlapping
from barnabas.logdir.offline.batch import Batch
from barnabas.logdir.offline.errors import NotALog
from barnabas.logdir.offline.segment import SegmentReader
from barnabas.logdir.offline.source import HIGHEST, LOWEST, Aborted, Bounds, Source
from barnabas.logdir.segments.producers import Producers

ENDINGS = (layout.LOG, layout.CLEANED, layout.SWAP, layout.DELETED, layout.ASIDE, ".checkpoint")


class LogReader(Source):
    """See the module. `topic`, `partition`: from the directory's name unless they were given; None if it is no such
    name. `directory`: where the files are.
    """

    __slots__ = ("_all", "_disk", "_stable", "directory", "partition", "path", "segments", "topic")

    def __init__(self, path: str, *, topic: str | None = None, partition: int | None = None) -> None:
        """Raises `NotALog`, OSError."""
        disk = ReadOnlyDisk()
        path = os.path.abspath(path)
        name = None
        try:
            entries = disk.list(path)
            directory = path
        except NotADirectoryError:
            directory, _, name = path.rpartition("/")
            entries = disk.list(directory)
        self._disk: Final = disk
        self.path: Final = path
        self.directory: Final = directory
        named = layout.parse_partition_dir(directory.rpartition("/")[2])
        self.topic: Final = topic if topic is not None or named is None else named.topic
        self.partition: Final = partition if partition is not None or named is None else named.partition
        sizes = {}
        for entry in entries:
            known = layout.parse_file_name(entry.name)
            if known is not None and known[1] == layout.LOG and not entry.is_dir:
                sizes[known[0]] = entry.size
        bases = sorted(sizes)
        found = []
        for base, after in zip(bases, [*bases[1:], None], strict=False):
            try:
                found.append(SegmentReader(disk, self, self._log_path(base), base, sizes[base], after))
            except FileNotFoundError:
                continue  # removed since it was listed
        self._all: tuple[SegmentReader, ...] = tuple(found)
        self.segments: tuple[SegmentReader, ...] = self._all
        if name is not None:
            self.segments = tuple(segment for segment in self._all if segment.path == path) or (self._single(path),)
        elif not bases and not any(entry.name == layout.PARTITION_METADATA for entry in entries):
            raise NotALog(f"{path} holds no segment (<20 digits>.log)")
        self._stable: int | None = None

    def _log_path(self, base_offset: int) -> str:
        return f"{self.directory}/{layout.file_name(base_offset, layout.LOG)}"

    def _single(self, path: str) -> SegmentReader:
        """A file under another name than that of a segment in service."""
        if not path.endswith(ENDINGS):
            raise NotALog(f"{path} is no log: its name ends in none of {', '.join(ENDINGS)}")
        fd = self._disk.open(path)
        try:
            size = self._disk.size(fd)
            first = self._disk.pread(fd, 8, 0)
        finally:
            self._disk.close(fd)
        return SegmentReader(self._disk, self, path, int.from_bytes(first, "big", signed=True), size, None)

    def __repr__(self) -> str:
        return f"LogReader({self.path!r})"

    @property
    def is_whole(self) -> bool:
        """Whether this is a directory, not one of its files."""
        return self.path == self.directory

    # ---- the Source

    @property
    def log(self) -> LogReader:
        return self

    def _clip(self, bounds: Bounds) -> Bounds:
        return bounds._replace(start=max(bounds.start, self.start_offset)) if self.is_whole else bounds

    def _read(self, bounds: Bounds, *, whole: bool, check_crcs: bool) -> Iterator[Batch]:
        for segment in self.segments:
            if segment.base_offset >= bounds.end:
                return
            if segment.next_base_offset is None or segment.next_base_offset > bounds.start:
                yield from segment._read(bounds, whole=whole, check_crcs=check_crcs)

    # ---- facts

    @property
    def size(self) -> int:
        """Bytes of the log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def topic_id(self) -> bytes | None:
        """16 bytes; None without a `partition.metadata`. Raises `CorruptFile`, OSError."""
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        try:
            return layout.decode_partition_metadata(read_file(self._disk, path), path)
        except FileNotFoundError:
            return None

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """What the checkpoint file says. Raises `CorruptFile`, OSError."""
        return LeaderEpochs.load(self._disk, self.directory)

    def _checkpointed(self, name: str) -> int | None:
        if self.topic is None or self.partition is None:
            return None
        path = f"{self.directory.rpartition('/')[0]}/{name}"
        try:
            return decode_offsets(read_file(self._disk, path), path).get((self.topic, self.partition))
        except OSError:
            return None

    @property
    def start_offset(self) -> int:
        """The first offset that can be read: that of the first segment, or what records were deleted up to, by the
        checkpoint in the directory above. Raises `CorruptFile`.
        """
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self._checkpointed(LOG_START) or 0)

    @property
    def high_watermark(self) -> int | None:
        """From the checkpoint in the directory above, which a running broker writes every few seconds; None if it does
        not say. Raises `CorruptFile`.
        """
        return self._checkpointed(HIGH_WATERMARK)

    def end_offset(self) -> int:
        """The offset behind the last whole batch. Raises as `batches`."""
        return self.segments[-1].end_offset() if self.segments else self.start_offset

    def last_stable_offset(self) -> int:
        """Where the first open transaction starts, else `end_offset`: looked up once. Raises as `batches`."""
        if self._stable is None:
            self._stable = self._find_stable()
        return self._stable

    def _find_stable(self) -> int:
        if not self._all:
            return self.start_offset
        end = self._all[-1].end_offset()
        start, open_txns = self._producers_before(end)
        for segment in self._all:
            if segment.next_base_offset is not None and segment.next_base_offset <= start:
                continue
            for batch in segment.batches(start_offset=start, end_offset=end):
                if batch.is_transactional:
                    if batch.is_control:
                        open_txns.pop(batch.producer_id, None)
                    else:
                        open_txns.setdefault(batch.producer_id, batch.base_offset)
        return min([end, *open_txns.values()])

    def _producers_before(self, end: int) -> tuple[int, dict[int, int]]:
        """(offset, open transactions before it: producer id to first offset), from the last snapshot that can be
        read.
        """
        offsets = []
        for entry in self._disk.list(self.directory):
            known = layout.parse_file_name(entry.name)
            if known is not None and known[1] == layout.SNAPSHOT and known[0] <= end:
                offsets.append(known[0])
        for offset in sorted(offsets, reverse=True):
            path = f"{self.directory}/{layout.file_name(offset, layout.SNAPSHOT)}"
            producers = Producers()
            try:
                producers.load(read_file(self._disk, path), path)
            except (CorruptFile, OSError):
                continue
            return offset, {producer_id: first for first, producer_id in producers.open_txns.items()}
        return self._all[0].base_offset, {}

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those with records in [start_offset, end_offset), from the transaction indexes of the whole directory. Raises
        `CorruptFile`, OSError.
        """
        found: list[AbortedTxn] = []
        for segment in self._all or self.segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
                continue
            entries, complete = overlapping(segment.aborted(), start_offset, end_offset)
            found += entries
            if complete:
                break
        return found

    def committed_filter(self) -> Callable[[Batch], bool]:
        """Says of a batch whether a consumer that reads committed records gets it. Raises as `last_stable_offset` and
        `aborted_transactions`.
        """
        stable = self.last_stable_offset()
        is_aborted = Aborted(self, Bounds(LOWEST, HIGHEST, LOWEST, HIGHEST))

        def is_committed(batch: Batch) -> bool:
            if batch.is_control or batch.base_offset >= stable:
                return False
            return not (batch.is_transactional and is_aborted(batch))

        return is_committed

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """The offset of the first record with that timestamp or a later one, as ListOffsets answers; None if there is
        none. Raises as `batches`.
        """
        for record in self.records(min_timestamp_ms=timestamp_ms):
            return record.offset
        return None
