"""Records of streams groups (KIP-1071) in `__consumer_offsets` ↔ values.

Their frame, and what they share with other kinds of groups, is in `barnabas.coordinator.group.epochs.records`.

- 17, `group` → the group's epoch, a hash of what its topics look like, the topology that was found ready, and what the
  assignor went by.
- 19, `group, member` → what a member says of itself.
- 20, `group` → the epoch of the present target, and when it was made.
- 21, `group, member` → the member's part of it.
- 22, `group, member` → where the member stands (`reconcile.Standing`).
- 23, `group` → the topology.

Lists of tasks are sorted by subtopology and partition. Times are milliseconds since the epoch. Source: the
`StreamsGroup…Key/Value.json` and `StreamsCoordinatorRecordHelpers` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.coordinator.group.epochs.records import (
    Bytes,
    Member,
    MemberStanding,
    TargetEpoch,
    TargetMember,
    framed,
    read,
    target_epoch_messages,
    target_epoch_reader,
)
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.tasks import (
    HeldTasks,
    TaskEpochs,
    Tasks,
    TaskSet,
    in_order,
    task_epochs,
    task_set,
)
from barnabas.coordinator.group.streams.topology import TopicInfo, Topology, check_topology, topology_of
from barnabas.coordinator.machine import Record
from barnabas.kproto import DecodeError, KafkaError, Message
from barnabas.kproto.stored import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    decode_versioned,
)

_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _STANDING, _TOPOLOGY = 17, 19, 20, 21, 22, 23
NO_EPOCH: Final = -1
"""Of a topology that was not found ready."""


class Endpoint(NamedTuple):
    """Where others may ask a member for what is in its stores."""

    host: str
    port: int


class StreamsMetadata(NamedTuple):
    """What a member said of itself. `rebalance_timeout_ms`: how long it may take to give tasks up. `process_id`: the
    process that it runs in. `topology_epoch`: of the topology that it knows. `client_tags`: sorted by key.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class GroupFacts(NamedTuple):
    """`validated_epoch`: of the topology that was found ready; NO_EPOCH: none was. `assignment_configs`: by which the
    assignor last went, as key and value.
    """

    epoch: int
    metadata_hash: int = 0
    validated_epoch: int = NO_EPOCH
    assignment_configs: tuple[tuple[str, str], ...] = ()


class StreamsEpoch(NamedTuple):
    """`facts` None: the group was removed."""

    group_id: str
    facts: GroupFacts | None


class StoredTopology(NamedTuple):
    """`topology` None: the group was removed."""

    group_id: str
    topology: Topology | None


StreamsMemberRecord = Member[StreamsMetadata]
StreamsTarget = TargetMember[Tasks]
StreamsStanding = MemberStanding[Standing]
StreamsRecord = StreamsEpoch | StreamsMemberRecord | TargetEpoch | StreamsTarget | StreamsStanding | StoredTopology


def streams_record(what: StreamsRecord) -> Record:
    """The record that says it. What it means is beside it: tasks may be very many."""
    return framed(*_messages(what))._replace(meaning=what)


def _messages(what: StreamsRecord) -> tuple[Message, Message | None]:
    value: Message | None = None
    if isinstance(what, StreamsEpoch):
        value = what.facts and _facts_value(what.facts)
        return StreamsGroupMetadataKey(group_id=what.group_id), value
    if isinstance(what, TargetEpoch):
        return target_epoch_messages(
            what, StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue
        )
    if isinstance(what, StoredTopology):
        if what.topology is not None:
            value = _topology_value(what.topology)
        return StreamsGroupTopologyKey(group_id=what.group_id), value
    group_id, member_id, _ = what
    if isinstance(what, Member):
        value = what.metadata and _metadata_value(what.metadata)
        return StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value
    if isinstance(what, TargetMember):
        if what.part is not None:
            value = StreamsGroupTargetAssignmentMemberValue(
                active_tasks=_target_value(what.part.active),
                standby_tasks=_target_value(what.part.standby),
                warmup_tasks=_target_value(what.part.warmup),
            )
        return StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value
    if what.standing is not None:
        assigned, revoking = what.standing.assigned, what.standing.revoking
        value = StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=what.standing.epoch,
            previous_member_epoch=what.standing.previous_epoch,
            state=int(what.standing.state),
            active_tasks=_active_value(assigned.active),
            standby_tasks=_held_value(assigned.standby),
            warmup_tasks=_held_value(assigned.warmup),
            active_tasks_pending_revocation=_active_value(revoking.active),
            standby_tasks_pending_revocation=_held_value(revoking.standby),
            warmup_tasks_pending_revocation=_held_value(revoking.warmup),
        )
    return StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value


def _facts_value(facts: GroupFacts) -> Message:
    return StreamsGroupMetadataValue(
        epoch=facts.epoch,
        metadata_hash=facts.metadata_hash,
        validated_topology_epoch=facts.validated_epoch,
        last_assignment_configs=[
            StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=value)
            for key, value in facts.assignment_configs
        ],
    )


def _metadata_value(metadata: StreamsMetadata) -> Message:
    endpoint = metadata.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupMemberMetadataValue.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[
            StreamsGroupMemberMetadataValue.KeyValue(key=key, value=value) for key, value in metadata.client_tags
        ],
    )


