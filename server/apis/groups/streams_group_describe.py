"""StreamsGroupDescribe (key 89, version 0): state, epochs, topology and members of streams groups (KIP-1071).

Behaviour: as for the other kinds of groups (`barnabas.server.requests.group_descriptions`). A topology that is ready
has the partitions that its internal topics have; else it is as a member has sent it. The topics that the caller must be
allowed to describe are those of the topology.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import StreamsGroupDescribeResponse
from barnabas.server.apis.groups.streams_group_heartbeat import is_enabled
from barnabas.server.requests.group_descriptions import Kind

_Group = StreamsGroupDescribeResponse.DescribedGroup


def _size(group: _Group) -> int:
    return sum(_size_of_member(member) for member in group.members) + sum(1 for _ in _topics(group))


def _size_of_member(member: StreamsGroupDescribeResponse.Member) -> int:
    lists = (
        tasks
        for each in (member.assignment, member.target_assignment)
        for tasks in (each.active_tasks, each.standby_tasks, each.warmup_tasks)
    )
    return 3 + sum(1 + len(each.partitions) // 8 for tasks in lists for each in tasks)


def _topics(group: _Group) -> Iterator[str]:
    for each in () if group.topology is None else group.topology.subtopologies or ():
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name


API = Kind(
    response=StreamsGroupDescribeResponse,
    is_enabled=is_enabled,
    describe=lambda svc, group_id: svc.groups.streams.describe(group_id),
    size=_size,
    topics=_topics,
).api(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0))
