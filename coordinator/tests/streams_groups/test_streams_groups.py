"""Streams groups, step by step: the sequences that were measured at Apache Kafka 4.3.1, and what must be refused."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.config import GroupSettings
from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import Status
from barnabas.coordinator.group.streams.stored import GroupFacts, StreamsEpoch
from barnabas.coordinator.tests.streams_groups.streams_group_kit import (
    QUICK,
    Request,
    StreamsKit,
    listed,
    shown,
    statuses,
    subtopology,
    topology,
)
from barnabas.kproto import ErrorCode

E = ErrorCode


def facts(kit: StreamsKit) -> list[GroupFacts]:
    return [each.facts for each in kit.records() if isinstance(each, StreamsEpoch) and each.facts is not None]


# -- joining -----------------------------------------------------------------------------------------


def test_the_first_member_of_a_group_gets_all_at_once_without_a_delay() -> None:
    kit = StreamsKit(**{"in": 4})
    answer = kit.enter("a")
    assert kit.kinds() == [19, 23, 17, 21, 20, 22]
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "a", 2)
    assert shown(answer.active_tasks) == "0_0 0_1 0_2 0_3"
    assert (shown(answer.standby_tasks), shown(answer.warmup_tasks)) == ("", "")
    assert answer.status == []
    group = kit.streams_group()
    assert (group.epoch, group.target_epoch, group.validated_epoch, group.state_name) == (2, 2, 0, "Stable")
    assert (group.kind, group.protocol_type) == ("streams", "streams")
    assert facts(kit)[0].assignment_configs == (("num.standby.replicas", "0"),)
    again = kit.again("a")
    assert (again.member_epoch, again.active_tasks, again.standby_tasks, again.warmup_tasks) == (2, None, None, None)
    assert len(kit.log) == 6, "nothing is written when nothing changes"


def test_the_first_members_wait_for_others() -> None:
    kit = StreamsKit(StreamsGroupConfig(assignment_interval_ms=0), **{"in": 4})
    answer = kit.enter("a")
    assert kit.kinds() == [19, 23, 17, 22], "no target yet"
    assert (answer.member_epoch, shown(answer.active_tasks), statuses(answer)) == (1, "", [Status.ASSIGNMENT_DELAYED])
    assert answer.heartbeat_interval_ms == 3_000
    kit.advance(2)
    assert statuses(kit.enter("b")) == [Status.ASSIGNMENT_DELAYED]
    assert statuses(kit.again("a")) == [Status.ASSIGNMENT_DELAYED]
    at = len(kit.log)
    kit.advance(1.5)
    assert kit.kinds(at) == [21, 21, 20], "later members do not prolong it"
    assert (kit.again("a", owned="").member_epoch, kit.again("b", owned="").member_epoch) == (3, 3)
    assert kit.rest("a", "b") == {"a": "0_1 0_3", "b": "0_0 0_2"}
    kit.enter("c")
    assert statuses(kit.again("c")) == [], "the group is not empty"


def test_a_group_that_is_empty_again_waits_again() -> None:
    kit = StreamsKit(StreamsGroupConfig(assignment_interval_ms=0), **{"in": 1})
    kit.enter("a")
    kit.advance(3)
    assert kit.again("a", owned="").member_epoch == 2
    kit.beat("a", -1)
    assert (kit.streams_group().state_name, kit.streams_group().epoch) == ("Empty", 3)
    answer = kit.enter("a")
    assert (statuses(answer), answer.member_epoch) == ([Status.ASSIGNMENT_DELAYED], 2)
    kit.advance(3)
    assert shown(kit.again("a", owned="").active_tasks) == "0_0"


def test_the_delay_ends_with_a_coordinator() -> None:
    kit = StreamsKit(StreamsGroupConfig(assignment_interval_ms=0), **{"in": 1})
    kit.enter("a")
    kit.restart()
    answer = kit.again("a", owned="")
    assert (answer.member_epoch, shown(answer.active_tasks), statuses(answer)) == (2, "0_0", [])


def test_two_targets_are_some_time_apart() -> None:
    kit = StreamsKit(StreamsGroupConfig(initial_rebalance_delay_ms=0), **{"in": 2})
    kit.enter("a")
    answer = kit.enter("b")
    assert (answer.member_epoch, statuses(answer)) == (2, [Status.ASSIGNMENT_DELAYED])
    assert kit.streams_group().state_name == "Assigning"
    assert 0 < answer.heartbeat_interval_ms <= 1_000
    kit.advance(1)
    assert statuses(kit.again("b")) == []
    assert kit.streams_group().target_epoch == 3


def test_a_member_that_comes_again_is_told_all_and_changes_nothing() -> None:
    kit = StreamsKit(**{"in": 1})
    kit.enter("a")
    at = len(kit.log)
    answer = kit.enter("a")
    assert (answer.member_epoch, shown(answer.active_tasks), kit.kinds(at)) == (2, "0_0", [])
    assert kit.enter("a", process="other").member_epoch == 3
    assert kit.kinds(at) == [19, 17, 20, 22]


# -- what is not there ---------------------------------------------------------------------------------


def test_missing_source_topics() -> None:
    kit = StreamsKit()
    answer = kit.enter("a")
    assert (answer.error_code, answer.member_epoch, statuses(answer)) == (E.NONE, 2, [Status.MISSING_SOURCE_TOPICS])
    assert (shown(answer.active_tasks), answer.partitions_by_user_endpoint) == ("", None)
    assert answer.heartbeat_interval_ms == 5_000, "Kafka Streams gives up after two of them"
    assert (kit.wanted, kit.streams_group().state_name) == ({}, "NotReady")
    assert "in" in answer.status[0].status_detail
    kit.set_topics(**{"in": 2})
    answer = kit.again("a", owned="")
    assert (answer.member_epoch, shown(answer.active_tasks), statuses(answer)) == (3, "0_0 0_1", [])
    kit.set_topics(**{"in": None})
    answer = kit.again("a", owned="0_0 0_1")
    assert statuses(answer) == [Status.MISSING_SOURCE_TOPICS]
    assert (answer.member_epoch, shown(answer.active_tasks)) == (3, ""), "it is to close its tasks"
    assert kit.again("a", owned="").member_epoch == 4


def test_internal_topics_are_wanted_until_they_are_there() -> None:
    kit = StreamsKit(**{"in": 3})
    join = topology(subtopology(changelogs=["cl"]))
    answer = kit.enter("a", topology=join)
    assert (answer.member_epoch, statuses(answer), shown(answer.active_tasks)) == (
        2,
        [Status.MISSING_INTERNAL_TOPICS],
        "",
    )
    assert [(each.name, each.partitions) for each in kit.wanted.values()] == [("cl", 3)]
    assert answer.heartbeat_interval_ms < 1_000
    assert statuses(kit.again("a")) == [Status.MISSING_INTERNAL_TOPICS]
    assert kit.wanted
    kit.make_topics()
    answer = kit.again("a", owned="")
    assert (answer.member_epoch, statuses(answer), shown(answer.active_tasks)) == (3, [], "0_0 0_1 0_2")
    assert not kit.wanted
    assert facts(kit)[-1].validated_epoch == 0


def test_what_was_seen_and_not_written_is_seen_again() -> None:
    """Though the group's epoch has risen for another reason meanwhile. Found by random members."""
    kit = StreamsKit(**{"in": 1})
    kit.enter("a")
    kit.enter("b")
    kit.rest("a", "b")
    kit.set_topics(**{"in": None})
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.again("a").error_code == E.COORDINATOR_NOT_AVAILABLE
    kit.refuse = None
    kit.beat("b", -1)
    assert statuses(kit.again("a")) == [Status.MISSING_SOURCE_TOPICS]
    assert (kit.streams_group().validated_epoch, kit.streams_group().metadata_hash) == (-1, 0)
    kit.set_topics(**{"in": 1})
    assert kit.rest("a") == {"a": "0_0"}


