"""Joining, syncing, heartbeats, leaving: scenarios of dynamic members."""

from __future__ import annotations

import pytest

from barnabas.coordinator import GroupConfig
from barnabas.coordinator.tests.kit import Kit, assignment_of, subscription
from barnabas.kproto import ErrorCode

E = ErrorCode


# -- joining -------------------------------------------------------------------------------------


def test_two_step_join_hands_out_an_id_first() -> None:
    kit = Kit()
    answer = kit.answer(kit.join(client_id="consumer"))
    assert answer.error_code == E.MEMBER_ID_REQUIRED
    assert answer.member_id == "consumer-1"
    assert answer.generation_id == -1
    assert kit.state() == "Empty"
    joined = kit.joined(kit.join("consumer-1"))
    assert (joined.generation_id, joined.leader, joined.member_id) == (1, "consumer-1", "consumer-1")
    assert joined.protocol_type == "consumer"
    assert joined.protocol_name == "range"
    assert [member.member_id for member in joined.members] == ["consumer-1"]
    assert joined.members[0].metadata == subscription("t")
    assert not joined.skip_assignment


@pytest.mark.parametrize("version", range(4))
def test_old_clients_join_in_one_step(version: int) -> None:
    kit = Kit()
    joined = kit.joined(kit.join(version=version))
    assert joined.member_id == joined.leader == "c-1"


def test_a_client_without_an_id_of_its_own_may_join() -> None:
    kit = Kit()
    assert kit.joined(kit.join(version=3, client_id=None)).member_id == "-1"


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_the_protocol_name_of_a_refused_join_is_null_when_that_is_possible(version: int, name: str | None) -> None:
    kit = Kit()
    answer = kit.answer(kit.join(version=version))
    assert answer.error_code == E.MEMBER_ID_REQUIRED
    assert answer.protocol_name == name


@pytest.mark.parametrize(("session_ms", "fits"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)])
def test_session_time_outs_have_limits(session_ms: int, fits: bool) -> None:
    kit = Kit()
    code = kit.error(kit.join(session_ms=session_ms))
    assert code == (E.MEMBER_ID_REQUIRED if fits else E.INVALID_SESSION_TIMEOUT)


def test_a_member_of_an_unknown_group_is_unknown() -> None:
    kit = Kit()
    assert kit.error(kit.join("nobody")) == E.UNKNOWN_MEMBER_ID
    assert not kit.shard.groups


def test_an_id_that_was_never_handed_out_is_unknown() -> None:
    kit = Kit()
    kit.stable(1)
    assert kit.error(kit.join("nobody")) == E.UNKNOWN_MEMBER_ID
    assert kit.error(kit.join("nobody", instance="i")) == E.UNKNOWN_MEMBER_ID
    assert kit.state() == "Stable"


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "code"),
    [
        ("connect", [("range", b"")], E.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", [("sticky", b"")], E.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", [], E.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", [("sticky", b""), ("range", b"")], E.MEMBER_ID_REQUIRED),
    ],
)
def test_members_need_a_protocol_in_common(
    protocol_type: str, protocols: list[tuple[str, bytes]], code: ErrorCode
) -> None:
    kit = Kit()
    kit.stable(1)
    assert kit.error(kit.join(protocol_type=protocol_type, protocols=protocols)) == code


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [("range", b"")]), ("consumer", [])])
def test_the_first_member_must_name_type_and_protocol(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    kit = Kit()
    code = kit.error(kit.join(protocol_type=protocol_type, protocols=protocols))
    assert code == E.INCONSISTENT_GROUP_PROTOCOL
    assert not kit.shard.groups


def test_the_protocol_is_voted_for_among_those_that_all_support() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=1000))
    wishes = [("sticky", "range", "robin"), ("range", "robin"), ("robin", "range"), ("robin", "range", "x")]
    tokens = [kit.join(version=3, protocols=[(name, name.encode()) for name in names]) for names in wishes]
    kit.advance(2)
    names = [kit.joined(token).protocol_name for token in tokens]
    assert set(names) == {"range"}  # two votes each for range and robin; the first of them that was voted for


