"""LogDir: identity, creating, deleting, checkpoints, closing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import Checkpoint, InconsistentMeta, LogConfig, LogDir, MetaProperties
from barnabas.logdir.files.checkpoint import HIGH_WATERMARK, LOG_START, RECOVERY_POINT, read_offsets
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, Clock, open_dir, put, stored


def names(disk: MemoryDisk, path: str = PATH) -> set[str]:
    return {entry.name for entry in disk.list(path)}


def kill(disk: MemoryDisk) -> None:
    disk.open_files, disk.locked = {}, set()


def test_a_new_directory_becomes_ours() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk, "/var/lib/data/")
    assert log_dir.path == "/var/lib/data"
    log_dir.close()
    assert names(disk, "/var/lib/data") == {
        ".lock",
        ".kafka_cleanshutdown",
        "meta.properties",
        RECOVERY_POINT,
        LOG_START,
        HIGH_WATERMARK,
    }
    other = LogDir("/var/lib/data", wall_ms=Clock(), disk=disk)
    other.open()
    assert other.meta == MetaProperties(0, "test", 1)
    with pytest.raises(InconsistentMeta):
        other.check_identity(cluster_id="test", node_id=2)
    other.unlock()
    other.open()
    other.unlock()


def test_a_directory_of_a_partition_is_seen_before_it_is_opened() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    assert not log_dir.holds_partitions()
    log_dir.open_or_create("a.topic", 3, TOPIC_ID, LogConfig())
    log_dir.close()
    disk.make_dir(f"{PATH}/lost+found")
    assert open_dir(disk).holds_partitions()


def test_an_unreadable_meta_does_not_keep_the_lock() -> None:
    disk = MemoryDisk()
    open_dir(disk).close()
    disk.node(f"{PATH}/meta.properties").data = bytearray(b"version=what\n")
    for _ in range(2):
        with pytest.raises(InconsistentMeta):
            open_dir(disk)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        (b"junk", MetaProperties(0, "c", 3)),
        (b"", MetaProperties(0, "c", 3)),
        (b"version=0\nbroker.id=3\n", MetaProperties(0, "c", 3)),
        (b"version=1\ncluster.id=c\ndirectory.id=d\n", MetaProperties(1, "c", 3, "d")),
    ],
)
def test_a_meta_that_does_not_say_whose_it_is_is_completed(text: bytes, complete: MetaProperties) -> None:
    disk = MemoryDisk()
    open_dir(disk).close()
    place = f"{PATH}/meta.properties"
    disk.node(place).data = bytearray(text)
    log_dir = LogDir(PATH, wall_ms=Clock(), disk=disk)
    log_dir.open()
    log_dir.check_identity(cluster_id=None, node_id=3)
    assert disk.node(place).data == text, "not before the cluster is known"
    log_dir.check_identity(cluster_id="c", node_id=3)
    log_dir.unlock()
    assert MetaProperties.decode(bytes(disk.node(place).data), "x") == complete
    log_dir.open()
    for cluster_id, node_id in (("other", 3), ("c", 4)):
        with pytest.raises(InconsistentMeta):
            log_dir.check_identity(cluster_id=cluster_id, node_id=node_id)


def test_topic_ids() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log_dir.open_or_create("t", 0, None, LogConfig())
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    assert log.topic_id == TOPIC_ID
    with pytest.raises(KafkaError) as caught:
        log_dir.open_or_create("t", 0, bytes(15) + b"\1", LogConfig())
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    log_dir.close()
    assert open_dir(disk).logs["t", 0].topic_id == TOPIC_ID


@pytest.mark.parametrize("damage", [b"", b"\0" * 43, b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_topic_id_is_made_anew(damage: bytes, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    put(log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig()), "a")
    log_dir.checkpoints.write(Checkpoint("recovery-point-offset-checkpoint", 1, {("t", 0): 1}))
    log_dir.close() if clean else kill(disk)
    disk.node(f"{PATH}/t-0/partition.metadata").data[:] = damage
    log_dir = open_dir(disk)
    assert log_dir.logs["t", 0].log_end_offset == 1
    assert f"{PATH}/t-0/partition.metadata" in caplog.text
    log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    log_dir.close()
    assert open_dir(disk).logs["t", 0].topic_id == TOPIC_ID


def test_a_log_of_a_topic_that_is_gone_is_set_aside() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    put(log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig()), "old")
    log_dir.set_stray_aside("t", 0)
    assert log_dir.get("t", 0) is None
    new = log_dir.open_or_create("t", 0, bytes(15) + b"\1", LogConfig())
    assert new.log_end_offset == 0
    put(new, "new")
    log_dir.close()
    (stray,) = [name for name in names(disk) if name.endswith("-stray")]
    assert stray.startswith("t-0.")
    log_dir = open_dir(disk)
    assert list(log_dir.logs) == [("t", 0)]
    assert log_dir.logs["t", 0].log_end_offset == 1
    assert log_dir.removals.next_ms is None, "nobody removes it"


def test_checkpoints_of_any_writer_are_read() -> None:
    """A topic made anew, whose log start is what the old one's was: the file must have it."""
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    for topic_id in (TOPIC_ID, bytes(15) + b"\1"):
        log = log_dir.open_or_create("t", 0, topic_id, LogConfig())
        put(log, "a", "b", "c")
        log.delete_records(2, 3)
        starts = log_dir.checkpoints.log_starts()
        assert not log_dir.checkpoints.is_written(starts)
        log_dir.checkpoints.write(starts)
        assert log_dir.checkpoints.is_written(log_dir.checkpoints.log_starts())
        if topic_id == TOPIC_ID:
            log_dir.delete("t", 0)
    kill(disk)
    assert open_dir(disk).logs["t", 0].log_start_offset == 2