def test_a_topic_that_does_not_fit() -> None:
    kit = StreamsKit(**{"in": 3, "cl": 2})
    answer = kit.enter("a", topology=topology(subtopology(changelogs=["cl"])))
    assert statuses(answer) == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert not kit.wanted


def test_a_topology_that_cannot_be() -> None:
    kit = StreamsKit(**{"in": 3})
    loop = topology(subtopology("0", (), reads=["r"], writes=["r"]))
    assert kit.enter("a", topology=loop).error_code == E.STREAMS_INVALID_TOPOLOGY
    assert not kit.log


# -- refusals ------------------------------------------------------------------------------------------


def test_what_is_refused_without_looking_at_a_group() -> None:
    kit = StreamsKit(**{"in": 1})
    bad = {"rebalance_timeout_ms": -1}, {"topology": None}, {"owned": "0_0"}, {"owned": ["", "0_0"]}, {"rack_id": ""}
    for fields in bad:
        assert kit.enter("a", **fields).error_code == E.INVALID_REQUEST, fields
    for name, value in {
        "instance_id": "i",
        "task_offsets": [],
        "task_end_offsets": [],
        "warmup_tasks": listed("0_0"),
        "standby_tasks": None,
        "topology": topology(epoch=-1),
    }.items():
        assert kit.enter("a", **{"owned": "", name: value}).error_code == E.INVALID_REQUEST, name
    regex = topology(subtopology(regex=["x.*"]))
    assert kit.enter("a", topology=regex).error_code == E.INVALID_REQUEST
    assert kit.enter("", process="p").error_code == E.INVALID_REQUEST
    assert kit.enter("a", group="").error_code == E.INVALID_REQUEST
    assert kit.enter("a" * 256).error_code == E.INVALID_REQUEST
    assert kit.enter("a", process="p" * 256).error_code == E.INVALID_REQUEST
    endpoint = Request.Endpoint(host="h" * 256, port=1)
    assert kit.enter("a", user_endpoint=endpoint).error_code == E.INVALID_REQUEST
    assert kit.enter("a", rack_id="r" * 32768).error_code == E.INVALID_REQUEST
    counted = topology(subtopology(changelogs=["cl"]))
    counted.subtopologies[0].state_changelog_topics[0].partitions = 2
    assert kit.enter("a", topology=counted).error_code == E.STREAMS_INVALID_TOPOLOGY
    large = topology(subtopology(sources=["in"] * 50_000))
    assert kit.enter("a", topology=large).error_code == E.STREAMS_INVALID_TOPOLOGY
    assert kit.code("a", 2, topology=counted) == kit.code("a", -1, topology=counted) == E.INVALID_REQUEST, "no join"
    assert kit.code("a", -3) == kit.code("a", -2) == E.INVALID_REQUEST
    tags = [Request.KeyValue(key=str(number), value="") for number in range(1_001)]
    assert kit.enter("a", client_tags=tags).error_code == E.INVALID_REQUEST
    for tasks in (
        [Request.TaskIds(subtopology_id="0", partitions=list(range(100_001)))],
        [Request.TaskIds(subtopology_id="0", partitions=[])] * 100_001,
    ):
        answer = kit.beat("a", 2, active_tasks=[], standby_tasks=tasks, warmup_tasks=[])
        assert answer.error_code == E.INVALID_REQUEST
        assert "more than 100000 tasks" in (answer.error_message or "")
    assert not kit.log


