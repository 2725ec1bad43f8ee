"""Topologies by themselves: from messages and records, what they say, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group.streams.topology import (
    SIZE_MAX,
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_names,
    check_size,
    check_topology,
    topology_of,
)
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import StreamsGroupHeartbeatRequest

INTERNAL = {"__consumer_offsets"}


def topology(*subtopologies: Subtopology) -> Topology:
    return Topology(0, {each.subtopology_id: each for each in subtopologies})


def sent(*ids: str) -> StreamsGroupHeartbeatRequest.Topology:
    info = StreamsGroupHeartbeatRequest.TopicInfo(
        name="changes",
        partitions=0,
        replication_factor=3,
        topic_configs=[StreamsGroupHeartbeatRequest.KeyValue(key="cleanup.policy", value="compact")],
    )
    return StreamsGroupHeartbeatRequest.Topology(
        epoch=4,
        subtopologies=[
            StreamsGroupHeartbeatRequest.Subtopology(
                subtopology_id=each,
                source_topics=["b", "a"],
                source_topic_regex=["c.*"],
                state_changelog_topics=[info],
                repartition_sink_topics=["out"],
                repartition_source_topics=[StreamsGroupHeartbeatRequest.TopicInfo(name="again", partitions=2)],
                copartition_groups=[
                    StreamsGroupHeartbeatRequest.CopartitionGroup(source_topics=[1], repartition_source_topics=[0])
                ],
            )
            for each in ids
        ],
    )


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    return str(caught.value.message)


def test_a_message_becomes_a_topology() -> None:
    found = topology_of(sent("1", "0"))
    assert found.epoch == 4
    assert list(found.subtopologies) == ["1", "0"], "the order is the client's"
    assert found.subtopologies["0"] == Subtopology(
        "0",
        ("b", "a"),
        ("c.*",),
        (TopicInfo("changes", 0, 3, (("cleanup.policy", "compact"),)),),
        ("out",),
        (TopicInfo("again", 2),),
        (CopartitionGroup((1,), (), (0,)),),
    )
    assert found == topology_of(sent("0", "1")), "equal in whatever order"
    assert found != topology_of(sent("0"))


def test_what_a_topology_says() -> None:
    found = topology(
        Subtopology("0", ("in",), repartition_sink_topics=("again",)),
        Subtopology(
            "1", repartition_source_topics=(TopicInfo("again"),), state_changelog_topics=(TopicInfo("changes"),)
        ),
    )
    assert found.required_topics == {"in", "again", "changes"}
    assert found.readers == {"in": "0", "again": "1"}
    assert [each.is_stateful for each in found.subtopologies.values()] == [False, True]


def test_two_subtopologies_of_one_id_are_refused() -> None:
    assert "id 0" in refused(topology_of, sent("0", "1", "0"))


def test_a_changelog_may_not_have_a_partition_count() -> None:
    wrong = Subtopology("0", ("in",), state_changelog_topics=(TopicInfo("changes", 3),))
    assert "changes" in refused(check_topology, topology(wrong))


def test_a_repartition_topic_may_not_have_a_negative_count() -> None:
    wrong = Subtopology("0", ("in",), repartition_source_topics=(TopicInfo("again", -1),))
    assert "again" in refused(check_topology, topology(wrong))


@pytest.mark.parametrize(
    "group",
    [
        CopartitionGroup(source_topics=(1,)),
        CopartitionGroup(source_topics=(-1,)),
        CopartitionGroup(source_topic_regex=(0,)),
        CopartitionGroup(repartition_source_topics=(0,)),
    ],
)
def test_a_copartition_group_points_to_topics(group: CopartitionGroup) -> None:
    assert "copartition" in refused(check_topology, topology(Subtopology("0", ("in",), copartition_groups=(group,))))


def test_a_usual_topology_is_not_refused() -> None:
    check_topology(topology_of(sent("0")))


def with_settings(count: int) -> Any:
    each = sent("0").subtopologies[0]
    each.state_changelog_topics[0].topic_configs *= count
    return each


def with_positions(count: int) -> Any:
    each = sent("0").subtopologies[0]
    each.copartition_groups[0].source_topics *= count
    return each


@pytest.mark.parametrize(
    "subtopologies",
    [
        sent(*map(str, range(SIZE_MAX // 9 + 1))).subtopologies,
        [StreamsGroupHeartbeatRequest.Subtopology(source_topics=["in"] * SIZE_MAX)],
        [StreamsGroupHeartbeatRequest.Subtopology(source_topic_regex=["in"] * SIZE_MAX)],
        [StreamsGroupHeartbeatRequest.Subtopology(repartition_sink_topics=["out"] * SIZE_MAX)],
        [StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0" * SIZE_MAX)],
        [with_settings(SIZE_MAX)],
        [with_positions(SIZE_MAX)],
    ],
)
def test_a_topology_has_a_largest_size(subtopologies: Any) -> None:
    refused(check_size, StreamsGroupHeartbeatRequest.Topology(subtopologies=subtopologies))


def test_a_large_topology_is_not_refused() -> None:
    listed = StreamsGroupHeartbeatRequest.Subtopology(source_topics=["in"] * (SIZE_MAX - 1))
    check_size(StreamsGroupHeartbeatRequest.Topology(subtopologies=[listed]))
    check_size(sent(*map(str, range(3_000))))


def test_names_are_told_once_and_in_order() -> None:
    names = check_names(topology_of(sent("0", "1")), INTERNAL.__contains__, str.isalpha)
    assert names == ["b", "a", "out", "again", "changes"]


PLACES: list[Callable[[str], Subtopology]] = [
    lambda name: Subtopology("0", (name,)),
    lambda name: Subtopology("0", repartition_sink_topics=(name,)),
    lambda name: Subtopology("0", repartition_source_topics=(TopicInfo(name),)),
    lambda name: Subtopology("0", state_changelog_topics=(TopicInfo(name),)),
]


@pytest.mark.parametrize("place", PLACES)
def test_topics_of_the_cluster_and_illegal_names_are_refused(place: Callable[[str], Subtopology]) -> None:
    own, illegal = topology(place("__consumer_offsets")), topology(place("a b"))
    assert "__consumer_offsets" in refused(check_names, own, INTERNAL.__contains__, lambda name: True)
    assert "a b" in refused(check_names, illegal, INTERNAL.__contains__, str.isalpha)
