"""A request is gone with its answer: nothing that it was about lies in a cycle until the collector comes by.

The collector of a broker comes by every 50,000 objects, and to what it has seen once much later. A request of 4 MiB in
a cycle stays for minutes, and what is made meanwhile lies behind it in memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio.testing

from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    WriteTxnMarkersRequest,
)
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE
from barnabas.server.testing import connected, embedded_broker

MANY = AT_ONCE + 100


@contextmanager
def left_in_cycles() -> Iterator[Counter[str]]:
    """Filled at the end: how many messages, their parts, contexts of requests, classes and errors the collector had to
    find.
    """
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        for one in gc.garbage:
            if type(one).__module__ == "barnabas.kproto.messages" or isinstance(one, RequestContext | type | Exception):
                found[type(one).__qualname__] += 1
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _requests() -> Iterator[tuple[object, int]]:
    names = [f"id{number}" for number in range(MANY)]
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    yield (
        AddPartitionsToTxnRequest(
            transactions=[
                transaction(transactional_id=name, producer_id=1, producer_epoch=0, verify_only=True, topics=[topic])
                for name in names
            ]
        ),
        4,
    )
    committed = OffsetCommitRequest.OffsetCommitRequestPartition
    yield (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="t", partitions=[committed(partition_index=index, committed_offset=1) for index in range(MANY)]
                )
            ],
        ),
        8,
    )
    gone = OffsetDeleteRequest.OffsetDeleteRequestPartition
    yield (
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name="t", partitions=[gone(partition_index=index) for index in range(MANY)]
                )
            ],
        ),
        0,
    )
    yield (
        WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=number,
                    producer_epoch=0,
                    transaction_result=True,
                    coordinator_epoch=0,
                    topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="u", partition_indexes=[0])],
                )
                for number in range(MANY)
            ]
        ),
        1,
    )
    yield DescribeGroupsRequest(groups=names), 5
    yield (
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)],
            timeout_ms=60_000,
        ),
        5,
    )


async def test_nothing_is_left(autojump_clock: trio.testing.MockClock) -> None:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with embedded_broker(num_partitions=str(MANY), **settings) as broker, connected(broker) as client:
        await broker.services.topics.auto_create(["t", "__consumer_offsets", "__transaction_state"])
        for request, version in _requests():
            await client.ask(request, version)  # what is made on first use may be in cycles
            with left_in_cycles() as found:
                await client.ask(request, version)
                await trio.testing.wait_all_tasks_blocked()
            assert not found, type(request).__name__


async def test_nothing_of_a_wait_for_replicas(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "low_watermark", -1)  # of a replica that is behind
    topic = DeleteRecordsRequest.DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)]
    )
    async with embedded_broker() as broker, connected(broker) as client:
        await broker.services.topics.auto_create(["t"])
        with left_in_cycles() as found:
            answer = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=60_000), 2)
            await trio.testing.wait_all_tasks_blocked()
        assert answer.topics[0].partitions[0].error_code == 7
        assert not found


async def test_a_change_that_the_store_rejects_leaves_no_cycle(autojump_clock: trio.testing.MockClock) -> None:
    """The second to delete a topic finds it marked already."""
    async with embedded_broker() as broker, connected(broker) as one, connected(broker) as other:
        await broker.services.topics.auto_create(["t"])
        with left_in_cycles() as found:
            async with trio.open_nursery() as nursery:
                for client in (one, other):
                    nursery.start_soon(client.ask, DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 4)
            await trio.testing.wait_all_tasks_blocked()
        assert not found
