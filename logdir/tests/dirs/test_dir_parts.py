"""Parts of a log directory, each made alone over a `DirState` and a disk in memory: no `LogDir` is there."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.logdir import Checkpoint, InconsistentMeta, LogConfig, LogDirError, LogDirLocked, StorageError
from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.copies import Copies
from barnabas.logdir.dirs.dir_keeper import DirKeeper
from barnabas.logdir.dirs.dir_state import DirState
from barnabas.logdir.dirs.identity import Identity
from barnabas.logdir.dirs.loading import Loading
from barnabas.logdir.dirs.partition_dirs import PartitionDirs
from barnabas.logdir.files import layout
from barnabas.logdir.files.checkpoint import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT, write_offsets
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.files.open_files import Pool
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, put

KEY = ("t", 0)
DAY_MS = 86_400_000


class Owner:
    """As the logs see their directory; notes what it hears."""

    def __init__(self) -> None:
        self.pool = Pool(100)
        self.heard: list[str] = []

    def rolled(self, log: object) -> None:
        self.heard.append("rolled")

    def remove_later(self, paths: list[str], due_ms: int) -> None:
        self.heard += paths

    def recovery_point_fell(self, log: object) -> None:
        self.heard.append("fell")

    def storage_failed(self, error: StorageError) -> None:
        self.heard.append("failed")

    def jitter(self) -> float:
        return 0.0


class FakeLog:
    """What a log reports of its offsets."""

    def __init__(self, start: int = 0, end: int = 0, recovery_point: int = 0, first_base: int = 0) -> None:
        self.log_start_offset = start
        self.log_end_offset = end
        self.recovery_point = recovery_point
        self.first_base_offset = first_base
        self.directory = f"{PATH}/t-0"


class Rig:
    """A directory's state, with names that are counted instead of drawn."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dir(PATH)
        numbers = iter(range(1000))
        self.state = DirState(PATH, self.disk, wall_ms=lambda: NOW, unique_hex=lambda: f"{next(numbers):032d}")
        self.failures: list[StorageError] = []
        self.state.on_failure = self.failures.append
        self.owner = Owner()
        self.checkpoints = Checkpoints(self.state)
        self.dirs = PartitionDirs(self.state, self.checkpoints, self.owner)

    def hold(self, key: tuple[str, int], log: FakeLog) -> None:
        self.state.logs[key] = log  # type: ignore[assignment]

    def fail(self, call: str, where: str, code: int = errno.EIO) -> None:
        """This call of the disk fails from now on, for paths that end so."""

        def on_call(name: str, path: str) -> None:
            if name == call and path.endswith(where):
                raise OSError(code, "said the test", path)

        self.disk.on_call = on_call  # type: ignore[assignment]

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.disk.list(PATH))

    def text(self, name: str) -> str:
        return bytes(self.disk.node(f"{PATH}/{name}").data).decode()


# ---- state


def test_a_failure_is_reported_once() -> None:
    rig = Rig()
    first = rig.state.failed("writing x", OSError(errno.EIO, "broken"))
    rig.state.failed("writing y", OSError(errno.ENOSPC, "full"))
    assert rig.state.failure is first
    assert rig.failures == [first]


def test_what_the_process_lacked_is_no_failure_of_the_disk() -> None:
    rig = Rig()
    assert rig.state.failed("opening x", OSError(errno.EMFILE, "too many")).is_ours
    assert rig.state.failure is None
    assert rig.failures == []


# ---- identity


def test_an_identity_makes_the_directory_and_holds_its_lock() -> None:
    disk = MemoryDisk()
    first, second = Identity(disk, "/a/b"), Identity(disk, "/a/b")
    first.open()
    assert first.meta is None
    with pytest.raises(LogDirLocked, match="in use by another broker"):
        second.open()
    first.check(cluster_id="c", node_id=1)
    first.unlock()
    first.unlock()
    second.open()
    assert second.meta is not None
    assert (second.meta.cluster_id, second.meta.node_id) == ("c", 1)
    with pytest.raises(InconsistentMeta):
        second.check(cluster_id="c", node_id=2)


