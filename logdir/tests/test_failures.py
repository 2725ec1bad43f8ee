"""A disk that is full, breaks, or belongs to another: nothing is half done, every failure is reported."""

from __future__ import annotations

import errno
import random

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, LogDirLocked, PartitionLog, StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, batch, open_dir, put, stored


def make(config: LogConfig | None = None, **options: object) -> tuple[MemoryDisk, LogDir, PartitionLog]:
    disk = MemoryDisk()
    log_dir = open_dir(disk, **options)
    return disk, log_dir, log_dir.open_or_create("t", 0, TOPIC_ID, config or LogConfig())


def failing(call: str, suffix: str, code: int) -> object:
    def on_call(name: str, path: str) -> None:
        if name == call and path.endswith(suffix):
            raise OSError(code, "said the test", path)

    return on_call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EINTR])
@pytest.mark.parametrize("space", range(0, 400, 26))
def test_a_failed_write_undoes_everything_staged(space: int, code: int) -> None:
    """A full disk ends the directory, wherever it is noticed; an interrupted call is made again."""
    disk, log_dir, log = make()
    put(log, "kept", producer=(5, 0, 0), leader_epoch=1)
    put(log, "open", producer=(6, 0, 0), transactional=True, leader_epoch=1)
    before = (stored(log), dict(log.producers.entries), dict(log.producers.open_txns), log.epochs.entries, log.size)
    disk.space = space
    disk.full = code
    log.append(batch("a" * 100, producer=(5, 0, 1)), leader_epoch=2, now_ms=NOW)
    log.append(batch("b" * 100, producer=(7, 0, 0), transactional=True), leader_epoch=2, now_ms=NOW)
    log.append(batch("c" * 100, producer=(6, 0, 1), transactional=True), leader_epoch=3, now_ms=NOW)
    with pytest.raises(StorageError) as caught:
        log.write()
    assert (caught.value.code, caught.value.errno) == (ErrorCode.KAFKA_STORAGE_ERROR, code)
    assert caught.value.is_full == (code == errno.ENOSPC)
    assert isinstance(caught.value, OSError)
    assert (log.next_offset, log.log_end_offset) == (2, 2)
    after = (stored(log), dict(log.producers.entries), dict(log.producers.open_txns), log.epochs.entries, log.size)
    assert after == before
    assert len(disk.node(f"{PATH}/t-0/{0:020d}.log").data) == log.size, "the rest is cut off"
    # There is room again: the producers' retries go through, with the same sequences.
    disk.space = None
    if code == errno.ENOSPC:
        assert log.failure is log_dir.failure is caught.value
        log_dir.close()
        log = open_dir(disk).logs["t", 0]
    assert log.failure is None
    put(log, "a", producer=(5, 0, 1), leader_epoch=2)
    put(log, "c", producer=(6, 0, 1), transactional=True, leader_epoch=3)
    assert [header.base_offset for header, _ in stored(log)] == [0, 1, 2, 3]
    assert log.epochs.entries == ((1, 0), (2, 2), (3, 3))


def test_a_broken_disk_ends_the_directory() -> None:
    failures: list[StorageError] = []
    disk, log_dir, log = make(on_failure=failures.append)
    put(log, "kept")
    disk.on_call = failing("pwritev", ".log", errno.EIO)  # type: ignore[assignment]
    log.append(batch("lost", producer=(5, 0, 0)), leader_epoch=0, now_ms=NOW)
    with pytest.raises(StorageError):
        log.write()
    assert log.log_end_offset == log.next_offset == 1
    assert log.producer_count == 0
    assert failures == [log_dir.failure] == [log.failure]
    disk.on_call = None
    with pytest.raises(StorageError):
        log.append(batch("more"), leader_epoch=0, now_ms=NOW)
    with pytest.raises(StorageError):
        log_dir.open_or_create("u", 0, TOPIC_ID, LogConfig())
    log_dir.close()
    again = open_dir(disk)
    assert not again.was_clean
    assert len(stored(again.logs["t", 0])) == 1