def test_three_members_form_one_generation_and_learn_their_assignments() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=3000))
    ids = [kit.member() for _ in range(3)]
    tokens = [kit.join(member_id) for member_id in ids]
    assert all(kit.waits(token) for token in tokens)
    kit.advance(10)
    answers = [kit.joined(token) for token in tokens]
    assert {answer.generation_id for answer in answers} == {1}
    assert {answer.leader for answer in answers} == {ids[0]}
    # Only the leader's answer lists the members.
    assert [[member.member_id for member in answer.members] for answer in answers] == [ids, [], []]
    followers = [kit.sync(member_id, 1) for member_id in ids[1:]]
    assert all(kit.waits(token) for token in followers)
    leader = kit.sync(ids[0], 1, {ids[0]: b"zero", ids[2]: b"two"})
    assert kit.assignment(leader) == b"zero"
    assert [kit.assignment(token) for token in followers] == [b"", b"two"]  # the leader forgot one
    assert kit.state() == "Stable"
    assert len(kit.log) == 1


def test_a_fourth_member_makes_all_members_rejoin() -> None:
    kit = Kit()
    ids = kit.stable(3)
    generation = kit.generation()
    new = kit.member()
    token = kit.join(new)
    assert [kit.heartbeat(member_id, generation) for member_id in ids] == [E.REBALANCE_IN_PROGRESS] * 3
    tokens = [kit.join(member_id) for member_id in ids]
    answers = [kit.joined(each) for each in [token, *tokens]]
    assert {answer.generation_id for answer in answers} == {generation + 1}
    assert {answer.leader for answer in answers} == {ids[0]}
    assert len(answers[1].members) == 4


def test_a_pending_id_holds_the_rebalance_back_until_it_joins() -> None:
    kit = Kit()
    ids = kit.stable(2)
    pending = kit.member()
    token = kit.join(ids[0])
    other = kit.join(ids[1])
    assert kit.waits(token)
    assert kit.waits(other)
    kit.joined(kit.join(pending))
    assert kit.joined(token).generation_id == kit.joined(other).generation_id == 3


def test_an_unused_pending_id_expires_after_a_session() -> None:
    kit = Kit()
    ids = kit.stable(2)
    kit.member(session_ms=7000)
    tokens = [kit.join(member_id) for member_id in ids]
    kit.advance(6.9)
    assert all(kit.waits(token) for token in tokens)
    kit.advance(0.2)
    assert {kit.joined(token).generation_id for token in tokens} == {3}


def test_a_group_of_nothing_but_an_expired_pending_id_is_forgotten() -> None:
    kit = Kit()
    member_id = kit.member()
    assert kit.state() == "Empty"
    kit.advance(11)
    assert not kit.shard.groups
    assert kit.error(kit.join(member_id)) == E.UNKNOWN_MEMBER_ID


def test_a_pending_id_does_not_go_with_an_instance_id() -> None:
    kit = Kit()
    member_id = kit.member()
    assert kit.error(kit.join(member_id, instance="i")) == E.UNKNOWN_MEMBER_ID


def test_the_same_metadata_again_gets_the_current_generation() -> None:
    kit = Kit()
    ids = kit.stable(3)
    generation = kit.generation()
    again = kit.joined(kit.join(ids[1]))
    assert (again.generation_id, again.leader, again.members) == (generation, ids[0], [])
    assert kit.state() == "Stable"


def test_a_lost_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    kit = Kit()
    ids = kit.stable(2)
    tokens = [kit.join(member_id) for member_id in ids]
    first = [kit.joined(token) for token in tokens]
    assert [kit.joined(kit.join(member_id)) for member_id in ids] == first
    assert kit.state() == "CompletingRebalance"


