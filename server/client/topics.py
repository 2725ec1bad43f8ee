"""Topics: list and describe (Metadata), create, delete, add partitions. Changes go to the controller.

A change is asked for once: if the connection breaks after that, whether it was made is not known, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from barnabas.server.client.client import Client, Job
from barnabas.server.client.failures import Failed, Unsupported
from barnabas.server.client.view import TopicView

THE_BROKERS_CHOICE: Final = -1
_PLACED_BY_THE_BROKER: Final = 4
"""The version of CreateTopics from which on the broker has defaults (2.4)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """partitions, replicas: THE_BROKERS_CHOICE, or how many. assignment: brokers by partition, instead of both."""

    name: str
    partitions: int = THE_BROKERS_CHOICE
    replicas: int = THE_BROKERS_CHOICE
    settings: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


async def list_topics(client: Client) -> dict[str, TopicView]:
    """All topics that may be seen, by name. Raises ClientError."""
    view = await client.refresh(None)
    return dict(sorted(view.topics.items()))


async def describe_topics(client: Client, names: Iterable[str]) -> dict[str, TopicView | Failed]:
    """These topics. Raises ClientError."""
    wanted = list(dict.fromkeys(names))
    view = await client.refresh(wanted)
    found: dict[str, TopicView | Failed] = {}
    for name in wanted:
        topic = view.topics.get(name)
        if topic is None or topic.code:
            found[name] = Failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.code, _why(topic))
        else:
            found[name] = topic
    return found


def _why(topic: TopicView | None) -> str | None:
    missing = topic is None or topic.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return "there is no such topic, or it may not be seen" if missing else None


async def create_topics(
    client: Client, topics: Iterable[NewTopic], *, only_check: bool = False
) -> dict[str, int | Failed]:
    """Create topics, and wait until they have leaders; the results are their numbers of partitions (-1: not said).
    Raises ClientError.
    """
    by_name = {topic.name: topic for topic in topics}
    timeout_ms = client.broker_ms

    def make(names: list[str], version: int) -> CreateTopicsRequest:
        rows = []
        for name in names:
            topic = by_name[name]
            if version < _PLACED_BY_THE_BROKER and not topic.assignment and -1 in (topic.partitions, topic.replicas):
                raise Unsupported("brokers before Apache Kafka 2.4 must be told how many partitions and replicas")
            rows.append(_creatable(topic))
        return CreateTopicsRequest(topics=rows, timeout_ms=timeout_ms, validate_only=only_check)

    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, int | Failed]]:
        for row in answer.topics:
            failed = Failed.of(row.error_code, row.error_message)
            yield row.name, failed if row.error_code else row.num_partitions

    done = await client.by_controller(by_name, Job(ApiKey.CREATE_TOPICS, make, read), repeatable=False)
    made = {name for name, result in done.items() if not isinstance(result, Failed)}
    if made and not only_check:
        await _until_led(client, made)
    return done


async def _until_led(client: Client, names: Iterable[str]) -> None:
    """Wait until the brokers know the topics and who leads their partitions; they do not learn it at once."""
    waiting = set(names)
    tries = 0
    with trio.move_on_after(client.request_s):
        while True:
            view = await client.refresh(waiting)
            for name in list(waiting):
                topic = view.topics.get(name)
                if topic is not None and topic.partitions and _is_led(client, topic):
                    waiting.discard(name)
            if not waiting:
                return
            tries += 1
            await trio.sleep(client.pauses.after(tries))


def _is_led(client: Client, topic: TopicView) -> bool:
    return all(client.leader_of((topic.name, index)) is not None for index in topic.partitions)


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    chosen = not topic.assignment
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions if chosen else -1,
        replication_factor=topic.replicas if chosen else -1,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in sorted(topic.assignment.items())
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in topic.settings.items()
        ],
    )


async def delete_topics(client: Client, names: Iterable[str]) -> dict[str, Failed | None]:
    """Delete topics with all their records. Raises ClientError."""
    timeout_ms = client.broker_ms

    def make(items: list[str], version: int) -> DeleteTopicsRequest:
        if version >= 6:
            rows = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in items]
            return DeleteTopicsRequest(topics=rows, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=items, timeout_ms=timeout_ms)

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Failed | None]]:
        for row in answer.responses:
            yield row.name, Failed.of(row.error_code, row.error_message) if row.error_code else None

    return await client.by_controller(names, Job(ApiKey.DELETE_TOPICS, make, read), repeatable=False)


async def add_partitions(
    client: Client, counts: Mapping[str, int], *, only_check: bool = False
) -> dict[str, Failed | None]:
    """Give topics more partitions, so that they have `counts` in all. Raises ClientError."""
    timeout_ms = client.broker_ms

    def make(names: list[str], version: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=counts[name], assignments=None)
                for name in names
            ],
            timeout_ms=timeout_ms,
            validate_only=only_check,
        )

    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, Failed | None]]:
        for row in answer.results:
            yield row.name, Failed.of(row.error_code, row.error_message) if row.error_code else None

    done = await client.by_controller(counts, Job(ApiKey.CREATE_PARTITIONS, make, read), repeatable=False)
    made = {name for name, result in done.items() if result is None}
    if made and not only_check:
        await _until_led(client, made)
    return done
