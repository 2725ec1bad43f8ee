"""lz4 frames, read within bounds and written as Java clients write them: independent blocks of 64 KiB, no content size.

The frames are walked here, the library (libraries.py) unpacks their blocks: so nothing depends on how it would read
a frame, no block can give more than its frame allows, and the two kinds that need to be unpacked as a whole (linked
blocks, checksums of blocks or content) get buffers of the size that their blocks can fill.

Format: lz4_Frame_format.md 1.6.4; KAFKA-3160 for message format v0. Not done: dictionaries, frames to be skipped, which
Apache Kafka refuses, too.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.kproto.codecs import LZ4, Buffer, CorruptRecords, joined, too_big, too_many
from barnabas.kproto.lz4.libraries import HEADER, library

__all__ = ["compress", "decompress", "is_linked", "with_faulty_header", "xxh32"]

_MAGIC: Final = HEADER[:4]
_VERSION: Final = 0x40
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_DICTIONARY_ID: Final = 0x01
_PLAIN: Final = 1 << 31
"""In a block's size: its bytes are not compressed."""
_BLOCK_BYTES_MAX: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_WRITTEN_BLOCK_BYTES_MAX: Final = 64 << 10
_UINT32_LE: Final = struct.Struct("<I")
_UINT64_LE: Final = struct.Struct("<Q")


def is_linked(data: Buffer) -> bool:
    """Whether a (whole) lz4 frame uses linked blocks, which Java readers refuse ("dependent block stream is
    unsupported").
    """
    return len(data) > 4 and not data[4] & _INDEPENDENT


def decompress(data: Buffer, max_bytes: int, pieces_max: int, *, is_v0: bool) -> bytes:
    """As `compression.decompress`. is_v0: the headers' checksums may be wrong."""
    view = memoryview(data)
    parts: list[bytes] = []
    left = _Left(max_bytes, pieces_max)
    start = 0
    while True:
        if bytes(view[start : start + 7]) == HEADER:
            flags, block_bytes_max, position = HEADER[4], _WRITTEN_BLOCK_BYTES_MAX, start + 7
        else:
            flags, block_bytes_max, position = _read_header(view, start, is_v0)
        before = left.room
        if flags & (_INDEPENDENT | _BLOCK_CHECKSUM | _CONTENT_CHECKSUM) == _INDEPENDENT:
            end = _unpack_blocks(view, position, block_bytes_max, left, parts)
        else:
            end = _unpack_whole(view, start, position, block_bytes_max, left, parts)
        if flags & _CONTENT_SIZE and before - left.room != _UINT64_LE.unpack_from(view, start + 6)[0]:
            raise CorruptRecords("lz4: a frame of another size than it says")
        start = end
        if bytes(view[start : start + 4]) != _MAGIC:
            return joined(parts)


class _Left:
    """What may still come: room: plain bytes; pieces: blocks, and ends of frames."""

    __slots__ = ("max_bytes", "pieces", "room")

    def __init__(self, max_bytes: int, pieces: int) -> None:
        self.max_bytes = self.room = max_bytes
        self.pieces = pieces


def _read_header(view: memoryview, start: int, is_v0: bool) -> tuple[int, int, int]:
    """The flags of the frame at `start`; how many plain bytes a block holds at most; where the first one begins."""
    end = _header_end(view, start)
    if not is_v0 and view[end] != _header_checksum(view[start + 4 : end]):
        raise CorruptRecords("lz4: the frame header has another checksum")
    return view[start + 4], _BLOCK_BYTES_MAX[view[start + 5] >> 4], end + 1


def _unpack_blocks(view: memoryview, position: int, block_bytes_max: int, left: _Left, parts: list[bytes]) -> int:
    """The frame whose first block is at `position`, if its blocks stand for themselves and have no checksums: what
    Kafka's clients write. Returns where it ends.
    """
    unpack = library().block_unpacker()
    while word := _block_size(view, position, block_bytes_max, left):
        position += 4
        size = word & ~_PLAIN
        block = view[position : position + size]
        position += size
        # A byte of a block gives 255 at most, so no more memory is set aside than the data can fill.
        part = bytes(block) if word & _PLAIN else unpack(block, min(block_bytes_max, 255 * size))
        left.room -= len(part)
        if left.room < 0:
            raise too_big(LZ4, left.max_bytes)
        parts.append(part)
    return position + 4


