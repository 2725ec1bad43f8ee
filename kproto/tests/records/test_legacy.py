"""Message sets v0 and v1: golden bytes, kafka-python in both directions, up- and down-conversion, damaged data."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from barnabas.kproto.compression import ZSTD, compress
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import CorruptRecords, Record, build_batch, build_control_batch, check_batch, iter_records
from barnabas.kproto.records_legacy import (
    STEP,
    build_message_set,
    down_convert,
    down_converting,
    iter_any,
    iter_legacy,
    iter_messages,
    up_convert,
    up_converting,
)
from barnabas.kproto.records_scan import RecordsRefused, validate_records
from barnabas.kproto.tests.peer import LegacyRecordBatchBuilder, MemoryRecords
from barnabas.kproto.tests.records.record_samples import NOW, some_records, unhex, with_crc

LEGACY_CODECS = range(4)
MAGICS = (0, 1)


def plain(rng: random.Random, magic: int, base: int = 0) -> list[Record]:
    """Records that these formats can hold."""
    return [
        r._replace(offset=base + r.offset, timestamp=r.timestamp if magic else -1, headers=())
        for r in some_records(rng, rng.randrange(1, 40))
    ]


def message(body: bytes, offset: int = 0) -> bytes:
    """A message around magic...end, with the right checksum."""
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


# ---- golden bytes


def test_golden_v0():
    expected = message(unhex("00 00 00000001 6b ffffffff"), 3) + message(unhex("00 00 ffffffff 00000001 76"), 4)
    records = [Record(3, NOW, b"k", None), Record(4, NOW, None, b"v")]
    assert build_message_set(records, magic=0) == expected
    assert list(iter_legacy(expected)) == [r._replace(timestamp=-1) for r in records]
    first, second = iter_messages(expected)
    assert (first.offset, first.magic, first.codec, first.size) == (3, 0, 0, 12 + 14 + 1)
    assert second.value == b"v"


def test_golden_v1():
    expected = message(unhex("01 00 000000000000007b 00000001 6b 00000000"), 3)
    assert build_message_set([Record(3, 123, b"k", b"")], magic=1) == expected
    assert list(iter_legacy(expected)) == [Record(3, 123, b"k", b"")]
    appended = message(unhex("01 08 00000000000003e7 00000001 6b 00000000"), 3)
    assert build_message_set([Record(3, 123, b"k", b"")], magic=1, log_append_time_ms=999) == appended
    (read,) = iter_messages(appended)
    assert (read.is_log_append_time, read.timestamp) == (True, 999)


def test_wrapper_v1():
    """Inner offsets count from the first message; the wrapper has the last offset and the greatest time."""
    records = [Record(10, 500, b"a", b"1"), Record(11, 700, b"b", b"2"), Record(15, 600, b"c", b"3")]
    data = build_message_set(records, magic=1, codec=1)
    (wrapper,) = iter_messages(data)
    assert (wrapper.offset, wrapper.timestamp, wrapper.codec, wrapper.key) == (15, 700, 1, None)
    assert wrapper.value is not None
    inner = list(iter_messages(zlib.decompress(wrapper.value, 31)))
    assert [m.offset for m in inner] == [0, 1, 5]
    assert list(iter_legacy(data)) == records


def test_wrapper_v0():
    records = [Record(10, -1, b"a", b"1"), Record(15, -1, b"c", b"3")]
    data = build_message_set(records, magic=0, codec=1)
    (wrapper,) = iter_messages(data)
    assert wrapper.offset == 15
    assert wrapper.value is not None
    assert [m.offset for m in iter_messages(zlib.decompress(wrapper.value, 31))] == [10, 15]
    assert list(iter_legacy(data)) == records


def test_wrapper_v1_with_append_time():
    records = [Record(10, 500, b"a"), Record(11, 700, b"b")]
    data = build_message_set(records, magic=1, codec=2, log_append_time_ms=9000)
    assert [r.timestamp for r in iter_legacy(data)] == [9000, 9000]


def test_wrapper_v1_at_offset_0():
    """As some builds of librdkafka send it: the wrapper's offset is not set."""
    data = bytearray(build_message_set([Record(i, NOW, b"k") for i in range(5)], magic=1, codec=1))
    struct.pack_into(">q", data, 0, 0)
    assert [r.offset for r in iter_legacy(data)] == [0, 1, 2, 3, 4]
    struct.pack_into(">q", data, 0, 3)  # neither 0 nor possible
    with pytest.raises(CorruptRecords):
        list(iter_legacy(data))