def test_deleting_and_making_again() -> None:
    disk = MemoryDisk()
    clock = Clock()
    log_dir = open_dir(disk, clock=clock)
    config = LogConfig(file_delete_delay_ms=60_000)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, config)
    put(log, "old")
    found = log.read(0, 100, upper_offset=1, min_one_batch=True)
    assert found is not None
    log.delete_records(1, 1)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log_dir.checkpoints.write(log_dir.checkpoints.log_starts())
    log_dir.checkpoints.write(log_dir.checkpoints.high_watermarks({("t", 0): 1}))
    log_dir.delete("t", 0)
    log_dir.delete("t", 0)
    assert log_dir.get("t", 0) is None
    marked = [name for name in names(disk) if name.endswith("-delete")]
    assert len(marked) == 1
    assert "t-0" not in names(disk)
    assert b"old" in found.read()

    log = log_dir.open_or_create("t", 0, bytes(15) + b"\1", config)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    put(log, "new")
    # A crash now must not give the new log the old one's offsets.
    kill(disk)
    log_dir = open_dir(disk, clock=clock)
    log = log_dir.logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    assert b"new" in stored(log)[0][1]
    assert log_dir.removals.next_ms == NOW + 60_000, "found again by its mark"
    assert log_dir.removals.take(NOW + 59_999) == []
    log_dir.removals.remove(log_dir.removals.take(NOW + 60_000))
    assert not any(name.endswith("-delete") for name in names(disk))
    assert log_dir.removals.next_ms is None


def test_removal_of_segments_is_delayed() -> None:
    disk = MemoryDisk()
    clock = Clock()
    log_dir = open_dir(disk, clock=clock)
    config = LogConfig(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=1000)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, config)
    for _ in range(3):
        put(log, "x" * 30)
    log.flush()  # which saves the indexes
    assert log.retain(NOW) == 3
    assert sum(name.endswith(".deleted") for name in names(disk, f"{PATH}/t-0")) == 9
    log_dir.removals.remove(log_dir.removals.take(NOW + 999))
    assert sum(name.endswith(".deleted") for name in names(disk, f"{PATH}/t-0")) == 9
    log_dir.removals.remove(log_dir.removals.take(NOW + 1000))
    assert sum(name.endswith(".deleted") for name in names(disk, f"{PATH}/t-0")) == 0


