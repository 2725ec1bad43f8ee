"""The rules of compaction, one by one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import CorruptRecords, Record, iter_records
from barnabas.kproto.records_legacy import build_message_set, iter_messages
from barnabas.logdir import AbortedTxn
from barnabas.logdir.compaction.plan import CompactionAborted, CompactionLimits
from barnabas.logdir.compaction.run import CompactionRun
from barnabas.logdir.files.cleaner_checkpoint import CleanerCheckpoint
from barnabas.logdir.files.disk import read_file
from barnabas.logdir.files.index import OffsetIndex, TimeIndex
from barnabas.logdir.offline.verify import verify
from barnabas.logdir.tests.compaction.compaction_kit import COMPACT, LIMITS, NOW, Compacted
from barnabas.logdir.tests.kit import PATH, stored


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = Compacted()
    for number in range(60):
        log.put((b"k%d" % (number % 7), b"%d" % number), (b"once-%d" % number, b"") if number == 5 else (b"k0", b"x"))
    log.roll()
    before = log.records()
    run = log.clean()
    last = {record.key: record for record in before}
    assert log.records() == sorted(last.values(), key=lambda record: record.offset)
    assert run.stats.records_read == run.stats.map_records == 120
    assert run.stats.records_kept == len(last)
    assert run.end_offset == 120
    assert log.state().dirty_ratio == 0
    assert not [name for name in log.names() if name.endswith((".cleaned", ".swap"))]


def test_a_second_round_notes_only_what_is_new() -> None:
    log = Compacted(segment_bytes=10_000)
    for number in range(10):
        log.put((b"a", b"%d" % number), (b"b%d" % number, b"old"))
    log.roll()
    log.clean()
    log.put((b"b3", b"new"), (b"c", b"new"))
    log.roll()
    run = log.clean()
    assert run.stats.map_records == 2
    assert (b"b3", b"new") in [pair[1:] for pair in log.pairs()]
    assert (b"b3", b"old") not in [pair[1:] for pair in log.pairs()]
    assert len(log.pairs()) == 12
    assert log.log.segment_bases == [0, 22], "small segments become one"


def test_a_batch_of_which_all_stays_is_not_touched() -> None:
    log = Compacted(segment_bytes=10_000)
    log.put(*((b"%d" % number, b"v" * 50) for number in range(20)), codec=3)
    log.put((b"0", b"again"))
    log.put((b"z", b"z"), codec=1)
    log.roll()
    before = [data for _, data in stored(log.log)]
    log.clean()
    after = [data for _, data in stored(log.log)]
    assert after[1:] == before[1:]
    assert after[0] != before[0]
    assert len(list(iter_records(after[0]))) == 19


def test_tombstones_stay_for_their_time() -> None:
    log = Compacted()
    log.put((b"a", b"1"), (b"b", b"1"))
    log.put((b"a", None))
    log.put((b"end", b""))
    log.roll()
    log.clean()
    assert log.pairs() == [(1, b"b", b"1"), (2, b"a", None), (3, b"end", b"")]
    horizons = [header.delete_horizon_ms for header, _ in stored(log.log)]
    assert horizons == [None, log.clock.now_ms + 1000, None]
    assert [record.timestamp for record in log.records()] == [NOW] * 3
    # The clean part is read again, but a horizon that is set stays.
    log.clock.now_ms += 999
    log.put((b"c", b"1"))
    log.roll()
    log.clean()
    assert (2, b"a", None) in log.pairs()
    assert NOW + 1000 in [header.delete_horizon_ms for header, _ in stored(log.log)]
    log.clock.now_ms += 1
    log.put((b"d", b"1"))
    log.roll()
    log.clean()
    assert (2, b"a", None) not in log.pairs()


def test_tombstones_that_stay_for_ever() -> None:
    """The longest time that can be set ends behind the last that can be said."""
    log = Compacted(delete_retention_ms=2**63 - 1)
    log.put((b"a", None))
    log.put((b"end", b""))
    log.roll()
    for _ in range(2):
        log.clean()
        assert log.pairs() == [(0, b"a", None), (1, b"end", b"")]
        assert [record.timestamp for record in log.records()] == [NOW] * 2
        assert [header.delete_horizon_ms for header, _ in stored(log.log)] == [2**63 - 1, None]


def test_a_tombstone_takes_no_older_record_back() -> None:
    """What a tombstone hides goes with or before it, however the segments are grouped."""
    log = Compacted(segment_bytes=200)
    log.put((b"a", b"1"))
    log.put(*((b"%d" % number, b"x" * 9) for number in range(5)))
    log.put((b"a", None))
    log.put(*((b"%d" % number, b"y" * 9) for number in range(5)))
    log.roll()
    assert log.log.segment_count > 2
    for _ in range(3):
        log.clean()
        assert b"1" not in [value for _, key, value in log.pairs() if key == b"a"]
        log.clock.now_ms += 600
        log.put((b"more", b"1"))
        log.roll()
    assert b"a" not in [key for _, key, _ in log.pairs()]


def test_records_without_key_go() -> None:
    """They may be there from before the topic was compacted."""
    log = Compacted(cleanup_policy=frozenset({"delete"}))
    log.put((None, b"1"), (b"a", b"1"))
    log.roll()
    log.put((None, b"2"))
    log.log.config = log.config = COMPACT
    run = log.clean()
    assert run.stats.invalid_records == 1
    assert log.pairs() == [(1, b"a", b"1"), (2, None, b"2")], "the active segment is not touched"


def test_the_offset_of_the_end_survives_an_empty_end() -> None:
    log = Compacted()
    log.put((b"a", b"1"))
    log.put((b"b", None), delete_horizon_ms=NOW)
    log.roll()
    log.clean()
    assert log.shapes() == [(0, 0, 1, False), (1, 1, 0, False)]
    assert log.log.log_end_offset == 2


# ---- producers and transactions


def test_the_last_batch_of_a_producer_leaves_a_shell() -> None:
    log = Compacted()
    log.put((b"a", b"1"), (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0)
    log.put((b"a", b"3"), producer_id=1, producer_epoch=0, base_sequence=2)
    log.put((b"a", b"4"), (b"end", b""), codec=4)
    log.roll()
    log.clean()
    assert log.shapes() == [(2, 2, 0, False), (3, 4, 2, False)]
    log.disk.remove(f"{PATH}/t-0/{5:020d}.snapshot")
    log.kill()
    assert log.log.producers.entries[1].last_sequence == 2
    log.put((b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=3)
    log.roll()
    log.clean()
    assert log.shapes()[0] == (3, 4, 2, False), "the shell is not the last any more"


def test_the_time_of_a_shell_is_no_record_s_time(tmp_path: Path) -> None:
    """Nor does the time index know of it, over replication and recovery: tools would miss the record."""
    log = Compacted(segment_bytes=10_000, index_interval_bytes=0)
    log.put((b"a", b"1"), timestamp=NOW - 9)
    log.put((b"b", b"1"), timestamp=NOW + 5, producer_id=1, producer_epoch=0, base_sequence=0)
    log.put((b"b", b"2"), timestamp=NOW - 5)
    log.roll()
    log.clean()
    assert (1, 1, 0, False) in log.shapes()
    other = Compacted(log.config)
    for _, data in stored(log.log):
        other.put_as_it_is(data)
    other.roll()
    for one in (log, other):
        for _ in range(2):
            found = one.log.offset_of_max_timestamp()
            assert found is not None
            assert found[:2] == (NOW - 5, 2)
            times = TimeIndex(0, read_file(one.disk, f"{PATH}/t-0/{0:020d}.timeindex"))
            assert times.last() == (NOW - 5, 2)
            one.kill()
    log.log_dir.close()
    for entry in log.disk.list(f"{PATH}/t-0"):
        (tmp_path / "t-0").mkdir(exist_ok=True)
        (tmp_path / "t-0" / entry.name).write_bytes(log.disk.node(f"{PATH}/t-0/{entry.name}").data)
    assert list(verify(str(tmp_path / "t-0"))) == []


def in_transaction(log: Compacted, producer: int, sequence: int, *records: tuple[bytes, bytes | None]) -> int:
    return log.put(*records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)


def test_aborted_records_go_at_once_and_their_marker_later() -> None:
    log = Compacted()
    log.put((b"a", b"good"))
    in_transaction(log, 1, 0, (b"a", b"bad"), (b"b", b"bad"))
    log.end_transaction(1, commit=False)
    in_transaction(log, 1, 2, (b"c", b"good"))
    log.end_transaction(1, commit=True)
    log.put((b"end", b""))
    log.roll()
    log.clean()
    # The record that the aborted one would have replaced is there.
    assert [pair[1:] for pair in log.pairs()] == [(b"a", b"good"), (b"c", b"good"), (b"end", b"")]
    markers = [(h.base_offset, h.delete_horizon_ms) for h, _ in stored(log.log) if h.is_control]
    assert markers == [(3, None), (5, None)]
    assert log.log.aborted_transactions(0, 10) == [AbortedTxn(1, 1, 3, 4)]
    # Now nothing of the aborted transaction is left, so its marker gets a horizon and its entry goes.
    log.put((b"more", b""))
    log.roll()
    log.clean()
    markers = [(h.base_offset, h.delete_horizon_ms) for h, _ in stored(log.log) if h.is_control]
    assert markers == [(3, NOW + 1000), (5, None)]
    assert log.log.aborted_transactions(0, 10) == []
    assert not [name for name in log.names() if name.endswith(".txnindex")]
    log.clock.now_ms += 1000
    log.put((b"still", b""))
    log.roll()
    log.clean()
    assert [h.base_offset for h, _ in stored(log.log) if h.is_control] == [5]
    log.kill()
    assert log.log.producers.entries[1].last_sequence == 2


def test_a_committed_marker_stays_while_its_records_do() -> None:
    log = Compacted()
    in_transaction(log, 1, 0, (b"a", b"1"))
    log.end_transaction(1, commit=True)
    log.put((b"end", b""))
    log.roll()
    log.clean()
    log.put((b"a", b"2"))
    log.roll()
    log.clean()
    log.put((b"x", b""))
    log.roll()
    log.clean()
    shapes = log.shapes()
    assert (0, 0, 0, False) in shapes, "the shell of the producer's last batch"
    assert (1, 1, 1, True) in shapes


def test_an_aborted_transaction_over_several_segments() -> None:
    """Its marker is in the active segment, its first batch in a segment of another group."""
    log = Compacted(segment_bytes=250)
    in_transaction(log, 1, 0, (b"a", b"bad" * 30))
    log.put((b"b", b"good" * 20))
    in_transaction(log, 1, 1, (b"c", b"bad" * 30))
    log.put((b"d", b"good" * 20))
    log.roll()
    assert log.state().first_uncleanable_offset == 0, "it is open"
    log.end_transaction(1, commit=False)
    log.log.flush()
    assert log.log.segment_count > 2
    log.clean()
    assert [pair[1] for pair in log.pairs()] == [b"b", b"d"]
    assert log.log.aborted_transactions(0, 10) == [AbortedTxn(1, 0, 4, 5)]
    assert (2, 2, 0, False) in log.shapes(), "the last batch of the producer, without records"


def test_a_marker_leaves_a_shell_if_it_is_all_that_is_known_of_its_producer() -> None:
    log = Compacted()
    log.end_transaction(9, commit=True, epoch=3)
    log.put((b"a", b""))
    log.roll()
    found = []
    for number in range(4):
        log.clean()
        found.append(log.shapes()[0])
        log.clock.now_ms += 600
        log.put((b"b%d" % number, b""))
        log.roll()
    assert found == [(0, 0, 1, True)] * 2 + [(0, 0, 0, True)] * 2


# ---- formats 0 and 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_old_messages_are_cleaned(magic: int, codec: int) -> None:
    log = Compacted(segment_bytes=10_000)
    first = [Record(0, NOW, b"a", b"1"), Record(1, NOW + 1, b"b", b"1"), Record(2, NOW + 2, b"c", None)]
    second = [Record(3, NOW + 3, b"a", b"2"), Record(4, NOW + 4, None, b"no key")]
    log.put_as_it_is(build_message_set(first, magic=magic, codec=codec))
    log.put_as_it_is(build_message_set(second, magic=magic, codec=codec))
    log.put((b"end", b"v2"))
    log.disk.node(f"{PATH}/t-0/{0:020d}.log").mtime_ms = NOW
    log.roll()
    log.clean()
    records = log.old_records()
    assert [(record.offset, record.key, record.value) for record in records] == [
        (1, b"b", b"1"),
        (2, b"c", None),
        (3, b"a", b"2"),
        (5, b"end", b"v2"),
    ]
    times = [NOW + 1, NOW + 2, NOW + 3] if magic else [-1] * 3
    assert [record.timestamp for record in records] == [*times, NOW]
    messages = list(iter_messages(log.raw()[: -len(stored_tail(log))]))
    assert {(message.magic, message.codec) for message in messages} == {(magic, codec)}
    assert [message.offset for message in messages] == ([2, 3] if codec else [1, 2, 3])


def stored_tail(log: Compacted) -> bytes:
    """The batch of format 2 at the end."""
    raw = log.raw()
    position = 0
    while raw[position + 16] < 2:
        position += 12 + int.from_bytes(raw[position + 8 : position + 12], "big")
    return raw[position:]


@pytest.mark.parametrize("age_ms", [0, 5000])
def test_old_tombstones_go_with_the_age_of_their_file(age_ms: int) -> None:
    """They have no place for a horizon: when the segment was last written counts, against the last clean segment's."""
    log = Compacted(segment_bytes=10_000)
    node = log.disk.node(f"{PATH}/t-0/{0:020d}.log")
    log.put_as_it_is(build_message_set([Record(0, NOW, b"a", b"1"), Record(1, NOW, b"b", None)], magic=1))
    log.roll()
    node.mtime_ms = NOW - age_ms
    log.put_as_it_is(build_message_set([Record(2, NOW, b"c", b"1")], magic=1))
    log.roll()
    log.disk.node(f"{PATH}/t-0/{2:020d}.log").mtime_ms = NOW
    log.put((b"d", b"1"))
    log.roll()
    log.checkpoint = 3
    log.clean()
    kept = [record.offset for record in log.old_records()]
    assert kept == ([0, 1, 2, 3] if age_ms == 0 else [0, 2, 3])
    assert log.disk.node(f"{PATH}/t-0/{0:020d}.log").mtime_ms == 0, "the age of the last segment of the group"


