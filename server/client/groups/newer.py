"""Groups of the kinds that Apache Kafka 4 has beside consumers': `share` (KIP-932) and `streams` (KIP-1071).

Several members of a share group may have the same partition. Where it stands its coordinator says: the first record
that is not settled, and how many behind it are not.

A member of a streams group has tasks; shown are the partitions that its active ones read, of topics that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from barnabas.server.client.client import GROUP, Client, Job, TopicPartition
from barnabas.server.client.failures import Failed, Unsupported
from barnabas.server.client.groups.values import SHARE, STREAMS, Committed, Group, Member
from barnabas.server.client.offsets import by_topic
from barnabas.server.client.topics import describe_topics

_Asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_Topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
_Partition = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition


async def describe_newer(client: Client, kind: str, names: Iterable[str]) -> dict[str, Group | Failed]:
    """Groups of one of the two kinds. Raises ClientError."""
    wanted = list(names)
    try:
        if kind == SHARE:
            return await client.by_coordinator(GROUP, wanted, _share_job(client))
        told = await client.by_coordinator(GROUP, wanted, _STREAMS_JOB)
    except Unsupported:
        why = f"it is a {kind} group, which its coordinator does not describe"
        return dict.fromkeys(wanted, Failed(ErrorCode.UNSUPPORTED_VERSION, why))
    rows = {name: row for name, row in told.items() if not isinstance(row, Failed)}
    topics = await describe_topics(client, sorted({topic for row in rows.values() for topic in _read_by(row).values()}))
    counts = {name: len(topic.partitions) for name, topic in topics.items() if not isinstance(topic, Failed)}
    failed = {name: row for name, row in told.items() if isinstance(row, Failed)}
    return {**failed, **{name: _streams_group(client, row, counts) for name, row in rows.items()}}


def _share_job(client: Client) -> Job[str, Group]:
    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, Group | Failed]]:
        for row in answer.groups:
            if row.error_code:
                yield row.group_id, Failed.of(row.error_code, row.error_message)
                continue
            members = tuple(
                Member(
                    each.member_id,
                    None,
                    each.client_id,
                    each.client_host.removeprefix("/"),
                    tuple((one.topic_name, i) for one in each.assignment.topic_partitions for i in one.partitions),
                    tuple(each.subscribed_topic_names),
                )
                for each in row.members
            )
            coordinator = client.coordinator_of(GROUP, row.group_id)
            yield (
                row.group_id,
                Group(
                    row.group_id,
                    SHARE,
                    row.group_state,
                    SHARE,
                    row.assignor_name,
                    row.group_epoch,
                    members,
                    coordinator,
                ),
            )

    return Job(ApiKey.SHARE_GROUP_DESCRIBE, lambda names, _: ShareGroupDescribeRequest(group_ids=names), read)


def _read_streams(answer: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
    for row in answer.groups:
        yield row.group_id, Failed.of(row.error_code, row.error_message) if row.error_code else row


_STREAMS_JOB: Job[str, Any] = Job(
    ApiKey.STREAMS_GROUP_DESCRIBE, lambda names, _: StreamsGroupDescribeRequest(group_ids=names), _read_streams
)


def _read_by(row: Any) -> dict[tuple[str, str], str]:
    """The topics that each subtopology reads."""
    subtopologies = (row.topology.subtopologies or ()) if row.topology is not None else ()
    return {
        (each.subtopology_id, topic): topic
        for each in subtopologies
        for topic in (*each.source_topics, *(one.name for one in each.repartition_source_topics))
    }


def _streams_group(client: Client, row: Any, counts: Mapping[str, int]) -> Group:
    topics: dict[str, list[str]] = {}
    for subtopology, topic in _read_by(row):
        topics.setdefault(subtopology, []).append(topic)
    members = tuple(
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            tuple(
                (topic, index)
                for tasks in each.assignment.active_tasks
                for topic in topics.get(tasks.subtopology_id, ())
                for index in tasks.partitions
                if index < counts.get(topic, 0)
            ),
            (),
        )
        for each in row.members
    )
    coordinator = client.coordinator_of(GROUP, row.group_id)
    return Group(row.group_id, STREAMS, row.group_state, STREAMS, "", row.group_epoch, members, coordinator)


async def share_offsets(
    client: Client, names: Iterable[str]
) -> dict[str, dict[TopicPartition, Committed | Failed] | Failed]:
    """Where share groups stand in all their partitions. Raises ClientError."""

    def make(some: list[str], version: int) -> DescribeShareGroupOffsetsRequest:
        return DescribeShareGroupOffsetsRequest(groups=[_Asked(group_id=name, topics=None) for name in some])

    def read(answer: Any, some: list[str]) -> Iterator[tuple[str, dict[TopicPartition, Committed | Failed] | Failed]]:
        for group in answer.groups:
            yield group.group_id, _standing(group)

    return await client.by_coordinator(GROUP, names, Job(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, make, read))


def _standing(group: Any) -> dict[TopicPartition, Committed | Failed] | Failed:
    if group.error_code:
        return Failed.of(group.error_code, group.error_message)
    found: dict[TopicPartition, Committed | Failed] = {}
    for topic in group.topics:
        for row in topic.partitions:
            if row.error_code:
                found[topic.topic_name, row.partition_index] = Failed.of(row.error_code, row.error_message)
            elif row.start_offset >= 0:
                lag = row.lag if row.lag >= 0 else None
                found[topic.topic_name, row.partition_index] = Committed(row.start_offset, row.leader_epoch, "", lag)
    return found


async def alter_share_offsets(
    client: Client, name: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Failed | None]:
    """Let a share group, which has no members, begin anew at these offsets. Raises ClientError."""

    def make(names: list[str], version: int) -> AlterShareGroupOffsetsRequest:
        return AlterShareGroupOffsetsRequest(
            group_id=name,
            topics=[
                _Topic(
                    topic_name=topic,
                    partitions=[_Partition(partition_index=i, start_offset=offsets[topic, i]) for i in indexes],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, dict[TopicPartition, Failed | None] | Failed]]:
        if answer.error_code:
            yield name, Failed.of(answer.error_code, answer.error_message)
            return
        found: dict[TopicPartition, Failed | None] = {}
        for topic in answer.responses:
            for row in topic.partitions:
                failed = Failed.of(row.error_code, row.error_message) if row.error_code else None
                found[topic.topic_name, row.partition_index] = failed
        yield name, found

    result = (await client.by_coordinator(GROUP, [name], Job(ApiKey.ALTER_SHARE_GROUP_OFFSETS, make, read)))[name]
    return dict.fromkeys(offsets, result) if isinstance(result, Failed) else result
