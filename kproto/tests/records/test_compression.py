"""The codecs: against kafka-python and other libraries (lz4 in full: test_lz4_frames), and against damaged and hostile
data.
"""

from __future__ import annotations

import gzip
import importlib
import random
import struct
import sys
import tracemalloc
import zlib
from types import SimpleNamespace

import cramjam
import pytest
import zstandard

from barnabas.kproto import compression
from barnabas.kproto.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Compressor,
    CorruptRecords,
    TooBig,
    compress,
    decompress,
)
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.lz4 import frames as lz4_frames
from barnabas.kproto.lz4 import libraries as lz4_libraries
from barnabas.kproto.tests.peer import codec as kafka_codec

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b'{"user": "anna", "amount": 12.5, "note": "hello"}\n' * 3000  # 150 kB: several snappy and lz4 blocks


def sample(rng: random.Random) -> bytes:
    """Text, noise or a mixture, of any small size."""
    kind = rng.randrange(4)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(rng.randrange(70_000))
    words = [rng.randbytes(rng.randrange(1, 9)) for _ in range(20)]
    return b"".join(rng.choice(words) for _ in range(rng.randrange(20_000)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(8))
def test_round_trip(codec, seed):
    data = sample(random.Random(seed))
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, bytearray(data))))) == data


def test_none_copies():
    data = bytearray(b"abc")
    assert decompress(0, data) == b"abc"
    assert compress(0, memoryview(data)) == b"abc"


@pytest.mark.parametrize(("codec", "levels"), [(GZIP, (-1, 1, 9)), (LZ4, (1, 9, 12, 17)), (ZSTD, (-7, 3, 19))])
def test_levels(codec, levels):
    """On the scales of `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`."""
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level=level)) == TEXT
    default = {GZIP: -1, LZ4: 9, ZSTD: 3}[codec]
    assert compress(codec, TEXT) == compress(codec, TEXT, level=default)


THEIRS = {
    GZIP: (kafka_codec.gzip_encode, kafka_codec.gzip_decode),
    SNAPPY: (kafka_codec.snappy_encode, kafka_codec.snappy_decode),
    LZ4: (kafka_codec.lz4_encode, kafka_codec.lz4_decode),
    ZSTD: (kafka_codec.zstd_encode, kafka_codec.zstd_decode),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT])
def test_the_same_as_kafka_python(codec, data):
    encode, decode = THEIRS[codec]
    # The test extra brings every codec's library: without one there would be nothing to compare with.
    assert encode is not None
    assert codec != SNAPPY or kafka_codec.has_snappy()
    assert decompress(codec, encode(data)) == data
    if data or codec != SNAPPY:  # kafka-python takes a xerial header without blocks for a raw block
        assert decode(compress(codec, data)) == data


# ---- gzip


def test_gzip_members_and_junk():
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(GZIP, two) == b"one two"
    assert decompress(GZIP, two + b"\x00\x00junk") == b"one two"
    with pytest.raises(CorruptRecords):
        decompress(GZIP, two[:-1])


# ---- snappy


def test_snappy_golden_header():
    packed = compress(SNAPPY, b"hello")
    assert packed[:16] == bytes.fromhex("82534e41505059 00 00000001 00000001".replace(" ", ""))
    assert packed[16:] == bytes.fromhex("00000007 05 10 68656c6c6f".replace(" ", ""))


def test_snappy_raw_and_little_endian_header():
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(SNAPPY, raw) == TEXT
    packed = compress(SNAPPY, TEXT)
    little = packed[:8] + struct.pack("<ii", 1, 1) + packed[16:]
    assert decompress(SNAPPY, little) == TEXT


def test_snappy_streams_one_after_another():
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"


def test_snappy_blocks_are_32_kib():
    packed = compress(SNAPPY, bytes(70_000))
    sizes = []
    position = 16
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        sizes.append(len(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x82SNAPPY\x00",  # a header cut off
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00",  # a block length cut off
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", -5) + b"12345",
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 0),
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 1000) + b"12345",
        b"\xff\xff\xff\xff\x07ab",  # claims two gigabytes
        b"\xff\xff\xff\xff\xff\xff\x01ab",  # a length without an end
        b"\x05\x10hell",
    ],
)
def test_snappy_damaged(data):
    with pytest.raises(CorruptRecords):
        decompress(SNAPPY, data)


# ---- zstd


