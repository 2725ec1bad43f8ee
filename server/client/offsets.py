"""Offsets of partitions: ListOffsets 1-10 and DeleteRecords 0-2, from each partition's leader.

Which of a partition's offsets: `EARLIEST`, `LATEST`, `NEWEST_TIME` (of the record with the greatest timestamp; brokers
from 3.0 on), or a time in ms: the first record of that time or later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import DeleteRecordsRequest, ListOffsetsRequest
from barnabas.server.client.client import Client, Job, TopicPartition
from barnabas.server.client.failures import Failed, Unsupported

EARLIEST: Final = -2
LATEST: Final = -1
NEWEST_TIME: Final = -3
_SINCE_VERSION: Final = {NEWEST_TIME: 7}
CONSUMER: Final = -1
"""Where a replica's id could stand."""


class Offset(NamedTuple):
    """`offset` -1: there is no record of that time or later. `timestamp`: of the record, ms; -1: not by time."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


class Span(NamedTuple):
    """The offsets from `start` on that are below `end`."""

    start: int
    end: int


async def list_offsets(
    client: Client, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, Offset | Failed]:
    """The offset of each partition. committed: LATEST is the last stable offset. Raises ClientError."""

    def make(items: list[TopicPartition], version: int) -> ListOffsetsRequest:
        for item in items:
            if version < _SINCE_VERSION.get(wanted[item], 0):
                raise Unsupported("the broker cannot look for the newest record by time; Apache Kafka can from 3.0 on")
        fields: dict[str, Any] = {"isolation_level": int(committed)} if version >= 2 else {}
        return ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=wanted[topic, index])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(items).items()
            ],
            **fields,
        )

    def read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Offset | Failed]]:
        for topic in answer.topics:
            for row in topic.partitions:
                found = Offset(row.offset, row.timestamp, row.leader_epoch)
                yield (topic.name, row.partition_index), Failed.of(row.error_code) if row.error_code else found

    return await client.by_leader(wanted, Job(ApiKey.LIST_OFFSETS, make, read))


async def spans(
    client: Client, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, Span | Failed]:
    """From the log start to the high watermark; committed: to the last stable offset."""
    every = list(partitions)
    starts = await list_offsets(client, dict.fromkeys(every, EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(every, LATEST), committed=committed)
    found: dict[TopicPartition, Span | Failed] = {}
    for each in every:
        start, end = starts[each], ends[each]
        if isinstance(start, Failed):
            found[each] = start
        elif isinstance(end, Failed):
            found[each] = end
        else:
            found[each] = Span(start.offset, max(start.offset, end.offset))
    return found


async def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Failed]:
    """Delete the records before these offsets (-1: all). The results are the new log start offsets."""

    def make(items: list[TopicPartition], version: int) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=before[topic, index])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(items).items()
            ],
            timeout_ms=client.broker_ms,
        )

    def read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, int | Failed]]:
        for topic in answer.topics:
            for row in topic.partitions:
                result = Failed.of(row.error_code) if row.error_code else row.low_watermark
                yield (topic.name, row.partition_index), result

    return await client.by_leader(before, Job(ApiKey.DELETE_RECORDS, make, read))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes of each topic, in order of appearance."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
