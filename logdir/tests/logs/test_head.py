"""LogHead alone: where a log starts, and which segments go."""

from __future__ import annotations

import errno

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir import StorageError
from barnabas.logdir.logs.head import LogHead
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.logs.parts_kit import Rig

DAY_MS = 86_400_000


def head_of(rig: Rig) -> LogHead:
    return LogHead(rig.state, rig.roller())


def filled(**config: object) -> Rig:
    """Segments from 0, 2, 4 and 6, the last of them active."""
    rig = Rig(**{"retention_ms": -1, "retention_bytes": -1, **config})
    rig.fill("ab", "cd", "ef", "g")
    rig.owner.heard.clear()
    return rig


@pytest.mark.parametrize(("before", "start"), [(0, 0), (3, 3), (6, 6), (-1, 6)])
def test_records_are_deleted_up_to_the_high_watermark(before: int, start: int) -> None:
    rig = filled()
    assert head_of(rig).delete_records(before, 6) == start
    assert rig.state.log_start_offset == start
    assert rig.bases() == [0, 2, 4, 6], "segments go with the next retain"


@pytest.mark.parametrize("before", [7, -2])
def test_no_others_are(before: int) -> None:
    rig = filled()
    with pytest.raises(KafkaError) as caught:
        head_of(rig).delete_records(before, 6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.state.log_start_offset == 0


def test_segments_below_the_start_go() -> None:
    rig = filled(file_delete_delay_ms=7)
    head = head_of(rig)
    head.delete_records(5, 7)
    assert head.retain(NOW) == 2
    assert rig.bases() == [4, 6]
    assert rig.state.log_start_offset == 5
    gone = [path.rpartition("/")[2] for path in rig.owner.heard if path.endswith(".log.deleted")]
    assert gone == [f"{0:020d}.log.deleted", f"{2:020d}.log.deleted"], "from the head, so that a crash leaves no gap"
    assert rig.state.snapshots == [4, 6]
    assert head.retain(NOW) == 0


def test_a_few_at_a_time() -> None:
    rig = filled(retention_bytes=0)
    head = head_of(rig)
    assert [head.retain(NOW, at_most=2) for _ in range(4)] == [2, 2, 0, 0]
    assert rig.bases() == [7], "the last piece begins a new segment"
    assert rig.state.log_start_offset == 7
    gone = [path.rpartition("/")[2] for path in rig.owner.heard if path.endswith(".log.deleted")]
    assert gone == [f"{base:020d}.log.deleted" for base in (0, 2, 4, 6)]


def test_too_many_bytes_go() -> None:
    rig = filled()
    sizes = [segment.size for segment in rig.state.segments]
    rig = filled(retention_bytes=sum(sizes) - sizes[0])
    assert head_of(rig).retain(NOW) == 1
    assert rig.bases() == [2, 4, 6]
    assert rig.state.log_start_offset == 2


@pytest.mark.parametrize(("high_watermark", "bases"), [(None, [7]), (4, [4, 6]), (1, [0, 2, 4, 6])])
def test_what_is_too_old_goes_up_to_the_high_watermark(high_watermark: int | None, bases: list[int]) -> None:
    rig = filled(retention_ms=DAY_MS)
    assert head_of(rig).retain(NOW + DAY_MS) == 0
    head_of(rig).retain(NOW + DAY_MS + 1, high_watermark)
    assert rig.bases() == bases
    assert rig.state.active is rig.state.segments[-1]


def test_an_abandoned_log_is_left_alone() -> None:
    rig = filled(retention_ms=DAY_MS)
    rig.state.abandoned = True
    assert head_of(rig).retain(NOW + 2 * DAY_MS) == 0
    assert rig.owner.heard == []


def test_what_could_not_be_deleted_goes_next_time() -> None:
    rig = filled(retention_ms=DAY_MS)
    rig.fail("rename", ".log", after=1)
    with pytest.raises(StorageError) as caught:
        head_of(rig).retain(NOW + DAY_MS + 1, 6)
    assert caught.value.is_ours
    assert rig.state.failure is None
    assert rig.bases() == [2, 4, 6]
    assert rig.state.log_start_offset == 6, "nobody is served what is about to go"
    rig.works()
    assert head_of(rig).retain(NOW + DAY_MS + 1, 6) == 2
    assert rig.bases() == [6]


def test_a_broken_disk_ends_the_log() -> None:
    rig = filled(retention_ms=DAY_MS)
    rig.fail("rename", ".log", errno.EIO)
    with pytest.raises(StorageError):
        head_of(rig).retain(NOW + DAY_MS + 1)
    assert rig.state.failure is not None