def test_changed_metadata_starts_a_rebalance_in_every_state() -> None:
    kit = Kit()
    ids = kit.stable(2)
    token = kit.join(ids[1], protocols=[("range", b"new")])
    assert kit.waits(token)
    assert kit.state() == "PreparingRebalance"
    leader = kit.joined(kit.join(ids[0]))
    assert leader.members[1].metadata == b"new"
    kit.joined(token)
    # And while the assignment is awaited: who waits for it must join again.
    waiting = kit.sync(ids[1], 3)
    token = kit.join(ids[0], protocols=[("range", b"newer")])
    assert kit.error(waiting) == E.REBALANCE_IN_PROGRESS
    assert kit.waits(token)


def test_the_leader_of_a_stable_group_can_always_ask_for_a_new_assignment() -> None:
    kit = Kit()
    ids = kit.stable(2)
    token = kit.join(ids[0])
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(ids[1], 2) == E.REBALANCE_IN_PROGRESS
    kit.joined(kit.join(ids[1]))
    assert kit.joined(token).generation_id == 3


def test_a_second_join_of_the_same_member_supersedes_the_first() -> None:
    kit = Kit()
    ids = kit.stable(2)
    first = kit.join(ids[0])
    second = kit.join(ids[0])
    assert kit.error(first) == E.REBALANCE_IN_PROGRESS
    kit.joined(kit.join(ids[1]))
    kit.joined(second)


# -- how many ------------------------------------------------------------------------------------


def test_a_full_group_takes_no_more_members() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    ids = kit.stable(2)
    answer = kit.answer(kit.join())
    assert answer.error_code == E.GROUP_MAX_SIZE_REACHED
    assert answer.member_id == ""
    # Its members can still join again.
    tokens = [kit.join(member_id) for member_id in ids]
    assert {kit.joined(token).generation_id for token in tokens} == {3}


def test_a_late_member_of_a_full_rebalance_is_removed() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=1000, group_max_size=2))
    ids = [kit.member() for _ in range(3)]
    tokens = [kit.join(member_id) for member_id in ids]
    assert kit.error(tokens[2]) == E.GROUP_MAX_SIZE_REACHED
    kit.advance(2)
    assert [kit.joined(token).generation_id for token in tokens[:2]] == [1, 1]


def test_a_group_that_is_loaded_over_its_size_rebalances() -> None:
    kit = Kit()
    ids = kit.stable(3)
    kit.config = GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2)
    kit.restart()
    assert kit.state() == "PreparingRebalance"
    tokens = [kit.join(member_id) for member_id in ids]
    # The last of them to come back is the one that is too many.
    assert kit.error(tokens[2]) == E.GROUP_MAX_SIZE_REACHED
    assert [kit.joined(token).generation_id for token in tokens[:2]] == [3, 3]


# -- the initial delay ---------------------------------------------------------------------------


def test_the_first_rebalance_waits_for_the_initial_delay_even_when_all_are_there() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=3000))
    token = kit.join(kit.member())
    kit.advance(2.9)
    assert kit.waits(token)
    kit.advance(0.2)
    assert kit.joined(token).generation_id == 1


def test_new_members_prolong_the_initial_delay_up_to_the_rebalance_time_out() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=3000))
    tokens = [kit.join(version=3, rebalance_ms=8000)]
    for _ in range(4):
        kit.advance(2)
        if kit.waits(tokens[0]):
            tokens.append(kit.join(version=3, rebalance_ms=8000))
    # Ends after 3 + 3 + 2 seconds, though members kept coming.
    assert kit.seconds == 8
    assert {kit.joined(token).generation_id for token in tokens} == {1}
    assert len(tokens) == 4


def test_an_emptied_group_waits_for_the_delay_again_but_is_not_prolonged() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=3000))
    token = kit.join(version=3)
    kit.advance(3)
    kit.leave(kit.joined(token).member_id)
    assert kit.state() == "Empty"
    first = kit.join(version=3)
    kit.advance(2)
    second = kit.join(version=3)
    kit.advance(1)
    assert kit.joined(first).generation_id == kit.joined(second).generation_id == 3


