"""Topics and groups over a `BlockingClient`: made, deleted, and all of them deleted (`reset`) between two tests.

The broker must be the controller of its cluster for topics, and lead the groups, as one that runs alone does;
`blocking_cluster` finds who does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
)
from barnabas.server.network.blocking_client import BlockingClient

TIMEOUT_MS: Final = 10_000
TRIES: Final = 3
"""How often to empty a group whose members rejoin."""
_AT_ONCE: Final = 1000
"""Topics or groups named in one request."""
_CONSUMER: Final = "consumer"
_LEAVE: Final = -1
"""The member epoch of a heartbeat that leaves the group (KIP-848)."""
_GONE: Final = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Refused(Exception):
    """The broker rejected a request; the message says which and why. code: its error, if there is one."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def create_topic(
    client: BlockingClient,
    name: str,
    partitions: int = -1,
    settings: Mapping[str, str] | None = None,
    replicas: int = -1,
) -> None:
    """Create a topic; it has leaders on return. -1: what the broker's settings say. Raises Refused."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()
        ],
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
    for created in answer.topics:
        if created.error_code:
            why = created.error_message or ErrorCode.of(created.error_code).name
            raise Refused(f"topic {name} was not created: {why}", created.error_code)


def delete_topics(client: BlockingClient, names: Sequence[str]) -> None:
    """Delete topics, and wait until they no longer exist; those that do not exist are ignored. Raises Refused."""
    for some in _portions(names):
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in some]
        answer = client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 6)
        for deleted in answer.responses:
            if deleted.error_code not in _GONE:
                why = ErrorCode.of(deleted.error_code).name
                raise Refused(f"topic {deleted.name} was not deleted: {why}", deleted.error_code)


def reset(client: BlockingClient) -> None:
    """Delete all groups, also those that have members, and all topics but Kafka's internal ones. Raises Refused."""
    delete_groups(client)
    delete_topics(client, topic_names(client))


def topic_names(client: BlockingClient) -> list[str]:
    """All topics but Kafka's internal ones."""
    return [topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics if not topic.is_internal]


def delete_groups(client: BlockingClient) -> None:
    """Delete all groups that this broker coordinates, also those that have members. Raises Refused."""
    left = {group.group_id: group.group_type for group in client.ask(ListGroupsRequest(), 5).groups}
    for _ in range(TRIES):
        left = _delete_empty(client, left)
        if not left:
            return
        for group, kind in left.items():
            _empty_consumer_group(client, group) if kind == _CONSUMER else _empty_classic(client, group)
    if left := _delete_empty(client, left):
        raise Refused(f"members of these groups rejoin: {', '.join(sorted(left))}; close their consumers first")


def _delete_empty(client: BlockingClient, groups: Mapping[str, str]) -> dict[str, str]:
    """Delete those without members; returns the others."""
    left: dict[str, str] = {}
    for names in _portions(list(groups)):
        for deleted in client.ask(DeleteGroupsRequest(groups_names=names), 2).results:
            if deleted.error_code == ErrorCode.NON_EMPTY_GROUP:
                left[deleted.group_id] = groups[deleted.group_id]
            elif deleted.error_code not in _GONE:
                why = ErrorCode.of(deleted.error_code).name
                raise Refused(f"group {deleted.group_id} was not deleted: {why}")
    return left


def _empty_classic(client: BlockingClient, group: str) -> None:
    (described,) = client.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    members = [
        LeaveGroupRequest.MemberIdentity(
            member_id=member.member_id, group_instance_id=member.group_instance_id, reason="all groups are deleted"
        )
        for member in described.members
    ]
    if members:
        client.ask(LeaveGroupRequest(group_id=group, members=members), 5)


def _empty_consumer_group(client: BlockingClient, group: str) -> None:
    (described,) = client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    for member in described.members:
        leave = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member.member_id, instance_id=member.instance_id, member_epoch=_LEAVE
        )
        client.ask(leave, 1)


def _portions(names: Iterable[Any]) -> list[list[Any]]:
    every = list(names)
    return [every[at : at + _AT_ONCE] for at in range(0, len(every), _AT_ONCE)]
