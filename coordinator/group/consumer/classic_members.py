"""Members of a next-generation group that still use the classic protocol: JoinGroup, SyncGroup, Heartbeat and
LeaveGroup as such a group answers them, while it migrates from one protocol to the other.

There is no leader and no wait: a join is answered immediately with the member's epoch as generation, a sync with the
member's assignment. Whenever that is to change, the member's heartbeat is answered REBALANCE_IN_PROGRESS, and it
rejoins: that is its step towards the target. It must do so within its rebalance time-out, and sync within the same.

Source: `GroupMetadataManager.classicGroup…ToConsumerGroup` of Apache Kafka 4.3. Difference: when all members are
classic, and the group may not become so, they are asked to rejoin as soon as the group's epoch has risen; there none
is, and the partitions of a member that left stay unassigned.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.answers import group_write_error, join_error, sync_error, write_error
from barnabas.coordinator.group.consumer.downgrade import downgrade, may_downgrade
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.member_step import MemberStep, PatternChange, replace_static
from barnabas.coordinator.group.consumer.reconcile import MemberState, Target
from barnabas.coordinator.group.consumer.state import ConsumerMember
from barnabas.coordinator.group.consumer.stored import ClassicClient, ConsumerRecord, consumer_record
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.subscriptions import CONSUMER, is_readable, read_subscription, write_assignment
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import fits
from barnabas.kproto import DecodeError, ErrorCode, KafkaError
from barnabas.kproto.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    version: int,
    client_id: str,
    client_host: str,
    unique: str,
    token: Any,
    now: Now,
    out: Decision,
) -> None:
    """A classic member joins, for the first time or again. Raises KafkaError to refuse."""
    context = group.context
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if context.config.consumer_migration_policy == "disabled":
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id
    member_id = request.member_id or unique
    if not fits(member_id, client_id, client_host, request.group_instance_id, *(name for name, _ in protocols)):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    group.check_room(member_id)
    if request.protocol_type != CONSUMER or not group.counts.support(name for name, _ in protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if is_new and request.group_instance_id is None and version >= 4:
        out.reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, version))
        return
    records: list[ConsumerRecord] = []
    replaced: ConsumerMember | None = None
    if request.group_instance_id is None:
        before = group.members.get(member_id) or ConsumerMember(member_id)
    elif not is_new:
        before = group.check_static(member_id, request.group_instance_id)
        replaced = before
    else:
        replaced = group.static_member(request.group_instance_id)
        if replaced is None:
            before = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            before = replace_static(group, replaced, member_id, records)
    try:
        subscription = read_subscription(protocols[0][1], context.topics)
    except DecodeError as error:
        # Apache Kafka calls this an unknown error as well.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    client = ClassicClient(request.session_timeout_ms, protocols)
    becomes_classic = (
        replaced is not None and not replaced.is_classic and may_downgrade(group, {replaced.member_id}, client)
    )
    step = MemberStep(group, before, records)
    known = before.metadata
    rebalance_timeout_ms = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
    step.update_metadata(
        known._replace(
            instance_id=known.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=known.rack_id if subscription.rack_id is None else subscription.rack_id,
            rebalance_timeout_ms=known.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            topic_names=subscription.topics,
            topic_pattern="",
            client_id=client_id,
            client_host=client_host,
            classic=client,
        )
    )
    step.update_pattern(lambda _: None, now)
    changed = step.names_changed or step.pattern_change is not PatternChange.NONE
    step.raise_epoch(changed)
    if not becomes_classic:
        step.reconcile(step.target(now), subscription.owned, changed)
        group.carry_out(step, now, out)
        group.disarm(Due.REJOIN, member_id)
        group.disarm(Due.REVOKE, member_id)
        group.arm(Due.HEARTBEAT, member_id, request.session_timeout_ms, now)
        group.arm(Due.RESYNC, member_id, rebalance_timeout_ms, now)
    else:
        is_stale = group.target_epoch < step.epoch
        if not is_stale:
            step.reconcile(Target(group.target_epoch, group.target_of(step.after)), subscription.owned, changed)
        out.records.extend(map(consumer_record, step.records))
        reason = "a static member came back with the classic protocol, and the target is stale"
        downgrade(group, (), step.after, reason if is_stale else None, now, out)
    response = JoinGroupResponse(
        member_id=member_id,
        generation_id=step.after.standing.epoch,
        protocol_type=CONSUMER,
        protocol_name=protocols[0][0],
    )
    out.reply_when_committed(token, response, lambda code: join_error(group_write_error(code), "", version))


def sync(group: ConsumerGroup, request: SyncGroupRequest, token: Any, now: Now, out: Decision) -> None:
    """A classic member asks what it has. Raises KafkaError to refuse."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    classic = member.metadata.classic
    assert classic is not None
    if request.generation_id != member.standing.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    name, metadata = classic.protocols[0] if classic.protocols else ("", b"")
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not is_readable(metadata):
        # Only its metadata for the protocol that the group had when it came over was read.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    # A member that still has to revoke partitions has rejoined already, and is asked to do so again after that.
    if group.target_epoch > member.standing.epoch and member.standing.state is not MemberState.UNREVOKED:
        _ask_to_rejoin(group, member, now)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.disarm(Due.RESYNC, member.member_id)
    group.arm(Due.HEARTBEAT, member.member_id, classic.session_timeout_ms, now)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(
            {topic: tuple(held) for topic, held in member.standing.assigned.items()}, group.context.topics, metadata
        ),
    )
    out.reply_when_committed(token, response, lambda code: sync_error(write_error(code)))


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
    """A classic member's heartbeat; the answer says whether to rejoin. Raises KafkaError to reject it."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    assert member.metadata.classic is not None
    standing = member.standing
    if request.generation_id != standing.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    group.arm(Due.HEARTBEAT, member.member_id, member.metadata.classic.session_timeout_ms, now)
    must_rejoin = (
        standing.epoch < group.target_epoch
        # Without a member of the next generation no request would compute a target.
        or (standing.epoch < group.epoch and group.counts.classic == len(group.members))
        or standing.state is MemberState.UNREVOKED
        or (standing.state is MemberState.UNRELEASED and not _waits_for_others(group, member))
    )
    if must_rejoin:
        _ask_to_rejoin(group, member, now)
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin else ErrorCode.NONE)


def leave(
    group: ConsumerGroup, members: list[LeaveGroupRequest.MemberIdentity], now: Now, out: Decision
) -> list[LeaveGroupResponse.MemberResponse]:
    """Members of either protocol leave: by themselves, or removed by an administrator, who may name the instance
    id alone.
    """
    results = []
    gone: dict[str, ConsumerMember] = {}
    for identity in members:
        member: ConsumerMember | None
        code = ErrorCode.NONE
        if identity.group_instance_id is None:
            member = group.members.get(identity.member_id)
        else:
            member = group.static_member(identity.group_instance_id)
            if member is not None and identity.member_id not in ("", member.member_id):
                member, code = None, ErrorCode.FENCED_INSTANCE_ID
        if member is not None:
            gone[member.member_id] = member
        elif code == ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        results.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    group.fence(list(gone.values()), now, out)
    return results


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Raises KafkaError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.members.get(member_id) if instance_id is None else group.check_static(member_id, instance_id)
    if member is None or not member.is_classic:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _ask_to_rejoin(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    key = (group.group_id, Due.REJOIN, member.member_id)
    if key not in group.context.deadlines:
        group.arm(Due.REJOIN, member.member_id, member.metadata.rebalance_timeout_ms, now)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member still has a partition of its target."""
    target = group.target.get(member.member_id, {})
    return any(
        partition not in member.standing.assigned.get(topic, ()) and not group.is_free(topic, partition)
        for topic, partitions in target.items()
        for partition in partitions
    )
