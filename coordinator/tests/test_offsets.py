"""Committing, fetching, expiring and deleting offsets."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from barnabas.coordinator import CommitLayout, CommitRecords, GroupConfig, OffsetToCommit
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.stored import CommittedOffset, StoredGroup, group_record, offset_record
from barnabas.coordinator.tests.kit import WALL_START_MS, Kit, subscription
from barnabas.kproto import ErrorCode

E = ErrorCode
DAY = 24 * 3600.0
P0, P1 = ("t", 0), ("t", 1)


# -- who may commit ------------------------------------------------------------------------------


def test_a_consumer_outside_of_any_group_commits_and_fetches() -> None:
    kit = Kit()
    assert kit.answer(kit.commit_offsets({P0: 5, P1: 6}, metadata="m")) == [E.NONE, E.NONE]
    assert kit.committed() == {P0: 5, P1: 6}
    assert kit.state() == "Empty"
    (only,) = kit.shard.fetch("g", [P0], False, kit.committed_to)
    assert only == ("t", 0, 5, -1, "m", E.NONE)
    kit.restart()
    assert kit.committed() == {P0: 5, P1: 6}


def test_members_commit_with_their_generation() -> None:
    kit = Kit()
    ids = kit.stable(2)

    def commit(generation: int, member_id: str, instance: str | None = None) -> ErrorCode:
        token = kit.commit_offsets({P0: 1}, generation=generation, member_id=member_id, instance=instance)
        (code,) = kit.answer(token)
        return ErrorCode(code)

    assert commit(2, ids[0]) == E.NONE
    assert commit(1, ids[0]) == E.ILLEGAL_GENERATION
    assert commit(-1, ids[0]) == E.ILLEGAL_GENERATION
    assert commit(2, "nobody") == E.UNKNOWN_MEMBER_ID
    assert commit(-1, "") == E.UNKNOWN_MEMBER_ID
    assert commit(2, ids[0], "i") == E.UNKNOWN_MEMBER_ID
    kit.join(ids[0])
    assert commit(2, ids[1]) == E.NONE  # PreparingRebalance: the last chance to commit the old generation
    kit.join(ids[1])
    assert commit(2, ids[1]) == E.ILLEGAL_GENERATION
    assert commit(3, ids[1]) == E.REBALANCE_IN_PROGRESS
    kit.advance(100)
    assert kit.state() == "Empty"
    assert commit(4, ids[0]) == E.UNKNOWN_MEMBER_ID
    assert commit(-1, "") == E.NONE


def test_a_generation_of_an_unknown_group_is_illegal() -> None:
    """Since version 9, which members of the next generation use, the group is said to be unknown."""
    kit = Kit()
    assert kit.answer(kit.commit_offsets({P0: 1}, generation=3, member_id="x")) == [E.ILLEGAL_GENERATION]
    assert kit.answer(kit.commit_offsets({P0: 1}, generation=3, member_id="x", version=9)) == [E.GROUP_ID_NOT_FOUND]
    assert not kit.shard.groups


def test_too_much_metadata_fails_its_partition_alone() -> None:
    kit = Kit(GroupConfig(offset_metadata_max_bytes=3))
    token = kit.token()

    offsets = [OffsetToCommit("t", 0, 1, metadata="abcd"), OffsetToCommit("t", 1, 2, metadata="abc")]
    kit.run(kit.shard.commit("g", -1, "", None, -1, offsets, token, kit.now))
    assert kit.answer(token) == [E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    assert kit.committed() == {P1: 2}
    kit.run(kit.shard.commit("g", -1, "", None, -1, offsets[:1], token := kit.token(), kit.now))
    assert kit.answer(token) == [E.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize(
    ("log_error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_cannot_be_written_changes_nothing(log_error: ErrorCode, told: ErrorCode) -> None:
    kit = Kit(GroupConfig(offset_metadata_max_bytes=3))
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.refuse = log_error
    assert kit.answer(kit.commit_offsets({P0: 2, P1: 2})) == [told, told]
    assert kit.committed() == {P0: 1}


# -- what may be read ----------------------------------------------------------------------------


def test_uncommitted_offsets_are_not_returned() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.commit_lag = True
    second = kit.commit_offsets({P0: 2, P1: 2})
    third = kit.commit_offsets({P0: 3})
    assert kit.waits(second)
    assert kit.waits(third)
    assert kit.committed() == {P0: 1}
    kit.committed_to += 2
    assert kit.committed() == {P0: 2, P1: 2}
    kit.commit()
    assert kit.committed() == {P0: 3, P1: 2}
    assert kit.answer(second) == [E.NONE, E.NONE]
    kit.commit_offsets({P0: 4})
    kit.restart()
    assert kit.committed() == {P0: 3, P1: 2}


def test_what_is_committed_is_kept_once() -> None:
    offsets = Offsets()
    for i in range(1000):
        offsets.put(P0, CommittedOffset(i, -1, "", 0), i, max(0, i - 3))
    assert len(offsets._layers) <= 5
    assert (len(offsets), offsets.partitions()) == (1, [P0])
    assert offsets.get(P0, 998) == CommittedOffset(997, -1, "", 0)


@pytest.mark.parametrize("seed", range(20))
def test_repeated_commits_differ_from_others_by_their_cost_alone(seed: int) -> None:
    """Two groups get the same records, one of them by `put_repeated`: whatever is done and read meanwhile, in whatever
    order, both say the same.
    """
    rng = Random(seed)
    layouts = [_layout(range(10)), _layout(range(5, 20)), _layout(range(10))]
    plain, repeated = Offsets(), Offsets()
    end = committed_to = 0
    for _ in range(400):
        step = rng.choice(("commit", "commit", "commit", "high watermark", "read", "remove", "one", "pending", "end"))
        partition = ("t", rng.randrange(20))
        if step == "commit":
            layout = rng.choice(layouts[: rng.choice((1, 3))])
            size = len(layout.partitions)
            numbers = [rng.randrange(1000) for _ in range(size)]
            commit = CommitRecords(layout, numbers, [-1] * size, [rng.randrange(9)] * size)
            plain.put_all(commit.entries(end), end + size - 1, committed_to)
            repeated.put_repeated(commit, end, committed_to)
            end += size
        elif step == "high watermark":
            committed_to = rng.randint(committed_to, end)
        elif step == "read":
            at = rng.choice((committed_to, end))
            for read in _READS:
                assert read(plain, partition, at) == read(repeated, partition, at), f"seed {seed}"
        else:
            for offsets in (plain, repeated):
                if step == "remove":
                    offsets.remove(partition)
                elif step == "one":
                    offsets.put(partition, CommittedOffset(end, -1, "", 5), end, committed_to)
                elif step == "pending":
                    offsets.put_pending(7, partition, CommittedOffset(end, -1, "", 5), end)
                else:
                    offsets.end_transaction(7, end % 2 == 0, end, committed_to)
            end += 1
    assert {each: plain.get(each, end) for each in plain.partitions()} == {
        each: repeated.get(each, end) for each in repeated.partitions()
    }, f"seed {seed}"


_READS: list[Callable[[Offsets, tuple[str, int], int], object]] = [
    lambda offsets, partition, at: offsets.get(partition, at),
    lambda offsets, partition, at: partition in offsets,
    lambda offsets, partition, at: offsets.is_unstable(partition, at),
    lambda offsets, partition, at: (len(offsets), bool(offsets), sorted(offsets.partitions())),
    lambda offsets, partition, at: sorted(offsets.touched()),
    lambda offsets, partition, at: sorted(offsets.expired(10, 5, None, ())),
]


def _layout(indexes: range) -> CommitLayout:
    layout = CommitLayout("g", tuple(("t", index) for index in indexes), ("",) * len(indexes))
    layout.prepare()
    assert layout.is_packed
    return layout


def test_what_nobody_reads_of_repeated_commits_is_not_made() -> None:
    layout = _layout(range(10))
    offsets = Offsets()
    for at in range(0, 1000, 10):
        offsets.put_repeated(CommitRecords(layout, [at] * 10, [-1] * 10, [0] * 10), at, at)
    assert not offsets._settled
    assert offsets.get(P0, 990) == CommittedOffset(980, -1, "", 0)
    assert len(offsets._layers) == 1


def test_unknown_groups_and_partitions_have_no_offset_and_no_error() -> None:
    kit = Kit()
    assert kit.shard.fetch("nobody", [P0], False, 0) == [("t", 0, -1, -1, "", E.NONE)]
    assert kit.shard.with_offsets("nobody") == []
    assert kit.shard.fetch("nobody", [("t", 0)], False, 0, only_found=True) == []
    kit.answer(kit.commit_offsets({P0: 1}))
    assert kit.shard.fetch("g", [P1], False, 9) == [("t", 1, -1, -1, "", E.NONE)]


def test_offsets_in_an_open_transaction_are_unstable() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}))

    def replay(partition: tuple[str, int], offset: int) -> None:
        record = offset_record("g", *partition, CommittedOffset(offset, -1, "", 0))
        kit.shard.replay(record.key, record.value, len(kit.log), len(kit.log) + 1, producer_id=7)
        kit.log.append(record)

    def fetch(stable: bool) -> list[tuple[int, ErrorCode]]:
        return [(each.offset, each.error) for each in kit.shard.fetch("g", [P0, P1], stable, 99)]

    def end(*, committed: bool) -> None:
        kit.shard.replay_end_of_transaction(7, committed, 98, 99)

    replay(P0, 5)
    replay(P1, 6)
    assert fetch(False) == [(1, E.NONE), (-1, E.NONE)]
    assert fetch(True) == [(-1, E.UNSTABLE_OFFSET_COMMIT), (-1, E.UNSTABLE_OFFSET_COMMIT)]
    end(committed=True)
    assert fetch(True) == [(5, E.NONE), (6, E.NONE)]
    replay(P0, 50)
    end(committed=False)
    assert fetch(True) == [(5, E.NONE), (6, E.NONE)]
    # A later commit outside of the transaction wins over one inside.
    replay(P0, 60)
    record = offset_record("g", *P0, CommittedOffset(70, -1, "", 0))
    kit.shard.replay(record.key, record.value, len(kit.log), 99)
    end(committed=True)
    assert fetch(True) == [(70, E.NONE), (6, E.NONE)]


# -- expiry --------------------------------------------------------------------------------------


def expire(kit: Kit) -> None:
    kit.run_all(kit.shard.expire_offsets(kit.now))


def test_offsets_of_a_simple_consumer_expire_by_their_commit() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.seconds = 5 * DAY
    kit.answer(kit.commit_offsets({P1: 1}))
    kit.seconds = 7 * DAY - 1
    expire(kit)
    assert kit.committed() == {P0: 1, P1: 1}
    kit.seconds = 7 * DAY
    expire(kit)
    assert kit.committed() == {P1: 1}
    kit.seconds = 12 * DAY
    expire(kit)
    assert not kit.shard.groups
    kit.restart()
    assert not kit.shard.groups


def test_offsets_of_a_group_expire_by_when_it_became_empty() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1)
    kit.answer(kit.commit_offsets({P0: 1}, generation=1, member_id=member_id))
    for _ in range(10):
        kit.seconds += DAY
        kit.heartbeat(member_id, 1)
        expire(kit)
    assert kit.committed() == {P0: 1}
    kit.leave(member_id)
    kit.seconds += 6.9 * DAY
    kit.restart()  # the time of becoming empty is in the log
    expire(kit)
    assert kit.committed() == {P0: 1}
    kit.seconds += 0.2 * DAY
    expire(kit)
    assert not kit.shard.groups
    assert kit.log[-1] == group_record("g", None)
    kit.restart()
    assert not kit.shard.groups


def test_a_stable_group_loses_offsets_of_topics_it_has_left() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1, protocols=[("range", subscription("t"))])
    kit.answer(kit.commit_offsets({P0: 1, ("old", 0): 2}, generation=1, member_id=member_id))
    kit.seconds = 7 * DAY
    kit.heartbeat(member_id, 1)
    expire(kit)
    assert kit.committed() == {P0: 1}


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", subscription("t")), ("consumer", b"?")])
def test_a_live_group_with_unknown_subscriptions_keeps_everything(protocol_type: str, metadata: bytes) -> None:
    kit = Kit()
    joined = kit.joined(kit.join(version=3, protocol_type=protocol_type, protocols=[("range", metadata)]))
    kit.sync(joined.member_id, 1, version=4, protocol_type=None, protocol_name=None)
    kit.answer(kit.commit_offsets({("old", 0): 2}, generation=1, member_id=joined.member_id))
    kit.seconds = 70 * DAY
    kit.heartbeat(joined.member_id, 1)
    expire(kit)
    assert kit.committed() == {("old", 0): 2}


def test_a_commit_with_its_own_retention_obeys_that() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}, retention_ms=60_000))
    kit.answer(kit.commit_offsets({P1: 1}, retention_ms=int(30 * DAY * 1000)))
    kit.restart()
    kit.seconds = 60
    expire(kit)
    assert kit.committed() == {P1: 1}
    kit.seconds = 29 * DAY
    expire(kit)
    assert kit.committed() == {P1: 1}
    kit.seconds = 30 * DAY
    expire(kit)
    assert not kit.shard.groups


def test_a_retention_beyond_all_time() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}, retention_ms=2**63 - 1))
    kit.restart()
    kit.seconds = 3000 * DAY
    expire(kit)
    assert kit.committed() == {P0: 1}


def test_an_explicit_commit_time_counts() -> None:

    kit = Kit()
    old = WALL_START_MS - int(7 * DAY * 1000)
    kit.run(
        kit.shard.commit("g", -1, "", None, -1, [OffsetToCommit("t", 0, 1, commit_time_ms=old)], kit.token(), kit.now)
    )
    expire(kit)
    assert not kit.shard.groups


def test_a_group_record_without_a_time_expires_by_its_commits() -> None:
    kit = Kit()
    kit.log = [
        group_record("g", StoredGroup("consumer", 3, None, None, -1, ())),
        offset_record("g", "t", 0, CommittedOffset(1, -1, "", WALL_START_MS)),
    ]
    kit.committed_to = 2
    kit.restart()
    kit.seconds = 7 * DAY - 1
    expire(kit)
    assert kit.committed() == {P0: 1}
    kit.seconds = 7 * DAY
    expire(kit)
    assert not kit.shard.groups


def test_an_expiry_that_cannot_be_written_is_tried_again() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.seconds = 8 * DAY
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    expire(kit)
    assert kit.committed() == {P0: 1}
    kit.refuse = None
    expire(kit)
    assert not kit.shard.groups


def test_many_offsets_are_removed_in_several_batches() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({("t", i): i for i in range(2500)}))
    kit.seconds = 8 * DAY
    results = []
    for result in kit.shard.expire_offsets(kit.now):
        results.append(len(result.records))
        kit.run(result)
    assert results == [1000, 1000, 500, 1]
    assert not kit.shard.groups


# -- deleting ------------------------------------------------------------------------------------


def delete_offsets(kit: Kit, *partitions: tuple[str, int], group: str = "g") -> object:
    token = kit.token()
    kit.run(kit.shard.delete_offsets(group, partitions, token))
    return kit.answer(token)


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1, P1: 2}))
    assert delete_offsets(kit, P0, ("other", 3)) == [E.NONE, E.NONE]
    assert kit.committed() == {P1: 2}
    assert delete_offsets(kit, P0, group="nobody") == E.GROUP_ID_NOT_FOUND
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert delete_offsets(kit, P1) == E.COORDINATOR_NOT_AVAILABLE
    assert kit.committed() == {P1: 2}


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1)
    kit.answer(kit.commit_offsets({P0: 1, ("old", 0): 2}, generation=1, member_id=member_id))
    assert delete_offsets(kit, P0, ("old", 0)) == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE]
    assert kit.committed() == {P0: 1}


def test_of_a_group_that_is_not_a_consumers_nothing_can_be_deleted() -> None:
    kit = Kit()
    kit.joined(kit.join(version=3, protocol_type="connect"))
    assert delete_offsets(kit, P0) == E.NON_EMPTY_GROUP


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1)
    kit.answer(kit.commit_offsets({P0: 1, ("u", 0): 2}, generation=1, member_id=member_id))
    kit.answer(kit.commit_offsets({P0: 1}, group="simple"))
    kit.run_all(kit.shard.topics_deleted({"t"}, kit.now))
    assert kit.committed() == {("u", 0): 2}
    assert kit.state() == "Stable"
    assert "simple" not in kit.shard.groups


def test_a_group_can_be_deleted_when_it_has_no_members() -> None:
    kit = Kit()
    assert kit.delete_group() == E.GROUP_ID_NOT_FOUND
    (member_id,) = kit.stable(1)
    kit.answer(kit.commit_offsets({P0: 1}, generation=1, member_id=member_id))
    assert kit.delete_group() == E.NON_EMPTY_GROUP
    kit.leave(member_id)
    assert kit.delete_group() == E.NONE
    assert not kit.shard.groups
    assert kit.delete_group() == E.GROUP_ID_NOT_FOUND
    kit.restart()
    assert not kit.shard.groups
    assert kit.committed() == {}


def test_a_group_that_cannot_be_deleted_stays_whole() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.refuse = E.NOT_LEADER_OR_FOLLOWER
    assert kit.delete_group() == E.NOT_COORDINATOR
    assert kit.committed() == {P0: 1}


def test_a_group_with_very_many_offsets_is_deleted_in_several_batches() -> None:
    kit = Kit()
    kit.answer(kit.commit_offsets({("t", i): i for i in range(1500)}))
    assert kit.delete_group() == E.NONE
    assert len(kit.log) == 3001
    assert not kit.shard.groups