@pytest.mark.parametrize("name", [".log", ".snapshot"])
def test_a_failed_roll_undoes_what_comes_after_it_only(name: str) -> None:
    disk, _, log = make(LogConfig(segment_bytes=200))
    log.append(batch("a" * 80, producer=(5, 0, 0)), leader_epoch=0, now_ms=NOW)
    disk.on_call = failing("open", f"{1:020d}{name}", errno.EMFILE)  # type: ignore[assignment]
    with pytest.raises(StorageError):
        log.append(batch("b" * 80, producer=(5, 0, 1)), leader_epoch=0, now_ms=NOW)
    # The rule: below the log end it is written, the rest is undone.
    assert (log.log_end_offset, log.next_offset) == (1, 1)
    assert log.producers.entries[5].last_sequence == 0
    log.write()
    disk.on_call = None
    assert log.append(batch("b" * 80, producer=(5, 0, 1)), leader_epoch=0, now_ms=NOW).base_offset == 1
    log.write()
    assert log.segment_bases == [0, 1]
    assert len(stored(log)) == 2


@pytest.mark.parametrize("name", [".index", ".timeindex"])
def test_the_indexes_of_a_new_segment_do_not_keep_it_waiting(name: str) -> None:
    """They are made, or made anew, when they are saved."""
    disk, _, log = make(LogConfig(segment_bytes=300))
    put(log, "a" * 180)
    leftover = f"{PATH}/t-0/{1:020d}{name}"
    disk.pwritev(disk.open(leftover, create=True), [b"x" * 24], 0)
    disk.on_call = failing("open", f"{1:020d}{name}", errno.EMFILE)  # type: ignore[assignment]
    put(log, "b" * 80)
    assert log.segment_bases == [0, 1]
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    put(log, "c")
    disk.on_call = None
    log.flush()
    assert log.recovery_point == 3
    assert bytes(disk.node(leftover).data) == b""
    assert [header.base_offset for header, _ in stored(log)] == [0, 1, 2]


def test_who_rolls_waits_for_two_files_only() -> None:
    """Each is made by the loop; the indexes of both segments are saved by the flush that follows, in a thread."""
    disk, _, log = make(LogConfig(segment_bytes=300))
    log.make_files()
    made: list[str] = []

    def on_call(name: str, path: str) -> None:
        if name != "open":
            return
        there = [f"{log.directory}/{entry.name}" for entry in disk.list(log.directory)]
        if path not in [*there, *made]:
            made.append(path)

    put(log, "a" * 180)
    disk.on_call = on_call
    put(log, "b" * 180)
    assert [path.rpartition("/")[2] for path in made] == [f"{1:020d}.snapshot", f"{1:020d}.log"]
    disk.on_call = None
    assert not disk.node(f"{PATH}/t-0/{0:020d}.timeindex").data
    log.flush()
    assert len(disk.node(f"{PATH}/t-0/{0:020d}.timeindex").data) == 12
    assert {f"{1:020d}.index", f"{1:020d}.timeindex"} <= {entry.name for entry in disk.list(log.directory)}


def test_a_failed_write_before_a_roll_undoes_all() -> None:
    disk, _, log = make(LogConfig(segment_bytes=200))
    log.append(batch("a" * 80, producer=(5, 0, 0)), leader_epoch=0, now_ms=NOW)
    disk.space, disk.full = 10, errno.EINTR
    with pytest.raises(StorageError):
        log.append(batch("b" * 80, producer=(5, 0, 1)), leader_epoch=0, now_ms=NOW)
    assert (log.log_end_offset, log.next_offset, log.producer_count) == (0, 0, 0)
    disk.space = None
    put(log, "a", producer=(5, 0, 0))
    assert len(stored(log)) == 1


