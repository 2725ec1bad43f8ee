"""The two libraries that can pack and unpack lz4, behind one face; `library` says which one is used.

The package lz4 takes a fifth less time for a batch of 16 kB, either way (and a few per cent less to read 1 MB), and a
third of the memory when it is loaded; it does not have a wheel for every Python and platform (none for Alpine).
cramjam, which snappy needs anyway, has. Both wrap the same C code, so what one writes is what the other writes, byte
for byte, and they refuse the same data; frames.py walks the frames, so neither is given more than a block, or a
frame whose blocks are whole.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.kproto.codecs import STEP_BYTES_MAX, Buffer, CorruptRecords, TooBig, cramjam_library

__all__ = ["HEADER", "Cramjam", "Library", "Lz4", "library"]

HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Of what we write, as Java clients do: independent blocks of 64 KiB, no content size, no checksums but that of these
bytes.
"""
_BLOCKS_OF_64_KIB: Final = 4
_BLOCK_CHECKSUM: Final = 0x10
_UINT32_LE: Final = struct.Struct("<I")


class Library(Protocol):
    """Sizes are bytes."""

    def block_unpacker(self) -> Callable[[memoryview, int], bytes]:
        """A function for the blocks of one frame, if each stands for itself: the plain bytes of a block, of which there
        may be so many. No more memory is set aside than for these. It raises `CorruptRecords`.
        """

    def unpack_frame(self, frame: bytes, most: int, room: int) -> list[bytes]:
        """The plain bytes of a frame, in parts of at most `STEP_BYTES_MAX`. `most`: what its blocks can fill. Of more
        than `room` no more is made than a step beyond it. Raises `CorruptRecords`, or `TooBig` if there may be nothing
        wrong but that.
        """

    def pack(self, data: Buffer, level: int) -> bytes:
        """A frame that begins with `HEADER`. `level`: 0 for the fast compressor, from 3 on the thorough one."""


@functools.cache
def library() -> Library:
    """Chosen, and imported, on first use. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE when there is neither."""
    try:
        return Lz4()
    except (ImportError, AttributeError):  # it is not there, or as it was years ago
        return Cramjam()


class Lz4:
    """By the package lz4. Raises ImportError, or AttributeError, when it is made."""

    __slots__ = ("_compress", "_decompress_block", "_decompress_chunk", "_error", "_new_context")

    def __init__(self) -> None:
        import lz4.block
        import lz4.frame

        self._decompress_block = lz4.block.decompress
        self._error: type[Exception] = lz4.block.LZ4BlockError
        self._new_context = lz4.frame.create_decompression_context
        self._decompress_chunk = lz4.frame.decompress_chunk
        self._compress = lz4.frame.compress

    def block_unpacker(self) -> Callable[[memoryview, int], bytes]:
        return self._unpack_block

    def _unpack_block(self, block: memoryview, most: int) -> bytes:
        try:
            plain: bytes = self._decompress_block(block, uncompressed_size=most)
        except self._error as exc:
            raise CorruptRecords(f"lz4: {exc}") from None
        return plain

    def unpack_frame(self, frame: bytes, most: int, room: int) -> list[bytes]:
        context = self._new_context()
        view = memoryview(frame)
        parts: list[bytes] = []
        left = limit = _limit(most, room)
        is_end = False
        while not is_end and (left or limit == most):
            # The library makes a buffer of the size it is allowed: a byte at least, as the end may be left to be read.
            try:
                part, read, is_end = self._decompress_chunk(context, view, max_length=max(min(left, STEP_BYTES_MAX), 1))
            except RuntimeError as exc:
                raise _refused(exc, limit, most) from None
            view = view[read:]
            left -= len(part)
            if part:
                parts.append(part)
            elif not read and not is_end:
                raise CorruptRecords("lz4: data ends inside a frame")
        return parts

    def pack(self, data: Buffer, level: int) -> bytes:
        frame: bytes = self._compress(
            data, compression_level=level, block_size=_BLOCKS_OF_64_KIB, block_linked=False, store_size=False
        )
        return frame


class Cramjam:
    """By cramjam. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE when it is made."""

    __slots__ = ("_error", "_lz4")

    def __init__(self) -> None:
        cramjam = cramjam_library()
        self._lz4: Any = cramjam.lz4
        self._error: type[Exception] = cramjam.DecompressionError

    def block_unpacker(self) -> Callable[[memoryview, int], bytes]:
        into = bytearray()

        def unpack(block: memoryview, most: int) -> bytes:
            nonlocal into
            if len(into) < most:
                into = bytearray(most)
            try:
                return bytes(memoryview(into)[: self._lz4.decompress_block_into(block, into, output_len=most)])
            except self._error as exc:
                raise CorruptRecords(f"lz4: {exc}") from None

        return unpack

    def unpack_frame(self, frame: bytes, most: int, room: int) -> list[bytes]:
        # The library cannot stop half-way, so it gets a buffer that the blocks cannot overflow, or one that is larger
        # than all there may be.
        into = bytearray(_limit(most, room))
        try:
            plain = self._lz4.decompress_into(frame, into)
        except self._error as exc:
            raise _refused(exc, len(into), most) from None
        view = memoryview(into)
        return [bytes(view[at : min(at + STEP_BYTES_MAX, plain)]) for at in range(0, plain, STEP_BYTES_MAX)]

    def pack(self, data: Buffer, level: int) -> bytes:
        packer = self._lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        view = memoryview(data)
        for start in range(0, len(view), STEP_BYTES_MAX):  # whole blocks
            packer.compress(bytes(view[start : start + STEP_BYTES_MAX]))
        frame = memoryview(packer.finish())
        # The library adds a checksum to each block, which Kafka's clients do not write.
        checksum_bytes = 4 if frame[4] & _BLOCK_CHECKSUM else 0
        parts: list[Buffer] = [HEADER]
        position = len(HEADER)
        while word := _UINT32_LE.unpack_from(frame, position)[0]:
            end = position + 4 + (word & 0x7FFFFFFF)
            parts.append(frame[position:end])
            position = end + checksum_bytes
        parts.append(bytes(4))  # the end mark
        return b"".join(parts)


def _limit(most: int, room: int) -> int:
    """How much of a frame is made."""
    return min(most, max(room + 1, STEP_BYTES_MAX))


def _refused(exc: Exception, limit: int, most: int) -> CorruptRecords:
    return TooBig(f"lz4: {exc}") if limit < most else CorruptRecords(f"lz4: {exc}")
