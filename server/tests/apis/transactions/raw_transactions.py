"""A transactional producer that says exactly what a test wants, in the versions it wants, to a broker in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client

E = ErrorCode
NOW_MS = 1_750_000_000_000
OLD, NEW = 9, 12
"""Versions of Produce: the client adds partitions itself; transaction.version 2, where the broker does."""


def batch(value: bytes, who: tuple[int, int], sequence: int = 0, *, transactional: bool = True) -> bytearray:
    return build_batch(
        [Record(0, NOW_MS, None, value, [])],
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(*batches: tuple[str, int, bytearray], transactional_id: str | None = "x", acks: int = -1) -> ProduceRequest:
    """Batches by topic and partition."""
    topics: dict[str, list[Any]] = {}
    for topic, index, records in batches:
        topics.setdefault(topic, []).append(ProduceRequest.PartitionProduceData(index=index, records=bytes(records)))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=60_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data) for topic, data in topics.items()],
    )


def told(response: Any) -> list[ErrorCode | int]:
    """The base offset or the error of each partition."""
    return [
        ErrorCode(each.error_code) if each.error_code else each.base_offset
        for topic in response.responses
        for each in topic.partition_responses
    ]


class Transactions:
    """See the module."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client

    async def ready(self) -> None:
        """Have both coordinators' topics made, and topic `t`."""
        for kind, key in ((1, "x"), (0, "g")):
            while True:
                asked = FindCoordinatorRequest(key_type=kind, key=key)
                if (await self.client.ask(asked, 3)).error_code == E.NONE:
                    break
                await trio.sleep(0.1)
        await self.broker.services.topics.auto_create(["t"])

    async def init(self, name: str = "x") -> tuple[int, int]:
        while True:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            answer = await self.client.ask(request, 4)
            if answer.error_code not in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS):
                break
            await trio.sleep(0.05)
        assert answer.error_code == E.NONE
        return answer.producer_id, answer.producer_epoch

    async def add(self, who: tuple[int, int], *partitions: tuple[str, int], name: str = "x") -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
        )
        answer = await self.client.ask(request, 3)
        for topic in answer.results_by_topic_v3_and_below:
            assert [each.partition_error_code for each in topic.results_by_partition] == [E.NONE]

    async def add_offsets(self, who: tuple[int, int], name: str = "x") -> None:
        request = AddOffsetsToTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id="g")
        assert (await self.client.ask(request, 3)).error_code == E.NONE

    async def end(
        self, who: tuple[int, int], *, commit: bool = True, version: int = 4, name: str = "x"
    ) -> tuple[int, int]:
        """Who goes on."""
        request = EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit)
        answer = await self.client.ask(request, version)
        assert answer.error_code == E.NONE
        await trio.sleep(0.01)  # the markers are written behind the answer
        return (answer.producer_id, answer.producer_epoch) if version >= 5 else who

    async def write(self, request: ProduceRequest, version: int) -> list[ErrorCode | int]:
        return told(await self.client.ask(request, version))

    async def read(self, index: int = 0, *, committed: bool = True) -> list[bytes]:
        """The values of a partition of `t`."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[
                FetchRequest.FetchTopic(
                    topic="t",
                    partitions=[
                        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    ],
                )
            ],
        )
        (answer,) = (await self.client.ask(request, 11)).responses[0].partitions
        aborted = {each.producer_id: each.first_offset for each in answer.aborted_transactions or ()}
        data = bytes(answer.records or b"")
        values = []
        for at, header in iter_headers(data):
            is_aborted = header.base_offset >= aborted.get(header.producer_id, 1 << 62)
            if header.is_control:
                if is_aborted:
                    del aborted[header.producer_id]
            elif not is_aborted:
                records = iter_records(memoryview(data)[at : at + header.size])
                values += [bytes(record.value or b"") for record in records]
        return values

    async def markers(
        self,
        who: tuple[int, int],
        *partitions: tuple[str, int],
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        version: int = 1,
    ) -> list[ErrorCode]:
        """WriteTxnMarkers."""
        request = WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=who[0],
                    producer_epoch=who[1],
                    transaction_result=commit,
                    topics=[
                        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
                        for topic, index in partitions
                    ],
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=transaction_version,
                )
            ]
        )
        answer = await self.client.ask(request, version)
        return [
            ErrorCode(each.error_code)
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        ]

    async def commit_offsets(
        self,
        who: tuple[int, int],
        offsets: dict[tuple[str, int], int],
        version: int,
        *,
        generation: int = -1,
        member_id: str = "",
        group: str = "g",
    ) -> list[ErrorCode]:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=who[0],
            producer_epoch=who[1],
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        answer = await self.client.ask(request, version)
        return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]

    async def offsets(self, *partitions: tuple[str, int], stable: bool = True) -> list[int | ErrorCode]:
        """What group `g` has."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = OffsetFetchRequest(
            group_id="g",
            require_stable=stable,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ],
        )
        answer = await self.client.ask(request, 7)
        return _offsets(each for topic in answer.topics for each in topic.partitions)


def _offsets(partitions: Iterable[Any]) -> list[int | ErrorCode]:
    return [ErrorCode(each.error_code) if each.error_code else each.committed_offset for each in partitions]
