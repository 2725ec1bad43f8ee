"""Requests that are large: those that a client may mean are served, the others close their connection, cheaply."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, decoder, uvarint
from barnabas.kproto.frame import parse_request_header, request_frame
from barnabas.kproto.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    LeaderAndIsrRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.network.request_bounds import BOUNDS, GENERAL, bounds_of
from barnabas.server.testing import Client, connected, embedded_broker

NAMES = [f"{i:05}".ljust(249, "n") for i in range(10_000)]
"""Topics with the longest names that there are."""


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES])


def fetch() -> FetchRequest:
    partitions = [FetchRequest.FetchPartition(partition=i) for i in range(1000)]
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=bytes(16), partitions=partitions)] * 50)


def offset_commit() -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_metadata="m" * 100)
    return OffsetCommitRequest(topics=[topic(name=name, partitions=[partition] * 8) for name in NAMES])


def offset_fetch() -> OffsetFetchRequest:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=list(range(8))) for name in NAMES
        ],
    )
    return OffsetFetchRequest(groups=[group])


def create_topics() -> CreateTopicsRequest:
    config = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="86400000")
    return CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, configs=[config] * 8, assignments=[]) for name in NAMES]
    )


def describe_configs() -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(resources=[resource(resource_type=2, resource_name=name) for name in NAMES])


def produce() -> ProduceRequest:
    records = build_batch([Record(0, 0, None, b"v")])
    topic = ProduceRequest.TopicProduceData
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(topic_data=[topic(name=name, partition_data=[partition]) for name in NAMES])


def reassignment() -> AlterPartitionReassignmentsRequest:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(replicas=[1, 2, 3])
    return AlterPartitionReassignmentsRequest(topics=[topic(name=name, partitions=[partition] * 9) for name in NAMES])


def leader_and_isr() -> LeaderAndIsrRequest:
    # Written once and repeated, as it is slow to make.
    partition = LeaderAndIsrRequest.LeaderAndIsrPartitionState(isr=[1, 2, 3], replicas=[1, 2, 3])
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="n" * 30, partition_states=[partition] * 100)
    return LeaderAndIsrRequest(topic_states=[topic] * 500)


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (metadata, 9),
        (fetch, 13),
        (offset_commit, 8),
        (offset_commit, 7),
        (offset_fetch, 8),
        (create_topics, 5),
        (describe_configs, 4),
        (produce, 9),
        (produce, 3),
        (reassignment, 0),
        (leader_and_isr, 5),
    ],
)
def test_honest_ones_are_within(make: Callable[[], Any], version: int) -> None:
    """As an administrator of 10,000 topics sends them, or a controller to a broker with 50,000 partitions."""
    message = make()
    frame = request_frame(version, 1, "client", message)[4:]
    bounds = bounds_of(message.__description__.api_key)
    assert len(frame) <= bounds.frame_bytes
    decoder(type(message), version)(frame, parse_request_header(frame).body_offset, bounds.elements)


def frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    flexible_tags = b"\x00"
    rest = struct.pack(">hhih", api_key, version, 1, 1) + b"c" + flexible_tags + body
    return struct.pack(">i", len(rest)) + rest


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        pytest.param(
            ApiKey.PRODUCE,
            9,
            b"\x00" + struct.pack(">hi", 1, 1000) + uvarint(3_000_001) + b"\x01\x01\x00" * 3_000_000 + b"\x00",
            id="9 MB of empty topics to write to",
        ),
        pytest.param(
            ApiKey.PRODUCE,
            9,
            b"\x00" + struct.pack(">hi", 1, 1000) + b"\x02\x02t" + uvarint(20_001) + bytes(6 * 20_000) + b"\x00" * 2,
            id="20,000 partitions of one topic to write to",
        ),
        pytest.param(
            ApiKey.DESCRIBE_GROUPS, 5, uvarint(1_000_001) + b"\x01" * 1_000_000 + b"\x00" * 2, id="empty group ids"
        ),
        pytest.param(
            ApiKey.FIND_COORDINATOR, 4, b"\x00" + uvarint(1_000_001) + b"\x01" * 1_000_000 + b"\x00", id="empty keys"
        ),
        pytest.param(
            ApiKey.LEAVE_GROUP, 4, b"\x02g" + uvarint(333_334) + b"\x01\x00\x00" * 333_333 + b"\x00", id="empty members"
        ),
        pytest.param(
            ApiKey.METADATA, 9, uvarint(200_001) + b"\x01\x00" * 200_000 + b"\x00" * 4, id="empty names of topics"
        ),
        pytest.param(
            ApiKey.HEARTBEAT,
            4,
            b"\x02g" + bytes(4) + b"\x02m\x00" + uvarint(200_000) + b"\x05\x00" * 200_000,
            id="tags that nobody knows",
        ),
    ],
)
async def test_too_many_elements_close_the_connection(
    api_key: ApiKey, version: int, body: bytes, autojump_clock: trio.abc.Clock
) -> None:
    data = frame(api_key, version, body)
    async with embedded_broker() as broker, connected(broker) as other:
        await other.ask(MetadataRequest(), 9)
        async with connected(broker) as client:
            tracemalloc.start()
            try:
                assert await is_refused(client, data)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        # The pipe of the test and the buffer of the frame, which grows by a factor of four.
        assert peak < 8 * len(data) + 1_000_000
        await other.ask(MetadataRequest(), 9)


async def is_refused(client: Client, data: bytes) -> bool:
    try:
        await client.stream.send_all(data)
        await client.receive_frame()
    except (trio.BrokenResourceError, EOFError):
        return True
    return False


def test_unknown_api_keys_are_bounded() -> None:
    assert bounds_of(12_345) == bounds_of(-1) == GENERAL
    assert all(row.frame_bytes <= 16 << 20 for key, row in BOUNDS.items() if key != ApiKey.PRODUCE)