def zstd_stream(data: bytes) -> bytes:
    """A frame without content size, as Java's stream writer makes it."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


def test_zstd_without_content_size():
    frame = zstd_stream(TEXT)
    assert zstandard.frame_content_size(frame) == -1
    assert decompress(ZSTD, frame) == TEXT


def test_zstd_frames_one_after_another():
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    data = zstd_stream(b"one ") + skippable + compress(ZSTD, b"two") + compress(ZSTD, b"")
    assert decompress(ZSTD, data) == b"one two"


def test_zstd_with_checksum_and_levels():
    for level in (-5, 1, 9):
        frame = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(TEXT)
        assert decompress(ZSTD, frame) == TEXT
        with pytest.raises(CorruptRecords):
            decompress(ZSTD, frame[:-1] + bytes((frame[-1] ^ 1,)))


@pytest.mark.parametrize("level", [-131072, -7, 1, 3, 9, 19, 22])
def test_zstd_against_another_library(level):
    """Both ways, with the levels of `compression.zstd.level`; ours states the size, as that library does."""
    packed = compress(ZSTD, TEXT, level=level)
    assert zstandard.frame_content_size(packed) == len(TEXT)
    assert zstandard.ZstdDecompressor().decompress(packed) == TEXT
    assert decompress(ZSTD, zstandard.ZstdCompressor(level=level).compress(TEXT)) == TEXT


@pytest.mark.parametrize("window_log", [10, 20, 27, 28])
def test_zstd_windows(window_log):
    """Up to 128 MiB, as Java's reader allows."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log, hash_log=6, chain_log=6)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(b"ab" * 1000) + packer.flush()
    if window_log <= 27:
        assert decompress(ZSTD, packed) == b"ab" * 1000
    else:
        with pytest.raises(CorruptRecords):
            decompress(ZSTD, packed)