def test_an_identity_that_is_not_known_yet_writes_nothing() -> None:
    disk = MemoryDisk()
    identity = Identity(disk, "/a")
    identity.open()
    identity.check(cluster_id=None, node_id=1)
    assert identity.meta is None
    assert [entry.name for entry in disk.list("/a")] == [layout.LOCK]


# ---- checkpoints


def test_checkpoints_say_what_the_files_said() -> None:
    rig = Rig()
    for name, offset in ((RECOVERY_POINT, 5), (LOG_START, 2), (HIGH_WATERMARK, 4), (CLEANER, 3)):
        write_offsets(rig.disk, PATH, name, {KEY: offset})
    rig.checkpoints.read()
    assert rig.checkpoints.known(KEY) == (5, 2, 3)
    assert rig.checkpoints.known(("other", 0)) == (0, 0, 0)
    for start, end, expected in ((0, 10, 4), (6, 10, 6), (0, 3, 3)):
        assert rig.checkpoints.high_watermark(KEY, FakeLog(start, end)) == expected  # type: ignore[arg-type]


def test_a_damaged_checkpoint_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    write_offsets(rig.disk, PATH, RECOVERY_POINT, {KEY: 5})
    rig.disk.node(f"{PATH}/{RECOVERY_POINT}").data[:] = b"junk"
    rig.checkpoints.read()
    assert rig.checkpoints.known(KEY).recovery_point == 0
    assert f"{PATH}/{RECOVERY_POINT} is not used" in caplog.text


def test_checkpoints_are_of_the_logs_that_are_here() -> None:
    rig = Rig()
    rig.hold(KEY, FakeLog(start=3, end=9, recovery_point=7, first_base=0))
    rig.hold(("t", 1), FakeLog(start=4, end=4, recovery_point=4, first_base=4))
    rig.state.futures["t", 2] = FakeLog(recovery_point=1)  # type: ignore[assignment]
    assert rig.checkpoints.recovery_points().offsets == {KEY: 7, ("t", 1): 4, ("t", 2): 1}
    assert rig.checkpoints.log_starts().offsets == {KEY: 3}, "where it does not start with a segment"
    gone = {KEY: 6, ("gone", 0): 1}
    assert rig.checkpoints.high_watermarks(gone).offsets == {KEY: 6}
    assert rig.checkpoints.high_watermarks({("t", 1): 4}).offsets == {KEY: 6, ("t", 1): 4}


def test_an_earlier_checkpoint_does_not_replace_a_later_one() -> None:
    rig = Rig()
    rig.hold(KEY, FakeLog(recovery_point=1))
    earlier = rig.checkpoints.recovery_points()
    rig.hold(KEY, FakeLog(recovery_point=2))
    later = rig.checkpoints.recovery_points()
    rig.checkpoints.write(later)
    written = rig.text(RECOVERY_POINT)
    rig.checkpoints.write(earlier)
    assert rig.text(RECOVERY_POINT) == written == "0\n1\nt 0 2\n"
    assert rig.checkpoints.is_written(later)
    assert not rig.checkpoints.is_written(earlier)


