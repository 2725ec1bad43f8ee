"""The log as share groups read it: whole batches, of which only the headers are looked at here, and what of them
belongs to aborted transactions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.coordinator.share import LogBatch, ReadBatch, aborted_ranges
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records import ABORT, LOG_OVERHEAD, CorruptRecords, iter_records, magic_of, parse_control_record
from barnabas.kproto.records import read_header as read_batch_header
from barnabas.kproto.records_peek import end_offset, entry_bytes
from barnabas.logdir import FileSlice
from barnabas.server.partitions.partition import Partition

_HEADER_BYTES: Final = 61


class ShareRead(NamedTuple):
    """Batches of the log. `positions`: where each begins in `records`, and where the last one ends. `aborted`: ranges
    of offsets of aborted transactions, both ends included.
    """

    records: FileSlice
    positions: Sequence[int]
    batches: Sequence[LogBatch]
    aborted: Sequence[tuple[int, int]]

    def covering(self, first_offset: int, last_offset: int) -> FileSlice:
        """The batches with these offsets, and those in between; if there are none, the one behind."""
        first = bisect_left([batch.last_offset for batch in self.batches], first_offset)
        after = bisect_right([batch.base_offset for batch in self.batches], last_offset)
        begin, end = self.positions[first], self.positions[max(after, first + 1)]
        return FileSlice(self.records.file, self.records.position + begin, end - begin)


def read_for_share(
    partition: Partition, offset: int, max_bytes: int, enough: int, *, is_committed: bool
) -> ShareRead | None:
    """What a share group may read from `offset` on: at least one batch, then at most `max_bytes`, and no more batches
    once there are offsets from `enough` on. None: there is nothing. is_committed: up to the last stable offset, and
    with what is aborted.

    Raises KafkaError OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
    """
    upper_offset = partition.last_stable_offset if is_committed else partition.high_watermark
    records = partition.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=True)
    if records is None:
        return None
    positions = [0]
    batches: list[LogBatch] = []
    read: list[ReadBatch] = []
    try:
        while positions[-1] + LOG_OVERHEAD < records.length:
            if batches and batches[-1].last_offset >= enough:
                break
            header = _part(records, positions[-1], min(_HEADER_BYTES, records.length - positions[-1])).read()
            size = entry_bytes(header)
            if size <= LOG_OVERHEAD or positions[-1] + size > records.length:
                break  # cut off by `max_bytes`
            begin = batches[-1].last_offset + 1 if batches else offset
            found = _batch(records, positions[-1], size, header, begin, is_committed=is_committed)
            batches.append(LogBatch(found.base_offset, found.last_offset))
            read.append(found)
            positions.append(positions[-1] + size)
    except CorruptRecords as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except (OSError, EOFError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    if not batches:
        return None
    aborted: Sequence[tuple[int, int]] = ()
    if is_committed:
        whole = _part(records, 0, positions[-1])
        found_aborted = partition.log.aborted_in(whole, offset, upper_offset)
        aborted = aborted_ranges(read, ((entry.producer_id, entry.first_offset) for entry in found_aborted))
    return ShareRead(records, positions, batches, aborted)


def _part(records: FileSlice, position: int, length: int) -> FileSlice:
    return FileSlice(records.file, records.position + position, length)


def _batch(records: FileSlice, position: int, size: int, header: bytes, begin: int, *, is_committed: bool) -> ReadBatch:
    """One batch. begin: where the offsets of a message of an old format begin, which does not say it."""
    if magic_of(header) < 2:
        last_offset = end_offset(header) - 1
        return ReadBatch(min(begin, last_offset), last_offset, -1, False, False, False)
    head = read_batch_header(header)
    is_abort = False
    if head.is_control and is_committed:
        # Compaction may have left a batch without its marker.
        marker = next(iter(iter_records(_part(records, position, size).read())), None)
        is_abort = marker is not None and parse_control_record(marker)[0] == ABORT
    return ReadBatch(
        head.base_offset, head.last_offset, head.producer_id, head.is_transactional, head.is_control, is_abort
    )
