"""What groups have committed, of all kinds but share groups: ask, set, forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from barnabas.server.client.client import GROUP, Client, Job, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.values import Committed
from barnabas.server.client.offsets import by_topic

_BATCHED: Final = 8
"""OffsetFetch asks for several groups from here on."""


async def committed_offsets(
    client: Client, names: Iterable[str]
) -> dict[str, dict[TopicPartition, Committed | Failed] | Failed]:
    """All that these groups have committed. Raises ClientError."""
    version = await client.highest(ApiKey.OFFSET_FETCH)
    job = Job(ApiKey.OFFSET_FETCH, _fetch_offsets, _read_offsets)
    return await client.by_coordinator(GROUP, names, job, portion=100 if version >= _BATCHED else 1)


def _fetch_offsets(names: list[str], version: int) -> OffsetFetchRequest:
    if version < _BATCHED:
        return OffsetFetchRequest(group_id=names[0], topics=None)
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    return OffsetFetchRequest(groups=groups)


def _read_offsets(
    answer: Any, names: list[str]
) -> Iterator[tuple[str, dict[TopicPartition, Committed | Failed] | Failed]]:
    if not answer.groups:
        yield names[0], _offsets(answer)
    for group in answer.groups:
        yield group.group_id, _offsets(group)


def _offsets(answer: Any) -> dict[TopicPartition, Committed | Failed] | Failed:
    if answer.error_code:
        return Failed.of(answer.error_code)
    found: dict[TopicPartition, Committed | Failed] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code:
                found[topic.name, row.partition_index] = Failed.of(row.error_code)
            elif row.committed_offset >= 0:
                committed = Committed(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
                found[topic.name, row.partition_index] = committed
    return found


async def commit_offsets(
    client: Client, name: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Failed | None]:
    """Commit for a group from outside of it; it must have no members. Raises ClientError."""

    def make(names: list[str], version: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offsets[topic, index], committed_metadata=""
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, dict[TopicPartition, Failed | None] | Failed]]:
        yield name, _by_partition(answer)

    result = (await client.by_coordinator(GROUP, [name], Job(ApiKey.OFFSET_COMMIT, make, read)))[name]
    return dict.fromkeys(offsets, result) if isinstance(result, Failed) else result


async def delete_offsets(
    client: Client, name: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Failed | None]:
    """Forget what a group has committed for these partitions, of topics that it does not read now. Raises
    ClientError.
    """
    wanted = list(partitions)

    def make(names: list[str], version: int) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=name,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
                )
                for topic, indexes in by_topic(wanted).items()
            ],
        )

    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, dict[TopicPartition, Failed | None] | Failed]]:
        yield name, Failed.of(answer.error_code) if answer.error_code else _by_partition(answer)

    result = (await client.by_coordinator(GROUP, [name], Job(ApiKey.OFFSET_DELETE, make, read)))[name]
    return dict.fromkeys(wanted, result) if isinstance(result, Failed) else result


def _by_partition(answer: Any) -> dict[TopicPartition, Failed | None] | Failed:
    """A result for each partition; or one code for all, if the coordinator has moved: then the whole is repeated."""
    found: dict[TopicPartition, Failed | None] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            failed = Failed.of(row.error_code) if row.error_code else None
            if failed is not None and failed.code in _MOVED:
                return failed
            found[topic.name, row.partition_index] = failed
    return found


_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
