"""Share groups, step by step: joining, leaving, time-outs, what the share coordinator is told, administration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinator.group.config import GroupSettings
from barnabas.coordinator.group.epochs.records import is_tombstone
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.partitions import DeleteState, InitializeState
from barnabas.coordinator.group.share.stored import (
    InitializedPartitions,
    NamedPartitions,
    StatePartitions,
    share_record,
)
from barnabas.coordinator.machine import Result
from barnabas.coordinator.tests.share_groups.share_group_kit import ShareGroupKit, topic_id
from barnabas.kproto import ErrorCode

E = ErrorCode
T = topic_id("t")
AT_ONCE = ShareGroupConfig(assignment_interval_ms=0)


# -- joining --------------------------------------------------------------------------------------


def test_a_first_member() -> None:
    kit = ShareGroupKit(t=2)
    answer = kit.beat("a", 0, "t")
    assert (answer.error_code, answer.member_epoch, kit.parts(answer)) == (E.NONE, 2, {})
    assert kit.kinds() == [10, 11, 13, 12, 14, 15, 15]
    assert kit.store == {("g", T, 0): (2, -1), ("g", T, 1): (2, -1)}
    kit.advance(0.5)
    answer = kit.beat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (2, None)
    assert kit.group().epoch == 3, "other partitions are initialized than are assigned"
    kit.advance(0.5)
    start = len(kit.log)
    answer = kit.beat("a", 2)
    assert (answer.member_epoch, kit.parts(answer)) == (3, {"t": [0, 1]})
    assert kit.kinds(start) == [13, 12, 14]
    start = len(kit.log)
    assert kit.beat("a", 3).assignment is None
    assert kit.beat("a", 3, "t").assignment is not None, "a full request is answered in full"
    assert kit.kinds(start) == []


def test_members_share() -> None:
    kit = ShareGroupKit(t=4)
    kit.beat("a", 0, "t")
    kit.beat("b", 0, "t")
    assert kit.settle("a", "b") == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}, "in turn"
    kit.beat("c", 0, "t")
    has = kit.settle("a", "b", "c")
    assert sorted(len(each["t"]) for each in has.values()) == [1, 1, 2]
    assert kit.code("c", -1) == E.NONE
    has = kit.settle("a", "b")
    assert sorted(len(each["t"]) for each in has.values()) == [2, 2]


def test_more_members_than_partitions() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    for name in "abc":
        kit.beat(name, 0, "t")
    assert kit.settle("a", "b", "c") == {name: {"t": [0]} for name in "abc"}


def test_a_changed_subscription() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1, u=1)
    kit.beat("a", 0, "t")
    kit.settle("a")
    epoch = kit.group().members["a"].standing.epoch
    answer = kit.beat("a", epoch, "u")
    assert kit.parts(answer) == {}, "what it does not subscribe to is not its own any more"
    assert kit.settle("a") == {"a": {"u": [0]}}


def test_a_lost_answer() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.settle("a")
    kit.beat("b", 0, "t")
    before = kit.group().members["a"].standing.epoch
    assert kit.again("a").member_epoch > before
    answer = kit.beat("a", before)
    assert (answer.error_code, kit.parts(answer)) == (E.NONE, {"t": [0]}), "it is told again"
    assert kit.code("a", before - 1) == E.FENCED_MEMBER_EPOCH
    assert kit.code("a", before + 5) == E.FENCED_MEMBER_EPOCH


def test_joining_again() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.settle("a")
    epoch, length = kit.group().epoch, len(kit.log)
    answer = kit.beat("a", 0, "t")
    assert (answer.member_epoch, kit.parts(answer)) == (epoch, {"t": [0]})
    assert len(kit.log) == length


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("", 0, {"names": ["t"]}, E.INVALID_REQUEST),
        ("x" * 37, 0, {"names": ["t"]}, E.INVALID_REQUEST),
        ("x", 0, {"names": ["t"], "group": ""}, E.INVALID_REQUEST),
        ("x", 0, {"names": ["t"], "rack": ""}, E.INVALID_REQUEST),
        ("x", -2, {"names": ["t"]}, E.INVALID_REQUEST),
        ("x", 0, {"names": []}, E.INVALID_REQUEST),
        ("x", 0, {"names": None}, E.INVALID_REQUEST),
        ("x", 0, {"names": ["t" * 40_000]}, E.INVALID_REQUEST),
        ("x", 0, {"names": ["t"], "client_id": "c" * 40_000}, E.INVALID_REQUEST),
        ("x", 0, {"names": ["t"], "group": "theirs"}, E.GROUP_ID_NOT_FOUND),
        ("x", 1, {"names": ["t"], "group": "none"}, E.GROUP_ID_NOT_FOUND),
        ("x", -1, {"group": "none"}, E.GROUP_ID_NOT_FOUND),
        ("x", 1, {"names": ["t"]}, E.UNKNOWN_MEMBER_ID),
        ("x", -1, {}, E.UNKNOWN_MEMBER_ID),
        ("x", 0, {"names": ["t"]}, E.GROUP_MAX_SIZE_REACHED),
        ("a", 0, {"names": ["t"]}, E.NONE),
    ],
)
def test_what_is_refused(member_id: str, epoch: int, fields: dict[str, Any], code: ErrorCode) -> None:
    kit = ShareGroupKit(replace(AT_ONCE, max_size=1), t=1)
    kit.taken.add("theirs")
    kit.beat("a", 0, "t")
    length = len(kit.log)
    answer = kit.beat(member_id, epoch, **fields)
    assert answer.error_code == code
    if code != E.NONE:
        assert (answer.member_epoch, answer.assignment) == (0, None)
        assert len(kit.log) == length
        assert list(kit.groups.groups) == ["g"]


def test_topics_that_do_not_exist() -> None:
    kit = ShareGroupKit(AT_ONCE)
    assert kit.beat("a", 0, "t").member_epoch == 2
    assert not kit.store
    assert kit.group().metadata_hash == 0
    kit.set_topics(t=1)
    assert kit.settle("a") == {"a": {"t": [0]}}
    kit.set_topics(t=3)
    assert kit.settle("a") == {"a": {"t": [0, 1, 2]}}
    kit.set_topics(t=None)
    assert kit.settle("a") == {"a": {}}
    assert kit.group().partitions.initialized == {}


# -- leaving --------------------------------------------------------------------------------------


def test_leaving() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    epoch, start = kit.group().epoch, len(kit.log)
    answer = kit.beat("a", -1)
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (-1, 0)
    assert kit.kinds(start) == [14, 13, 10, 11]
    assert kit.code("a", -1) == E.UNKNOWN_MEMBER_ID
    assert kit.group().epoch == epoch + 1
    assert kit.groups.describe("g").group_state == "Empty"
    assert kit.context.deadlines.next() is None


def test_sessions() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.settings["g"] = GroupSettings(10_000, 3_000, 0)
    assert kit.beat("a", 0, "t").heartbeat_interval_ms == 250, "soon, as there will be a target"
    kit.beat("b", 0, "t")
    for _ in range(6):
        kit.advance(5)
        kit.again("a")
    assert list(kit.group().members) == ["a"]
    assert kit.again("a").heartbeat_interval_ms == 3_000
    kit.restart()
    kit.advance(9.9)
    assert list(kit.group().members) == ["a"], "whoever loads it waits anew"
    kit.advance(0.1)
    assert not kit.group().members


def test_a_time_out_that_cannot_be_written() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.advance(46)
    assert list(kit.group().members) == ["a"]
    kit.refuse = None
    kit.advance(1)
    assert not kit.group().members


# -- what share coordinators are told -------------------------------------------------------------


def test_they_are_told_once() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.store_waits = True
    kit.beat("a", 0, "t")
    kit.again("a")
    assert len(kit.asked) == 1
    (asked,) = kit.asked
    assert isinstance(asked, InitializeState)
    assert (asked.group_id, asked.state_epoch, asked.starts) == ("g", 2, {(T, 0): -1, (T, 1): -1})
    kit.advance(30)
    kit.again("a")
    assert len(kit.asked) == 2, "after the time in which they should have answered"
    kit.store_waits = False
    kit.store_now()
    assert kit.settle("a") == {"a": {"t": [0, 1]}}


def test_they_cannot() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.store_error = E.COORDINATOR_NOT_AVAILABLE
    kit.beat("a", 0, "t")
    start = len(kit.log)
    kit.store_waits = True
    kit.again("a")
    assert len(kit.asked) == 1, "with each heartbeat"
    assert kit.kinds(start) == []
    kit.store_waits, kit.store_error = False, E.NONE
    kit.store_now()
    assert kit.settle("a") == {"a": {"t": [0, 1]}}


def test_another_coordinator_tells_them_again() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.store_waits = True
    kit.beat("a", 0, "t")
    kit.restart()
    assert not kit.asked
    start = len(kit.log)
    kit.again("a")
    assert len(kit.asked) == 1
    assert kit.kinds(start) == [], "that it should be is known"
    kit.store_waits = False
    kit.store_now()
    assert kit.settle("a") == {"a": {"t": [0, 1]}}


def test_nothing_is_told_that_may_be_lost() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.commit_lag = True
    token = kit.send("a", 0, "t")
    assert not kit.store
    assert token in kit.open
    kit.commit_lag = False
    kit.commit()
    assert kit.answers[token].member_epoch == 2
    assert kit.store


def test_a_join_that_is_not_written() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.code("a", 0, "t") == E.COORDINATOR_NOT_AVAILABLE
    assert not kit.groups.groups
    kit.refuse = None
    assert kit.beat("a", 0, "t").member_epoch == 2
    assert kit.store == {("g", T, 0): (2, -1), ("g", T, 1): (2, -1)}
    kit.refuse = E.NOT_LEADER_OR_FOLLOWER
    assert kit.code("a", -1) == E.NOT_COORDINATOR
    assert kit.code("b", 0, "t") == E.NOT_COORDINATOR
    kit.refuse = None
    assert kit.settle("a") == {"a": {"t": [0, 1]}}


# -- administration -------------------------------------------------------------------------------


def ask(kit: ShareGroupKit, what: str, *args: Any) -> Any:
    """An operation's answer; its token while there is none."""
    token = kit.token()
    if what == "alter":
        kit.run(kit.groups.alter_offsets("g", args[0], token, kit.now))
    elif what == "forget":
        kit.run(kit.groups.delete_offsets("g", args[0], token))
    else:
        kit.run(kit.groups.delete_group("g", token))
    return kit.answers.get(token, token)