_Target = StreamsGroupTargetAssignmentMemberValue.TaskIds
_Held = StreamsGroupCurrentMemberAssignmentValue.TaskIds
_Topology = StreamsGroupTopologyValue


def _target_value(tasks: TaskSet) -> list[_Target]:
    return [_Target(subtopology_id=subtopology, partitions=numbers) for subtopology, numbers in in_order(tasks)]


def _held_value(tasks: TaskSet) -> list[_Held]:
    return [_Held(subtopology_id=subtopology, partitions=numbers) for subtopology, numbers in in_order(tasks)]


def _active_value(tasks: TaskEpochs) -> list[_Held]:
    return [
        _Held(
            subtopology_id=subtopology,
            partitions=numbers,
            assignment_epochs=list(map(tasks[subtopology].__getitem__, numbers)),
        )
        for subtopology, numbers in in_order(tasks)
    ]


def _topology_value(topology: Topology) -> Message:
    return _Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Topology.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=_topics_value(each.state_changelog_topics),
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=_topics_value(each.repartition_source_topics),
                copartition_groups=[
                    _Topology.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies.values()
        ],
    )


def _topics_value(topics: Iterable[TopicInfo]) -> list[_Topology.TopicInfo]:
    return [
        _Topology.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[_Topology.TopicConfig(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


def parse_streams_group(key: Bytes, value: Bytes | None) -> StreamsRecord | None:
    """The meaning of one record; None if it is of another kind. Raises `barnabas.kproto.DecodeError` on what cannot be
    read.
    """
    return read(_READERS, key, value)


def _group(key: Bytes, value: Bytes | None) -> StreamsEpoch:
    group_id = decode_versioned(StreamsGroupMetadataKey, key)[1].group_id
    if value is None:
        return StreamsEpoch(group_id, None)
    decoded = decode_versioned(StreamsGroupMetadataValue, value)[1]
    configs = tuple((config.key, config.value) for config in decoded.last_assignment_configs or ())
    return StreamsEpoch(
        group_id, GroupFacts(decoded.epoch, decoded.metadata_hash, decoded.validated_topology_epoch, configs)
    )


def _member(key: Bytes, value: Bytes | None) -> StreamsMemberRecord:
    of = decode_versioned(StreamsGroupMemberMetadataKey, key)[1]
    if value is None:
        return Member(of.group_id, of.member_id, None)
    decoded = decode_versioned(StreamsGroupMemberMetadataValue, value)[1]
    endpoint = decoded.user_endpoint
    metadata = StreamsMetadata(
        decoded.instance_id,
        decoded.rack_id,
        decoded.client_id,
        decoded.client_host,
        decoded.rebalance_timeout_ms,
        decoded.topology_epoch,
        decoded.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tuple((tag.key, tag.value) for tag in decoded.client_tags),
    )
    return Member(of.group_id, of.member_id, metadata)


def _target_member(key: Bytes, value: Bytes | None) -> StreamsTarget:
    of = decode_versioned(StreamsGroupTargetAssignmentMemberKey, key)[1]
    if value is None:
        return TargetMember(of.group_id, of.member_id, None)
    decoded = decode_versioned(StreamsGroupTargetAssignmentMemberValue, value)[1]
    tasks = Tasks(task_set(decoded.active_tasks), task_set(decoded.standby_tasks), task_set(decoded.warmup_tasks))
    return TargetMember(of.group_id, of.member_id, tasks)


def _standing(key: Bytes, value: Bytes | None) -> StreamsStanding:
    of = decode_versioned(StreamsGroupCurrentMemberAssignmentKey, key)[1]
    if value is None:
        return MemberStanding(of.group_id, of.member_id, None)
    decoded = decode_versioned(StreamsGroupCurrentMemberAssignmentValue, value)[1]

    def active(listed: Iterable[_Held]) -> TaskEpochs:
        told = ((tasks.subtopology_id, tasks.partitions, tasks.assignment_epochs) for tasks in listed)
        return task_epochs(told, decoded.member_epoch)

    standing = Standing(
        decoded.member_epoch,
        decoded.previous_member_epoch,
        MemberState.stored(decoded.state),
        HeldTasks(active(decoded.active_tasks), task_set(decoded.standby_tasks), task_set(decoded.warmup_tasks)),
        HeldTasks(
            active(decoded.active_tasks_pending_revocation),
            task_set(decoded.standby_tasks_pending_revocation),
            task_set(decoded.warmup_tasks_pending_revocation),
        ),
    )
    return MemberStanding(of.group_id, of.member_id, standing)


def _topology(key: Bytes, value: Bytes | None) -> StoredTopology:
    group_id = decode_versioned(StreamsGroupTopologyKey, key)[1].group_id
    if value is None:
        return StoredTopology(group_id, None)
    try:
        topology = topology_of(decode_versioned(StreamsGroupTopologyValue, value)[1])
        check_topology(topology)
    except KafkaError as error:
        raise DecodeError(f"the topology of a streams group: {error.message}") from error
    return StoredTopology(group_id, topology)


_READERS: Final[Mapping[int, Callable[[Bytes, Bytes | None], StreamsRecord]]] = MappingProxyType(
    {
        _GROUP: _group,
        _MEMBER: _member,
        _TARGET: target_epoch_reader(
            StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue
        ),
        _TARGET_MEMBER: _target_member,
        _STANDING: _standing,
        _TOPOLOGY: _topology,
    }
)