def _unpack_whole(
    view: memoryview, start: int, position: int, block_bytes_max: int, left: _Left, parts: list[bytes]
) -> int:
    """Any frame, at `start`, with its first block at `position`. Returns where it ends."""
    flags, first = view[start + 4], position
    checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    most = 0
    while word := _block_size(view, position, block_bytes_max, left):
        size = word & ~_PLAIN
        most += size if word & _PLAIN else min(block_bytes_max, 255 * size)
        position += 4 + size + checksum_bytes
    end = position + (8 if flags & _CONTENT_CHECKSUM else 4)
    if end > len(view):
        raise _cut_off()
    # The header's checksum may be wrong in message format v0, and was looked at otherwise.
    checksum = _header_checksum(view[start + 4 : first - 1])
    frame = b"".join((view[start : first - 1], bytes((checksum,)), view[first:end]))
    unpacked = library().unpack_frame(frame, most, left.room)
    left.room -= sum(map(len, unpacked))
    if left.room < 0:
        raise too_big(LZ4, left.max_bytes)
    parts += unpacked
    return end


def _block_size(view: memoryview, position: int, block_bytes_max: int, left: _Left) -> int:
    """The size word of the block at `position`, all of which is there; 0 for the end mark."""
    left.pieces -= 1
    if left.pieces < 0:
        raise too_many(LZ4)
    if position + 4 > len(view):
        raise _cut_off()
    word: int = _UINT32_LE.unpack_from(view, position)[0]
    size = word & ~_PLAIN
    if size > block_bytes_max:
        raise CorruptRecords(f"lz4: a block of {size} bytes where {block_bytes_max} are the most")
    if position + 4 + size > len(view):
        raise _cut_off()
    return word


def _cut_off() -> CorruptRecords:
    return CorruptRecords("lz4: data ends inside a frame")


def compress(data: Buffer, level: int | None) -> bytes:
    """As `compression.compress`."""
    # Kafka's default, 9, means the fast compressor; every other level the thorough one, whose scale starts at 3 here.
    return library().pack(data, 0 if level is None or level == 9 else max(level, 3))


def _header_end(frame: Buffer, start: int = 0) -> int:
    """Where the header checksum byte of the frame at `start` stands; what the flags say is something we know."""
    if len(frame) - start < 7 or bytes(frame[start : start + 4]) != _MAGIC:
        raise CorruptRecords("lz4: not a frame")
    flags, sizes = frame[start + 4], frame[start + 5]
    if flags & 0xC2 != _VERSION or sizes & 0x8F or sizes >> 4 not in _BLOCK_BYTES_MAX:
        raise CorruptRecords("lz4: a frame of another version")
    end = start + 6 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if end >= len(frame):
        raise CorruptRecords("lz4: data ends inside the frame header")
    return end


def _header_checksum(header: memoryview) -> int:
    """header: without the magic."""
    return xxh32(bytes(header)) >> 8 & 255


def with_faulty_header(frame: bytes) -> bytes:
    """The frame with a header checksum of message format v0."""
    end = _header_end(frame)
    return frame[:end] + bytes((xxh32(frame[:end]) >> 8 & 255,)) + frame[end + 1 :]


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 for the short texts of lz4 headers, magic included (at most 18 bytes)."""
    mask = 0xFFFFFFFF
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    position = 0
    if len(data) >= 16:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        for i, word in enumerate(struct.unpack_from("<4I", data)):
            lane = (lanes[i] + word * p2) & mask
            lanes[i] = (lane << 13 | lane >> 19) * p1 & mask
        value = (
            sum((lane << by | lane >> 32 - by) & mask for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        )
        position = 16
    else:
        value = p5
    value = (value + len(data)) & mask
    while position + 4 <= len(data):
        value = (value + int.from_bytes(data[position : position + 4], "little") * p3) & mask
        value = (value << 17 | value >> 15) * p4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * p5) & mask
        value = (value << 11 | value >> 21) * p1 & mask
    value = (value ^ value >> 15) * p2 & mask
    value = (value ^ value >> 13) * p3 & mask
    return value ^ value >> 16
