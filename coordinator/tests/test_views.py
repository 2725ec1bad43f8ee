"""DescribeGroups and ListGroups; loading what others have written."""

from __future__ import annotations

import pytest

from barnabas.coordinator import GroupShard
from barnabas.coordinator.stored import CommittedOffset, group_record, offset_record
from barnabas.coordinator.tests.kit import Kit, assignment_of, subscription
from barnabas.kproto import DecodeError, ErrorCode

E = ErrorCode


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    kit = Kit()
    ids = kit.stable(2)
    described = kit.shard.describe("g", 5)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [member.member_id for member in described.members] == ids
    member = described.members[0]
    assert (member.client_id, member.client_host, member.group_instance_id) == ("c", "/127.0.0.1", None)
    assert member.member_metadata == subscription("t")
    assert member.member_assignment == assignment_of(ids[0], 2)


def test_a_rebalancing_group_is_described_with_the_last_assignment() -> None:
    kit = Kit()
    ids = kit.stable(2)
    last = [assignment_of(member_id, kit.generation()) for member_id in ids]
    kit.join(ids[0])
    described = kit.shard.describe("g", 5)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(member.member_metadata, member.member_assignment) for member in described.members] == [
        (b"", assignment) for assignment in last
    ]


@pytest.mark.parametrize(("version", "code"), [(5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)])
def test_an_unknown_group_is_dead(version: int, code: ErrorCode) -> None:
    described = Kit().shard.describe("nobody", version)
    assert (described.group_state, described.error_code) == ("Dead", code)


def test_groups_are_listed_by_state_and_type() -> None:
    kit = Kit()
    kit.stable(1, group="stable")
    kit.answer(kit.commit_offsets({("t", 0): 1}, group="simple"))
    kit.join(kit.stable(2, group="moving")[0], group="moving")

    def names(states: set[str], types: set[str]) -> set[str]:
        return {each.group_id for each in kit.shard.listed(states, types)}

    assert names(set(), set()) == {"stable", "simple", "moving"}
    assert names({"stable", "EMPTY"}, set()) == {"stable", "simple"}
    assert names({"PreparingRebalance"}, {"Classic"}) == {"moving"}
    assert names({"nonsense"}, set()) == set()
    assert names(set(), {"consumer"}) == set()
    by_name = {each.group_id: each for each in kit.shard.listed((), ())}
    assert by_name["stable"].protocol_type == "consumer"
    assert by_name["simple"].protocol_type == ""
    assert {each.group_type for each in by_name.values()} == {"classic"}


def test_a_group_that_cannot_be_described_does_not_hide_others() -> None:
    """Ids are bounded when they come in; an old log may hold others."""
    kit = Kit()
    kit.stable(1, group="good")
    kit.stable(1, group="bad")
    too_long = "\ufffd" * 11_000
    kit.shard.store.classic_group(too_long)
    assert [each.group_id for each in kit.shard.listed((), ())] == ["good", "bad"]
    assert len(list(kit.shard.looked_through((), ()))) == 3
    (member,) = kit.shard.groups["bad"].members  # type: ignore[union-attr]
    member.client_id = too_long
    described = kit.shard.describe("bad", 5)
    assert (described.error_code, described.members) == (E.UNKNOWN_SERVER_ERROR, [])
    assert kit.shard.describe("good", 5).error_code == E.NONE


def test_a_coordinator_that_takes_over_knows_the_last_generation() -> None:
    kit = Kit()
    ids = kit.stable(3)
    kit.answer(kit.commit_offsets({("t", 0): 5}, generation=2, member_id=ids[0]))
    before = kit.shard.describe("g", 5)
    kit.restart()
    assert kit.shard.describe("g", 5) == before
    assert [kit.heartbeat(member_id, 2) for member_id in ids] == [E.NONE] * 3
    assert kit.assignment(kit.sync(ids[1], 2)) == assignment_of(ids[1], 2)
    assert kit.committed() == {("t", 0): 5}
    tokens = [kit.join(member_id, protocols=[("range", b"new")]) for member_id in ids]
    assert {kit.joined(token).generation_id for token in tokens} == {3}


def test_a_rebalance_under_way_is_lost_and_waiting_members_get_an_error() -> None:
    kit = Kit()
    ids = kit.stable(3)
    joining = [kit.join(ids[0]), kit.join(ids[1])]
    kit.restart()
    assert [kit.error(token) for token in joining] == [E.NOT_COORDINATOR] * 2
    assert kit.state() == "Stable"
    assert kit.heartbeat(ids[0], 2) == E.NONE
    tokens = [kit.join(ids[0]), kit.join(ids[1]), kit.join(ids[2])]
    for token in tokens:
        kit.joined(token)
    syncing = kit.sync(ids[1], 3)
    kit.restart()
    assert kit.error(syncing) == E.NOT_COORDINATOR
    # The generation was never assigned: its members are not of the one that is in the log.
    assert kit.heartbeat(ids[1], 3) == E.ILLEGAL_GENERATION


def test_an_assignment_that_was_not_committed_is_not_believed() -> None:
    kit = Kit()
    ids = kit.stable(2)
    for member_id in ids:
        kit.join(member_id)
    kit.commit_lag = True
    syncing = kit.sync(ids[0], 3, dict.fromkeys(ids, b"x"))
    kit.restart()
    assert kit.error(syncing) == E.NOT_COORDINATOR
    assert kit.generation() == 2


def test_members_of_a_loaded_group_have_one_session_to_show_up() -> None:
    kit = Kit()
    ids = kit.stable(2)
    kit.restart()
    kit.advance(9)
    assert kit.heartbeat(ids[0], 2) == E.NONE
    kit.advance(2)
    assert kit.heartbeat(ids[0], 2) == E.REBALANCE_IN_PROGRESS
    assert kit.heartbeat(ids[1], 2) == E.UNKNOWN_MEMBER_ID


def test_replay_is_in_the_order_of_the_log() -> None:
    kit = Kit()
    kit.log = [
        offset_record("g", "t", 0, CommittedOffset(1, -1, "", 0)),
        offset_record("g", "t", 0, None),
        offset_record("g", "t", 1, CommittedOffset(2, -1, "", 0)),
        offset_record("gone", "t", 0, CommittedOffset(2, -1, "", 0)),
        offset_record("gone", "t", 0, None),
        group_record("gone", None),
        offset_record("never", "t", 0, None),
    ]
    kit.committed_to = len(kit.log)
    kit.restart()
    assert kit.committed() == {("t", 1): 2}
    assert set(kit.shard.groups) == {"g"}


def test_foreign_records_are_ignored_and_damaged_ones_raise() -> None:
    shard = GroupShard(Kit().config)
    shard.replay(b"\x00\x63a record of a later release", b"\x00\x00", 0, 1)
    with pytest.raises(DecodeError):
        shard.replay(b"\x00\x01\x00", b"", 1, 2)
    assert not shard.groups