# ---- kafka-python


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("seed", range(5))
def test_kafka_python_reads_ours(magic, codec, seed):
    records = plain(random.Random(seed), magic, base=1000)
    reader = MemoryRecords(build_message_set(records, magic=magic, codec=codec))
    read = []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        for r in batch:
            assert r.validate_crc()
            read.append(Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value))
    assert read == records, f"seed {seed}"


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("seed", range(5))
def test_ours_reads_kafka_python(magic, codec, seed):
    records = plain(random.Random(seed), magic)
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value)
    theirs = bytes(builder.build())
    if magic == 1 and codec and len(records) > 1:
        # Their builder leaves the wrapper's offset 0 for the broker to set.
        assert next(iter_messages(theirs)).offset == 0
    assert list(iter_legacy(theirs)) == records, f"seed {seed}"
    if codec == 0:
        assert build_message_set(records, magic=magic) == theirs
    converted = up_convert(theirs)
    header = check_batch(converted)
    assert (header.codec, header.record_count) == (codec, len(records))
    assert list(iter_records(converted)) == records, f"seed {seed}"


# ---- up-conversion


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("target", [None, 0, 4])
def test_up_convert(magic, codec, target):
    records = plain(random.Random(8), magic, base=500)
    batch = up_convert(build_message_set(records, magic=magic, codec=codec), codec=target)
    header = check_batch(batch)
    assert header.codec == (codec if target is None else target)
    assert (header.base_offset, header.producer_id, header.base_sequence) == (0, -1, -1)
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert list(iter_records(batch)) == [r._replace(offset=i) for i, r in enumerate(records)]
    assert validate_records(batch).consecutive


