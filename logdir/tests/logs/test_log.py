"""PartitionLog: appending, what it refuses, producers and transactions."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import RecordsRefused, build_control_batch, iter_records, read_header
from barnabas.logdir import AppendOrigin, LogConfig, PartitionLog, UnexpectedOffset
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, put, stored


def make(**config: object) -> PartitionLog:
    return open_dir(MemoryDisk()).open_or_create("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]


def refused(log: PartitionLog, buf: bytearray, **options: object) -> KafkaError:
    before = (log.next_offset, log.log_end_offset, dict(log.producers.entries))
    with pytest.raises(KafkaError) as caught:
        log.append(buf, leader_epoch=0, now_ms=NOW, **options)  # type: ignore[arg-type]
    assert (log.next_offset, log.log_end_offset, dict(log.producers.entries)) == before
    return caught.value


# ---- appending


def test_offsets_and_epoch_are_put_into_the_callers_buffer() -> None:
    log = make()
    put(log, "a", "b", leader_epoch=4)
    buf = batch("c", "d", "e")
    info = log.append(memoryview(buf), leader_epoch=5, now_ms=NOW)
    assert (info.base_offset, info.last_offset, info.log_append_time_ms, info.duplicate) == (2, 4, -1, False)
    header = read_header(buf)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 5)
    assert (log.next_offset, log.log_end_offset) == (5, 2), "staged, not written"
    assert log.read(2, 100, upper_offset=5, min_one_batch=True) is None
    log.write()
    assert log.log_end_offset == 5
    assert [data for _, data in stored(log, 2)] == [bytes(buf)]
    assert log.epochs.entries == ((4, 0), (5, 2))


def test_one_write_for_many_batches() -> None:
    disk = MemoryDisk()
    log = open_dir(disk).open_or_create("t", 0, TOPIC_ID, LogConfig())
    log.make_files()
    writes = []
    disk.on_call = lambda name, path: writes.append(path) if name == "pwritev" else None
    for number in range(10):
        log.append(batch(str(number)), leader_epoch=0, now_ms=NOW)
    log.write()
    assert len(writes) == 1
    assert [header.base_offset for header, _ in stored(log)] == list(range(10))


def test_more_buffers_than_one_system_call_takes() -> None:
    log = make()
    for number in range(3000):
        log.append(batch(str(number)), leader_epoch=0, now_ms=NOW)
    log.write()
    values = [record.value for _, data in stored(log) for record in iter_records(data)]
    assert values == [str(number).encode() for number in range(3000)]


def test_short_writes_are_continued() -> None:
    disk = MemoryDisk()
    log = open_dir(disk).open_or_create("t", 0, TOPIC_ID, LogConfig())
    disk.short_writes = random.Random(1)
    for number in range(50):
        log.append(batch(str(number) * 50), leader_epoch=0, now_ms=NOW)
    log.write()
    assert len(stored(log)) == 50


@pytest.mark.parametrize(
    ("name", "spoil", "code"),
    [
        ("nothing", lambda b: b[:0], ErrorCode.INVALID_RECORD),
        ("ten bytes", lambda b: b[:10], ErrorCode.CORRUPT_MESSAGE),
        ("cut off", lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
        ("bad checksum", lambda b: b[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        ("two batches", lambda b: b + b, ErrorCode.INVALID_RECORD),
        ("base offset", lambda b: b"\0" * 7 + b"\x01" + b[8:], ErrorCode.INVALID_RECORD),
        ("format 1", lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.INVALID_RECORD),
        ("negative length", lambda b: b[:8] + b"\xff" * 4 + b[12:], ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_refused_shapes(name: str, spoil: object, code: ErrorCode) -> None:
    assert refused(make(), bytearray(spoil(bytes(batch("one", "two"))))).code == code, name  # type: ignore[operator]


def test_refused_headers_and_records() -> None:
    log = make()
    assert refused(log, batch("x", control=True)).code == ErrorCode.INVALID_RECORD
    assert refused(log, batch("x", log_append_time_ms=NOW)).code == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch("x", producer=(1, 0, -1))).code == ErrorCode.INVALID_RECORD
    far = batch("x", timestamp=NOW + 3_600_001)
    error = refused(log, far)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordsRefused)
    assert [index for index, _ in error.record_errors] == [0]
    assert refused(make(max_message_bytes=80), batch("x" * 20)).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(make(segment_bytes=80), batch("x" * 20)).code == ErrorCode.RECORD_LIST_TOO_LARGE
    error = refused(make(cleanup_policy=frozenset({"compact"})), batch("x", "y", keys=[b"k", None]))
    assert isinstance(error, RecordsRefused)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_RECORD, [1])
    old = make(message_timestamp_before_max_ms=1000)
    assert refused(old, batch("x", timestamp=NOW - 1001)).code == ErrorCode.INVALID_TIMESTAMP
    put(old, "x", timestamp=NOW - 1000)


def test_size_is_checked_before_the_checksum_and_the_checksum_before_the_header() -> None:
    log = make(max_message_bytes=100)
    assert refused(log, bytearray(bytes(batch("x" * 100))[:-1] + b"?")).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, bytearray(bytes(batch("x", control=True))[:-1] + b"?")).code == ErrorCode.CORRUPT_MESSAGE


def test_a_record_that_does_not_fit_its_batch_is_refused_if_records_are_validated() -> None:
    lie = bytearray(batch("one", "two"))
    struct.pack_into(">i", lie, 23, 2)
    struct.pack_into(">i", lie, 57, 3)
    from barnabas.kproto.crc32c import crc32c

    struct.pack_into(">I", lie, 17, crc32c(memoryview(lie)[21:]))
    assert refused(make(), bytearray(lie)).code == ErrorCode.INVALID_RECORD
    trusting = make(validate_records=False)
    assert trusting.append(lie, leader_epoch=0, now_ms=NOW).last_offset == 2


def test_a_wrong_max_timestamp_is_put_right() -> None:
    lie = batch("one", "two")
    from barnabas.kproto.records import stamp_max_timestamp

    stamp_max_timestamp(lie, 0, NOW + 77)
    log = make()
    log.append(lie, leader_epoch=0, now_ms=NOW)
    log.write()
    header, data = stored(log)[0]
    assert header.max_timestamp == NOW
    assert [record.timestamp for record in iter_records(data)] == [NOW, NOW]
    from barnabas.kproto.records import check_batch

    check_batch(data)


def test_log_append_time() -> None:
    log = make(message_timestamp_type="LogAppendTime")
    info = log.append(batch("x", "y", timestamp=5), leader_epoch=0, now_ms=NOW)
    log.write()
    assert info.log_append_time_ms == NOW
    assert [record.timestamp for record in iter_records(stored(log)[0][1])] == [NOW, NOW]
    assert log.offset_for_timestamp(NOW) == (NOW, 0, 0)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_topics_codec(codec: int) -> None:
    name = ["uncompressed", "gzip", "snappy", "lz4", "zstd"][codec]
    log = make(compression_type=name)
    for given in (0, 1, 4):
        log.append(
            batch("x" * 100, "y" * 100, codec=given, producer=(9, 0, 2 * log.next_offset // 2)),
            leader_epoch=0,
            now_ms=NOW,
        )
    log.write()
    assert [header.codec for header, _ in stored(log)] == [codec] * 3
    assert [header.base_sequence for header, _ in stored(log)] == [0, 2, 4]
    values = [record.value for _, data in stored(log) for record in iter_records(data)]
    assert values == [b"x" * 100, b"y" * 100] * 3


def test_a_batch_too_large_after_recompression_is_refused() -> None:
    log = make(compression_type="uncompressed", max_message_bytes=500)
    assert refused(log, batch("x" * 1000, codec=1)).code == ErrorCode.MESSAGE_TOO_LARGE


def test_changed_configuration_counts_at_once() -> None:
    log = make()
    put(log, "x" * 100)
    log.config = LogConfig(max_message_bytes=100)
    assert refused(log, batch("x" * 100)).code == ErrorCode.MESSAGE_TOO_LARGE


# ---- other origins


def test_the_coordinator_appends_several_batches_at_once() -> None:
    log = make()
    put(log, "first")
    buf = batch("a", "b") + build_control_batch(
        producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=1, timestamp=NOW
    )
    info = log.append(buf, leader_epoch=2, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.write()
    assert (info.base_offset, info.last_offset) == (1, 3)
    assert [(h.base_offset, h.partition_leader_epoch, h.is_control) for h, _ in stored(log)] == [
        (0, 0, False),
        (1, 2, False),
        (3, 2, True),
    ]


def test_replicated_batches_keep_offsets_and_epochs() -> None:
    log = make()
    buf = batch("a", "b", base_offset=10, leader_epoch=3) + batch("c", base_offset=15, leader_epoch=4)
    info = log.append(buf, leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    log.write()
    assert (info.base_offset, info.last_offset, log.log_end_offset) == (10, 15, 16)
    assert log.epochs.entries == ((3, 10), (4, 15))
    assert [header.base_offset for header, _ in stored(log)] == [10, 15]
    with pytest.raises(UnexpectedOffset) as caught:
        log.append(batch("d", base_offset=12), leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert (caught.value.first_offset, caught.value.last_offset) == (12, 12)
    bad = batch("e", base_offset=20) + batch("f", base_offset=20)
    with pytest.raises(UnexpectedOffset):
        log.append(bad, leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert log.next_offset == 16


def test_several_batches_roll_in_between() -> None:
    log = make(segment_bytes=200)
    buf = b"".join(bytes(batch("x" * 60)) for _ in range(5))
    log.append(bytearray(buf), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.write()
    assert log.log_end_offset == 5
    assert log.segment_count == 5
    assert len(stored(log)) == 5


# ---- producers


def test_duplicates_get_the_old_offset_within_five_batches() -> None:
    log = make()
    for sequence in range(6):
        put(log, str(sequence), producer=(5, 0, sequence), timestamp=NOW + sequence)
    for sequence in range(1, 6):
        info = log.append(batch("again", producer=(5, 0, sequence)), leader_epoch=0, now_ms=NOW)
        assert (info.base_offset, info.last_offset, info.log_append_time_ms, info.duplicate) == (
            sequence,
            sequence,
            NOW + sequence,
            True,
        )
    assert log.next_offset == log.log_end_offset == 6
    assert refused(log, batch("0", producer=(5, 0, 0))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_of_a_staged_batch() -> None:
    log = make()
    log.append(batch("a", producer=(5, 0, 0)), leader_epoch=0, now_ms=NOW)
    assert log.append(batch("a", producer=(5, 0, 0)), leader_epoch=0, now_ms=NOW).duplicate
    log.write()
    assert log.log_end_offset == 1


def test_sequence_and_epoch_rules() -> None:
    log = make()
    put(log, "x", producer=(5, 3, 17))  # unknown: any sequence
    assert refused(log, batch("x", producer=(5, 3, 19))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, batch("x", producer=(5, 2, 18))).code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch("x", producer=(5, 4, 18))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(log, "x", producer=(5, 4, 0))
    put(log, "x", producer=(6, 0, 2**31 - 1))
    put(log, "x", producer=(6, 0, 0))
    put(log, "x", "y", producer=(7, 0, 2**31 - 1))
    put(log, "x", producer=(7, 0, 1))


def test_producers_expire_but_not_in_a_transaction() -> None:
    log = make()
    put(log, "x", producer=(5, 0, 0), timestamp=NOW)
    put(log, "x", producer=(6, 0, 0), timestamp=NOW, transactional=True)
    put(log, "x", producer=(7, 0, 0), timestamp=NOW + 1)
    assert log.expire_producers(NOW + 1000, 1000) == 1
    assert sorted(log.producers.entries) == [6, 7]
    put(log, "x", producer=(5, 0, 99))


def test_transactions_and_the_last_stable_offset() -> None:
    log = make()
    put(log, "plain")
    assert log.first_unstable_offset is None
    put(log, "a", producer=(5, 0, 0), transactional=True)
    put(log, "b", producer=(6, 0, 0), transactional=True)
    put(log, "c", producer=(5, 0, 1), transactional=True)
    assert (log.first_unstable_offset, log.last_stable_offset(4)) == (1, 1)
    assert refused(log, batch("d", producer=(5, 0, 2))).code == ErrorCode.INVALID_TXN_STATE

    def end(producer: int, commit: bool, epoch: int = 0, coordinator_epoch: int = 3) -> None:
        marker = build_control_batch(
            producer_id=producer,
            producer_epoch=epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=NOW,
        )
        log.append(marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
        log.write()

    end(5, commit=False)
    assert log.first_unstable_offset == 2
    assert log.last_stable_offset(4) == 1, "the marker at 4 is not committed yet"
    assert log.last_stable_offset(5) == 2
    end(6, commit=True)
    assert log.last_stable_offset(6) == 6
    assert [tuple(entry) for entry in log.aborted_transactions(0, 6)] == [(5, 1, 4, 2)]
    assert log.aborted_transactions(5, 6) == []
    with pytest.raises(KafkaError) as caught:
        end(6, commit=True, coordinator_epoch=2)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(6, commit=True, epoch=4)
    with pytest.raises(KafkaError) as caught:
        end(6, commit=True, epoch=3)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    # The epoch of a marker fences, and the next batch of the new epoch starts at 0.
    assert refused(log, batch("d", producer=(6, 4, 5))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(log, "d", producer=(6, 4, 0))
