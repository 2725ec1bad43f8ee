"""Streams groups beside other kinds: who may have an id, how one kind takes another's place, committed offsets."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.streams.group import StreamsGroup
from barnabas.coordinator.tests.kit import Kit
from barnabas.coordinator.tests.streams_groups.streams_group_kit import StreamsKit, subtopology, topology
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest

E = ErrorCode
OFFSETS = {("in", 0): 5, ("in", 1): 6}


def consumer_heartbeat(kit: StreamsKit, epoch: int = 0) -> ErrorCode:
    token = kit.token()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["in"],
        topic_partitions=[],
    )
    result = kit.shard.consumer_heartbeat(request, 1, "c", "/127.0.0.1", "m", lambda pattern: None, token, kit.now)
    kit.run(result)
    return ErrorCode(kit.answer(token).error_code)


def commit(kit: StreamsKit, offsets: dict[tuple[str, int], int] | None = None, **fields: object) -> list[ErrorCode]:
    codes: list[ErrorCode] = kit.answer(kit.commit_offsets(offsets or OFFSETS, version=9, **fields))  # type: ignore[arg-type]
    return codes


def test_the_id_is_taken() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    assert kit.error(kit.join()) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.join("m")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.sync("a", 2)) == E.UNKNOWN_MEMBER_ID
    assert kit.heartbeat("a", 2) == E.UNKNOWN_MEMBER_ID
    assert kit.leave("a").members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert kit.leave("a", version=2).error_code == E.UNKNOWN_MEMBER_ID
    assert consumer_heartbeat(kit) == consumer_heartbeat(kit, 1) == E.GROUP_ID_NOT_FOUND
    assert kit.shard.consumer_describe("g").error_code == E.GROUP_ID_NOT_FOUND
    told = kit.shard.describe("g", 6)
    assert (told.error_code, told.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert kit.delete_group() == E.NON_EMPTY_GROUP
    kit.beat("a", -1)
    assert consumer_heartbeat(kit) == E.GROUP_ID_NOT_FOUND, "nor when it is empty"


def test_other_kinds_have_the_id() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.stable(1)
    assert kit.enter("a").error_code == E.GROUP_ID_NOT_FOUND
    assert kit.streams.describe("g").error_code == E.GROUP_ID_NOT_FOUND
    kit = StreamsKit(**{"in": 2})
    assert consumer_heartbeat(kit) == E.NONE
    assert kit.enter("a").error_code == kit.code("a", 3) == kit.code("a", -1) == E.GROUP_ID_NOT_FOUND
    kit = StreamsKit(**{"in": 2})
    kit.shard.store.foreign.add("g")
    assert kit.enter("a").error_code == E.GROUP_ID_NOT_FOUND
    kit = StreamsKit(**{"in": 2})
    kit.member()
    assert kit.enter("a").error_code == E.GROUP_ID_NOT_FOUND, "somebody is about to join"


def test_an_empty_classic_group_becomes_one_and_back() -> None:
    kit = StreamsKit(**{"in": 2})
    (member,) = kit.stable(1)
    kit.leave(member)
    kit.answer(kit.commit_offsets(OFFSETS))
    at = len(kit.log)
    assert kit.enter("a").error_code == E.NONE
    assert kit.kinds(at) == [-2, 19, 23, 17, 21, 20, 22]
    assert kit.committed() == OFFSETS
    kit.restart()
    assert (isinstance(kit.shard.groups["g"], StreamsGroup), kit.committed()) == (True, OFFSETS)
    kit.beat("a", -1)
    kit.restart()
    at = len(kit.log)
    token = kit.join(version=3)
    assert kit.kinds(at)[:3] == [-20, -17, -23]
    group = kit.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (kit.joined(token).generation_id, kit.committed()) == (1, OFFSETS)
    assert kit.shard.deadline() is not None
    kit.restart()
    assert kit.committed() == OFFSETS


def test_a_change_that_cannot_be_written_does_not_happen() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.answer(kit.commit_offsets(OFFSETS))
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.enter("a").error_code == E.COORDINATOR_NOT_AVAILABLE
    assert isinstance(kit.shard.groups["g"], ClassicGroup)
    kit.refuse = None
    assert kit.enter("a").error_code == E.NONE
    kit.beat("a", -1)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.join(version=3)
    kit.refuse = None
    assert isinstance(kit.shard.groups["g"], StreamsGroup)
    assert (kit.enter("a").error_code, kit.committed()) == (E.NONE, OFFSETS)


def test_deletion() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.beat("a", -1)
    commit(kit)
    at = len(kit.log)
    assert kit.delete_group() == E.NONE
    assert sorted(kit.kinds(at)) == [-23, -20, -17, -1, -1]
    assert not kit.shard.groups
    kit.restart()
    assert not kit.shard.groups
    assert kit.enter("a").member_epoch == 2, "a new group"


def test_offsets_expire_when_nobody_reads() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    commit(kit, generation=2, member_id="a")
    week = kit.config.offsets_retention_ms / 1_000 + 1
    for _ in range(2):
        kit.seconds += week / 2
        kit.again("a")
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert kit.committed() == OFFSETS, "a member reads them"
    kit.beat("a", -1)
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert not kit.shard.groups, "the group goes with its last offset"
    kit.restart()
    assert not kit.shard.groups


# -- who may commit, fetch, delete -----------------------------------------------------------------------


def test_commits() -> None:
    kit = StreamsKit(**{"in": 2})
    assert commit(kit) == [E.NONE, E.NONE], "no group yet"
    kit.enter("a")
    assert commit(kit) == [E.UNKNOWN_MEMBER_ID] * 2
    assert commit(kit, generation=2, member_id="a") == [E.NONE] * 2
    assert (
        kit.answer(kit.commit_offsets(OFFSETS, generation=2, member_id="a", version=8)) == [E.UNSUPPORTED_VERSION] * 2
    )
    assert commit(kit, {("any", 7): 1}, generation=2, member_id="a") == [E.NONE], "whatever it is"
    assert commit(kit, generation=3, member_id="a") == [E.STALE_MEMBER_EPOCH] * 2
    kit.enter("b")
    kit.rest("a", "b")
    assert kit.known("a").standing.epoch == 3
    assert commit(kit, {("in", 0): 7}, generation=2, member_id="a") == [E.NONE], "it had this task before"
    assert commit(kit, generation=2, member_id="a") == [E.STALE_MEMBER_EPOCH] * 2, "all or nothing"
    assert commit(kit, {("in", 1): 7}, generation=2, member_id="b") == [E.STALE_MEMBER_EPOCH]
    assert commit(kit, {("other", 0): 7}, generation=2, member_id="a") == [E.STALE_MEMBER_EPOCH]
    kit.beat("a", -1)
    kit.beat("b", -1)
    assert commit(kit) == [E.NONE] * 2, "an administrator"
    assert commit(kit, generation=3, member_id="a") == [E.UNKNOWN_MEMBER_ID] * 2


def test_a_task_that_is_being_revoked_commits_still() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.enter("b")
    kit.again("a")
    assert not kit.known("a").standing.revoking.is_empty
    assert commit(kit, generation=2, member_id="a") == [E.NONE] * 2


def test_commits_in_transactions() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    shard: GroupShard = kit.shard
    for generation, member_id, code in (
        (-1, "", None),
        (2, "a", None),
        (1, "a", E.ILLEGAL_GENERATION),
        (2, "x", E.UNKNOWN_MEMBER_ID),
    ):
        token = kit.token()
        result = shard.commit_in_transaction("g", generation, member_id, None, [], token, kit.now)
        kit.run(result)
        kit.answer(token)
        group = kit.streams_group()
        told = group.check_commit(generation, member_id, None, kit.now, partitions=[("in", 5)], is_transactional=True)
        assert told == code


def test_fetches() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    check = kit.shard.check_fetch
    assert check("g", None, -1) == check("g", "a", 2) == E.NONE
    assert check("g", "a", 1) == E.STALE_MEMBER_EPOCH
    assert check("g", "x", 2) == E.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    kit = StreamsKit(**{"in": 2, "r": 2})
    kit.enter("a", topology=topology(subtopology("0", writes=["r"]), subtopology("1", (), reads=["r"])))
    commit(kit, OFFSETS | {("x", 0): 1, ("r", 0): 1}, generation=2, member_id="a")
    token = kit.token()
    places = [("in", 0), ("x", 0), ("r", 0)]
    kit.run(kit.shard.delete_offsets("g", places, token))
    assert kit.answer(token) == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.GROUP_SUBSCRIBED_TO_TOPIC]
    kit.beat("a", -1)
    token = kit.token()
    kit.run(kit.shard.delete_offsets("g", places, token))
    assert kit.answer(token) == [E.NONE] * 3


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_broker_that_does_not_serve_them_keeps_their_ids(is_empty: bool) -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    if is_empty:
        kit.beat("a", -1)
    other = Kit()
    for offset, record in enumerate(kit.log):
        other.shard.replay(record.key, record.value, offset, len(kit.log))
    assert other.shard.store.foreign == {"g"}
    assert other.error(other.join()) == E.INCONSISTENT_GROUP_PROTOCOL
