"""ConsumerGroupDescribe (key 69, versions 0-1): state, epochs and members of KIP-848 groups.

Behaviour: of every member its current and its target assignment. A classic group is not found, upon which clients send
DescribeGroups. The rest is as for share and streams groups (`barnabas.server.requests.group_descriptions`).

Versions:

- 1: says whether a member still uses the classic protocol
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ConsumerGroupDescribeResponse
from barnabas.server.apis.groups.consumer_group_heartbeat import is_enabled
from barnabas.server.requests.group_descriptions import Kind

_Group = ConsumerGroupDescribeResponse.DescribedGroup


def _size(group: _Group) -> int:
    return 2 * sum(_size_of_member(member) for member in group.members)


def _size_of_member(member: ConsumerGroupDescribeResponse.Member) -> int:
    assignments = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return 2 + len(member.subscribed_topic_names) + sum(1 + len(topic.partitions) // 8 for topic in assignments)


def _topics(group: _Group) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name


API = Kind(
    response=ConsumerGroupDescribeResponse,
    is_enabled=is_enabled,
    describe=lambda svc, group_id: svc.groups.consumer_describe(group_id),
    size=_size,
    topics=_topics,
).api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1))
