"""Transactions of three brokers in one process, under a mock clock: coordinators and leaders of partitions come and go,
and consumers that read what is committed see every committed record once and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from barnabas.kproto.records import ABORT, Record, build_batch, check_batch, iter_records, parse_control_record
from barnabas.replication import TRANSACTION_STATE_TOPIC
from barnabas.server.testing import START_OF_VIRTUAL_TIME, EmbeddedCluster
from barnabas.server.tests.whole.cluster_users import RETRIABLE, RETRY_S, E, User, three_brokers

PARTITIONS = 3
LOOK_S = 0.5


class Producer(User):
    """A transactional producer of the old kind (transaction.version 0 and 1) that does not give up."""

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        super().__init__(cluster)
        self.name = name
        self.id = self.epoch = -1
        self.sequences = [0] * PARTITIONS

    async def home(self) -> int:
        """The coordinator, according to any broker."""
        while True:
            for broker_id in self.cluster.running:
                try:
                    answer = await self.ask(broker_id, FindCoordinatorRequest(key=self.name, key_type=1), 3)
                except (EOFError, trio.BrokenResourceError):
                    continue
                if answer.error_code == E.NONE and answer.node_id in self.cluster.running:
                    return answer.node_id  # type: ignore[no-any-return]
                if answer.error_code:
                    self._retry(answer.error_code)
            await trio.sleep(RETRY_S)

    async def _ask_home(self, request: Any, version: int, code_of: Any) -> Any:
        """Until it is done."""
        while True:
            try:
                answer = await self.ask(await self.home(), request, version)
            except (EOFError, trio.BrokenResourceError):
                continue
            code = code_of(answer)
            if code == E.NONE:
                return answer
            if code != E.CONCURRENT_TRANSACTIONS:
                self._retry(code)
            await trio.sleep(RETRY_S)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = await self._ask_home(request, 4, lambda answer: answer.error_code)
        self.id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, [0] * PARTITIONS

    async def add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS)))
            ],
        )
        await self._ask_home(
            request,
            3,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def write(self, value: bytes) -> None:
        """A record in each partition."""
        for index in range(PARTITIONS):
            records = build_batch(
                [Record(0, round((START_OF_VIRTUAL_TIME + trio.current_time()) * 1000), None, value, [])],
                producer_id=self.id,
                producer_epoch=self.epoch,
                base_sequence=self.sequences[index],
                transactional=True,
            )
            request = ProduceRequest(
                transactional_id=self.name,
                acks=-1,
                timeout_ms=5000,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)]
                    )
                ],
            )
            self.sequences[index] += 1
            while True:
                leader = await self.cluster.leader("t", index)
                try:
                    answer = (await self.ask(leader, request, 9)).responses[0].partition_responses[0]
                except (EOFError, trio.BrokenResourceError):
                    continue
                if answer.error_code == E.NONE:
                    break
                self._retry(answer.error_code)
                await trio.sleep(RETRY_S)

    async def end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        await self._ask_home(request, 3, lambda answer: answer.error_code)

    async def state(self) -> str:
        answer = await self._ask_home(
            DescribeTransactionsRequest(transactional_ids=[self.name]),
            0,
            lambda answer: answer.transaction_states[0].error_code,
        )
        return answer.transaction_states[0].transaction_state  # type: ignore[no-any-return]


async def sees(cluster: EmbeddedCluster, expected: list[bytes]) -> None:
    """Wait until a consumer of committed records sees these in each partition, and no transaction is open there."""
    for index in range(PARTITIONS):
        seen: object = None
        with trio.move_on_after(120):
            while seen != expected:
                await trio.sleep(LOOK_S)
                seen = await committed(cluster, index)
        assert seen == expected


async def committed(cluster: EmbeddedCluster, index: int) -> list[bytes | None] | None:
    """All that a consumer of committed records sees in a partition; None while a transaction is open there."""
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    answer = await User(cluster).ask(await cluster.leader("t", index), request, 11)
    found = answer.responses[0].partitions[0]
    if found.error_code != E.NONE or found.last_stable_offset < found.high_watermark:
        return None
    aborted = sorted(found.aborted_transactions or (), key=lambda each: each.first_offset)
    values: list[bytes | None] = []
    aborting: set[int] = set()
    view = memoryview(found.records or b"")
    while view:
        size = 12 + int.from_bytes(view[8:12], "big")
        header = check_batch(view[:size])
        while aborted and aborted[0].first_offset <= header.last_offset:
            aborting.add(aborted.pop(0).producer_id)
        if header.is_control:
            (record,) = iter_records(view[:size])
            if parse_control_record(record)[0] == ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values.extend(record.value for record in iter_records(view[:size]))
        view = view[size:]
    return values


@asynccontextmanager
async def producing(**settings: str) -> AsyncIterator[tuple[EmbeddedCluster, Producer]]:
    async with three_brokers(transaction_state_log_num_partitions="1", **settings) as cluster:
        producer = Producer(cluster, "x")
        await producer.topic("t", PARTITIONS)
        await producer.init()
        yield cluster, producer


async def come_back(cluster: EmbeddedCluster, broker_id: int) -> None:
    await cluster.start(broker_id)
    await cluster.all_alive()
    for topic, count in (("t", PARTITIONS), (TRANSACTION_STATE_TOPIC, 1)):
        for index in range(count):
            await cluster.partition_until(topic, index, lambda partition: len(partition.isr) == 3)


MOMENTS = [
    ("before", "coordinator"),
    ("open", "leader"),
    ("written", "coordinator"),
    ("ended", "coordinator"),
    ("ended", "leader"),
]


async def test_transactions_survive_their_brokers(autojump_clock: MockClock) -> None:
    """A broker is killed before, in, and after a transaction, and with its markers under way."""
    async with producing() as (cluster, producer):
        expected = []
        for turn, (moment, who) in enumerate(MOMENTS):
            gone = await producer.home() if who == "coordinator" else await cluster.leader("t", 0)
            commit = turn % 2 == 0
            if moment == "before":
                await cluster.kill(gone)
            await producer.add()
            if moment == "open":
                await cluster.kill(gone)
            await producer.write(b"%d" % turn)
            if moment == "written":
                await cluster.kill(gone)
            await producer.end(commit)
            if moment == "ended":
                await cluster.kill(gone)
            expected += [b"%d" % turn] * commit
            await sees(cluster, expected)
            await come_back(cluster, gone)
        assert producer.retried <= RETRIABLE
        # The epoch did not move: nobody was fenced by a change of coordinators.
        await producer.init()
        assert producer.epoch == 1


async def test_a_leader_that_is_cut_off_gets_its_marker_when_it_can_be_reached(autojump_clock: MockClock) -> None:
    async with producing(replica_lag_time_max_ms="2000") as (cluster, producer):
        home = await producer.home()
        leader = next(
            broker_id
            for broker_id in [await cluster.leader("t", index) for index in range(PARTITIONS)]
            if broker_id not in (home, cluster.controller())
        )
        await producer.add()
        await producer.write(b"a")
        await cluster.cut(home, leader)
        await producer.end(True)
        await trio.sleep(3)
        assert await producer.state() == "PrepareCommit"
        cluster.heal(home, leader)
        await sees(cluster, [b"a"])
        await trio.sleep(1)
        assert await producer.state() == "CompleteCommit"


async def test_a_producer_that_died_is_aborted_by_the_next_coordinator(autojump_clock: MockClock) -> None:
    async with producing() as (cluster, producer):
        await producer.add()
        await producer.write(b"lost")
        began = trio.current_time()
        await trio.sleep(50)
        gone = await producer.home()
        await cluster.kill(gone)
        await sees(cluster, [])
        assert 58 < trio.current_time() - began < 70
        assert await producer.state() == "CompleteAbort"
