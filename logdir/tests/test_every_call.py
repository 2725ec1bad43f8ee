"""Every call on the disk fails once, in the life of two log directories: start, appends, checkpoints, deletion, stop,
next start. What comes out is an error of this package, and what was written is there afterwards. (The data path has
campaigns of its own: test_failures.py, test_crash.py; moves: test_dirs.py.)
"""

from __future__ import annotations

import errno
import logging
import os

import pytest

from barnabas.kproto.errors import KafkaError
from barnabas.kproto.records import iter_records
from barnabas.logdir import LogConfig, LogDirError, LogDirs, PartitionLog
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, Clock, put, stored

A, B = "/disks/a", "/disks/b"
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, file_delete_delay_ms=0)
CODES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EINTR)
OURS = (errno.EMFILE, errno.EINTR)
OPENING = ("open", "list", "lock", "sync_dir", "sync_all")
"""The calls that take a descriptor: the others never lack one."""
TOPICS = (("t", 0), ("t", 1), ("t", 2), ("gone", 0))


class Life:
    """One life of the directories. `written`: values by partition, as `write` has confirmed them."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.written: dict[tuple[str, int], list[bytes]] = {}
        self.gone = 0
        counter = iter(range(10**9))
        self.dirs = LogDirs(
            (A, B), disk=disk, wall_ms=Clock(), random=lambda: 0.0, unique_hex=lambda: f"{next(counter):032x}"
        )

    def start(self) -> None:
        """Raises LogDirError."""
        self.dirs.open()
        try:
            self.dirs.check_identity(cluster_id="c", node_id=1)
            self.dirs.load(lambda topic: CONFIG)
        except BaseException:
            self.dirs.unlock()
            raise

    def attempt(self, work: object, *args: object) -> bool:
        """Whether it was done; a directory that has failed is let go, as the broker does. Only our errors are met."""
        try:
            work(*args)  # type: ignore[operator]
            return True
        except KafkaError:
            return False
        finally:
            for each in self.dirs.offline:
                each.go_offline()

    def append(self, key: tuple[str, int], value: bytes) -> None:
        log = self.dirs.get(*key)
        if log is not None and self.attempt(put, log, value):
            self.written.setdefault(key, []).append(value)

    def checkpoints(self) -> None:
        for each in self.dirs.online:
            files = each.checkpoints
            for taken in (files.recovery_points(), files.log_starts(), files.high_watermarks({})):
                if each.failure is None and not files.is_written(taken):
                    self.attempt(files.write, taken)

    def flush(self) -> None:
        for log in self.dirs.logs.values():
            self.attempt(log.flush)

    def live(self, name: bytes) -> None:
        """All that is done between start and stop."""
        for key in TOPICS:
            is_new = key not in self.written
            self.attempt(lambda key=key, is_new=is_new: self.dirs.open_or_create(*key, TOPIC_ID, CONFIG, is_new=is_new))
        for number in range(3):
            for key in TOPICS:
                self.append(key, b"%s %s %d %s" % (name, key[0].encode(), number, b"x" * 60))
        self.flush()
        self.checkpoints()
        home = self.dirs.home("gone", 0)
        if home is not None:
            self.written.pop(("gone", 0), None)  # until that is safe, it may be there or not
            if self.attempt(home.delete, "gone", 0) and self.attempt(home.sync_names):
                self.gone += 1
        self.append(("t", 0), name + b" last")
        self.checkpoints()
        for each in self.dirs.online:
            each.removals.remove(each.removals.take(NOW + 1))

    def stop(self) -> None:
        try:
            self.dirs.close({})
        except KafkaError:
            pass


def values(log: PartitionLog) -> list[bytes]:
    return [record.value or b"" for _, data in stored(log) for record in iter_records(data)]


def lives(disk: MemoryDisk) -> Life:
    """Two lives, of which the second has the first one's confirmed records to keep."""
    first = Life(disk)
    first.start()
    first.live(b"first")
    first.stop()
    second = Life(disk)
    second.written = {key: list(data) for key, data in first.written.items()}
    second.start()
    second.live(b"second")
    second.stop()
    return second


@pytest.fixture(scope="module")
def calls() -> list[tuple[str, str]]:
    disk = MemoryDisk()
    disk.make_dir("/disks")
    made: list[tuple[str, str]] = []
    disk.on_call = lambda call, path: made.append((call, path))
    lives(disk)
    return made


def fails_once(at: int, code: int) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dir("/disks")
    count = iter(range(10**9))

    def on_call(call: str, path: str) -> None:
        if next(count) == at:
            raise OSError(code, os.strerror(code), path)

    disk.on_call = on_call
    return disk


def check(at: int, code: int, what: str) -> tuple[bool, bool]:
    """Whether a start was refused, and whether a directory went offline."""
    disk = fails_once(at, code)
    written: dict[tuple[str, int], list[bytes]] = {}
    refused = offline = False
    for name in (b"first", b"second"):
        life = Life(disk)
        life.written = written
        try:
            life.start()
        except LogDirError:
            refused = True
            break
        life.live(name)
        offline = offline or bool(life.dirs.offline)
        life.stop()
    disk.on_call = None
    disk.open_files, disk.locked = {}, set()
    after = Life(disk)
    after.start()
    assert not after.dirs.offline, what
    for key, expected in written.items():
        log = after.dirs.get(*key)
        assert log is not None, f"{what}: {key} is lost"
        assert [value for value in values(log) if value in expected] == expected, f"{what}: {key}"
        assert log.topic_id in (TOPIC_ID, None), what
    assert not (code in OURS and offline), f"{what}: the disk has nothing to do with it"
    return refused, offline


@pytest.mark.parametrize("part", range(len(CODES)))
def test_any_call_fails_once(calls: list[tuple[str, str]], part: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each call with one of the errors."""
    caplog.set_level(logging.CRITICAL)
    code = CODES[part]
    for at in range(part, len(calls), len(CODES)):
        if code != errno.EMFILE or calls[at][0] in OPENING:
            check(at, code, f"call {at}: {calls[at]}")


@pytest.mark.campaign
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_any_call_fails_with_any_error(
    calls: list[tuple[str, str]], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    places = [at for at in range(len(calls)) if code != errno.EMFILE or calls[at][0] in OPENING]
    outcomes = [check(at, code, f"call {at}: {calls[at]}") for at in places]
    assert any(refused for refused, _ in outcomes) == (code in OURS), "one of two directories is enough to start"
    assert any(offline for _, offline in outcomes) == (code not in OURS)