@pytest.mark.parametrize(("code", "fails_for_good"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_checkpoint_that_cannot_be_written(code: int, fails_for_good: bool) -> None:
    rig = Rig()
    known = Checkpoint(RECOVERY_POINT, 1, {KEY: 1})
    rig.checkpoints.write(known)
    rig.fail("rename", f"{RECOVERY_POINT}.tmp", code)
    with pytest.raises(StorageError):
        rig.checkpoints.write(Checkpoint(RECOVERY_POINT, 2, {KEY: 2}))
    assert (rig.state.failure is not None) == fails_for_good
    assert not rig.checkpoints.is_written(known), "nobody knows what the file says"


def test_a_partition_is_forgotten_where_it_was_known() -> None:
    rig = Rig()
    other = ("t", 1)
    write_offsets(rig.disk, PATH, RECOVERY_POINT, {KEY: 5, other: 6})
    write_offsets(rig.disk, PATH, HIGH_WATERMARK, {other: 6})
    before = rig.text(HIGH_WATERMARK)
    rig.hold(other, FakeLog())
    rig.checkpoints.read()
    rig.checkpoints.forget(KEY)
    assert rig.text(RECOVERY_POINT) == "0\n1\nt 1 6\n"
    assert rig.text(HIGH_WATERMARK) == before
    assert rig.checkpoints.known(KEY).recovery_point == 0
    assert rig.checkpoints.known(other).recovery_point == 6


def test_partitions_that_are_gone_are_forgotten_together() -> None:
    """Creating thousands again costs one write of each file."""
    rig = Rig()
    keys = [("t", index) for index in range(1000)]
    for name in (RECOVERY_POINT, HIGH_WATERMARK):
        write_offsets(rig.disk, PATH, name, dict.fromkeys(keys, 5))
    rig.checkpoints.read()
    kept = ("t", 500)
    rig.hold(kept, FakeLog())
    before = rig.disk.syncs
    for key in keys:
        if key != kept:
            rig.checkpoints.forget(key)
    assert rig.disk.syncs - before == 2
    for name in (RECOVERY_POINT, HIGH_WATERMARK):
        assert rig.text(name) == "0\n1\nt 500 5\n"
    assert rig.checkpoints.known(kept).recovery_point == 5
    assert rig.checkpoints.known(keys[0]).recovery_point == 0


def test_a_truncation_is_in_the_files_at_once() -> None:
    rig = Rig()
    log = FakeLog(start=3, recovery_point=7)
    rig.hold(KEY, log)
    rig.checkpoints.write(rig.checkpoints.recovery_points())
    rig.checkpoints.write(rig.checkpoints.log_starts())
    log.recovery_point = 4
    rig.checkpoints.follow(log)  # type: ignore[arg-type]
    assert rig.text(RECOVERY_POINT) == "0\n1\nt 0 4\n"
    assert rig.text(LOG_START) == "0\n1\nt 0 3\n"
    log.log_start_offset = log.recovery_point = 1
    rig.checkpoints.follow(log)  # type: ignore[arg-type]
    assert rig.text(LOG_START) == "0\n1\nt 0 1\n"


# ---- what the logs tell


def test_a_keeper_passes_on_what_logs_tell() -> None:
    rig = Rig()
    keeper = DirKeeper(rig.state, rig.checkpoints, Pool(10), lambda: 0.25)
    rolled: list[Any] = []
    log, copy = FakeLog(), FakeLog()
    copy.directory = f"{PATH}/t-0.{'0' * 32}{layout.FUTURE_DIR}"
    keeper.rolled(log)  # type: ignore[arg-type]  # nobody listens yet
    keeper.on_rolled = rolled.append
    keeper.rolled(log)  # type: ignore[arg-type]
    keeper.rolled(copy)  # type: ignore[arg-type]
    assert rolled == [log], "a copy is flushed by whoever makes it"
    keeper.remove_later([f"{PATH}/x"], NOW + 5)
    assert rig.state.removals.next_ms == NOW + 5
    assert keeper.jitter() == 0.25
    rig.hold(KEY, log)
    keeper.recovery_point_fell(log)  # type: ignore[arg-type]
    assert rig.text(RECOVERY_POINT) == "0\n1\nt 0 0\n"
    error = StorageError("writing", OSError(errno.EIO, "said the test"))
    keeper.storage_failed(error)
    assert rig.failures == [error]


# ---- directories of partitions


def test_a_directory_and_its_files_come_later() -> None:
    rig = Rig()
    made = rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig(), start_offset=8)
    assert (made.log_start_offset, made.log_end_offset, made.topic_id) == (8, 8, TOPIC_ID)
    assert rig.names() == []
    assert rig.state.logs == {}, "its callers decide where it goes"
    made.make_files()
    assert rig.names() == ["t-0"]
    first = f"{8:020d}"
    files = sorted(entry.name for entry in rig.disk.list(made.directory))
    assert files == [f"{first}.index", f"{first}.log", f"{first}.timeindex", "partition.metadata"]
    made.make_files()
    assert sorted(entry.name for entry in rig.disk.list(made.directory)) == files
    assert put(made, "a") == 8


@pytest.mark.parametrize(("broken", "left"), [(0, []), (1, ["deleted"]), (2, ["copy"])])
def test_half_a_copy_is_not_left(broken: int, left: list[str]) -> None:
    """It cannot be made whole; then not be removed either; then not even be renamed."""
    rig = Rig()
    copy = f"t-0.{0:032d}-future"

    def on_call(name: str, path: str) -> None:
        calls = {"rename": "partition.metadata.tmp"}, {"remove_dir": copy}, {"rename": copy}
        if any(name == call and path.endswith(end) for each in calls[: broken + 1] for call, end in each.items()):
            raise OSError(errno.EIO, "said the test", path)

    rig.disk.on_call = on_call  # type: ignore[assignment]
    copies = Copies(rig.state, rig.dirs)
    with pytest.raises(StorageError, match="said the test"):
        copies.create("t", 0, TOPIC_ID, LogConfig(), 0)
    assert ["copy" if name == copy else "deleted" for name in rig.names()] == left
    assert (rig.state.removals.next_ms is not None) == (left == ["deleted"])
    assert rig.state.futures == {}


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_not_there_yet_is_given_up_in_memory(fails: bool) -> None:
    """Nothing is made any more, also by a thread that was about to; what was begun is renamed as usual."""
    rig = Rig()
    made = rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig())
    if fails:
        rig.fail("rename", "partition.metadata.tmp", errno.EMFILE)
        with pytest.raises(StorageError):
            made.make_files()
        rig.disk.on_call = None
    rig.dirs.give_up(KEY, made)
    assert made.abandoned
    made.make_files()
    assert rig.names() == ([f"t-0.{0:032d}-delete"] if fails else [])
    assert (rig.state.removals.next_ms is not None) == fails