# ---- what bounds a run


def test_keys_beyond_the_memory_wait_for_the_next_round() -> None:
    log = Compacted(segment_bytes=2000)
    for number in range(200):
        log.put((b"%d" % (number % 80), b"%d" % number))
    log.roll()
    wanted = {b"%d" % (number % 80): b"%d" % number for number in range(200)}
    small = CompactionLimits(24 * 56, 0.9, 4096)
    ends = []
    for _ in range(20):
        run = log.clean(small)
        ends.append(run.end_offset)
        pairs = [pair[1:] for pair in log.pairs()]
        assert dict(pairs) == wanted
        if run.end_offset == 200:
            break
    assert 2 < len(ends) < 20
    assert ends == sorted(set(ends))
    assert run.stats.map_fill <= 0.9
    assert len(log.pairs()) < 120


def test_groups_are_bounded_by_indexes_too() -> None:
    log = Compacted(segment_bytes=2000, segment_index_bytes=24, index_interval_bytes=0)
    for number in range(30):
        log.put((b"k%d" % number, b""))
    log.roll()
    before = log.records()
    log.clean()
    assert log.records() == before
    for base in log.log.segment_bases:
        for suffix in (".index", ".timeindex"):
            assert len(read_file(log.disk, f"{PATH}/t-0/{base:020d}{suffix}")) <= 24


