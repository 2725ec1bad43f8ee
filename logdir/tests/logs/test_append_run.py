"""A run of batches leaves the log as `append` of each would have, and stops where there is more to do."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable

import pytest

from barnabas.kproto import compiled
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import KafkaError
from barnabas.logdir import LogConfig, LogDir, PartitionLog
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, put, stored

VALUES = ("a" * 50, "b" * 50, "c" * 50, "d" * 50, "e" * 50)
EPOCH = 0


def make(**config: object) -> tuple[MemoryDisk, LogDir, PartitionLog]:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]
    return disk, log_dir, log


def good(sequence: int, *, producer_id: int = 7, epoch: int = 0, **options: object) -> bytearray:
    return batch(*VALUES, producer=(producer_id, epoch, sequence), **options)  # type: ignore[arg-type]


def learnt(**config: object) -> PartitionLog:
    """A log that knows the layout of VALUES, and producer 7 up to sequence 14."""
    _, _, log = make(**config)
    for sequence in (0, 5, 10):
        log.append(good(sequence), leader_epoch=EPOCH, now_ms=NOW)
    log.write()
    return log


def run(log: PartitionLog, *batches: bytearray, leader_epoch: int = EPOCH, now_ms: int = NOW) -> list[int]:
    return log.appender.append_run([memoryview(one) for one in batches], leader_epoch=leader_epoch, now_ms=now_ms)


def corrupt(buf: bytearray) -> bytearray:
    buf[-1] ^= 1
    return buf


def changed(buf: bytearray, at: int, value: int) -> bytearray:
    buf[at] = value
    return buf


def resealed(buf: bytearray) -> bytearray:
    struct.pack_into(">I", buf, 17, crc32c(memoryview(buf)[21:]))
    return buf


def test_a_run_is_staged_and_written() -> None:
    log = learnt()
    assert run(log, good(15), good(20), good(25)) == [19, 24, 29]
    assert (log.next_offset, log.log_end_offset) == (30, 15)
    log.write()
    assert [header.base_offset for header, _ in stored(log)] == [0, 5, 10, 15, 20, 25]
    again = log.append(good(20), leader_epoch=EPOCH, now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 20)


def test_without_a_producer_id() -> None:
    log = learnt()
    assert run(log, batch(*VALUES), batch(*VALUES)) == [19, 24]


STOPS: dict[str, Callable[[], bytearray]] = {
    "another sequence": lambda: good(25),
    "sent before": lambda: good(15),
    "no sequence": lambda: good(-1),
    "another producer": lambda: good(0, producer_id=8),
    "no producer": lambda: batch(*VALUES),
    "another epoch": lambda: good(20, epoch=1),
    "checksum": lambda: corrupt(good(20)),
    "format": lambda: changed(good(20), 16, 1),
    "length": lambda: changed(good(20), 11, 9),
    "base offset": lambda: changed(good(20), 7, 1),
    "count": lambda: changed(good(20), 60, 4),
    "no records": lambda: changed(good(20), 60, 0),
    "codec": lambda: batch(*VALUES, producer=(7, 0, 20), codec=1),
    "transaction": lambda: good(20, transactional=True),
    "max timestamp": lambda: resealed(changed(good(20), 42, 255)),
    "late": lambda: good(20, timestamp=NOW + 2),
}


@pytest.mark.parametrize("why", STOPS)
def test_where_a_run_stops(why: str) -> None:
    log = learnt(message_timestamp_after_max_ms=1)
    assert run(log, good(15), STOPS[why](), good(25)) == [19]
    assert log.next_offset == 20
    log.write()
    assert log.append(good(20), leader_epoch=EPOCH, now_ms=NOW).last_offset == 24


def test_another_layout_ends_a_run_that_is_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "scan", None)
    log = learnt()
    assert run(log, good(15), batch("other", producer=(7, 0, 20)), batch("others", producer=(7, 0, 21))) == [19]


def test_batches_that_take_no_run() -> None:
    log = learnt()
    assert run(log, good(15), leader_epoch=1) == []
    assert run(log, good(0, producer_id=8)) == [], "never seen"
    assert run(log, good(-1, producer_id=9)) == []
    log.config = LogConfig(message_timestamp_type="LogAppendTime")
    assert run(log, good(15)) == [], "to be stamped"
    log.config = LogConfig(max_message_bytes=100)
    assert run(log, good(15)) == [], "too large"
    empty = make()[2]
    assert run(empty, batch(*VALUES)) == [], "the first batch of a segment begins its age"


def test_an_open_transaction_is_not_passed() -> None:
    log = learnt()
    log.append(good(15, transactional=True), leader_epoch=EPOCH, now_ms=NOW)
    assert run(log, good(20)) == []


def test_a_roll_ends_the_run() -> None:
    log = learnt(segment_bytes=5 * len(good(0)))
    assert run(log, *(good(15 + 5 * number) for number in range(4))) == [19, 24]
    late = learnt(segment_ms=1000)
    assert run(late, good(15), good(20, timestamp=NOW + 2000), now_ms=NOW + 2000) == [19]


def test_a_full_disk_undoes_the_run() -> None:
    disk, log_dir, log = make()
    for sequence in (0, 5, 10):
        log.append(good(sequence), leader_epoch=EPOCH, now_ms=NOW)
    log.write()
    assert run(log, good(15), good(20)) == [19, 24]
    disk.space = 0
    with pytest.raises(StorageError) as caught:
        log.write()
    assert caught.value.is_full
    disk.space = None
    assert (log.next_offset, log.log_end_offset) == (15, 15)
    assert run(log, good(15), good(20)) == []
    assert log_dir.failure is caught.value


def test_a_run_that_the_process_cannot_write() -> None:
    disk, log_dir, log = make()
    for sequence in (0, 5, 10):
        log.append(good(sequence), leader_epoch=EPOCH, now_ms=NOW)
    log.write()
    assert run(log, good(15), good(20)) == [19, 24]
    disk.on_call = interrupted
    with pytest.raises(StorageError):
        log.write()
    disk.on_call = None
    assert (log.next_offset, log.log_end_offset) == (15, 15)
    assert log.append(good(15), leader_epoch=EPOCH, now_ms=NOW).last_offset == 19, "finds out when to roll again"
    assert run(log, good(20), good(25)) == [24, 29]
    log.write()
    assert log_dir.failure is None


def interrupted(name: str, path: str) -> None:
    raise OSError(errno.EINTR, "said the test", path)


@pytest.mark.parametrize("seed", range(60))
def test_as_one_after_the_other(seed: int) -> None:
    """Random batches, plain and others, in runs and alone: both logs and their producers are the same."""
    rng = random.Random(seed)
    config = {"segment_bytes": rng.choice([1500, 4000, 1 << 20]), "index_interval_bytes": rng.choice([1, 500, 4096])}
    one, other = make(**config)[2], make(**config)[2]
    sequences = dict.fromkeys((-1, 7, 8), 0)
    in_runs = 0
    for _ in range(40):
        batches = []
        for _ in range(rng.randrange(1, 8)):
            who = rng.choices([7, 8, -1], [20, 1, 1])[0]
            kind = rng.randrange(25)
            values = VALUES if kind else ("odd",)
            made = batch(
                *values, producer=None if who < 0 else (who, 0, sequences[who]), timestamp=NOW + rng.randrange(3)
            )
            sequences[who] += len(values) if kind not in (1, 2) else 0
            batches.append(corrupt(made) if kind == 2 else made)
        copies = [bytearray(each) for each in batches]
        results = [appended(one, each) for each in batches]
        at = 0
        found: list[object] = []
        while at < len(copies):
            lasts = run(other, *copies[at:])
            in_runs += len(lasts)
            at += len(lasts)
            found += lasts
            if at < len(copies):
                found.append(appended(other, copies[at]))
                at += 1
        assert found == results, f"seed {seed}"
        one.write()
        other.write()
        assert stored(one) == stored(other), f"seed {seed}"
        assert one.producers.entries == other.producers.entries, f"seed {seed}"
        assert [each.base_offset for each in one.state.segments] == [each.base_offset for each in other.state.segments]
    assert in_runs > 5, f"seed {seed}"


def appended(log: PartitionLog, buf: bytearray) -> object:
    try:
        info = log.append(buf, leader_epoch=EPOCH, now_ms=NOW)
    except KafkaError as error:
        return error.code
    return ("again", info.last_offset) if info.duplicate else info.last_offset


def test_after_a_failure_nothing_is_taken() -> None:
    log = learnt()
    put(log, "x")
    log.state.failure = StorageError("said the test", OSError(errno.EIO, "broken"))
    assert run(log, good(15)) == []
