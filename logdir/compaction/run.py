"""One run of compaction: reads closed segments, writes `.cleaned` files. Touches nothing else, so it may be a thread's
or another process's business.

    for cleaned in CompactionRun(disk, plan, limits, spend):
        ...                            put in place of the old segments (compacted.py) before going on

First the dirty part is read and the last offset of each key noted (key_map.py); if the keys are too many, as far as
they fit, and the rest stays dirty. Then every segment from the first on is read and filtered, group by group:

- a record stays if it is the last of its key, or lies behind what was noted; one without a key goes;
- a tombstone (no value) stays for `delete.retention.ms` after the run that first found nothing older than it. That
  time, the delete horizon, is written into the batch (attribute bit 6, KIP-534). Of formats 0 and 1, which have no
  place for it, tombstones go with the age of their file;
- records of aborted transactions go, end markers when nothing of theirs is left and their horizon has passed;
- of a batch that is the last of its producer, an empty shell stays, so that its sequence number is still known after a
  restart; also of the last batch of all, so that the end offset is.

A batch of which all stays is copied as it is, any other rewritten with its own codec. Checksums of all that is read
are checked: filtering damaged records would give them a good checksum.

Facts are Apache Kafka's (Cleaner). CPython 3.11 does 1,300,000 records of 100 bytes or 800,000 of 1 KB in a second,
both passes together; where `barnabas-native` is installed 8,000,000 or 1,800,000 (docs/native.md).

Not done: segments with offsets too far apart for their index (KAFKA-6264) are refused, not split.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

from barnabas.kproto.records import BatchHeader, CorruptRecords, iter_records, parse_control_record, records_data
from barnabas.kproto.records_filter import (
    batch_around,
    batch_of,
    empty_batch,
    keyed_records,
    legacy_messages,
    legacy_of,
)
from barnabas.logdir.compaction.key_map import SECRET_BYTES, KeyMap, Noted
from barnabas.logdir.compaction.plan import (
    MAX_RELATIVE_OFFSET,
    CleanedSegment,
    CompactionAborted,
    CompactionLimits,
    CompactionPlan,
    CompactionStats,
    Source,
)
from barnabas.logdir.compaction.transactions import Transactions
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.disk import Buffer, Disk, read_file, remove_if_there, write_file, write_fully
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from barnabas.logdir.files.scan import StoredBatch, iter_batches

MAX_INT64 = 2**63 - 1
MAX_BASE_OFFSET = MAX_INT64 - MAX_RELATIVE_OFFSET
Kept = tuple[Buffer, int, int]
"""What is to be written of a batch: the bytes, its last offset, the max timestamp of its records (-1 without any)."""


class CompactionRun:
    """See the module; iterated over once. `spend(bytes)` is called for what is read and written: it may sleep, and it
    may raise `CompactionAborted`.

    Iterating raises `CompactionAborted` (also when files vanish or shrink under it), KafkaError CORRUPT_MESSAGE
    (`CorruptRecords`) and UNSUPPORTED_COMPRESSION_TYPE (a codec's library is missing), OSError. What was being written
    is then removed. Raises ValueError for limits that hold no key.

    stats: `CompactionStats`; end_offset: the log's first dirty offset when all is done.
    """

    def __init__(
        self, disk: Disk, plan: CompactionPlan, limits: CompactionLimits, spend: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._plan = plan
        self._spend = spend
        self._buffer_bytes = max(limits.io_buffer_bytes, 4096)
        self._map = KeyMap(limits.dedupe_buffer_bytes, limits.load_factor, os.urandom(SECRET_BYTES))
        self._latest = plan.first_dirty_offset - 1
        self._new_horizon_ms = min(plan.now_ms + plan.delete_retention_ms, MAX_INT64)
        self.stats = CompactionStats()

    @property
    def end_offset(self) -> int:
        return self._latest + 1

    def __iter__(self) -> Iterator[CleanedSegment]:
        self._note_keys()
        self.stats.map_fill = self._map.fill
        transactions = Transactions(self._plan.aborted)
        for group in self._plan.groups(self.end_offset):
            yield self._clean(group, transactions)

    # ---- reading

    def _path(self, source: Source, suffix: str) -> str:
        return f"{self._plan.directory}/{layout.file_name(source.base_offset, suffix)}"

    def _batches(self, source: Source, position: int = 0) -> Iterator[StoredBatch]:
        """All batches from `position` on, with their data, checked."""
        path = self._path(source, layout.LOG)
        try:
            fd = self._disk.open(path)
        except FileNotFoundError:
            raise CompactionAborted(f"{path} is gone") from None
        try:
            spent = position
            for batch in iter_batches(self._disk, fd, position, source.size, whole=True, step=self._buffer_bytes):
                position = batch.position + batch.size
                if batch.base_offset > MAX_BASE_OFFSET:
                    raise CorruptRecords(f"impossible offset {batch.base_offset} in {path}")
                if position - spent >= self._buffer_bytes:
                    self._spend(position - spent)
                    spent = position
                yield batch
            if position != source.size:
                if self._disk.size(fd) < source.size:
                    raise CompactionAborted(f"{path} was cut")
                raise CorruptRecords(f"{path} ends inside a batch at {position}")
            if position > spent:
                self._spend(position - spent)
        finally:
            self._disk.close(fd)

    # ---- the keys

    def _note_keys(self) -> None:
        plan = self._plan
        if not plan.sources:
            return
        transactions = Transactions(entry for entry in plan.aborted if entry.last_offset >= plan.first_dirty_offset)
        dirty = 0
        for number, source in enumerate(plan.sources):
            if source.base_offset <= plan.first_dirty_offset:
                dirty = number
        sources = plan.sources[dirty:]
        ends = [*(source.base_offset for source in sources[1:]), plan.first_uncleanable_offset]
        for source, end in zip(sources, ends, strict=True):
            position = self._position_of(source, plan.first_dirty_offset)
            for batch in self._batches(source, position):
                self.stats.map_bytes += batch.size
                if not self._note_batch(batch, transactions):
                    return
            self._latest = max(self._latest, end - 1)

    def _position_of(self, source: Source, offset: int) -> int:
        """Where to begin in order to find `offset`."""
        if offset <= source.base_offset:
            return 0
        try:
            index = OffsetIndex(source.base_offset, read_file(self._disk, self._path(source, layout.OFFSET_INDEX)))
        except (FileNotFoundError, CorruptFile):
            return 0
        position = index.lookup(offset)
        return position if position < source.size else 0

    def _note_batch(self, batch: StoredBatch, transactions: Transactions) -> bool:
        """False when there is no room for all of its keys."""
        header = batch.header
        assert batch.data is not None
        first = self._plan.first_dirty_offset
        if header is None:
            is_all, last = self._note_legacy(batch.data)
        else:
            self.stats.map_records += header.record_count
            is_all, last = True, None
            if header.is_control:
                transactions.marker_may_go(header, _marker_kind(batch.data, header))
            elif not transactions.is_aborted(header) and header.record_count:
                data = records_data(batch.data, 0, header)
                is_all, last = self._map.note(data, header.record_count, header.base_offset, first)
        if not is_all:
            if last is not None:
                self._latest = last
            return False
        if batch.last_offset >= first:
            self._latest = batch.last_offset
        return True

    def _note_legacy(self, data: memoryview) -> Noted:
        messages = legacy_messages(data).messages
        self.stats.map_records += len(messages)
        first = self._plan.first_dirty_offset
        wanted = [(m.key, m.offset) for m in messages if m.key is not None and m.offset >= first]
        taken = self._map.put([key for key, _ in wanted], [offset for _, offset in wanted])
        return taken == len(wanted), wanted[taken - 1][1] if taken else None

    # ---- filtering

    def _clean(self, group: list[Source], transactions: Transactions) -> CleanedSegment:
        plan = self._plan
        writer = _Writer(self._disk, plan, group[0].base_offset, self._buffer_bytes, self._spend)
        try:
            for source in group:
                legacy_tombstones = source.mtime_ms > plan.legacy_horizon_ms
                for batch in self._batches(source):
                    self.stats.bytes_read += batch.size
                    if batch.header is None:
                        kept = self._filter_legacy(batch, legacy_tombstones)
                    else:
                        kept = self._filter(batch, batch.header, transactions)
                    if kept is not None:
                        writer.add(*kept)
            cleaned = writer.finish(transactions.take_kept(), group)
        except BaseException:
            writer.discard()
            raise
        self.stats.bytes_written += cleaned.size
        return cleaned

    def _filter(self, batch: StoredBatch, header: BatchHeader, transactions: Transactions) -> Kept | None:
        """What is left of a batch of format 2."""
        plan, stats = self._plan, self.stats
        raw = batch.data
        assert raw is not None
        horizon = header.delete_horizon_ms
        past_horizon = horizon is not None and horizon <= plan.now_ms
        stats.records_read += header.record_count
        written: Buffer | None = None
        if header.is_control:
            may_go = transactions.marker_may_go(header, _marker_kind(raw, header))
            if header.record_count and not (may_go and past_horizon):
                stats.records_kept += header.record_count
                data = records_data(raw, 0, header)
                starts = keyed_records(data, header.record_count).starts
                if not may_go or horizon is not None:
                    return raw, header.last_offset, header.max_timestamp
                written = batch_of(header, data, list(pairwise(starts)), self._new_horizon_ms)
        elif not transactions.is_aborted(header) and header.record_count:
            data = records_data(raw, 0, header)
            kept, keyless, has_tombstone, records = self._map.keep(
                header, data, self._latest, past_horizon, self._new_horizon_ms
            )
            stats.records_kept += kept
            stats.invalid_records += keyless
            if records is not None:
                if has_tombstone and horizon is None:
                    horizon = self._new_horizon_ms
                written = batch_around(header, records, kept, horizon)
            elif kept:
                return raw, header.last_offset, header.max_timestamp
        if written is not None:
            return written, header.last_offset, int.from_bytes(written[35:43], "big", signed=True)
        if self._is_last_of_producer(header) or header.next_offset == plan.first_uncleanable_offset:
            return empty_batch(header), header.last_offset, -1
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self._plan.producers.get(header.producer_id)
        if last is None:
            return False
        offset, epoch = last
        if offset >= 0:
            return header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch

    def _filter_legacy(self, batch: StoredBatch, keep_tombstones: bool) -> Kept | None:
        """What is left of a message of format 0 or 1."""
        assert batch.data is not None
        opened = legacy_messages(batch.data)
        messages = opened.messages
        known = self._map.get([message.key for message in messages])
        kept = []
        for message, last in zip(messages, known, strict=True):
            if message.offset <= self._latest:
                if message.key is None:
                    self.stats.invalid_records += 1
                    continue
                if message.offset < last or (message.value is None and not keep_tombstones):
                    continue
            kept.append(message)
        self.stats.records_read += len(messages)
        self.stats.records_kept += len(kept)
        if not kept:
            return None
        if len(kept) == len(messages) and opened.clean:
            return batch.data, batch.last_offset, batch.max_timestamp
        timestamp = max(message.timestamp for message in kept) if opened.magic else -1
        return legacy_of(opened, kept), kept[-1].offset, timestamp


def _marker_kind(data: memoryview, header: BatchHeader) -> int | None:
    for record in iter_records(data) if header.record_count else ():
        return parse_control_record(record)[0]
    return None


class _Writer:
    """The `.cleaned` files of one group."""

    def __init__(
        self, disk: Disk, plan: CompactionPlan, base_offset: int, buffer_bytes: int, spend: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._plan = plan
        self._base_offset = base_offset
        self._buffer_bytes = buffer_bytes
        self._spend = spend
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._buffers: list[Buffer] = []
        self._position = 0
        self._written = 0
        self._indexed = 0
        self._first_timestamp = -1
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        try:
            self._fd = disk.open(self._path(layout.LOG), create=True)
        except FileNotFoundError:
            raise CompactionAborted(f"{plan.directory} is gone") from None
        try:
            if disk.size(self._fd):
                disk.truncate(self._fd, 0)
            remove_if_there(disk, self._path(layout.TXN_INDEX))
        except BaseException:
            self.discard()
            raise

    def _path(self, suffix: str) -> str:
        return f"{self._plan.directory}/{layout.file_name(self._base_offset, suffix)}{layout.CLEANED}"

    def add(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        if last_offset - self._base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptRecords(f"offset {last_offset} is too far from {self._base_offset}, where its segment begins")
        position = self._position
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position - self._indexed > self._plan.index_interval_bytes:
            most = self._plan.segment_index_bytes
            if self._offsets.size + OFFSET_ENTRY <= most:
                self._offsets.add(last_offset, position)
                if self._times.size + 2 * TIME_ENTRY <= most and self._max_timestamp >= 0:
                    self._times.add(self._max_timestamp, self._max_timestamp_offset)
            self._indexed = position
        self._buffers.append(data)
        self._position = position + len(data)
        if self._position - self._written >= self._buffer_bytes:
            self._write()

    def _write(self) -> None:
        if self._buffers:
            write_fully(self._disk, self._fd, self._buffers, self._written)
            size = self._position - self._written
            self._buffers = []
            self._written = self._position
            self._spend(size)

    def finish(self, aborted: list[txn_index.AbortedTxn], group: list[Source]) -> CleanedSegment:
        disk = self._disk
        self._write()
        if self._max_timestamp >= 0:
            self._times.add(self._max_timestamp, self._max_timestamp_offset)
        write_file(disk, self._path(layout.OFFSET_INDEX), self._offsets.encode(), sync=True)
        write_file(disk, self._path(layout.TIME_INDEX), self._times.encode(), sync=True)
        if aborted:
            entries = b"".join([entry.encode() for entry in aborted])
            write_file(disk, self._path(layout.TXN_INDEX), entries, sync=True)
        disk.sync(self._fd)
        # The age of records without timestamps is that of their file.
        disk.set_mtime(self._fd, group[-1].mtime_ms)
        disk.sync_dir(self._plan.directory)
        disk.close(self._fd)
        return CleanedSegment(
            self._base_offset,
            tuple(source.base_offset for source in group),
            self._position,
            self._first_timestamp,
            self._max_timestamp,
            self._max_timestamp_offset,
        )

    def discard(self) -> None:
        self._buffers = []
        self._disk.close(self._fd)
        for suffix in layout.SEGMENT_SUFFIXES:
            try:
                remove_if_there(self._disk, self._path(suffix))
            except OSError:
                return  # the next start removes them
