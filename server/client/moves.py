"""Where replicas and leaders are: AlterPartitionReassignments 0-1, ListPartitionReassignments 0 (KIP-455, Apache Kafka
2.4), ElectLeaders 0-2 (KIP-460, 2.2), all of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from barnabas.server.client.client import Client, Job, TopicPartition, raise_failed
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import by_topic

PREFERRED: Final = 0
_WHOLE: Final = ""
"""The item of a request that has none."""

Moves = dict[TopicPartition, "Move"]


class Move(NamedTuple):
    """`replicas`: all that there are while it lasts, those that come and those that go among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)


async def list_moves(client: Client) -> Moves:
    """All moves under way, in order. Raises ClientError."""
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=client.broker_ms)

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Moves | Failed]]:
        if answer.error_code:
            yield _WHOLE, Failed.of(answer.error_code, answer.error_message)
            return
        found = {
            (topic.name, row.partition_index): Move(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in answer.topics
            for row in topic.partitions
        }
        yield _WHOLE, dict(sorted(found.items()))

    job: Job[str, Moves] = Job(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda items, version: request, read)
    return raise_failed("moves", (await client.by_controller([_WHOLE], job))[_WHOLE])


async def move(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Failed | None]:
    """Move partitions to these brokers, the first being their preferred leader; None: call a move off. It has begun
    when this returns, not ended. Raises ClientError.
    """
    timeout_ms = client.broker_ms

    def make(items: list[TopicPartition], version: int) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=topic,
                    partitions=[
                        AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=index, replicas=None if to is None else list(to)
                        )
                        for index in indexes
                        for to in [wanted[topic, index]]
                    ],
                )
                for topic, indexes in by_topic(items).items()
            ],
        )

    def read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Failed | None]]:
        if answer.error_code:
            for item in items:
                yield item, Failed.of(answer.error_code, answer.error_message)
            return
        for topic in answer.responses:
            for row in topic.partitions:
                failed = Failed.of(row.error_code, row.error_message) if row.error_code else None
                yield (topic.name, row.partition_index), failed

    job: Job[TopicPartition, Failed | None] = Job(ApiKey.ALTER_PARTITION_REASSIGNMENTS, make, read)
    return await client.by_controller(wanted, job, repeatable=False)


async def elect_preferred(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Failed | None]:
    """Have the first of its replicas lead each partition; ELECTION_NOT_NEEDED where it does. Raises ClientError."""
    timeout_ms = client.broker_ms

    def make(items: list[TopicPartition], version: int) -> ElectLeadersRequest:
        return ElectLeadersRequest(
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(items).items()
            ],
            timeout_ms=timeout_ms,
            **({"election_type": PREFERRED} if version >= 1 else {}),
        )

    def read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Failed | None]]:
        if getattr(answer, "error_code", 0):
            for item in items:
                yield item, Failed.of(answer.error_code)
            return
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                failed = Failed.of(row.error_code, row.error_message) if row.error_code else None
                yield (topic.topic, row.partition_id), failed

    job: Job[TopicPartition, Failed | None] = Job(ApiKey.ELECT_LEADERS, make, read)
    return await client.by_controller(partitions, job)
