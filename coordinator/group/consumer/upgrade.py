"""A classic group becomes one of the next generation while its members keep working (KIP-848,
`group.consumer.migration.policy`): when the first member with the new protocol joins it.

Its members keep their protocol, what they have and their sessions; a member that waits is asked to join again, for the
group is about to rebalance. The records that remove the one group and those that make the other are one batch, so no
log ever holds half a group. Committed offsets stay.

Source: `ConsumerGroup.fromClassicGroup` of Apache Kafka 4.3. Differences: a group whose first generation is not formed
yet goes over as well, and so does one with a member that does not support the last generation's protocol (there the
joining member gets an unknown error); a partition that a leader has assigned to two members stays with the first, and
one that it has assigned to no member is assigned with the first join.
"""

from __future__ import annotations

import logging

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.members import Member as ClassicMember
from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.reconcile import MemberState, Standing
from barnabas.coordinator.group.consumer.stored import (
    ClassicClient,
    ConsumerRecord,
    MemberMetadata,
    consumer_record,
)
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.group.subscriptions import CONSUMER, read_assignment, read_subscription
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import group_record
from barnabas.kproto import DecodeError, ErrorCode, KafkaError

log = logging.getLogger("barnabas.groups")


def upgrade(classic: ClassicGroup, context: GroupContext, out: Decision) -> ConsumerGroup:
    """The next-generation group for a classic one, with its records. Nothing else happens yet, for the joining member
    may still be rejected; `gone_over` follows. Raises KafkaError GROUP_ID_NOT_FOUND if it may not change.
    """
    group = ConsumerGroup(classic.group_id, context)
    removal = group_record(classic.group_id, None)
    if classic.is_empty:
        out.records.append(removal)
        return group
    _check(classic, context)
    records = _records(classic, context)
    for record in records:
        group.apply(record)
    # What the leader left out, as a topic that it had not heard of, is to be handed out with the first heartbeat.
    looks = context.metadata_hash(group.subscribed) if _has_all(group, context) else 0
    epoch = GroupEpoch(classic.group_id, classic.generation, looks)
    group.apply(epoch)
    records.append(epoch)
    out.records.append(removal)
    order = (Member, GroupEpoch, TargetMember, TargetEpoch, MemberStanding)
    out.records.extend(consumer_record(record) for kind in order for record in records if isinstance(record, kind))
    return group


def gone_over(classic: ClassicGroup, group: ConsumerGroup, now: Now, out: Decision) -> None:
    """The records of `upgrade` are about to be written: members that wait are answered; all sessions continue."""
    if classic.is_empty:
        return
    classic.ask_to_rejoin(now, out)
    for member in group.members.values():
        assert member.metadata.classic is not None
        group.arm(Due.HEARTBEAT, member.member_id, member.metadata.classic.session_timeout_ms, now)
    log.info("group %r goes over to the next generation with %d members", group.group_id, len(group.members))


def _has_all(group: ConsumerGroup, context: GroupContext) -> bool:
    """Whether each partition of a subscribed topic is assigned to a member."""
    topics = [context.topics.by_name[name] for name in group.subscribed if name in context.topics.by_name]
    return not any(group.is_free(topic.topic_id, i) for topic in topics for i in range(topic.partition_count))


def _check(classic: ClassicGroup, context: GroupContext) -> None:
    why = None
    if not context.config.may_upgrade:
        why = "group.consumer.migration.policy does not allow it"
    elif classic.protocol_type != CONSUMER:
        why = f"its protocol type is {classic.protocol_type}, not {CONSUMER}"
    elif len(classic.members) > context.config.consumer_max_size:
        why = "it has more members than group.consumer.max.size allows"
    if why is not None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Classic group {classic.group_id} cannot be upgraded: {why}.")


def _records(classic: ClassicGroup, context: GroupContext) -> list[ConsumerRecord]:
    group_id, generation = classic.group_id, classic.generation
    records: list[ConsumerRecord] = [TargetEpoch(group_id, generation, 0)]
    taken: set[tuple[TopicId, int]] = set()
    for member in classic.members:
        metadata, assigned, has_own_data = _read(classic, member, context)
        if has_own_data:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Classic group {group_id} cannot be upgraded: its assignor keeps data of its own in the assignments.",
            )
        free = {topic: frozenset(p for p in parts if (topic, p) not in taken) for topic, parts in assigned.items()}
        free = {topic: partitions for topic, partitions in free.items() if partitions}
        taken.update((topic, partition) for topic, partitions in free.items() for partition in partitions)
        held = {topic: dict.fromkeys(sorted(partitions), generation) for topic, partitions in free.items()}
        standing = Standing(generation, generation, MemberState.STABLE, held, {})
        records += (
            Member(group_id, member.member_id, metadata),
            TargetMember(group_id, member.member_id, free),
            MemberStanding(group_id, member.member_id, standing),
        )
    return records


def _read(
    classic: ClassicGroup, member: ClassicMember, context: GroupContext
) -> tuple[MemberMetadata, dict[TopicId, frozenset[int]], bool]:
    # One that has just joined may not support the protocol of the last generation; all name the same topics.
    subscribed = member.metadata(classic.protocol) or member.protocols[0][1]
    try:
        subscription = read_subscription(subscribed, context.topics)
        assigned, has_own_data = read_assignment(member.assignment, context.topics)
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Classic group {classic.group_id} cannot be upgraded: the metadata of member {member.member_id} is bad.",
        ) from error
    metadata = MemberMetadata(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        subscription.topics,
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicClient(member.session_timeout_ms, member.protocols),
    )
    return metadata, dict(assigned), has_own_data