def test_a_failed_roll_inside_of_many_batches() -> None:
    disk, _, log = make(LogConfig(segment_bytes=200))
    buf = b"".join(bytes(batch("x" * 80, producer=(5, 0, number))) for number in range(3))
    disk.on_call = failing("open", f"{2:020d}.log", errno.ENOSPC)  # type: ignore[assignment]
    with pytest.raises(StorageError):
        log.append(bytearray(buf), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    assert (log.log_end_offset, log.next_offset) == (2, 2)
    assert log.producers.entries[5].last_sequence == 1


def test_a_failed_flush_ends_the_log() -> None:
    """fsyncgate: after a failed sync the kernel may have dropped the pages, and the next sync succeeds all the same."""
    disk, log_dir, log = make()
    put(log, "a")
    disk.on_call = failing("sync", ".log", errno.EIO)  # type: ignore[assignment]
    with pytest.raises(StorageError):
        log.flush()
    disk.on_call = None
    assert log.recovery_point == 0
    assert log_dir.failure is not None
    with pytest.raises(StorageError):
        log.append(batch("b"), leader_epoch=0, now_ms=NOW)


def test_a_failed_read() -> None:
    disk, _, log = make(LogConfig(segment_bytes=100))
    for _ in range(4):
        put(log, "a" * 30)
    disk.on_call = failing("pread", ".log", errno.EIO)  # type: ignore[assignment]
    log.state.segments[0].release()
    with pytest.raises(StorageError):
        log.read(0, 100, upper_offset=4, min_one_batch=True)
    with pytest.raises(StorageError):
        log.offset_for_timestamp(0)


def test_the_next_start_after_a_full_disk_is_clean() -> None:
    disk, log_dir, log = make()
    put(log, "a")
    disk.space = 20
    log.append(batch("b" * 100), leader_epoch=0, now_ms=NOW)
    disk.on_call = failing("truncate", ".log", errno.EIO)  # type: ignore[assignment]
    with pytest.raises(StorageError):
        log.write()
    assert log.failure is not None, "what could not be cut off is not forgotten"
    disk.on_call, disk.space = None, None
    log_dir.close()
    log = open_dir(disk).logs["t", 0]
    assert log.log_end_offset == 1
    assert log.size == len(disk.node(f"{PATH}/t-0/{0:020d}.log").data)


def test_two_brokers_on_one_directory(tmp_path: object) -> None:
    first = open_dir(None, f"{tmp_path}/logs/deep")
    with pytest.raises(LogDirLocked, match="deep"):
        open_dir(None, f"{tmp_path}/logs/deep")
    first.close()
    open_dir(None, f"{tmp_path}/logs/deep").close()


def test_a_lock_held_by_another_process(tmp_path: object) -> None:
    import subprocess
    import sys

    open_dir(None, f"{tmp_path}").close()
    code = (
        "import fcntl, sys\n"
        f"f = open({str(tmp_path)!r} + '/.lock', 'r+')\n"
        "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"  # what Java's FileChannel.tryLock takes
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LogDirLocked):
            open_dir(None, f"{tmp_path}")
        other.stdin.close()
    open_dir(None, f"{tmp_path}").close()


@pytest.mark.parametrize("seed", range(40))
def test_any_call_may_fail(seed: int) -> None:
    """Whatever call fails with whatever error: what the log says is written is read back, and a restart finds the
    same.
    """
    rng = random.Random(seed)
    disk, log_dir, log = make(LogConfig(segment_bytes=500, index_interval_bytes=50))
    sequence = 0
    for _ in range(60):
        code = rng.choice((errno.EINTR, errno.EMFILE, errno.ENOMEM))
        if log.failure is None and rng.random() < 0.05:
            code = rng.choice((errno.ENOSPC, errno.EDQUOT, errno.EIO))
        chance = rng.choice((0.0, 0.05, 0.3))

        def on_call(name: str, path: str, chance: float = chance, code: int = code) -> None:
            if rng.random() < chance:
                raise OSError(code, "said the test", path)

        disk.on_call = on_call
        try:
            log.append(batch("v" * rng.randint(1, 100), producer=(5, 0, sequence)), leader_epoch=1, now_ms=NOW)
            log.write()
        except KafkaError:
            pass
        sequence = log.producers.entries[5].last_sequence + 1 if log.producer_count else 0
        disk.on_call = None
        if log.failure is not None:
            break
        headers = [header for header, _ in stored(log)]
        assert [header.base_offset for header in headers] == list(range(log.log_end_offset)), seed
        assert [header.base_sequence for header in headers] == list(range(sequence)), seed
    before = stored(log)
    disk.open_files, disk.locked = {}, set()
    log = open_dir(disk).open_or_create("t", 0, TOPIC_ID, LogConfig())
    assert stored(log)[: len(before)] == before, seed
    if log_dir.failure is None:
        assert stored(log) == before, seed
