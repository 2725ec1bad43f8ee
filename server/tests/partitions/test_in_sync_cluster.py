"""In-sync sets in a cluster of three brokers: laggards leave, come back, and what has to wait for that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AlterPartitionResponse, CreateTopicsRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import AppendOrigin
from barnabas.replication import Image
from barnabas.server.partitions.partition import Partition
from barnabas.server.testing import EmbeddedCluster, connected, embedded_cluster

LAG_MS = "2000"
Ready = Callable[[Partition], bool]


async def create(cluster: EmbeddedCluster, *replicas: int, name: str = "t", **configs: str) -> Partition:
    """A topic with one partition that the first of `replicas` leads; returns once all brokers know it."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    async with connected(cluster[cluster.controller()]) as client:
        response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 4)
        assert response.topics[0].error_code == 0
    assert await cluster.leader(name) == replicas[0]
    for each in replicas:
        while cluster[each].services.partitions.find(name, 0) is None:  # noqa: ASYNC110
            await trio.sleep(0.1)
    return cluster[replicas[0]].services.partitions.get(name, 0)


def isr_in(image: Image) -> set[int]:
    partition = image.partition("t", 0)
    return set() if partition is None else set(partition.isr)


async def until(partition: Partition, ready: Ready) -> None:
    while not ready(partition):  # noqa: ASYNC110
        await trio.sleep(0.05)


async def isr_is(partition: Partition, *isr: int) -> None:
    await until(partition, lambda it: set(it.isr) == set(isr))


def one_record(acks: int, timeout_ms: int = 60_000) -> ProduceRequest:
    batch = build_batch([Record(0, 1, None, b"v")])
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


async def produce(cluster: EmbeddedCluster, broker: int, acks: int, *, timeout_ms: int = 60_000) -> Any:
    async with connected(cluster[broker]) as client:
        response = await client.ask(one_record(acks, timeout_ms), 11)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("protocol", ["3.9", "2.7", "2.6"])
@pytest.mark.parametrize("leader", [1, 2])  # broker 1 is the controller
async def test_a_follower_leaves_and_returns(autojump_clock: trio.abc.Clock, protocol: str, leader: int) -> None:
    async with embedded_cluster(3, inter_broker_protocol_version=protocol, replica_lag_time_max_ms=LAG_MS) as cluster:
        assert cluster.controller() == 1
        partition = await create(cluster, leader, 3 - leader, 3)
        assert (await produce(cluster, leader, -1)).error_code == ErrorCode.NONE
        await cluster.cut(leader, 3)
        begin = trio.current_time()
        assert (await produce(cluster, leader, -1)).error_code == ErrorCode.NONE
        waited = trio.current_time() - begin
        assert 1 < waited < 4  # as long as broker 3 counted
        await isr_is(partition, leader, 3 - leader)
        await cluster.image_until(lambda image: isr_in(image) == {1, 2}, 1, 2)  # broker 3 may be out of reach
        assert partition.leader_epoch == 0
        cluster.heal(leader, 3)
        await isr_is(partition, 1, 2, 3)
        await cluster.image_until(lambda image: isr_in(image) == {1, 2, 3})
        follower = cluster[3].services.partitions.get("t", 0)
        await until(follower, lambda it: it.high_watermark == 2)
        image = cluster[1].services.image.partition("t", 0)
        assert image is not None
        assert image.partition_epoch == partition.partition_epoch


async def test_below_min_insync_replicas_nothing_is_committed(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3, replica_lag_time_max_ms=LAG_MS) as cluster:
        partition = await create(cluster, 2, 3, min_insync_replicas="2")
        await cluster.cut(2, 3)
        assert (await produce(cluster, 2, 1)).error_code == ErrorCode.NONE
        await isr_is(partition, 2)
        assert (partition.high_watermark, partition.log_end_offset) == (0, 1)
        assert (await produce(cluster, 2, -1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.heal(2, 3)
        await isr_is(partition, 2, 3)
        await until(partition, lambda it: it.high_watermark == 1)
        assert (await produce(cluster, 2, -1)).error_code == ErrorCode.NONE


async def test_without_a_controller_proposals_wait(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3, replica_lag_time_max_ms=LAG_MS) as cluster:
        partition = await create(cluster, 2, 3)
        await cluster.cut(2, 1)
        await cluster.cut(2, 3)
        assert (await produce(cluster, 2, -1, timeout_ms=6000)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert partition.isr == (2, 3)
        assert partition.leader is not None
        assert partition.leader.pending is not None
        cluster.heal(2, 1)
        await isr_is(partition, 2)
        assert partition.high_watermark == 1


async def test_many_proposals_are_one_request(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3, replica_lag_time_max_ms=LAG_MS) as cluster:
        partitions = [await create(cluster, 2, 3, name=f"t{number}") for number in range(5)]
        asked: list[int] = []
        controller = cluster[1].services.controller
        original = controller.alter_partition

        async def noted(request: Any, version: int) -> AlterPartitionResponse:
            asked.append(sum(len(topic.partitions) for topic in request.topics))
            return await original(request, version)

        controller.alter_partition = noted  # type: ignore[method-assign, assignment]
        await cluster.cut(2, 3)
        batch = build_batch([Record(0, 1, None, b"v")])
        for partition in partitions:
            partition.append(bytearray(batch), origin=AppendOrigin.CLIENT, now_ms=1)
            partition.write()
        for partition in partitions:
            await isr_is(partition, 2)
        assert sum(asked) == 5
        assert len(asked) <= 2


async def test_answers_leave_in_order_when_records_are_committed(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3) as cluster:
        partition = await create(cluster, 2, 3)
        await cluster.cut(2, 3)
        async with connected(cluster[2]) as client:
            for acks in (-1, 1, -1, -1):
                await client.send(one_record(acks), 11)
            await until(partition, lambda it: it.log_end_offset == 4)
            begin = trio.current_time()
            await trio.sleep(5)
            cluster.heal(2, 3)
            for offset in range(4):
                response = await client.receive(one_record(-1), 11)
                assert response.responses[0].partition_responses[0].base_offset == offset
            assert trio.current_time() - begin >= 5


async def test_a_waiting_producer_is_sent_to_the_new_leader(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3) as cluster:
        partition = await create(cluster, 2, 3)
        await cluster.cut(2, 3)
        async with connected(cluster[2]) as client:
            await client.send(one_record(-1), 11)
            await until(partition, lambda it: it.log_end_offset == 1)
            await cluster.expire(2)
            response = await client.receive(one_record(-1), 11)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == 3
            assert answer.current_leader.leader_epoch > 0
            assert [each.node_id for each in response.node_endpoints] == [3]
        cluster.heal(2, 3)
        assert (await produce(cluster, 3, -1)).base_offset == 0
        await isr_is(cluster[3].services.partitions.get("t", 0), 2, 3)
        await until(partition, lambda it: it.high_watermark == 1)
        assert partition.log.latest_epoch == answer.current_leader.leader_epoch  # its own record is gone