# -- SyncGroup -----------------------------------------------------------------------------------


def test_sync_is_checked() -> None:
    kit = Kit()
    ids = kit.stable(2)
    assert kit.error(kit.sync(ids[0], 2, group="other")) == E.UNKNOWN_MEMBER_ID
    assert kit.error(kit.sync("nobody", 2)) == E.UNKNOWN_MEMBER_ID
    assert kit.error(kit.sync(ids[0], 1)) == E.ILLEGAL_GENERATION
    assert kit.error(kit.sync(ids[0], 2, protocol_type="connect")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.sync(ids[0], 2, protocol_name="sticky")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.sync(ids[0], 2, protocol_type=None)) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.sync(ids[0], 2, protocol_name=None)) == E.INCONSISTENT_GROUP_PROTOCOL
    old = kit.sync(ids[0], 2, version=4, protocol_type=None, protocol_name=None)
    assert kit.assignment(old) == assignment_of(ids[0], 2)
    kit.join(ids[0])
    assert kit.error(kit.sync(ids[1], 2)) == E.REBALANCE_IN_PROGRESS


def test_a_stable_group_repeats_assignments() -> None:
    kit = Kit()
    ids = kit.stable(3)
    # Even the leader's second one changes nothing.
    answer = kit.answer(kit.sync(ids[0], 2, {ids[0]: b"other"}))
    assert answer.assignment == assignment_of(ids[0], 2)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert len(kit.log) == 1


def test_a_second_sync_of_the_same_member_supersedes_the_first() -> None:
    kit = Kit()
    ids = kit.stable(2)
    for member_id in ids:
        kit.join(member_id)
    first = kit.sync(ids[1], 3)
    second = kit.sync(ids[1], 3)
    assert kit.error(first) == E.REBALANCE_IN_PROGRESS
    kit.sync(ids[0], 3, {ids[1]: b"x"})
    assert kit.assignment(second) == b"x"


def test_no_member_gets_an_uncommitted_assignment() -> None:
    kit = Kit()
    ids = kit.stable(2)
    for member_id in ids:
        kit.join(member_id)
    kit.commit_lag = True
    follower = kit.sync(ids[1], 3)
    leader = kit.sync(ids[0], 3, dict.fromkeys(ids, b"new"))
    again = kit.sync(ids[1], 3)
    assert kit.waits(follower)
    assert kit.waits(leader)
    assert kit.waits(again)
    kit.commit()
    assert [kit.assignment(token) for token in (leader, follower, again)] == [b"new"] * 3


