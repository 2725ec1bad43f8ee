"""TailRepair alone: what a failed write, or a truncation, has left to be done."""

from __future__ import annotations

import errno

import pytest

from barnabas.logdir import StorageError
from barnabas.logdir.segments.cutting import Cut
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.logs.parts_kit import HERE, Rig


def cut_to_first(rig: Rig, **changes: bool) -> Cut:
    """A truncation that has left the first segment, in memory."""
    state = rig.state
    doomed = state.segments[1:]
    del state.segments[1:]
    state.active = state.segments[0]
    return Cut(doomed, NOW + 5, False, 1, None, changes.get("fell", False))


def test_it_does_nothing_unless_it_is_needed() -> None:
    rig = Rig()
    rig.fail("truncate", "", errno.EIO)
    rig.repair.finish()
    assert rig.state.failure is None


def test_bytes_of_a_failed_write_are_cut_off() -> None:
    rig = Rig()
    rig.fill("ab")
    node = rig.disk.node(rig.state.active.path())
    size = len(node.data)
    node.data += b"torn"
    rig.repair.is_needed = True
    rig.repair.finish()
    assert len(node.data) == size
    assert node.durable == node.data, "synced: what was refused must not come back"
    assert not rig.repair.is_needed


def test_a_cut_deletes_segments_from_the_end_and_says_first_that_less_is_safe() -> None:
    rig = Rig()
    rig.fill("a", "b", "c")
    rig.repair.begin(cut_to_first(rig, fell=True))
    assert rig.repair.is_needed
    rig.repair.finish()
    heard = rig.owner.heard[rig.owner.heard.index("fell") :]
    assert [name.rpartition("/")[2] for name in heard if ".log" in name] == [
        f"{2:020d}.log.deleted",
        f"{1:020d}.log.deleted",
    ]
    assert (rig.repair.cut, rig.repair.is_needed) == (None, False)
    assert rig.names(".log") == [f"{0:020d}.log"]


def test_what_could_not_be_done_is_done_later_and_nothing_twice() -> None:
    rig = Rig()
    rig.fill("a", "b", "c")
    rig.repair.begin(cut_to_first(rig, fell=True))
    rig.fail("rename", f"{1:020d}.log")
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            rig.repair.finish()
        assert caught.value.is_ours
        assert rig.repair.is_needed
    assert rig.state.failure is None
    rig.works()
    rig.repair.finish()
    assert rig.owner.heard.count("fell") == 1
    assert len([name for name in rig.owner.heard if name.endswith(f"{2:020d}.log.deleted")]) == 1
    assert not rig.repair.is_needed


def test_a_broken_disk_ends_the_log() -> None:
    rig = Rig()
    rig.fill("a", "b")
    rig.repair.begin(cut_to_first(rig))
    rig.fail("rename", ".log", errno.EIO)
    with pytest.raises(StorageError) as caught:
        rig.repair.finish()
    assert rig.state.failure is caught.value
    assert "failed" in rig.owner.heard


def test_snapshots_behind_the_cut_go() -> None:
    rig = Rig()
    rig.fill("a", "b", "c")
    assert rig.state.snapshots == [1, 2]
    rig.repair.begin(cut_to_first(rig))
    rig.repair.finish()
    assert rig.state.snapshots == [1]
    assert rig.names(".snapshot") == [f"{1:020d}.snapshot"]


def test_an_empty_log_in_place_of_all_gets_files_and_saves_its_epochs() -> None:
    rig = Rig()
    rig.fill("a")
    rig.state.epochs.assign(3, 0)
    rig.flusher.flush()
    rig.state.epochs.clear()
    doomed = rig.state.segments[:]
    del rig.state.segments[:]
    rig.roller().activate(rig.roller().new_segment(7, NOW))
    rig.repair.begin(Cut(doomed, NOW, True, -1, None, False))
    rig.repair.finish()
    assert rig.names(".log") == [f"{7:020d}.log"]
    assert bytes(rig.disk.node(f"{HERE}/leader-epoch-checkpoint").data) == b"0\n0\n"