def test_altering() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    assert ask(kit, "alter", {(T, 0): 7}) == {(T, 0): E.NONE}
    assert kit.kinds() == [15, 15], "a group out of nothing"
    assert kit.store == {("g", T, 0): (1, 7)}
    assert kit.groups.initialized_partitions("g") == {T: frozenset({0})}
    kit.restart()
    assert list(kit.groups.groups) == ["g"]
    kit.beat("a", 0, "t")
    assert ask(kit, "alter", {(T, 0): 9}) == E.NON_EMPTY_GROUP
    assert kit.settle("a") == {"a": {"t": [0, 1]}}
    assert kit.store["g", T, 0] == (1, 7)
    kit.beat("a", -1)
    assert ask(kit, "alter", {(T, 0): 3, (T, 1): 4}) == {(T, 0): E.NONE, (T, 1): E.NONE}
    epoch = kit.group().epoch
    assert kit.store == {("g", T, 0): (epoch, 3), ("g", T, 1): (epoch, 4)}
    assert ask(kit, "alter", {}) == {}


def test_altering_that_fails() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    ask(kit, "alter", {(T, 0): 7})
    kit.store_error = E.NOT_COORDINATOR
    assert ask(kit, "alter", {(T, 0): 9, (T, 1): 9}) == {(T, 0): E.NOT_COORDINATOR, (T, 1): E.NOT_COORDINATOR}
    assert kit.groups.initialized_partitions("g") == {T: frozenset({0})}, "as before"
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert ask(kit, "alter", {(T, 0): 9}) == {(T, 0): E.COORDINATOR_NOT_AVAILABLE}
    kit.refuse = None
    kit.taken.add("g")
    kit.groups.groups.clear()
    assert ask(kit, "alter", {(T, 0): 9}) == E.GROUP_ID_NOT_FOUND


