"""A next-generation group becomes a classic one (KIP-848, `group.consumer.migration.policy`): when all members that are
left speak the classic protocol.

The last target becomes the stored generation, numbered like the group's epoch; then the members are asked to rejoin,
unless a static member only came back with the other protocol and nothing has to move. The records that remove the one
group and make the other are one batch. Committed offsets stay. Source: `ClassicGroup.fromConsumerGroup` of Apache
Kafka 4.3. Difference: a group whose classic members have no protocol in common, or one member with unreadable metadata,
remains a next-generation group and works on; there its last next-generation member cannot leave, nor be fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.members import Member as ClassicMember
from barnabas.coordinator.group.classic.members import Members
from barnabas.coordinator.group.consumer.state import ConsumerMember, ConsumerState
from barnabas.coordinator.group.consumer.stored import ClassicClient, consumer_record
from barnabas.coordinator.group.subscriptions import CONSUMER, is_readable, write_assignment
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import StoredGroup, StoredMember, group_record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")


def may_downgrade(group: ConsumerState, gone: Collection[str], joining: ClassicClient | None = None) -> bool:
    """Whether the group becomes classic when members `gone` are; `joining`: and a classic one comes in their place."""
    left = [member.metadata.classic for member_id, member in group.members.items() if member_id not in gone]
    if joining is not None:
        left.append(joining)
    clients = [client for client in left if client is not None]
    return (
        0 < len(clients) <= group.context.config.group_max_size
        and len(clients) == len(left)
        and group.context.config.may_downgrade
        and _protocol(clients) is not None
    )


def _protocol(clients: Sequence[ClassicClient]) -> str | None:
    """The protocol of a group of these; None if there is none, or what one of them says for it cannot be read."""
    members = Members()
    for i, client in enumerate(clients):
        members.add(ClassicMember(str(i), None, "", "", 0, 0, client.protocols))
    if not members.supports(clients[0].protocols):
        return None
    protocol = members.choose_protocol()
    readable = all(is_readable(member.metadata(protocol)) for member in members)
    return protocol if readable else None


def downgrade(
    group: ConsumerState,
    gone: Collection[str],
    joining: ConsumerMember | None,
    rebalance: str | None,
    now: Now,
    out: Decision,
) -> None:
    """Turn the group into a classic one without members `gone`, as it may be. `joining`: a static member with another
    id, whose records are in `out` already. `rebalance`: why the members must rejoin; None: they need not.
    """
    context = group.context
    staying = [member for member_id, member in group.members.items() if member_id not in gone]
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = {}
    if joining is not None and replaced is not None:
        staying = [member for member in staying if member.member_id != replaced.member_id] + [joining]
        renamed[replaced.member_id] = joining.member_id
    classic = ClassicGroup(group.group_id, context.config, context.deadlines, group.offsets)
    members = [_member(member) for member in staying]
    protocol = _protocol([member.metadata.classic for member in staying if member.metadata.classic is not None])
    for each in members:
        former_id = replaced.member_id if replaced is not None and each.instance_id == replaced.instance_id else None
        target = group.target.get(former_id or each.member_id, {})
        each.assignment = write_assignment(target, context.topics, each.metadata(protocol))
    stored = StoredGroup(
        CONSUMER,
        group.epoch,
        protocol,
        members[0].member_id,
        now.wall_ms,
        tuple(
            StoredMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                each.metadata(protocol),
                each.assignment,
            )
            for each in members
        ),
    )
    out.records.extend(map(consumer_record, group.tombstones(renamed)))
    out.records.append(group_record(group.group_id, stored))
    classic.revive(stored, members, now)
    if rebalance is not None:
        classic.rebalance(rebalance, now, out)
    context.next_classic[group.group_id] = classic

    def undo(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
        if not appended:
            context.next_classic.pop(group.group_id, None)

    out.if_failed(undo)
    log.info("group %r becomes a classic one of %d members", group.group_id, len(members))


def _member(member: ConsumerMember) -> ClassicMember:
    classic = member.metadata.classic
    assert classic is not None
    return ClassicMember(
        member.member_id,
        member.metadata.instance_id,
        member.metadata.client_id,
        member.metadata.client_host,
        member.metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )
