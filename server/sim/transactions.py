"""Transactional clients of the simulated cluster: producers with their zombies, and read_committed consumers.

A `Transactor` is a transactional id. Each of its lives gets a producer id, and makes one transaction after the other:
records for some partitions, perhaps an offset of a group, then commit or abort. An error that is not retriable, or
lasts too long, ends the life, as the application would end; the next one takes over its id. Chance ends lives too, in
the middle of a transaction; then the old producer may continue for a while as a zombie, and may try to commit.

With `transaction.version` 2 it does as Java 4 does: Produce 12 adds partitions by itself, EndTxn 5 brings the next
epoch. Without, it sends AddPartitionsToTxn and AddOffsetsToTxn, as older clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchResponse,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
)
from barnabas.kproto.records import ABORT, Record, build_batch, iter_headers, iter_records, parse_control_record
from barnabas.server.sim.checks import TopicPartition
from barnabas.server.sim.client import Client, Gone
from barnabas.server.sim.ledger import Entry, Fate, Ledger, Transaction
from barnabas.server.sim.reading import READ_COMMITTED, read

TRANSACTIONAL = 1
"""The kind of key that FindCoordinator calls a transactional id."""
TIMEOUT_S = 4.0
"""The transactions' own."""
PATIENCE_S = 12.0
"""How long a life tries one thing."""
_AGAIN = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
_REFUSALS = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)


class LifeEnds(Exception):
    """Something is not well: begin again with InitProducerId."""


async def finalise(client: Client, feature: str, level: int) -> bool:
    """Ask the controller for a feature level; whether it agrees."""
    request = UpdateFeaturesRequest(
        timeout_ms=5000,
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1)
        ],
    )
    response = await client.ask_controller(request, 1, lambda each: each.error_code == ErrorCode.NOT_CONTROLLER)
    return bool(response.error_code == ErrorCode.NONE)


