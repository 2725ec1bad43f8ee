"""A broker with two log directories on disks that may break, and a client: for the tests of log directories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterReplicaLogDirsRequest,
    CreateTopicsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.whole.faulty_disk import FaultyDisk

E = ErrorCode
LONG_MS = 60_000


class World:
    """A broker with the directories `a` (where its metadata are) and `b`."""

    def __init__(self, broker: Broker, client: Client, disk: FaultyDisk, a: Path, b: Path) -> None:
        self.broker = broker
        self.client = client
        self.disk = disk
        self.a = a
        self.b = b

    async def topic(self, name: str, partitions: int = 1) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS), 5)
        assert answer.topics[0].error_code == E.NONE

    def home(self, name: str, index: int) -> Path | None:
        found = self.broker.services.partitions.log_dirs.home(name, index)
        return None if found is None else Path(found.path)

    def in_dir(self, path: Path, name: str) -> int:
        """The first partition of a topic that lies there."""
        return next(index for index in range(100) if self.home(name, index) == path)

    async def produce(self, name: str, index: int, value: bytes = b"v", acks: int = -1) -> tuple[int, int]:
        """(error code, offset)"""
        batch = build_batch([Record(0, 1_750_000_000_000, b"k", value)])
        data = ProduceRequest.PartitionProduceData(index=index, records=batch)
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        answer = await self.client.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 9)
        (partition,) = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    async def values(self, name: str, index: int) -> list[bytes] | int:
        """All values, or the error code."""
        values: list[bytes] = []
        offset = 0
        while True:
            answer = await self.client.ask(fetch(name, index, offset, 0), 11)
            (partition,) = answer.responses[0].partitions
            if partition.error_code:
                return int(partition.error_code)
            data = bytes(partition.records)
            if not data:
                return values
            for position, header in iter_headers(data):
                values += [record.value or b"" for record in iter_records(data[position : position + header.size])]
                offset = header.next_offset

    async def metadata(self, name: str) -> list[Any]:
        answer = await self.client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]), 8)
        return sorted(answer.topics[0].partitions, key=lambda partition: partition.partition_index)

    async def move(self, name: str, index: int, target: Path | str) -> int:
        """The error code."""
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[index])
        where = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(target), topics=[topic])
        answer = await self.client.ask(AlterReplicaLogDirsRequest(dirs=[where]), 2)
        return int(answer.results[0].partitions[0].error_code)

    async def places(self, name: str, index: int) -> list[tuple[str, int, bool]]:
        """(directory's name, lag, is a copy) of each log of a partition."""
        topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[index])
        answer = await self.client.ask(DescribeLogDirsRequest(topics=[topic]), 4)
        return [
            (Path(result.log_dir).name, partition.offset_lag, partition.is_future_key)
            for result in answer.results
            for found in result.topics
            for partition in found.partitions
        ]

    async def throttle(self, bytes_per_second: int) -> None:
        """How fast partitions may be moved."""
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="replica.alter.log.dirs.io.max.bytes.per.second", value=str(bytes_per_second)
        )
        brokers = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name="", configs=[change]
        )
        answer = await self.client.ask(IncrementalAlterConfigsRequest(resources=[brokers]), 1)
        assert answer.responses[0].error_code == E.NONE

    async def until_moved(self, name: str, index: int) -> None:
        while len(await self.places(name, index)) > 1:  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def until_told(self, name: str, index: int) -> None:
        """The controller has heard that the partition has no replica any more."""
        await self.broker.services.cluster.image_until(lambda image: image.partition(name, index).leader == -1)


def fetch(name: str, index: int, offset: int, max_wait_ms: int) -> FetchRequest:
    asked = FetchRequest.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    topic = FetchRequest.FetchTopic(topic=name, partitions=[asked])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])


@asynccontextmanager
async def two_dirs(
    tmp_path: Path, disk: FaultyDisk | None = None, *, seed: int = 0, **settings: str
) -> AsyncIterator[World]:
    """seed: of what shall be different from one life of the broker to the next: ids of topics, names of directories."""
    disk = disk or FaultyDisk()
    a, b = tmp_path / "a", tmp_path / "b"
    with trio.fail_after(1000):
        async with (
            embedded_broker(log_dirs=f"{a},{b}", disk=disk, seed=seed, **settings) as broker,
            connected(broker) as client,
        ):  # type: ignore[arg-type]
            yield World(broker, client, disk, a, b)
