"""Records out of the answers to Fetch, without IO: positions, transactions, limits; and the search for the newest.

A `Cursor` is one partition's position. What it is fed are the answers' batches, of format v0, v1 or v2; control batches
and what lies before the position are left out, and for `committed` the records of aborted transactions. Each answer's
list names the transactions that were aborted among its batches; a batch of one of these producers is left out until
its ABORT marker comes (KIP-98).

A batch that cannot be read ends the partition with an error that names its offset: nothing is skipped in silence. A
batch is decompressed to at most `UNPACKED_BYTES_MAX`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.compression import CODEC_NAMES
from barnabas.kproto.records import (
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecords,
    Record,
    check_batch,
    iter_records,
    magic_of,
    parse_control_record,
)
from barnabas.kproto.records_legacy import iter_legacy
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import Span

UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
_ABORT: Final = 0
_SIZE: Final = Struct(">i")
_SIZE_AT: Final = 8
_MAGIC_END: Final = 17


class BatchFacts(NamedTuple):
    """What a record's batch says. `codec`: its name. `producer_id` -1: none."""

    codec: str = "none"
    magic: int = 2
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    is_log_append_time: bool = False


class Read(NamedTuple):
    """One record. `timestamp`: ms, -1: none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    batch: BatchFacts

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(key) + len(value or b"") for key, value in self.headers)


class Cursor:
    """See the module. stop: the first offset that is not wanted; None: no end. records_max: how many are wanted."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        stop: int | None = None,
        *,
        committed: bool = False,
        records_max: int | None = None,
        unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """The next record's, or less."""
        self.stop = stop
        self.failed: Failed | None = None
        self.high_watermark = -1
        self._left = records_max
        self._committed = committed
        self._unpacked_bytes_max = unpacked_bytes_max

    @property
    def is_done(self) -> bool:
        """Nothing more is wanted, or can be had."""
        ended = self.stop is not None and self.offset >= self.stop
        return ended or self.failed is not None or self._left == 0

    @property
    def has_more(self) -> bool:
        """By the last answer there are records behind the position."""
        return not self.is_done and self.high_watermark > self.offset

    def feed(self, answer: Any, room: int, *, was_first: bool) -> list[Read]:
        """The records of an answer (`FetchResponse.PartitionData` without an error) from the position on, `room` at
        most. was_first: no other partition could take its place in the answer, so that no records means: there are
        none.
        """
        if room <= 0:
            return []
        self.high_watermark = answer.high_watermark if not self._committed else answer.last_stable_offset
        data = memoryview(answer.records or b"")
        if self._left is not None:
            room = min(room, self._left)
        found: list[Read] = []
        before = self.offset
        try:
            for next_offset, records, facts in self._batches(data, answer.aborted_transactions or ()):
                for record in records:
                    if record.offset < self.offset:
                        continue
                    if self.stop is not None and record.offset >= self.stop:
                        self.offset = self.stop
                        break
                    if len(found) >= room:
                        break
                    found.append(Read(self.topic, self.partition, *record, facts))
                    self.offset = record.offset + 1
                else:
                    self.offset = max(self.offset, next_offset)
                if self.is_done or len(found) >= room:
                    break
        except (CorruptRecords, KafkaError) as error:
            why = error.message or error.code.name if isinstance(error, KafkaError) else str(error)
            self.failed = Failed(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {self.offset} is unreadable: {why}")
        if self._left is not None:
            self._left -= len(found)
        if self.offset == before and not found and not self.failed:
            self._stands_still(data, was_first)
        return found

    def _stands_still(self, data: memoryview, was_first: bool) -> None:
        if not was_first:
            return
        if data:
            self.failed = Failed(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {self.offset} in an answer")
        elif self.stop is not None and self.high_watermark >= self.stop:
            self.offset = self.stop  # the last records before it are gone: compacted

    def _batches(
        self, data: memoryview, aborted_transactions: Iterable[Any]
    ) -> Iterator[tuple[int, Iterable[Record], BatchFacts]]:
        """(offset behind it, its records, facts) of each whole batch. Raises CorruptRecords."""
        aborted = [(each.first_offset, each.producer_id) for each in aborted_transactions]
        heapq.heapify(aborted)
        aborting: set[int] = set()
        position = 0
        while position + _MAGIC_END <= len(data):
            size = LOG_OVERHEAD + _SIZE.unpack_from(data, position + _SIZE_AT)[0]
            if size < _MAGIC_END:
                raise CorruptRecords(f"size {size}")
            if position + size > len(data):
                return  # cut off: comes whole with the next answer
            if magic_of(data, position) < 2:
                message = data[position : position + size]
                last_offset = int.from_bytes(message[:_SIZE_AT], "big", signed=True)  # of a wrapper, too
                facts = BatchFacts(_codec(message[_MAGIC_END] & 7), message[_MAGIC_END - 1])
                yield last_offset + 1, iter_legacy(message, max_bytes=self._unpacked_bytes_max), facts
            else:
                header = check_batch(data, position)
                while aborted and aborted[0][0] <= header.last_offset:
                    aborting.add(heapq.heappop(aborted)[1])
                records = self._wanted(data, position, header, aborting)
                yield header.next_offset, records, _facts(header)
            position += size

    def _wanted(self, data: memoryview, position: int, header: BatchHeader, aborting: set[int]) -> Iterable[Record]:
        if header.is_control:
            if self._committed and header.producer_id in aborting:
                for record in iter_records(data, position, max_bytes=self._unpacked_bytes_max):
                    if parse_control_record(record)[0] == _ABORT:
                        aborting.discard(header.producer_id)
            return []
        if self._committed and header.is_transactional and header.producer_id in aborting:
            return []
        if header.next_offset <= self.offset:
            return []
        return iter_records(data, position, max_bytes=self._unpacked_bytes_max)


def _codec(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else "?"


def _facts(header: BatchHeader) -> BatchFacts:
    return BatchFacts(
        _codec(header.codec),
        2,
        header.producer_id,
        header.producer_epoch,
        header.is_transactional,
        header.is_log_append_time,
    )


class Backward:
    """The newest records of each partition that are wanted, found from the end backwards in windows that grow.

        while windows := search.windows(): … read each from start to end, and tell `found` …

    spans: where records are. count: how many are wanted of each. wanted(record): whether it counts. bytes_max: how much
    may be read, of keys, values and headers; what then was not searched is in `not_searched`.
    """

    GROWTH: Final = 4

    def __init__(
        self,
        spans: Mapping[tuple[str, int], Span],
        count: int,
        *,
        wanted: Callable[[Read], bool] | None = None,
        bytes_max: int,
    ) -> None:
        self._spans = spans
        self._count = count
        self._wanted = wanted
        self.bytes_left = bytes_max
        self.looked_bytes = 0
        self.looked_records = 0
        self._record_bytes = 1
        self._step = dict.fromkeys(spans, max(count, 1))
        self._from = {partition: span.end for partition, span in spans.items()}
        self._kept: dict[tuple[str, int], list[Read]] = {partition: [] for partition in spans}

    def windows(self) -> dict[tuple[str, int], Span]:
        """What to read next; nothing: it is done."""
        if self.bytes_left <= 0:
            return {}
        open_ = self.not_searched
        room = max(self.bytes_left // self._record_bytes // max(len(open_), 1), 1)
        return {
            partition: Span(max(self._spans[partition].start, before - min(self._step[partition], room)), before)
            for partition, before in open_.items()
        }

    def found(
        self, window: Mapping[tuple[str, int], Span], records: Iterable[Read], size: int, looked: int = 0
    ) -> None:
        """These records were in the windows, in order of offset per partition. size, looked: bytes and number of all
        that was read, wanted or not.
        """
        new: dict[tuple[str, int], list[Read]] = {partition: [] for partition in window}
        for record in records:
            new[record.topic, record.partition].append(record)
        self._record_bytes = max(self._record_bytes, size // sum(span.end - span.start for span in window.values()))
        for partition, span in window.items():
            kept = new[partition] + self._kept[partition]
            self._kept[partition] = kept[-self._count :]
            self._from[partition] = span.start
            self._step[partition] *= self.GROWTH
        self.bytes_left -= size
        self.looked_bytes += size
        self.looked_records += looked

    def shrink(self, window: Mapping[tuple[str, int], Span], records: int, size: int) -> bool:
        """Whether to leave this window, of which so many records with so many bytes were read: it is far too large, and
        the next one is smaller. False: it is as small as can be, so it is to be read, or the search would not move.
        """
        if size <= 2 * self.bytes_left or all(span.end - span.start <= 1 for span in window.values()):
            return False
        self._record_bytes = max(2 * self._record_bytes, size // max(records, 1))
        return True

    def is_wanted(self, record: Read) -> bool:
        return self._wanted is None or self._wanted(record)

    @property
    def not_searched(self) -> dict[tuple[str, int], int]:
        """The offsets below which records were not looked at although fewer than wanted were found."""
        return {
            partition: self._from[partition]
            for partition, span in self._spans.items()
            if self._from[partition] > span.start and len(self._kept[partition]) < self._count
        }

    def result(self) -> list[Read]:
        """The newest of all partitions, `count` at most, oldest first."""
        return in_time(self._kept.values())[-self._count :] if self._count else []

    def older(self) -> dict[tuple[str, int], int]:
        """Where the search for what is older than the result goes on: the first offset of each partition that is
        either in the result or known not to be wanted.
        """
        shown: dict[tuple[str, int], list[int]] = {partition: [] for partition in self._spans}
        for record in self.result():
            shown[record.topic, record.partition].append(record.offset)
        found = {}
        for partition, span in self._spans.items():
            kept, offsets = self._kept[partition], shown[partition]
            if len(offsets) == len(kept) < self._count:
                found[partition] = self._from[partition]
            else:
                found[partition] = offsets[0] if offsets else span.end
        return found


def in_time(partitions: Iterable[Sequence[Read]]) -> list[Read]:
    """Records of several partitions by their timestamps; those of one partition stay in order of their offsets."""

    def with_times(records: Sequence[Read]) -> Iterator[tuple[int, int, int, Read]]:
        latest = -1
        for record in records:
            latest = max(latest, record.timestamp)
            yield latest, record.partition, record.offset, record

    return [each[-1] for each in heapq.merge(*map(with_times, partitions), key=lambda each: each[:3])]
