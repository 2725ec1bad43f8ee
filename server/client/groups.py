"""Consumer groups: list, describe, their offsets, delete. Of both kinds: `classic`, and `consumer` (KIP-848).

Apache Kafka has more kinds (`share`, `streams`): they are listed and not described.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.kproto import ApiKey, DecodeError, ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from barnabas.kproto.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode_versioned
from barnabas.server.client.client import GROUP, Client, Job, TopicPartition
from barnabas.server.client.failures import Failed, Unsupported
from barnabas.server.client.offsets import by_topic

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_BATCHED: Final = 8
"""OffsetFetch asks for several groups from here on."""
_NOT_OF_THIS_KIND: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class ListedGroup(NamedTuple):
    """`kind`: classic, consumer, share or streams. `protocol_type`: consumer, connect, … `state`: "" before 2.6."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    """`partitions`: assigned to it. `topics`: that it has subscribed to, as far as it says."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`state`: as Apache Kafka names it (Empty, Stable, …). `assignor`: of a classic group what its members agreed on.
    `epoch`: -1 for a classic group, whose generation is not told.
    """

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    members: tuple[Member, ...]
    coordinator: int

    @property
    def holders(self) -> dict[TopicPartition, Member]:
        """Whose each partition is."""
        return {partition: member for member in self.members for partition in member.partitions}


class Committed(NamedTuple):
    """`offset`: the next record to be read."""

    offset: int
    leader_epoch: int
    metadata: str


# -- who there is ------------------------------------------------------------------------------------------------------


async def list_groups(client: Client) -> tuple[dict[str, ListedGroup], dict[int, Failed]]:
    """All groups that may be seen, by id; and the brokers that could not be asked for theirs. Raises ClientError."""
    view = await client.refresh([])

    def read(answer: Any, ids: list[int]) -> Iterator[tuple[int, list[Any] | Failed]]:
        yield ids[0], Failed.of(answer.error_code) if answer.error_code else answer.groups

    job: Job[int, list[Any]] = Job(ApiKey.LIST_GROUPS, lambda ids, version: ListGroupsRequest(), read)
    groups: dict[str, ListedGroup] = {}
    failed: dict[int, Failed] = {}
    for broker_id, rows in (await client.by_broker(view.brokers, job)).items():
        if isinstance(rows, Failed):
            failed[broker_id] = rows
            continue
        for row in rows:
            kind = row.group_type.lower() or CLASSIC
            groups[row.group_id] = ListedGroup(row.group_id, kind, row.protocol_type, row.group_state, broker_id)
    return dict(sorted(groups.items())), failed


async def describe_groups(client: Client, names: Iterable[str]) -> dict[str, Group | Failed]:
    """These groups, classic or consumer. Raises ClientError."""
    wanted = list(dict.fromkeys(names))
    found: dict[str, Group | Failed] = {}
    try:
        found.update(await client.by_coordinator(GROUP, wanted, _modern_job(client)))
    except Unsupported:
        pass  # a broker before 3.7: it has classic groups only
    classic = [name for name in wanted if name not in found or _is_of_another_kind(found[name])]
    if classic:
        found.update(await client.by_coordinator(GROUP, classic, _classic_job(client)))
    if any(_is_of_another_kind(found[name]) for name in wanted):
        listed, _ = await list_groups(client)
        for name in wanted:
            if _is_of_another_kind(found[name]) and name in listed and listed[name].kind not in (CLASSIC, CONSUMER):
                why = f"it is a group of the kind {listed[name].kind}, which is not described here"
                found[name] = Failed(ErrorCode.UNSUPPORTED_VERSION, why)
    return {name: found[name] for name in wanted}


def _is_of_another_kind(result: Group | Failed) -> bool:
    return isinstance(result, Failed) and result.code in _NOT_OF_THIS_KIND


def _modern_job(client: Client) -> Job[str, Group]:
    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, Group | Failed]]:
        for row in answer.groups:
            if row.error_code:
                yield row.group_id, Failed.of(row.error_code)
                continue
            members = [
                Member(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host.removeprefix("/"),
                    tuple((one.topic_name, i) for one in each.assignment.topic_partitions for i in one.partitions),
                    (*each.subscribed_topic_names, *filter(None, [each.subscribed_topic_regex])),
                )
                for each in row.members
            ]
            yield (
                row.group_id,
                Group(
                    row.group_id,
                    CONSUMER,
                    row.group_state,
                    CONSUMER,
                    row.assignor_name,
                    row.group_epoch,
                    tuple(members),
                    client.coordinator_of(GROUP, row.group_id),
                ),
            )

    return Job(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda names, _: ConsumerGroupDescribeRequest(group_ids=names), read)


def _classic_job(client: Client) -> Job[str, Group]:
    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, Group | Failed]]:
        for row in answer.groups:
            if row.error_code or row.group_state == "Dead":
                code = ErrorCode.of(row.error_code or ErrorCode.GROUP_ID_NOT_FOUND)
                yield (
                    row.group_id,
                    Failed.of(
                        code, "there is no such group" if code == ErrorCode.GROUP_ID_NOT_FOUND else row.error_message
                    ),
                )
                continue
            members = [
                Member(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host.removeprefix("/"),
                    _assigned(each.member_assignment) if row.protocol_type == CONSUMER else (),
                    _subscribed(each.member_metadata) if row.protocol_type == CONSUMER else (),
                )
                for each in row.members
            ]
            coordinator = client.coordinator_of(GROUP, row.group_id)
            yield (
                row.group_id,
                Group(
                    row.group_id,
                    CLASSIC,
                    row.group_state,
                    row.protocol_type,
                    row.protocol_data,
                    -1,
                    tuple(members),
                    coordinator,
                ),
            )

    return Job(ApiKey.DESCRIBE_GROUPS, lambda names, _: DescribeGroupsRequest(groups=names), read)


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """What clients tell each other through the broker; whatever they say, it may be nonsense."""
    try:
        _, assignment = decode_versioned(ConsumerProtocolAssignment, data)
    except DecodeError:
        return ()
    return tuple((each.topic, index) for each in assignment.assigned_partitions for index in each.partitions)


def _subscribed(data: bytes) -> tuple[str, ...]:
    try:
        _, subscription = decode_versioned(ConsumerProtocolSubscription, data)
    except DecodeError:
        return ()
    return tuple(subscription.topics)


# -- offsets -----------------------------------------------------------------------------------------------------------


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


async def delete_groups(client: Client, names: Iterable[str]) -> dict[str, Failed | None]:
    """Delete groups without members. Raises ClientError."""

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Failed | None]]:
        for row in answer.results:
            yield row.group_id, Failed.of(row.error_code) if row.error_code else None

    job = Job(ApiKey.DELETE_GROUPS, lambda items, _: DeleteGroupsRequest(groups_names=items), read)
    return await client.by_coordinator(GROUP, names, job)
