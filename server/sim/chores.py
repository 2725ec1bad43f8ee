"""What administrators do while disks fail: make a topic, delete records from it, and let retention remove segments.

What was acknowledged, and was not asked to be deleted, is there at the end, at its offset.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DeleteRecordsRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.server.broker.broker import Broker
from barnabas.server.sim.checks import log_bytes
from barnabas.server.sim.client import Client, Gone
from barnabas.server.sim.load import create_topic

SETTINGS = {"log.retention.check.interval.ms": "700", "log.initial.task.delay.ms": "500"}
"""Of brokers whose disks fail: retention has several rounds."""
TOPIC = "made"
KEY = (TOPIC, 0)
PAUSE_S = 0.3
TIMEOUT_MS = 3000


class Chores:
    """See the module. replicas: of the topic's partition."""

    def __init__(self, client: Client, replicas: list[int]) -> None:
        self._client = client
        self._replicas = replicas
        self._acknowledged: dict[int, bytes] = {}
        self._deleted_to = 0
        self.done = False

    def __repr__(self) -> str:
        return f"chores ({len(self._acknowledged)} records, deleted to {self._deleted_to})"

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until it is over."""
        client = self._client
        await create_topic(client, TOPIC, [self._replicas], segment_bytes="400")
        number = 0
        while not is_over():
            await trio.sleep(client.rng.uniform(0, PAUSE_S))
            try:
                leader = await client.leader(*KEY)
                is_served = await self._produce(leader, b"%d" % number)
                number += 1
                if is_served and number % 7 == 0:
                    is_served = await self._delete(leader)
            except Gone:
                is_served = False
            if not is_served:
                await client.pause()
                await client.refresh()
        self.done = True

    async def _produce(self, leader: int, value: bytes) -> bool:
        wall_ms = int(self._client.world.wall_clock() * 1000)
        batch = bytes(build_batch([Record(timestamp=wall_ms, value=value * 40)]))
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        answer = (await self._client.ask_broker(leader, request, 8)).responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self._acknowledged[answer.base_offset] = value * 40
        return bool(answer.error_code == ErrorCode.NONE)

    async def _delete(self, leader: int) -> bool:
        offsets = sorted(self._acknowledged)
        offset = offsets[len(offsets) * 3 // 4]
        self._deleted_to = max(self._deleted_to, offset)  # whatever is answered, it may have been done
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._client.ask_broker(leader, request, 1)
        return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)

    def check(self, brokers: dict[int, Broker]) -> None:
        """At the end, when all replicas are in sync."""
        world = self._client.world
        for broker_id, broker in brokers.items():
            found: dict[int, bytes | None] = {}
            data = log_bytes(broker, KEY)
            for position, header in iter_headers(data):
                for record in iter_records(data[position : position + header.size]):
                    found[record.offset] = record.value
            for offset, value in self._acknowledged.items():
                if offset >= self._deleted_to and found.get(offset) != value:
                    world.violation(f"{TOPIC}-0 on broker {broker_id} lacks the record at {offset}")
                    return
