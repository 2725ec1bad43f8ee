"""Metadata, DescribeTopicPartitions and DescribeCluster: every version, listeners, ids, auto-creation, pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ZERO_UUID
from barnabas.kproto.messages import DescribeClusterRequest, DescribeTopicPartitionsRequest, MetadataRequest
from barnabas.replication import BrokerImage, Endpoint, PartitionImage, TopicImage, TopicRequest
from barnabas.server.apis.cluster import describe_cluster
from barnabas.server.apis.topics import describe_topic_partitions, metadata
from barnabas.server.tests.apis.topics.topic_rig import TopicRig, topic_rig
from barnabas.server.tests.cluster.controller_driver_rig import CLUSTER

_Asked = MetadataRequest.MetadataRequestTopic
VERSIONS = range(14)


async def make(rig: TopicRig, **partitions: int) -> None:
    requests = [TopicRequest(name, count, 1) for name, count in partitions.items()]
    outcomes = await rig.rig.topics.create_topics(requests, timeout_ms=60_000)
    assert all(outcome.error is None for outcome in outcomes.values())


async def look(rig: TopicRig, version: int, *names: str, listener: str = "PLAINTEXT", **fields: Any) -> Any:
    request = MetadataRequest(topics=[_Asked(name=name) for name in names], **fields)
    return await rig.ask(metadata.API, request, version, listener)


def cluster_of_three(rig: TopicRig) -> None:
    """Put an image of several brokers in place of the real one: 2 without this listener, 3 dead, 4 unknown."""
    image = rig.rig.member.image
    plain = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    brokers = {
        1: BrokerImage(1, (plain, Endpoint("INTERNAL", "one", 1)), rack="r1", epoch=1),
        2: BrokerImage(2, (Endpoint("INTERNAL", "two", 2),), epoch=2),
    }
    partitions = (
        PartitionImage(0, 1, 5, 9, (1, 2, 3), (1, 2)),
        PartitionImage(1, 2, 6, 9, (2, 3), (2,)),
        PartitionImage(2, -1, 7, 9, (3,), (3,)),
        PartitionImage(3, 1, 0, 0, (1,), (1,)),
        PartitionImage(4, -1, -1, -1, (3,), ()),
    )
    topic = TopicImage("t", b"i" * 16, partitions)
    rig.rig.member._receiver.replace_image(replace(image, brokers=brokers).with_topics([topic]))


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version(version: int) -> None:
    async with topic_rig() as rig:
        await make(rig, t=2, u=1)
        answer = (
            await look(rig, version, "t", "none", "no way", allow_auto_topic_creation=False)
            if version >= 4
            else (await rig.ask(metadata.API, MetadataRequest(topics=[_Asked(name="t")]), version))
        )
        [broker] = answer.brokers
        assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "127.0.0.1", 9092, None)
        if version >= 1:
            assert answer.controller_id == 1
        assert answer.cluster_id == (CLUSTER if version >= 2 else None)
        found = {topic.name: topic for topic in answer.topics}
        if version >= 4:
            assert {name: topic.error_code for name, topic in found.items()} == {"t": 0, "none": 3, "no way": 17}
        partitions = [
            (p.partition_index, p.error_code, p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas)
            for p in found["t"].partitions
        ]
        assert partitions == [(0, 0, 1, [1], [1], []), (1, 0, 1, [1], [1], [])]
        assert found["t"].partitions[0].leader_epoch == (0 if version >= 7 else -1)
        known = rig.rig.member.image.topics["t"].topic_id
        assert found["t"].topic_id == (known if version >= 10 else ZERO_UUID)
        assert found["t"].topic_authorized_operations == -(2**31)
        assert answer.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_and_none(version: int) -> None:
    async with topic_rig() as rig:
        await make(rig, b=1, a=1)
        everything = MetadataRequest(topics=[] if version == 0 else None)
        answer = await rig.ask(metadata.API, everything, version)
        assert [topic.name for topic in answer.topics] == ["a", "b"]
        if version >= 1:
            assert (await look(rig, version)).topics == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_listeners_and_the_dead(version: int) -> None:
    async with topic_rig() as rig:
        cluster_of_three(rig)
        answer = await look(rig, version, "t")
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert answer.brokers[0].rack == ("r1" if version >= 1 else None)
        first, second, third, fourth = answer.topics[0].partitions
        if version == 0:
            assert (first.error_code, first.leader_id, first.replica_nodes, first.isr_nodes) == (9, 1, [1], [1])
        else:
            assert (first.error_code, first.leader_id, first.replica_nodes, first.isr_nodes) == (
                0,
                1,
                [1, 2, 3],
                [1, 2],
            )
        assert first.offline_replicas == ([3] if version >= 5 else [])
        assert (second.error_code, second.leader_id) == (72 if version >= 6 else 5, -1)
        assert (third.error_code, third.leader_id) == (5, -1)
        assert (fourth.error_code, fourth.leader_id) == (0, 1)
        inside = await look(rig, version, "t", listener="INTERNAL")
        assert [(broker.node_id, broker.host) for broker in inside.brokers] == [(1, "one"), (2, "two")]
        assert [p.leader_id for p in inside.topics[0].partitions] == [1, 2, -1, 1]


@pytest.mark.parametrize("version", [12, 13])
async def test_by_id(version: int) -> None:
    async with topic_rig() as rig:
        await make(rig, t=1, u=1)
        known = rig.rig.member.image.topics["t"].topic_id
        asked = [_Asked(name=None, topic_id=known), _Asked(name=None, topic_id=b"\1" * 16), _Asked(name="u")]
        answer = await rig.ask(metadata.API, MetadataRequest(topics=asked), version)
        assert [(t.name, t.topic_id, t.error_code, len(t.partitions)) for t in answer.topics] == [
            (None, b"\1" * 16, 100, 0),
            ("t", known, 0, 1),
        ], "with an id among them, names do not count (as in Apache Kafka)"


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (10, _Asked(name="t", topic_id=b"\1" * 16)),
        (11, _Asked(name=None)),
        (12, _Asked(name=None)),
        (13, _Asked(name=None)),
    ],
)
async def test_requests_that_make_no_sense(version: int, asked: Any) -> None:
    async with topic_rig() as rig:
        answer = await rig.ask(metadata.API, MetadataRequest(topics=[asked]), version)
        assert [topic.error_code for topic in answer.topics] == [42]
        assert answer.error_code == (42 if version >= 13 else 0)


async def test_each_name_once() -> None:
    async with topic_rig() as rig:
        await make(rig, t=1)
        assert [topic.name for topic in (await look(rig, 13, "t", "t")).topics] == ["t"]


@pytest.mark.parametrize("version", [0, 3, 4, 13])
async def test_missing_topics_are_created_for_the_next_time(version: int) -> None:
    async with topic_rig(values={"num.partitions": "2", "offsets.topic.num.partitions": "3"}) as rig:
        names = ("new", "bad name", "__consumer_offsets", "__cluster_metadata")
        for _ in range(3):  # more questions while the topics are on their way do no harm
            answer = await look(rig, version, *names, allow_auto_topic_creation=True)
            assert [topic.error_code for topic in answer.topics] == [3, 17, 3, 3]
        await rig.rig.member.image_until(lambda image: len(image.topics) == 2)
        answer = await look(rig, version, *names, allow_auto_topic_creation=True)
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
        assert found == {
            "new": (0, 2),
            "bad name": (17, 0),
            "__consumer_offsets": (0, 3),
            "__cluster_metadata": (3, 0),
        }
        if version >= 1:
            assert [topic.is_internal for topic in answer.topics] == [False, False, True, False]


async def test_creation_needs_the_request_and_the_broker() -> None:
    async with topic_rig() as rig:
        assert (await look(rig, 13, "new", allow_auto_topic_creation=False)).topics[0].error_code == 3
        assert (await rig.ask(metadata.API, MetadataRequest(topics=None), 13)).topics == []
        await trio.testing.wait_all_tasks_blocked()
        assert rig.rig.member.image.topics == {}
    for values in ({"auto.create.topics.enable": "false"}, {"default.replication.factor": "2"}):
        async with topic_rig(values=values) as rig:
            assert (await look(rig, 3, "new")).topics[0].error_code == 3
            assert (await look(rig, 13, "new", allow_auto_topic_creation=True)).topics[0].error_code == 3
            await trio.testing.wait_all_tasks_blocked()
            assert rig.rig.member.image.topics == {}


@pytest.mark.parametrize("version", range(8, 14))
async def test_operations_allowed(version: int) -> None:
    async with topic_rig() as rig:
        await make(rig, t=1)
        cluster = {"include_cluster_authorized_operations": True} if version <= 10 else {}
        answer = await look(
            rig,
            version,
            "t",
            "none",
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            **cluster,
        )
        assert [topic.topic_authorized_operations for topic in answer.topics] == [3576, 3576]
        assert answer.cluster_authorized_operations == (8096 if version <= 10 else -(2**31))


# -- DescribeTopicPartitions -----------------------------------------------------------------------------------------

_Describe = DescribeTopicPartitionsRequest


async def describe(
    rig: TopicRig, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = _Describe(
        topics=[_Describe.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else _Describe.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await rig.ask(describe_topic_partitions.API, request)
    after = answer.next_cursor
    topics = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    return topics, None if after is None else (after.topic_name, after.partition_index)


async def test_topics_in_order_with_what_is_wrong() -> None:
    async with topic_rig() as rig:
        await make(rig, b=2, a=1)
        assert await describe(rig) == ([("a", 0, [0]), ("b", 0, [0, 1])], None)
        assert await describe(rig, "z", "b", "x y", "b") == ([("b", 0, [0, 1]), ("x y", 17, []), ("z", 3, [])], None)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_pages_join_to_the_whole(limit: int) -> None:
    async with topic_rig() as rig:
        await make(rig, a=1, b=4, c=2, d=3)
        for names in ((), ("a", "b", "c", "d")):
            seen = []
            cursor: tuple[str, int] | None = None
            for _ in range(20):
                topics, cursor = await describe(rig, *names, limit=limit, cursor=cursor)
                page = [(name, index) for name, code, indexes in topics for index in indexes]
                assert len(page) <= limit
                seen += page
                if cursor is None:
                    break
            assert seen == [(name, i) for name, count in (("a", 1), ("b", 4), ("c", 2), ("d", 3)) for i in range(count)]


async def test_limits_of_the_broker_and_odd_ones() -> None:
    async with topic_rig(values={"max.request.partition.size.limit": "2"}) as rig:
        await make(rig, a=3)
        assert await describe(rig) == ([("a", 0, [0, 1])], ("a", 2))
        for limit in (0, -5):
            assert await describe(rig, limit=limit) == ([("a", 0, [0])], ("a", 1))


async def test_cursors_that_make_no_sense() -> None:
    async with topic_rig() as rig:
        await make(rig, a=2)
        assert await describe(rig, "a", cursor=("a", 9)) == ([("a", 0, [])], None)
        assert await describe(rig, "a", cursor=("a", -1)) == ([("a", 42, [])], None)
        assert await describe(rig, "a", cursor=("b", 0)) == ([("a", 42, [])], None)
        assert await describe(rig, cursor=("b", 0)) == ([], None)


async def test_partitions_without_leader_are_no_error_there() -> None:
    async with topic_rig() as rig:
        cluster_of_three(rig)
        answer = await rig.ask(describe_topic_partitions.API, _Describe())
        [topic] = answer.topics
        assert topic.topic_authorized_operations == 3576
        assert [(p.error_code, p.leader_id, p.leader_epoch, p.offline_replicas) for p in topic.partitions] == [
            (0, 1, 5, [3]),
            (0, -1, 6, [3]),
            (0, -1, 7, [3]),
            (0, 1, 0, []),
        ]
        assert topic.partitions[0].eligible_leader_replicas == []


# -- DescribeCluster -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster(version: int) -> None:
    async with topic_rig() as rig:
        cluster_of_three(rig)
        answer = await rig.ask(describe_cluster.API, DescribeClusterRequest(), version)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER, 1)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "127.0.0.1", 9092, "r1")]
        assert answer.cluster_authorized_operations == -(2**31)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        inside = await rig.ask(describe_cluster.API, asked, version, "INTERNAL")
        assert [b.broker_id for b in inside.brokers] == [1, 2]
        assert inside.cluster_authorized_operations == 8096
        other = await rig.ask(describe_cluster.API, DescribeClusterRequest(), version, "OTHER")
        assert (other.brokers, other.controller_id) == ([], -1)


async def test_the_cluster_of_controllers() -> None:
    async with topic_rig() as rig:
        for endpoint_type, code in ((2, 114), (9, 115)):
            request = DescribeClusterRequest(endpoint_type=endpoint_type)
            assert (await rig.ask(describe_cluster.API, request, 1)).error_code == code