def test_checkpoints() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        put(log_dir.open_or_create(topic, partition, TOPIC_ID, LogConfig()), "x", "y")
    log_dir.logs["a", 1].flush()
    log_dir.logs["b", 0].delete_records(1, 2)
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log_dir.checkpoints.write(log_dir.checkpoints.log_starts())
    log_dir.checkpoints.write(log_dir.checkpoints.high_watermarks({("a", 0): 1, ("a", 1): 2, ("gone", 0): 9}))
    assert read_offsets(disk, PATH, RECOVERY_POINT) == {("a", 0): 0, ("a", 1): 2, ("b", 0): 0}
    assert read_offsets(disk, PATH, LOG_START) == {("b", 0): 1}
    assert read_offsets(disk, PATH, HIGH_WATERMARK) == {("a", 0): 1, ("a", 1): 2}
    older = log_dir.checkpoints.high_watermarks({("a", 0): 1})
    newer = log_dir.checkpoints.high_watermarks({("a", 0): 2})
    log_dir.checkpoints.write(newer)
    log_dir.checkpoints.write(older)
    assert read_offsets(disk, PATH, HIGH_WATERMARK)[("a", 0)] == 2, "a thread that comes late changes nothing"
    kill(disk)
    log_dir = open_dir(disk)
    assert (log_dir.high_watermark("a", 0), log_dir.high_watermark("a", 1), log_dir.high_watermark("b", 0)) == (2, 2, 1)
    assert log_dir.logs["a", 1].recovery_point == 2


def test_damaged_checkpoints_are_not_used() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    put(log_dir.open_or_create("a", 0, TOPIC_ID, LogConfig()), "x")
    log_dir.close()
    disk.node(f"{PATH}/{RECOVERY_POINT}").data = bytearray(b"what")
    disk.node(f"{PATH}/{HIGH_WATERMARK}").data = bytearray(b"0\n5\n")
    log_dir = open_dir(disk)
    assert log_dir.logs["a", 0].log_end_offset == 1
    assert log_dir.high_watermark("a", 0) == 0


def test_truncation_is_checkpointed_at_once() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log = log_dir.open_or_create("a", 0, TOPIC_ID, LogConfig())
    for _ in range(5):
        put(log, "x")
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log.truncate_to(2, NOW)
    assert read_offsets(disk, PATH, RECOVERY_POINT) == {("a", 0): 2}


def test_strangers_are_left_alone() -> None:
    disk = MemoryDisk()
    open_dir(disk).close()
    for name in ("lost+found", "__cluster_metadata-0", f"t-0.{'a' * 32}-stray", "x"):
        disk.make_dir(f"{PATH}/{name}")
    log_dir = open_dir(disk)
    assert not log_dir.logs
    log_dir.close()
    assert {"lost+found", "__cluster_metadata-0", "x"} <= names(disk)


@pytest.mark.parametrize("count", [3, 20])
def test_a_clean_stop_survives_a_crash_right_after(count: int) -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    for partition in range(count):
        log = log_dir.open_or_create("t", partition, TOPIC_ID, LogConfig(segment_bytes=300))
        for number in range(5):
            put(log, "x" * 80, producer=(5, 0, number), leader_epoch=number)
    before = {key: stored(log) for key, log in log_dir}
    log_dir.close({("t", partition): 5 for partition in range(count)})
    disk.crash(random.Random(count))
    log_dir = open_dir(disk)
    assert log_dir.was_clean
    assert {key: stored(log) for key, log in log_dir} == before
    assert all(log.epochs.latest == 4 and log.producers.entries[5].last_sequence == 4 for _, log in log_dir)
    assert log_dir.high_watermark("t", 0) == 5


def changes_below(disk: MemoryDisk, act: Callable[[], LogDir | None]) -> tuple[Counter[str], LogDir | None]:
    """How often `act` calls what changes or syncs the directories of partitions, by call; and what it returns."""
    found: Counter[str] = Counter()

    def on_call(name: str, path: str) -> None:
        changes = ("pwritev", "truncate", "sync", "sync_dir", "rename", "remove")
        if name == "sync_all" or (name in changes and "/t-" in path):
            found[name] += 1

    disk.on_call = on_call
    result = act()
    disk.on_call = None
    return found, result


