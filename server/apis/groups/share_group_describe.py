"""ShareGroupDescribe (key 77, version 1): state, epochs and members of share groups (KIP-932).

Behaviour: as for the other kinds of groups (`barnabas.server.requests.group_descriptions`), while `share.version` is 1.
The topics that the caller must be allowed to describe are those subscribed and those assigned.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ShareGroupDescribeResponse
from barnabas.server.requests.group_descriptions import Kind
from barnabas.server.requests.share.checks import is_enabled

_Group = ShareGroupDescribeResponse.DescribedGroup


def _size(group: _Group) -> int:
    return sum(_size_of_member(member) for member in group.members)


def _size_of_member(member: ShareGroupDescribeResponse.Member) -> int:
    topics = member.assignment.topic_partitions
    return 2 + len(member.subscribed_topic_names) + sum(1 + len(topic.partitions) // 8 for topic in topics)


def _topics(group: _Group) -> Iterator[str]:
    for member in group.members:
        yield from member.subscribed_topic_names
        for topic in member.assignment.topic_partitions:
            yield topic.topic_name


API = Kind(
    response=ShareGroupDescribeResponse,
    is_enabled=is_enabled,
    describe=lambda svc, group_id: svc.groups.shares.describe(group_id),
    size=_size,
    topics=_topics,
).api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1))
