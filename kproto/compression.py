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
- zstd: frames with and without content size, several frames, windows up to 128 MiB.

`compress` writes what the Java clients write: xerial framing in 32 KiB blocks, lz4 frames of independent 64 KiB
blocks without content size.

The plain bytes are put together in steps of 4 MiB: a thread may do this beside others, who would wait for the
interpreter while it copies. The libraries let go of the interpreter while they work.

The libraries are loaded on first use: a broker that keeps its producers' batches as they are never needs most of
them. Sizes are bytes.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from barnabas.kproto.errors import ErrorCode, KafkaError

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
    "Compressor",
    "CorruptRecords",
    "TooBig",
    "compress",
    "decompress",
    "lz4_is_linked",
]

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The names used by `compression.type`, by number."""

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""What one batch may grow to unless the caller says otherwise. Producers bound a batch before compression
(`batch.size`, `max.request.size`).
"""

UNLIMITED: Final = 1 << 62

_STEP_BYTES_MAX: Final = 4 * 1024 * 1024

Buffer = bytes | bytearray | memoryview


class CorruptRecords(KafkaError):
    """Stored or received records that cannot be what they claim to be: cut off, wrong checksum, undecodable. Error
    CORRUPT_MESSAGE (2).
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class TooBig(CorruptRecords):
    """There may be nothing wrong with the data but that they pass the bounds they were given."""


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
    would give more than `max_bytes`, or has more pieces; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE (76) when this
    installation lacks the codec's library.
    """
    if codec == NONE:
        if len(data) > max_bytes:
            raise _too_big(codec, max_bytes)
        return bytes(data)
    if codec == GZIP:
        return _gunzip(data, max_bytes, pieces_max)
    if codec == SNAPPY:
        return _unsnappy(bytes(data), max_bytes, pieces_max)
    if codec == LZ4:
        return _unlz4(_with_valid_lz4_header(bytes(data)) if lz4_v0 else data, max_bytes, pieces_max)
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
        frame = _lz4(data, level)
        return _with_faulty_lz4_header(frame) if lz4_v0 else frame
    if codec == ZSTD:
        packed: bytes = _library("zstandard").ZstdCompressor(level=3 if level is None else level).compress(data)
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


def _too_big(codec: int, max_bytes: int) -> TooBig:
    return TooBig(f"{CODEC_NAMES[codec]} data decompresses to more than {max_bytes} bytes")


def _too_many(codec: int) -> TooBig:
    return TooBig(f"{CODEC_NAMES[codec]} data in more pieces than are allowed")


def _joined(parts: list[bytes]) -> bytes:
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) < 2 * _STEP_BYTES_MAX:
        return b"".join(parts)
    # `join` would hold the interpreter while it copies 128 MiB. This copies part by part, and gives away what it has.
    whole = io.BytesIO()
    for part in parts:
        whole.write(part)
    return whole.getvalue()


def _library(name: str) -> Any:
    """Import on first use (`sys.modules` is the cache)."""
    try:
        if name == "lz4.frame":
            import lz4.frame as library
        elif name == "cramjam":
            import cramjam as library
        else:
            import zstandard as library
    except ImportError as exc:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"the Python package {name.split('.')[0]} is not installed"
        ) from exc
    return library


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
            raise _too_many(GZIP)
        while not unpacker.eof:
            piece: Buffer = view[position : position + size]
            if not piece:
                raise CorruptRecords("gzip: data ends inside a member")
            position += len(piece)
            size *= 2
            is_full = True
            while is_full:
                # One byte more than allowed tells "exactly full" from "too much".
                step = min(room + 1, _STEP_BYTES_MAX)
                try:
                    part = unpacker.decompress(piece, step)
                except zlib.error as exc:
                    raise CorruptRecords(f"gzip: {exc}") from None
                room -= len(part)
                if room < 0:
                    raise _too_big(GZIP, max_bytes)
                if part:
                    parts.append(part)
                piece = unpacker.unconsumed_tail
                is_full = len(part) == step
        position -= len(unpacker.unused_data)
        if bytes(view[position : position + 2]) != _GZIP_MAGIC:
            return _joined(parts)
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
            raise _too_many(SNAPPY)
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
    return _joined(parts)


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
        raise _too_big(SNAPPY, max_bytes)
    # A copy element is 2 bytes at least and gives 64 at most: a claim beyond that is a lie, refused before memory is
    # set aside for it.
    if plain > len(block) * 32:
        raise CorruptRecords(f"snappy: a block of {len(block)} bytes cannot hold {plain}")
    cramjam = _library("cramjam")
    try:
        part = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as exc:
        raise CorruptRecords(f"snappy: {exc}") from None
    if len(part) != plain:
        raise CorruptRecords("snappy: block of another length than it says")
    return part


