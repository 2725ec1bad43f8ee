"""Parts of a log, each made alone over a `LogState`: nothing above it is needed."""

from __future__ import annotations

import errno
import threading

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import LogConfig, StorageError
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.files.open_files import Pool
from barnabas.logdir.logs.flusher import Flusher
from barnabas.logdir.logs.reader import Reader
from barnabas.logdir.logs.roll_limits import NEVER, RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.segment import UNKNOWN, Segment
from barnabas.logdir.tests.kit import NOW, batch

HERE = "/t-0"


class Owner:
    """The log directory, which notes what it hears."""

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


def empty_log(disk: Disk, owner: Owner, **config: object) -> LogState:
    disk.make_dir(HERE)
    lock = threading.RLock()
    first = Segment.new(disk, HERE, 0, owner.pool, lock, now_ms=NOW)
    first.make_files()
    return LogState(
        disk,
        HERE,
        LogConfig(**config),  # type: ignore[arg-type]
        owner,
        lock,
        segments=[first],
        producers=Producers(),
        snapshots=[],
        epochs=LeaderEpochs(),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        topic_id=None,
    )


class Rig:
    """Everything that a write needs, and nothing that appends."""

    def __init__(self, **config: object) -> None:
        self.disk = MemoryDisk()
        self.owner = Owner()
        self.state = empty_log(self.disk, self.owner, **config)
        self.flusher = Flusher(self.state)
        self.repair = TailRepair(self.state, self.flusher, lambda: self.owner.recovery_point_fell(None))
        self.limits = RollLimits(self.state, 0)
        self.writer = Writer(self.state, self.repair, self.limits)

    def stage(self, value: str) -> int:
        """As an appender does; the bytes of the batch."""
        data = memoryview(batch(value))
        state, writer = self.state, self.writer
        data[:8] = state.next_offset.to_bytes(8, "big")
        writer.staged.append(data)
        writer.batches.append((state.next_offset, len(data), NOW))
        writer.position += len(data)
        state.next_offset += 1
        return len(data)


def test_a_writer_writes_what_is_staged_and_nothing_twice() -> None:
    rig = Rig()
    size = rig.stage("a") + rig.stage("b")
    assert (rig.state.log_end_offset, rig.state.next_offset) == (0, 2)
    rig.writer.write()
    rig.writer.write()
    assert (rig.state.log_end_offset, rig.state.active.size, rig.writer.position) == (2, size, size)


@pytest.mark.parametrize(("code", "fails_for_good"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_writer_takes_back_what_the_disk_refuses(code: int, fails_for_good: bool) -> None:
    rig = Rig()
    written = rig.stage("a")
    rig.writer.write()
    rig.stage("b")
    pwritev = rig.writer.pwritev

    def refuse(*_: object) -> int:
        raise OSError(code, "said the test")

    rig.writer.pwritev = refuse  # type: ignore[assignment]
    with pytest.raises(StorageError):
        rig.writer.write()
    assert (rig.state.log_end_offset, rig.state.next_offset, rig.writer.position) == (1, 1, written)
    assert (rig.state.failure is not None, rig.owner.heard) == (fails_for_good, ["failed"] * fails_for_good)
    assert not rig.repair.is_needed
    rig.writer.pwritev = pwritev
    rig.stage("c")
    rig.writer.write()
    assert rig.state.log_end_offset == 2


def test_a_roller_starts_a_segment_when_the_active_one_is_full() -> None:
    rig = Rig(segment_bytes=100)
    rolled: list[str] = []
    roller = Roller(rig.state, rig.repair, rig.limits, rig.writer, lambda: rolled.append("rolled"))
    roller.roll_if_due(99, NOW, 0, NOW)
    assert (len(rig.state.segments), rolled) == (1, []), "an empty segment takes any batch"
    size = rig.stage("a" * 20)
    rig.limits.count_age_from(NOW)
    roller.roll_if_due(size, NOW, 1, NOW)
    assert ([each.base_offset for each in rig.state.segments], rolled) == ([0, 1], ["rolled"])
    assert rig.state.active is rig.state.segments[-1]
    assert rig.writer.position == 0


def test_limits_of_a_segment_that_is_opened_are_looked_up_by_the_next_append() -> None:
    rig = Rig(segment_ms=1000)
    assert rig.limits.clock == rig.limits.timestamp == NEVER
    limits = RollLimits(rig.state, 1)
    assert limits.clock == limits.timestamp == UNKNOWN
    limits.count_age_from(NOW)
    assert (limits.timestamp, limits.clock) == (NOW + 1000, NEVER)
    limits.count_age_from(-1)
    assert (limits.timestamp, limits.clock) == (NEVER, NOW + 1000)


def test_a_reader_sees_what_is_written() -> None:
    rig = Rig()
    reader = Reader(rig.state)
    size = rig.stage("a")
    assert reader.read(0, 1000, upper_offset=10, min_one_batch=True) is None
    rig.writer.write()
    found = reader.read(0, 1000, upper_offset=10, min_one_batch=True)
    assert found is not None
    assert (found.position, found.length) == (0, size)
    with pytest.raises(KafkaError) as caught:
        reader.read(2, 1000, upper_offset=10, min_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_flush_of_before_a_truncation_moves_nothing() -> None:
    rig = Rig()
    rig.stage("a")
    rig.writer.write()
    flush = rig.flusher.begin()
    rig.state.generation += 1
    rig.flusher.end(flush)
    assert rig.state.recovery_point == 0
    assert rig.flusher.is_needed
    rig.flusher.flush()
    assert rig.state.recovery_point == 1