def test_a_topic_id_that_comes_before_the_files_is_in_them() -> None:
    rig = Rig()
    made = rig.dirs.make(KEY, "t-0", None, LogConfig())
    rig.dirs.write_topic_id(made, TOPIC_ID)
    assert rig.names() == []
    made.make_files()
    assert rig.state.logs == {}
    load(rig)
    assert rig.state.logs[KEY].topic_id == TOPIC_ID


def test_a_name_that_no_file_system_takes() -> None:
    rig = Rig()
    with pytest.raises(OSError, match="name too long"):
        rig.dirs.make(KEY, f"{'t' * 249}-100000", TOPIC_ID, LogConfig())


def test_nothing_is_made_after_a_failure() -> None:
    rig = Rig()
    error = rig.state.failed("writing", OSError(errno.EIO, "said the test"))
    with pytest.raises(StorageError) as caught:
        rig.dirs.make(KEY, "t-0", None, LogConfig())
    assert caught.value is error
    assert rig.names() == []


def test_a_deleted_directory_is_removed_and_one_set_aside_is_not() -> None:
    rig = Rig()
    first = rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig(file_delete_delay_ms=DAY_MS))
    first.make_files()
    rig.dirs.give_up(KEY, first)
    assert first.abandoned
    assert rig.names() == [f"t-0.{0:032d}-delete"]
    assert rig.state.removals.next_ms == NOW + DAY_MS
    second = rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig())
    second.make_files()
    rig.dirs.set_aside(KEY, second)
    assert second.abandoned
    assert rig.names() == [f"t-0.{0:032d}-delete", f"t-0.{1:032d}-stray"]
    assert len(rig.state.removals.take(NOW + DAY_MS)) == 1


