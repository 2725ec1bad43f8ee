"""What is decided about compaction: how dirty a log is, which one goes first, what becomes one segment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from barnabas.logdir import LogConfig
from barnabas.logdir.compaction.plan import CompactionPlan, CompactionState, Source, dirtiest, state_of
from barnabas.logdir.files.checkpoint import CLEANER
from barnabas.logdir.files.cleaner_checkpoint import CleanerCheckpoint
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk

NOW = 1_000_000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


@dataclass
class Segment:
    base_offset: int
    size: int = 100
    first_timestamp: int = NOW - 5000
    max_timestamp: int = NOW - 4000


def state(
    segments: list[Segment],
    config: LogConfig = CONFIG,
    *,
    checkpoint: int | None = None,
    truncated_to: int | None = None,
    start: int = 0,
    end: int = 100,
    upper: int = 100,
) -> CompactionState:
    return state_of(
        segments,
        config,
        checkpoint=checkpoint,
        truncated_to=truncated_to,
        log_start_offset=start,
        log_end_offset=end,
        upper_bound=upper,
        now_ms=NOW,
    )


FIVE = [Segment(base) for base in (0, 10, 20, 30, 40)]


@pytest.mark.parametrize(
    ("checkpoint", "upper", "expected"),
    [
        (None, 100, (0, 40, 0, 400, 100)),
        (0, 100, (0, 40, 0, 400, 100)),
        (20, 100, (20, 40, 200, 200, 100)),
        (40, 100, (40, 40, 400, 0, 100)),
        (45, 100, (45, 40, 500, 0, 100)),
        (10, 30, (10, 30, 100, 200, 200)),
        (10, 29, (10, 20, 100, 100, 300)),
        (10, 5, (10, 10, 100, 0, 400)),
        (0, 0, (0, 0, 0, 0, 500)),
        # A round that ended within a segment: that one is clean and dirty.
        (25, 100, (25, 40, 300, 200, 100)),
    ],
)
def test_what_can_be_cleaned(checkpoint: int | None, upper: int, expected: tuple[int, ...]) -> None:
    assert tuple(state(FIVE, checkpoint=checkpoint, upper=upper))[:5] == expected


@pytest.mark.parametrize(
    ("checkpoint", "start", "truncated_to", "dirty", "invalid"),
    [
        (5, 10, None, 10, True),  # records were deleted since
        (101, 10, None, 10, True),  # the end was lost
        (100, 10, None, 100, False),
        (30, 10, 35, 30, False),
        (30, 10, 20, 20, True),  # what was clean was cut off, and others took its place
        (30, 10, 5, 10, True),
        (None, 10, None, 10, False),
        (None, 10, 5, 10, False),
    ],
)
def test_a_checkpoint_that_cannot_be_right(
    checkpoint: int | None, start: int, truncated_to: int | None, dirty: int, invalid: bool
) -> None:
    found = state(FIVE, checkpoint=checkpoint, start=start, truncated_to=truncated_to)
    assert (found.first_dirty_offset, found.checkpoint_invalid) == (dirty, invalid)


def test_young_segments_wait() -> None:
    segments = [replace(segment) for segment in FIVE]
    lag = replace(CONFIG, min_compaction_lag_ms=1000)
    assert state(segments, lag).first_uncleanable_offset == 40
    segments[2].max_timestamp = NOW - 999
    assert state(segments, lag).first_uncleanable_offset == 20
    segments[2].max_timestamp = NOW - 1000
    assert state(segments, lag).first_uncleanable_offset == 40
    # What is clean already is not looked at.
    segments[0].max_timestamp = NOW
    assert state(segments, lag, checkpoint=10).first_uncleanable_offset == 40
    assert state(segments, lag, checkpoint=5).first_uncleanable_offset == 0


def test_old_dirt_must_go() -> None:
    segments = [replace(segment) for segment in FIVE]
    lag = replace(CONFIG, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0)
    assert state(segments, lag).delay_ms == 0
    segments[2].first_timestamp = NOW - 5007
    found = state(segments, lag, checkpoint=20)
    assert (found.delay_ms, found.must_clean) == (7, True)
    assert state(segments, lag, checkpoint=30).delay_ms == 0
    assert not state(segments, lag, checkpoint=20, upper=0).must_clean, "it cannot be cleaned"
    segments[2].first_timestamp = -1  # there is none
    assert state(segments, lag).delay_ms == 0
    segments[4].first_timestamp = 1  # the active segment does not count
    assert state(segments, lag).delay_ms == 0
    assert state(segments).delay_ms == 0


def test_the_dirtiest_goes_first() -> None:
    def one(clean: int, dirty: int, delay_ms: int = 0, ratio: float = 0.5) -> CompactionState:
        return CompactionState(0, 0, clean, dirty, 0, delay_ms, False, ratio)

    assert dirtiest({}) is None
    assert dirtiest({"a": one(0, 0), "b": one(50, 50)}) is None, "it must be more than the ratio"
    assert dirtiest({"a": one(40, 60), "b": one(30, 70), "c": one(0, 0)}) == "b"
    assert dirtiest({"a": one(90, 10, delay_ms=1), "b": one(95, 5, delay_ms=9)}) == "a"
    assert dirtiest({"a": one(90, 0, delay_ms=1)}) is None
    assert dirtiest({"a": one(90, 10, ratio=0.0)}) == "a"
    assert one(0, 0).dirty_ratio == 0


def plan(*sources: Source, end: int, segment_bytes: int = 1000) -> CompactionPlan:
    return CompactionPlan("/d", 0, end, sources, (), {}, NOW, 1000, segment_bytes, 100, 4096)


def source(base: int, size: int = 100, index: int = 8, times: int = 12, mtime: int = 0) -> Source:
    return Source(base, size, index, times, mtime)


def bases(found: list[list[Source]]) -> list[list[int]]:
    return [[one.base_offset for one in group] for group in found]


def test_groups_are_as_large_as_a_segment() -> None:
    six = [source(10 * number, 400) for number in range(6)]
    assert bases(plan(*six, end=60).groups(60)) == [[0, 10], [20, 30], [40, 50]]
    assert bases(plan(*six, end=60).groups(41)) == [[0, 10], [20, 30], [40]]
    assert bases(plan(*six, end=60).groups(0)) == []
    assert bases(plan(*six, end=60, segment_bytes=1200).groups(60)) == [[0, 10, 20], [30, 40, 50]]
    assert bases(plan(source(0, 2000), source(1, 1), end=9).groups(9)) == [[0], [1]]
    assert bases(plan(source(0, index=60), source(1, index=41), source(2, index=59), end=9).groups(9)) == [[0], [1, 2]]
    assert bases(plan(source(0, times=60), source(1, times=41), end=9).groups(9)) == [[0], [1]]


def test_groups_have_offsets_that_fit_an_index() -> None:
    far = 2**31 - 1
    assert bases(plan(source(0), source(5), end=far + 1).groups(far + 1)) == [[0, 5]]
    assert bases(plan(source(0), source(5), end=far + 2).groups(far + 2)) == [[0], [5]]
    assert bases(plan(source(0), source(5), source(far + 1), end=far + 9).groups(far + 9)) == [[0, 5], [far + 1]]
    # Empty segments would pile up otherwise.
    assert bases(plan(source(0), source(far + 5, size=0), end=far + 9).groups(far + 9)) == [[0, far + 5]]


def test_tombstones_of_old_formats_age_by_the_last_clean_file() -> None:
    found = plan(source(0, mtime=5000), source(10, mtime=7000), source(20, mtime=9000), end=30)
    assert found.legacy_horizon_ms == 0
    assert found._replace(first_dirty_offset=20).legacy_horizon_ms == 6000


def test_the_checkpoint_file() -> None:
    disk = MemoryDisk()
    disk.make_dir("/d")
    known = CleanerCheckpoint(disk, "/d")
    known.load()
    assert known.offsets == {}
    known.put(("a-b", 3), 17)
    known.put(("c", 0), 4)
    known.save()
    assert bytes(disk.node(f"/d/{CLEANER}").data) == b"0\n2\na-b 3 17\nc 0 4\n"
    syncs = disk.syncs
    known.save()
    assert disk.syncs == syncs, "nothing changed"
    known.keep_only([("c", 0)])
    assert known.drop(("x", 1)) is None
    known.save()
    again = CleanerCheckpoint(disk, "/d")
    again.load()
    assert again.offsets == {("c", 0): 4}
    disk.node(f"/d/{CLEANER}").data += b"junk\n"
    again.load()
    assert again.offsets == {}
    again.put(("c", 0), 4)
    disk.space = 0
    with pytest.raises(StorageError):
        again.save()
    disk.space = None
    again.save()
    assert bytes(disk.node(f"/d/{CLEANER}").data) == b"0\n1\nc 0 4\n"
