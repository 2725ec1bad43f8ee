"""The controller as the one voter of the cluster's metadata: alone, in a cluster, without a controller."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.server.apis.cluster.describe_quorum import handle
from barnabas.server.runtime.turns import UNFINISHED, first_turn
from barnabas.server.testing import Client, EmbeddedCluster, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.records.test_produce import topic

E = ErrorCode
Named = tuple[str, list[int]]
METADATA: Named = ("__cluster_metadata", [0])


async def ask(client: Client, *topics: Named, version: int = 2) -> DescribeQuorumResponse:
    Topic, Partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
    request = DescribeQuorumRequest(
        topics=[Topic(topic_name=name, partitions=[Partition(partition_index=i) for i in ids]) for name, ids in topics]
    )
    answer = await client.ask(request, version)
    assert isinstance(answer, DescribeQuorumResponse)
    assert (answer.error_code, answer.error_message) == (E.NONE, "")
    return answer


@pytest.mark.parametrize("version", range(3))
async def test_a_broker_alone_leads(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        answer = await ask(client, METADATA, version=version)
        [(partition,)] = [told.partitions for told in answer.topics]
        image = broker.services.image
        [voter] = partition.current_voters
        assert (partition.error_code, partition.error_message, partition.observers) == (E.NONE, "", [])
        assert (partition.leader_id, partition.leader_epoch) == (1, image.controller_epoch)
        assert (voter.replica_id, voter.replica_directory_id) == (1, ZERO_UUID)
        assert voter.log_end_offset == partition.high_watermark > 0
        times = {voter.last_fetch_timestamp, voter.last_caught_up_timestamp}
        assert times == ({-1} if version == 0 else {broker.services.wall_ms()})
        if version < 2:
            assert answer.nodes == []
        else:
            [node] = answer.nodes
            [listener] = node.listeners
            own = image.brokers[1].endpoints[0]
            assert (node.node_id, listener.name, listener.host, listener.port) == (1, own.listener, own.host, own.port)


async def test_the_end_rises_with_every_change(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        ends = []
        for name in ("a", "b"):
            await topic(broker, name)
            [partition] = (await ask(client, METADATA)).topics[0].partitions
            ends.append(partition.high_watermark)
        node = await broker.services.cluster.store.get("/brokers/topics/b")
        assert node is not None
        assert ends[0] < node.mzxid <= ends[1]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "named",
    [
        [("x", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0, 0])],
        [METADATA, ("x", [0, 3])],
        [METADATA, METADATA],
        [("__cluster_metadata", [])],
        [],
    ],
)
async def test_other_partitions_are_unknown(named: list[Named], version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        answer = await ask(client, *named, version=version)
        told = [(each.topic_name, [one.partition_index for one in each.partitions]) for each in answer.topics]
        assert (told, answer.nodes) == (named, [])
        for one in (one for each in answer.topics for one in each.partitions):
            assert (one.error_code, one.leader_id, one.leader_epoch) == (E.UNKNOWN_TOPIC_OR_PARTITION, 0, 0)
            assert bool(one.error_message) == (version == 2)


def test_a_long_request_takes_turns() -> None:
    Topic, Partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
    request = DescribeQuorumRequest(
        topics=[Topic(topic_name="x", partitions=[Partition(partition_index=i) for i in range(5_000)])]
    )
    none: Any = None
    ctx: Any = SimpleNamespace(api_version=2)
    assert first_turn(handle(none, ctx, request)) is UNFINISHED


async def test_without_a_controller_clients_wait(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        cluster = broker.services.cluster
        monkeypatch.setattr(cluster._receiver, "_image", replace(cluster.image, controller_id=-1))
        [partition] = (await ask(client, METADATA)).topics[0].partitions
        assert (partition.error_code, partition.current_voters) == (E.NOT_LEADER_OR_FOLLOWER, [])


async def elected(cluster: EmbeddedCluster) -> tuple[int, int]:
    """The leader and its epoch, as every running broker says."""
    found = set()
    for broker_id in cluster.running:
        async with connected(cluster[broker_id]) as client:
            answer = await ask(client, METADATA)
            [partition] = answer.topics[0].partitions
            assert [voter.replica_id for voter in partition.current_voters] == [partition.leader_id]
            assert [node.node_id for node in answer.nodes] == [partition.leader_id]
            assert partition.high_watermark > 0
            found.add((partition.leader_id, partition.leader_epoch))
    [(leader, epoch)] = found
    assert leader == cluster.controller()
    return leader, epoch


async def test_every_broker_of_a_cluster_names_the_elected_one(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3) as cluster:
        await cluster.all_alive()
        first, epoch = await elected(cluster)
        await cluster.stop(first)
        await cluster.image_until(lambda image: image.controller_id in cluster.running)
        await cluster.all_alive()
        second, next_epoch = await elected(cluster)
        assert second != first
        assert next_epoch > epoch
