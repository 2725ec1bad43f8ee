"""Log directories and the sizes of replicas: DescribeLogDirs 0-4, from each broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import DescribeLogDirsRequest
from barnabas.server.client.client import Client, Job, TopicPartition
from barnabas.server.client.failures import Failed


class ReplicaSize(NamedTuple):
    """`size`: bytes. `offset_lag`: behind the high watermark, or for a future replica behind the present one."""

    size: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """`failed`: why it is offline. `total_bytes`, `usable_bytes`: of its volume; -1 from brokers before 3.3."""

    path: str
    failed: Failed | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaSize]


async def describe_log_dirs(
    client: Client, partitions: Iterable[TopicPartition] | None = None, brokers: Iterable[int] | None = None
) -> dict[int, list[LogDir] | Failed]:
    """The directories of each broker. partitions: only these replicas; brokers: only these. Raises ClientError."""
    topics = None
    if partitions is not None:
        indexes: dict[str, list[int]] = {}
        for topic, index in partitions:
            indexes.setdefault(topic, []).append(index)
        topics = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=each)
            for topic, each in indexes.items()
        ]
    if brokers is None:
        brokers = (await client.refresh([])).brokers

    def make(ids: list[int], version: int) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(topics=topics)

    def read(answer: Any, ids: list[int]) -> Iterator[tuple[int, list[LogDir] | Failed]]:
        if answer.error_code:
            yield ids[0], Failed.of(answer.error_code)
        else:
            yield ids[0], [_log_dir(row) for row in answer.results]

    return await client.by_broker(brokers, Job(ApiKey.DESCRIBE_LOG_DIRS, make, read))


def _log_dir(row: Any) -> LogDir:
    replicas = {
        (topic.name, each.partition_index): ReplicaSize(each.partition_size, each.offset_lag, each.is_future_key)
        for topic in row.topics
        for each in topic.partitions
    }
    failed = Failed.of(row.error_code) if row.error_code else None
    return LogDir(row.log_dir, failed, row.total_bytes, row.usable_bytes, replicas)
