"""lz4 frames against liblz4's own frame code (the lz4 package, which the test group brings), and hostile ones: with
each library that may do the work. Both against each other: test_lz4_libraries.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable

import lz4.frame
import pytest

from barnabas.kproto.compression import LZ4, UNLIMITED, CorruptRecords, TooBig, compress, decompress, lz4_is_linked
from barnabas.kproto.lz4 import frames as lz4_frames
from barnabas.kproto.lz4.frames import xxh32
from barnabas.kproto.lz4.libraries import Cramjam, Library, Lz4

TEXT = b'{"user": "anna", "amount": 12.5, "note": "hello"}\n' * 3000  # 150 kB: several blocks
KINDS = ("block_linked", "store_size", "content_checksum", "block_checksum")


@pytest.fixture(params=[Lz4, Cramjam], autouse=True)
def library(request, monkeypatch):
    """The one that is used."""
    used = request.param()
    monkeypatch.setattr(lz4_frames, "library", lambda: used)
    return used


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
def test_lz4_frame_variants(linked, store_size, content_checksum, block_checksum):
    frame = lz4.frame.compress(
        TEXT,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=linked,
        store_size=store_size,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
    )
    assert decompress(LZ4, frame) == TEXT
    assert decompress(LZ4, frame, lz4_v0=True) == TEXT
    assert lz4_is_linked(frame) is linked


def test_lz4_written_as_java_does():
    frame = compress(LZ4, TEXT)
    assert frame[:6] == bytes.fromhex("04224d18 60 40".replace(" ", ""))  # independent 64 KiB blocks, no size
    assert frame[6] == 0x82
    assert not lz4_is_linked(frame)


def test_lz4_frames_one_after_another():
    assert decompress(LZ4, compress(LZ4, b"one ") + compress(LZ4, b"two")) == b"one two"


def test_lz4_v0_header_checksum():
    """KAFKA-3160: the header checksum of message format v0 covers the magic too."""
    frame = compress(LZ4, b"hello world", lz4_v0=True)
    plain = compress(LZ4, b"hello world")
    assert frame[:6] + frame[7:] == plain[:6] + plain[7:]
    assert frame[6] != plain[6]
    with pytest.raises(CorruptRecords):
        decompress(LZ4, frame)
    assert decompress(LZ4, frame, lz4_v0=True) == b"hello world"
    assert decompress(LZ4, plain, lz4_v0=True) == b"hello world"
    wrong = frame[:6] + bytes((frame[6] ^ 1,)) + frame[7:]
    assert decompress(LZ4, wrong, lz4_v0=True) == b"hello world"  # nobody looks at it


@pytest.mark.parametrize("size", [0, 1, 7, 14, 15, 16, 17, 18])
def test_xxh32_against_the_checksums_that_lz4_writes(size):
    """Content checksums of lz4 frames are xxHash32 of the content."""
    data = random.Random(size).randbytes(size)
    frame = lz4.frame.compress(data, content_checksum=True)
    assert struct.unpack("<I", frame[-4:])[0] == xxh32(data)


def words(rng: random.Random, count: int) -> bytes:
    known = [rng.randbytes(rng.randrange(1, 9)) for _ in range(20)]
    return b"".join([known[number % len(known)] for number in rng.randbytes(count)])


@pytest.mark.parametrize("level", [1, 3, 8, 9, 12, 17])
@pytest.mark.parametrize("count", [0, 1, 10_000, 100_000])
def test_the_same_bytes_as_liblz4(level, count):
    """9, the default, is the fast compressor; the others the thorough one."""
    rng = random.Random(count)
    for data in (words(rng, count), rng.randbytes(count)):
        theirs = lz4.frame.compress(
            data,
            compression_level=0 if level == 9 else max(level, 3),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        assert compress(LZ4, data, level=level) == theirs
        assert lz4.frame.decompress(compress(LZ4, data, level=level)) == data


@pytest.mark.parametrize("seed", range(30))
def test_damaged_frames_as_liblz4_reads_them(seed):
    rng = random.Random(seed)
    kinds = {name: rng.random() < 0.4 for name in KINDS}
    frame = lz4.frame.compress(words(rng, rng.choice((0, 9, 900))), block_size=rng.choice((4, 5, 6, 7)), **kinds)
    for _ in range(100):
        broken = bytearray(frame)
        broken[rng.randrange(6, len(broken)) if rng.random() < 0.9 else rng.randrange(len(broken))] = rng.randrange(256)
        try:
            theirs = lz4.frame.LZ4FrameDecompressor().decompress(bytes(broken))
        except RuntimeError:
            theirs = None
        try:
            ours = decompress(LZ4, broken)
        except CorruptRecords:
            ours = None
        # Theirs takes an early end for a pause.
        assert ours == theirs or (ours is None and lz4_is_cut_off(bytes(broken))), f"seed {seed}: {broken.hex()}"


def lz4_is_cut_off(frame: bytes) -> bool:
    reader = lz4.frame.LZ4FrameDecompressor()
    reader.decompress(frame)
    return not reader.eof


def header(flags: int, sizes: int, more: bytes = b"") -> bytes:
    descriptor = bytes((flags, sizes)) + more
    return b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 255,))


def test_what_a_frame_says_of_itself_is_checked():
    good = struct.pack("<I", 3 | 1 << 31) + b"abc"
    end = bytes(4)
    assert decompress(LZ4, header(0x60, 0x40) + good + end) == b"abc"
    assert decompress(LZ4, header(0x68, 0x40, struct.pack("<Q", 3)) + good + end) == b"abc"
    for frame in (
        header(0x68, 0x40, struct.pack("<Q", 4)) + good + end,  # another size
        header(0x68, 0x40, struct.pack("<Q", 1 << 60)) + good + end,
        header(0x20, 0x40) + good + end,  # version 0
        header(0x62, 0x40) + good + end,  # a bit that nobody has given a meaning
        header(0x60, 0x41) + good + end,
        header(0x60, 0x30) + good + end,  # blocks of 16 KiB
        header(0x60, 0x40) + struct.pack("<I", 65537 | 1 << 31) + bytes(65537) + end,  # larger than it said
        header(0x60, 0x40) + good,
        header(0x60, 0x40) + good + end[:3],
        header(0x64, 0x40) + good + end,  # without the checksum
        header(0x64, 0x40) + good + end + bytes(4),
        header(0x64, 0x40) + end + bytes(4),
        header(0x60, 0x40)[:-1] + b"\x00" + good + end,
    ):
        with pytest.raises(CorruptRecords):
            decompress(LZ4, frame)


@pytest.mark.parametrize("flags", [0x60, 0x40])
def test_no_block_gives_more_than_its_frame_allows(flags):
    """65,537 zeros in one block of a frame of 64 KiB."""
    block = lz4.frame.compress(bytes(65537), block_size=lz4.frame.BLOCKSIZE_MAX256KB, store_size=False)[7:]
    assert decompress(LZ4, header(flags, 0x50) + block) == bytes(65537)
    with pytest.raises(CorruptRecords):
        decompress(LZ4, header(flags, 0x40) + block)


@pytest.mark.parametrize("linked", [False, True])
def test_no_more_memory_than_the_data_can_fill(linked):
    """64 MiB of zeros, of which a quarter is allowed: a buffer for that, and what was made so far."""
    frame = lz4.frame.compress(bytes(64 << 20), block_size=7, block_linked=linked, store_size=False)
    tracemalloc.start()
    try:
        with pytest.raises(TooBig):
            decompress(LZ4, frame, max_bytes=16 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20


def test_small_frames_take_little_memory_whatever_their_blocks_may_hold():
    frame = lz4.frame.compress(b"abc" * 100, block_size=7, block_linked=False, store_size=False)
    tracemalloc.start()
    try:
        assert decompress(LZ4, frame) == b"abc" * 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 10


@pytest.mark.parametrize("linked", [False, True])
def test_blocks_are_pieces(linked):
    frame = lz4.frame.compress(words(random.Random(1), 100_000), block_linked=linked, store_size=False)
    blocks = -(-len(decompress(LZ4, frame)) // 65536)
    assert decompress(LZ4, frame, pieces_max=blocks + 1)
    with pytest.raises(TooBig, match="pieces"):
        decompress(LZ4, frame, pieces_max=blocks)


class Counting:
    """A library that notes how much it is given."""

    def __init__(self, real: Library) -> None:
        self.real = real
        self.calls: Counter[str] = Counter()

    def block_unpacker(self) -> Callable[[memoryview, int], bytes]:
        unpack = self.real.block_unpacker()

        def counted(block: memoryview, most: int) -> bytes:
            assert type(block) is memoryview
            self.calls["times"] += 1
            self.calls["bytes"] += len(block)
            return unpack(block, most)

        return counted

    def unpack_frame(self, frame: bytes, most: int, room: int) -> list[bytes]:
        self.calls["times"] += 1
        self.calls["bytes"] += len(frame)
        return self.real.unpack_frame(frame, most, room)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("size", [0, 1, 300, 200_000])
def test_many_frames_are_given_to_the_library_once(monkeypatch, library, size, linked):
    frame = lz4.frame.compress((b"%d," % size * size)[:size], block_size=4, block_linked=linked, store_size=False)
    count = max(3, 200_000 // len(frame))
    counting = Counting(library)
    monkeypatch.setattr(lz4_frames, "library", lambda: counting)
    assert len(decompress(LZ4, frame * count, pieces_max=UNLIMITED)) == count * size
    assert counting.calls["times"] <= count * 4
    assert counting.calls["bytes"] <= count * len(frame)
