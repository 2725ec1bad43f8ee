"""What a leader refuses of a client's batch; the fast scan against plain iteration."""

from __future__ import annotations

import random
import struct

import lz4.frame
import pytest

from barnabas.kproto import records_scan
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import BATCH_OVERHEAD, CorruptRecords, Record, build_batch, iter_records, read_header
from barnabas.kproto.records_scan import RecordsRefused, Scan, check_client_header, validate_records
from barnabas.kproto.tests.records.record_samples import NOW, batch_around, some_records, unhex, with_crc
from barnabas.kproto.varint import read_varint

CODECS = range(5)


def refusal(batch, **options) -> RecordsRefused:
    with pytest.raises(RecordsRefused) as caught:
        validate_records(batch, **options)
    return caught.value


# ---- the scan sees what iteration sees


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_good_batches(codec, plain, seed):
    records = some_records(random.Random(seed), plain=plain)
    batch = build_batch(records, codec=codec)
    expected = Scan(max(record.timestamp for record in records), True)
    assert validate_records(batch) == expected, f"seed {seed}"
    assert validate_records(memoryview(b"x" + batch + b"y"), 1) == expected, f"seed {seed}"


def test_long_runs_over_all_widths_of_the_offset_delta():
    for count in (62, 63, 64, 65, 66, 130, 8190, 8192, 8193, 8200, 20_000):
        for size in (1, 80):
            batch = build_batch([Record(0, NOW + i % 7, b"k", b"v" * size) for i in range(count)])
            assert validate_records(batch, keys_required=True) == Scan(NOW + 6, True), (count, size)


def test_lowest_and_highest_timestamp_within_runs():
    for deltas in ([0, 5, 3, 1], [0, -5, 3, -1], [0, 100, 200, 5000], [0, 10_000_000, 1, 2]):
        records = [Record(0, NOW + deltas[i % 4], None, b"value") for i in range(60)]
        batch = build_batch(records)
        low, high = NOW + min(deltas), NOW + max(deltas)
        assert validate_records(batch, oldest_ms=low, newest_ms=high) == Scan(high, True)
        assert refusal(batch, oldest_ms=low + 1).code is ErrorCode.INVALID_TIMESTAMP
        assert refusal(batch, newest_ms=high - 1).code is ErrorCode.INVALID_TIMESTAMP


def record_bounds(batch: bytearray) -> list[tuple[int, int]]:
    bounds = []
    position = BATCH_OVERHEAD
    while position < len(batch):
        length, start = read_varint(batch, position)
        bounds.append((position, start + length))
        position = start + length
    return bounds


@pytest.mark.parametrize("seed", range(40))
def test_verdicts_equal_plain_iteration(seed):
    """Records that look alike, a few bytes changed: what iteration reads, the scan passes with the same findings;
    what it cannot, the scan refuses.
    """
    rng = random.Random(seed)
    good = bad = 0
    for _ in range(60):
        records = some_records(rng, rng.randrange(2, 140), plain=rng.random() < 0.8)
        batch = build_batch(records)
        for _ in range(rng.choice([0, 1, 1, 1])):
            start, end = rng.choice(record_bounds(batch))
            position = rng.choice([start + rng.randrange(12), start + rng.randrange(5), end - 1])
            batch[min(position, len(batch) - 1)] = rng.choice([0, 1, 2, 3, 4, 127, 128, 255, rng.randrange(256)])
        with_crc(batch)
        try:
            read = list(iter_records(batch))
        except CorruptRecords:
            bad += 1
            assert refusal(batch).code is ErrorCode.INVALID_RECORD, f"seed {seed}"
            continue
        good += 1
        scan = validate_records(batch)
        expected = Scan(
            max(-1, max(record.timestamp for record in read)),
            [record.offset for record in read] == list(range(len(read))),
        )
        assert scan == expected, f"seed {seed}"
        if any(record.key is None for record in read):
            assert refusal(batch, keys_required=True).code is ErrorCode.INVALID_RECORD, f"seed {seed}"
        else:
            assert validate_records(batch, keys_required=True) == expected, f"seed {seed}"
    assert good > 5, f"seed {seed}"
    assert bad > 5, f"seed {seed}"


