"""The codecs of record batches, by the number in the batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
(KIP-110).

`decompress` is made for hostile input: whatever the bytes, it returns at most `max_bytes` bytes or raises
`CorruptRecords`, and it does not set memory aside on the word of a header.

Time and memory are linear in the bytes that go in and come out, into however many members, frames or blocks they are
cut.

What Apache Kafka's readers accept is accepted:

- gzip: any number of members; junk behind the last one is ignored, as Java's GZIPInputStream does.
- snappy: the framing of the Java library (xerial: 16-byte header, then int32 length + raw block), also repeated, and
  one bare raw block. The header's version fields are not looked at: writers exist that store them little-endian.
- lz4: the frame format, blocks linked or independent, several frames. Message format v0 has a known fault: its header
  checksum also covers the magic number (KAFKA-3160); `lz4_v0=True` does not look at that byte when reading, as Apache
  Kafka does not, and writes the faulty one, which is what readers of that time expect.
- zstd: frames with and without content size, up to 256 of them (clients write one, and each costs a decompressor),
  windows up to 128 MiB.

`compress` writes what the Java clients write: xerial framing in 32 KiB blocks, lz4 frames of independent 64 KiB
blocks without content size.

The plain bytes are put together in steps of 4 MiB: a thread may do this beside others, who would wait for the
interpreter while it copies. The libraries release the interpreter while they work.

The libraries are loaded on first use: a broker that keeps its producers' batches as they are never needs most of
them. zlib is Python's own, snappy is cramjam's, zstd is Python's own from 3.14 on and `backports.zstd` before: each has
wheels for every platform that Python has. lz4 is that of the package lz4 where it is installed, and cramjam's
elsewhere. Sizes are bytes.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any, Final

from barnabas.kproto.codecs import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    MAX_DECOMPRESSED_BYTES,
    NONE,
    SNAPPY,
    STEP_BYTES_MAX,
    UNLIMITED,
    ZSTD,
    Buffer,
    CorruptRecords,
    TooBig,
    cramjam_library,
    joined,
    missing_library,
    too_big,
    too_many,
)
from barnabas.kproto.lz4 import frames as lz4_frames
from barnabas.kproto.lz4.frames import is_linked as lz4_is_linked

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CODEC_NAMES",
    "GZIP",
    "LZ4",
    "MAX_DECOMPRESSED_BYTES",
    "NONE",
    "SNAPPY",
    "UNLIMITED",
    "ZSTD",
    "Buffer",
    "Compressor",
    "CorruptRecords",
    "TooBig",
    "compress",
    "decompress",
    "lz4_is_linked",
]


def decompress(
    codec: int,
    data: Buffer,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    lz4_v0: bool = False,
    pieces_max: int = UNLIMITED,
) -> bytes:
    """The plain bytes of `data`. pieces_max: how many members, frames or blocks of whatever size they may be cut into,
    each of which costs a microsecond or two.

    Raises `CorruptRecords` when `data` is damaged or cut off, or when the codec number is unknown; `TooBig` when it
    would give more than `max_bytes`, or has more pieces; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE when this
    installation lacks the codec's library.
    """
    if codec == NONE:
        if len(data) > max_bytes:
            raise too_big(codec, max_bytes)
        return bytes(data)
    if codec == GZIP:
        return _gunzip(data, max_bytes, pieces_max)
    if codec == SNAPPY:
        return _unsnappy(bytes(data), max_bytes, pieces_max)
    if codec == LZ4:
        return lz4_frames.decompress(data, max_bytes, pieces_max, is_v0=lz4_v0)
    if codec == ZSTD:
        return _unzstd(data, max_bytes, pieces_max)
    raise CorruptRecords(f"unknown compression codec {codec}")


def compress(codec: int, data: Buffer, *, level: int | None = None, lz4_v0: bool = False) -> bytes:
    """`data` compressed with the codec. `level` is on the scale of Kafka's `compression.<codec>.level`, None for its
    default. Raises as `decompress` for a missing library.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        packer = Compressor(GZIP, level=level)
        packer.add(data)
        return packer.finish()
    if codec == SNAPPY:
        return _snappy(data)
    if codec == LZ4:
        frame = lz4_frames.compress(data, level)
        return lz4_frames.with_faulty_header(frame) if lz4_v0 else frame
    if codec == ZSTD:
        packed: bytes = _zstd().compress(data, 3 if level is None else level)
        return packed
    raise ValueError(f"unknown compression codec {codec}")


class Compressor:
    """`compress` for data that comes in pieces: gzip, by far the slowest, packs as it goes, the others at the end."""

    __slots__ = ("_codec", "_level", "_lz4_v0", "_packed", "_packer")

    def __init__(self, codec: int, *, level: int | None = None, lz4_v0: bool = False) -> None:
        self._codec = codec
        self._level = level
        self._lz4_v0 = lz4_v0
        self._packed = bytearray()
        self._packer: Any = None
        if codec == GZIP:
            self._packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)

    def add(self, data: Buffer) -> None:
        self._packed += self._packer.compress(data) if self._packer is not None else data

    def finish(self) -> bytes:
        """All of it, compressed; once. Raises as `compress`."""
        if self._packer is not None:
            return bytes(self._packed + self._packer.flush())
        return compress(self._codec, self._packed, level=self._level, lz4_v0=self._lz4_v0)


# ---- gzip

_GZIP_MAGIC: Final = b"\x1f\x8b"


_GZIP_NEXT_MEMBER_BYTES: Final = 256


