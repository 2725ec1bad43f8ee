"""What clients of the transaction coordinator see on the wire, by version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MetadataRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import topic

E = ErrorCode


class Asker:
    """A client of one broker that has topic `t`."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.ask = client.ask

    async def coordinator(self, version: int = 4) -> Any:
        key: dict[str, Any] = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
        while True:
            answer = await self.ask(FindCoordinatorRequest(key_type=1, **key), version)
            told = answer if version < 4 else answer.coordinators[0]
            if told.error_code == E.NONE:
                return told
            assert told.error_code == E.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.1)

    async def init(self, version: int = 4, **fields: Any) -> Any:
        request = {"transactional_id": "x", "transaction_timeout_ms": 60_000, **fields}
        return await self.ask(InitProducerIdRequest(**request), version)

    async def add(self, producer_id: int, epoch: int, version: int = 3, topic: str = "t") -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        answer = await self.ask(request, version)
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def end(self, producer_id: int, epoch: int, version: int = 3, commit: bool = True) -> Any:
        request = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=commit)
        return await self.ask(request, version)


@asynccontextmanager
async def asker(directory: Path | None = None, **settings: str) -> AsyncIterator[Asker]:
    settings = {"transaction_state_log_num_partitions": "2", **settings}
    async with embedded_broker(directory, **settings) as broker, connected(broker) as client:  # type: ignore[arg-type]
        await topic(broker)
        yield Asker(broker, client)


@pytest.mark.parametrize("version", range(1, 7))
async def test_the_coordinator_is_found_and_its_topic_made(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with asker() as a:
        assert (await a.init()).error_code == E.NOT_COORDINATOR
        told = await a.coordinator(version)
        host, port = a.broker.bootstrap.split(":")
        assert (told.host, told.port) == (host, int(port))
        metadata = await a.ask(MetadataRequest(topics=None), 12)
        made = next(each for each in metadata.topics if each.name == "__transaction_state")
        assert (made.is_internal, len(made.partitions)) == (True, 2)
        config = a.broker.services.image.topics["__transaction_state"].config
        assert config == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }


async def test_what_is_wrong_with_a_request(autojump_clock: trio.testing.MockClock) -> None:
    async with asker(transaction_max_timeout_ms="60000") as a:
        await a.coordinator()
        assert (await a.init(transactional_id="")).error_code == E.INVALID_REQUEST
        assert (await a.init(producer_id=5)).error_code == E.INVALID_REQUEST
        assert (await a.init(transaction_timeout_ms=0)).error_code == E.INVALID_TRANSACTION_TIMEOUT
        assert (await a.init(transaction_timeout_ms=60_001)).error_code == E.INVALID_TRANSACTION_TIMEOUT
        producer = await a.init()
        assert await a.add(producer.producer_id + 1, 0) == E.INVALID_PRODUCER_ID_MAPPING
        assert await a.add(producer.producer_id, 0, topic="none") == E.UNKNOWN_TOPIC_OR_PARTITION
        assert (await a.end(producer.producer_id, 0)).error_code == E.INVALID_TXN_STATE


async def test_a_fenced_producer_gets_the_error_of_its_version(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        first = await a.init()
        second = await a.init()
        assert (first.producer_id, first.producer_epoch + 1) == (second.producer_id, second.producer_epoch)
        late = (first.producer_id, first.producer_epoch - 1)
        old = (first.producer_id, first.producer_epoch)
        for version in range(6):
            if version < 4:
                fenced = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
                assert await a.add(*old, version=version) == fenced
            assert (await a.end(*old, version=version)).error_code == (
                E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
            )
            if version < 5:
                request = AddOffsetsToTxnRequest(
                    transactional_id="x", producer_id=old[0], producer_epoch=old[1], group_id="g"
                )
                answer = await a.ask(request, version)
                assert answer.error_code == (E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED)
            if version >= 3:
                answer = await a.init(version, producer_id=old[0] + 1, producer_epoch=late[1] + 1)
                assert answer.error_code == (E.INVALID_PRODUCER_EPOCH if version < 4 else E.PRODUCER_FENCED)


async def test_the_end_of_version_5_returns_the_next_epoch(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        producer = await a.init()
        assert await a.add(producer.producer_id, 0) == E.NONE
        ended = await a.end(producer.producer_id, 0, version=5)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (E.NONE, producer.producer_id, 1)
        again = await a.end(producer.producer_id, 0, version=5)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (E.NONE, producer.producer_id, 1)


async def test_a_broker_that_stopped_with_markers_under_way_sends_them_when_it_is_back(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Its logs are opened a few at a time, and the image comes last: by then the coordinator has loaded its state."""
    async with asker(tmp_path, num_partitions="40") as a:
        await a.coordinator()
        producer = await a.init()
        assert await a.add(producer.producer_id, 0) == E.NONE
        a.broker.services.markers.write = lambda request, token: None  # type: ignore[method-assign]
        assert (await a.end(producer.producer_id, 0)).error_code == E.NONE
        assert a.broker.services.transactions.unmarked == 1
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        await trio.sleep(1)
        partition = broker.services.partitions.get("t", 0)
        assert partition.log_end_offset == 1
        told = await client.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        assert told.transaction_states[0].transaction_state == "CompleteCommit"


async def test_administrators_see_transactions(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        producer = await a.init()
        assert await a.add(producer.producer_id, 0) == E.NONE
        told = await a.ask(DescribeTransactionsRequest(transactional_ids=["x", "y", ""]), 0)
        open_one, unknown, empty = told.transaction_states
        assert (unknown.error_code, unknown.transactional_id) == (E.TRANSACTIONAL_ID_NOT_FOUND, "y")
        assert empty.error_code == E.INVALID_REQUEST
        assert (open_one.error_code, open_one.transaction_state) == (E.NONE, "Ongoing")
        assert (open_one.transaction_timeout_ms, open_one.producer_id) == (60_000, producer.producer_id)
        assert [(each.topic, each.partitions) for each in open_one.topics] == [("t", [0])]

        async def listed(version: int, **filters: Any) -> list[str]:
            answer = await a.ask(ListTransactionsRequest(**filters), version)
            assert answer.error_code == E.NONE
            return [each.transactional_id for each in answer.transaction_states]

        await trio.sleep(1)
        assert await listed(0) == ["x"]
        assert await listed(0, state_filters=["Empty"]) == []
        assert await listed(1, duration_filter=900) == ["x"]
        assert await listed(1, duration_filter=60_000) == []
        assert await listed(2, transactional_id_pattern="[w-z]") == ["x"]
        assert await listed(2, transactional_id_pattern="") == ["x"]
        assert await listed(2, transactional_id_pattern="xx?y") == []
        answer = await a.ask(ListTransactionsRequest(transactional_id_pattern="(x"), 2)
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