def test_the_run_is_taken():
    """Guards the fast path itself: without it the test above would compare less than it says."""
    data = bytes(build_batch([Record(0, NOW, b"key", b"v" * 100)] * 60)[BATCH_OVERHEAD:])
    size = len(data) // 60
    assert records_scan._run(data, 0, size, 0, 60, 0, 0) == (59, 0, 0)
    # One record with another layout of the same length ends it.
    other = bytearray(data)
    other[30 * size + 4 : 30 * size + 8] = unhex("04 6b6579")
    assert records_scan._run(bytes(other), 0, size, 0, 60, 0, 0)[0] == 0
    # Headers end it, even if they close with a zero byte as "no headers" does.
    headed = bytes(build_batch([Record(0, NOW, b"key", b"v", (("h", b"\x00"),))] * 60)[BATCH_OVERHEAD:])
    assert records_scan._run(headed, 0, len(headed) // 60, 0, 60, 0, 0)[0] == 0
    assert validate_records(batch_around(headed, 60)).consecutive


def usual_records(rng: random.Random, count: int) -> list[Record]:
    """Of mixed sizes, from a busy producer."""
    sizes = rng.choice([(60, 140), (500, 1500), (40, 90), (8000, 8300)])
    times = rng.choice([20, 40, 5000])
    return [Record(0, NOW + i * times // count, b"k%d" % (i % 50), bytes(rng.randint(*sizes))) for i in range(count)]


def test_the_hop_is_taken():
    rng = random.Random(1)
    for count in (10, 63, 64, 67, 500, 8191, 8192, 8200):
        records = [Record(0, NOW - i % 3, b"key", rng.randbytes(rng.randint(60, 140))) for i in range(count)]
        batch = build_batch(records)
        data = bytes(batch[BATCH_OVERHEAD:])
        narrow = min(count, 64) - 1
        _, first = record_bounds(batch)[0]
        hopped, position, low, high = records_scan._hop(data, first - BATCH_OVERHEAD, 1, count, 0, 0)
        assert (hopped, low, high) == (narrow, -2, 0)
        if count > 64:
            hopped, position, low, high = records_scan._hop(data, position, 64, count, 0, 0)
            assert (hopped, low, high) == (min(count, 8192) - 64, -2, 0)
        assert (position == len(data)) == (count <= 8192)


@pytest.mark.parametrize("seed", range(40))
def test_hops_over_records_that_are_not_all_usual(seed):
    """One of them, at times, is odd or damaged: what iteration says of the batch, the scan says."""
    rng = random.Random(seed)
    good = bad = 0
    for _ in range(25):
        records = usual_records(rng, rng.choice([20, 70, 150]))
        at = rng.randrange(len(records))
        odd = [b"", None, b"x" * 63, b"x" * 20_000]
        records[at] = rng.choice([records[at], Record(0, NOW, rng.choice(odd), rng.choice(odd), [("h", b"")])])
        batch = build_batch(records)
        start, end = rng.choice(record_bounds(batch))
        if rng.random() < 0.7:
            batch[rng.choice([start + rng.randrange(12), end - 1])] = rng.choice([0, 1, 2, 127, 128, 129, 255])
        with_crc(batch)
        try:
            read = list(iter_records(batch))
        except CorruptRecords:
            bad += 1
            assert refusal(batch).code is ErrorCode.INVALID_RECORD, f"seed {seed}"
            continue
        good += 1
        consecutive = [record.offset for record in read] == list(range(len(read)))
        expected = Scan(max(-1, *(record.timestamp for record in read)), consecutive)
        assert validate_records(batch) == expected, f"seed {seed}"
    assert good > 3, f"seed {seed}"
    assert bad > 3, f"seed {seed}"


@pytest.mark.parametrize("codec", CODECS)
def test_offset_deltas_are_reported(codec):
    records = [Record(i, NOW, b"k", b"v" * 10) for i in range(100)]
    for wrong in (0, 1, 50, 63, 64, 99):
        changed = [r._replace(offset=r.offset + 1) if r.offset == wrong else r for r in records]
        batch = build_batch(changed, codec=codec, keep_offsets=True)
        assert validate_records(batch).consecutive is False, wrong


@pytest.mark.parametrize("codec", CODECS)
def test_large_compressed_batches_with_odd_offsets_are_refused_before_all_is_read(codec, monkeypatch):
    monkeypatch.setattr(records_scan, "MAX_ODD_RECORDS", 99)
    for count, refused in ((99, False), (100, codec > 0)):
        batch = build_batch([Record(0, NOW, b"k", b"v")] * count, codec=codec, keep_offsets=True)
        if refused:
            assert "offsets are not consecutive" in refusal(batch).message
        else:
            assert validate_records(batch).consecutive is False


# ---- refusals


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 4, 6, 2**31 - 1])
def test_count_that_does_not_fit(codec, count):
    batch = build_batch([Record(0, NOW, b"k", b"v" * 5)] * 5, codec=codec)
    struct.pack_into(">i", batch, 57, count)
    error = refusal(with_crc(batch))
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == ()


GOOD = "10 00 00 00 02 6b 02 76 00"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "record",
    [
        "",
        "0e 00 00 00 02 6b 02 76 00",  # announced too short
        "12 00 00 00 02 6b 02 76 00",  # announced too long: beyond the data
        "12 00 00 00 02 6b 02 76 00 00",  # a byte left over
        "0f 00 00 00 02 6b 02 76 00",  # a negative length
        "ffffffff0f 00 00 00 02 6b 02 76 00",
        "ffffffffff 10 00 00 00 02 6b 02 76 00",  # a varint without end
        "10 00 00 00 04 6b 02 76 00",  # key length one too many
        "10 00 00 00 40 6b 02 76 00",  # key beyond the record
        "10 00 00 00 02 6b 40 76 00",
        "10 00 00 00 02 6b 02 76 02",  # a header that is not there
        "10 00 00 00 02 6b 02 76 01",  # minus one headers
        "14 00 00 00 02 6b 02 76 02 01 00",  # a header with null key
        "16 00 00 00 02 6b 02 76 ffff03 00",  # more headers than bytes
        "10 00 00 00 02 6b 02 76",
        "10 00",
        "10",
        "80",
    ],
)
def test_bad_structure(codec, record):
    assert validate_records(batch_around(unhex(GOOD), 1, codec=codec)) == Scan(NOW, True)
    for data, count in ((unhex(record), 1), (unhex(GOOD) + unhex(record), 2)):
        error = refusal(batch_around(data, count, codec=codec))
        assert error.code is ErrorCode.INVALID_RECORD


