"""The load on the simulated cluster: idempotent producers, consumers, members of a group that commit offsets.

Producers know what Apache Kafka's Java producer knows about sequences: a partition's batches keep their numbers and
their borders without end, at most five are under way, and after trouble all that is not acknowledged is sent again, in
order. They give up in one case only: what was sent before is refused as out of order. A broker that was started again
(or has truncated its log) knows each producer's last batch, not its last five, and so does not know a repeated batch
again, in Apache Kafka too; the records are then given up, their fate being unknown, and a new producer id begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    FetchResponse,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.server.sim.checks import History, Item, TopicPartition
from barnabas.server.sim.client import Client, Gone
from barnabas.server.sim.reading import read

PRODUCE_TIMEOUT_MS = 2000
_RETRIABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


async def create_topic(client: Client, name: str, assignments: list[list[int]], **configs: str) -> None:
    """Create a topic with these replicas; returns when a controller says that it is there."""
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in enumerate(assignments)
                ],
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=5000,
    )
    named = {broker_id for replicas in assignments for broker_id in replicas}
    while True:
        response = await client.ask_controller(
            request, 4, lambda response: response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        )
        code = response.topics[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        # A broker whose disk has failed is gone for a while, and cannot be given a replica meanwhile.
        may_be_gone = code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and not client.is_settled(named)
        if code != ErrorCode.REQUEST_TIMED_OUT and not may_be_gone:
            client.world.violation(f"creating {name}: {ErrorCode(code).name}: {response.topics[0].error_message}")
        await client.pause()


async def producer_id(client: Client) -> int:
    """A new producer id, from any broker."""
    while True:
        try:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await client.ask_broker(client.any_broker(), request, 1)
            if response.error_code == ErrorCode.NONE:
                return int(response.producer_id)
        except Gone:
            pass
        await client.pause()


@dataclass(slots=True)
class _Batch:
    items: list[Item]
    sequence: int
    data: bytes
    sent: int = 0


class Lane:
    """One producer's records for one partition. `window`: most batches under way, 1 to 5. `acks`: 1 or -1."""

    def __init__(
        self,
        client: Client,
        history: History,
        key: TopicPartition,
        name: str,
        *,
        window: int,
        pause_s: float,
        acks: int = -1,
    ) -> None:
        self._client = client
        self._history = history
        self._key = key
        self._window = window
        self._acks = acks
        self._pause_s = pause_s
        self.name = name
        self.producer_id = -1
        self.done = False
        self._number = 0
        self._sequence = 0
        self._gave_up = False
        self._open: list[_Batch] = []

    def __repr__(self) -> str:
        return f"{self.name} ({len(self._open)} batches open)"

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Produce until it is over and everything is acknowledged."""
        client, rng = self._client, self._client.rng
        while True:
            if not self._open:
                await trio.sleep(rng.expovariate(1 / self._pause_s))
                if is_over():
                    break
            if not is_over():
                for _ in range(rng.randint(1, self._window) - len(self._open)):
                    self._add(rng.choice((1, 1, 1, 2, 3)))
            if await self._send():
                continue
            if self._gave_up:
                self._gave_up = False
                self._history.given_up[self._key].update(item for batch in self._open for item in batch.items)
                self._open.clear()
                self._sequence = 0
                self.producer_id = await producer_id(client)
                continue
            await client.pause()
            await client.refresh()
        self.done = True

    def _add(self, count: int) -> None:
        items = [Item(self.name, self._number + i) for i in range(count)]
        wall_ms = int(self._client.world.wall_clock() * 1000)
        data = build_batch(
            [Record(timestamp=wall_ms, value=item.encode()) for item in items],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._open.append(_Batch(items, self._sequence, bytes(data)))
        self._number += count
        self._sequence += count

    async def _send(self) -> bool:
        """Send all that is open, in order, and take the answers; False if something is left to be sent again."""
        topic, index = self._key
        try:
            leader = await self._client.leader(topic, index)
            connection = await self._client.connection(leader)
            answers = []
            for batch in self._open:
                batch.sent += 1
                answers.append(await connection.send(self._request(batch), 8))
            whole = True
            for batch, answer in zip(list(self._open), answers, strict=True):
                response = await self._client.wait(connection, answer)
                partition = response.responses[0].partition_responses[0]
                whole = self._answered(batch, partition.error_code, partition.base_offset, leader, whole) and whole
            return whole
        except Gone:
            return False

    def _answered(self, batch: _Batch, code: int, base_offset: int, leader: int, in_order: bool) -> bool:
        if code == ErrorCode.NONE:
            self._open.remove(batch)
            for number, item in enumerate(batch.items):
                self._history.record_acknowledged(self._key, item, base_offset + number, leader)
            return True
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and in_order and batch.sent > 1:
            self._gave_up = True
            self._client.world.note(f"{batch.items[0]} of {self._key} is given up")
        elif code not in _RETRIABLE and (code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or in_order):
            self._client.world.violation(
                f"{self._key}: leader {leader} refuses {batch.items[0]} with {ErrorCode(code).name}; "
                "all before it was acknowledged"
            )
        return False

    def _request(self, batch: _Batch) -> ProduceRequest:
        topic, index = self._key
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch.data)],
                )
            ],
        )


class Consumer:
    """Reads one partition from its beginning until cancelled; `position`: the next offset."""

    def __init__(self, client: Client, history: History, key: TopicPartition) -> None:
        self._client = client
        self._history = history
        self._key = key
        self.position = 0

    async def run(self) -> None:
        await read(self._client, self._key, self)

    def take(self, partition: FetchResponse.PartitionData, records: bytes, leader: int) -> bool:
        """See `Reader`."""
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._client.world.violation(f"{self._key}: leader {leader} has no offset {self.position} any more")
        if partition.error_code:
            return False
        self._take(records, leader)
        return True

    def _take(self, records: bytes, leader: int) -> None:
        for position, header in iter_headers(records):
            if position + header.size > len(records):
                break  # cut off, which is allowed
            for record in iter_records(records, position):
                if record.offset < self.position:
                    continue
                if record.offset > self.position:
                    self._client.world.violation(f"{self._key}: {leader} shows {record.offset} after {self.position}")
                assert record.value is not None
                self._history.record_shown(self._key, Item.decode(record.value), record.offset, leader)
                self.position = record.offset + 1


class Member:
    """A member of a group that commits rising offsets of a partition of its own, and rejoins after any doubt.

    A commit whose fate is unknown may still be on its way: a new generation keeps it out.
    """

    def __init__(self, client: Client, history: History, group: str, key: TopicPartition, *, pause_s: float) -> None:
        self._client = client
        self._group = group
        self._key = key
        self._pause_s = pause_s
        self._member_id = ""
        self._generation = -1
        self._joins = 0
        self._coordinator = -1
        self.commit = history.commits[(group, *key)]

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._coordinator = await self._client.coordinator(self._group)
            try:
                if await self._join():
                    while not is_over() and await self._commit():
                        await trio.sleep(self._client.rng.expovariate(1 / self._pause_s))
            except Gone:
                pass
            await self._client.pause()

    async def _join(self) -> bool:
        self._joins += 1
        metadata = f"{self._joins}".encode()  # another one each time, so that there is another generation
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=3000,
            member_id=self._member_id,
            protocol_type="sim",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="sim", metadata=metadata)],
        )
        joined = await self._client.ask_broker(self._coordinator, request, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = await self._client.ask_broker(self._coordinator, request, 5)
        if joined.error_code:
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            return False
        self._member_id, self._generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all")
                for member in joined.members
            ],
        )
        synced = await self._client.ask_broker(self._coordinator, sync, 3)
        return bool(synced.error_code == ErrorCode.NONE)

    async def _commit(self) -> bool:
        heartbeat = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        if (await self._client.ask_broker(self._coordinator, heartbeat, 3)).error_code:
            return False  # a rebalance, most likely
        commit = self.commit
        commit.asked += 1
        asked = commit.asked
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=self._key[0],
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=self._key[1], committed_offset=asked, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        response = await self._client.ask_broker(self._coordinator, request, 7)
        if response.topics[0].partitions[0].error_code:
            return False
        commit.confirmed = asked
        return True


async def committed_offset(client: Client, group: str, key: TopicPartition) -> int:
    """What the group's coordinator has, asked until one answers; -1 for nothing."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=key[0], partition_indexes=[key[1]])],
    )
    while True:
        try:
            response = await client.ask_broker(await client.coordinator(group), request, 5)
            partition = response.topics[0].partitions[0] if response.topics else None
            if not response.error_code and partition is not None and not partition.error_code:
                return int(partition.committed_offset)
        except Gone:
            pass
        await client.pause()
