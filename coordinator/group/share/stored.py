"""Records of share groups in `__consumer_offsets` ↔ values.

Their frame, and what they share with other kinds of groups, is in `barnabas.coordinator.group.epochs.records`.

- 10, `group, member` → the member's metadata: a part of what members of consumer groups say of themselves.
- 11, `group` → the group's epoch, and a hash of what its topics look like.
- 12, `group` → the epoch of the present target, and when it was made.
- 13, `group, member` → the member's part of it.
- 14, `group, member` → the member's epoch, the one before, and what it has. Its state is always 0.
- 15, `group` → which partitions the share coordinator is being told of, knows, or is to forget.

Topic ids are 16 bytes, times milliseconds since the epoch. Source: the `ShareGroup…Key/Value.json` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.stored import MemberMetadata, listed_topics, read_topics
from barnabas.coordinator.group.epochs.records import (
    Bytes,
    GroupEpoch,
    Member,
    MemberStanding,
    TargetEpoch,
    TargetMember,
    framed,
    group_epoch_messages,
    group_epoch_reader,
    read,
    target_epoch_messages,
    target_epoch_reader,
)
from barnabas.coordinator.machine import Record
from barnabas.kproto import Message
from barnabas.kproto.stored import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    decode_versioned,
)

_MEMBER, _GROUP, _TARGET, _TARGET_MEMBER, _STANDING, _PARTITIONS = 10, 11, 12, 13, 14, 15

Partitions = Mapping[TopicId, frozenset[int]]


class ShareStanding(NamedTuple):
    """Where a member stands. `previous_epoch`: one that did not get the last answer sends it."""

    epoch: int
    previous_epoch: int
    assigned: Partitions


class NamedPartitions(NamedTuple):
    """Partitions of a topic; its name is kept as the topic may be gone when it is looked for."""

    topic_name: str
    partitions: frozenset[int]


class InitializedPartitions(NamedTuple):
    """By topic: what the share coordinator is being told of, what it knows, and the names of topics that it is to
    forget.
    """

    initializing: Mapping[TopicId, NamedPartitions] = MappingProxyType({})
    initialized: Mapping[TopicId, NamedPartitions] = MappingProxyType({})
    deleting: Mapping[TopicId, str] = MappingProxyType({})


class StatePartitions(NamedTuple):
    """`partitions` None: the group was removed."""

    group_id: str
    partitions: InitializedPartitions | None


ShareMemberRecord = Member[MemberMetadata]
ShareTarget = TargetMember[Partitions]
ShareMemberStanding = MemberStanding[ShareStanding]
ShareRecord = GroupEpoch | ShareMemberRecord | TargetEpoch | ShareTarget | ShareMemberStanding | StatePartitions


def share_record(what: ShareRecord) -> Record:
    """The record that says it."""
    return framed(*_messages(what))


def _messages(what: ShareRecord) -> tuple[Message, Message | None]:
    value: Message | None = None
    if isinstance(what, GroupEpoch):
        return group_epoch_messages(what, ShareGroupMetadataKey, ShareGroupMetadataValue)
    if isinstance(what, TargetEpoch):
        return target_epoch_messages(
            what, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue
        )
    if isinstance(what, StatePartitions):
        if what.partitions is not None:
            value = _partitions_value(what.partitions)
        return ShareGroupStatePartitionMetadataKey(group_id=what.group_id), value
    group_id, member_id, _ = what
    if isinstance(what, Member):
        if what.metadata is not None:
            value = ShareGroupMemberMetadataValue(
                rack_id=what.metadata.rack_id,
                client_id=what.metadata.client_id,
                client_host=what.metadata.client_host,
                subscribed_topic_names=sorted(what.metadata.topic_names),
            )
        return ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value
    if isinstance(what, TargetMember):
        if what.part is not None:
            value = ShareGroupTargetAssignmentMemberValue(
                topic_partitions=listed_topics(ShareGroupTargetAssignmentMemberValue.TopicPartition, what.part)
            )
        return ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value
    if what.standing is not None:
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=what.standing.epoch,
            previous_member_epoch=what.standing.previous_epoch,
            assigned_partitions=listed_topics(
                ShareGroupCurrentMemberAssignmentValue.TopicPartitions, what.standing.assigned
            ),
        )
    return ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value


_Info = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo


def _partitions_value(partitions: InitializedPartitions) -> Message:
    def infos(topics: Mapping[TopicId, NamedPartitions]) -> list[_Info]:
        return [
            _Info(topic_id=topic, topic_name=named.topic_name, partitions=sorted(named.partitions))
            for topic, named in topics.items()
        ]

    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=infos(partitions.initializing),
        initialized_topics=infos(partitions.initialized),
        deleting_topics=[
            ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic, topic_name=name)
            for topic, name in partitions.deleting.items()
        ],
    )


def parse_share_group(key: bytes | memoryview, value: bytes | memoryview | None) -> ShareRecord | None:
    """The meaning of one record; None if it is of another kind. Raises `barnabas.kproto.DecodeError` on what cannot be
    read.
    """
    return read(_READERS, key, value)


def _member(key: Bytes, value: Bytes | None) -> ShareMemberRecord:
    of = decode_versioned(ShareGroupMemberMetadataKey, key)[1]
    if value is None:
        return Member(of.group_id, of.member_id, None)
    decoded = decode_versioned(ShareGroupMemberMetadataValue, value)[1]
    names = frozenset(decoded.subscribed_topic_names)
    return Member(
        of.group_id,
        of.member_id,
        MemberMetadata(None, decoded.rack_id, decoded.client_id, decoded.client_host, names, None, -1, None),
    )


def _target_member(key: Bytes, value: Bytes | None) -> ShareTarget:
    of = decode_versioned(ShareGroupTargetAssignmentMemberKey, key)[1]
    if value is None:
        return TargetMember(of.group_id, of.member_id, None)
    decoded = decode_versioned(ShareGroupTargetAssignmentMemberValue, value)[1]
    return TargetMember(of.group_id, of.member_id, read_topics(decoded.topic_partitions))


def _standing(key: Bytes, value: Bytes | None) -> ShareMemberStanding:
    of = decode_versioned(ShareGroupCurrentMemberAssignmentKey, key)[1]
    if value is None:
        return MemberStanding(of.group_id, of.member_id, None)
    decoded = decode_versioned(ShareGroupCurrentMemberAssignmentValue, value)[1]
    assigned = read_topics(decoded.assigned_partitions)
    return MemberStanding(
        of.group_id, of.member_id, ShareStanding(decoded.member_epoch, decoded.previous_member_epoch, assigned)
    )


def _partitions(key: Bytes, value: Bytes | None) -> StatePartitions:
    group_id = decode_versioned(ShareGroupStatePartitionMetadataKey, key)[1].group_id
    if value is None:
        return StatePartitions(group_id, None)
    decoded = decode_versioned(ShareGroupStatePartitionMetadataValue, value)[1]

    def named(infos: Iterable[_Info]) -> dict[TopicId, NamedPartitions]:
        return {info.topic_id: NamedPartitions(info.topic_name, frozenset(info.partitions)) for info in infos}

    return StatePartitions(
        group_id,
        InitializedPartitions(
            named(decoded.initializing_topics),
            named(decoded.initialized_topics),
            {info.topic_id: info.topic_name for info in decoded.deleting_topics},
        ),
    )


_READERS: Final[Mapping[int, Callable[[Bytes, Bytes | None], ShareRecord]]] = MappingProxyType(
    {
        _MEMBER: _member,
        _GROUP: group_epoch_reader(ShareGroupMetadataKey, ShareGroupMetadataValue),
        _TARGET: target_epoch_reader(ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        _TARGET_MEMBER: _target_member,
        _STANDING: _standing,
        _PARTITIONS: _partitions,
    }
)