def test_negative_lengths_are_null():
    """As in Apache Kafka, any negative length of key or value stands for null."""
    batch = batch_around(unhex("0c 00 00 00 05 09 00") + unhex("0e 00 00 02 02 6b 0b 00"), 2)
    read = list(iter_records(batch))
    assert [(record.key, record.value) for record in read] == [(None, None), (b"k", None)]
    assert validate_records(batch) == Scan(NOW, True)
    assert refusal(batch, keys_required=True).record_errors[0][0] == 0


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_undecodable(codec):
    batch = build_batch(some_records(random.Random(1), 5), codec=codec)
    for position in range(BATCH_OVERHEAD, BATCH_OVERHEAD + 8):
        broken = bytearray(batch)
        broken[position] ^= 0x55
        try:
            validate_records(with_crc(broken))
        except RecordsRefused as exc:
            assert exc.code is ErrorCode.INVALID_RECORD  # noqa: PT017 (some bytes are not looked at by some codecs)
    assert refusal(with_crc(batch[:-1])).code is ErrorCode.INVALID_RECORD


def test_unknown_codec_and_linked_lz4():
    for codec in (5, 6, 7):
        batch = build_batch([Record()])
        batch[22] |= codec
        with pytest.raises(KafkaError) as caught:
            validate_records(with_crc(batch))
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    batch = build_batch([Record(0, NOW, b"k", bytes(100_000))])
    linked = lz4.frame.compress(
        bytes(batch[BATCH_OVERHEAD:]), block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True
    )
    batch[BATCH_OVERHEAD:] = linked
    batch[22] |= 3
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    assert len(list(iter_records(with_crc(batch)))) == 1  # reading takes what refusing does not let in
    assert "linked" in str(refusal(batch).message)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_missing_keys(codec, count):
    records = [Record(0, NOW, b"key", b"value")] * count
    for missing in {0, count // 2, count - 1}:
        mixed = [*records[:missing], Record(0, NOW, None, b"value"), *records[missing + 1 :]]
        batch = build_batch(mixed, codec=codec)
        assert validate_records(batch).consecutive
        error = refusal(batch, keys_required=True)
        assert error.code is ErrorCode.INVALID_RECORD
        assert [index for index, _ in error.record_errors] == [missing]
    assert validate_records(build_batch(records, codec=codec), keys_required=True).consecutive


def test_timestamps_out_of_bounds():
    records = [Record(0, NOW + i, b"k", b"v") for i in range(50)]
    batch = build_batch(records)
    assert validate_records(batch, oldest_ms=NOW, newest_ms=NOW + 49) == Scan(NOW + 49, True)
    error = refusal(batch, newest_ms=NOW + 47)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [48, 49]
    assert refusal(batch, oldest_ms=NOW + 2).record_errors[-1][0] == 1
    # A missing key and a timestamp: the timestamp names the error, both are listed.
    batch = build_batch([Record(0, NOW), Record(0, NOW + 9, b"k")])
    error = refusal(batch, keys_required=True, newest_ms=NOW)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_no_timestamp_passes_all_bounds():
    batch = build_batch([Record(0, -1, b"k", b"v"), Record(0, -1, b"k", b"v")])
    assert validate_records(batch, oldest_ms=NOW, newest_ms=NOW + 10) == Scan(-1, True)
    batch = build_batch([Record(0, -1, b"k", b"v"), Record(0, NOW, b"k", b"v")])
    assert validate_records(batch, oldest_ms=NOW, newest_ms=NOW + 10) == Scan(NOW, True)
    assert refusal(batch, oldest_ms=NOW + 1).record_errors[0][0] == 1


def test_overflowing_timestamps():
    batch = build_batch([Record(0, 2**63 - 1, b"k"), Record(0, -(2**63), b"k")])
    assert validate_records(batch) == Scan(2**63 - 1, True)
    assert refusal(batch, oldest_ms=0).record_errors[0][0] == 1


def test_record_errors_are_bounded():
    error = refusal(build_batch([Record(0, NOW)] * 5000), keys_required=True)
    assert len(error.record_errors) == records_scan.MAX_RECORD_ERRORS


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bomb(codec):
    batch = build_batch([Record(0, NOW, b"k", bytes(3_000_000))], codec=codec)
    assert validate_records(batch).consecutive
    assert refusal(batch, max_bytes=1_000_000).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(10))
