"""Records of next-generation consumer groups (KIP-848) in `__consumer_offsets` ↔ values.

Their frame, and what they share with other kinds of groups, is in `barnabas.coordinator.group.epochs.records`.

- 3, `group` → the group's epoch, and a hash of what its topics look like (KIP-1101).
- 5, `group, member` → the member's metadata.
- 6, `group` → the epoch of the present target, and when it was made.
- 7, `group, member` → the member's part of it.
- 8, `group, member` → where the member stands (`reconcile.Standing`).
- 16, `group, regular expression` → the topics that match, at a version of the cluster's image.

- 4, `group` → partition counts and racks, which releases before 4.1 kept instead of the hash. Only that it is there is
  read, for it is to be removed.

Topic ids are 16 bytes, times milliseconds since the epoch. Source: the `ConsumerGroup…Key/Value.json` of Apache Kafka
4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.reconcile import Held, MemberState, Standing
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
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    decode_versioned,
)

_GROUP, _LOOKS, _MEMBER, _TARGET, _TARGET_MEMBER, _STANDING, _PATTERN = 3, 4, 5, 6, 7, 8, 16


class ClassicClient(NamedTuple):
    """A member that came over from the classic protocol and still speaks it."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """What a member said of itself. `rebalance_timeout_ms`: how long it may take to give partitions up."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicClient | None = None


class Resolved(NamedTuple):
    """Topics that match a pattern, in the image of this version."""

    topics: frozenset[str]
    version: int
    resolved_at_ms: int


class Pattern(NamedTuple):
    """`resolved` None: no member subscribes to it any more."""

    group_id: str
    pattern: str
    resolved: Resolved | None


class OldTopicMetadata(NamedTuple):
    """Key 4. `is_there` False: its tombstone; the other is never written."""

    group_id: str
    is_there: bool


ConsumerMemberRecord = Member[MemberMetadata]
ConsumerTarget = TargetMember[Mapping[TopicId, frozenset[int]]]
ConsumerStanding = MemberStanding[Standing]
ConsumerRecord = (
    GroupEpoch | ConsumerMemberRecord | TargetEpoch | ConsumerTarget | ConsumerStanding | Pattern | OldTopicMetadata
)


def consumer_record(what: ConsumerRecord) -> Record:
    """The record that says it."""
    return framed(*_messages(what))


def _messages(what: ConsumerRecord) -> tuple[Message, Message | None]:
    value: Message | None = None
    if isinstance(what, GroupEpoch):
        return group_epoch_messages(what, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue)
    if isinstance(what, TargetEpoch):
        return target_epoch_messages(
            what, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        )
    if isinstance(what, OldTopicMetadata):
        return ConsumerGroupPartitionMetadataKey(group_id=what.group_id), None
    if isinstance(what, Pattern):
        if what.resolved is not None:
            topics, version, resolved_at_ms = what.resolved
            value = ConsumerGroupRegularExpressionValue(
                topics=sorted(topics), version=version, timestamp=resolved_at_ms
            )
        return ConsumerGroupRegularExpressionKey(group_id=what.group_id, regular_expression=what.pattern), value
    group_id, member_id, _ = what
    if isinstance(what, Member):
        value = what.metadata and _metadata_value(what.metadata)
        return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value
    if isinstance(what, TargetMember):
        if what.part is not None:
            value = ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=listed_topics(ConsumerGroupTargetAssignmentMemberValue.TopicPartition, what.part)
            )
        return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value
    if what.standing is not None:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=what.standing.epoch,
            previous_member_epoch=what.standing.previous_epoch,
            state=int(what.standing.state),
            assigned_partitions=_held_value(what.standing.assigned),
            partitions_pending_revocation=_held_value(what.standing.revoking),
        )
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value


def _metadata_value(metadata: MemberMetadata) -> Message:
    classic = metadata.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_pattern,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=data)
                for name, data in classic.protocols
            ],
        ),
    )


MadeT = TypeVar("MadeT")