@pytest.mark.parametrize(
    ("log_error", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
)
def test_no_member_gets_an_assignment_that_cannot_be_written(log_error: ErrorCode, told: ErrorCode) -> None:
    kit = Kit()
    ids = kit.stable(2)
    for member_id in ids:
        kit.join(member_id)
    follower = kit.sync(ids[1], 3)
    kit.refuse = log_error
    leader = kit.sync(ids[0], 3, dict.fromkeys(ids, b"new"))
    assert kit.error(leader) == kit.error(follower) == told
    assert kit.state() == "PreparingRebalance"
    kit.refuse = None
    tokens = [kit.join(member_id) for member_id in ids]
    assert {kit.joined(token).generation_id for token in tokens} == {4}
    kit.settle(ids[0], ids, 4)


def test_an_assignment_that_is_not_committed_in_time_starts_over() -> None:
    kit = Kit()
    ids = kit.stable(2)
    for member_id in ids:
        kit.join(member_id)
    kit.commit_lag = True
    leader = kit.sync(ids[0], 3, dict.fromkeys(ids, b"new"))
    kit.time_out_commits()
    assert kit.error(leader) == E.REBALANCE_IN_PROGRESS
    assert kit.state() == "PreparingRebalance"
    tokens = [kit.join(member_id) for member_id in ids]
    assert {kit.joined(token).generation_id for token in tokens} == {4}


# -- Heartbeat and LeaveGroup --------------------------------------------------------------------


def test_heartbeats_tell_what_to_do() -> None:
    kit = Kit()
    ids = kit.stable(2)
    assert kit.heartbeat(ids[0], 2) == E.NONE
    assert kit.heartbeat(ids[0], 1) == E.ILLEGAL_GENERATION
    assert kit.heartbeat("nobody", 2) == E.UNKNOWN_MEMBER_ID
    assert kit.heartbeat(ids[0], 2, group="other") == E.UNKNOWN_MEMBER_ID
    kit.join(ids[0])
    assert kit.heartbeat(ids[1], 2) == E.REBALANCE_IN_PROGRESS
    kit.join(ids[1])
    assert kit.heartbeat(ids[1], 3) == E.NONE  # the assignment is awaited


def test_leaving_rebalances_the_rest_and_the_last_one_leaves_an_empty_generation() -> None:
    kit = Kit()
    ids = kit.stable(3)
    answer = kit.leave(ids[0])
    assert answer.error_code == E.NONE
    assert [member.error_code for member in answer.members] == [E.NONE]
    tokens = [kit.join(member_id) for member_id in ids[1:]]
    answers = [kit.joined(token) for token in tokens]
    assert {answer.leader for answer in answers} == {ids[1]}
    kit.settle(ids[1], ids[1:], 3)
    kit.leave(ids[1], ids[2])
    assert kit.state() == "Empty"
    assert kit.generation() == 4
    kit.restart()
    assert kit.state() == "Empty"
    assert kit.generation() == 4


def test_the_log_has_a_reason_only_where_the_client_gave_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kit = Kit()
    first, second = kit.stable(2)
    kit.leave(first)
    kit.leave((second, None), reason="the consumer is being closed")
    told = [text for text in caplog.messages if "joined" in text or "left" in text]
    assert told
    assert not any("None" in text or "''" in text for text in told)
    assert any(text.endswith(f"member {first!r} left") for text in told)
    assert any(text.endswith(f"member {second!r} left: 'the consumer is being closed'") for text in told)


@pytest.mark.parametrize("version", range(3))
def test_old_clients_get_the_error_of_leaving_at_the_top(version: int) -> None:
    kit = Kit()
    ids = kit.stable(1)
    assert kit.leave("nobody", version=version).error_code == E.UNKNOWN_MEMBER_ID
    assert kit.leave(ids[0], version=version).error_code == E.NONE
    assert kit.state() == "Empty"


def test_a_batch_of_leavers_has_an_error_each() -> None:
    kit = Kit()
    ids = kit.stable(3)
    answer = kit.leave(ids[0], "nobody", ids[1], ("", "no such instance"))
    codes = [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert [member.error_code for member in answer.members] == codes
    assert answer.error_code == E.NONE
    answer = kit.leave("x", group="unknown")
    assert [member.error_code for member in answer.members] == [E.UNKNOWN_MEMBER_ID]


def test_a_pending_member_may_leave() -> None:
    kit = Kit()
    ids = kit.stable(1)
    pending = kit.member()
    token = kit.join(ids[0])
    assert kit.waits(token)
    assert kit.leave(pending).members[0].error_code == E.NONE
    kit.joined(token)


def test_a_waiting_member_is_answered_when_it_is_removed() -> None:
    kit = Kit()
    ids = kit.stable(3)
    joining = kit.join(ids[0])
    kit.leave(ids[0])
    assert kit.error(joining) == E.UNKNOWN_MEMBER_ID
    for member_id in ids[1:]:
        kit.join(member_id)
    syncing = kit.sync(ids[2], 3)
    kit.leave(ids[2])
    assert kit.error(syncing) == E.UNKNOWN_MEMBER_ID


def test_the_last_leaver_is_answered_even_when_the_log_refuses() -> None:
    kit = Kit()
    ids = kit.stable(1)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.leave(ids[0]).members[0].error_code == E.NONE
    assert kit.state() == "Empty"
