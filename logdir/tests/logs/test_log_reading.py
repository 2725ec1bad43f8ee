"""PartitionLog: reading, rolling, retention, truncation."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import Record, build_batch, read_header
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, PartitionLog
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, put, stored


def make(**config: object) -> PartitionLog:
    return open_dir(MemoryDisk()).open_or_create("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]


# ---- reading


def test_where_a_read_ends() -> None:
    log = make(index_interval_bytes=0)
    sizes = []
    for number in range(10):
        buf = batch("v" * 100 * (number + 1))
        sizes.append(len(buf))
        log.append(buf, leader_epoch=0, now_ms=NOW)
    log.write()

    def read(offset: int, max_bytes: int, upper: int = 10, whole: bool = True) -> tuple[int, int] | None:
        found = log.read(offset, max_bytes, upper_offset=upper, min_one_batch=whole)
        return (found.position, found.length) if found else None

    starts = [sum(sizes[:number]) for number in range(11)]
    assert read(0, 1 << 20) == (0, starts[10])
    assert read(3, 1 << 20) == (starts[3], starts[10] - starts[3])
    assert read(3, 1 << 20, upper=7) == (starts[3], starts[7] - starts[3])
    assert read(3, sizes[3] + 5) == (starts[3], sizes[3] + 5), "may cut the second batch"
    assert read(3, 5) == (starts[3], sizes[3]), "the first one is whole"
    assert read(3, 5, whole=False) is None
    assert read(3, sizes[3] - 1, whole=False) is None
    assert read(3, sizes[3], whole=False) == (starts[3], sizes[3])
    assert read(7, 100, upper=7) is None
    assert read(10, 100) is None
    for offset in (-1, 11):
        with pytest.raises(KafkaError) as caught:
            read(offset, 100, upper=5)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_stays_in_its_segment() -> None:
    log = make(segment_bytes=400)
    for _ in range(20):
        put(log, "v" * 50)
    assert log.segment_count == 7
    found = log.read(1, 1 << 20, upper_offset=20, min_one_batch=True)
    assert found is not None
    assert found.position > 0
    assert found.position + found.length == found.file.disk.size(found.fd)
    assert [header.base_offset for header, _ in stored(log)] == list(range(20))
    assert [header.base_offset for header, _ in stored(log, 11, max_bytes=1)] == list(range(11, 20))


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    log = make()
    put(log, *"abcdef")
    put(log, *"ghij")
    found = log.read(4, 1 << 20, upper_offset=10, min_one_batch=True)
    assert found is not None
    assert found.position == 0
    assert log.read(8, 1 << 20, upper_offset=10, min_one_batch=True) is not None


def test_gaps_are_read_over() -> None:
    log = make(segment_bytes=300)
    for base in (0, 10, 20, 30, 40, 50):
        log.append(batch("v" * 60, base_offset=base), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
        log.write()
    assert log.segment_count > 2
    for offset in range(51):
        found = log.read(offset, 1, upper_offset=51, min_one_batch=True)
        assert found is not None
        assert read_header(found.read()).base_offset == -(-offset // 10) * 10, offset


def test_a_slice_outlives_its_segment() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log = log_dir.open_or_create(
        "t", 0, TOPIC_ID, LogConfig(segment_bytes=200, retention_bytes=0, file_delete_delay_ms=0)
    )
    put(log, "first")
    found = log.read(0, 1000, upper_offset=1, min_one_batch=True)
    assert found is not None
    for _ in range(5):
        put(log, "x" * 100)
    assert log.retain(NOW) > 0
    log_dir.removals.remove(log_dir.removals.take(NOW))
    assert log.log_start_offset > 0
    assert b"first" in found.read()
    fd = found.fd
    assert fd in disk.open_files
    del found
    assert fd not in disk.open_files, "closed with the last reference"


@pytest.mark.parametrize("reopen", [False, True])
def test_offset_for_timestamp(reopen: bool) -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, config)
    rng = random.Random(3)
    times = []
    for _ in range(60):
        records = [
            Record(timestamp=NOW + rng.randint(-50, 50) + len(times), value=b"v" * 20) for _ in range(rng.randint(1, 4))
        ]
        times += [record.timestamp for record in records]
        log.append(build_batch(records), leader_epoch=1, now_ms=NOW)
        log.write()
    if reopen:
        log_dir.close()
        log = open_dir(disk, config=config).open_or_create("t", 0, TOPIC_ID, config)
    for target in range(NOW - 60, NOW + len(times) + 60):
        # Segments are asked in order, and in the first that has a late enough record the first such batch counts.
        expected = next(((time, offset, 1) for offset, time in enumerate(times) if time >= target), None)
        assert log.offset_for_timestamp(target) == expected, target - NOW
    newest = max(times)
    assert log.offset_of_max_timestamp() == (newest, times.index(newest), 1)
    assert log.offset_for_timestamp(newest + 1) is None


def test_timestamps_of_an_empty_log() -> None:
    log = make()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


# ---- rolling


def test_roll_by_age_of_the_first_record() -> None:
    log = make(segment_ms=1000)
    put(log, "a", timestamp=NOW)
    put(log, "b", timestamp=NOW + 1000)
    assert log.segment_count == 1
    put(log, "c", timestamp=NOW + 1001)
    assert log.segment_bases == [0, 2]
    put(log, "d", timestamp=NOW + 2001, now_ms=NOW + 99_999)
    assert log.segment_bases == [0, 2], "the clock does not count while records have timestamps"


def test_roll_by_age_of_the_segment_without_timestamps() -> None:
    log = make(segment_ms=1000)
    put(log, "a", timestamp=-1)
    put(log, "b", timestamp=-1, now_ms=NOW + 1000)
    assert log.segment_count == 1
    put(log, "c", timestamp=-1, now_ms=NOW + 1001)
    assert log.segment_bases == [0, 2]


def test_roll_by_age_after_reopening() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    config = LogConfig(segment_ms=1000)
    put(log_dir.open_or_create("t", 0, TOPIC_ID, config), "a", timestamp=NOW)
    log_dir.close()
    log = open_dir(disk, config=config).open_or_create("t", 0, TOPIC_ID, config)
    put(log, "b", timestamp=NOW + 1000)
    assert log.segment_bases == [0]
    put(log, "c", timestamp=NOW + 1001)
    assert log.segment_bases == [0, 2]


def test_roll_when_an_index_is_full() -> None:
    log = make(index_interval_bytes=0, segment_index_bytes=80)
    for number in range(30):
        put(log, "x", timestamp=NOW + number)
    # 80 bytes are ten offsets or six times, one of which is kept for closing; the first batch has none.
    assert log.segment_bases == [0, 6, 12, 18, 24]
    assert len(stored(log)) == 30


def test_roll_before_relative_offsets_overflow() -> None:
    log = make()
    for base in (0, 2**31 - 1, 2**31, 2**33):
        log.append(batch("x", base_offset=base), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
        log.write()
    assert log.segment_bases == [0, 2**31, 2**33]


def test_rolling_twice_makes_no_empty_segment() -> None:
    log = make()
    put(log, "a")
    log.roll(NOW)
    log.roll(NOW)
    assert log.segment_bases == [0, 1]
    put(log, "b")
    assert len(stored(log)) == 2


# ---- retention, deletion, truncation


def test_retention_by_time_rolls_the_active_segment() -> None:
    log = make(retention_ms=1000, segment_bytes=200)
    for number in range(4):
        put(log, "x" * 60, timestamp=NOW + number)
    assert log.retain(NOW + 1000) == 0
    assert log.retain(NOW + 1002) == 2
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    assert log.retain(NOW + 99_999) == 2
    assert (log.log_start_offset, log.log_end_offset, log.segment_bases) == (4, 4, [4])
    assert log.retain(NOW + 99_999) == 0
    assert put(log, "again") == 4


def test_retention_stops_at_the_high_watermark() -> None:
    log = make(retention_ms=1000, segment_bytes=200)
    for number in range(4):
        put(log, "x" * 60, timestamp=NOW + number)
    assert log.retain(NOW + 99_999, high_watermark=2) == 2
    assert log.log_start_offset == 2


def test_retention_by_size() -> None:
    log = make(retention_bytes=400, segment_bytes=200)
    for number in range(6):
        put(log, "x" * 60, timestamp=NOW + number)
    size = log.size
    log.retain(NOW)
    assert log.segment_bases[0] == (size - 400) // (size // 6)
    assert log.size >= 400


def test_a_compacted_topic_is_not_shortened() -> None:
    log = make(cleanup_policy=frozenset({"compact"}), retention_ms=1, segment_bytes=200)
    for _ in range(4):
        put(log, "x" * 60, keys=[b"k"])
    assert log.retain(NOW + 99_999) == 0


def test_delete_records() -> None:
    log = make(segment_bytes=200)
    for _ in range(6):
        put(log, "x" * 60, leader_epoch=1)
    assert log.delete_records(3, 5) == 3
    with pytest.raises(KafkaError) as caught:
        log.read(2, 100, upper_offset=6, min_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.delete_records(6, 5)
    with pytest.raises(KafkaError):
        log.delete_records(-2, 5)
    assert log.retain(NOW) == 3
    assert log.segment_bases == [3, 4, 5]
    assert log.epochs.entries == ((1, 3),)
    assert log.delete_records(-1, 6) == 6
    assert log.delete_records(2, 6) == 6, "never backwards"
    assert log.offset_for_timestamp(0) is None


def test_truncation_takes_whole_batches_and_their_producer_state() -> None:
    log = make(segment_bytes=300, index_interval_bytes=0)
    for number in range(12):
        put(log, "x" * 30, "y", producer=(5, 0, 2 * number), leader_epoch=number // 4)
    assert log.truncate_to(30, NOW) is False
    assert log.truncate_to(11, NOW) is True, "inside of the batch of 10 and 11"
    assert (log.next_offset, log.log_end_offset) == (10, 10)
    assert log.producers.entries[5].last_sequence == 9
    assert log.epochs.entries == ((0, 0), (1, 8))
    assert put(log, "z", producer=(5, 0, 10), leader_epoch=7) == 10
    assert [header.base_offset for header, _ in stored(log)] == [0, 2, 4, 6, 8, 10]
    log.truncate_to(0, NOW)
    assert (log.log_start_offset, log.log_end_offset, log.producer_count) == (0, 0, 0)
    assert put(log, "z", producer=(5, 0, 1000)) == 0


def test_truncate_fully() -> None:
    log = make()
    put(log, "x", producer=(5, 0, 0))
    log.truncate_fully(500, NOW)
    assert (log.log_start_offset, log.log_end_offset, log.segment_bases) == (500, 500, [500])
    assert put(log, "y") == 500
    assert log.truncate_to(100, NOW) is True
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


def test_epochs_of_leaders() -> None:
    log = make()
    log.assign_leader_epoch(3)
    put(log, "a", leader_epoch=3)
    put(log, "b", leader_epoch=3)
    log.assign_leader_epoch(5)
    put(log, "c", leader_epoch=5)
    assert log.latest_epoch == 5
    assert log.end_offset_for_epoch(5) == (5, 3)
    assert log.end_offset_for_epoch(4) == (3, 2)
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.end_offset_for_epoch(2) == (2, 0)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    assert log.end_offset_for_epoch(-1) == (-1, -1)


def test_flush_messages() -> None:
    disk = MemoryDisk()
    log = open_dir(disk).open_or_create("t", 0, TOPIC_ID, LogConfig(flush_messages=3))
    put(log, "a")
    put(log, "b")
    assert not log.flush_due
    put(log, "c")
    assert (log.flush_due, log.recovery_point) == (True, 0)
    log.flush()
    assert (log.flush_due, log.recovery_point) == (False, 3)


def test_idle_logs_hold_no_descriptors() -> None:
    disk = MemoryDisk()
    log_dir: LogDir = open_dir(disk, max_open_files=8)
    logs = [log_dir.open_or_create("t", number, TOPIC_ID, LogConfig(segment_bytes=300)) for number in range(40)]
    for _ in range(3):
        for log in logs:
            put(log, "x" * 100, leader_epoch=1)
    assert len(disk.open_files) <= 9
    for log in logs:
        assert [header.base_offset for header, _ in stored(log)] == [0, 1, 2]
        assert log.offset_for_timestamp(NOW) == (NOW, 0, 1)
    assert len(disk.open_files) <= 9
    log_dir.close()
    log_dir = open_dir(disk, max_open_files=8)
    assert len(disk.open_files) == 1, "the lock"
    assert all(len(stored(log)) == 3 for _, log in log_dir)


def test_clean_reopen() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig(segment_bytes=300, index_interval_bytes=0))
    for number in range(10):
        put(log, "x" * 50, producer=(7, 2, number), leader_epoch=number // 3)
    before = (log.segment_bases, stored(log), log.epochs.entries, log.producers.entries[7].last_sequence)
    log_dir.close()
    again = open_dir(disk)
    assert again.was_clean
    log = again.logs["t", 0]
    assert (log.segment_bases, stored(log), log.epochs.entries, log.producers.entries[7].last_sequence) == before
    assert (log.recovery_point, log.topic_id) == (10, TOPIC_ID)
    put(log, "y", producer=(7, 2, 10))
