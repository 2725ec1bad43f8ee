"""Three brokers in one process, under a mock clock, and a client that does not give up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.testing import EmbeddedCluster, connected, embedded_cluster

E = ErrorCode
RETRY_S = 0.1
RETRIABLE = {
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.FENCED_LEADER_EPOCH,
}


@asynccontextmanager
async def three_brokers(**settings: str) -> AsyncIterator[EmbeddedCluster]:
    with trio.fail_after(600):
        async with embedded_cluster(3, None, offsets_topic_num_partitions="3", **settings) as cluster:  # type: ignore[arg-type]
            yield cluster


class User:
    """A client of the cluster that looks for its broker again when it is sent away."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.retried: set[ErrorCode] = set()

    async def ask(self, broker_id: int, request: Any, version: int) -> Any:
        async with connected(self.cluster[broker_id]) as client:
            return await client.ask(request, version)

    async def topic(self, name: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        settings = [
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=settings
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = await self.ask(self.cluster.controller(), request, 5)
        assert answer.topics[0].error_code == E.NONE
        for index in range(partitions):
            await self.cluster.leader(name, index)

    async def configure(self, broker_id: int, kind: int, name: str, key: str, value: str) -> None:
        """kind: 2 topic, 4 broker."""
        change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[change]
        )
        answer = await self.ask(broker_id, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == E.NONE

    async def coordinator(self, group: str) -> int:
        """According to any broker."""
        while True:
            for broker_id in self.cluster.running:
                try:
                    answer = await self.ask(broker_id, FindCoordinatorRequest(key=group), 3)
                except (EOFError, trio.BrokenResourceError):
                    continue
                if answer.error_code == E.NONE and answer.node_id in self.cluster.running:
                    return answer.node_id  # type: ignore[no-any-return]
                if answer.error_code:
                    self._retry(answer.error_code)
            await trio.sleep(RETRY_S)

    def _retry(self, code: int) -> None:
        assert code in RETRIABLE, ErrorCode(code)
        self.retried.add(ErrorCode(code))

    async def commit(self, group: str, offset: int, topic: str = "t") -> None:
        """Until it is acknowledged."""
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        )
        while True:
            try:
                answer = await self.ask(await self.coordinator(group), request, 7)
                code = answer.topics[0].partitions[0].error_code
            except (EOFError, trio.BrokenResourceError):
                code = E.NOT_COORDINATOR
            if code == E.NONE:
                return
            self._retry(code)
            await trio.sleep(RETRY_S)

    async def committed(self, group: str, topic: str = "t") -> int:
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        while True:
            try:
                answer = await self.ask(await self.coordinator(group), request, 6)
                code = answer.error_code
            except (EOFError, trio.BrokenResourceError):
                code = E.NOT_COORDINATOR
            if code == E.NONE:
                return answer.topics[0].partitions[0].committed_offset  # type: ignore[no-any-return]
            self._retry(code)
            await trio.sleep(RETRY_S)

    async def produce(self, topic: str, value: bytes, index: int = 0, *, producer_id: int = -1) -> int:
        """With acks=all, until it is acknowledged; the offset."""
        epoch = sequence = -1 if producer_id < 0 else 0
        while True:
            leader = await self.cluster.leader(topic, index)
            records = build_batch(
                [Record(0, 0, None, value, [])],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            request = ProduceRequest(
                acks=-1,
                timeout_ms=5000,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name=topic,
                        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
                    )
                ],
            )
            try:
                answer = (await self.ask(leader, request, 9)).responses[0].partition_responses[0]
            except (EOFError, trio.BrokenResourceError):
                self.retried.add(E.NETWORK_EXCEPTION)
                await trio.sleep(RETRY_S)
                continue
            if answer.error_code == E.NONE:
                return answer.base_offset  # type: ignore[no-any-return]
            self._retry(answer.error_code)
            await trio.sleep(RETRY_S)

    async def end_offset(self, topic: str, index: int = 0) -> int:
        """The high watermark, as a consumer at the leader sees it."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)],
                )
            ],
        )
        answer = await self.ask(await self.cluster.leader(topic, index), request, 11)
        return answer.responses[0].partitions[0].high_watermark  # type: ignore[no-any-return]