class _Value:
    """Runs a generator and keeps what it returns."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        self.value = yield from self.generator


def test_up_convert_in_steps():
    """The generator comes up for air; what it returns is the batch that `up_convert` returns."""
    for codec in LEGACY_CODECS:
        data = build_message_set([Record(i, NOW, b"k", b"v") for i in range(5 * STEP)], magic=1, codec=codec)
        steps = up_converting(data)
        pauses = [next(steps) for _ in range(4)]
        assert pauses == [None] * 4
        rest = _Value(steps)
        assert list(rest) != []
        assert bytes(rest.value) == bytes(up_convert(data))


# ---- down-conversion


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("seed", range(4))
def test_down_convert(magic, codec, seed):
    rng = random.Random(seed)
    records = some_records(rng, 30)
    data = build_batch(records[:20], codec=codec) + build_batch(
        records[20:], codec=codec, base_offset=20, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    data += build_control_batch(
        producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW, base_offset=30
    )
    cut = build_batch([Record()], base_offset=31)[:-1]
    expected = [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in records]
    converted = down_convert(data + cut, magic)
    assert list(iter_legacy(converted)) == expected, f"seed {seed}"
    assert {(m.magic, m.codec) for m in iter_messages(converted)} == {(magic, codec)}
    assert len(list(iter_messages(converted))) == (2 if codec else 30)
    # From an offset on: single messages before it go, wrappers stay whole.
    later = list(iter_legacy(down_convert(data, magic, first_offset=25)))
    assert later == (expected if codec else expected[25:])


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_down_convert_append_time(codec):
    data = build_batch([Record(0, 1, b"k")] * 3, codec=codec, log_append_time_ms=NOW)
    converted = down_convert(data, 1)
    assert all(m.is_log_append_time and m.timestamp == NOW for m in iter_messages(converted))
    assert [r.timestamp for r in iter_legacy(converted)] == [NOW] * 3


def test_down_convert_mixed_formats():
    v0 = build_message_set([Record(0, -1, b"a")], magic=0)
    v1 = build_message_set([Record(1, NOW, b"b"), Record(2, NOW, b"c")], magic=1, codec=3)
    v2 = bytes(build_batch([Record(0, NOW, b"d")], base_offset=3))
    stored = v0 + v1 + v2
    assert [r.key for r in iter_any(stored)] == [b"a", b"b", b"c", b"d"]
    assert [r.offset for r in iter_any(stored + v2[:-1])] == [0, 1, 2, 3]
    assert down_convert(stored, 1)[: len(v0 + v1)] == v0 + v1
    down = down_convert(stored, 0)
    assert down[: len(v0)] == v0
    assert [(m.magic, m.offset) for m in iter_messages(down)] == [(0, 0), (0, 2), (0, 3)]
    assert [r.offset for r in iter_legacy(down)] == [0, 1, 2, 3]


def test_down_convert_zstd():
    data = build_batch([Record(0, NOW, b"k")], codec=ZSTD)
    with pytest.raises(KafkaError) as caught:
        down_convert(data, 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_down_convert_in_steps():
    records = [Record(i, NOW, b"k", b"v") for i in range(1000)]
    for codec in LEGACY_CODECS:
        data = build_batch(records, codec=codec)
        pieces = list(down_converting(data, 1, first_offset=400))
        assert b"".join(pieces) == down_convert(data, 1, first_offset=400)
        assert pieces.count(b"") == (1000 // STEP if codec else 400 // STEP)
        assert len(pieces) - pieces.count(b"") == (1 if codec else 600)


def test_down_convert_gives_what_came_before_an_error():
    good = build_batch([Record(0, NOW, b"a"), Record(0, NOW, b"b")])
    pieces = down_converting(bytes(good) + bytes(build_batch([Record(0, NOW, b"c")], codec=ZSTD, base_offset=2)), 1)
    assert [record.key for record in iter_legacy(next(pieces) + next(pieces))] == [b"a", b"b"]
    with pytest.raises(KafkaError):
        next(pieces)


def test_down_convert_keeps_gaps():
    records = [Record(5, NOW, b"a"), Record(9, NOW, b"b")]
    data = build_batch(records, base_offset=3, keep_offsets=True, last_offset_delta=20, codec=1)
    for magic in MAGICS:
        assert [r.offset for r in iter_legacy(down_convert(data, magic))] == [5, 9]
    shell = build_batch([], base_offset=3, last_offset_delta=20)
    assert down_convert(shell, 1) == b""


# ---- damaged data


@pytest.mark.parametrize("magic", MAGICS)
def test_every_prefix(magic):
    records = [Record(i, NOW if magic else -1, b"key", b"value") for i in range(3)]
    data = build_message_set(records, magic=magic)
    size = len(data) // 3
    for cut in range(len(data)):
        assert list(iter_legacy(data[:cut])) == records[: cut // size]


@pytest.mark.parametrize(
    "body",
    [
        "00 00 ffffffff ffffffff 00",  # a byte left over
        "00 00 00000005 6b ffffffff",  # key beyond the end
        "00 00 00000001 6b 00000009 76",
        "00 00 7fffffff 6b ffffffff",
        "00 00 00000001 6b 000000 0000",
        "02 00 ffffffff ffffffff",
        "ff 00 ffffffff ffffffff",
        "01 00 ffffffff ffffffff",  # v1 without room for its timestamp
        "01 01 0000000000000000 ffffffff ffffffff",  # a wrapper of nothing
        "01 01 0000000000000000 ffffffff 00000000",
        "01 04 0000000000000000 ffffffff 00000001 00",  # zstd does not exist here
        "00 07 ffffffff 00000001 00",
    ],
)
def test_bad_messages(body):
    with pytest.raises(CorruptRecords):
        list(iter_legacy(message(unhex(body))))


def test_bad_sizes_and_checksums():
    data = bytearray(build_message_set([Record(0, NOW, b"key", b"value")], magic=1))
    for size in (-1, 0, 13, -(2**31)):
        broken = bytearray(data)
        struct.pack_into(">i", broken, 8, size)
        with pytest.raises(CorruptRecords):
            list(iter_legacy(broken))
    for position in range(12, len(data)):
        broken = bytearray(data)
        broken[position] ^= 4
        with pytest.raises(CorruptRecords):
            list(iter_legacy(broken))


def test_compressed_in_compressed():
    inner = compress(1, build_message_set([Record(0, NOW, b"k")], magic=1, codec=1))
    data = message(bytes((1, 1)) + struct.pack(">qii", NOW, -1, len(inner)) + inner)
    with pytest.raises(CorruptRecords, match="inside"):
        list(iter_legacy(data))


def test_decompression_is_bounded():
    data = build_message_set([Record(0, NOW, b"k", bytes(1_000_000))], magic=1, codec=1)
    with pytest.raises(CorruptRecords):
        list(iter_legacy(data, max_bytes=100_000))
    with pytest.raises(RecordsRefused):
        up_convert(data, max_bytes=100_000)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("seed", range(5))
def test_mutations_fail_cleanly(magic, codec, seed):
    rng = random.Random(seed * 10 + codec)
    data = build_message_set(plain(rng, magic)[:8], magic=magic, codec=codec)
    for _ in range(80):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(16, min(len(broken), 90))] = rng.randrange(256)
        (size,) = struct.unpack_from(">i", broken, 8)
        struct.pack_into(">I", broken, 12, zlib.crc32(broken[16 : 12 + size]))
        for function in (
            lambda b: list(iter_legacy(b, max_bytes=10_000_000)),
            lambda b: up_convert(b, max_bytes=10_000_000),
            lambda b: down_convert(b, 0, max_bytes=10_000_000),
            lambda b: list(iter_any(b, max_bytes=10_000_000)),
        ):
            try:
                function(broken)
            except KafkaError as exc:
                allowed = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
                assert exc.code in (*allowed, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)  # noqa: PT017


@pytest.mark.parametrize("seed", range(5))
def test_down_convert_of_mutated_batches_fails_cleanly(seed):
    rng = random.Random(seed)
    data = build_batch(some_records(rng, 10), codec=seed % 4)
    for _ in range(80):
        broken = bytearray(data)
        broken[rng.randrange(8, min(len(broken), 140))] = rng.randrange(256)
        try:
            down_convert(with_crc(broken), 1, max_bytes=10_000_000)
        except KafkaError as exc:
            assert exc.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)  # noqa: PT017


def test_a_wrapper_in_very_many_pieces():
    """They are opened in one step, of which each piece is a part."""
    inner = build_message_set([Record(0, NOW, None, b"v")], magic=1)
    for count in (100, 20_000):
        value = compress(1, inner) + compress(1, b"") * count
        body = struct.pack(">bbqii", 1, 1, NOW, -1, len(value)) + value
        if count == 100:
            assert up_convert(message(body)) is not None
        else:
            with pytest.raises(RecordsRefused, match="cannot be read"):
                up_convert(message(body))