def test_altering_when_nothing_is_committed_in_time() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.commit_lag = True
    token = ask(kit, "alter", {(T, 0): 7})
    kit.time_out_commits()
    assert kit.answers[token] == {(T, 0): E.COORDINATOR_NOT_AVAILABLE}
    assert not kit.store
    kit.commit_lag = False
    kit.commit()
    assert kit.store == {("g", T, 0): (1, 7)}, "it happens all the same"


def test_forgetting() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2, u=1)
    assert ask(kit, "forget", {T}) == E.GROUP_ID_NOT_FOUND
    kit.beat("a", 0, "t", "u")
    assert ask(kit, "forget", {T}) == E.NON_EMPTY_GROUP
    kit.beat("a", -1)
    start = len(kit.log)
    assert ask(kit, "forget", {T, b"x" * 16}) == {(T, 0): E.NONE, (T, 1): E.NONE}
    assert kit.kinds(start) == [15, 15]
    assert list(kit.store) == [("g", topic_id("u"), 0)]
    assert ask(kit, "forget", {T}) == {}
    assert kit.group().partitions.deleting == {}


def test_forgetting_that_fails() -> None:
    kit = ShareGroupKit(AT_ONCE, t=2)
    kit.beat("a", 0, "t")
    kit.beat("a", -1)
    kit.store_waits = True
    token = ask(kit, "forget", {T})
    kit.store_now(is_lost=True)
    assert kit.answers[token] == {(T, 0): E.COORDINATOR_NOT_AVAILABLE, (T, 1): E.COORDINATOR_NOT_AVAILABLE}
    assert kit.group().partitions.deleting == {T: "t"}
    kit.restart()
    kit.store_waits = False
    assert ask(kit, "forget", {T}) == {(T, 0): E.NONE, (T, 1): E.NONE}, "it goes on where it was"
    assert not kit.store
    kit.beat("a", 0, "t")
    assert kit.settle("a") == {"a": {"t": [0, 1]}}