def test_indexes_of_a_cleaned_segment_are_as_if_it_had_been_appended() -> None:
    log = Compacted(segment_bytes=50_000, index_interval_bytes=500)
    for number in range(100):
        log.clock.now_ms += 1
        log.put((b"k%d" % (number % 90), b"v" * 60))
    log.roll()
    log.clean()
    offsets = OffsetIndex(0, read_file(log.disk, f"{PATH}/t-0/{0:020d}.index"))
    batches = {header.last_offset for header, _ in stored(log.log)}
    assert len(offsets) > 10
    assert {offset for offset, _ in offsets.entries()} <= batches
    times = TimeIndex(0, read_file(log.disk, f"{PATH}/t-0/{0:020d}.timeindex"))
    assert times.last() == (NOW + 100, 99)
    for target in range(11, 101):
        assert log.log.offset_for_timestamp(NOW + target) == (NOW + target, target - 1, 0)
    found = log.log.offset_for_timestamp(NOW + 1)
    assert found is not None
    assert found[1] == 10


def test_batches_larger_than_the_buffer() -> None:
    log = Compacted(segment_bytes=1 << 20)
    log.put((b"big", bytes(50_000)), (b"a", b"1"))
    log.put((b"a", b"2"))
    log.roll()
    log.clean(CompactionLimits(1 << 20, 0.9, 16))
    assert [pair[:2] for pair in log.pairs()] == [(0, b"big"), (2, b"a")]


