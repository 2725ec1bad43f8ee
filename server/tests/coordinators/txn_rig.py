"""A coordinator of transactions over real partitions on disk, under a virtual clock, with everything else in the
test's hands: what partitions answer to markers, who leads what, what other brokers say, whether there are producer ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.replication import TRANSACTION_STATE_TOPIC, BrokerImage, Endpoint, PartitionImage, StoreError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.transactions import TransactionCoordinator
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, FakeProducerIds, data_world

TOPIC = TRANSACTION_STATE_TOPIC
E = ErrorCode
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Token:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def reply(self, response: Any) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer


def written(request: WriteTxnMarkersRequest, code: ErrorCode = E.NONE) -> WriteTxnMarkersResponse:
    """The answer of a broker that treats all partitions alike."""
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topics = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
    partitions = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            result(
                producer_id=marker.producer_id,
                topics=[
                    topics(
                        name=topic.name,
                        partitions=[partitions(partition_index=i, error_code=code) for i in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class TxnRig:
    """`transactions` on the partitions of `world`. `round` ends a round of the reactor.

    markers: (producer id, epoch, commit, coordinator epoch, (topic, partition)) as they came to this broker. hold: keep
    their answers back, in `held`, until the test gives them. code: what they are answered. stored: how many
    partitions topics have, for the store.
    """

    def __init__(self, world: DataWorld, **settings: str) -> None:
        self.world = world
        self.config = BrokerConfig.from_values({key.replace("_", "."): value for key, value in settings.items()})
        self.timers = Timers()
        self.producer_ids = FakeProducerIds()
        self.level = 0
        self.stored: dict[str, int | StoreError | None] = {}
        self.markers: list[tuple[int, int, bool, int, tuple[str, int]]] = []
        self.code = E.NONE
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.created: list[str] = []
        self.connections: Any = None
        self.nursery: trio.Nursery | None = None
        self.transactions = self.new_transactions()

    def new_transactions(self) -> TransactionCoordinator:
        ground = CoordinatorGround(
            self.world.partitions,
            self.timers,
            current_image=lambda: self.world.image,
            current_config=lambda: self.config,
            create_topic=self._create_topic,
            now=trio.current_time,
            wall_ms=lambda: NOW + round(trio.current_time() * 1000),
        )
        return TransactionCoordinator(
            ground,
            next_producer_id=self.producer_ids.next_id,
            write_markers=self._write_markers,
            connect=lambda endpoint: self.connections(endpoint),
            partition_count=self._partition_count,
            transaction_version=lambda: self.level,
        )

    async def _partition_count(self, topic: str) -> int | None:
        await trio.lowlevel.checkpoint()
        told = self.stored.get(topic, 0)
        if isinstance(told, StoreError):
            raise told
        return told

    async def _create_topic(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append(name)

    def _write_markers(self, request: WriteTxnMarkersRequest, token: Any) -> None:
        for each in request.markers:
            for topic in each.topics:
                for index in topic.partition_indexes:
                    what = (each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch)
                    self.markers.append((*what, (topic.name, index)))
        answer = written(request, self.code)
        if self.hold:
            self.held.append(lambda: token.reply(answer))
        else:
            token.reply(answer)

    def topic(self, partitions: int = 1) -> None:
        for partition in self.world.topic(TOPIC, partitions, cleanup_policy="compact"):
            self.transactions.lead(partition)

    @property
    def partition(self) -> Any:
        return self.world.partitions.get(TOPIC, 0)

    def brokers(self, *ids: int) -> None:
        """Who is alive, this broker (0) and others."""
        brokers = {i: BrokerImage(i, (Endpoint("PLAINTEXT", f"broker{i}", 9092, "PLAINTEXT"),)) for i in ids}
        self.world.image = dataclasses.replace(self.world.image, brokers=brokers)

    def isr(self, *isr: int, epoch: int = 0) -> None:
        """Followers of the only partition come and go; with any, nothing is committed here."""
        self.partition.lead(PartitionImage(0, 0, epoch, epoch, (0, 1, 2), isr))

    def round(self) -> None:
        self.world.partitions.write_staged()

    async def settle(self) -> None:
        self.round()
        await trio.testing.wait_all_tasks_blocked()

    async def restart(self) -> None:
        """A new coordinator over the same partitions, as after a start of the broker; loaded when this returns, if that
        is possible.
        """
        assert self.nursery is not None
        for index in list(self.transactions.runtime.shards):
            self.transactions.resign(index)
        self.transactions = self.new_transactions()
        for partition in self.world.partitions:
            if partition.topic == TOPIC:
                self.transactions.lead(partition)
        self.nursery.start_soon(self.transactions.run)
        await trio.testing.wait_all_tasks_blocked()

    # -- what clients ask --------------------------------------------------------------------------

    def ask_init(self, name: str = "x", *, timeout_ms: int = 60_000, version: int = 4) -> Token:
        token = Token()
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        self.transactions.init_producer_id(request, version, token)
        return token

    async def init(self, name: str = "x", *, timeout_ms: int = 60_000) -> tuple[int, int]:
        """(producer id, epoch)."""
        token = self.ask_init(name, timeout_ms=timeout_ms)
        await self.settle()
        assert token.answer.error_code == E.NONE
        return token.answer.producer_id, token.answer.producer_epoch

    def add(self, who: tuple[int, int], *partitions: tuple[str, int], name: str = "x", version: int = 3) -> Token:
        token = Token()
        topics = [_Topic(name=topic, partitions=[index]) for topic, index in partitions]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=topics,
            )
        else:
            request = AddPartitionsToTxnRequest(
                transactions=[
                    _Transaction(transactional_id=name, producer_id=who[0], producer_epoch=who[1], topics=topics)
                ]
            )
        self.transactions.add_partitions(request, version, token)
        return token

    def added(self, token: Token) -> list[int]:
        """The errors of an answer to `add`, of version 3."""
        topics = token.answer.results_by_topic_v3_and_below
        return [each.partition_error_code for topic in topics for each in topic.results_by_partition]

    def add_offsets(self, who: tuple[int, int], group: str, name: str = "x") -> Token:
        token = Token()
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=group
        )
        self.transactions.add_offsets(request, 3, token)
        return token

    def end(self, who: tuple[int, int], commit: bool = True, *, name: str = "x", version: int = 4) -> Token:
        token = Token()
        request = EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit)
        self.transactions.end(request, version, token)
        return token

    def state(self, name: str = "x") -> str:
        """The state by DescribeTransactions, or the name of the error."""
        try:
            told = self.transactions.describe(name)
        except KafkaError as error:
            return error.code.name
        return told.transaction_state or ErrorCode(told.error_code).name

    async def ongoing(self, *partitions: tuple[str, int], timeout_ms: int = 60_000) -> tuple[int, int]:
        """A producer with an open transaction."""
        who = await self.init(timeout_ms=timeout_ms)
        token = self.add(who, *(partitions or (("t", 0),)))
        self.round()
        assert not any(self.added(token))
        return who


@asynccontextmanager
async def txn_rig(directory: Path, **settings: str) -> AsyncIterator[TxnRig]:
    with data_world(directory) as world:
        made = TxnRig(world, **settings)
        async with trio.open_nursery() as nursery:
            made.nursery = nursery
            nursery.start_soon(made.timers.run)
            nursery.start_soon(made.transactions.run)
            await trio.testing.wait_all_tasks_blocked()
            made.brokers(0)
            world.topic("t", 3)
            yield made
            nursery.cancel_scope.cancel()