def test_removing_a_group() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    assert ask(kit, "remove") == E.GROUP_ID_NOT_FOUND
    kit.beat("a", 0, "t")
    assert ask(kit, "remove") == E.NON_EMPTY_GROUP
    kit.beat("a", -1)
    kit.store_error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(kit, "remove") == E.COORDINATOR_LOAD_IN_PROGRESS
    assert kit.groups.describe("g").error_code == E.NONE
    kit.store_error = E.NONE
    start = len(kit.log)
    assert ask(kit, "remove") == E.NONE
    assert kit.kinds(start) == [12, 15, 11]
    assert all(is_tombstone(record) for record in kit.records(start))
    assert not kit.groups.groups
    assert not kit.store
    kit.restart()
    assert not kit.groups.groups


def test_the_next_group_of_that_name() -> None:
    """What a share coordinator knows, though its answer was lost, must not fence a group that begins anew."""
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.store_waits = True
    for name in "abc":
        kit.beat(name, 0, "t")
    kit.advance(31)
    kit.again("a")
    kit.store_now()
    kit.store_now(is_lost=True)
    assert kit.store == {("g", T, 0): (4, -1)}
    kit.store_waits = False
    for name in "abc":
        kit.beat(name, -1)
    assert ask(kit, "remove") == E.NONE
    kit.beat("a", 0, "t")
    assert kit.settle("a") == {"a": {"t": [0]}}