@pytest.mark.parametrize("producer", [None, (5, 0, 0)])
def test_starts_and_stops_with_many_logs_change_little(producer: tuple[int, int, int] | None) -> None:
    """Each call here costs a disk that is busy milliseconds, for each of thousands of logs."""
    disk, count = MemoryDisk(), 20
    config = LogConfig(index_interval_bytes=50)
    log_dir = open_dir(disk)
    for partition in range(count):
        log = log_dir.open_or_create("t", partition, TOPIC_ID, config)
        for number in range(3):
            put(log, "x" * 80, producer=producer and (5, 0, number), leader_epoch=1)
    stop, _ = changes_below(disk, log_dir.close)
    snapshots = 1 if producer else 0
    # Two indexes, the leader epochs, and the snapshot of producers if there are any.
    files = 3 + snapshots
    assert stop == {"sync_all": 2, "pwritev": count * files, "truncate": count * files, "rename": count}
    for was_clean in (True, False, False):
        start, opened = changes_below(disk, lambda: open_dir(disk, config=config))
        assert opened is not None
        assert opened.was_clean == was_clean
        assert {log.log_end_offset for log in opened.logs.values()} == {3}
        removed = {"remove": count} if producer and was_clean is False and snapshots else {}
        snapshots = snapshots if was_clean else 0  # it goes with the first recovery
        assert start == ({} if was_clean else {"sync_all": 1, **removed})
        kill(disk)


@pytest.mark.campaign
def test_two_thousand_partitions(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed for comparison: create, write one record into each, stop, start."""
    path = f"{tmp_path}/logs"
    marks = [time.perf_counter()]
    log_dir = open_dir(None, path)
    for number in range(2000):
        log_dir.open_or_create("t", number, TOPIC_ID, LogConfig())
    marks.append(time.perf_counter())
    for _, log in log_dir:
        put(log, "x" * 100, leader_epoch=1)
    marks.append(time.perf_counter())
    log_dir.close()
    marks.append(time.perf_counter())
    log_dir = open_dir(None, path)
    marks.append(time.perf_counter())
    assert len(log_dir.logs) == 2000
    assert all(log.log_end_offset == 1 for _, log in log_dir)
    descriptors = len(os.listdir("/proc/self/fd"))
    log_dir.close()
    marks.append(time.perf_counter())
    steps = [f"{after - before:.2f}" for before, after in pairwise(marks)]
    with capsys.disabled():
        print(f"\n2,000 partitions: create, write, stop, start, stop in {steps} s; {descriptors} descriptors when idle")
    assert descriptors < 100


def test_flushing_in_a_thread_while_everything_else_goes_on(tmp_path: object) -> None:
    """Two threads flush without pause; the loop appends, rolls, retains, truncates, makes and deletes logs."""
    path = f"{tmp_path}/logs"
    log_dir = open_dir(None, path, max_open_files=6)
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100, retention_bytes=6000, file_delete_delay_ms=0)
    logs = [log_dir.open_or_create("t", number, TOPIC_ID, config) for number in range(4)]
    stop = threading.Event()
    errors: list[Exception] = []

    def flush() -> None:
        try:
            while not stop.is_set():
                for log in list(logs):
                    log.flush()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=flush) for _ in range(2)]
    for thread in threads:
        thread.start()
    rng = random.Random(1)
    try:
        for round_number in range(400):
            for log in logs:
                put(log, "x" * rng.randint(1, 300), producer=None, leader_epoch=round_number // 100)
            log = rng.choice(logs)
            action = rng.random()
            if action < 0.1:
                log.retain(NOW)
                log_dir.removals.remove(log_dir.removals.take(NOW))
            elif action < 0.15:
                log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset), NOW)
            elif action < 0.2:
                log.roll(NOW)
            elif action < 0.3:
                log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
            elif action < 0.32:
                number = rng.randrange(4)
                log_dir.delete("t", number)
                logs[number] = log_dir.open_or_create("t", number, TOPIC_ID, config)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert log_dir.failure is None
    before = {key: stored(log) for key, log in log_dir}
    log_dir.unlock()
    again = open_dir(None, path, config=config)
    assert not again.was_clean
    assert {key: stored(log) for key, log in again} == before
    again.close()