# ---- what goes wrong


def test_a_damaged_segment_ends_the_run_and_leaves_everything() -> None:
    log = Compacted()
    for number in range(30):
        log.put((b"k", b"%d" % number))
    log.roll()
    bases = log.log.segment_bases
    node = log.disk.node(f"{PATH}/t-0/{bases[1]:020d}.log")
    node.data[100] ^= 1
    with pytest.raises(CorruptRecords):
        log.clean()
    assert log.log.segment_bases == bases
    assert not [name for name in log.names() if name.endswith(".cleaned")]
    assert not log.log.compacting
    # Cut in the middle of a batch, with the file as long as it should be: not a truncation.
    node.data[100] ^= 1
    node.data[-40:-36] = b"\x7f\0\0\0"
    with pytest.raises(CorruptRecords):
        log.clean()


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 2**31 + 1])
def test_offsets_at_the_end_of_their_width_end_the_run(base: int) -> None:
    log = Compacted()
    log.put((b"a", b"1"))
    log.roll()
    log.disk.node(f"{PATH}/t-0/{0:020d}.log").data[:8] = base.to_bytes(8, "big")
    with pytest.raises(CorruptRecords, match="impossible offset"):
        log.clean()


def test_a_codec_that_is_missing_is_an_error_of_that_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Compacted()
    log.put((b"a", b"1"), codec=4)
    log.roll()

    def no_library() -> None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd")

    monkeypatch.setattr("barnabas.kproto.compression._zstd", no_library)
    with pytest.raises(KafkaError) as caught:
        log.clean()
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("what", ["gone", "cut"])
def test_files_that_vanish_end_the_run(what: str) -> None:
    log = Compacted()
    for number in range(30):
        log.put((b"k%d" % number, b"%d" % number))
    log.roll()
    plan = log.log.begin_compaction(log.state(), NOW)
    run = iter(CompactionRun(log.disk, plan, LIMITS, lambda size: None))
    path = f"{PATH}/t-0/{plan.sources[-1].base_offset:020d}.log"
    if what == "gone":
        log.disk.remove(path)
    else:
        log.disk.node(path).data = bytearray()
    with pytest.raises(CompactionAborted):
        next(run)


