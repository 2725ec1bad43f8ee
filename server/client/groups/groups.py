"""Groups: list, describe, delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.kproto import ApiKey, DecodeError, ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from barnabas.kproto.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode_versioned
from barnabas.server.client.client import GROUP, Client, Job, TopicPartition
from barnabas.server.client.failures import Failed, Unsupported
from barnabas.server.client.groups.newer import describe_newer
from barnabas.server.client.groups.values import CLASSIC, CONSUMER, SHARE, STREAMS, Group, ListedGroup, Member

_NOT_OF_THIS_KIND: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


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
    """These groups, of whatever kind. Raises ClientError."""
    wanted = list(dict.fromkeys(names))
    found: dict[str, Group | Failed] = {}
    try:
        found.update(await client.by_coordinator(GROUP, wanted, _consumer_group_job(client)))
    except Unsupported:
        pass  # a broker before 3.7: it has classic groups only
    classic = [name for name in wanted if name not in found or _is_of_another_kind(found[name])]
    if classic:
        found.update(await client.by_coordinator(GROUP, classic, _classic_job(client)))
    if any(_is_of_another_kind(found[name]) for name in wanted):
        listed, _ = await list_groups(client)
        kinds = {name: listed[name].kind for name in wanted if _is_of_another_kind(found[name]) and name in listed}
        for kind in (SHARE, STREAMS):
            of_kind = [name for name, each in kinds.items() if each == kind]
            if of_kind:
                found.update(await describe_newer(client, kind, of_kind))
        for name, each in kinds.items():
            if each not in (CLASSIC, CONSUMER, SHARE, STREAMS):
                why = f"it is a group of the kind {each}, which is not described here"
                found[name] = Failed(ErrorCode.UNSUPPORTED_VERSION, why)
    return {name: found[name] for name in wanted}


def _is_of_another_kind(result: Group | Failed) -> bool:
    return isinstance(result, Failed) and result.code in _NOT_OF_THIS_KIND


def _consumer_group_job(client: Client) -> Job[str, Group]:
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


async def delete_groups(client: Client, names: Iterable[str]) -> dict[str, Failed | None]:
    """Delete groups without members. Raises ClientError."""

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Failed | None]]:
        for row in answer.results:
            yield row.group_id, Failed.of(row.error_code) if row.error_code else None

    job = Job(ApiKey.DELETE_GROUPS, lambda items, _: DeleteGroupsRequest(groups_names=items), read)
    return await client.by_coordinator(GROUP, names, job)
