"""Members of the streams groups of one partition of `__consumer_offsets`, and what administrators are shown of these.

A part of what `barnabas.coordinator.group.shard` is the face of. What a request does in its group is `group`'s; here is
which group it means, and that the first member makes a group, or takes the place of an empty classic one, whose offsets
stay. What must be refused before (loading, not the coordinator, whether the feature is on, who may ask) is the caller's
to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.epochs.records import AWAY, LEFT
from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import TASKS_MAX, ConfiguredTopology
from barnabas.coordinator.group.streams.group import StreamsGroup, heartbeat_refusal, texts
from barnabas.coordinator.group.streams.state import StreamsMember
from barnabas.coordinator.group.streams.stored import StreamsRecord, parse_streams_group
from barnabas.coordinator.group.streams.tasks import Tasks, in_order
from barnabas.coordinator.group.streams.topology import Topology, check_size, check_topology, topology_of
from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.stored import fits, group_record
from barnabas.kproto import ErrorCode, KafkaError, shortened
from barnabas.kproto.messages import StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest

_Group = StreamsGroupDescribeResponse.DescribedGroup
_Member = StreamsGroupDescribeResponse.Member
_TopicInfo = StreamsGroupDescribeResponse.TopicInfo
_KeyValue = StreamsGroupDescribeResponse.KeyValue

NAME_MAX: Final = 255
"""Characters of the names that much is done with: ids of members and processes are hashed for each target, hosts told
to all members. Those of clients are UUIDs and names of hosts.
"""
TAGS_MAX: Final = 1_000
"""Of a member. Kafka Streams lets applications have five that are looked at."""


class StreamsGroups:
    """See the module. groups: all of the partition, by id. foreign: ids of groups of kinds that are not among these.
    settings_of: the settings that a group has of its own.
    """

    kind = StreamsGroup

    def __init__(
        self,
        groups: Mapping[str, Any],
        foreign: Collection[str],
        context: GroupContext,
        config: StreamsGroupConfig,
        settings_of: Callable[[str], StreamsSettings | None] | None = None,
    ) -> None:
        self._groups = groups
        self._foreign = foreign
        self._context = context
        self._config = config
        self._settings_of = settings_of
        context.streams_settings = self._settings

    def set_config(self, config: StreamsGroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self._config = config

    def _settings(self, group_id: str) -> StreamsSettings:
        own = None if self._settings_of is None else self._settings_of(group_id)
        return self._config.settings if own is None else own

    def parse(self, key: bytes | memoryview, value: bytes | memoryview | None) -> StreamsRecord | None:
        """A record of a streams group; None if it is of another kind. Raises `barnabas.kproto.DecodeError`."""
        return parse_streams_group(key, value)

    # -- members ----------------------------------------------------------------------------------

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str | None, client_host: str, token: Any, now: Now
    ) -> Result:
        """StreamsGroupHeartbeat. `client_host`: as stored and shown (`/127.0.0.1`). Answers `HeartbeatAnswer`."""
        out = Decision()
        group_id = request.group_id
        try:
            check_streams_heartbeat(request)
            if not fits(client_id, client_host):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's name is longer than 32767 bytes.")
            group = self._group(group_id)
            if request.member_epoch < 0:
                if group is None:
                    raise self._not_found(group_id)
                group.leave(request, token, now, out)
                return out.result()
            is_new = group is None
            if group is None:
                group = self._new_group(request, out)
            group.heartbeat(request, client_id or "", client_host, self._config, is_new, token, now, out)
        except KafkaError as error:
            return answer(token, heartbeat_refusal(error.code, error.message))
        return out.result()

    def _group(self, group_id: str) -> StreamsGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, StreamsGroup) and group_id not in self._foreign else None

    def _new_group(self, request: StreamsGroupHeartbeatRequest, out: Decision) -> StreamsGroup:
        """A group that becomes one with its first records. Nothing has changed yet but a list of records."""
        group_id = request.group_id
        before = self._groups.get(group_id)
        if request.member_epoch != 0 or group_id in self._foreign:
            raise self._not_found(group_id)
        if before is not None:
            if not isinstance(before, ClassicGroup) or not before.is_empty or before.members.pending:
                raise self._not_found(group_id)
            out.records.append(group_record(group_id, None))
        return StreamsGroup(group_id, self._context)

    def _not_found(self, group_id: str) -> KafkaError:
        is_there = group_id in self._groups or group_id in self._foreign
        why = "is not a streams group." if is_there else "not found."
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {shortened(group_id)} {why}")

    # -- views ------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> _Group:
        """StreamsGroupDescribe, for one group. GROUP_ID_NOT_FOUND if there is none, or it is of another kind."""
        group = self._group(group_id)
        if group is None:
            error = self._not_found(group_id)
            return _Group(group_id=group_id, error_code=error.code, error_message=error.message)
        configured, topology = group.configured, group.topology
        is_ready = configured is not None and configured.is_ready
        return _Group(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            topology=_configured(configured) if is_ready and configured is not None else _stored(topology),
            members=[_described(group, member) for member in group.members.values()],
        )


def _described(group: StreamsGroup, member: StreamsMember) -> _Member:
    metadata, standing = member.metadata, member.standing
    endpoint = metadata.user_endpoint
    return _Member(
        member_id=member.member_id,
        member_epoch=standing.epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupDescribeResponse.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[_KeyValue(key=key, value=value) for key, value in metadata.client_tags],
        assignment=_assignment(standing.assigned.tasks),
        target_assignment=_assignment(group.target.get(member.member_id, Tasks())),
    )


def _assignment(tasks: Tasks) -> StreamsGroupDescribeResponse.Assignment:
    active, standby, warmup = (
        [
            StreamsGroupDescribeResponse.TaskIds(subtopology_id=subtopology, partitions=numbers)
            for subtopology, numbers in in_order(each)
        ]
        for each in tasks
    )
    return StreamsGroupDescribeResponse.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)


def _stored(topology: Topology | None) -> StreamsGroupDescribeResponse.Topology | None:
    """As a member has sent it."""
    if topology is None:
        return None
    return StreamsGroupDescribeResponse.Topology(
        epoch=topology.epoch,
        subtopologies=[
            StreamsGroupDescribeResponse.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_topics(each.state_changelog_topics),
                repartition_source_topics=_topics(each.repartition_source_topics),
            )
            for subtopology_id, each in sorted(topology.subtopologies.items())
        ],
    )


def _configured(configured: ConfiguredTopology) -> StreamsGroupDescribeResponse.Topology:
    """With the partitions that internal topics have."""
    return StreamsGroupDescribeResponse.Topology(
        epoch=configured.epoch,
        subtopologies=[
            StreamsGroupDescribeResponse.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_topics(each.state_changelog_topics),
                repartition_source_topics=_topics(each.repartition_source_topics),
            )
            for subtopology_id, each in sorted((configured.subtopologies or {}).items())
        ],
    )


def _topics(topics: Collection[Any]) -> list[_TopicInfo]:
    return [
        _TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[_KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def check_streams_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """What can be said of a request without looking at a group. Raises KafkaError INVALID_REQUEST, or
    STREAMS_INVALID_TOPOLOGY.
    """
    why = _why_unsupported(request) or _why_invalid(request)
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if request.topology is not None and request.member_epoch == 0:
        check_size(request.topology)
        check_topology(topology_of(request.topology))
    why = _why_no_member(request)
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _why_unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """What no broker does yet."""
    if request.instance_id is not None:
        return "There are no static members of streams groups yet."
    if request.task_offsets is not None or request.task_end_offsets is not None:
        return "TaskOffsets and TaskEndOffsets are not read yet."
    if request.warmup_tasks:
        return "There are no warm-up tasks yet."
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        return "There are no regular expressions for source topics yet."
    return None


def _why_invalid(request: StreamsGroupHeartbeatRequest) -> str | None:
    if not request.member_id:
        return "MemberId is empty."
    if not request.group_id:
        return "GroupId is empty."
    if request.rack_id == "":
        return "RackId is empty."
    host = None if request.user_endpoint is None else request.user_endpoint.host
    for field, name in (("MemberId", request.member_id), ("ProcessId", request.process_id), ("UserEndpoint", host)):
        if len(name or "") > NAME_MAX:
            return f"{field} is longer than {NAME_MAX} characters."
    if len(request.client_tags or ()) > TAGS_MAX:
        return f"There are more than {TAGS_MAX} ClientTags."
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs is missing in a request to join."
        if request.active_tasks or request.standby_tasks:
            return "A member that joins has no tasks."
        if request.topology is None:
            return "Topology is missing in a request to join."
        if request.topology.epoch < 0:
            return f"There is no topology epoch {request.topology.epoch}."
    elif request.member_epoch == AWAY:
        return "InstanceId is missing."
    elif request.member_epoch < LEFT:
        return f"There is no member epoch {request.member_epoch}."
    return None


def _why_no_member(request: StreamsGroupHeartbeatRequest) -> str | None:
    listed = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is None for tasks in listed) and any(tasks is not None for tasks in listed):
        return "Of the three lists of tasks either all are null or none."
    for tasks in listed:
        if tasks and (len(tasks) > TASKS_MAX or sum(len(each.partitions) for each in tasks) > TASKS_MAX):
            return f"A member cannot have more than {TASKS_MAX} tasks."
    if request.member_epoch != 0 and request.topology is not None:
        return "Topology is for requests to join."
    if not fits(request.group_id, request.member_id, *texts(request)):
        return "A name in the request is longer than 32767 bytes."
    return None
