"""Parts of a log that write, roll, read and flush, each made alone over a `LogState`."""

from __future__ import annotations

import errno

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import StorageError
from barnabas.logdir.logs.reader import Reader
from barnabas.logdir.logs.roll_limits import NEVER, RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.segments.segment import UNKNOWN
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.logs.parts_kit import Rig


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
    roller = Roller(rig.state, rig.repair, rig.limits, rig.writer)
    roller.roll_if_due(99, NOW, 0, NOW)
    assert (len(rig.state.segments), rig.owner.heard) == (1, []), "an empty segment takes any batch"
    size = rig.stage("a" * 20)
    rig.limits.count_age_from(NOW)
    roller.roll_if_due(size, NOW, 1, NOW)
    assert ([each.base_offset for each in rig.state.segments], rig.owner.heard) == ([0, 1], ["rolled"])
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