def listed_topics(make: Callable[..., MadeT], topics: Mapping[TopicId, Collection[int]]) -> list[MadeT]:
    """Partitions by topic for a record, each of which has a class of its own for them."""
    return [make(topic_id=topic, partitions=sorted(partitions)) for topic, partitions in topics.items()]


def read_topics(listed: Iterable[Any]) -> dict[TopicId, frozenset[int]]:
    """The partitions by topic of one of these."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in listed}


def _held_value(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic, partitions in held.items()
    ]


def parse_consumer_group(key: bytes | memoryview, value: bytes | memoryview | None) -> ConsumerRecord | None:
    """The meaning of one record; None if it is of another kind. Raises `barnabas.kproto.DecodeError` on what cannot be
    read.
    """
    return read(_READERS, key, value)


def _member(key: Bytes, value: Bytes | None) -> ConsumerMemberRecord:
    of = decode_versioned(ConsumerGroupMemberMetadataKey, key)[1]
    if value is None:
        return Member(of.group_id, of.member_id, None)
    decoded = decode_versioned(ConsumerGroupMemberMetadataValue, value)[1]
    classic = decoded.classic_member_metadata
    metadata = MemberMetadata(
        decoded.instance_id,
        decoded.rack_id,
        decoded.client_id,
        decoded.client_host,
        frozenset(decoded.subscribed_topic_names),
        decoded.subscribed_topic_regex,
        decoded.rebalance_timeout_ms,
        decoded.server_assignor,
        None
        if classic is None
        else ClassicClient(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )
    return Member(of.group_id, of.member_id, metadata)


def _target_member(key: Bytes, value: Bytes | None) -> ConsumerTarget:
    of = decode_versioned(ConsumerGroupTargetAssignmentMemberKey, key)[1]
    if value is None:
        return TargetMember(of.group_id, of.member_id, None)
    decoded = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)[1]
    return TargetMember(of.group_id, of.member_id, read_topics(decoded.topic_partitions))


def _standing(key: Bytes, value: Bytes | None) -> ConsumerStanding:
    of = decode_versioned(ConsumerGroupCurrentMemberAssignmentKey, key)[1]
    if value is None:
        return MemberStanding(of.group_id, of.member_id, None)
    decoded = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)[1]
    standing = Standing(
        decoded.member_epoch,
        decoded.previous_member_epoch,
        MemberState.stored(decoded.state),
        _held(decoded.assigned_partitions, decoded.member_epoch),
        _held(decoded.partitions_pending_revocation, decoded.member_epoch),
    )
    return MemberStanding(of.group_id, of.member_id, standing)


def _held(topics: Collection[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int) -> Held:
    """Releases before 4.3 did not say since when a member has a partition: then since its present `epoch`. What does
    not fit is taken for not said.
    """
    held = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(epoch, 0)] * len(topic.partitions)
        held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held


def _pattern(key: Bytes, value: Bytes | None) -> Pattern:
    of = decode_versioned(ConsumerGroupRegularExpressionKey, key)[1]
    if value is None:
        return Pattern(of.group_id, of.regular_expression, None)
    decoded = decode_versioned(ConsumerGroupRegularExpressionValue, value)[1]
    return Pattern(
        of.group_id, of.regular_expression, Resolved(frozenset(decoded.topics), decoded.version, decoded.timestamp)
    )


def _looks(key: Bytes, value: Bytes | None) -> OldTopicMetadata:
    return OldTopicMetadata(decode_versioned(ConsumerGroupPartitionMetadataKey, key)[1].group_id, value is not None)


_READERS: Final[Mapping[int, Callable[[Bytes, Bytes | None], ConsumerRecord]]] = MappingProxyType(
    {
        _GROUP: group_epoch_reader(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        _LOOKS: _looks,
        _MEMBER: _member,
        _TARGET: target_epoch_reader(
            ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        ),
        _TARGET_MEMBER: _target_member,
        _STANDING: _standing,
        _PATTERN: _pattern,
    }
)
