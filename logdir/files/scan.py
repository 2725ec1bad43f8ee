"""Walking over the batches of a `.log` file.

A batch says how long it is, so walking touches headers only; recovery reads everything and checks it. Batches lie
back to back: 8 bytes base offset, 4 bytes length of what follows, and the magic byte at 16 (kproto.records has the
rest). Apache Kafka may have left messages of formats 0 and 1 in a log: they are walked over and checked as well
(their offset field is the *last* offset of the message set inside), never changed.

Positions and sizes are bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader, CorruptRecords, read_header
from barnabas.logdir.files.disk import Disk

MIN_MESSAGE = 26
"""A message of format 0 without key and value."""
STEP = 4096
CHUNK = 1 << 20

# Base offset, length, magic, last offset delta: enough to find a batch.
_SHORT = struct.Struct(">qi4xb6xi")
_unpack_short = _SHORT.unpack_from
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


class StoredBatch(NamedTuple):
    """A batch and where it is. `header` is None for formats 0 and 1; `data` is the whole batch where it was asked
    for; `max_timestamp` is that of its records, -1 for the shell without any that compaction leaves.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    header: BatchHeader | None
    data: memoryview | None


def find_batch(disk: Disk, fd: int, position: int, end: int, offset: int) -> tuple[int, int] | None:
    """(position, size) of the first batch, from the one at `position` on and before `end`, whose last offset is
    `offset` or more; None if none is.

    Raises `CorruptRecords`, OSError.
    """
    while position < end:
        chunk = disk.pread(fd, STEP, position)
        have = len(chunk)
        if have < 27:
            if have < MIN_MESSAGE:
                raise CorruptRecords(f"the file ends inside a batch at {position}, before {end}")
            chunk += b"\0"
            have = 27
        at = 0
        last = min(have - 27, end - 1 - position)
        while at <= last:
            base_offset, length, magic, delta = _unpack_short(chunk, at)
            if length < 14:
                raise CorruptRecords(f"impossible batch length {length} at position {position + at}")
            if (base_offset + delta if magic >= 2 else base_offset) >= offset:
                return position + at, length + 12
            at += length + 12
        position += at
    return None


def iter_batches(
    disk: Disk, fd: int, start: int, end: int, *, whole: bool = False, step: int = 0
) -> Iterator[StoredBatch]:
    """The batches in [start, end) of the file, the first one beginning at `start`; one that `end` cuts is left out.

    With `whole` they come with their data, and their checksums are checked. `step`: bytes to be read at once, if it is
    to be another number than usual. Raises `CorruptRecords`, OSError.
    """
    chunk = memoryview(b"")
    chunk_start = position = start
    step = step or (CHUNK if whole else STEP)
    while position + MIN_MESSAGE <= end:
        at = position - chunk_start
        if at + MIN_MESSAGE > len(chunk) or (at + BATCH_OVERHEAD > len(chunk) and chunk_start + len(chunk) < end):
            chunk, chunk_start, at = memoryview(disk.pread(fd, min(step, end - position), position)), position, 0
            if len(chunk) < MIN_MESSAGE:
                return
        base_offset, length = (
            _INT64.unpack_from(chunk, at)[0],
            int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True),
        )
        size = length + LOG_OVERHEAD
        if size < MIN_MESSAGE:
            raise CorruptRecords(f"impossible batch length {length} at position {position}")
        if position + size > end:
            return
        data = None
        if whole:
            if at + size > len(chunk):
                chunk, chunk_start, at = memoryview(disk.pread(fd, max(step, size), position)), position, 0
                if len(chunk) < size:
                    return
            data = chunk[at : at + size]
        yield _stored(chunk, at, position, size, base_offset, data)
        position += size


def _stored(
    chunk: memoryview, at: int, position: int, size: int, base_offset: int, data: memoryview | None
) -> StoredBatch:
    magic = chunk[at + 16]
    if magic < 2:
        if data is not None and zlib.crc32(data[16:]) != _UINT32.unpack_from(data, 12)[0]:
            raise CorruptRecords(f"wrong checksum of the message at position {position}")
        timestamp = _INT64.unpack_from(chunk, at + 18)[0] if magic and len(chunk) >= at + 26 else -1
        return StoredBatch(position, size, base_offset, base_offset, timestamp, None, data)
    if size < BATCH_OVERHEAD:
        raise CorruptRecords(f"batch of {size} bytes at position {position}, less than its header needs")
    header = read_header(chunk, at)
    if data is not None and crc32c(data[21:]) != header.crc:
        raise CorruptRecords(f"wrong checksum of the batch at position {position}")
    timestamp = header.max_timestamp if header.record_count else -1
    return StoredBatch(position, size, base_offset, header.last_offset, timestamp, header, data)
