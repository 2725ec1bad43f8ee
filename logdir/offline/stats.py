"""What is in a log, in numbers: sizes, offsets, times, codecs, keys, producers.

A quick look reads batch headers only; a full one every record, so that it also knows keys, tombstones, how well
compression does, and the exact times. Numbers of distinct keys and producers are exact up to `EXACT`, then estimates,
within 3 % most times (the k smallest of 32-bit hashes), the same at every run; memory stays bounded.

Sizes are bytes, timestamps milliseconds, None where there is none.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import log1p
from typing import TYPE_CHECKING, Any, Final

from barnabas.kproto.records import BATCH_OVERHEAD, LOG_OVERHEAD, records_data
from barnabas.kproto.records_legacy import OVERHEAD_V0, OVERHEAD_V1
from barnabas.logdir.offline.batch import Batch
from barnabas.logdir.offline.log import LogReader

if TYPE_CHECKING:
    from barnabas.logdir.offline.columns import Columns

EXACT: Final = 4096
_SPACE: Final = 1 << 32
_MIX: Final = 0x9E3779B1
"""An odd number: multiplying by it scatters what CRCs of like texts have in common."""
GROUP_BYTES: Final = 1 << 20


class Distinct:
    """How many different texts were added."""

    __slots__ = ("_hashes", "_limit")

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._limit = _SPACE

    def add(self, text: bytes | memoryview) -> None:
        number = zlib.crc32(text) * _MIX & 0xFFFFFFFF
        if number < self._limit:
            hashes = self._hashes
            hashes.add(number)
            if len(hashes) > 2 * EXACT:
                self._prune()

    def _prune(self) -> None:
        kept = sorted(self._hashes)[:EXACT]
        self._hashes = set(kept)
        self._limit = kept[-1]

    def merge(self, other: Distinct) -> None:
        self._limit = min(self._limit, other._limit)
        self._hashes = {number for number in self._hashes | other._hashes if number <= self._limit}
        if len(self._hashes) > 2 * EXACT:
            self._prune()

    @property
    def is_exact(self) -> bool:
        return self._limit == _SPACE

    @property
    def count(self) -> int:
        if self.is_exact:
            return len(self._hashes)
        share = (len(self._hashes) - 1) / self._limit
        # Different texts may have one hash.
        return round(-_SPACE * log1p(-min(share, 1 - 1 / _SPACE)))


@dataclass(slots=True)
class Stats:
    """Of one partition, or of several together (`add`). What only a full look knows stays 0 or None without one."""

    topic: str | None = None
    partition: int | None = None
    full: bool = True
    partitions: int = 1
    segments: int = 0
    bytes: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    batches: int = 0
    records: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    control_records: int = 0
    transactional_records: int = 0
    empty_batches: int = 0
    largest_batch: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    """Batches by codec."""
    formats: Counter[int] = field(default_factory=Counter)
    """Batches by message format."""
    producers: Distinct = field(default_factory=Distinct)
    keyed_records: int = 0
    tombstones: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    keys: Distinct = field(default_factory=Distinct)
    stored_bytes: int = 0
    """Of records, as they stand in the file."""
    plain_bytes: int = 0
    """Of the same records, decompressed."""
    unread_bytes: int = 0
    """Behind the last whole batch."""

    @property
    def data_records(self) -> int:
        """Those that consumers may see."""
        return self.records - self.control_records

    @property
    def compression_ratio(self) -> float | None:
        return self.plain_bytes / self.stored_bytes if self.stored_bytes else None

    def add(self, other: Stats) -> None:
        """Offsets of several partitions have no sum and are left out."""
        self.partitions += other.partitions
        self.full = self.full and other.full
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest_batch = max(self.largest_batch, other.largest_batch)
        self.codecs += other.codecs
        self.formats += other.formats
        self.producers.merge(other.producers)
        self.keys.merge(other.keys)
        self._saw(other.oldest_ms, other.newest_ms)
        self.start_offset = self.end_offset = None

    def _saw(self, oldest_ms: int | None, newest_ms: int | None) -> None:
        if oldest_ms is not None and oldest_ms >= 0:
            self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)
        if newest_ms is not None and newest_ms >= 0:
            self.newest_ms = newest_ms if self.newest_ms is None else max(self.newest_ms, newest_ms)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; without what was not read."""
        shown: dict[str, Any] = {
            "topic": self.topic,
            "partition": self.partition,
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.bytes,
            "unread_bytes": self.unread_bytes,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "batches": self.batches,
            "empty_batches": self.empty_batches,
            "records": self.records,
            "control_records": self.control_records,
            "transactional_records": self.transactional_records,
            "oldest_timestamp": self.oldest_ms,
            "newest_timestamp": self.newest_ms,
            "codecs": dict(self.codecs),
            "formats": {str(number): count for number, count in self.formats.items()},
            "average_batch_bytes": _share(self.bytes - self.unread_bytes, self.batches),
            "largest_batch_bytes": self.largest_batch,
            "producers": self.producers.count,
        }
        if self.full:
            shown |= {
                "keyed_records": self.keyed_records,
                "distinct_keys": self.keys.count,
                "distinct_keys_exact": self.keys.is_exact,
                "tombstones": self.tombstones,
                "key_bytes": self.key_bytes,
                "value_bytes": self.value_bytes,
                "average_record_bytes": _share(self.plain_bytes, self.records),
                "compression_ratio": None if self.compression_ratio is None else round(self.compression_ratio, 3),
            }
        return shown