def test_spending_is_reported_and_may_end_the_run() -> None:
    log = Compacted(segment_bytes=3000)
    for number in range(100):
        log.put((b"%d" % (number % 75), b"v" * 50))
    log.roll()
    plan = log.log.begin_compaction(log.state(), NOW)
    spent: list[int] = []
    run = CompactionRun(log.disk, plan, LIMITS, spent.append)
    list(run)
    assert sum(spent) == run.stats.map_bytes + run.stats.bytes_read + run.stats.bytes_written
    assert max(spent) < 6000
    log.log.end_compaction(plan)

    before = log.records()
    for stop_at in range(len(spent)):
        calls = 0

        def spend(size: int, stop_at: int = stop_at) -> None:
            nonlocal calls
            calls += 1
            if calls > stop_at:
                raise CompactionAborted("enough")

        plan = log.log.begin_compaction(log.state(), NOW)
        with pytest.raises(CompactionAborted):
            list(CompactionRun(log.disk, plan, LIMITS, spend))
        log.log.end_compaction(plan)
        assert not [name for name in log.names() if name.endswith(".cleaned")]
    assert log.records() == before


def test_a_plan_can_be_sent_to_another_process() -> None:
    log = Compacted()
    in_transaction(log, 1, 0, (b"a", b"bad"))
    log.end_transaction(1, commit=False)
    log.put((b"end", b""))
    log.roll()
    plan = log.log.begin_compaction(log.state(), NOW)
    assert pickle.loads(pickle.dumps(plan)) == plan
    (cleaned,) = CompactionRun(log.disk, pickle.loads(pickle.dumps(plan)), LIMITS, lambda size: None)
    log.log.swap_in(plan, pickle.loads(pickle.dumps(cleaned)), NOW)
    assert [pair[1] for pair in log.pairs()] == [b"end"]


