"""A next-generation group: joining, moving partitions, fencing, static members, limits, as in Apache Kafka 4.3.1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinator import GroupSettings
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.tests.consumer_groups.consumer_kit import AT_ONCE, JOIN, ConsumerKit
from barnabas.kproto import ErrorCode

E = ErrorCode


def test_a_group_begins_and_ends() -> None:
    kit = ConsumerKit(t=4)
    answer = kit.enter("a", "t")
    assert (answer.member_epoch, answer.heartbeat_interval_ms, kit.parts(answer)) == (2, 250, {"t": [0, 1, 2, 3]})
    kinds = [type(record) for record in kit.records()]
    assert kinds == [Member, GroupEpoch, TargetMember, TargetEpoch, MemberStanding]
    answer = kit.beat("a", 2)
    assert (answer.member_epoch, kit.parts(answer)) == (2, None)
    assert kit.view().group_state == "Stable"
    answer = kit.beat("a", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", -1)
    assert (kit.view().group_state, kit.view().members, kit.epochs()) == ("Empty", [], (3, 2))
    assert kit.delete_group() == E.NONE
    assert kit.view().error_code == E.GROUP_ID_NOT_FOUND
    assert not kit.shard.groups


def test_partitions_move_when_their_owner_has_given_them_up() -> None:
    kit = ConsumerKit(t=4)
    kit.enter("a", "t")
    answer = kit.enter("b", "t")
    assert (answer.member_epoch, kit.parts(answer)) == (3, {})
    answer = kit.beat("a", 2)
    assert (answer.member_epoch, kit.parts(answer)) == (2, {"t": [0, 1]})
    assert kit.parts(kit.beat("b", 3)) is None, "nobody gave anything up yet"
    assert kit.view().group_state == "Reconciling"
    assert kit.beat("a", 2, owned={"t": [0, 1, 2]}).member_epoch == 2, "one is still there"
    assert kit.beat("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    answer = kit.beat("b", 3)
    assert (answer.member_epoch, kit.parts(answer)) == (3, {"t": [2, 3]})
    assert kit.view().group_state == "Stable"


def test_a_lost_answer_is_repeated() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t")
    kit.enter("b", "t")
    kit.beat("a", 2)
    assert kit.beat("a", 2, owned={"t": [0]}).member_epoch == 3
    # The answer got lost: the epoch before is good as long as the member has no more than it should.
    assert kit.beat("a", 2, owned={"t": [0]}).member_epoch == 3
    for epoch, owned in ((2, {"t": [0, 1]}), (2, None), (1, {"t": [0]}), (4, {"t": [0]})):
        assert kit.code("a", epoch, owned=owned) == E.FENCED_MEMBER_EPOCH
    answer = kit.beat("a", 3, owned={"t": [0]}, rebalance_timeout_ms=1000, subscribed_topic_names=["t"])
    assert kit.parts(answer) == {"t": [0]}, "a full request gets a full answer"


def test_joining_again_starts_over_with_what_is_assigned() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t")
    answer = kit.enter("a", "t")
    assert (answer.member_epoch, kit.parts(answer)) == (2, {"t": [0, 1]})
    assert len(kit.records()) == 5, "nothing new"


def test_a_subscription_that_shrinks_is_given_up_at_once() -> None:
    kit = ConsumerKit(t=2, u=1)
    kit.enter("a", "t", "u")
    answer = kit.beat("a", 2, subscribed_topic_names=["u"])
    assert (answer.member_epoch, kit.parts(answer)) == (2, {"u": [0]})
    assert kit.beat("a", 2, owned={"u": [0]}).member_epoch == 3


def test_topics_come_grow_and_go() -> None:
    kit = ConsumerKit(t=1)
    assert kit.parts(kit.enter("a", "t", "u")) == {"t": [0]}
    kit.set_topics(other=5)
    assert kit.beat("a", 2).member_epoch == 2, "nobody subscribes to it"
    kit.set_topics(u=2)
    answer = kit.beat("a", 2)
    assert (answer.member_epoch, kit.parts(answer)) == (3, {"t": [0], "u": [0, 1]})
    kit.set_topics(t=2)
    assert kit.parts(kit.beat("a", 3)) == {"t": [0, 1], "u": [0, 1]}
    kit.set_topics(t=None)
    kit.beat("a", 4)
    answer = kit.beat("a", 4, owned={"u": [0, 1]})
    assert (answer.member_epoch, kit.parts(kit.beat("a", 5, **JOIN, subscribed_topic_names=["t", "u"]))) == (
        5,
        {"u": [0, 1]},
    )


def test_two_targets_are_an_interval_apart() -> None:
    kit = ConsumerKit(GroupConfig(), t=2)
    kit.enter("a", "t")
    answer = kit.enter("b", "t")
    assert (answer.member_epoch, kit.parts(answer), kit.epochs()) == (2, {}, (3, 2))
    assert kit.view().group_state == "Assigning"
    kit.advance(0.9)
    assert kit.beat("a", 2).member_epoch == 2
    assert kit.epochs() == (3, 2)
    kit.advance(0.2)
    assert kit.parts(kit.beat("a", 2)) == {"t": [0]}
    assert kit.epochs() == (3, 3)


def test_members_choose_the_assignor() -> None:
    kit = ConsumerKit(t=2, u=2)
    kit.enter("a", "t", "u", server_assignor="range")
    kit.enter("b", "t", "u")
    assert kit.view().assignor_name == "range"
    assert kit.settle_all("a", "b") == {"a": {"t": [0], "u": [0]}, "b": {"t": [1], "u": [1]}}
    kit.enter("c", "t", server_assignor="uniform")
    assert kit.view().assignor_name == "uniform", "at a tie"
    assert kit.code("d", 0, **JOIN, subscribed_topic_names=["t"], server_assignor="sticky") == E.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"member_id": ""}, "MemberId"),
        ({"group": ""}, "GroupId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": ""}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"owned": {"t": [0]}}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"epoch": -2}, "InstanceId"),
        ({"epoch": -3}, "MemberEpoch"),
        ({"epoch": 1, "member_id": "", "version": 0}, "MemberId"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], why: str) -> None:
    kit = ConsumerKit(t=1)
    request: dict[str, Any] = {"member_id": "a", "epoch": 0, **JOIN, "subscribed_topic_names": ["t"], **fields}
    if request["topic_partitions"] is None:
        del request["topic_partitions"]
    answer = kit.beat(**request)
    assert answer.error_code == E.INVALID_REQUEST
    assert why in (answer.error_message or "")
    assert not kit.log


def test_the_broker_makes_ids_for_old_clients() -> None:
    kit = ConsumerKit(t=1)
    answer = kit.beat("", 0, version=0, subscribed_topic_names=["t"], **JOIN)
    assert (answer.error_code, answer.member_id) == (E.NONE, "made-1")


def test_unknown_members() -> None:
    kit = ConsumerKit(t=1)
    assert kit.code("a", 1) == E.GROUP_ID_NOT_FOUND
    assert kit.code("a", -1) == E.GROUP_ID_NOT_FOUND
    kit.enter("a", "t")
    assert kit.code("b", 1) == E.UNKNOWN_MEMBER_ID
    assert kit.code("b", -1) == E.UNKNOWN_MEMBER_ID
    assert kit.code("a", 2, instance_id="i") == E.UNKNOWN_MEMBER_ID
    assert kit.code("a", -2, instance_id="i") == E.UNKNOWN_MEMBER_ID


def test_a_full_group_accepts_no_member() -> None:
    kit = ConsumerKit(replace(AT_ONCE, consumer_max_size=1), t=1)
    kit.enter("a", "t")
    assert kit.code("b", 0, **JOIN, subscribed_topic_names=["t"]) == E.GROUP_MAX_SIZE_REACHED
    assert kit.beat("a", 2).error_code == E.NONE


# -- static members ---------------------------------------------------------------------------------


def test_a_static_member_keeps_its_place() -> None:
    kit = ConsumerKit(t=4)
    kit.enter("a", "t", instance_id="i")
    kit.enter("b", "t")
    kit.settle_all("a", "b")
    before = kit.epochs()
    joining = {**JOIN, "subscribed_topic_names": ["t"], "instance_id": "i"}
    assert kit.code("a2", 0, **joining) == E.UNRELEASED_INSTANCE_ID
    answer = kit.beat("a", -2, instance_id="i")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "a", -2)
    assert kit.code("a", 3, instance_id="i") == E.FENCED_MEMBER_EPOCH
    answer = kit.beat("a2", 0, **joining)
    assert (answer.member_epoch, kit.parts(answer), kit.epochs()) == (3, {"t": [0, 1]}, before)
    assert kit.code("a", 3, instance_id="i") == E.FENCED_INSTANCE_ID
    assert kit.code("a", -1, instance_id="i") == E.FENCED_INSTANCE_ID
    assert kit.members() == {"b": 3, "a2": 3}
    assert kit.code("a2", -1, instance_id="i") == E.NONE
    assert kit.members() == {"b": 3}


def test_a_static_member_that_comes_back_under_its_id_is_watched() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t", instance_id="i")
    kit.enter("b", "t")
    had = kit.settle_all("a", "b")["a"]
    assert kit.code("a", -2, instance_id="i") == E.NONE
    kit.advance(10)
    answer = kit.enter("a", "t", instance_id="i")
    assert (answer.member_epoch, kit.parts(answer)) == (3, had)
    for _ in range(3):
        kit.advance(20)
        assert kit.code("b", kit.members()["b"]) == E.NONE
    assert set(kit.members()) == {"b"}, "a has died meanwhile"


def test_a_static_member_that_comes_back_with_another_subscription_moves_the_group() -> None:
    kit = ConsumerKit(t=2, u=2)
    kit.enter("a", "t", instance_id="i")
    kit.beat("a", -2, instance_id="i")
    answer = kit.enter("a2", "u", instance_id="i")
    assert (answer.member_epoch, kit.parts(answer)) == (3, {"u": [0, 1]})


def test_a_static_member_that_does_not_return_in_time_is_removed() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t", instance_id="i")
    kit.beat("a", -2, instance_id="i")
    kit.advance(44)
    assert kit.members() == {"a": -2}
    kit.advance(2)
    assert kit.members() == {}


# -- time -------------------------------------------------------------------------------------------


def test_a_silent_member_is_fenced() -> None:
    kit = ConsumerKit(t=2)
    kit.settings["g"] = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=123, assignment_interval_ms=0)
    assert kit.enter("a", "t").heartbeat_interval_ms == 123
    kit.advance(9)
    kit.enter("b", "t")
    kit.advance(2)
    assert kit.members() == {"b": 3}
    assert kit.code("a", 2) == E.UNKNOWN_MEMBER_ID
    answer = kit.beat("b", 3)
    assert (answer.member_epoch, kit.parts(answer)) == (4, {"t": [0, 1]})


def test_a_member_that_does_not_revoke_its_partitions_is_fenced() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t", rebalance_timeout_ms=20_000)
    kit.enter("b", "t")
    assert kit.parts(kit.beat("a", 2)) == {"t": [0]}
    for _ in range(3):
        kit.advance(6)
        kit.beat("a", 2, owned={"t": [0, 1]})
        kit.beat("b", 3)
    assert kit.members() == {"a": 2, "b": 3}
    kit.advance(3)
    assert kit.members() == {"b": 3}
    assert kit.parts(kit.beat("b", 3)) == {"t": [0, 1]}


def test_giving_up_in_time_stops_the_clock() -> None:
    kit = ConsumerKit(t=2)
    kit.enter("a", "t", rebalance_timeout_ms=20_000)
    kit.enter("b", "t")
    kit.beat("a", 2)
    kit.advance(19)
    kit.beat("a", 2, owned={"t": [0]})
    kit.advance(20)
    assert sorted(kit.members()) == ["a", "b"]


def test_a_time_out_that_cannot_be_written_comes_again() -> None:
    kit = ConsumerKit(t=1)
    kit.enter("a", "t")
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.advance(60)
    assert kit.members() == {"a": 2}
    kit.refuse = None
    kit.advance(2)
    assert kit.members() == {}


# -- the log ----------------------------------------------------------------------------------------


def test_what_cannot_be_written_did_not_happen() -> None:
    kit = ConsumerKit(t=2)
    for log_error, told in (
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ):
        kit.refuse = log_error
        assert kit.code("a", 0, **JOIN, subscribed_topic_names=["t"]) == told
    assert not kit.shard.groups
    kit.refuse = None
    kit.enter("a", "t")
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.set_topics(t=3)
    assert kit.code("a", 2) == E.COORDINATOR_NOT_AVAILABLE
    kit.refuse = None
    assert kit.parts(kit.beat("a", 2)) == {"t": [0, 1, 2]}, "it looks at the topics again"


def test_no_member_gets_an_uncommitted_answer() -> None:
    kit = ConsumerKit(t=2)
    kit.commit_lag = True
    token = kit.send("a", 0, **JOIN, subscribed_topic_names=["t"])
    assert kit.waits(token)
    kit.commit()
    assert kit.answer(token).member_epoch == 2
    token = kit.send("b", 0, **JOIN, subscribed_topic_names=["t"])
    kit.time_out_commits()
    assert kit.error(token) == E.COORDINATOR_NOT_AVAILABLE
    assert sorted(kit.members()) == ["a", "b"], "it may be committed yet"
    kit.restart()
    assert kit.members() == {"a": 2}


def test_another_coordinator_goes_on() -> None:
    kit = ConsumerKit(t=4)
    kit.enter("a", "t", instance_id="i", rack_id="r", rebalance_timeout_ms=20_000)
    kit.enter("b", "t")
    kit.beat("a", 2, instance_id="i")
    before = kit.view()
    kit.restart()
    assert kit.view() == before
    assert kit.code("a", 2, owned={"t": [0, 1, 2, 3]}, instance_id="i") == E.NONE
    kit.advance(21)
    assert kit.members() == {"b": 3}, "the time to give up partitions counts anew"
    kit.advance(45)
    assert kit.members() == {}
