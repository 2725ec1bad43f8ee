"""Truncation alone: what it cuts in memory, and what it has its parts do."""

from __future__ import annotations

import errno

import pytest

from barnabas.logdir import StorageError
from barnabas.logdir.logs.truncation import Truncation
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.logs.parts_kit import Rig


class FakeCompaction:
    """Notes before which truncations it is to stop."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def stop_for_truncation(self, offset: int) -> None:
        self.told.append(offset)


class Cutting(Rig):
    """Segments from 0, 3 and 5, of which one is active; everything is synced."""

    def __init__(self, compaction: FakeCompaction | None = None) -> None:
        super().__init__()
        for epoch, offset in ((1, 0), (2, 4)):
            self.state.epochs.assign(epoch, offset)
        self.fill("abc", "de", "fg")
        self.flusher.flush()
        self.truncation = Truncation(
            self.state,
            self.repair,
            self.limits,
            self.writer,
            self.roller(),
            compaction,  # type: ignore[arg-type]
        )
        self.owner.heard.clear()

    def offsets(self) -> tuple[int, int, int, int]:
        state = self.state
        return state.log_start_offset, state.recovery_point, state.log_end_offset, state.next_offset


@pytest.mark.parametrize(("offset", "bases"), [(6, [0, 3, 5]), (5, [0, 3, 5]), (4, [0, 3]), (1, [0]), (0, [0])])
def test_the_log_ends_where_it_is_cut(offset: int, bases: list[int]) -> None:
    rig = Cutting()
    assert rig.truncation.truncate_to(offset, NOW)
    assert rig.offsets() == (0, offset, offset, offset)
    assert rig.bases() == bases
    assert rig.writer.position == rig.state.active.size == len(rig.disk.node(rig.state.active.path()).data)
    assert rig.state.leader_epoch == (2 if offset > 4 else 1 if offset else -1)
    assert (rig.state.generation, rig.state.truncated_to) == (1, offset)
    assert rig.owner.heard[0] == "fell", "the checkpoint said that more is safe"
    rig.stage("x")
    rig.writer.write()
    assert rig.state.log_end_offset == offset + 1


def test_nothing_is_cut_behind_the_end() -> None:
    rig = Cutting()
    rig.state.epochs.assign(9, 7)
    assert not rig.truncation.truncate_to(7, NOW)
    assert rig.offsets() == (0, 7, 7, 7)
    assert rig.state.leader_epoch == 2, "an epoch without records goes"
    assert (rig.state.generation, rig.state.truncated_to, rig.owner.heard) == (0, None, [])


def test_what_is_staged_is_written_before() -> None:
    rig = Cutting()
    rig.stage("h")
    assert rig.truncation.truncate_to(7, NOW)
    assert rig.offsets() == (0, 7, 7, 7)


def test_the_deepest_truncation_is_remembered() -> None:
    rig = Cutting()
    for offset in (6, 2):
        rig.truncation.truncate_to(offset, NOW)
    rig.fill("xyz")
    rig.truncation.truncate_to(4, NOW)
    assert rig.state.truncated_to == 2


@pytest.mark.parametrize("offset", [0, 3, 100])
def test_all_is_dropped(offset: int) -> None:
    rig = Cutting()
    rig.truncation.truncate_fully(offset, NOW)
    assert rig.offsets() == (offset, min(offset, 7), offset, offset)
    assert rig.bases() == [offset]
    assert rig.names(".log") == [f"{offset:020d}.log"]
    assert rig.state.epochs.entries == ()
    assert len([path for path in rig.owner.heard if path.endswith(".log.deleted")]) == 3


def test_a_gap_is_skipped_in_a_segment_of_its_own() -> None:
    rig = Cutting()
    rig.truncation.skip_to(20, NOW)
    assert rig.bases() == [0, 3, 5, 20]
    assert rig.offsets() == (0, 7, 20, 20)
    empty = Cutting()
    empty.truncation.truncate_fully(7, NOW)
    empty.truncation.skip_to(20, NOW)
    assert empty.bases() == [20], "an empty log begins there"


def test_a_log_that_cannot_be_read_is_left_as_it_is() -> None:
    rig = Cutting()
    rig.state.segments[1].release()
    rig.fail("open", f"{3:020d}")
    with pytest.raises(StorageError) as caught:
        rig.truncation.truncate_to(4, NOW)
    assert caught.value.is_ours
    assert rig.offsets() == (0, 7, 7, 7)
    assert rig.bases() == [0, 3, 5]
    rig.works()
    assert rig.truncation.truncate_to(4, NOW)


@pytest.mark.parametrize(("code", "fails_for_good"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_files_that_cannot_follow_yet(code: int, fails_for_good: bool) -> None:
    """The log is as short as it has to be; its files are cut before anything else is written."""
    rig = Cutting()
    rig.fail("truncate", f"{3:020d}.log", code)
    with pytest.raises(StorageError):
        rig.truncation.truncate_to(4, NOW)
    assert rig.offsets() == (0, 4, 4, 4)
    assert (rig.state.failure is not None) == fails_for_good
    assert rig.repair.is_needed
    rig.works()
    rig.stage("x")
    rig.writer.write()
    assert rig.state.log_end_offset == 5
    assert len(rig.disk.node(rig.state.active.path()).data) == rig.state.active.size


def test_a_compaction_hears_of_it_before() -> None:
    compaction = FakeCompaction()
    rig = Cutting(compaction)
    rig.truncation.truncate_to(6, NOW)
    rig.truncation.truncate_fully(2, NOW)
    assert compaction.told == [6, 0]
