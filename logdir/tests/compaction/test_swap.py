"""Putting a cleaned segment in place of others: in the middle of reads, stops and truncations, and over crashes at
every call to the disk.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.logdir import StorageError
from barnabas.logdir.compaction.plan import CleanedSegment, CompactionAborted, CompactionPlan
from barnabas.logdir.compaction.run import CompactionRun
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.logs.compacted import Swap
from barnabas.logdir.tests.compaction.compaction_kit import LIMITS, NOW, Compacted, committed, final_values
from barnabas.logdir.tests.kit import PATH, put

HOME = f"{PATH}/t-0"


def filled() -> Compacted:
    """Five segments that become two, with a transaction over some of them that is aborted in a later one."""
    log = Compacted(segment_bytes=260)
    values = random.Random(1)
    for number in range(12):
        log.put((b"k%d" % (number % 5), values.randbytes(20)), (b"once-%d" % number, b""))
        if number in (2, 5):
            log.put((b"k3", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=number // 5, transactional=True)
        if number == 7:
            log.put((b"k4", None), delete_horizon_ms=NOW)
            log.end_transaction(1, commit=False)
    log.roll()
    log.config = log.log.config = replace(log.config, segment_bytes=900)
    return log


def begun(log: Compacted) -> tuple[CompactionPlan, CleanedSegment, CompactionRun]:
    plan = log.log.begin_compaction(log.state(), NOW)
    run = CompactionRun(log.disk, plan, LIMITS, lambda size: None)
    return plan, next(iter(run)), run


def advance(log: Compacted, swap: Swap, steps: int) -> None:
    """The first `steps` of what follows `begin_swap`."""
    for step in (swap.prepare, lambda: log.log.replace_segments(swap), swap.complete, lambda: log.log.end_swap(swap))[
        :steps
    ]:
        step()


# ---- crashes


class Crash(BaseException):
    """The machine stops."""


def crashing(disk: MemoryDisk, at: int) -> Callable[[str, str], None]:
    left = at

    def on_call(name: str, path: str) -> None:
        nonlocal left
        if name in ("pread", "list"):
            return
        left -= 1
        if left < 0:
            raise Crash(name, path)

    return on_call


def crash_everywhere(seeds: range) -> int:
    """Crash before every call that changes something, from the start of a run to its end. How often."""
    made = filled()
    wanted = final_values(made.log)
    everything = {(record.offset, record.key, record.value) for record in made.records()}
    made.log_dir.close()
    clean = Compacted(made.config, disk=copy.deepcopy(made.disk))
    clean.clean()
    best = committed(clean.log)
    at = 0
    while True:
        done = False
        for seed in seeds:
            log = Compacted(made.config, disk=copy.deepcopy(made.disk))
            log.disk.on_call = crashing(log.disk, at)
            try:
                log.clean()
                done = True
            except Crash:
                pass
            log.disk.on_call = None
            log.disk.crash(random.Random(seed * 1000 + at))
            log.open()
            note = f"call {at}, seed {seed}: {log.names()}"
            assert final_values(log.log) == wanted, note
            assert {(record.offset, record.key, record.value) for record in log.records()} <= everything, note
            assert log.log.log_end_offset == made.log.log_end_offset, note
            assert not [name for name in log.names() if name.endswith((".cleaned", ".swap", ".deleted"))], note
            log.clean()
            assert committed(log.log) == best, note
        if done:
            return at
        at += 1


def test_a_crash_at_any_call_leaves_the_old_or_the_new() -> None:
    assert crash_everywhere(range(1)) > 40


@pytest.mark.campaign
def test_a_crash_at_any_call_leaves_the_old_or_the_new_whatever_is_lost() -> None:
    assert crash_everywhere(range(1, 1 + int(os.environ.get("BARNABAS_CRASH_SEEDS", "3")))) > 40


@pytest.mark.parametrize("steps", [1, 2])
def test_a_crash_in_the_recovery_of_a_swap(steps: int) -> None:
    """What was prepared and not completed is completed by the next start, or the one after that."""
    made = filled()
    wanted = final_values(made.log)
    plan, cleaned, _ = begun(made)
    advance(made, made.log.begin_swap(plan, cleaned, NOW), steps)
    at = 0
    while True:
        log = Compacted.__new__(Compacted)
        log.__dict__.update(made.__dict__, disk=copy.deepcopy(made.disk))
        log.disk.crash(random.Random(at))
        log.disk.on_call = crashing(log.disk, at)
        try:
            log.open()
        except Crash:
            log.disk.on_call = None
            log.disk.crash(random.Random(at))
            log.open()
        else:
            break
        assert final_values(log.log) == wanted, at
        assert plan.sources[1].base_offset not in log.log.segment_bases, "the swap was to be completed"
        at += 1
    assert at > 8


def test_a_crash_in_the_swap_of_an_empty_segment() -> None:
    """Nothing of the old segment of that name is left beside the new one."""
    log = Compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.put((b"a", b"2"))
    log.roll()
    log.config = log.log.config = replace(log.config, segment_bytes=100)
    plan, cleaned, _ = begun(log)
    assert (cleaned.size, cleaned.replaced) == (0, (0,))
    log.log_dir.checkpoints.write(log.log_dir.checkpoints.recovery_points())  # else all is made anew
    log.log.begin_swap(plan, cleaned, NOW).prepare()
    log.disk.open(f"{HOME}/{0:020d}.txnindex", create=True)
    log.disk.sync_dir(HOME)
    log.disk.crash(random.Random(1))
    log.open()
    assert log.pairs() == [(1, b"a", b"2")]
    assert f"{0:020d}.txnindex" not in log.names()
    assert log.disk.node(f"{HOME}/{0:020d}.log").data == b""


# ---- in the middle of other things


@pytest.mark.parametrize("steps", range(5))
def test_reading_goes_on(steps: int) -> None:
    """Slices of before are good, and at every step everything can be read, with all descriptors taken away."""
    log = filled()
    wanted = final_values(log.log)
    neighbours = [log.log_dir.open_or_create("u", number, None, log.config) for number in range(6)]
    slice_of_old = log.log.read(0, 1 << 20, upper_offset=log.log.log_end_offset, min_one_batch=True)
    assert slice_of_old is not None
    before = bytes(log.disk.node(f"{HOME}/{0:020d}.log").data)
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    advance(log, swap, steps)
    for neighbour in neighbours:
        put(neighbour, b"x", keys=[b"k"])
    assert final_values(log.log) == wanted
    assert log.log.offset_for_timestamp(NOW) is not None
    assert log.log.aborted_transactions(0, 100) != []
    log.put((b"new", b""))
    log.roll()
    assert slice_of_old.read() == before
    if steps == 4:
        due = log.log_dir.removals.take(NOW + log.config.file_delete_delay_ms)
        log.log_dir.removals.remove(due)
        assert not [name for name in log.names() if name.endswith((".deleted", ".swap"))]
        assert final_values(log.log) == {**wanted, b"new": b""}
        assert slice_of_old.read() == before


@pytest.mark.parametrize("steps", range(5))
def test_a_truncation_stops_it(steps: int) -> None:
    """Nothing of what was cut off comes back, not even after a crash."""
    log = filled()
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    advance(log, swap, steps)
    cut = cleaned.replaced[1] + 1
    log.log.truncate_to(cut, NOW)
    assert not log.log.compacting
    end = log.log.log_end_offset
    assert end <= cut
    for offset in range(end, end + 5):
        log.put((b"other", b"%d" % offset))
    if steps == 0:
        with pytest.raises(CompactionAborted):
            swap.prepare()
    elif steps < 4:
        swap.prepare()
        log.log.replace_segments(swap)
        swap.complete()
        log.log.end_swap(swap)
    with pytest.raises(CompactionAborted):
        log.log.begin_swap(plan, cleaned, NOW)
    log.log.end_compaction(plan)
    wanted = log.pairs()
    assert [pair[1] for pair in wanted].count(b"other") == 5
    assert log.state().first_dirty_offset == 0
    log.log.flush()
    log.disk.crash(random.Random(steps))
    log.open()
    assert log.pairs() == wanted
    assert not [name for name in log.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_truncation_above_it_does_not() -> None:
    log = filled()
    log.put((b"more", b""))
    plan, cleaned, _ = begun(log)
    log.log.truncate_to(log.log.log_end_offset - 1, NOW)
    assert log.log.compacting
    log.log.swap_in(plan, cleaned, NOW)
    log.log.end_compaction(plan)


def test_what_was_clean_is_dirty_after_a_truncation() -> None:
    log = filled()
    log.clean()
    assert log.checkpoint == log.log.log_end_offset
    cut = log.log.log_end_offset - 3
    log.log.truncate_to(cut, NOW)
    cut = log.log.log_end_offset
    for number in range(60):
        log.put((b"k", b"%d" % number))
    log.roll()
    state = log.state()
    assert (state.first_dirty_offset, state.checkpoint_invalid) == (cut, True)
    log.clean()
    assert [pair[1] for pair in log.pairs()].count(b"k") == 1
    assert not log.state().checkpoint_invalid


@pytest.mark.parametrize("steps", range(5))
def test_a_clean_stop_in_the_middle(steps: int) -> None:
    log = filled()
    wanted = final_values(log.log)
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    advance(log, swap, steps)
    log.log_dir.close()
    with pytest.raises(CompactionAborted):
        swap.prepare()
    log.open()
    assert log.log_dir.was_clean
    assert final_values(log.log) == wanted
    assert not [name for name in log.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("steps", range(4))
def test_a_deletion_in_the_middle(steps: int) -> None:
    """Nothing is touched any more: another partition of that name may be there."""
    log = filled()
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    advance(log, swap, steps)
    old = log.log
    log.log_dir.delete("t", 0)
    log.log = log.log_dir.open_or_create("t", 0, None, log.config)
    log.log.make_files()
    names = log.names()
    for step in (swap.prepare, lambda: old.replace_segments(swap), swap.complete, lambda: old.end_swap(swap)):
        with pytest.raises(CompactionAborted):
            step()
    old.end_compaction(plan)
    assert log.names() == names


def test_one_at_a_time() -> None:
    log = filled()
    plan, cleaned, _ = begun(log)
    with pytest.raises(RuntimeError):
        log.log.begin_compaction(log.state(), NOW)
    log.log.begin_swap(plan, cleaned, NOW)
    with pytest.raises(RuntimeError):
        log.log.begin_swap(plan, cleaned, NOW)
    log.log.end_compaction(plan)
    assert not [name for name in log.names() if name.endswith(".cleaned")]
    second = log.log.begin_compaction(log.state(), NOW)
    log.log.end_compaction(plan)
    assert log.log.compacting, "the second one goes on"
    with pytest.raises(CompactionAborted):
        log.log.begin_swap(plan, cleaned, NOW)
    log.log.end_compaction(second)


# ---- a disk that fails


def failing(name: str, suffix: str, error: int) -> Callable[[str, str], None]:
    def on_call(called: str, path: str) -> None:
        if called == name and path.endswith(suffix):
            raise OSError(error, os.strerror(error), path)

    return on_call


@pytest.mark.parametrize(("call", "suffix"), [("rename", ".timeindex.cleaned"), ("open", ".index.swap")])
def test_a_swap_that_cannot_be_prepared_is_undone(call: str, suffix: str) -> None:
    log = filled()
    before = log.pairs()
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    log.disk.on_call = failing(call, suffix, errno.EIO)
    with pytest.raises(StorageError):
        swap.prepare()
    log.disk.on_call = None
    log.log.end_compaction(plan)
    assert log.log.failure is None
    assert not [name for name in log.names() if name.endswith((".cleaned", ".swap"))]
    assert log.pairs() == before
    log.log.truncate_to(5, NOW)
    log.clean()
    log.disk.crash(random.Random(1))
    log.open()
    assert log.log.log_end_offset <= 5


@pytest.mark.parametrize(("call", "suffix"), [("rename", ".log"), ("rename", ".log.swap"), ("sync_dir", "t-0")])
def test_a_swap_that_cannot_be_completed_fails_the_directory(call: str, suffix: str) -> None:
    """The next start ends it."""
    log = filled()
    wanted = final_values(log.log)
    plan, cleaned, _ = begun(log)
    swap = log.log.begin_swap(plan, cleaned, NOW)
    advance(log, swap, 2)
    log.disk.on_call = failing(call, suffix, errno.EIO)
    with pytest.raises(StorageError):
        swap.complete()
    log.disk.on_call = None
    assert log.log.failure is not None
    assert log.log_dir.failure is not None
    log.disk.crash(random.Random(1))
    log.open()
    assert final_values(log.log) == wanted


def test_a_full_disk_ends_the_run() -> None:
    log = filled()
    before = log.pairs()
    plan = log.log.begin_compaction(log.state(), NOW)
    for space in (0, 100, 500):
        log.disk.space = space
        with pytest.raises(OSError, match="No space"):
            next(iter(CompactionRun(log.disk, plan, LIMITS, lambda size: None)))
        log.disk.space = None
        assert not [name for name in log.names() if name.endswith(".cleaned")]
    log.log.end_compaction(plan)
    assert log.pairs() == before


@pytest.mark.parametrize("code", [errno.EINTR, errno.EMFILE, errno.EIO])
def test_a_call_that_fails_while_a_swap_is_completed(code: int) -> None:
    """Whoever ends it goes on where it stopped: the names of the old segments are the new one's by then. If the disk
    has failed, the next start does.
    """
    made = filled()
    wanted = final_values(made.log)
    made.log_dir.close()
    at = 0
    while True:
        log = Compacted(made.config, disk=copy.deepcopy(made.disk))
        plan, cleaned, _ = begun(log)
        swap = log.log.begin_swap(plan, cleaned, NOW)
        swap.prepare()
        log.log.replace_segments(swap)
        left = at

        def on_call(name: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(code, os.strerror(code), path)

        log.disk.on_call = on_call
        try:
            swap.complete()
            log.log.end_swap(swap)
        except StorageError:
            pass
        log.disk.on_call = None
        if code == errno.EIO and left < 0:
            assert log.log.failure is not None
            with contextlib.suppress(StorageError):
                log.log.end_compaction(plan)
        else:
            log.log.end_compaction(plan)
            assert log.log.failure is None
            assert final_values(log.log) == wanted, at
            log.put((b"more", b"more"))
        log.disk.open_files, log.disk.locked = {}, set()
        log.open()
        assert final_values(log.log).items() >= wanted.items(), at
        assert not [name for name in log.names() if name.endswith((".cleaned", ".swap"))], at
        if left >= 0:
            break
        at += 1
    assert at > 8
