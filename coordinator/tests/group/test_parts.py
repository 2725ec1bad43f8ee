"""The parts of groups, each alone: with the state that it works on, and none of the parts beside it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.classic.joining import Joining
from barnabas.coordinator.group.classic.members import Member, Waiting
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import State, Why
from barnabas.coordinator.group.classic.syncing import Syncing
from barnabas.coordinator.group.deadlines import Due, GroupDeadlines
from barnabas.coordinator.group.offset_operations import OffsetOperations, OffsetToCommit
from barnabas.coordinator.group.removals import Removals
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.group.views import GroupViews
from barnabas.coordinator.machine import Decision, Now, Result
from barnabas.coordinator.stored import GroupRecord, OffsetRecord, parse
from barnabas.coordinator.tests.kit import QUICK
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupRequest, SyncGroupRequest

E = ErrorCode
NOW = Now(10.0, 1_700_000_000_000)
LATER = Now(10.0, NOW.wall_ms + QUICK.offsets_retention_ms)


def a_group(*member_ids: str, joining: bool = False) -> ClassicState:
    """A group of `member_ids`, who have the generation 3; joining: each waits in a JoinGroup, its id is the token."""
    group = ClassicState("g", QUICK, GroupDeadlines())
    group.protocol_type, group.protocol, group.generation = "consumer", "range", 3
    group.leader = member_ids[0] if member_ids else None
    for member_id in member_ids:
        group.members.add(Member(member_id, None, "c", "/h", 5_000, 1_000, (("range", b"m"),)))
        if joining:
            group.members.set_joining(group.members[member_id], Waiting(member_id, 7))
    return group


def answers(out: Decision) -> dict[Any, Any]:
    return {token: response.error_code for token, response in out.replies}


def test_a_state_stores_its_generation() -> None:
    stored = a_group("a", "b").to_store({"b": b"all"})
    assert (stored.generation, stored.leader) == (3, "a")
    assert [(each.member_id, each.assignment) for each in stored.members] == [("a", b""), ("b", b"all")]


def test_a_rebalance_forms_a_generation_of_the_members_that_joined() -> None:
    group, out = a_group("a", "b", joining=True), Decision()
    group.members.set_joining(group.members["a"], None)
    group.state = State.STABLE
    rebalance = Rebalance(group)
    rebalance.prepare(Why.JOINED, "a test", NOW, out)
    assert (group.state, out.replies) == (State.PREPARING_REBALANCE, [])
    assert group.deadlines.get(("g", Due.JOIN, "")) == NOW.seconds + 5
    rebalance.expire(Due.JOIN, "", NOW, out)
    assert (group.state, group.generation, group.leader) == (State.COMPLETING_REBALANCE, 4, "b")
    assert answers(out) == {"b": E.NONE}
    assert group.unsynced == {"b"}
    assert "a" not in group.members


def test_a_rebalance_without_members_writes_an_empty_generation() -> None:
    group, out = a_group("a"), Decision()
    group.state = State.STABLE
    Rebalance(group).remove_and_rebalance("a", Why.LEFT, "a test", NOW, out)
    assert (group.state, group.generation) == (State.EMPTY, 4)
    (record,) = out.records
    read = parse(record.key, record.value)
    assert isinstance(read, GroupRecord)
    assert read.stored is not None
    assert not read.stored.members


def test_joining_hands_out_an_id_and_waits_for_it() -> None:
    group, out = ClassicState("g", QUICK, GroupDeadlines()), Decision()
    joining = Joining(group, Rebalance(group))
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joining.join(request, 4, "c", "/h", "unique", "first", NOW, out)
    assert answers(out) == {"first": E.MEMBER_ID_REQUIRED}
    (member_id,) = group.members.pending
    assert group.deadlines.get(("g", Due.PENDING, member_id)) == NOW.seconds + 1
    request.member_id = member_id
    joining.join(request, 4, "c", "/h", "unused", "second", NOW, out)
    assert answers(out)["second"] == E.NONE
    assert (group.state, group.leader) == (State.COMPLETING_REBALANCE, member_id)


def test_syncing_writes_what_the_leader_assigns() -> None:
    group, out = a_group("a", "b"), Decision()
    group.state, group.unsynced = State.COMPLETING_REBALANCE, {"a", "b"}
    syncing = Syncing(group, Rebalance(group))
    syncing.sync(SyncGroupRequest(generation_id=3, member_id="b"), "b", NOW, out)
    assert (out.replies, out.records) == ([], [])
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id="b", assignment=b"all")
    syncing.sync(SyncGroupRequest(generation_id=3, member_id="a", assignments=[given]), "a", NOW, out)
    result = out.result()
    assert {token: answer.assignment for token, answer in result.held} == {"a": b"", "b": b"all"}
    assert len(result.records) == 1
    assert result.failed is not None
    instead = result.failed(E.NOT_ENOUGH_REPLICAS, False, NOW)
    assert {token: answer.error_code for token, answer in instead.replies} == dict.fromkeys(
        "ab", E.COORDINATOR_NOT_AVAILABLE
    )
    assert group.state is State.PREPARING_REBALANCE


@pytest.mark.parametrize("state", [State.EMPTY, State.PREPARING_REBALANCE])
def test_syncing_out_of_turn(state: State) -> None:
    group, out = a_group("a"), Decision()
    group.state = state
    Syncing(group, Rebalance(group)).sync(SyncGroupRequest(generation_id=3, member_id="a"), "a", NOW, out)
    expected = E.UNKNOWN_MEMBER_ID if state is State.EMPTY else E.REBALANCE_IN_PROGRESS
    assert answers(out) == {"a": expected}


# -- over the groups of a partition ------------------------------------------------------------------------------------


def committed(store: GroupStore, *partitions: int, committed_to: int = 100) -> Result:
    """A commit of offset 5 for partitions of the topic "t", as it is replayed."""
    offsets = [OffsetToCommit("t", index, 5) for index in partitions]
    result = OffsetOperations(store).commit("g", -1, "", None, -1, offsets, "token", NOW)
    store.replay_decided(result.records, 0, committed_to, -1)
    return result


def test_offsets_over_a_store() -> None:
    store = GroupStore(QUICK)
    (held,) = committed(store, 0, 1, committed_to=0).held
    assert held.response == [E.NONE, E.NONE]
    offsets = OffsetOperations(store)
    assert [each.offset for each in offsets.fetch("g", [("t", 0)], False, 0)] == [-1], "it may still be lost"
    assert [each.offset for each in offsets.fetch("g", [("t", 0), ("t", 2)], False, 100)] == [5, -1]


def test_removals_over_a_store() -> None:
    store = GroupStore(QUICK)
    committed(store, 0, 1)
    removals = Removals(store)
    assert not list(removals.topics_deleted(["other"], NOW))
    results = removals.expire_offsets(LATER)
    first = next(results)
    assert "g" in store.groups, "what is not replayed has not happened"
    store.replay_decided(first.records, 2, 100, -1)
    (second,) = results
    read = [parse(record.key, record.value) for record in (*first.records, *second.records)]
    assert read == [OffsetRecord("g", "t", 0, None), OffsetRecord("g", "t", 1, None), GroupRecord("g", None)]
    assert "g" not in store.groups


def test_views_over_a_store() -> None:
    store = GroupStore(QUICK)
    committed(store, 0)
    views = GroupViews(store)
    assert views.describe("g", 5).group_state == "Empty"
    assert views.describe("h", 6).error_code == E.GROUP_ID_NOT_FOUND
    assert [each.group_id for each in views.listed(["empty"], [])] == ["g"]
    assert not list(views.listed([], ["consumer"]))
