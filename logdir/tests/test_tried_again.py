"""Out of descriptors or memory, or interrupted, at any call of a truncation, of retention, of a stop: nothing is wrong
with the disk, so the directory stays, and whoever tries again gets what he would have got the first time.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from barnabas.kproto.records import build_control_batch
from barnabas.logdir import OURS, AppendOrigin, LogConfig, LogDir, PartitionLog, StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, open_dir, put, stored

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=1, retention_bytes=500)
CODES = sorted(OURS - {errno.ENAMETOOLONG})


def filled() -> tuple[MemoryDisk, LogDir, PartitionLog]:
    """Offsets 0 to 11 in several segments: two producers, a transaction that was aborted, three leader epochs."""
    disk = MemoryDisk()
    log_dir = open_dir(disk, config=CONFIG)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(10):
        put(log, f"{number}" * 60, producer=(5, 0, number), leader_epoch=number // 4)
        if number == 2:
            put(log, "aborted" * 8, producer=(6, 0, 0), leader_epoch=0, transactional=True)
            abort(log)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    return disk, log_dir, log


def abort(log: PartitionLog) -> None:
    marker = build_control_batch(producer_id=6, producer_epoch=0, coordinator_epoch=0, commit=False, timestamp=NOW)
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.write()


def look(log: PartitionLog) -> object:
    """All that is known of a log."""
    return (
        stored(log),
        log.log_start_offset,
        log.log_end_offset,
        log.next_offset,
        log.segment_bases,
        log.segment_times(),
        dict(log.producers.entries),
        log.epochs.entries,
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        log.size,
    )


OPERATIONS: dict[str, Callable[[PartitionLog], object]] = {
    "truncate, within a segment": lambda log: log.truncate_to(3, NOW),
    "truncate, behind the aborted transaction": lambda log: log.truncate_to(7, NOW),
    "truncate, at a segment's start": lambda log: log.truncate_to(log.segment_bases[2], NOW),
    "truncate, all": lambda log: log.truncate_to(0, NOW),
    "begin anew, in the middle": lambda log: log.truncate_fully(5, NOW),
    "begin anew, at the first segment": lambda log: log.truncate_fully(0, NOW),
    "begin anew, further on": lambda log: log.truncate_fully(100, NOW),
    "retention": lambda log: log.retain(NOW, log.log_end_offset),
    "retention, after records were deleted": lambda log: (log.delete_records(8, 12), log.retain(NOW, 12)),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
@pytest.mark.parametrize("then", ["again", "append", "close", "killed", "power"])
def test_every_call_fails_once(operation: Callable[[PartitionLog], object], then: str) -> None:
    _, _, log = filled()
    untouched = look(log)
    operation(log)
    wanted = look(log)
    put(log, "next", leader_epoch=3)
    with_next = look(log)
    number = failed = 0
    while True:
        number += 1
        code = CODES[number % len(CODES)]
        disk, log_dir, log = filled()
        fails = Failing(number, code, times=1 + number % 3)
        disk.on_call = fails
        try:
            operation(log)
        except StorageError:
            failed += 1
        disk.on_call = None
        assert log_dir.failure is log.failure is None, (number, fails.struck)
        if then == "again":
            operation(log)
            assert look(log) == wanted, (number, fails.struck)
            put(log, "next", leader_epoch=3)
            assert look(log) == with_next, (number, fails.struck)
        elif then == "append" and log.log_end_offset == wanted[2]:  # type: ignore[index]
            # A follower that is made leader: there is no second attempt.
            put(log, "next", leader_epoch=3)
            assert stored(log) == with_next[0], (number, fails.struck)  # type: ignore[index]
        elif then in ("killed", "power"):
            before = stored(log)
            if then == "power":
                disk.crash(random.Random(number))
            disk.open_files, disk.locked = {}, set()
            found = stored(open_dir(disk, config=CONFIG).logs["t", 0])
            assert found == before or is_part(found, untouched[0]), (number, fails.struck)  # type: ignore[index]
            if not fails.struck:
                break
            continue
        after = look(log)
        log_dir.close()
        assert not [entry.name for entry in disk.list(f"{PATH}/t-0") if entry.name.endswith(".tmp")]
        again = open_dir(disk, config=CONFIG)
        assert again.was_clean
        assert look(again.logs["t", 0])[0] == after[0], (number, fails.struck)  # type: ignore[index]
        assert look(again.logs["t", 0])[7:9] == after[7:9], (number, fails.struck)  # type: ignore[index]
        if not fails.struck:
            break
    assert failed > 3


def is_part(some: list[object], of: list[object]) -> bool:
    """Only from the one or the other end something is lacking."""
    return not some or (some[0] in of and of[(at := of.index(some[0])) : at + len(some)] == some)


class Failing:
    """The call with this number, and so many of those that follow, fail."""

    def __init__(self, number: int, code: int, times: int = 1) -> None:
        self._left = number
        self._times = times
        self._code = code
        self.struck: list[tuple[str, str]] = []

    def __call__(self, call: str, path: str) -> None:
        self._left -= 1
        if 0 >= self._left > -self._times:
            self.struck.append((call, path))
            raise OSError(self._code, "said the test", path)


@pytest.mark.parametrize("partitions", [2, 12])
def test_a_stop_leaves_everything_as_it_should(partitions: int) -> None:
    """Each log is tried again when the others are done."""
    number = 0
    while True:
        number += 1
        disk = MemoryDisk()
        log_dir = open_dir(disk)
        for index in range(partitions):
            put(log_dir.open_or_create("t", index, TOPIC_ID, LogConfig()), "x", producer=(5, 0, 0))
        before = {key: look(log) for key, log in log_dir.logs.items()}
        fails = Failing(number, errno.EMFILE)
        disk.on_call = fails
        log_dir.close()
        disk.on_call = None
        again = open_dir(disk)
        assert again.was_clean
        assert {key: look(log)[0] for key, log in again.logs.items()} == {key: seen[0] for key, seen in before.items()}  # type: ignore[index]
        if not fails.struck:
            break
        number += partitions  # not each of them all over again


def test_a_stop_that_lacks_something_for_good() -> None:
    """One log cannot be closed: the others are safe, and the next start looks at all."""
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    for index in range(3):
        put(log_dir.open_or_create("t", index, TOPIC_ID, LogConfig()), "x")

    def on_call(call: str, path: str) -> None:
        if path.startswith(f"{PATH}/t-0/"):
            raise OSError(errno.EMFILE, "said the test", path)

    disk.on_call = on_call
    with pytest.raises(StorageError):
        log_dir.close()
    disk.on_call = None
    disk.crash(random.Random(1))
    again = open_dir(disk)
    assert not again.was_clean
    assert [len(stored(again.logs["t", index])) for index in (1, 2)] == [1, 1]