def test_removing_a_group_that_is_joined_meanwhile() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.beat("a", -1)
    kit.store_waits = True
    token = ask(kit, "remove")
    kit.beat("b", 0, "t")
    assert [type(effect) for effect in kit.asked] == [DeleteState, InitializeState]
    kit.store_now()
    assert kit.answers[token] == E.NON_EMPTY_GROUP
    kit.store_waits = False
    kit.store_now()
    assert kit.settle("b") == {"b": {"t": [0]}}
    assert kit.store


def test_removing_a_group_that_is_joined_and_left_meanwhile() -> None:
    """The share coordinator hears of the member behind the removal: that must not fence the next group of the name."""
    kit = ShareGroupKit(AT_ONCE, t=1)
    for name in "abc":
        kit.beat(name, 0, "t")
    for name in "abc":
        kit.beat(name, -1)
    kit.store_waits = True
    token = ask(kit, "remove")
    kit.beat("b", 0, "t")
    kit.beat("b", -1)
    kit.store_now()
    assert token in kit.open, "what b has left is forgotten, too"
    kit.store_waits = False
    kit.store_now()
    assert kit.answers[token] == E.NONE
    assert (kit.groups.groups, kit.store) == ({}, {})
    kit.beat("a", 0, "t")
    assert kit.settle("a") == {"a": {"t": [0]}}


def test_removing_a_group_whose_offsets_are_altered_meanwhile() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.beat("a", -1)
    kit.store_waits = True
    removal, altering = ask(kit, "remove"), ask(kit, "alter", {(T, 0): 7})
    kit.store_now()
    kit.store_waits = False
    kit.store_now()
    assert kit.answers[altering] == {(T, 0): E.NONE}
    assert kit.answers[removal] == E.NONE
    assert (kit.groups.groups, kit.store) == ({}, {})


def test_a_removal_that_is_not_written_or_committed_in_time_the_second_time() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.beat("a", 0, "t")
    kit.beat("a", -1)
    for way in ("not written", "not committed"):
        kit.store_waits = True
        token = ask(kit, "remove")
        kit.beat("b", 0, "t")
        kit.beat("b", -1)
        kit.refuse = E.NOT_ENOUGH_REPLICAS if way == "not written" else None
        kit.commit_lag = way == "not committed"
        kit.store_now()
        kit.time_out_commits()
        assert kit.answers[token] == E.COORDINATOR_NOT_AVAILABLE
        kit.refuse, kit.commit_lag, kit.store_waits = None, False, False
        kit.commit()
        while kit.asked:
            kit.store_now()
    assert (kit.groups.groups, kit.store) == ({}, {}), "the second time it happens all the same"


def test_what_an_earlier_group_of_the_name_has_left() -> None:
    """Its coordinator died, and what that had asked reaches the share coordinator when the group is gone."""
    kit = ShareGroupKit(AT_ONCE, t=2, u=1)
    for name in "abc":
        kit.beat(name, 0, "u")
    kit.store_waits = True
    kit.beat("d", 0, "t")
    kit.restart()
    kit.store_waits = False
    for name in "abcd":
        kit.beat(name, -1)
    assert ask(kit, "remove") == E.NONE
    kit.store_late()
    assert kit.store == {("g", T, 0): (5, -1), ("g", T, 1): (5, -1)}
    assert kit.beat("a", 0, "t").member_epoch == 2
    assert kit.settle("a") == {"a": {"t": [0, 1]}}
    assert kit.store == {("g", T, 0): (2, -1), ("g", T, 1): (2, -1)}