def test_mutations_end_in_a_verdict(codec, seed):
    rng = random.Random(seed * 10 + codec)
    batch = build_batch(some_records(rng, rng.randrange(1, 60), plain=rng.random() < 0.5), codec=codec)
    for _ in range(100):
        broken = bytearray(batch)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(17, len(broken))] = rng.randrange(256)
        try:
            scan = validate_records(
                with_crc(broken), keys_required=True, oldest_ms=0, newest_ms=NOW * 2, max_bytes=4_000_000
            )
        except KafkaError:
            continue
        assert isinstance(scan, Scan), f"seed {seed}"


# ---- the header check


def header_refusal(batch, **options) -> ErrorCode:
    with pytest.raises(RecordsRefused) as caught:
        check_client_header(read_header(batch), **options)
    return caught.value.code


def test_good_headers():
    records = [Record(0, NOW, b"k"), Record(0, NOW + 5, b"k")]
    check_client_header(read_header(build_batch(records)))
    check_client_header(
        read_header(build_batch(records, codec=4, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))
    )
    check_client_header(read_header(build_batch(records)), oldest_ms=NOW + 5, newest_ms=NOW + 5)
    check_client_header(read_header(build_batch(records)), log_append_time=True, oldest_ms=NOW + 6, newest_ms=NOW + 4)
    check_client_header(read_header(build_batch([Record()])), oldest_ms=NOW)


def test_bad_headers():
    records = [Record(0, NOW, b"k"), Record(0, NOW + 5, b"k")]
    invalid = ErrorCode.INVALID_RECORD
    assert header_refusal(build_batch(records, base_offset=1)) is invalid
    assert header_refusal(build_batch(records, control=True)) is invalid
    assert header_refusal(build_batch(records, producer_id=5, producer_epoch=0)) is invalid
    assert header_refusal(build_batch(records, last_offset_delta=2)) is invalid
    assert header_refusal(build_batch([], last_offset_delta=-1)) is invalid
    assert header_refusal(build_batch([], last_offset_delta=0)) is invalid
    assert header_refusal(build_batch(records, last_offset_delta=-(2**31))) is invalid
    time = ErrorCode.INVALID_TIMESTAMP
    assert header_refusal(build_batch(records, log_append_time_ms=NOW)) is time
    assert header_refusal(build_batch(records, log_append_time_ms=NOW), log_append_time=True) is time
    assert header_refusal(build_batch(records), newest_ms=NOW + 4) is time
    assert header_refusal(build_batch(records), oldest_ms=NOW + 6) is time