def _snappy(data: Buffer) -> bytes:
    raw: Callable[[Any], Any] = _library("cramjam").snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


# ---- lz4

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_DICTIONARY_ID: Final = 0x01


def lz4_is_linked(data: Buffer) -> bool:
    """Whether a (whole) lz4 frame uses linked blocks, which Java readers refuse ("dependent block stream is
    unsupported").
    """
    return len(data) > 4 and not data[4] & _LZ4_INDEPENDENT


_LZ4_NEXT_FRAME_BYTES: Final = 64 * 1024


def _unlz4(data: Buffer, max_bytes: int, pieces_max: int) -> bytes:
    library = _library("lz4.frame")
    view = memoryview(data)
    context = library.create_decompression_context()
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    # The library makes a buffer of the size it is allowed, so growth is ours: start near the usual ratio and double.
    step = max(4 * len(view), 65536)
    while True:
        is_end = False
        pieces_max -= 1
        if pieces_max < 0:
            raise _too_many(LZ4)
        while not is_end:
            try:
                part, size, is_end = library.decompress_chunk(
                    context, view[position:], max_length=min(step, room + 1, _STEP_BYTES_MAX)
                )
            except (RuntimeError, ValueError, EOFError) as exc:
                raise CorruptRecords(f"lz4: {exc}") from None
            position += size
            room -= len(part)
            if room < 0:
                raise _too_big(LZ4, max_bytes)
            if part:
                parts.append(part)
            elif not size and not is_end:
                raise CorruptRecords("lz4: data ends inside a frame")
            step *= 2
        if bytes(view[position : position + 4]) != _LZ4_MAGIC:
            return _joined(parts)
        step = _LZ4_NEXT_FRAME_BYTES


def _lz4(data: Buffer, level: int | None) -> bytes:
    library = _library("lz4.frame")
    frame: bytes = library.compress(
        data,
        # Kafka's default, 9, means the fast compressor; every other level the thorough one, whose scale starts at 3
        # here.
        compression_level=0 if level is None or level == 9 else max(level, 3),
        block_size=library.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _lz4_header_end(frame: bytes) -> int:
    """Where the header checksum byte of a frame stands."""
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptRecords("lz4: not a frame")
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY_ID else 0)
    if end >= len(frame):
        raise CorruptRecords("lz4: data ends inside the frame header")
    return end


def _with_valid_lz4_header(frame: bytes) -> bytes:
    """The frame with the right header checksum, whatever it carries."""
    end = _lz4_header_end(frame)
    return frame[:end] + bytes((_xxh32(frame[4:end]) >> 8 & 255,)) + frame[end + 1 :]


def _with_faulty_lz4_header(frame: bytes) -> bytes:
    end = _lz4_header_end(frame)
    return frame[:end] + bytes((_xxh32(frame[:end]) >> 8 & 255,)) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
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


# ---- zstd

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_MAX_WINDOW_BYTES: Final = 1 << 27
_UINT32_LE: Final = struct.Struct("<I")


def _unzstd(data: Buffer, max_bytes: int, pieces_max: int) -> bytes:
    library = _library("zstandard")
    _check_zstd_frames(data, pieces_max)
    parts: list[bytes] = []
    room = max_bytes
    # A stream reader, since frames written by streaming (all of Java's) do not state their size.
    reader = library.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES).stream_reader(
        data, read_across_frames=True
    )
    step = max(4 * len(data), 65536)
    try:
        while True:
            part = reader.read(min(step, room + 1, _STEP_BYTES_MAX))
            if not part:
                break
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise _too_big(ZSTD, max_bytes)
            step *= 2
    except library.ZstdError as exc:
        raise CorruptRecords(f"zstd: {exc}") from None
    return _joined(parts)


def _check_zstd_frames(data: Buffer, pieces_max: int) -> None:
    """Walk the frames and blocks (RFC 8878, sections 3.1.1 and 3.1.2) to see that the last one is whole: the stream
    reader takes an early end for the end.
    """
    position = 0
    try:
        while position < len(data) or position == 0:
            pieces_max -= 1
            if pieces_max < 0:
                raise _too_many(ZSTD)
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
                    raise _too_many(ZSTD)
            position += flags & 4  # the content checksum
    except (IndexError, struct.error):
        raise CorruptRecords("zstd: data ends inside a frame") from None
    if position != len(data):
        raise CorruptRecords("zstd: data ends inside a frame")