def _gunzip(data: Buffer, max_bytes: int, pieces_max: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    # What is given to the library beyond a member's end it copies. The first member, mostly the only one, gets all
    # there is; each further one a little, then twice as much: so no more is copied than is read, however many there
    # are.
    size = len(view)
    while True:
        unpacker = zlib.decompressobj(31)
        pieces_max -= 1
        if pieces_max < 0:
            raise too_many(GZIP)
        while not unpacker.eof:
            piece: Buffer = view[position : position + size]
            if not piece:
                raise CorruptRecords("gzip: data ends inside a member")
            position += len(piece)
            size *= 2
            is_full = True
            while is_full:
                # One byte more than allowed distinguishes "exactly full" from "too much".
                step = min(room + 1, STEP_BYTES_MAX)
                try:
                    part = unpacker.decompress(piece, step)
                except zlib.error as exc:
                    raise CorruptRecords(f"gzip: {exc}") from None
                room -= len(part)
                if room < 0:
                    raise too_big(GZIP, max_bytes)
                if part:
                    parts.append(part)
                piece = unpacker.unconsumed_tail
                is_full = len(part) == step
        position -= len(unpacker.unused_data)
        if bytes(view[position : position + 2]) != _GZIP_MAGIC:
            return joined(parts)
        size = _GZIP_NEXT_MEMBER_BYTES


# ---- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")


def _unsnappy(data: bytes, max_bytes: int, pieces_max: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    end = len(data)
    while position < end:
        pieces_max -= 1
        if pieces_max < 0:
            raise too_many(SNAPPY)
        if data.startswith(_XERIAL_MAGIC, position):
            position += 16
            if position > end:
                raise CorruptRecords("snappy: data ends inside the stream header")
            continue
        if position + 4 > end:
            raise CorruptRecords("snappy: data ends inside a block length")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 < length <= end - position:
            raise CorruptRecords(f"snappy: block of {length} bytes where {end - position} are left")
        part = _unsnappy_block(data[position : position + length], room, max_bytes)
        parts.append(part)
        room -= len(part)
        position += length
    return joined(parts)


def _unsnappy_block(block: bytes, room: int, max_bytes: int) -> bytes:
    """One raw block. It opens with its plain length, which the library believes when it allocates, so it is checked
    here first.
    """
    plain = shift = 0
    for byte in block[:5]:
        plain |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    else:
        raise CorruptRecords("snappy: data ends inside the block's length")
    if plain > room:
        raise too_big(SNAPPY, max_bytes)
    # A copy element is 2 bytes at least and gives 64 at most: a claim beyond that is a lie, refused before memory is
    # set aside for it.
    if plain > len(block) * 32:
        raise CorruptRecords(f"snappy: a block of {len(block)} bytes cannot hold {plain}")
    cramjam = cramjam_library()
    try:
        part = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as exc:
        raise CorruptRecords(f"snappy: {exc}") from None
    if len(part) != plain:
        raise CorruptRecords("snappy: block of another length than it says")
    return part


def _snappy(data: Buffer) -> bytes:
    raw: Callable[[Any], Any] = cramjam_library().snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


# ---- zstd

_UINT32_LE: Final = struct.Struct("<I")
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_WINDOW_LOG_MAX: Final = 27
_ZSTD_FRAMES_MAX: Final = 256
"""A decompressor, of which each frame needs one, takes some ten microseconds to make."""


def _zstd() -> Any:
    """`compression.zstd`, or what has the same names for older Pythons; imported on first use."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as exc:
        raise missing_library("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd") from exc
    return zstd


def _unzstd(data: Buffer, max_bytes: int, pieces_max: int) -> bytes:
    library = _zstd()
    view = memoryview(data)
    options = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
    parts: list[bytes] = []
    room = max_bytes
    for start, end in _zstd_frames(view, pieces_max):
        unpacker = library.ZstdDecompressor(options=options)
        piece: Buffer = view[start:end]
        step = max(4 * len(piece), 65536)
        # Step by step, since frames written by streaming (all of Java's) do not state their size. What a step does
        # not read the library keeps.
        while not unpacker.eof:
            try:
                part = unpacker.decompress(piece, min(step, room + 1, STEP_BYTES_MAX))
            except library.ZstdError as exc:
                raise CorruptRecords(f"zstd: {exc}") from None
            piece = b""
            room -= len(part)
            if room < 0:
                raise too_big(ZSTD, max_bytes)
            if part:
                parts.append(part)
            elif not unpacker.eof:
                raise CorruptRecords("zstd: data ends inside a frame")
            step *= 2
    return joined(parts)


def _zstd_frames(data: memoryview, pieces_max: int) -> list[tuple[int, int]]:
    """Where the frames begin and end, without those to be skipped; walks over them and their blocks (RFC 8878, sections
    3.1.1 and 3.1.2).
    """
    frames = []
    position = 0
    try:
        while position < len(data) or position == 0:
            pieces_max -= 1
            if pieces_max < 0:
                raise too_many(ZSTD)
            start = position
            (magic,) = _UINT32_LE.unpack_from(data, position)
            if magic & ~15 == _ZSTD_SKIPPABLE:
                position += 8 + _UINT32_LE.unpack_from(data, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptRecords("zstd: not a frame")
            flags = data[position + 4]
            single_segment = flags >> 5 & 1
            content_size_bytes = (single_segment, 2, 4, 8)[flags >> 6]
            position += 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
            last = 0
            while not last:
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last = block & 1
                repeated_byte = block >> 1 & 3 == 1
                position += 3 + (1 if repeated_byte else block >> 3)
                pieces_max -= 1
                if pieces_max < 0:
                    raise too_many(ZSTD)
            position += flags & 4  # the content checksum
            frames.append((start, position))
            if len(frames) > _ZSTD_FRAMES_MAX:
                raise too_many(ZSTD)
    except (IndexError, struct.error):
        raise CorruptRecords("zstd: data ends inside a frame") from None
    if position != len(data):
        raise CorruptRecords("zstd: data ends inside a frame")
    return frames