def test_zstd_takes_no_more_memory_than_it_may():
    """64 MiB of zeros in 6 KB, of which a quarter is allowed: so much is made, and a step more."""
    packed = zstd_stream(bytes(64 << 20))
    decompress(ZSTD, compress(ZSTD, b"loads the library"))
    tracemalloc.start()
    try:
        with pytest.raises(TooBig):
            decompress(ZSTD, packed, max_bytes=16 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (16 + 2 * 4 + 1) << 20


def test_junk_behind_zstd():
    for junk in (b"x", b"junk", bytes(20)):
        with pytest.raises(CorruptRecords):
            decompress(ZSTD, compress(ZSTD, TEXT) + junk)


@pytest.mark.parametrize(
    ("codec", "package", "module"),
    [
        (SNAPPY, "cramjam", "cramjam"),
        (LZ4, "cramjam", "cramjam"),
        (ZSTD, "backports.zstd" if sys.version_info < (3, 14) else "compression.zstd", None),
    ],
)
def test_a_library_that_is_missing_is_named(monkeypatch, codec, package, module):
    packed = compress(codec, TEXT)
    monkeypatch.setitem(sys.modules, module or package, None)
    if codec == LZ4:
        monkeypatch.setitem(sys.modules, "lz4.block", None)  # otherwise cramjam is not needed
        monkeypatch.setattr(lz4_frames, "library", lz4_libraries.library.__wrapped__)
    if module is None:  # imported from its package, as an attribute
        monkeypatch.delattr(importlib.import_module(package.partition(".")[0]), "zstd")
    for attempt in (lambda: compress(codec, TEXT), lambda: decompress(codec, packed)):
        with pytest.raises(KafkaError, match=f"package {package} is not installed") as caught:
            attempt()
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_window_too_large():
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xf8" + b"\x01\x00\x00"  # a window of 2**41 bytes, one empty last block
    with pytest.raises(CorruptRecords):
        decompress(ZSTD, frame)


# ---- hostile data, all codecs


@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_is_refused(codec):
    packed = compress(codec, TEXT[:2000])
    for cut in range(len(packed)):
        # A xerial stream may end behind its header: there is no end mark, it holds nothing then.
        if codec == SNAPPY and cut == 16:
            assert decompress(codec, packed[:cut]) == b""
            continue
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(20))
def test_mutations_give_data_or_corrupt_records(codec, seed):
    rng = random.Random(seed * 10 + codec)
    packed = bytearray(compress(codec, sample(rng)[:5000] + b"tail"))
    for _ in range(100):
        broken = bytearray(packed)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(min(len(broken), 60)) if rng.random() < 0.5 else rng.randrange(len(broken))] = (
                rng.randrange(256)
            )
        if rng.random() < 0.2:
            del broken[rng.randrange(len(broken)) :]
        for lz4_v0 in (False, True):
            try:
                out = decompress(codec, broken, max_bytes=1_000_000, lz4_v0=lz4_v0)
            except CorruptRecords:
                continue
            assert len(out) <= 1_000_000, f"seed {seed}"


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("seed", range(5))
def test_noise(codec, seed):
    rng = random.Random(seed)
    for _ in range(200):
        data = rng.randbytes(rng.randrange(60))
        try:
            out = decompress(codec, data, max_bytes=100_000)
        except CorruptRecords:
            continue
        assert len(out) <= 100_000, f"seed {seed}"


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_bound_is_exact(codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(CorruptRecords, match="more than"):
        decompress(codec, packed, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs(codec):
    """A few hundred kilobytes that hold 64 MiB of zeros stop at the bound."""
    size = 64 * 1024 * 1024
    bomb = zstd_stream(bytes(size)) if codec == ZSTD else compress(codec, bytes(size))
    with pytest.raises(CorruptRecords, match="more than"):
        decompress(codec, bomb, max_bytes=1024 * 1024)


def test_bound_over_several_frames():
    for codec in CODECS:
        packed = compress(codec, bytes(1000)) * 5
        assert decompress(codec, packed, max_bytes=5000) == bytes(5000)
        with pytest.raises(CorruptRecords):
            decompress(codec, packed, max_bytes=4999)


def test_error_code():
    with pytest.raises(CorruptRecords) as caught:
        decompress(GZIP, b"no")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_unknown_codec():
    for codec in (5, 6, 7, -1):
        with pytest.raises(CorruptRecords):
            decompress(codec, b"abc")
        with pytest.raises(ValueError, match="unknown"):
            compress(codec, b"abc")


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("lz4_v0", [False, True])
def test_pieces(codec, lz4_v0):
    for pieces in ([], [TEXT], [TEXT[:1000], b"", TEXT[1000:]], [bytes((i % 256,)) * 100 for i in range(3000)]):
        packer = Compressor(codec, lz4_v0=lz4_v0)
        for piece in pieces:
            packer.add(piece)
        packed = packer.finish()
        assert decompress(codec, packed, lz4_v0=lz4_v0) == b"".join(pieces)
        assert packed == compress(codec, b"".join(pieces), lz4_v0=lz4_v0) or codec == 1


# ---- many small pieces


@pytest.mark.parametrize("size", [0, 1, 300, 40_000])
def test_many_gzip_members_are_copied_once(monkeypatch, size):
    member = compress(GZIP, random.Random(size).randbytes(size))
    count = 2_000_000 // (len(member) + 500)
    data = member * count
    given = left = 0
    make = zlib.decompressobj

    class Unpacker:
        def __init__(self, wbits):
            self.real = make(wbits)

        def decompress(self, piece, most):
            nonlocal given
            given += len(piece)
            return self.real.decompress(piece, most)

        @property
        def eof(self):
            return self.real.eof

        @property
        def unconsumed_tail(self):
            return self.real.unconsumed_tail

        @property
        def unused_data(self):
            nonlocal left
            left += len(self.real.unused_data)
            return self.real.unused_data

    monkeypatch.setattr(compression, "zlib", SimpleNamespace(decompressobj=Unpacker, error=zlib.error))
    assert len(decompress(GZIP, data)) == count * size
    assert given == len(data) + left
    assert left <= 2 * len(data) + 256 * count
    with pytest.raises(CorruptRecords, match="inside a member"):
        decompress(GZIP, data + member[:-1])


def test_many_zstd_frames():
    """Each costs a decompressor, which is work for many records: there may be 256, and any number to be skipped."""
    frame = compress(ZSTD, b"x")
    skipped = b"\x50\x2a\x4d\x18" + bytes(4)
    assert decompress(ZSTD, frame * 255 + skipped * 20_000 + zstd_stream(TEXT)) == b"x" * 255 + TEXT
    with pytest.raises(TooBig, match="pieces"):
        decompress(ZSTD, frame * 257)


def test_many_snappy_blocks_are_copied_once(monkeypatch):
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    header = compress(SNAPPY, b"")
    data = (header + (len(block).to_bytes(4, "big") + block)) * 20_000
    copied = 0

    class Snappy:
        def decompress_raw(self, piece):
            nonlocal copied
            copied += len(piece)
            return cramjam.snappy.decompress_raw(piece)

    library = SimpleNamespace(snappy=Snappy(), DecompressionError=cramjam.DecompressionError)
    monkeypatch.setattr(compression, "cramjam_library", lambda: library)
    assert decompress(SNAPPY, data) == b"a" * 20_000
    assert copied == 20_000 * len(block)
