"""Closed segments that are damaged, or whose indexes are: what retention and look-ups by time make of them."""

from __future__ import annotations

import struct

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import iter_headers
from barnabas.logdir import LogConfig, PartitionLog
from barnabas.logdir.files.index import TimeIndex
from barnabas.logdir.files.layout import file_name
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, Clock, open_dir, put

DAY_MS = 86_400_000
CONFIG = LogConfig(segment_bytes=350, retention_ms=DAY_MS)


def closed(disk: MemoryDisk, *timestamps: int, config: LogConfig = CONFIG) -> None:
    """A log with a batch of 150 bytes or so for each timestamp, stopped cleanly."""
    log_dir = open_dir(disk, config=config)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, config)
    for timestamp in timestamps:
        put(log, "x" * 70, timestamp=timestamp)
    log_dir.close()


def opened(disk: MemoryDisk, now_ms: int = NOW) -> PartitionLog:
    return open_dir(disk, config=CONFIG, clock=Clock(now_ms)).logs["t", 0]


def damage_first_segment(disk: MemoryDisk, mtime_ms: int) -> None:
    """The length of its second batch is nonsense, and it has no indexes."""
    segment = disk.node(f"{PATH}/t-0/{file_name(0, '.log')}")
    second = next(iter_headers(bytes(segment.data)))[1].size
    segment.data[second + 8 : second + 12] = struct.pack(">i", 5)
    segment.mtime_ms = mtime_ms
    for suffix in (".index", ".timeindex"):
        disk.remove(f"{PATH}/t-0/{file_name(0, suffix)}")


def test_retention_goes_by_the_file_where_damage_hides_the_timestamps(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    closed(disk, *range(NOW, NOW + 8))
    damage_first_segment(disk, mtime_ms=NOW + DAY_MS)
    log = opened(disk, NOW + DAY_MS)
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(NOW + 1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE, "whoever needs the records is told"
    assert log.retain(NOW + 2 * DAY_MS) == 0
    assert f"{file_name(0, '.log')}" in caplog.text
    first = log.segment_bases[1]
    assert log.retain(NOW + 2 * DAY_MS + 1) > 0
    assert log.log_start_offset >= first


def test_damage_is_read_once() -> None:
    """Retention looks every five minutes, and a segment may have a gigabyte."""
    disk = MemoryDisk()
    closed(disk, *range(NOW, NOW + 8))
    damage_first_segment(disk, mtime_ms=NOW)
    log = opened(disk)
    assert log.retain(NOW) == 0
    reads: list[str] = []
    disk.on_call = lambda call, path: reads.append(path) if call == "pread" else None
    assert log.retain(NOW) == 0
    assert not [path for path in reads if path.endswith(".log")]


def test_a_time_index_of_one_entry_zero() -> None:
    assert TimeIndex(100, bytes(12)).entries() == [(0, 100)]
    assert TimeIndex(100, bytes(24)).entries() == [], "room that was made in advance"
    disk = MemoryDisk()
    closed(disk, 0)
    assert disk.node(f"{PATH}/t-0/{file_name(0, '.timeindex')}").data == bytes(12)
    log = opened(disk)
    assert log.offset_of_max_timestamp() == (0, 0, 0)
    assert log.offset_for_timestamp(0) == (0, 0, 0)


def test_a_time_index_that_lost_its_content_is_not_believed() -> None:
    """As an entry, its zeros would say that the segment is of 1970, and retention would delete it."""
    disk = MemoryDisk()
    closed(disk, *range(NOW, NOW + 8))
    index = disk.node(f"{PATH}/t-0/{file_name(0, '.timeindex')}")
    assert len(index.data) == 12
    index.data[:] = bytes(12)
    log = opened(disk)
    assert log.retain(NOW) == 0
    assert log.offset_for_timestamp(NOW + 1) == (NOW + 1, 1, 0)


def test_looking_at_indexes_opens_no_log_file() -> None:
    """Retention of many closed segments must not turn the pool of open files over."""
    disk = MemoryDisk()
    closed(disk, *range(NOW, NOW + 8))
    log = opened(disk)
    first = log.state.segments[0]
    calls: list[str] = []
    disk.on_call = lambda call, path: calls.append(path) if call == "open" else None
    first.indexes()
    assert sorted(path.rpartition(".")[2] for path in calls) == ["index", "timeindex"]
