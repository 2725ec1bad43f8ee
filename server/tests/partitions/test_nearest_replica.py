"""A consumer reads from the replica in its rack (KIP-392): as soon as elsewhere, and from the leader if it lags."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FetchRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import AppendOrigin
from barnabas.server.partitions.partition import Partition
from barnabas.server.testing import Client, EmbeddedCluster, connected, embedded_cluster
from barnabas.server.tests.partitions.test_in_sync_cluster import create, isr_is

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def append(partition: Partition, value: bytes) -> None:
    batch = build_batch([Record(0, 1, None, value)])
    partition.append(bytearray(batch), origin=AppendOrigin.CLIENT, now_ms=1)
    partition.write()


def fetch(offset: int, *, wait_ms: int = 30_000) -> FetchRequest:
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        rack_id="near",
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])],
    )


async def consume(client: Client, offset: int) -> Any:
    response = await client.ask(fetch(offset), 12)
    return response.responses[0].partitions[0]


async def replace_with_rack(cluster: EmbeddedCluster, broker: int) -> None:
    """Broker 1 is the controller; another one comes back with a rack."""
    await cluster.stop(broker)
    await cluster.start(broker, broker_rack="near")
    await cluster.all_alive()


async def test_a_consumer_and_the_replica_in_its_rack(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_cluster(3, replica_selector_class=SELECTOR, replica_lag_time_max_ms="3000") as cluster:
        await replace_with_rack(cluster, 3)
        partition = await create(cluster, 2, 3, 1)
        await isr_is(partition, 1, 2, 3)
        append(partition, b"a")
        async with connected(cluster[2]) as leader, connected(cluster[3]) as near:
            data = await consume(leader, 0)
            while data.preferred_read_replica == -1:  # until its follower has fetched
                await trio.sleep(0.01)
                data = await consume(leader, 0)
            assert (data.preferred_read_replica, len(data.records)) == (3, 0)
            data = await consume(near, 0)
            assert (data.error_code, data.high_watermark, len(data.records) > 0) == (0, 1, True)
            # What is committed later reaches it at once, not with the follower's next fetch half a second later.
            for offset in range(1, 4):
                waiting = fetch(offset)
                await near.send(waiting, 12)
                await trio.sleep(10)
                begin = trio.current_time()
                append(partition, b"b")
                data = (await near.receive(waiting, 12)).responses[0].partitions[0]
                assert data.high_watermark == offset + 1
                assert trio.current_time() - begin < 0.2
            # Out of the ISR nobody is sent there.
            await cluster.cut(2, 3)
            append(partition, b"c")
            await isr_is(partition, 1, 2)
            data = await consume(leader, 4)
            assert (data.error_code, data.preferred_read_replica, len(data.records) > 0) == (ErrorCode.NONE, -1, True)
