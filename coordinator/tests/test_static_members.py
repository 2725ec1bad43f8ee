"""Static members (KIP-345): they keep their place while their process is restarted."""

from __future__ import annotations

import pytest

from barnabas.coordinator.tests.kit import Kit, assignment_of
from barnabas.kproto import ErrorCode

E = ErrorCode


def static_group(kit: Kit, count: int = 2) -> dict[str, str]:
    """A stable group of static members i0 (the leader), i1, …: instance id → member id; generation 1 or 2."""
    ids: dict[str, str] = {}
    tokens = {f"i{i}": kit.join(instance=f"i{i}") for i in range(count)}
    first = kit.answer(tokens["i0"])
    if count > 1:
        tokens["i0"] = kit.join(first.member_id, instance="i0")
        first = kit.answer(tokens["i0"])
    ids["i0"] = first.member_id
    for instance in list(tokens)[1:]:
        ids[instance] = kit.joined(tokens[instance]).member_id
    generation = first.generation_id
    assignments = {member_id: assignment_of(member_id, generation) for member_id in ids.values()}
    for instance, member_id in reversed(ids.items()):
        kit.sync(member_id, generation, assignments if instance == "i0" else None, instance=instance)
    assert kit.state() == "Stable"
    return ids


def test_a_static_member_joins_in_one_step_under_its_instance_id() -> None:
    kit = Kit()
    joined = kit.joined(kit.join(instance="i0"))
    assert joined.member_id == "i0-1"
    assert joined.members[0].group_instance_id == "i0"


def test_a_restarted_follower_gets_its_assignment_back_without_a_rebalance() -> None:
    kit = Kit()
    ids = static_group(kit)
    written = len(kit.log)
    joined = kit.joined(kit.join(instance="i1"))
    assert kit.state() == "Stable"
    assert joined.generation_id == 2
    assert joined.member_id not in ids.values()
    assert (joined.leader, joined.members, joined.skip_assignment) == (ids["i0"], [], False)
    assert kit.assignment(kit.sync(joined.member_id, 2, instance="i1")) == assignment_of(ids["i1"], 2)
    # The new id is in the log, so it holds after a fail-over as well.
    assert len(kit.log) == written + 1
    kit.restart()
    assert kit.heartbeat(joined.member_id, 2, instance="i1") == E.NONE
    assert kit.heartbeat(ids["i1"], 2, instance="i1") == E.FENCED_INSTANCE_ID


def test_the_former_self_is_fenced_everywhere() -> None:
    kit = Kit()
    ids = static_group(kit)
    kit.joined(kit.join(instance="i1"))
    old = ids["i1"]
    assert kit.heartbeat(old, 2, instance="i1") == E.FENCED_INSTANCE_ID
    assert kit.heartbeat(old, 2) == E.UNKNOWN_MEMBER_ID
    assert kit.error(kit.join(old, instance="i1")) == E.FENCED_INSTANCE_ID
    assert kit.error(kit.sync(old, 2, instance="i1")) == E.FENCED_INSTANCE_ID
    assert kit.leave((old, "i1")).members[0].error_code == E.FENCED_INSTANCE_ID
    commit = kit.commit_offsets({("t", 0): 1}, generation=2, member_id=old, instance="i1")
    assert kit.answer(commit) == [E.FENCED_INSTANCE_ID]
    assert kit.heartbeat("x", 2, instance="unknown") == E.UNKNOWN_MEMBER_ID


def test_a_restarted_leader_of_version_9_leads_on_but_skips_the_assignment() -> None:
    kit = Kit()
    ids = static_group(kit)
    joined = kit.joined(kit.join(instance="i0"))
    assert joined.leader == joined.member_id != ids["i0"]
    assert joined.skip_assignment
    assert [member.group_instance_id for member in joined.members] == ["i1", "i0"]
    kit.restart()
    assert kit.shard.groups["g"].leader == joined.member_id


@pytest.mark.parametrize("version", [5, 8])
def test_an_older_restarted_leader_gets_its_former_id_as_leader(version: int) -> None:
    kit = Kit()
    ids = static_group(kit)
    joined = kit.joined(kit.join(instance="i0", version=version))
    assert joined.leader == ids["i0"] != joined.member_id
    assert joined.members == []
    assert not joined.skip_assignment
    assert kit.shard.groups["g"].leader == joined.member_id


