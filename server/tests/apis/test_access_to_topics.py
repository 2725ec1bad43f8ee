"""Topics and settings that are denied, alone or as parts of an answer; who is meant; and the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from barnabas.kproto import ZERO_UUID
from barnabas.kproto.messages import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from barnabas.server.requests.authorized_operations import NOT_ASKED
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.testing import connected
from barnabas.server.tests.apis.access_world import (
    C,
    E,
    G,
    Op,
    T,
    metadata,
    produce_to,
    told,
    world,
)
from barnabas.server.tests.apis.test_access import ALICE, cluster, group, on_topic


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_named_topics(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, _):
        rights.put(on_topic(Op.DESCRIBE, name="b") + on_topic(Op.DESCRIBE, name="ghost"))
        answer = await alice.ask(metadata("a", "ghost", "b", "nothing", create=version < 4), version)
        ghost = T if version < 4 else E.UNKNOWN_TOPIC_OR_PARTITION  # it may not be made
        assert told(answer) == [("a", T), ("ghost", ghost), ("b", 0), ("nothing", T)]
        for each in answer.topics:
            if each.error_code == T:
                assert (each.topic_id, each.partitions) == (ZERO_UUID, [])
        assert answer.brokers


@pytest.mark.parametrize("version", range(14))
async def test_of_all_topics_those_that_may_be_described(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", "c") as (_, rights, alice, _):
        rights.put(on_topic(Op.DESCRIBE, name="b"))
        everything = MetadataRequest(topics=None if version else [])
        assert told(await alice.ask(everything, version)) == [("b", 0)]


async def test_version_0_does_not_take_all_denied_for_all(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, _):
        rights.put(on_topic(Op.DESCRIBE, name="b"))
        answer = await alice.ask(metadata("a", create=True), 0)
        assert told(answer) == [("a", T)]
        assert answer.brokers


async def test_metadata_by_ids(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (broker, rights, alice, _):
        ids = [broker.services.image.topics[name].topic_id for name in "ab"] + [b"\7" * 16]
        rights.put(on_topic(Op.DESCRIBE, name="b"))
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
        )
        answer = await alice.ask(request, 12)
        found = [(each.name, each.topic_id, each.error_code) for each in answer.topics]
        assert found == [(None, ids[0], T), ("b", ids[1], 0), (None, ids[2], E.UNKNOWN_TOPIC_ID)]


async def test_who_may_create_topics_by_metadata(autojump_clock: trio.abc.Clock) -> None:
    async with world() as (broker, rights, alice, _):
        rights.put(on_topic(Op.DESCRIBE, name="x") + on_topic(Op.DESCRIBE, Op.CREATE, name="y"))
        answer = await alice.ask(metadata("x", "y", create=True), 9)
        assert told(answer) == [("x", T), ("y", E.UNKNOWN_TOPIC_OR_PARTITION)]
        await trio.sleep(1)
        assert set(broker.services.image.topics) == {"y"}
        rights.put(cluster(Op.CREATE))
        await alice.ask(metadata("x", create=True), 9)
        await trio.sleep(1)
        assert set(broker.services.image.topics) == {"x", "y"}


async def test_bit_fields(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, root):
        rights.put(on_topic(Op.READ, name="a") + on_topic(Op.ALTER_CONFIGS, Op.DESCRIBE, name="b"))
        request = metadata("a", "b", include_topic_authorized_operations=True)
        request.include_cluster_authorized_operations = True
        answer = await alice.ask(request, 8)
        bits = [1 << Op.READ | 1 << Op.DESCRIBE, 1 << Op.ALTER_CONFIGS | 1 << Op.DESCRIBE_CONFIGS | 1 << Op.DESCRIBE]
        assert [each.topic_authorized_operations for each in answer.topics] == bits
        assert answer.cluster_authorized_operations == 0
        assert [each.topic_authorized_operations for each in (await root.ask(request, 8)).topics] == [0xDF8, 0xDF8]
        paged = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in "ab"]
        )
        assert [each.topic_authorized_operations for each in (await alice.ask(paged, 0)).topics] == bits
        described = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await alice.ask(described, 0)).cluster_authorized_operations == 0
        rights.put(cluster(Op.ALTER, Op.IDEMPOTENT_WRITE))
        expected = 1 << Op.ALTER | 1 << Op.DESCRIBE | 1 << Op.IDEMPOTENT_WRITE
        assert (await alice.ask(described, 0)).cluster_authorized_operations == expected
        assert (await alice.ask(request, 8)).cluster_authorized_operations == expected
        assert (await alice.ask(DescribeClusterRequest(), 0)).cluster_authorized_operations == NOT_ASKED
        groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        await root.ask(FindCoordinatorRequest(key="g"), 0)
        await trio.sleep(1)
        rights.put(group(Op.DELETE))
        (found,) = (await alice.ask(groups, 5)).groups
        assert (found.error_code, found.authorized_operations) == (0, 1 << Op.DELETE | 1 << Op.DESCRIBE)


async def test_pages_of_what_may_be_described(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", "c", "d", "e") as (_, rights, alice, _):
        for name in "bd":
            rights.put(on_topic(Op.DESCRIBE, name=name))

        async def page(names: str, limit: int, cursor: str | None = None) -> tuple[list[Any], str | None]:
            answer = await alice.ask(
                DescribeTopicPartitionsRequest(
                    topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
                    response_partition_limit=limit,
                    cursor=cursor and DescribeTopicPartitionsRequest.Cursor(topic_name=cursor, partition_index=0),
                ),
                0,
            )
            return told(answer), answer.next_cursor and answer.next_cursor.topic_name

        assert await page("", 10) == ([("b", 0), ("d", 0)], None)
        assert await page("", 1) == ([("b", 0)], "d")
        assert await page("", 1, "d") == ([("d", 0)], None)
        assert await page("", 1, "c") == ([("d", 0)], None)
        assert await page("abcd", 10) == ([("a", T), ("b", 0), ("c", T), ("d", 0)], None)
        assert await page("abcd", 10, "c") == ([("c", T), ("d", 0)], None)
        assert await page("ac", 10) == ([("a", T), ("c", T)], None)
        rights.clear()
        assert await page("", 10) == ([], None)


# -- topics and settings -----------------------------------------------------------------------------------------------


async def test_topics_are_made_and_their_settings_kept_back(autojump_clock: trio.abc.Clock) -> None:
    def create(*names: str) -> CreateTopicsRequest:
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=60_000)

    async with world() as (broker, rights, alice, _):
        rights.put(on_topic(Op.CREATE, name="a") + on_topic(Op.CREATE, Op.DESCRIBE_CONFIGS, name="b"))
        answer = await alice.ask(create("x", "a", "twice", "b", "twice"), 7)
        assert told(answer) == [("x", T), ("a", 0), ("twice", E.INVALID_REQUEST), ("b", 0)]
        _, a, _, b = answer.topics
        assert (a.topic_config_error_code, a.num_partitions, a.replication_factor, a.configs) == (T, -1, -1, [])
        assert (b.topic_config_error_code, b.num_partitions, len(b.configs) > 0) == (0, 1, True)
        assert a.topic_id != ZERO_UUID
        assert set(broker.services.image.topics) == {"a", "b"}
        rights.put(cluster(Op.CREATE))
        assert told(await alice.ask(create("x"), 7)) == [("x", 0)]


@pytest.mark.parametrize("version", [5, 6])
async def test_topics_are_deleted(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", "c", "d") as (broker, rights, alice, _):
        ids = {name: broker.services.image.topics[name].topic_id for name in "abcd"} | {"?": b"\7" * 16}
        rights.put(on_topic(Op.DELETE, name="a") + on_topic(Op.DESCRIBE, name="b"))
        rights.put(on_topic(Op.DELETE, name="ghost"))
        if version == 5:
            request = DeleteTopicsRequest(topic_names=["a", "b", "c", "ghost", "nothing"], timeout_ms=60_000)
            answer = await alice.ask(request, version)
            found: list[Any] = [(each.name, each.error_code) for each in answer.responses]
            assert found == [("a", 0), ("b", T), ("c", T), ("ghost", E.UNKNOWN_TOPIC_OR_PARTITION), ("nothing", T)]
        else:
            state = DeleteTopicsRequest.DeleteTopicState
            request = DeleteTopicsRequest(
                topics=[*(state(name=None, topic_id=ids[name]) for name in "abc?"), state(name="d")], timeout_ms=60_000
            )
            answer = await alice.ask(request, version)
            found = [(each.name, each.topic_id, each.error_code) for each in answer.responses]
            assert found == [
                ("a", ids["a"], 0),
                ("b", ids["b"], T),
                (None, ids["c"], T),
                (None, ids["?"], E.UNKNOWN_TOPIC_ID),
                ("d", ZERO_UUID, T),
            ]
        assert set(broker.services.image.topics) == {"b", "c", "d"}


async def test_moves_that_are_denied_are_named(autojump_clock: trio.abc.Clock) -> None:
    """Beside the error of the whole, as Apache Kafka's."""
    async with world("a") as (_, _, alice, _):
        move = AlterPartitionReassignmentsRequest
        wishes = [move.ReassignablePartition(partition_index=index, replicas=[1]) for index in (0, 3)]
        request = move(topics=[move.ReassignableTopic(name="a", partitions=wishes)])
        answer = await alice.ask(request, 1)
        partitions = answer.responses[0].partitions
        assert (answer.error_code, answer.responses[0].name) == (C, "a")
        assert [(each.partition_index, each.error_code) for each in partitions] == [(0, C), (3, C)]
        asked = [ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="a", partition_indexes=[0])]
        listed = await alice.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
        assert (listed.error_code, listed.topics[0].name) == (C, "a")
        assert [(each.partition_index, each.replicas) for each in listed.topics[0].partitions] == [(0, [])]
        assert (await alice.ask(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []


@pytest.mark.parametrize("configs", [[("retention.ms", "1"), ("retention.ms", "2")], [("retention.ms", None)]])
@pytest.mark.parametrize("name", ["a", "nothing"])
async def test_invalid_settings_are_reported_first(
    name: str, configs: list[tuple[str, str | None]], autojump_clock: trio.abc.Clock
) -> None:
    """For any caller, and whether there is such a topic or not."""
    async with world("a") as (_, _, alice, _):
        for request in (AlterConfigsRequest, IncrementalAlterConfigsRequest):
            made = [request.AlterableConfig(name=key, value=value) for key, value in configs]
            resource = request.AlterConfigsResource(resource_type=2, resource_name=name, configs=made)
            answer = await alice.ask(request(resources=[resource]), 1)
            assert [each.error_code for each in answer.responses] == [E.INVALID_REQUEST]
        delete = [IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=1, value=None)]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name=name, configs=delete
        )
        answer = await alice.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [each.error_code for each in answer.responses] == [T]