@pytest.mark.parametrize(("code", "fails_for_good"), [(errno.EIO, True), (errno.ENOMEM, False)])
def test_names_that_are_not_safe_are_said(code: int, fails_for_good: bool) -> None:
    rig = Rig()
    rig.fail("sync_dir", PATH, code)
    with pytest.raises(StorageError, match=f"syncing {PATH}"):
        rig.dirs.sync_names()
    assert (rig.state.failure is not None) == fails_for_good


# ---- copies


def test_a_copy_takes_its_place_with_a_mark() -> None:
    rig = Rig()
    copies = Copies(rig.state, rig.dirs)
    copy = copies.create("t", 0, TOPIC_ID, LogConfig(), 4)
    assert rig.state.futures == {KEY: copy}
    assert copy.log_start_offset == 4
    assert rig.names() == [f"t-0.{0:032d}-future"]
    copies.mark_whole("t", 0)
    copies.mark_whole("other", 0)
    assert copies.promote("t", 0) is copy
    assert (rig.state.logs, rig.state.futures) == ({KEY: copy}, {})
    assert rig.names() == ["t-0"]
    assert put(copy, "a") == 4, "it writes where it lies now"
    assert copies.is_marked_whole("t", 0)
    copies.remove_mark("t", 0)
    copies.remove_mark("t", 0)
    assert not copies.is_marked_whole("t", 0)


def test_a_copy_that_is_not_wanted_is_given_up() -> None:
    rig = Rig()
    copies = Copies(rig.state, rig.dirs)
    copies.create("t", 0, TOPIC_ID, LogConfig(), 0)
    copies.drop("t", 0)
    copies.drop("t", 0)
    assert rig.state.futures == {}
    assert [name.endswith("-delete") for name in rig.names()] == [True]


# ---- loading


def load(rig: Rig) -> Loading:
    loading = Loading(rig.state, rig.checkpoints, rig.owner, lambda topic: LogConfig(), only_copies=False)
    loading.run()
    return loading


def test_all_that_is_there_is_loaded_or_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig()).make_files()
    rig.dirs.make(("u", 1), f"u-1.{9:032d}-future", None, LogConfig()).make_files()
    left_alone = ["lost+found", f"t-1.{7:032d}-stray", "__cluster_metadata-0"]
    for name in (*left_alone, f"t-2.{8:032d}-delete"):
        rig.disk.make_dir(f"{PATH}/{name}")
    rig.state.logs.clear()
    assert not load(rig).was_clean
    assert list(rig.state.logs) == [KEY]
    assert rig.state.logs[KEY].topic_id == TOPIC_ID
    assert list(rig.state.futures) == [("u", 1)]
    assert all(f"{PATH}/{name}" in caplog.text for name in left_alone)
    (removal,) = rig.state.removals.take(NOW + DAY_MS)
    assert removal.paths == (f"{PATH}/t-2.{8:032d}-delete",)


def test_the_mark_of_a_clean_stop_goes_before_anything_is_opened() -> None:
    rig = Rig()
    rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig()).close()
    rig.disk.open(f"{PATH}/{layout.CLEAN_SHUTDOWN}", create=True)
    seen: list[bool] = []

    def on_call(name: str, path: str) -> None:
        if name == "list" and path.endswith("t-0"):
            seen.append(layout.CLEAN_SHUTDOWN in rig.disk._directory(PATH).names)

    rig.disk.on_call = on_call  # type: ignore[assignment]
    assert load(rig).was_clean
    assert seen == [False]


def test_a_partition_that_is_there_twice_stops_it() -> None:
    rig = Rig()
    for number in (1, 2):
        rig.dirs.make(KEY, f"t-0.{number:032d}-future", None, LogConfig()).make_files()
    with pytest.raises(LogDirError, match="is in both"):
        load(rig)


def test_a_topic_id_that_was_torn_is_none(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.dirs.make(KEY, "t-0", TOPIC_ID, LogConfig()).make_files()
    rig.disk.node(f"{PATH}/t-0/partition.metadata").data[:] = b""
    load(rig)
    assert rig.state.logs[KEY].topic_id is None
    assert "for t-0" in caplog.text