def test_who_is_no_member() -> None:
    kit = StreamsKit(
        StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0, max_size=1), **{"in": 1}
    )
    assert kit.code("a", 1) == kit.code("a", -1) == E.GROUP_ID_NOT_FOUND
    kit.enter("a")
    assert kit.code("b", 1) == kit.code("b", -1) == E.UNKNOWN_MEMBER_ID
    assert kit.enter("b").error_code == E.GROUP_MAX_SIZE_REACHED
    assert kit.enter("a").error_code == E.NONE, "it is a member already"
    assert kit.code("a", 2, topology=topology()) == E.INVALID_REQUEST
    assert kit.code("a", 2, active_tasks=[]) == E.INVALID_REQUEST
    assert kit.code("a", 2, owned="0_1") == kit.code("a", 2, owned="1_0") == E.INVALID_REQUEST, "there is no such task"


def test_epochs() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.enter("b")
    kit.again("a", owned="0_0 0_1")
    kit.again("a", owned="0_0")
    member = kit.known("a").standing
    assert (member.epoch, member.previous_epoch) == (3, 2)
    assert kit.code("a", 4) == kit.code("a", 1) == E.FENCED_MEMBER_EPOCH
    assert kit.code("a", 2) == E.FENCED_MEMBER_EPOCH, "it does not say what it has"
    assert kit.code("a", 2, owned="0_0 0_1") == E.FENCED_MEMBER_EPOCH
    answer = kit.beat("a", 2, owned="")
    assert (answer.error_code, answer.member_epoch) == (E.NONE, 3)
    assert shown(answer.active_tasks) == "0_0", "the last answer was lost"
    assert shown(kit.again("a", owned="").active_tasks) == "0_0", "so it was"
    assert kit.again("a", owned="0_0").active_tasks is None


