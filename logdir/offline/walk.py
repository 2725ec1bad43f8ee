"""Walking over the batches of a `.log` file in unknown condition: a copy, a damaged one, one that a broker writes to.

Unlike `barnabas.logdir.files.scan`, which serves a log in use, this one says where and why it cannot continue, and
leaves checksums to the caller, so that one bad batch does not hide the others. Formats are those of
`barnabas.kproto.records` and `barnabas.kproto.records_legacy`; positions and sizes are bytes, timestamps milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from barnabas.kproto.records import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader, CorruptRecords, read_header
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.scan import MIN_MESSAGE
from barnabas.logdir.offline.batch import Batch

HEADERS_STEP = 32 << 10
"""Bytes read at once where only headers are wanted; batches larger than that are jumped over."""
WHOLE_STEP = 1 << 20
BATCH_MAX = 512 << 20
"""A larger size is not believed: a damaged length must not make the reader allocate all memory."""
MIN_V1 = 34
"""A message of format 1 without key and value."""

_START = struct.Struct(">qi4xb")
_INT64 = struct.Struct(">q")
_MESSAGE = struct.Struct(">Ibb")
_new_header = tuple.__new__


class Damaged(CorruptRecords):
    """A file that cannot be read on from `position`. `torn`: what is there may be the beginning of a batch that was
    never finished, or space reserved for later; so ends a log whose broker did not stop cleanly, or is writing.
    """

    def __init__(self, path: str, position: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
        self.torn = torn


def walk(disk: Disk, fd: int, path: str, start: int, end: int, *, whole: bool) -> Iterator[Batch]:
    """The batches in [start, end) of the file, the first one beginning at `start`. With `whole` they carry their
    bytes; checksums are not looked at. `path` names the file in errors.

    Raises `Damaged` where it cannot continue, OSError.
    """
    step = WHOLE_STEP if whole else HEADERS_STEP
    chunk = memoryview(b"")
    have = 0
    chunk_start = position = start
    while position < end:
        at = position - chunk_start
        if at + BATCH_OVERHEAD > have and chunk_start + have < end:
            chunk, chunk_start, at = memoryview(disk.pread(fd, min(step, end - position), position)), position, 0
            have = len(chunk)
        left = have - at
        if left < MIN_MESSAGE:
            raise _cut(path, position, bytes(chunk[at:]))
        base_offset, length, magic = _START.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD
        if size < MIN_MESSAGE or magic > 2 or magic < 0:
            rest = bytes(chunk[at:])
            if not length and not any(rest):
                raise _cut(path, position, rest)
            if size < MIN_MESSAGE:
                raise Damaged(path, position, f"impossible batch length {length}")
            raise Damaged(path, position, f"unknown magic {magic}")
        if size > BATCH_MAX:
            raise Damaged(path, position, f"impossible batch length {length}")
        if magic == 2:
            if size < BATCH_OVERHEAD:
                raise Damaged(path, position, f"batch of {size} bytes, less than its header needs")
            if left < BATCH_OVERHEAD:
                raise _cut(path, position, bytes(chunk[at:]))
            header = read_header(chunk, at)
        else:
            if magic == 1 and size < MIN_V1:
                raise Damaged(path, position, f"message of {size} bytes, less than its fields need")
            if magic == 1 and left < MIN_V1:
                raise _cut(path, position, bytes(chunk[at:]))
            header = _legacy_header(chunk, at, base_offset, length)
        if position + size > end:
            raise Damaged(path, position, f"the file ends inside a batch of {size} bytes", torn=True)
        data = None
        if whole:
            if at + size > have:
                chunk, chunk_start, at = memoryview(disk.pread(fd, max(step, size), position)), position, 0
                have = len(chunk)
                if have < size:
                    raise Damaged(path, position, f"the file ends inside a batch of {size} bytes", torn=True)
            data = chunk[at : at + size]
        yield Batch(header, position, data, disk, path)
        position += size


def _cut(path: str, position: int, rest: bytes) -> Damaged:
    if any(rest):
        return Damaged(path, position, f"the file ends inside a batch, after {len(rest)} bytes", torn=True)
    return Damaged(path, position, "zeros instead of a batch", torn=True)


def _legacy_header(chunk: memoryview, at: int, offset: int, length: int) -> BatchHeader:
    """A message of format 0 or 1 in the fields of a batch header: -1 for what it does not have."""
    crc, magic, attributes = _MESSAGE.unpack_from(chunk, at + 12)
    timestamp = _INT64.unpack_from(chunk, at + 18)[0] if magic else -1
    header: BatchHeader = _new_header(
        BatchHeader,
        (
            *(offset, length, -1, magic, crc, attributes & 15 if magic else attributes & 7, 0, timestamp, timestamp),
            *(-1, -1, -1, -1 if attributes & 7 else 1),
        ),
    )
    return header