def test_whoever_is_not_the_coordinator_any_more_deletes_nothing() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.store["g", T, 0] = (9, -1)
    kit.store_waits = True
    kit.beat("a", 0, "t")
    kit.commit_lag = True
    kit.store_now()
    assert not kit.asked
    kit.restart(lose_uncommitted=True)
    kit.store_waits = kit.commit_lag = False
    assert kit.store == {("g", T, 0): (9, -1)}
    assert kit.settle("a") == {"a": {"t": [0]}}


def test_what_is_initialized_again_in_a_later_epoch_is_no_left_over() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.store["g", T, 0] = (3, -1)
    kit.store_waits = True
    kit.beat("a", 0, "t")
    kit.beat("b", 0, "t")
    kit.store_now()
    assert not kit.asked, "in the present epoch it may succeed"
    kit.store_waits = False
    assert kit.settle("a", "b")["a"] == {"t": [0]}
    assert kit.store["g", T, 0][0] >= 3


def test_altering_over_what_is_left() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.store["g", T, 0] = (9, -1)
    assert ask(kit, "alter", {(T, 0): 7}) == {(T, 0): E.FENCED_STATE_EPOCH}
    assert kit.store == {}
    assert ask(kit, "alter", {(T, 0): 7}) == {(T, 0): E.NONE}
    assert kit.store == {("g", T, 0): (1, 7)}


def test_removing_a_group_whose_log_names_topics_without_partitions() -> None:
    """We write none, but logs may have been written by others."""
    kit = ShareGroupKit(AT_ONCE, t=1)
    nothing = {T: NamedPartitions("t", frozenset())}
    for known in (InitializedPartitions(nothing, {}, {}), InitializedPartitions({}, nothing, {})):
        kit.run(Result([share_record(StatePartitions("g", known))]))
        assert ask(kit, "remove") == E.NONE
        assert kit.groups.groups == {}


def test_removing_a_group_of_nothing() -> None:
    kit = ShareGroupKit(AT_ONCE)
    kit.beat("a", 0, "t")
    kit.beat("a", -1)
    kit.store_waits = True
    assert ask(kit, "remove") == E.NONE
    assert not kit.asked


def test_description() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    assert kit.groups.describe("g").error_code == E.GROUP_ID_NOT_FOUND
    assert kit.groups.describe("g").error_message == "Group g not found."
    kit.taken.add("theirs")
    assert kit.groups.describe("theirs").error_message == "Group theirs is not a share group."
    kit.beat("a", 0, "t", rack="r")
    kit.settle("a")
    described = kit.groups.describe("g")
    group = kit.group()
    assert (described.group_state, described.group_epoch, described.assignment_epoch, described.assignor_name) == (
        "Stable", group.epoch, group.epoch, "simple",
    )  # fmt: skip
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("a", "r", group.epoch)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("c", "/127.0.0.1", ["t"])
    assert repr(group) == f"<'g' Stable, epoch {group.epoch}, 1 members>"


def test_another_subject_of_the_log_is_not_meant() -> None:
    kit = ShareGroupKit(AT_ONCE, t=1)
    kit.groups.replay(StatePartitions("g", None))
    assert not kit.groups.groups, "a tombstone of what is not there"
    kit.run(kit.groups.expire("g", "a"))
    kit.run(kit.groups.initialized(InitializeState("g", 1, {(T, 0): -1}), {}, kit.now))
    token = kit.token()
    kit.run(kit.groups.initialized(InitializeState("g", 1, {(T, 0): 5}, frozenset(), token), {}, kit.now))
    assert kit.answers[token] == {(T, 0): E.GROUP_ID_NOT_FOUND}
    token = kit.token()
    kit.run(kit.groups.deleted(DeleteState("g", frozenset({(T, 0)}), True, token), {}, kit.now))
    assert kit.answers[token] == E.NONE