def test_topologies_do_not_change() -> None:
    kit = StreamsKit(**{"in": 1, "other": 1})
    kit.enter("a", topology=topology(epoch=1))
    assert kit.enter("b", topology=topology(subtopology(sources=["other"]), epoch=1)).error_code == E.INVALID_REQUEST
    assert kit.enter("b", topology=topology(epoch=2)).error_code == E.INVALID_REQUEST
    answer = kit.enter("b", topology=topology(subtopology(sources=["other"]), epoch=0))
    assert (answer.error_code, statuses(answer)) == (E.NONE, [Status.STALE_TOPOLOGY])
    assert statuses(kit.again("b")) == [Status.STALE_TOPOLOGY]
    assert kit.streams_group().topology is not None
    assert kit.streams_group().topology.epoch == 1
    assert statuses(kit.again("a")) == []


# -- moving tasks --------------------------------------------------------------------------------------


def test_tasks_move_when_they_were_closed() -> None:
    """As measured: 4 tasks, one standby, a on P1, then b on P2."""
    kit = StreamsKit(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0, num_standby_replicas=1))
    kit.set_topics(**{"in": 4, "cl": 4})
    join = topology(subtopology(changelogs=["cl"]))
    kit.enter("a", process="P1", topology=join)
    b = kit.enter("b", process="P2", topology=join)
    assert (b.member_epoch, shown(b.active_tasks), shown(b.standby_tasks)) == (3, "", "0_0 0_1")
    assert int(kit.known("b").standing.state) == 3
    a = kit.again("a")
    assert (a.member_epoch, shown(a.active_tasks)) == (2, "0_0 0_1")
    assert shown(kit.known("a").standing.revoking.active) == "0_2 0_3"
    assert kit.again("a").active_tasks is None
    a = kit.again("a", owned="0_0 0_1")
    assert (a.member_epoch, int(kit.known("a").standing.state)) == (3, 3)
    b = kit.again("b")
    assert (shown(b.active_tasks), shown(b.standby_tasks)) == ("0_2 0_3", "0_0 0_1")
    a = kit.again("a")
    assert (shown(a.active_tasks), shown(a.standby_tasks)) == ("0_0 0_1", "0_2 0_3")
    assert kit.streams_group().state_name == "Stable"


def test_more_standbys_are_asked_for() -> None:
    kit = StreamsKit(**{"in": 1, "cl": 1})
    join = topology(subtopology(changelogs=["cl"]))
    kit.enter("a", topology=join)
    kit.enter("b", topology=join)
    kit.rest("a", "b")
    epoch = kit.streams_group().epoch
    kit.settings["g"] = StreamsSettings(GroupSettings(50_000, 6_000, 0), 0, 1)
    answer = kit.again("a")
    assert (kit.streams_group().epoch, answer.heartbeat_interval_ms <= 6_000) == (epoch + 1, True)
    kit.rest("a", "b")
    assert {shown(kit.held(name).standby) for name in "ab"} == {"", "0_0"}
    assert facts(kit)[-1].assignment_configs == (("num.standby.replicas", "1"),)


# -- leaving, time-outs --------------------------------------------------------------------------------


def test_leaving() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.enter("b")
    kit.rest("a", "b")
    at, epoch = len(kit.log), kit.streams_group().epoch
    answer = kit.beat("b", -1)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms, answer.status) == (0, -1, 0, [])
    assert kit.kinds(at) == [-22, -21, -19, 17]
    assert kit.streams_group().epoch == epoch + 1
    assert kit.rest("a") == {"a": "0_0 0_1"}


def test_a_session_ends() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.advance(30)
    kit.enter("b")
    at = len(kit.log)
    kit.advance(16)
    assert kit.kinds(at) == [-22, -21, -19, 17]
    assert kit.streams_group().members.keys() == {"b"}
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.advance(30)
    assert kit.streams_group().members.keys() == {"b"}
    kit.refuse = None
    kit.advance(1)
    assert not kit.streams_group().members
    assert kit.code("b", 3) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_close_its_tasks_is_fenced() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a", rebalance_timeout_ms=20_000)
    kit.enter("b")
    kit.again("a")
    for _ in range(19):
        kit.advance(1)
        assert kit.again("a").error_code == E.NONE
        kit.again("b")
    kit.advance(1)
    assert kit.streams_group().members.keys() == {"b"}
    assert kit.rest("b") == {"b": "0_0 0_1"}