class Transactor:
    """See the module. keys: partitions it writes to; `group`: where its transactions commit offsets."""

    def __init__(
        self, client: Client, ledger: Ledger, name: str, keys: list[TopicPartition], *, version: int, pause_s: float
    ) -> None:
        self.client = client
        self.ledger = ledger
        self.name = name
        self.keys = keys
        self.version = version
        self.done = False
        self._pause_s = pause_s
        self._lives = 0
        self._zombies = 0

    def __repr__(self) -> str:
        return f"{self.name} (life {self._lives})"

    @property
    def group(self) -> str:
        return f"group-of-{self.name}"

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Make transactions until it is over."""
        while not is_over():
            self._lives += 1
            life = _Life(self, self._lives)
            try:
                await life.initialise()
                while not is_over():
                    await trio.sleep(self.client.rng.expovariate(1 / self._pause_s))
                    if await life.transact():
                        continue
                    if self.client.rng.random() < 0.5 and self._zombies < 3:
                        self._zombies += 1
                        self.client.world.nursery.start_soon(self._zombie, life)
                    break
            except LifeEnds as why:
                self.client.world.note(f"{self.name}: life {self._lives} ends: {why}")
            await self.client.pause()
        self.done = True

    async def _zombie(self, life: _Life) -> None:
        try:
            await trio.sleep(self.client.rng.choice((0.0, 0.5, 3.0, 8.0)))
            await life.go_on()
        except LifeEnds:
            pass
        finally:
            self._zombies -= 1

    @property
    def has_zombies(self) -> bool:
        return self._zombies > 0

    async def group_offset(self) -> int:
        """What its transactions committed, asked until it is stable; -1 for nothing."""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(
                    group_id=self.group,
                    topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=self.keys[0][0], partition_indexes=[0])],
                )
            ],
            require_stable=True,
        )
        client = self.client
        while True:
            try:
                response = await client.ask_broker(await client.coordinator(self.group), request, 8)
                found = response.groups[0]
                if not found.error_code and not found.topics[0].partitions[0].error_code:
                    return int(found.topics[0].partitions[0].committed_offset)
            except Gone:
                pass
            await client.pause()


class _Life:
    """A producer from its InitProducerId on."""

    def __init__(self, transactor: Transactor, number: int) -> None:
        self._of = transactor
        self._client = transactor.client
        self._ledger = transactor.ledger
        self._number = number
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._coordinators: dict[tuple[str, int], int] = {}
        self._transaction: Transaction | None = None

    # -- asking ------------------------------------------------------------------------------------------------------

    async def _ask(
        self, what: str, request: Any, version: int, code_of: Callable[[Any], int], key: str, kind: int = TRANSACTIONAL
    ) -> Any:
        """Send a request to the coordinator of `key` until there is a response. Raises LifeEnds, whose second argument
        says whether it may have been carried out nevertheless.
        """
        client = self._client
        until = client.world.now + PATIENCE_S
        unknown = False
        while client.world.now < until:
            with trio.move_on_after(PATIENCE_S) as scope:
                try:
                    if (key, kind) not in self._coordinators:
                        self._coordinators[key, kind] = await client.coordinator(key, kind)
                    sent_at = client.world.now
                    response = await client.ask_broker(self._coordinators[key, kind], request, version)
                    code = code_of(response)
                    if code == ErrorCode.NONE:
                        self._ledger.confirmed(what, self._of.name, self._number, sent_at)
                        return response
                    self._look_at(what, code)
                    if code not in _AGAIN:
                        raise LifeEnds(f"{what}: {ErrorCode(code).name}", unknown)
                    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        # Its record may be on another broker, which may lead next.
                        unknown = True
                        self._coordinators.clear()
                except Gone:
                    unknown = True
                    self._coordinators.clear()
            unknown = unknown or scope.cancelled_caught
            await client.pause()
        raise LifeEnds(f"{what}: out of patience", True)

    def _look_at(self, what: str, code: int) -> None:
        if code not in _AGAIN and code not in _REFUSALS:
            self._client.world.violation(f"{what} of {self._of.name} is refused with {ErrorCode(code).name}")

    async def initialise(self) -> None:
        """Take the transactional id over."""
        request = InitProducerIdRequest(
            transactional_id=self._of.name, transaction_timeout_ms=int(TIMEOUT_S * 1000), producer_id=-1
        )
        response = await self._ask("InitProducerId", request, 3, lambda each: int(each.error_code), self._of.name)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._ledger.initialised(self._of.name, self._number)

    # -- a transaction -----------------------------------------------------------------------------------------------

    async def transact(self) -> bool:
        """One transaction; False if chance ended it in the middle. Raises LifeEnds."""
        rng, self._added = self._client.rng, set()
        transaction = self._transaction = self._ledger.begin(self._of.name)
        for _ in range(rng.randint(1, 4)):
            await self._produce(rng.choice(self._of.keys), rng.choice((1, 1, 3)))
            if rng.random() < 0.04:
                return False
            if rng.random() < 0.1:
                await trio.sleep(rng.choice((0.2, 1.0, TIMEOUT_S * 0.9)))
        if rng.random() < 0.3:
            await self._commit_offset(transaction)
            if rng.random() < 0.05:
                return False
        await self._end(commit=rng.random() < 0.75)
        return True

    async def go_on(self) -> None:
        """What a zombie does: some more records, and the commit."""
        for _ in range(self._client.rng.randint(0, 2)):
            await self._produce(self._client.rng.choice(self._of.keys), 1)
        await self._end(commit=True)

    async def _produce(self, key: TopicPartition, count: int) -> None:
        if self._of.version < 2 and key not in self._added:
            await self._add(key)
        self._added.add(key)
        assert self._transaction is not None
        client, sequence = self._client, self._sequences.get(key, 0)
        wall_ms = int(client.world.wall_clock() * 1000)
        entries = [self._transaction.entry(key) for _ in range(count)]
        data = build_batch(
            [Record(timestamp=wall_ms, value=entry.encode()) for entry in entries],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._sequences[key] = sequence + count
        request = ProduceRequest(
            transactional_id=self._of.name,
            acks=-1,
            timeout_ms=2000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=key[0],
                    partition_data=[ProduceRequest.PartitionProduceData(index=key[1], records=bytes(data))],
                )
            ],
        )
        until = client.world.now + PATIENCE_S
        while client.world.now < until:
            with trio.move_on_after(PATIENCE_S):
                try:
                    leader = await client.leader(*key)
                    sent_at = client.world.now
                    response = await client.ask_broker(leader, request, 12 if self._of.version >= 2 else 9)
                    code = response.responses[0].partition_responses[0].error_code
                    if code == ErrorCode.NONE:
                        self._ledger.confirmed(f"Produce to {key}", self._of.name, self._number, sent_at)
                        return
                    self._look_at(f"Produce to {key}", code)
                    if code not in _AGAIN:
                        raise LifeEnds(f"Produce to {key}: {ErrorCode(code).name}", False)
                except Gone:
                    pass
                await client.pause()
                await client.refresh()
        raise LifeEnds(f"Produce to {key}: out of patience", True)

    async def _add(self, key: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._of.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=key[0], partitions=[key[1]])],
        )
        await self._ask(
            f"AddPartitionsToTxn of {key}",
            request,
            3,
            lambda each: int(each.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
            self._of.name,
        )

    async def _commit_offset(self, transaction: Transaction) -> None:
        group = self._of.group
        if self._of.version < 2:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._of.name,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            await self._ask("AddOffsetsToTxn", request, 3, lambda each: int(each.error_code), self._of.name)
        transaction.group_offset = transaction.serial
        commit = TxnOffsetCommitRequest(
            transactional_id=self._of.name,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=self._of.keys[0][0],
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=transaction.serial, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        await self._ask(
            "TxnOffsetCommit",
            commit,
            5 if self._of.version >= 2 else 3,
            lambda each: int(each.topics[0].partitions[0].error_code),
            group,
            0,
        )

    async def _end(self, *, commit: bool) -> None:
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        request = EndTxnRequest(
            transactional_id=self._of.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        if commit:
            transaction.fate = Fate.DOUBT
        version = 5 if self._of.version >= 2 else 3
        try:
            response = await self._ask("EndTxn", request, version, lambda each: int(each.error_code), self._of.name)
        except LifeEnds as why:
            if not why.args[1]:
                transaction.fate = Fate.NONE
            raise
        if commit:
            transaction.fate = Fate.DONE
            self._ledger.confirmed_count += 1
        if version >= 5:
            if (response.producer_id, response.producer_epoch) != (self._producer_id, self._epoch):
                self._sequences.clear()
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch


class CommittedReader:
    """Reads one partition with isolation.level=read_committed from its beginning until cancelled."""

    def __init__(self, client: Client, ledger: Ledger, key: TopicPartition) -> None:
        self._client = client
        self._ledger = ledger
        self._key = key
        self.position = 0

    async def run(self) -> None:
        await read(self._client, self._key, self, READ_COMMITTED)

    def take(self, partition: FetchResponse.PartitionData, records: bytes, leader: int) -> bool:
        """See `Reader`."""
        if partition.error_code:
            return False
        if partition.last_stable_offset > partition.high_watermark:
            self._client.world.violation(
                f"{self._key}: leader {leader} has last stable offset {partition.last_stable_offset} above its high "
                f"watermark {partition.high_watermark}"
            )
        aborted = [(each.first_offset, each.producer_id) for each in partition.aborted_transactions or ()]
        self._take(records, sorted(aborted), partition.last_stable_offset)
        return True

    def _take(self, records: bytes, aborted: list[tuple[int, int]], last_stable_offset: int) -> None:
        """As Apache Kafka's consumer: from the first offset of an aborted transaction on to its marker its producer's
        batches are left out.
        """
        ignored: set[int] = set()
        for position, header in iter_headers(records):
            if position + header.size > len(records):
                break
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(aborted.pop(0)[1])
            if header.is_control:
                for record in iter_records(records, position):
                    if parse_control_record(record)[0] == ABORT:
                        ignored.discard(header.producer_id)
            elif header.producer_id not in ignored:
                for record in iter_records(records, position):
                    if record.offset >= self.position:
                        assert record.value is not None
                        self._ledger.record_shown(self._key, Entry.decode(record.value), record.offset)
            if header.last_offset >= last_stable_offset:
                self._client.world.violation(
                    f"{self._key}: shown up to {header.last_offset}, the last stable offset is {last_stable_offset}"
                )
            self.position = max(self.position, header.next_offset)
