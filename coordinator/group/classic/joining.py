"""JoinGroup in a classic group: members that join for the first time, rejoin, or replace an old id by a new one.

A valid request is parked until the rebalance is complete, or answered immediately if it changes nothing. `now` is
`machine.Now`; time-outs are milliseconds. Sources: KIP-62, KIP-345 and KIP-814 (static members), KIP-394 (ids that are
assigned before joining). Difference from Apache Kafka: a parked request that is superseded by a second one of the same
member is answered REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

import logging
from typing import Any

from barnabas.coordinator.group.answers import group_write_error, join_error
from barnabas.coordinator.group.classic.members import Member, Protocols, Waiting
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import State, Why
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import fits, group_record, made_id
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupRequest, JoinGroupResponse

log = logging.getLogger("barnabas.groups")


class Joining:
    """See the module. Methods that decide write into the `Decision` of the operation."""

    __slots__ = ("_group", "_rebalance")

    def __init__(self, group: ClassicState, rebalance: Rebalance) -> None:
        self._group = group
        self._rebalance = rebalance

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
        out: Decision,
    ) -> None:
        """A member joins, for the first time or again. `unique` makes the id of a new member, should one be needed."""
        group, waiting = self._group, Waiting(token, version)
        member_id, instance_id = request.member_id, request.group_instance_id
        protocols = tuple({protocol.name: bytes(protocol.metadata) for protocol in reversed(request.protocols)}.items())
        protocols = protocols[::-1]
        is_new = not member_id
        refusal: ErrorCode | None = None
        if not fits(client_id, client_host, instance_id, request.protocol_type, *(name for name, _ in protocols)):
            # All members are written together, so one that does not fit would keep the others from getting anything.
            # Apache Kafka, too, fails when it writes it or answers.
            refusal = ErrorCode.UNKNOWN_SERVER_ERROR
        elif not self._has_room_for(member_id):
            self._rebalance.remove(member_id, out)
            refusal, member_id = ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        elif not self._supports(request.protocol_type, protocols):
            refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif is_new:
            new_id = made_id(client_id if instance_id is None else instance_id, unique)
            old_id = None if instance_id is None else group.members.static_id(instance_id)
            if old_id is not None:
                self._replace_static(group.members[old_id], new_id, request, protocols, waiting, now, out)
            elif version >= 4 and instance_id is None:
                group.members.pending.add(new_id)
                group.arm(Due.PENDING, new_id, now.seconds + request.session_timeout_ms / 1000)
                refusal, member_id = ErrorCode.MEMBER_ID_REQUIRED, new_id
            else:
                self._add(new_id, request, client_id, client_host, protocols, waiting, now, out)
        elif member_id in group.members.pending:
            # An instance id along with a pending id makes no sense: such ids are handed to dynamic members alone.
            if instance_id is not None:
                refusal = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                group.disarm(Due.PENDING, member_id)
                self._add(member_id, request, client_id, client_host, protocols, waiting, now, out)
        else:
            refusal = group.check_member(member_id, instance_id)
            if refusal is None:
                self._rejoin(group.members[member_id], request, protocols, waiting, now, out)
        if refusal is not None:
            out.reply(token, join_error(refusal, member_id, version))
        self._rebalance.maybe_complete_join(now, out)

    def _has_room_for(self, member_id: str) -> bool:
        group = self._group
        members, limit = group.members, group.config.group_max_size
        if group.state is State.EMPTY:
            return True
        member = members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Those who wait are counted, not those who are known: the limit may have been lowered, and the last to
            # come back is to go.
            return (member is not None and member.joining is not None) or members.joining_count < limit
        return member is not None or len(members) < limit

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        group = self._group
        if group.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == group.protocol_type and group.members.supports(protocols)

    def _add(
        self,
        member_id: str,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        protocols: Protocols,
        waiting: Waiting,
        now: Now,
        out: Decision,
    ) -> None:
        group = self._group
        member = Member(
            member_id,
            request.group_instance_id,
            client_id,
            client_host,
            _rebalance_timeout_ms(request, waiting.version),
            request.session_timeout_ms,
            protocols,
        )
        member.is_new = True
        self._rebalance.member_added()
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members.add(member)
        group.members.set_joining(member, waiting)
        if group.leader is None:
            group.leader = member_id
        # A member that waits in a JoinGroup cannot heartbeat, and a client that gave up would leave one member behind
        # with each attempt.
        group.arm(Due.SESSION, member_id, now.seconds + group.config.new_member_join_timeout_ms / 1000)
        self._rebalance.maybe_prepare(Why.JOINED, f"member {member_id!r} joined{given(request.reason)}", now, out)

    def _rejoin(
        self,
        member: Member,
        request: JoinGroupRequest,
        protocols: Protocols,
        waiting: Waiting,
        now: Now,
        out: Decision,
    ) -> None:
        group = self._group
        is_leader = member.member_id == group.leader
        unchanged = member.protocols == protocols
        if group.state is State.EMPTY:
            out.reply(waiting.token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id, waiting.version))
        elif unchanged and (
            group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not is_leader)
        ):
            # It may have missed the answer; nothing changed for the others. In Stable the leader's join always asks
            # for another assignment.
            out.reply(waiting.token, group.joined(member, waiting.version))
        else:
            self._update(member, request, protocols, waiting, out)
            reason = f"member {member.member_id!r} joined again{given(request.reason)}"
            self._rebalance.maybe_prepare(Why.JOINED_AGAIN, reason, now, out)

    def _update(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, waiting: Waiting, out: Decision
    ) -> None:
        members = self._group.members
        members.set_protocols(member, protocols)
        _take_timeouts(member, request, waiting.version)
        superseded = members.set_joining(member, waiting)
        if superseded is not None:
            out.reply(
                superseded.token,
                join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, superseded.version),
            )

    # -- static members ---------------------------------------------------------------------------

    def _replace_static(
        self,
        member: Member,
        new_id: str,
        request: JoinGroupRequest,
        protocols: Protocols,
        waiting: Waiting,
        now: Now,
        out: Decision,
    ) -> None:
        """A static member was restarted (KIP-345): it takes the place of its former self, which is fenced now."""
        group = self._group
        old_id, old_leader = member.member_id, group.leader
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        log.info("group %r: static member %r comes back as %r", group.group_id, old_id, new_id)
        group.answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID, out)
        self._rename(member, new_id, now)
        if group.state is State.STABLE:
            group.members.set_protocols(member, protocols)
            if group.members.choose_protocol() != group.protocol:
                self._update(member, request, protocols, waiting, out)
                reason = f"static member {new_id!r} changes the protocol"
                self._rebalance.maybe_prepare(Why.STATIC_CHANGED, reason, now, out)
                return
            _take_timeouts(member, request, waiting.version)
            group.heard_of(member, now)
            if waiting.version >= 9:
                # The leader stays leader, so that it watches the topics, but must not assign: the group is stable
                # (KIP-814).
                joined = group.joined(member, waiting.version, skip_assignment=new_id == group.leader)
            else:
                # It must not act as the leader, for a stable group would ignore its assignment: answer with the old
                # leader's id.
                joined = group.joined(member, waiting.version, leader=old_leader)

            def refusal(code: ErrorCode) -> JoinGroupResponse:
                refused = join_error(group_write_error(code), "", waiting.version)
                refused.generation_id = group.generation
                refused.leader = old_leader or ""
                return refused

            def undo(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
                if appended or member.member_id != new_id or new_id not in group.members:
                    return
                log.warning("group %r: static member %r keeps its old id: %s", group.group_id, old_id, code.name)
                group.members.set_protocols(member, before[0])
                member.rebalance_timeout_ms, member.session_timeout_ms = before[1:]
                self._rename(member, old_id, then)

            out.reply_when_committed(waiting.token, joined, refusal)
            out.if_failed(undo)
            assignments = {each.member_id: each.assignment for each in group.members}
            out.records.append(group_record(group.group_id, group.to_store(assignments)))
            return
        self._update(member, request, protocols, waiting, out)
        if group.state is State.COMPLETING_REBALANCE:
            # The leader assigns to the old id by now: form the generation again.
            self._rebalance.prepare(Why.STATIC_CHANGED, f"static member {new_id!r} came back", now, out)

    def _rename(self, member: Member, member_id: str, now: Now) -> None:
        group, old_id = self._group, member.member_id
        group.members.rename(member, member_id)
        if group.leader == old_id:
            group.leader = member_id
        if old_id in group.unsynced:
            group.unsynced.discard(old_id)
            group.unsynced.add(member_id)
        group.disarm(Due.SESSION, old_id)
        group.heard_of(member, now)


def given(reason: str | None) -> str:
    """The client's own reason, for a log line; most clients give none."""
    return f": {reason!r}" if reason else ""


def _take_timeouts(member: Member, request: JoinGroupRequest, version: int) -> None:
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request, version)
    member.session_timeout_ms = request.session_timeout_ms


def _rebalance_timeout_ms(request: JoinGroupRequest, version: int) -> int:
    """Version 0 has none: the session time-out stands in."""
    return request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