async def test_an_invalid_topic_name_is_reported_first(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, _, alice, _):
        asked = [DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name in ("no name", "a")]
        answer = await alice.ask(DescribeProducersRequest(topics=asked), 0)
        found = [(each.name, each.partitions[0].error_code) for each in answer.topics]
        assert found == [("no name", E.INVALID_TOPIC_EXCEPTION), ("a", T)]


async def test_settings(autojump_clock: trio.abc.Clock) -> None:
    topic_, broker_, logger, group_ = 2, 4, 8, 32

    async with world("a", "b") as (broker, rights, alice, _):
        own = str(broker.services.config.broker_id)
        resources = [
            (topic_, "a"),
            (topic_, "b"),
            (broker_, own),
            (logger, own),
            (group_, "g"),
            (broker_, "77"),
            (99, "?"),
        ]

        async def described() -> list[Any]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
                    )
                    for kind, name in resources
                ]
            )
            answer = await alice.ask(request, 4)
            assert [(each.resource_type, each.resource_name) for each in answer.results] == resources
            assert all(not each.configs for each in answer.results if each.error_code)
            return [each.error_code for each in answer.results]

        async def altered() -> list[Any]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=kind, resource_name=name, configs=[]
                    )
                    for kind, name in [*resources, (topic_, "twice"), (topic_, "twice")]
                ]
            )
            answer = await alice.ask(request, 1)
            return [each.error_code for each in answer.responses]

        bad = E.INVALID_REQUEST
        assert await described() == [T, T, C, C, G, C, bad]
        assert await altered() == [T, T, C, C, G, bad, bad, bad, bad]
        rights.put(on_topic(Op.ALTER_CONFIGS, name="b") + group(Op.ALTER_CONFIGS))
        assert await described() == [T, 0, C, C, 0, C, bad]
        assert await altered() == [T, 0, C, C, 0, bad, bad, bad, bad]
        rights.put(cluster(Op.ALTER_CONFIGS))
        assert await described() == [T, 0, 0, 0, 0, bad, bad]
        assert await altered() == [T, 0, 0, 0, 0, bad, bad, bad, bad]