_SUMS: Final = (
    *("segments", "bytes", "batches", "records", "control_records", "transactional_records", "empty_batches"),
    *("keyed_records", "tombstones", "key_bytes", "value_bytes", "stored_bytes", "plain_bytes", "unread_bytes"),
)


def _share(total: int, count: int) -> float | None:
    return round(total / count, 1) if count else None


def log_stats(log: LogReader, *, full: bool = True, progress: Callable[[int], None] = lambda size: None) -> Stats:
    """Everything in the files of `log`, what was deleted by DeleteRecords but is still there included. `progress` is
    called with bytes as they are done, `log.size` in all.

    Raises `CorruptRecords` where it cannot continue (bytes that end the last segment are counted as unread), OSError.
    """
    stats = Stats(log.topic, log.partition, full)
    stats.start_offset = log.start_offset
    end = stats.start_offset
    for segment in log.segments:
        stats.segments += 1
        stats.bytes += segment.size
        done = 0
        for group in _groups(segment.batches(whole=full)):
            for batch in group:
                _count_header(stats, batch, full)
                end = max(end, batch.last_offset + 1)
            if full:
                _count_records(stats, group)
            size = group[-1].position + group[-1].size - done
            done += size
            progress(size)
        stats.unread_bytes += segment.size - done
        progress(segment.size - done)
        end = max(end, segment.base_offset)
    stats.end_offset = end
    return stats


def _groups(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.size << 2 if batch.codec else batch.size
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _count_header(stats: Stats, batch: Batch, full: bool) -> None:
    stats.batches += 1
    stats.codecs[batch.codec_name] += 1
    stats.formats[batch.magic] += 1
    stats.largest_batch = max(stats.largest_batch, batch.size)
    stats.stored_bytes += batch.size - (BATCH_OVERHEAD if batch.magic == 2 else LOG_OVERHEAD)
    if batch.producer_id >= 0:
        stats.producers.add(b"%d" % batch.producer_id)
    count = batch.record_count
    if count < 0:  # a compressed message of format 0 or 1
        count = 1 if not full else sum(1 for _ in batch.records())
    stats.records += count
    stats.empty_batches += not count
    if batch.is_control:
        stats.control_records += count
    elif batch.is_transactional:
        stats.transactional_records += count
    first = batch.base_timestamp if batch.delete_horizon_ms is None else batch.max_timestamp
    if batch.timestamp_type:
        first = batch.max_timestamp
    if not full:
        stats._saw(first, batch.max_timestamp)


def _count_records(stats: Stats, group: list[Batch]) -> None:
    """Keys are those of data, not of control records."""
    for batch in group:
        if batch.is_control:
            stats.plain_bytes += batch.size - BATCH_OVERHEAD
            if batch.record_count:
                stats._saw(batch.max_timestamp, batch.max_timestamp)
        elif batch.magic < 2:
            _count_one_by_one(stats, batch)
    batches = [batch for batch in group if batch.magic == 2 and batch.record_count and not batch.is_control]
    if not batches:
        return
    try:
        from barnabas.logdir.offline.columns import read_columns
    except ModuleNotFoundError:
        for batch in batches:
            _count_one_by_one(stats, batch)
        return
    left = iter(batches)
    for columns in read_columns(batches):
        _count_columns(stats, columns)
        # Compressed batches lie one behind the other when they are unpacked.
        records = before = 0
        while records < columns.offset.size:
            batch = next(left)
            records += batch.record_count
            after = int(columns.end[records - 1])
            stats.plain_bytes += after - before if batch.codec else batch.size - BATCH_OVERHEAD
            before = after


def _count_columns(stats: Stats, columns: Columns) -> None:
    stats._saw(int(columns.timestamp.min()), int(columns.timestamp.max()))
    has_key = columns.key_size >= 0
    starts, sizes = columns.key_at[has_key], columns.key_size[has_key]
    stats.keyed_records += sizes.size
    stats.tombstones += int((columns.value_size < 0).sum())
    stats.key_bytes += int(sizes.sum())
    stats.value_bytes += int(columns.value_size[columns.value_size >= 0].sum())
    add = stats.keys.add
    view = memoryview(columns.data)
    for start, stop in zip(starts.tolist(), (starts + sizes).tolist(), strict=True):
        add(view[start:stop])


def _count_one_by_one(stats: Stats, batch: Batch) -> None:
    for record in batch.records():
        stats._saw(record.timestamp, record.timestamp)
        if record.key is not None:
            stats.keyed_records += 1
            stats.key_bytes += len(record.key)
            stats.keys.add(record.key)
        if record.value is None:
            stats.tombstones += 1
        else:
            stats.value_bytes += len(record.value)
        if batch.magic < 2:
            overhead = OVERHEAD_V1 if batch.magic else OVERHEAD_V0
            stats.plain_bytes += overhead + len(record.key or b"") + len(record.value or b"")
    if batch.magic == 2:
        stats.plain_bytes += len(records_data(batch.data(), 0, batch.header))
