"""v2 batches: golden bytes, kafka-python in both directions, in-place edits, damaged data."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import (
    BatchHeader,
    CorruptRecords,
    Record,
    assign,
    build_batch,
    build_control_batch,
    check_batch,
    iter_headers,
    iter_records,
    magic_of,
    parse_control_record,
    read_header,
    rebuild_batch,
    stamp_log_append_time,
    stamp_max_timestamp,
)
from barnabas.kproto.tests.peer import DefaultRecordBatch, DefaultRecordBatchBuilder
from barnabas.kproto.tests.records.record_samples import NOW, batch_around, some_records, unhex, with_crc
from barnabas.kproto.varint import read_varint, read_varlong, varint

CODECS = range(5)

# ---- golden bytes

HEADER_BYTES = unhex(
    "0000000000000005 0000004c 00000009 02"  # base offset, length, leader epoch, magic
    "00000000 0000 00000001"  # CRC (filled in), attributes, last offset delta
    "0000000000000064 000000000000006e"  # base and max timestamp
    "0000000000000007 0002 00000003 00000002"  # producer id, epoch, base sequence, count
)
RECORD_BYTES = unhex(
    "18 00 00 00 02 6b 04 7631 02 02 68 00"  # key k, value v1, header h = empty
    "1a 00 14 02 01 01 02 04 6865 06 616263"  # null key and value, header he = abc
)
RECORDS = [Record(5, 100, b"k", b"v1", (("h", b""),)), Record(6, 110, None, None, (("he", b"abc"),))]
PRODUCER = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 3}


def test_golden_batch():
    """Bytes written out by hand from the format."""
    expected = with_crc(bytearray(HEADER_BYTES + RECORD_BYTES))
    built = build_batch(RECORDS, base_offset=5, leader_epoch=9, **PRODUCER)
    assert built == expected
    header = check_batch(built)
    assert header == BatchHeader(5, 76, 9, 2, header.crc, 0, 1, 100, 110, 7, 2, 3, 2)
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (88, 6, 7, 4)
    assert (header.codec, header.is_transactional, header.is_control, header.is_log_append_time) == (0, 0, 0, 0)
    assert header.delete_horizon_ms is None
    assert list(iter_records(built)) == RECORDS


def test_golden_commit_marker():
    """The record as Apache Kafka 3.9.1 writes it; the whole batch is 78 bytes."""
    batch = build_control_batch(
        producer_id=0, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW, base_offset=1
    )
    assert len(batch) == 78
    assert batch[61:] == unhex("20 00 00 00 08 00000001 0c 000000000000 00")
    header = check_batch(batch)
    assert (header.attributes, header.base_sequence, header.record_count, header.last_offset) == (0x30, -1, 1, 1)
    (record,) = iter_records(batch)
    assert parse_control_record(record) == (1, 0)


def test_abort_marker_and_other_control_records():
    batch = build_control_batch(producer_id=9, producer_epoch=3, commit=False, coordinator_epoch=17, timestamp=NOW)
    (record,) = iter_records(batch)
    assert parse_control_record(record) == (0, 17)
    assert parse_control_record(Record(key=unhex("0000 0002"), value=b"anything")) == (2, None)
    for key, value in [
        (None, b""),
        (b"\x00\x00\x00", b""),
        (unhex("ffff 0001"), bytes(6)),
        (unhex("0000 0001"), None),
        (unhex("0000 0001"), bytes(5)),
        (unhex("0000 0001"), unhex("ffff 00000000")),
    ]:
        with pytest.raises(CorruptRecords):
            parse_control_record(Record(key=key, value=value))


# ---- kafka-python


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("transactional", [False, True])
def test_kafka_python_reads_ours(codec, seed, transactional):
    records = some_records(random.Random(seed))
    built = build_batch(records, codec=codec, transactional=transactional, base_offset=77, **PRODUCER)
    theirs = DefaultRecordBatch(bytes(built))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.last_offset_delta, theirs.compression_type) == (77, len(records) - 1, codec)
    assert (theirs.is_transactional, theirs.producer_id, theirs.producer_epoch) == (transactional, 7, 2)
    assert theirs.max_timestamp == max(record.timestamp for record in records)
    read = [Record(r.offset - 77, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == records, f"seed {seed}"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(4))
def test_ours_reads_kafka_python(codec, seed):
    records = some_records(random.Random(seed))
    builder = DefaultRecordBatchBuilder(2, codec, False, 7, 2, 3, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = builder.build()
    header = check_batch(theirs)
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (
        len(records),
        len(records) - 1,
        len(records) + 2,
    )
    assert list(iter_records(theirs)) == records, f"seed {seed}"
    if codec == 0:  # their leader epoch is 0; with it the bytes are the same
        assert build_batch(records, leader_epoch=0, **PRODUCER) == theirs


# ---- in place


@pytest.mark.parametrize("codec", CODECS)
def test_assign_in_place(codec):
    records = some_records(random.Random(1), 10)
    batch = build_batch(records, codec=codec)
    buffer = bytearray(b"before" + batch + b"after")
    view = memoryview(buffer)
    assign(view, 6, 2**40, 12)
    header = check_batch(view, 6)  # the CRC still fits
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert (buffer[:6], buffer[6 + len(batch) :]) == (b"before", b"after")
    assert buffer[6 + 16 : -5] == batch[16:]
    assert [record.offset for record in iter_records(view, 6)] == list(range(2**40, 2**40 + 10))


def test_log_append_time_in_place_and_back():
    batch = build_batch(some_records(random.Random(2), 5), codec=1, transactional=True, **PRODUCER)
    buffer = bytearray(b"xx" + batch + b"yy")
    stamp_log_append_time(memoryview(buffer), 2, NOW + 999)
    header = check_batch(buffer, 2)
    assert (header.is_log_append_time, header.is_transactional, header.codec) == (True, True, 1)
    assert header.max_timestamp == NOW + 999
    assert {record.timestamp for record in iter_records(buffer, 2)} == {NOW + 999}
    theirs = DefaultRecordBatch(bytes(buffer[2:-2]))
    assert theirs.validate_crc()
    assert [record.timestamp for record in theirs] == [NOW + 999] * 5

    stamp_max_timestamp(buffer, 2, read_header(batch).max_timestamp)
    assert buffer == b"xx" + batch + b"yy"
    buffer.append(0)  # no view is left behind that locks the buffer


def test_iter_headers():
    first, second = build_batch([Record(value=b"a")]), build_batch([Record(value=b"b")] * 3, base_offset=1, codec=4)
    data = first + second
    headers = list(iter_headers(data))
    assert [position for position, _ in headers] == [0, len(first)]
    assert [header.last_offset for _, header in headers] == [0, 3]
    for cut in range(len(first), len(data)):
        assert len(list(iter_headers(data[:cut]))) == 1
    data[len(first) + 16] = 1
    with pytest.raises(CorruptRecords):
        list(iter_headers(data))


def test_magic_of():
    batch = build_batch([Record()])
    assert magic_of(batch) == 2
    assert magic_of(b"x" * 5 + batch, 5) == 2
    for bad in (batch[:16], batch[:16] + b"\x03", batch[:16] + b"\xff"):
        with pytest.raises(CorruptRecords):
            magic_of(bad)


# ---- building


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("plain", [False, True])
def test_round_trip(codec, seed, plain):
    rng = random.Random(seed * 10 + codec)
    records = some_records(rng, plain=plain)
    base = rng.randrange(2**50)
    built = build_batch(records, base_offset=base, codec=codec)
    assert check_batch(built).next_offset == base + len(records)
    assert list(iter_records(built)) == [r._replace(offset=base + r.offset) for r in records], f"seed {seed}"


def test_kept_offsets_and_range():
    records = [Record(12, NOW, b"a"), Record(15, NOW, b"b"), Record(700, NOW, b"c")]
    built = build_batch(records, base_offset=10, keep_offsets=True, last_offset_delta=900)
    header = check_batch(built)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 910, 3)
    assert list(iter_records(built)) == records
    assert read_header(build_batch(records, base_offset=10, keep_offsets=True)).last_offset == 700


def test_empty_shell():
    shell = build_batch([], base_offset=10, last_offset_delta=4, codec=4, **PRODUCER)
    header = check_batch(shell)
    assert (header.size, header.codec, header.last_offset, header.last_sequence) == (61, 0, 14, 7)
    assert list(iter_records(shell)) == []
    with pytest.raises(ValueError, match="record"):
        build_batch([])


def test_delete_horizon():
    built = build_batch([Record(0, NOW, b"a"), Record(1, NOW + 5, b"b")], delete_horizon_ms=NOW + 1000)
    header = check_batch(built)
    assert (header.delete_horizon_ms, header.base_timestamp, header.max_timestamp) == (NOW + 1000, NOW + 1000, NOW + 5)
    assert [record.timestamp for record in iter_records(built)] == [NOW, NOW + 5]
    assert check_batch(rebuild_batch(built, codec=1)).delete_horizon_ms == NOW + 1000


def test_header_keys_that_are_not_utf8_survive():
    record = unhex("12 00 00 00 01 01 02 02 ff 00")
    batch = batch_around(bytes((len(record) - 1 << 1,)) + record[1:], 1)
    (read,) = iter_records(batch)
    assert read.headers == (("\udcff", b""),)
    assert rebuild_batch(batch)[61:] == batch[61:]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("log_append_time", [False, True])
def test_rebuild_with_another_codec(codec, log_append_time):
    records = some_records(random.Random(3), 40)
    batch = build_batch(
        records,
        base_offset=100,
        codec=2,
        transactional=True,
        leader_epoch=4,
        log_append_time_ms=NOW if log_append_time else None,
        **PRODUCER,
    )
    rebuilt = rebuild_batch(b"??" + batch, 2, codec=codec)
    assert list(iter_records(rebuilt)) == list(iter_records(batch))
    old, new = read_header(batch), check_batch(rebuilt)
    assert new.codec == codec
    assert new.attributes & ~7 == old.attributes & ~7
    changed = {"batch_length": 0, "crc": 0, "attributes": 0, "base_timestamp": 0}
    assert new._replace(**changed) == old._replace(**changed)


def test_rebuild_renumbers():
    batch = build_batch([Record(7, NOW, b"a"), Record(3, NOW, b"b")], base_offset=3, keep_offsets=True, codec=1)
    rebuilt = rebuild_batch(batch, renumber=True)
    assert [record.offset for record in iter_records(rebuilt)] == [3, 4]
    assert check_batch(rebuilt).last_offset_delta == 1


def test_sequence_wraps():
    batch = build_batch([Record()] * 4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 1
    assert read_header(build_batch([Record()] * 4)).last_sequence == -1


# ---- integers


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint(value, encoded):
    data = bytes.fromhex(encoded)
    assert varint(value) == data
    assert read_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    assert read_varlong(data, 0) == (value, len(data))


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**40, -(2**40)])
def test_varlong(value):
    data = varint(value)
    assert read_varlong(data, 0) == (value, len(data))


def test_varints_without_end():
    with pytest.raises(CorruptRecords):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(CorruptRecords):
        read_varlong(b"\x80" * 10 + b"\x00", 0)
    for read in (read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(b"\x80\x80", 0)


def test_timestamps_overflow_as_in_java():
    batch = batch_around(unhex("0c 00") + varint(-(2**63)) + unhex("00 01 01 00"), 1)
    batch[61] = len(batch) - 62 << 1
    with_crc(batch)
    (record,) = iter_records(batch)
    assert record.timestamp == NOW - 2**63
    batch = build_batch([Record(0, 2**63 - 1, b"a"), Record(1, -(2**63), b"b")])
    assert [record.timestamp for record in iter_records(batch)] == [2**63 - 1, -(2**63)]


# ---- damaged data


@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_is_refused(codec):
    batch = build_batch(some_records(random.Random(4), 5), codec=codec)
    for cut in range(len(batch)):
        for function in (check_batch, lambda data: list(iter_records(data))):
            with pytest.raises(CorruptRecords) as caught:
                function(batch[:cut])
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    for cut in range(61):
        with pytest.raises(CorruptRecords):
            read_header(memoryview(batch)[:cut])


def test_every_flipped_bit_shows():
    batch = build_batch(some_records(random.Random(5), 3, plain=True))
    for position in (*range(8, 12), *range(16, len(batch))):
        for bit in range(8):
            broken = bytearray(batch)
            broken[position] ^= 1 << bit
            with pytest.raises(CorruptRecords):
                check_batch(broken)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 48, 2**31 - 1])
def test_impossible_lengths(length):
    batch = build_batch([Record()])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecords):
        check_batch(batch)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(10))
def test_mutations_fail_cleanly(codec, seed):
    """Whatever stands behind a right checksum: records or `CorruptRecords`, nothing else, and quickly."""
    rng = random.Random(seed * 10 + codec)
    batch = build_batch(some_records(rng, rng.randrange(1, 20)), codec=codec)
    for _ in range(100):
        broken = bytearray(batch)
        for _ in range(rng.randrange(1, 4)):
            position = rng.randrange(17, min(len(broken), 17 + 120) if rng.random() < 0.7 else len(broken))
            broken[position] = rng.randrange(256)
        with_crc(broken)
        try:
            records = list(iter_records(broken, max_bytes=4_000_000))
        except CorruptRecords:
            continue
        for record in records:
            assert -(2**63) <= record.timestamp < 2**63, f"seed {seed}"


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_counts(codec):
    records = some_records(random.Random(6), 5)
    for count in (-1, 4, 6, 2**31 - 1):
        batch = build_batch(records, codec=codec)
        struct.pack_into(">i", batch, 57, count)
        with pytest.raises(CorruptRecords):
            list(iter_records(with_crc(batch)))


def test_decompression_is_bounded():
    batch = build_batch([Record(value=bytes(1_000_000))], codec=4)
    assert len(list(iter_records(batch))) == 1
    with pytest.raises(CorruptRecords):
        list(iter_records(batch, max_bytes=999_999))


def test_unknown_codec():
    batch = build_batch([Record()])
    batch[22] |= 5
    with pytest.raises(CorruptRecords):
        list(iter_records(with_crc(batch)))


def test_error_types():
    assert issubclass(CorruptRecords, KafkaError)
    assert CorruptRecords("why").code is ErrorCode.CORRUPT_MESSAGE
