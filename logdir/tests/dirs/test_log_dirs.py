"""LogDirs: several directories, each on its disk; failures, moves, and crashes at every step of a move."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import (
    AppendOrigin,
    InconsistentMeta,
    LogConfig,
    LogDirError,
    LogDirs,
    MetaProperties,
    StorageError,
)
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, Clock, put, stored

A, B, C = "/disks/a", "/disks/b", "/disks/c"
CONFIG = LogConfig(segment_bytes=500)


def make(disk: MemoryDisk, *paths: str) -> LogDirs:
    counter = iter(range(10**9))
    return LogDirs(
        paths or (A, B),
        disk=disk,
        wall_ms=Clock(),
        random=lambda: 0.0,
        unique_hex=lambda: f"{next(counter):032x}",
    )


def opened(disk: MemoryDisk, *paths: str) -> LogDirs:
    dirs = make(disk, *paths)
    dirs.open()
    dirs.check_identity(cluster_id="c", node_id=1)
    dirs.load(lambda topic: CONFIG)
    return dirs


def failing(path: str, code: int = errno.EIO, *calls: str) -> Callable[[str, str], None]:
    def on_call(call: str, where: str) -> None:
        if where.startswith(path) and (not calls or call in calls):
            raise OSError(code, os.strerror(code), where)

    return on_call


def create(dirs: LogDirs, topic: str, index: int = 0) -> str:
    dirs.open_or_create(topic, index, TOPIC_ID, CONFIG)
    home = dirs.home(topic, index)
    assert home is not None
    return home.path


def test_a_new_partition_goes_where_the_fewest_are() -> None:
    disk = MemoryDisk()
    dirs = opened(disk, A, B, C)
    assert [create(dirs, "t", index) for index in range(4)] == [A, B, C, A]
    dirs.prefer("wished", 0, dirs.dirs[0])
    assert create(dirs, "wished") == A
    dirs.delete("t", 1)
    assert [create(dirs, "u", index) for index in range(3)] == [B, B, C]
    dirs.close()
    dirs = opened(disk, A, B, C)
    assert [len(each.logs) for each in dirs.dirs] == [3, 2, 2]
    assert dirs.was_clean
    # Those on their way count too.
    dirs.create_future("wished", 0, dirs.dirs[1])
    assert create(dirs, "v") == C


def test_a_directory_that_cannot_be_used_is_offline() -> None:
    disk = MemoryDisk()
    dirs = opened(disk)
    assert [create(dirs, "t", index) for index in range(2)] == [A, B]
    dirs.close()
    disk.on_call = failing(B)
    dirs = opened(disk)
    assert ([each.path for each in dirs.online], [each.path for each in dirs.offline]) == ([A], [B])
    assert set(dirs.logs) == {("t", 0)}
    with pytest.raises(KafkaError) as caught:
        dirs.open_or_create("t", 1, TOPIC_ID, CONFIG, is_new=False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert create(dirs, "new") == A
    dirs.close()
    disk.on_call = failing("/disks")
    with pytest.raises(LogDirError, match="no log directory can be used"):
        opened(disk)
    disk.on_call = None
    assert set(opened(disk).logs) == {("t", 0), ("t", 1), ("new", 0)}


@pytest.mark.parametrize("call", ["list", "lock", "pread"])
def test_a_directory_that_fails_while_it_is_opened_or_loaded(call: str) -> None:
    disk = MemoryDisk()
    dirs = opened(disk)
    for index in range(2):
        create(dirs, "t", index)
        log = dirs.get("t", index)
        assert log is not None
        put(log, "x")
    disk.open_files, disk.locked = {}, set()
    disk.on_call = failing(f"{A}/t-0" if call == "pread" else A, errno.EIO, "open" if call == "lock" else call)
    dirs = opened(disk)
    assert [each.path for each in dirs.offline] == [A]
    assert set(dirs.logs) == {("t", 1)}
    assert disk.locked == {f"{B}/.lock"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_directory_in_which_files_cannot_be_made_fails(code: int) -> None:
    """The next partitions go into the other one."""
    disk = MemoryDisk()
    failed = []
    dirs = opened(disk)
    dirs.on_failure = failed.append
    seen: list[None] = []
    dirs.set_on_created(lambda: seen.append(None))
    first, second = (each.new_logs for each in dirs.dirs)
    assert [create(dirs, "t", index) for index in range(2)] == [A, B]
    assert len(seen) == 2
    assert (len(first), len(second)) == (1, 1)
    disk.on_call = failing(A, errno.EMFILE, "open")
    ((log, error),) = first.make(first.take(9))
    assert error.is_ours
    assert not failed, "the disk has nothing to do with it"
    first.add([log])
    assert len(seen) == 3
    disk.on_call = failing(A, code, "open")
    with pytest.raises(StorageError):
        first.make(first.take(9))
    assert failed == [dirs.dirs[0]]
    disk.on_call = failing(A, code)
    assert second.make(second.take(9)) == []
    assert create(dirs, "t", 2) == B
    dirs.dirs[1].storage_failed(StorageError("writing", OSError(errno.ENOSPC, "full")))
    with pytest.raises(KafkaError) as caught:
        create(dirs, "t", 3)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    for each in dirs.dirs:
        each.go_offline()
        assert len(each.new_logs) == 0


def test_a_partition_that_was_never_used_in_the_directory_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """It was created again in another one: when the first is back, that with records counts."""
    disk = MemoryDisk()
    dirs = opened(disk)
    create(dirs, "t")
    for each in dirs.logs.values():
        each.make_files()
    dirs.dirs[0].storage_failed(StorageError("writing", OSError(errno.EIO, "broken")))
    dirs.dirs[0].go_offline()
    assert create(dirs, "t") == B
    put(dirs.logs["t", 0], "a")
    disk.open_files, disk.locked = {}, set()
    dirs = opened(disk)
    home = dirs.home("t", 0)
    assert home is not None
    assert (home.path, dirs.logs["t", 0].log_end_offset) == (B, 1)
    assert f"{A}/t-0 is empty" in caplog.text
    assert not [entry for entry in disk.list(A) if entry.name == "t-0"]


@pytest.mark.parametrize("times", [1, 2, 3, 5])
def test_a_creation_that_lacked_something_goes_on_where_it_stopped(times: int) -> None:
    """Wherever it is interrupted: the next attempts complete it, and nothing else is left."""
    number = 0
    while True:
        number += 1
        disk = MemoryDisk()
        dirs = opened(disk)
        left = number

        def on_call(call: str, where: str) -> None:
            nonlocal left
            left -= 1
            if 0 >= left > -times:
                raise OSError(errno.EINTR, "said the test", where)

        disk.on_call = on_call
        log = dirs.open_or_create("t", 0, TOPIC_ID, CONFIG)
        for _ in range(times):
            with contextlib.suppress(StorageError):
                log.make_files()
        disk.on_call = None
        assert not dirs.offline
        put(log, "a")
        found = [f"{each.path}/{entry.name}" for each in dirs.dirs for entry in disk.list(each.path) if entry.is_dir]
        assert found == [log.directory], number
        dirs.close()
        assert len(stored(opened(disk).logs["t", 0])) == 1
        if left > 0:
            break
    assert number > 5


def test_directories_of_different_brokers() -> None:
    disk = MemoryDisk()
    dirs = make(disk)
    dirs.open()
    dirs.dirs[0].identity.write(MetaProperties(0, "c", 1))
    dirs.dirs[1].identity.write(MetaProperties(1, "c", 2))  # KRaft's form, too
    dirs.unlock()
    with pytest.raises(InconsistentMeta, match=r"broker 1 and /disks/b/meta\.properties to broker 2"):
        opened(disk)
    assert not disk.locked
    make(disk, B).open()


def test_a_directory_that_does_not_say_whose_it_is_stands_back() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    disk.node(f"{A}/meta.properties").data = bytearray(b"junk")
    disk.remove(f"{B}/meta.properties")
    dirs = make(disk, A, B, C)
    dirs.open()
    assert dirs.meta is not None
    assert (dirs.meta.cluster_id, dirs.meta.node_id) == (None, None)
    dirs.check_identity(cluster_id=None, node_id=1)
    dirs.dirs[1].identity.write(MetaProperties(0, "c", 1))
    assert dirs.meta == MetaProperties(0, "c", 1)
    dirs.check_identity(cluster_id="c", node_id=1)
    assert [each.meta for each in dirs.dirs] == [MetaProperties(0, "c", 1)] * 3


def test_the_same_partition_twice() -> None:
    disk = MemoryDisk()
    for path in (A, B):
        dirs = opened(disk, path)
        create(dirs, "t")
        put(dirs.logs["t", 0], path)
        dirs.close()
    with pytest.raises(LogDirError, match=f"t-0 is in both {A}/t-0 and {B}/t-0"):
        opened(disk)
    disk.rename(f"{B}/t-0", f"{B}/t-0.{7:032x}-future")
    disk.open_files, disk.locked = {}, set()
    dirs = opened(disk)
    assert dirs.future("t", 0) is not None
    assert dirs.home("t", 0) is dirs.dirs[0]


def copy_all(dirs: LogDirs, topic: str, index: int) -> None:
    source, copy = dirs.get(topic, index), dirs.future(topic, index)
    assert source is not None
    assert copy is not None
    while copy.log_end_offset < source.log_end_offset:
        found = source.read(copy.log_end_offset, 700, upper_offset=source.log_end_offset, min_one_batch=True)
        assert found is not None
        copy.append(memoryview(found.read()), leader_epoch=-1, now_ms=NOW, origin=AppendOrigin.REPLICATION)
        copy.write()


def move(dirs: LogDirs, topic: str, index: int, target: int, late: str = "") -> None:
    """As `barnabas.server.storage.dir_moves` does it. late: a record that comes when the copy is marked; it is synced
    in the original.
    """
    dirs.create_future(topic, index, dirs.dirs[target])
    copy_all(dirs, topic, index)
    copy, original = dirs.future(topic, index), dirs.get(topic, index)
    assert copy is not None
    assert original is not None
    copy.flush()
    dirs.mark_whole(topic, index)
    if late:
        put(original, late)
        original.flush()
        copy_all(dirs, topic, index)
    promoted = dirs.promote(topic, index)
    promoted.log.flush()
    promoted.target.sync_names()
    promoted.target.checkpoints.write(promoted.target.checkpoints.recovery_points())
    promoted.target.checkpoints.write(promoted.target.checkpoints.log_starts())
    promoted.finish()
    promoted.settle()


def test_a_move() -> None:
    disk = MemoryDisk()
    dirs = opened(disk)
    create(dirs, "t")
    log = dirs.get("t", 0)
    assert log is not None
    for number in range(12):
        put(log, f"{number}" * 60, leader_epoch=number // 5)
    log.delete_records(4, 12)
    before = stored(log)
    found = log.read(4, 100, upper_offset=12, min_one_batch=True)
    assert found is not None
    data = found.read()
    move(dirs, "t", 0, 1)
    moved = dirs.get("t", 0)
    assert moved is not None
    assert moved is not log
    assert (moved.directory, dirs.future("t", 0)) == (f"{B}/t-0", None)
    assert stored(moved) == before
    assert found.read() == data, "who was reading goes on"
    assert (moved.log_start_offset, moved.epochs.latest) == (4, 2)
    put(moved, "x" * 400)
    put(moved, "y" * 400)
    moved.flush()
    a = dirs.dirs[0]
    assert a.removals.next_ms is not None
    a.removals.remove(a.removals.take(a.removals.next_ms))
    assert {entry.name for entry in disk.list(A) if entry.is_dir} == set()
    before = stored(moved)
    dirs.close()
    dirs = opened(disk)
    moved = dirs.get("t", 0)
    assert moved is not None
    assert (stored(moved), moved.log_start_offset) == (before, 4)


@pytest.mark.parametrize("parted", [False, True])
def test_the_original_was_used_again_while_the_disk_of_the_copy_was_away(parted: bool) -> None:
    """It is kept if it has all that the copy has. If the copy was used as well, a person has to choose."""
    disk = MemoryDisk()
    dirs = opened(disk)
    create(dirs, "t")
    log = dirs.get("t", 0)
    assert log is not None
    put(log, "a")
    dirs.create_future("t", 0, dirs.dirs[1])
    copy_all(dirs, "t", 0)
    dirs.mark_whole("t", 0)
    promoted = dirs.promote("t", 0)
    if parted:
        put(promoted.log, "acknowledged")
    disk.open_files, disk.locked = {}, set()
    only = opened(disk, A)
    log = only.get("t", 0)
    assert log is not None
    put(log, "b")
    before = stored(log)
    only.close()
    disk.open_files, disk.locked = {}, set()
    if parted:
        with pytest.raises(LogDirError, match="t-0 is in both"):
            opened(disk)
        return
    dirs = opened(disk)
    home = dirs.home("t", 0)
    assert home is dirs.dirs[0]
    assert stored(home.logs["t", 0]) == before


def test_a_mark_that_stays_behind_counts_in_no_later_move() -> None:
    """The disk refuses to remove it; then the partition moves back, and the power goes when both are there."""
    disk = MemoryDisk()
    dirs = opened(disk)
    create(dirs, "t")
    log = dirs.get("t", 0)
    assert log is not None
    put(log, "a")
    disk.on_call = failing(f"{B}/t-0/moved", errno.EIO, "remove")
    with pytest.raises(StorageError):
        move(dirs, "t", 0, 1)
    disk.on_call = None
    dirs.create_future("t", 0, dirs.dirs[0])
    copy_all(dirs, "t", 0)
    dirs.mark_whole("t", 0)
    dirs.promote("t", 0).log.flush()
    disk.open_files, disk.locked = {}, set()
    dirs = opened(disk)
    assert dirs.home("t", 0) is dirs.dirs[0]
    # Nor does it speak for its partition when there is no move at all.
    dirs.close()
    assert not [entry for entry in disk.list(f"{A}/t-0") if entry.name == "moved"]


class PowerOff(Exception):
    pass


SEEDS = int(os.environ.get("BARNABAS_MOVE_SEEDS", "2"))


@pytest.mark.parametrize("seed", [5, 6, 9, 12, *([None] * SEEDS)])
def test_power_goes_at_any_step_of_a_move(seed: int | None) -> None:
    """Whatever was acknowledged as safe is found, in one place, also by those who come after a second loss of power.
    Seeds: some that have found something, and `BARNABAS_MOVE_SEEDS` new ones, which are printed.
    """
    if seed is None:  # drawn here: all workers have to collect the same tests
        seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    step = outcomes = 0
    while True:
        rng = random.Random(seed * 1000 + step)
        disk = MemoryDisk()
        dirs = opened(disk)
        create(dirs, "t")
        log = dirs.get("t", 0)
        assert log is not None
        for number in range(6):
            put(log, f"{number}" * 100)
        log.delete_records(2, 6)
        log.flush()
        dirs.dirs[0].checkpoints.write(dirs.dirs[0].checkpoints.recovery_points())
        dirs.dirs[0].checkpoints.write(dirs.dirs[0].checkpoints.log_starts())
        before = stored(log)
        done = cut_off(disk, step, lambda dirs=dirs: move(dirs, "t", 0, 1, "late"))  # type: ignore[misc]
        safe = before
        if log.recovery_point == 7:
            safe = stored(log) if not log.abandoned else stored(dirs.dirs[1].logs["t", 0])
        disk.crash(rng)
        # Once more, while the next start clears up.
        cut_off(disk, rng.randrange(40), lambda disk=disk: opened(disk))  # type: ignore[misc]
        disk.crash(rng)
        dirs = opened(disk)
        found = dirs.get("t", 0)
        assert found is not None, (seed, step)
        assert stored(found)[: len(safe)] == safe, (seed, step)
        assert len(stored(found)) <= 5, (seed, step)
        assert sum(("t", 0) in each.logs for each in dirs.dirs) == 1
        assert not dirs.offline
        outcomes |= 2 if found.directory.startswith(A) else 4
        if done:
            break
        step += 1
    assert step > 20
    assert outcomes & 6 == 6, "before and after were seen"


def cut_off(disk: MemoryDisk, step: int, work: Callable[[], object]) -> bool:
    """Let the power go at that call of the disk; whether it was done by then."""
    left = step

    def on_call(call: str, where: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerOff

    disk.on_call = on_call
    try:
        work()
        return True
    except PowerOff:
        return False
    finally:
        disk.on_call = None
