"""Compaction alone, over segments that no `PartitionLog` holds: its run, and the five steps of its swap."""

from __future__ import annotations

import pytest

from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import CompactionAborted, CompactionLimits, StorageError
from barnabas.logdir.compaction.plan import CleanedSegment, CompactionPlan
from barnabas.logdir.compaction.run import CompactionRun
from barnabas.logdir.logs.compacted import Compaction, Step, Swap
from barnabas.logdir.logs.reader import Reader
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.logs.parts_kit import Rig

LIMITS = CompactionLimits(1 << 20, 0.9, 4096)


class Cleaning(Rig):
    """Segments from 0, 2 and 4, the last of them active; every record has the key k. Everything is synced."""

    def __init__(self) -> None:
        super().__init__(cleanup_policy=frozenset({"compact"}))
        for number in range(5):
            if number in (2, 4):
                self.roller().roll(NOW)
            data = memoryview(build_batch([Record(timestamp=NOW, key=b"k", value=b"%d" % number)]))
            data[:8] = number.to_bytes(8, "big")
            self.writer.staged.append(data)
            self.writer.batches.append((number, len(data), NOW))
            self.writer.position += len(data)
            self.state.next_offset = number + 1
            self.writer.write()
        self.flusher.flush()
        self.compaction = Compaction(self.state, Reader(self.state))

    def begin(self) -> CompactionPlan:
        return self.compaction.begin(self.compaction.state(None, NOW, self.state.log_end_offset), NOW)

    def cleaned(self, plan: CompactionPlan) -> CleanedSegment:
        return next(iter(CompactionRun(self.disk, plan, LIMITS, lambda size: None)))

    def swap(self) -> tuple[CompactionPlan, Swap]:
        plan = self.begin()
        return plan, self.compaction.begin_swap(plan, self.cleaned(plan), NOW)


def test_what_is_dirty_ends_before_what_is_not_synced() -> None:
    rig = Cleaning()
    dirty = rig.compaction.state(None, NOW, 5)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (0, 4)
    assert rig.compaction.state(2, NOW, 5).first_dirty_offset == 2
    assert rig.compaction.state(None, NOW, 3).first_uncleanable_offset == 2, "may still be undecided"
    rig.state.recovery_point = 3
    assert rig.compaction.state(None, NOW, 5).first_uncleanable_offset == 2


def test_what_was_truncated_is_dirty_until_the_next_run_begins() -> None:
    rig = Cleaning()
    rig.state.truncated_to = 1
    assert rig.compaction.state(3, NOW, 5).first_dirty_offset == 1
    rig.begin()
    assert rig.state.truncated_to is None


def test_one_run_at_a_time() -> None:
    rig = Cleaning()
    assert not rig.compaction.is_under_way
    plan = rig.begin()
    assert rig.compaction.is_under_way
    assert [source.base_offset for source in plan.sources] == [0, 2]
    with pytest.raises(RuntimeError, match="is being compacted"):
        rig.begin()
    rig.cleaned(plan)
    assert rig.names(".cleaned")
    rig.compaction.end(plan)
    assert not rig.compaction.is_under_way
    assert rig.names(".cleaned") == [], "what was not used is removed"


def test_five_steps() -> None:
    rig = Cleaning()
    plan, swap = rig.swap()
    with pytest.raises(RuntimeError, match="another swap"):
        rig.compaction.begin_swap(plan, swap.cleaned, NOW)
    swap.prepare()
    assert (swap.step, rig.bases()) == (Step.PREPARED, [0, 2, 4])
    assert f"{0:020d}.log.swap" in rig.names()
    rig.compaction.replace_segments(swap)
    assert rig.bases() == [0, 4]
    swap.complete()
    assert rig.names(".swap") == []
    rig.owner.heard.clear()
    rig.compaction.end_swap(swap)
    assert swap.step is Step.ENDED
    assert {path.rpartition("/")[2] for path in rig.owner.heard} >= {f"{n:020d}.log.deleted" for n in (0, 2)}
    assert rig.state.snapshots == [4], "that of the second segment goes with it"
    kept = rig.state.segments[0]
    assert [batch.last_offset for batch in kept.batches()] == [3], "the last record of its key below the dirty part"


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_stopped_compaction_leaves_the_old_or_the_new_segments(steps: int) -> None:
    """What is only begun is not used; what is prepared is ended, as recovery would."""
    rig = Cleaning()
    plan, swap = rig.swap()
    for step in (swap.prepare, lambda: rig.compaction.replace_segments(swap), swap.complete)[:steps]:
        step()
    rig.compaction.stop()
    assert not rig.compaction.is_under_way
    assert rig.bases() == ([0, 4] if steps else [0, 2, 4])
    assert swap.step is (Step.ENDED if steps else Step.CANCELLED)
    assert rig.names(".swap") == []
    if not steps:
        with pytest.raises(CompactionAborted):
            rig.compaction.replace_segments(swap)
    with pytest.raises(CompactionAborted):
        rig.compaction.begin_swap(plan, swap.cleaned, NOW)


@pytest.mark.parametrize(("offset", "stops"), [(4, False), (3, True), (0, True)])
def test_a_truncation_below_its_end_stops_it(offset: int, stops: bool) -> None:
    rig = Cleaning()
    rig.begin()
    rig.compaction.stop_for_truncation(offset)
    assert rig.compaction.is_under_way != stops


def test_a_log_that_failed_is_left_to_recovery() -> None:
    rig = Cleaning()
    _, swap = rig.swap()
    swap.prepare()
    failure = rig.state.broken("writing to", OSError(5, "said the test"))
    with pytest.raises(StorageError) as caught:
        rig.compaction.stop()
    assert caught.value is failure
    assert f"{0:020d}.log.swap" in rig.names()
    rig.compaction.abandon()
    with pytest.raises(CompactionAborted):
        rig.compaction.replace_segments(swap)