def test_a_restart_that_changes_the_chosen_protocol_rebalances() -> None:
    kit = Kit()
    tokens = [kit.join(instance=f"i{i}", protocols=[("a", b"1"), ("b", b"2")]) for i in range(2)]
    first = kit.joined(tokens[0])
    again = kit.join(first.member_id, instance="i0", protocols=[("a", b"1"), ("b", b"2")])
    assert kit.joined(again).protocol_name == "a"
    second = kit.joined(tokens[1])
    kit.sync(first.member_id, 2, instance="i0", protocol_name="a")
    kit.sync(second.member_id, 2, instance="i1", protocol_name="a")
    token = kit.join(instance="i1", protocols=[("b", b"2")])
    assert kit.state() == "PreparingRebalance"
    kit.join(first.member_id, instance="i0", protocols=[("a", b"1"), ("b", b"2")])
    assert kit.joined(token).protocol_name == "b"


def test_a_restart_while_the_assignment_is_awaited_forms_the_generation_again() -> None:
    kit = Kit()
    ids = static_group(kit)
    for instance, member_id in ids.items():
        kit.join(member_id, instance=instance, protocols=[("range", b"new")])
    assert kit.state() == "CompletingRebalance"
    waiting = kit.sync(ids["i1"], 3, instance="i1")
    fenced = kit.join(instance="i1")
    assert kit.error(waiting) == E.FENCED_INSTANCE_ID
    assert kit.state() == "PreparingRebalance"
    kit.joined(kit.join(ids["i0"], instance="i0"))
    assert kit.joined(fenced).generation_id == 4


def test_a_restart_during_a_rebalance_takes_the_parked_place() -> None:
    kit = Kit()
    ids = static_group(kit, 3)
    parked = kit.join(ids["i1"], instance="i1", protocols=[("range", b"new")])
    again = kit.join(instance="i1")
    assert kit.error(parked) == E.FENCED_INSTANCE_ID
    kit.join(ids["i0"], instance="i0")
    assert kit.waits(again)
    kit.join(ids["i2"], instance="i2")
    assert kit.joined(again).generation_id == 3


def test_the_new_id_is_taken_back_if_it_cannot_be_stored() -> None:
    kit = Kit()
    ids = static_group(kit)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    answer = kit.answer(kit.join(instance="i0", session_ms=20_000))
    assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert (answer.member_id, answer.leader) == ("", ids["i0"])
    assert kit.heartbeat(ids["i0"], 2, instance="i0") == E.NONE
    group = kit.shard.groups["g"]
    assert group.leader == ids["i0"]
    assert group.members[ids["i0"]].session_timeout_ms == 10_000
    assert kit.state() == "Stable"


def test_the_new_id_stays_if_it_is_only_not_committed_in_time() -> None:
    kit = Kit()
    static_group(kit)
    kit.commit_lag = True
    token = kit.join(instance="i1")
    kit.time_out_commits()
    assert kit.error(token) == E.REBALANCE_IN_PROGRESS
    # The client starts over, as a restarted member does.
    kit.commit_lag = False
    again = kit.joined(kit.join(instance="i1"))
    assert kit.heartbeat(again.member_id, 2, instance="i1") == E.NONE


def test_static_members_that_miss_a_rebalance_stay_in_the_group() -> None:
    kit = Kit()
    ids = static_group(kit)
    for each in kit.shard.groups["g"].members:
        each.session_timeout_ms = 1_000_000
        kit.heartbeat(each.member_id, 2)
    token = kit.join(ids["i0"], instance="i0", session_ms=1_000_000)
    kit.advance(61)
    joined = kit.joined(token)
    assert {member.member_id for member in joined.members} == set(ids.values())


def test_a_rebalance_that_no_static_member_joins_waits_for_them() -> None:
    kit = Kit()
    ids = static_group(kit)
    dynamic = kit.member()
    kit.join(dynamic)
    for each in kit.shard.groups["g"].members:
        each.session_timeout_ms = 1_000_000
        kit.heartbeat(each.member_id, 2)
    kit.leave(dynamic)
    kit.advance(200)
    assert kit.state() == "PreparingRebalance"
    assert kit.generation() == 2
    tokens = [kit.join(member_id, instance=instance) for instance, member_id in ids.items()]
    assert {kit.joined(token).generation_id for token in tokens} == {3}


def test_an_administrator_takes_static_members_out_by_instance_id() -> None:
    kit = Kit()
    static_group(kit, 3)
    answer = kit.leave(("", "i1"), ("", "i9"))
    assert [member.error_code for member in answer.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert [member.group_instance_id for member in answer.members] == ["i1", "i9"]
    assert kit.state() == "PreparingRebalance"
    assert len(kit.shard.groups["g"].members) == 2


def test_a_static_member_is_taken_out_when_its_session_ends() -> None:
    kit = Kit()
    ids = static_group(kit)
    kit.advance(8)
    kit.heartbeat(ids["i0"], 2, instance="i0")
    kit.advance(3)
    assert kit.state() == "PreparingRebalance"
    assert kit.error(kit.join(ids["i1"], instance="i1")) == E.UNKNOWN_MEMBER_ID
