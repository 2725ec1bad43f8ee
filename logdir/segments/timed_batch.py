"""A batch in which a record of a certain time is looked for: read from its log, to be decoded wherever there is time.

Decoding takes a microsecond per record, and as long as decompressing does, which a few kilobytes can make seconds; so
a caller that must not wait (`LongBatch`) has it done elsewhere. It needs nothing of the log any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.kproto.records_legacy import iter_any
from barnabas.logdir.files.scan import StoredBatch

SHORT_RECORDS: Final = 1000
SHORT_COMPRESSED_BYTES: Final = 1024
_CODEC: Final = 7  # bits of the attributes


class TimedBatch(NamedTuple):
    """epoch: of its leader, −1 in formats 0 and 1. is_long: to look through it may take milliseconds."""

    data: bytes
    last_offset: int
    epoch: int
    is_long: bool

    def first_at(self, target_ms: int, start_offset: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `target_ms` and not before `start_offset`.

        Pure. Raises `CorruptRecords`.
        """
        for record in iter_any(self.data):
            if record.timestamp >= target_ms and record.offset >= start_offset:
                return record.timestamp, record.offset, self.epoch
        return None


def timed(batch: StoredBatch, data: bytes) -> TimedBatch:
    """A batch with its bytes."""
    header = batch.header
    if header is None:  # formats 0 and 1 may be compressed, and do not say how many are in there
        return TimedBatch(data, batch.last_offset, -1, batch.size > SHORT_COMPRESSED_BYTES)
    is_compressed = bool(header.attributes & _CODEC)
    is_long = header.record_count > SHORT_RECORDS or (is_compressed and batch.size > SHORT_COMPRESSED_BYTES)
    return TimedBatch(data, batch.last_offset, header.partition_leader_epoch, is_long)


class LongBatch(Exception):
    """The record is in this batch, if anywhere before its end: the caller looks for it, with
    `batch.first_at(target_ms, start_offset)`.
    """

    def __init__(self, batch: TimedBatch, target_ms: int, start_offset: int) -> None:
        super().__init__("a batch that takes long to look through")
        self.batch = batch
        self.target_ms = target_ms
        self.start_offset = start_offset
