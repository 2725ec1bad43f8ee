"""A day in the life of clients of 2013 to 2017, who know only the first version of everything, beside one of today.

One scenario over one broker and a restart: an 0.8 producer and simple consumer, an 0.9 consumer group of two, an 0.11
administrator. Every request goes out in version 0 (offsets also in 1, the first that is stored with the group).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    AlterConfigsRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.kproto.records_legacy import build_message_set, iter_legacy, iter_messages
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat
from barnabas.server.tests.apis.records.test_produce import NOW_MS, only, request

EARLIEST, LATEST = -2, -1
TOPIC = 2


class OldClient:
    """Asks in version 0 and remembers what it asked."""

    def __init__(self, client: Client, asked: set[ApiKey]) -> None:
        self.client = client
        self.asked = asked

    async def ask(self, message: Any, version: int = 0) -> Any:
        self.asked.add(ApiKey(message.__description__.api_key))
        return await self.client.ask(message, version, client_id="old")

    # -- 0.8: producer and simple consumer

    async def metadata(self, *names: str) -> Any:
        return await self.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=n) for n in names]))

    async def wait_for(self, name: str) -> Any:
        """As they did it: ask until the topic is there, which asking creates."""
        for _ in range(100):
            (found,) = (await self.metadata(name)).topics
            if found.error_code == 0 and all(p.error_code == 0 for p in found.partitions):
                return found
            assert found.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await trio.sleep(0.1)
        raise AssertionError(found)

    async def produce(self, name: str, *values: bytes, codec: int = 0) -> int:
        data = build_message_set([Record(0, -1, b"k", value) for value in values], magic=0, codec=codec)
        answer = only(await self.ask(request(data, topic=name, acks=-1)))
        assert answer.error_code == 0
        return answer.base_offset

    async def read(self, name: str, offset: int, max_bytes: int = 1 << 20) -> list[bytes | None]:
        """All that follows `offset`, skipping what a wrapper holds before it."""
        read: list[bytes | None] = []
        while True:
            answer = flat(await self.ask(fetch((name, 0, offset), partition_max_bytes=max_bytes)))[0]
            assert answer.error_code == 0
            data = bytes(answer.records)
            assert {message.magic for message in iter_messages(data)} <= {0}
            found = [record for record in iter_legacy(data) if record.offset >= offset]
            if not found:
                assert offset == answer.high_watermark
                return read
            assert [record.offset for record in found] == list(range(offset, offset + len(found)))
            read += [record.value for record in found]
            offset += len(found)

    async def offsets(self, name: str, timestamp: int, count: int = 10) -> list[int]:
        partition = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, max_num_offsets=count
        )
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])]
        answer = (await self.ask(ListOffsetsRequest(topics=topics))).topics[0].partitions[0]
        assert answer.error_code == 0
        found: list[int] = answer.old_style_offsets
        return found

    async def commit(self, group: str, name: str, offset: int, version: int = 0, **member: Any) -> int:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])]
        answer = await self.ask(OffsetCommitRequest(group_id=group, topics=topics, **member), version)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def committed(self, group: str, name: str, version: int = 0) -> tuple[int, int]:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0])]
        answer = await self.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
        partition = answer.topics[0].partitions[0]
        return partition.error_code, partition.committed_offset

    # -- 0.9: a consumer group

    async def join(self, group: str, member_id: str = "") -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscription")
        return await self.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
        )

    async def sync(self, group: str, joined: Any, **assignments: bytes) -> Any:
        """`assignments` by the ids of members, from the leader."""
        given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()]
        return await self.ask(
            SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=given
            )
        )

    async def heartbeat(self, group: str, joined: Any) -> int:
        beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
        code: int = (await self.ask(beat)).error_code
        return code


async def test_the_first_versions_of_everything(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    asked: set[ApiKey] = set()
    async with (
        embedded_broker(tmp_path) as broker,
        connected(broker) as one,
        connected(broker) as two,
        connected(broker) as today,
    ):
        await simple_clients(OldClient(one, asked), today)
        await a_group(OldClient(one, asked), OldClient(two, asked))
        await an_administrator(OldClient(one, asked))
    async with embedded_broker(tmp_path) as broker, connected(broker) as one:
        await after_a_restart(OldClient(one, asked))
    assert asked >= {
        *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_COMMIT),
        *(ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
        *(ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS),
        *(ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FOR_LEADER_EPOCH),
        *(ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.CREATE_PARTITIONS),
        ApiKey.DELETE_GROUPS,
    }


async def simple_clients(old: OldClient, today: Client) -> None:
    metadata = await old.metadata()
    assert (len(metadata.brokers), metadata.topics) == (1, [])
    topic = await old.wait_for("events")
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, metadata.brokers[0].node_id)]

    # They write in every codec they have, today's client writes in between, and everybody reads everything.
    expected: list[bytes | None] = []
    for codec in range(4):
        values = [b"%d-%d" % (codec, i) for i in range(3)]
        assert await old.produce("events", *values, codec=codec) == len(expected)
        new = [b"new-%d-%d" % (codec, i) for i in range(2)]
        batch = build_batch([Record(0, NOW_MS, None, value, (("header", b"1"),)) for value in new], codec=codec)
        assert only(await today.ask(request(bytes(batch), topic="events"), 9)).base_offset == len(expected) + 3
        expected += values + new
    for offset in range(len(expected) + 1):
        assert await old.read("events", offset) == expected[offset:]
    assert await old.read("events", 0, max_bytes=400) == expected
    data = bytes(flat(await today.ask(fetch(("events", 0, 0)), 12))[0].records)
    assert [r.value for position, _ in iter_headers(data) for r in iter_records(data, position)] == expected
    too_far = flat(await old.ask(fetch(("events", 0, 99))))[0]
    assert too_far.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    assert await old.offsets("events", EARLIEST) == [0]
    assert await old.offsets("events", LATEST) == [len(expected), 0]
    assert await old.offsets("events", LATEST, 1) == [len(expected)]

    for _ in range(100):
        coordinator = await old.ask(FindCoordinatorRequest(key="simple"))
        if coordinator.error_code == 0:
            break
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await trio.sleep(0.1)
    assert coordinator.node_id == metadata.brokers[0].node_id
    # Version 0 stood for offsets in ZooKeeper, where none is an error; here both versions see the same offsets.
    assert await old.committed("simple", "events") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await old.committed("simple", "events", 1) == (0, -1)
    assert await old.commit("simple", "events", 7) == 0
    assert await old.committed("simple", "events") == (0, 7)
    assert await old.commit("simple", "events", 8, version=1, generation_id_or_member_epoch=-1) == 0
    assert await old.committed("simple", "events", 1) == (0, 8)
    assert await old.commit("simple", "nothing", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def a_group(one: OldClient, two: OldClient) -> None:
    alone = await one.join("workers")
    assert (alone.error_code, alone.leader, len(alone.members)) == (0, alone.member_id, 1)
    assert (await one.sync("workers", alone, **{alone.member_id: b"all"})).assignment == b"all"
    assert await one.heartbeat("workers", alone) == 0

    # A second member: the first hears of it by its heartbeat and joins again; both get what the leader decides.
    joined: dict[str, Any] = {}
    assignments: dict[str, bytes] = {}

    async def second() -> None:
        joined["two"] = await two.join("workers")
        assignments["two"] = (await two.sync("workers", joined["two"])).assignment

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second)
        await trio.sleep(1)
        assert await one.heartbeat("workers", alone) == ErrorCode.REBALANCE_IN_PROGRESS
        joined["one"] = leader = await one.join("workers", alone.member_id)
        assert leader.leader == leader.member_id
        other = next(member.member_id for member in leader.members if member.member_id != leader.member_id)
        halves = {leader.member_id: b"left", other: b"right"}
        assignments["one"] = (await one.sync("workers", leader, **halves)).assignment
    assert assignments == {"one": b"left", "two": b"right"}
    assert joined["one"].generation_id == joined["two"].generation_id == alone.generation_id + 1

    now = {"generation_id_or_member_epoch": leader.generation_id, "member_id": leader.member_id}
    before = {**now, "generation_id_or_member_epoch": alone.generation_id}
    assert await one.commit("workers", "events", 5, version=1, **now) == 0
    assert await one.commit("workers", "events", 6, version=1, **before) == ErrorCode.ILLEGAL_GENERATION
    assert await two.committed("workers", "events", 1) == (0, 5)

    groups = (await one.ask(ListGroupsRequest())).groups
    assert {(group.group_id, group.protocol_type) for group in groups} == {("workers", "consumer"), ("simple", "")}
    workers, nobody = (await two.ask(DescribeGroupsRequest(groups=["workers", "nobody"]))).groups
    assert (workers.error_code, workers.group_state, workers.protocol_data) == (0, "Stable", "range")
    assert {(m.member_id, m.client_id, m.member_assignment) for m in workers.members} == {
        (leader.member_id, "old", b"left"),
        (other, "old", b"right"),
    }
    assert (nobody.error_code, nobody.group_state) == (0, "Dead")

    assert (await two.ask(LeaveGroupRequest(group_id="workers", member_id=other))).error_code == 0
    assert await two.heartbeat("workers", joined["two"]) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await one.heartbeat("workers", leader) == ErrorCode.REBALANCE_IN_PROGRESS
    await trio.sleep(60)  # the first one has crashed: its session ends, and nobody is left
    (workers,) = (await two.ask(DescribeGroupsRequest(groups=["workers"]))).groups
    assert (workers.group_state, workers.members) == ("Empty", [])
    assert await two.committed("workers", "events", 1) == (0, 5)


async def an_administrator(old: OldClient) -> None:
    versions = await old.ask(ApiVersionsRequest())
    assert versions.error_code == 0
    assert {api.api_key: api.min_version for api in versions.api_keys}[ApiKey.PRODUCE] == 0

    new = CreateTopicsRequest.CreatableTopic
    placed = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    short = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000")
    created = await old.ask(
        CreateTopicsRequest(
            topics=[
                new(name="plain", num_partitions=2, replication_factor=1, configs=[short]),
                new(name="placed", num_partitions=-1, replication_factor=-1, assignments=[placed]),
                new(name="events", num_partitions=1, replication_factor=1),
                new(name="no name", num_partitions=1, replication_factor=1),
                new(name="many", num_partitions=1, replication_factor=3),
            ],
            timeout_ms=5000,
        )
    )
    assert {topic.name: topic.error_code for topic in created.topics} == {
        "plain": 0,
        "placed": 0,
        "events": ErrorCode.TOPIC_ALREADY_EXISTS,
        "no name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
    }

    async def settings() -> dict[str, str]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name="plain", configuration_keys=["retention.ms", "cleanup.policy"]
        )
        (answer,) = (await old.ask(DescribeConfigsRequest(resources=[resource]))).results
        return {config.name: config.value for config in answer.configs}

    assert await settings() == {"retention.ms": "1000", "cleanup.policy": "delete"}
    longer = AlterConfigsRequest.AlterableConfig(name="retention.ms", value="2000")
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="plain", configs=[longer])
    assert (await old.ask(AlterConfigsRequest(resources=[resource]))).responses[0].error_code == 0
    assert await settings() == {"retention.ms": "2000", "cleanup.policy": "delete"}

    more = CreatePartitionsRequest.CreatePartitionsTopic(name="plain", count=3, assignments=None)
    assert (await old.ask(CreatePartitionsRequest(topics=[more], timeout_ms=5000))).results[0].error_code == 0
    assert len((await old.wait_for("plain")).partitions) == 3

    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
    cut = DeleteRecordsRequest.DeleteRecordsTopic(name="events", partitions=[partition])
    deleted = (await old.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=5000))).topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (0, 4)
    assert await old.offsets("events", EARLIEST) == [4]

    epoch = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="events", partitions=[epoch])
    end = (await old.ask(OffsetForLeaderEpochRequest(topics=[asked]))).topics[0].partitions[0]
    assert (end.error_code, end.end_offset) == (0, 20)
    (disk,) = (await old.ask(DescribeLogDirsRequest(topics=None))).results
    assert {"events", "plain", "placed"} <= {topic.name for topic in disk.topics}
    assert (await old.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))).error_code == 0

    gone = await old.ask(DeleteTopicsRequest(topic_names=["placed", "nothing"], timeout_ms=5000))
    assert [(topic.name, topic.error_code) for topic in gone.responses] == [
        ("placed", 0),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    results = (await old.ask(DeleteGroupsRequest(groups_names=["simple", "nobody"]))).results
    assert {result.group_id: result.error_code for result in results} == {
        "simple": 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


async def after_a_restart(old: OldClient) -> None:
    # An empty list asked for all topics then.
    names = {topic.name for topic in (await old.metadata()).topics}
    assert names == {"events", "plain", "__consumer_offsets"}
    assert len(await old.read("events", 4)) == 16
    assert await old.committed("workers", "events", 1) == (0, 5)
    assert await old.committed("simple", "events", 1) == (0, -1)
    assert await old.produce("events", b"again") == 20