def test_sessions_begin_anew_with_a_coordinator() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a", rebalance_timeout_ms=20_000)
    kit.enter("b")
    kit.again("a")
    before = kit.hard()
    kit.advance(15)
    kit.restart()
    assert kit.hard() == before
    kit.advance(19)
    assert kit.streams_group().members.keys() == {"a", "b"}
    kit.advance(1)
    assert kit.streams_group().members.keys() == {"b"}, "what is being revoked is watched still"
    kit.advance(25)
    assert not kit.streams_group().members


def test_all_are_to_close() -> None:
    kit = StreamsKit(**{"in": 2})
    kit.enter("a")
    kit.enter("b")
    answer = kit.again("a", shutdown_application=True)
    assert (statuses(answer), "a" in answer.status[0].status_detail) == ([Status.SHUTDOWN_APPLICATION], True)
    kit.again("b", shutdown_application=True)
    answer = kit.again("b")
    assert (statuses(answer), "Member a" in answer.status[0].status_detail) == ([Status.SHUTDOWN_APPLICATION], True)
    kit.beat("a", -1)
    assert statuses(kit.again("b")) == [Status.SHUTDOWN_APPLICATION]
    kit.beat("b", -1)
    assert statuses(kit.enter("c")) == []
    kit.beat("c", -1, shutdown_application=True)
    assert statuses(kit.enter("c")) == []


# -- endpoints -----------------------------------------------------------------------------------------


def test_who_has_what_for_queries() -> None:
    kit = StreamsKit(**{"in": 2, "small": 1})
    join = topology(subtopology(sources=["in", "small"]))
    here, there = Request.Endpoint(host="here", port=1), Request.Endpoint(host="there", port=65535)
    answer = kit.enter("a", topology=join, user_endpoint=here)
    assert answer.endpoint_information_epoch == 0
    told = answer.partitions_by_user_endpoint
    assert told is not None
    assert [(each.user_endpoint.host, each.user_endpoint.port) for each in told] == [("here", 1)]
    partitions = {each.topic: each.partitions for each in told[0].active_partitions}
    assert partitions == {"in": [0, 1], "small": [0]}
    assert kit.again("a").partitions_by_user_endpoint is None
    answer = kit.enter("b", topology=join, user_endpoint=there)
    assert answer.endpoint_information_epoch == 1
    assert len(answer.partitions_by_user_endpoint or ()) == 2
    kit.enter("c", topology=join)
    assert kit.streams_group().endpoint_epoch == 1, "it has none"
    assert kit.again("a").endpoint_information_epoch >= 1


# -- descriptions --------------------------------------------------------------------------------------


def test_descriptions() -> None:
    kit = StreamsKit(**{"in": 2})
    join = topology(subtopology(changelogs=["cl"]))
    tags = [Request.KeyValue(key="zone", value="1"), Request.KeyValue(key="cluster", value="k")]
    kit.enter("a", topology=join, client_tags=tags, rack_id="r", user_endpoint=Request.Endpoint(host="h", port=7))
    told = kit.streams.describe("g")
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("NotReady", 2, 2)
    assert told.topology is not None
    assert told.topology.subtopologies is not None
    assert told.topology.subtopologies[0].state_changelog_topics[0].partitions == 0
    kit.make_topics()
    kit.again("a", owned="")
    told = kit.streams.describe("g")
    assert told.group_state == "Stable"
    assert told.topology is not None
    assert told.topology.subtopologies is not None
    assert told.topology.subtopologies[0].state_changelog_topics[0].partitions == 2
    (member,) = told.members
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("cluster", "k"), ("zone", "1")]
    assert (member.member_id, member.member_epoch, member.process_id, member.rack_id) == ("a", 3, "p-a", "r")
    assert (member.client_id, member.client_host, member.topology_epoch, member.is_classic) == (
        "c",
        "/127.0.0.1",
        0,
        False,
    )
    assert shown(member.assignment.active_tasks) == shown(member.target_assignment.active_tasks) == "0_0 0_1"
    assert kit.streams.describe("x").error_code == E.GROUP_ID_NOT_FOUND
    for states in ([], ["NotReady"], ["stable"]):
        names = [(each.group_id, each.group_type, each.protocol_type) for each in kit.shard.listed(states, ["Streams"])]
        assert names == ([("g", "streams", "streams")] if states != ["NotReady"] else [])


@pytest.mark.parametrize("name", ["NotReady", "not_ready", "NOT_READY"])
def test_the_state_not_ready_is_found_by_both_names(name: str) -> None:
    kit = StreamsKit(QUICK)
    kit.enter("a")
    assert [group.group_id for group in kit.shard.listed([name], [])] == ["g"]