def test_what_is_not_safe_is_not_cleaned() -> None:
    """A crash could take the records that made others superfluous."""
    log = Compacted()
    log.put((b"a", b"1"))
    log.log.roll(NOW)
    assert log.log.recovery_point == 0
    assert log.state().first_uncleanable_offset == 0
    assert not log.state().must_clean
    log.log.flush()
    assert log.state().first_uncleanable_offset == 1


def test_compact_and_delete() -> None:
    log = Compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=5000, segment_bytes=300)
    for number in range(20):
        log.clock.now_ms += 100
        log.put((b"k%d" % (number % 9), b"%d" % number))
    log.roll()
    log.clean()
    log.clock.now_ms += 4000
    log.put((b"fresh", b""))
    log.roll()
    plan = log.log.begin_compaction(log.state(), log.clock.now_ms)
    log.clock.now_ms += 3000
    assert log.log.retain(log.clock.now_ms) == 0, "not while it is being compacted"
    log.log.end_compaction(plan)
    assert log.log.retain(log.clock.now_ms) > 0
    assert [pair[1] for pair in log.pairs()] == [b"fresh"]


@pytest.mark.parametrize("known_offset", [0, 30])
def test_a_crash_does_not_take_what_lies_behind_a_gap(known_offset: int) -> None:
    """Compaction leaves gaps between segments, also in a topic that is not compacted any more. Elsewhere a gap is a
    loss, and what follows goes.
    """
    log = Compacted(segment_bytes=200)
    for number in range(30):
        log.put((b"k%d" % (number % 3), b"v" * 20))
    log.roll()
    log.clean()
    wanted = log.pairs()
    log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
    known = CleanerCheckpoint(log.disk, PATH)
    known.put(("t", 0), known_offset)
    known.save()
    log.kill()
    assert log.log.recovery_point == 0
    assert log.pairs() == (wanted if known_offset else [])