# -- who ---------------------------------------------------------------------------------------------------------------


async def test_hosts_and_the_wildcard(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (broker, rights, _, _):
        pattern = ResourcePattern(ResourceType.TOPIC, "a")
        rights.authorizer.put(pattern, [AccessControlEntry("User:*", "10.0.0.1", Op.DESCRIBE, PermissionType.ALLOW)])
        async with (
            connected(broker, client_host="10.0.0.1", principal=ALICE) as there,
            connected(broker, client_host="10.0.0.2", principal=ALICE) as elsewhere,
        ):
            assert told(await there.ask(metadata("a"), 9)) == [("a", 0)]
            assert told(await elsewhere.ask(metadata("a"), 9)) == [("a", T)]


async def test_open_unless_there_is_an_acl(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", allow_everyone_if_no_acl_found="true") as (_, rights, alice, _):
        assert told(await alice.ask(metadata("a", "b"), 9)) == [("a", 0), ("b", 0)]
        pattern = ResourcePattern(ResourceType.TOPIC, "a")
        rights.authorizer.put(pattern, [AccessControlEntry("User:bob", "*", Op.READ, PermissionType.ALLOW)])
        assert told(await alice.ask(metadata("a", "b"), 9)) == [("a", T), ("b", 0)]


async def test_the_log(autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with world("a", "b", "c") as (_, rights, alice, _):
        rights.put(on_topic(Op.WRITE, name="b"), PermissionType.DENY)
        with caplog.at_level(logging.INFO, "barnabas.authorizer"):
            await alice.ask(produce_to("b", "x\ny", "c"), 9)
            await alice.ask(MetadataRequest(topics=None), 9)  # a filter asks, nobody is denied
        (line,) = [each.getMessage() for each in caplog.records if each.name == "barnabas.authorizer"]
        assert line == (
            "User:alice at 127.0.0.1, in PRODUCE v9 of client 'test', may not Write Topic 'b' and 2 more: "
            "ACL: Deny User:alice Write from *"
        )
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "barnabas.authorizer"):
            await alice.ask(produce_to("x\ny"), 9)
            rights.put(on_topic(Op.WRITE, name="c"))
            await alice.ask(produce_to("c"), 9)
        denied, allowed = [each.getMessage() for each in caplog.records if each.name == "barnabas.authorizer"]
        assert denied.endswith(r"may not Write Topic 'x\ny': no ACL allows it")
        assert allowed.endswith("may Write Topic 'c'")
