"""The share coordinator: what is initialized, read, written, deleted; who is fenced; when there are snapshots."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.topics import Topic, Topics
from barnabas.coordinator.share import ShareKey, StateBatch, StateConfig, StateRead, Stored, Summary
from barnabas.coordinator.share.state_stored import ShareChange as Change
from barnabas.coordinator.share.state_stored import Snapshot, Update, parse_share, update_record
from barnabas.coordinator.tests.share.state_kit import GONE_ID, KEY, TOPIC_ID, StateKit
from barnabas.kproto import ErrorCode

E = ErrorCode
OK = Stored(E.NONE)
BELOW = ShareKey("sg1", TOPIC_ID, -1)
BEHIND = ShareKey("sg1", TOPIC_ID, 3)
GONE = ShareKey("sg1", GONE_ID, 0)


def kinds(kit: StateKit) -> str:
    """One letter for each record: s is a snapshot, t a tombstone, u an update."""
    letters = []
    for record in kit.log[kit.log_start :]:
        meaning = parse_share(record.key, record.value)
        letters.append("u" if isinstance(meaning, Update) else "t" if meaning == Snapshot(KEY, None) else "s")
    return "".join(letters)


def test_life() -> None:
    kit = StateKit()
    assert kit.read().code == E.INVALID_REQUEST
    assert kit.write((0, 1, 2, 1)).code == E.INVALID_REQUEST
    assert kit.summary() == Summary(E.NONE, None, 0, 0, -1, -1)
    assert kit.initialize() == OK
    assert kit.read() == StateRead(E.NONE, None, 2, -1, ())
    assert kit.summary() == Summary(E.NONE, None, 2, 0, -1, -1)
    assert kit.write((0, 9, 2, 1), (10, 14, 0, 1), start_offset=0, complete=10) == OK
    assert kit.write((10, 12, 2, 2), start_offset=10, complete=3) == OK
    assert kit.read() == StateRead(E.NONE, None, 2, 10, (StateBatch(10, 12, 2, 2), StateBatch(13, 14, 0, 1)))
    assert kit.summary() == Summary(E.NONE, None, 2, 0, 10, 3)
    assert kit.write((13, 14, 2, 2), complete=5) == OK
    assert kit.state().start_offset == 10, "-1 keeps the start"
    assert kit.delete() == OK
    assert kit.read().code == E.INVALID_REQUEST
    assert kit.delete() == OK
    assert kinds(kit) == "suuut"


def test_a_write_that_was_overtaken_brings_nothing_back() -> None:
    """A write may be repeated for a while: what a later one has settled meanwhile is not given out again."""
    kit = StateKit()
    assert kit.initialize(start_offset=0) == OK
    assert kit.write((0, 99, 2, 1), start_offset=0, complete=100) == OK
    assert kit.write((100, 109, 2, 1), start_offset=100, complete=10) == OK
    assert kit.write((0, 4, 2, 1), (110, 110, 4, 1), start_offset=0, complete=6) == OK
    assert kit.summary() == Summary(E.NONE, None, 2, 0, 100, 10)
    assert kit.read().batches == (StateBatch(100, 109, 2, 1), StateBatch(110, 110, 4, 1))
    kit.restart()
    assert kit.state().start_offset == 100


def test_where_nothing_is() -> None:
    kit = StateKit()
    for key in (BEHIND, GONE):
        assert kit.initialize(key).code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert kit.summary(key).code == E.NONE
        assert kit.delete(key) == OK
        assert kit.read(key).code == E.INVALID_REQUEST
    assert kit.initialize(BELOW).code == E.INVALID_REQUEST
    assert kit.delete(BELOW).code == E.INVALID_REQUEST
    assert kit.summary(BELOW).code == E.INVALID_REQUEST
    assert kit.read(BELOW).code == E.INVALID_REQUEST
    assert not kit.log
    assert kit.initialize() == OK
    kit.shard.set_topics(Topics(2, {}))
    assert kit.read().code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert kit.write((0, 0, 2, 1)).code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert kit.delete() == OK


def test_leaders_of_before_are_fenced() -> None:
    kit = StateKit()
    kit.initialize()
    assert kit.read(leader_epoch=4).code == E.NONE
    assert kinds(kit) == "su", "who reads is known from then on"
    assert kit.read(leader_epoch=4).code == E.NONE
    assert kinds(kit) == "su"
    assert kit.read(leader_epoch=3).code == E.FENCED_LEADER_EPOCH
    assert kit.write((0, 0, 2, 1), leader_epoch=3).code == E.FENCED_LEADER_EPOCH
    assert kit.read(leader_epoch=-1).code == E.NONE
    kit.restart()
    assert kit.write((0, 0, 2, 1), leader_epoch=3).code == E.FENCED_LEADER_EPOCH
    assert kit.write((0, 0, 2, 1), leader_epoch=5) == OK
    assert kit.state().leader_epoch == 4
    assert kit.initialize(state_epoch=5, start_offset=7) == OK
    assert kit.write((7, 7, 2, 1), leader_epoch=3, state_epoch=5).code == E.FENCED_LEADER_EPOCH, "also after that"
    assert kit.summary() == Summary(E.NONE, None, 5, 4, 7, 0)


def test_leaders_from_before_a_new_beginning_are_fenced() -> None:
    kit = StateKit()
    kit.initialize(state_epoch=2)
    kit.write((0, 4, 2, 1), start_offset=0)
    assert kit.initialize(state_epoch=1).code == E.FENCED_STATE_EPOCH
    assert kit.initialize(state_epoch=2, start_offset=3) == OK
    assert kit.initialize(state_epoch=6, start_offset=3) == OK
    assert kit.state().snapshot_epoch == 2
    assert kit.state().batches == ()
    assert kit.write((3, 4, 2, 1), state_epoch=2).code == E.FENCED_STATE_EPOCH
    assert kit.write((3, 4, 2, 1), state_epoch=7) == OK
    assert kit.state().state_epoch == 6, "it is not for writers to say"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_snapshots(limit: int) -> None:
    kit = StateKit(StateConfig(snapshot_update_records_per_snapshot=limit))
    kit.initialize()
    kit.seconds += 10
    for offset in range(8):
        assert kit.write((offset, offset, 2, 1), start_offset=0, complete=offset + 1) == OK
    assert kinds(kit) == {0: "sssssssss", 1: "sususususu"[:9], 3: "suuusuuus"}[limit]
    assert kit.state().batches == (StateBatch(0, 7, 2, 1),)
    assert kit.state().snapshot_epoch == {0: 8, 1: 4, 3: 2}[limit]
    assert kit.state().create_ms == kit.state().write_ms
    before = kit.state()
    kit.prune()
    assert kinds(kit) == {0: "s", 1: "s", 3: "s"}[limit]
    kit.restart()
    assert kit.state() == before


def test_partitions_at_rest_do_not_keep_the_log() -> None:
    kit = StateKit(StateConfig(snapshot_update_records_per_snapshot=2))
    other = KEY._replace(partition=1)
    kit.initialize()
    kit.write((0, 3, 0, 1))
    kit.initialize(other)
    for _ in range(7):
        kit.write((0, 0, 2, 1), key=other)
    assert kit.shard.redundant_to(kit.committed_to) == 0
    assert not list(kit.shard.snapshot_old(kit.now)), "not old enough"
    kit.seconds += 301
    for _ in range(3):
        kit.write((0, 0, 2, 1), key=other)
    before = kit.state()
    for result in kit.shard.snapshot_old(kit.now):
        kit.run(result)
    assert kit.state() == before._replace(snapshot_epoch=1, write_ms=kit.now.wall_ms)
    kit.prune()
    assert kit.log_start > 8
    kit.seconds += 301
    for result in kit.shard.snapshot_old(kit.now):
        kit.run(result)
    length = len(kit.log)
    kit.seconds += 301
    for result in kit.shard.snapshot_old(kit.now):
        kit.run(result)
    assert len(kit.log) == length, "all are at rest"
    there = {key: found.state for key, found in kit.shard.store.partitions.items()}
    kit.restart()
    assert {key: found.state for key, found in kit.shard.store.partitions.items()} == there


def test_nothing_is_cut_off_that_may_be_needed() -> None:
    kit = StateKit(StateConfig(snapshot_update_records_per_snapshot=0))
    assert kit.shard.redundant_to(0) is None or kit.shard.redundant_to(0) == 0
    kit.initialize()
    kit.commit_lag = True
    token = kit.write_later((0, 0, 2, 1))
    assert kit.shard.redundant_to(kit.committed_to) is None, "the last snapshot may be lost"
    kit.commit()
    assert kit.answers[token] == OK
    assert kit.shard.redundant_to(kit.committed_to) == 1
    kit.delete()
    assert kit.shard.redundant_to(kit.committed_to) is None
    kit.commit()
    assert kit.shard.redundant_to(kit.committed_to) == 3


def test_deleted_topics() -> None:
    kit = StateKit()
    many = [ShareKey(f"g{n}", TOPIC_ID, 0) for n in range(150)]
    for key in many:
        kit.initialize(key)
    kit.shard.set_topics(Topics(2, {"u": Topic("u", GONE_ID, 1)}))
    kept = ShareKey("g", GONE_ID, 0)
    kit.initialize(kept)
    results = list(kit.shard.topics_deleted({TOPIC_ID}, kit.now))
    assert [len(result.records) for result in results] == [100, 50]
    for result in results:
        kit.run(result)
    assert list(kit.shard.store.partitions) == [kept]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_log_that_refuses(refused: ErrorCode, told: ErrorCode) -> None:
    kit = StateKit()
    kit.initialize()
    kit.refuse = refused
    assert kit.write((0, 0, 2, 1)).code == told
    assert kit.initialize(state_epoch=9).code == told
    assert kit.read(leader_epoch=1).code == told
    assert kit.delete().code == told
    assert kit.read() == StateRead(E.NONE, None, 2, -1, ())


def test_nothing_is_told_before_it_is_committed() -> None:
    kit = StateKit()
    kit.initialize()
    kit.commit_lag = True
    write = kit.write_later((0, 0, 2, 1), start_offset=0)
    assert kit.read() is None
    assert kit.summary() is None
    assert kit.delete(KEY._replace(partition=2)) is None
    assert len(kit.open) == 4
    kit.commit()
    assert kit.answers[write] == OK
    assert not kit.open
    late = kit.write_later((1, 1, 2, 1))
    kit.time_out_commits()
    assert kit.answers[late].code == E.COORDINATOR_NOT_AVAILABLE


def test_who_is_no_coordinator_any_more() -> None:
    kit = StateKit()
    kit.initialize()
    kit.shard.unload()
    for told in (kit.initialize(), kit.read(), kit.write((0, 0, 2, 1)), kit.delete(), kit.summary()):
        assert told.code == E.NOT_COORDINATOR


def test_an_update_without_a_snapshot() -> None:
    """A log whose beginning is lost."""
    kit = StateKit()
    kit.log.append(update_record(KEY, Change(3, 4, 10, 1, (StateBatch(10, 10, 2, 1),))))
    kit.restart()
    assert kit.read() == StateRead(E.NONE, None, 0, 10, (StateBatch(10, 10, 2, 1),))
    assert kit.read(leader_epoch=3).code == E.FENCED_LEADER_EPOCH


def test_deadlines() -> None:
    kit = StateKit()
    assert kit.shard.deadline() is None
    assert kit.shard.expire(kit.now).records == ()
