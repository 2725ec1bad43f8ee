"""A classic group: join, sync, heartbeat, leave, and the time-outs between them.

The life of a generation: members send JoinGroup and are parked (PreparingRebalance) until all known ones have, or
time is up; everybody is answered at once, the leader alone with the list of members (CompletingRebalance); members
send SyncGroup and are parked until the leader's brings the assignment; that becomes one record, and its replay makes
the group Stable.

Hard: `stored` (the last generation in the log, with assignments) and `offsets`; `replay_stored` alone changes the
state to Stable. Soft: all the rest, the rebalance under way included: when the coordinator moves, members of a
generation that was not assigned yet simply join again.

`now` is `machine.Now`; time-outs are milliseconds. Differences from Apache Kafka, all in what it leaves unanswered: a
parked request that is superseded by a second one of the same member, or whose member is removed while it waits for
the assignment, gets an answer here (27 and 25); a pending id that expires takes its otherwise empty group along.
Sources: KIP-62, KIP-134 (initial delay), KIP-345 and KIP-814 (static members), KIP-394, KIP-559.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.coordinator.group.answers import group_write_error, join_error, sync_error
from barnabas.coordinator.group.members import Member, Protocols, Waiting
from barnabas.coordinator.group.offsets import TopicPartition
from barnabas.coordinator.group.rebalance import Due, Generations
from barnabas.coordinator.group.states import TRANSITIONS, Event, State
from barnabas.coordinator.machine import Decision, Now, Record
from barnabas.coordinator.stored import StoredGroup, fits, group_record, made_id
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse

log = logging.getLogger("barnabas.groups")


class ClassicGroup(Generations):
    """See the module. Methods that decide write into the `Decision` of the operation."""

    # -- hard state -------------------------------------------------------------------------------

    def replay_stored(self, stored: StoredGroup | None) -> None:
        """A generation of this group (None: its removal) was read from the log or has just been appended."""
        self.stored = stored
        if stored is None or self.state is not State.COMPLETING_REBALANCE or stored.generation != self.generation:
            return
        for told in stored.members:
            member = self.members.get(told.member_id)
            if member is not None:
                member.assignment = told.assignment
        self.state = TRANSITIONS[self.state][Event.ASSIGNED]
        self.state_time_ms = stored.state_time_ms

    def restore(self, now: Now, out: Decision) -> None:
        """The log was read to its end: bring the stored generation to life; its members get a new session."""
        stored = self.stored
        if stored is None:
            self.state_time_ms = now.wall_ms
            return
        members = [
            Member(
                told.member_id,
                told.instance_id,
                told.client_id,
                told.client_host,
                told.rebalance_timeout_ms,
                told.session_timeout_ms,
                ((stored.protocol or "", told.subscription),),
                told.assignment,
            )
            for told in stored.members
        ]
        self.revive(stored, members, now)
        if len(self.members) > self.config.group_max_size:
            self._prepare_rebalance("more members than group.max.size allows", now, out)

    def revive(self, stored: StoredGroup, members: Iterable[Member], now: Now) -> None:
        """Begin life with a stored generation and its members; each gets a new session."""
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        self.state_time_ms = stored.state_time_ms
        for member in members:
            self.members.add(member)
            self._heard_of(member, now)
        if stored.members:
            self.leader = stored.leader
            self.state = TRANSITIONS[self.state][Event.LOADED]
            self._note_subscriptions()

    def rebalance(self, reason: str, now: Now, out: Decision) -> None:
        """Have the members join again."""
        self._prepare_rebalance(reason, now, out)

    def tell_to_rejoin(self, now: Now, out: Decision) -> None:
        """The group is about to become a next-generation one: whoever waits is to join that."""
        for member in self.members:
            if member.is_waiting:
                self._answer_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, out)
                # Should the log refuse it, the group stays what it is, and who does not come back is to be missed.
                self._heard_of(member, now)

    def forget(self) -> None:
        """Another kind of group took this one's place; nobody waits any more."""
        for member in self.members:
            self._disarm(Due.SESSION, member.member_id)
        for member_id in self.members.pending:
            self._disarm(Due.PENDING, member_id)
        self._disarm(Due.JOIN)
        self._disarm(Due.SYNC)

    # -- JoinGroup --------------------------------------------------------------------------------

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
        waiting = Waiting(token, version)
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
            self._remove(member_id, out)
            refusal, member_id = ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        elif not self._supports(request.protocol_type, protocols):
            refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif is_new:
            new_id = made_id(client_id if instance_id is None else instance_id, unique)
            old_id = None if instance_id is None else self.members.static_id(instance_id)
            if old_id is not None:
                self._replace_static(self.members[old_id], new_id, request, protocols, waiting, now, out)
            elif version >= 4 and instance_id is None:
                self.members.pending.add(new_id)
                self._arm(Due.PENDING, new_id, now.seconds + request.session_timeout_ms / 1000)
                refusal, member_id = ErrorCode.MEMBER_ID_REQUIRED, new_id
            else:
                self._add(new_id, request, client_id, client_host, protocols, waiting, now, out)
        elif member_id in self.members.pending:
            # An instance id along with a pending id makes no sense: such ids are handed to dynamic members alone.
            if instance_id is not None:
                refusal = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                self._disarm(Due.PENDING, member_id)
                self._add(member_id, request, client_id, client_host, protocols, waiting, now, out)
        else:
            refusal = self.check_member(member_id, instance_id)
            if refusal is None:
                self._rejoin(self.members[member_id], request, protocols, waiting, now, out)
        if refusal is not None:
            out.reply(token, join_error(refusal, member_id, version))
        self._maybe_complete_join(now, out)

    def _has_room_for(self, member_id: str) -> bool:
        members, limit = self.members, self.config.group_max_size
        if self.state is State.EMPTY:
            return True
        member = members.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            # Those who wait are counted, not those who are known: the limit may have been lowered, and the last to
            # come back is to go.
            return (member is not None and member.joining is not None) or members.joining_count < limit
        return member is not None or len(members) < limit

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.members.supports(protocols)

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
        if self.state is State.PREPARING_REBALANCE and self.generation == 0:
            self._new_member_added = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self.members.set_joining(member, waiting)
        if self.leader is None:
            self.leader = member_id
        # Nobody who waits in a JoinGroup can heartbeat, and a client that gave up would leave one member behind with
        # each try.
        self._arm(Due.SESSION, member_id, now.seconds + self.config.new_member_join_timeout_ms / 1000)
        self._maybe_prepare_rebalance(f"member {member_id!r} joined{_given(request.reason)}", now, out)

    def _rejoin(
        self,
        member: Member,
        request: JoinGroupRequest,
        protocols: Protocols,
        waiting: Waiting,
        now: Now,
        out: Decision,
    ) -> None:
        is_leader = member.member_id == self.leader
        unchanged = member.protocols == protocols
        if self.state is State.EMPTY:
            out.reply(waiting.token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id, waiting.version))
        elif unchanged and (self.state is State.COMPLETING_REBALANCE or (self.state is State.STABLE and not is_leader)):
            # It may have missed the answer; nothing changed for the others. In Stable the leader's join is always a
            # wish to assign anew.
            out.reply(waiting.token, self._joined(member, waiting.version))
        else:
            self._update(member, request, protocols, waiting, out)
            self._maybe_prepare_rebalance(f"member {member.member_id!r} joined again{_given(request.reason)}", now, out)

    def _update(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, waiting: Waiting, out: Decision
    ) -> None:
        self.members.set_protocols(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, waiting.version)
        member.session_timeout_ms = request.session_timeout_ms
        superseded = self.members.set_joining(member, waiting)
        if superseded is not None:
            out.reply(
                superseded.token,
                join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, superseded.version),
            )

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
        old_id, old_leader = member.member_id, self.leader
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        log.info("group %r: static member %r comes back as %r", self.group_id, old_id, new_id)
        self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID, out)
        self._rename(member, new_id, now)
        if self.state is State.STABLE:
            self.members.set_protocols(member, protocols)
            if self.members.choose_protocol() != self.protocol:
                self._update(member, request, protocols, waiting, out)
                self._maybe_prepare_rebalance(f"static member {new_id!r} changes the protocol", now, out)
                return
            member.rebalance_timeout_ms = _rebalance_timeout_ms(request, waiting.version)
            member.session_timeout_ms = request.session_timeout_ms
            self._heard_of(member, now)
            if waiting.version >= 9:
                # The leader stays leader, so that it watches the topics, but must not assign: the group is stable
                # (KIP-814).
                joined = self._joined(member, waiting.version, skip_assignment=new_id == self.leader)
            else:
                # It must not take itself for the leader, for a stable group would ignore its assignment: tell the old
                # id.
                joined = self._joined(member, waiting.version, leader=old_leader)

            def refusal(code: ErrorCode) -> JoinGroupResponse:
                refused = join_error(group_write_error(code), "", waiting.version)
                refused.generation_id = self.generation
                refused.leader = old_leader or ""
                return refused

            def undo(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
                if appended or member.member_id != new_id or new_id not in self.members:
                    return
                log.warning("group %r: static member %r keeps its old id: %s", self.group_id, old_id, code.name)
                self.members.set_protocols(member, before[0])
                member.rebalance_timeout_ms, member.session_timeout_ms = before[1:]
                self._rename(member, old_id, then)

            out.reply_when_committed(waiting.token, joined, refusal)
            out.if_failed(undo)
            assignments = {each.member_id: each.assignment for each in self.members}
            out.records.append(group_record(self.group_id, self._to_store(assignments)))
            return
        self._update(member, request, protocols, waiting, out)
        if self.state is State.COMPLETING_REBALANCE:
            # The leader assigns to the old id by now: form the generation again.
            self._prepare_rebalance(f"static member {new_id!r} came back", now, out)

    def _rename(self, member: Member, member_id: str, now: Now) -> None:
        old_id = member.member_id
        self.members.rename(member, member_id)
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(member_id)
        self._disarm(Due.SESSION, old_id)
        self._heard_of(member, now)

    # -- SyncGroup --------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Any, now: Now, out: Decision) -> None:
        """A member asks for its assignment; the leader brings everybody's."""
        refusal = self._check_sync(request)
        if refusal is not None:
            out.reply(token, sync_error(refusal))
            return
        member = self.members[request.member_id]
        assignments: dict[str, bytes] = {}
        record: Record | None = None
        if self.state is State.COMPLETING_REBALANCE and member.member_id == self.leader:
            # Made before anything changes: what cannot be written is this request's failure alone.
            assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
            record = group_record(self.group_id, self._to_store(assignments))
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self._disarm(Due.SYNC)
        if self.state is State.STABLE:
            out.reply_when_committed(token, self._synced(member.assignment), _sync_refusal)
            self._heard_of(member, now)
            return
        superseded, member.syncing = member.syncing, Waiting(token, 0)
        if superseded is not None:
            out.reply(superseded.token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        if record is not None:
            self._assign(record, assignments, now, out)

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode | None:
        refusal = self.check_member(request.member_id, request.group_instance_id)
        if refusal is not None:
            return refusal
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if self.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def _assign(self, record: Record, assignments: Mapping[str, bytes], now: Now, out: Decision) -> None:
        """Write the generation, `record`; its replay makes the group Stable. Members that the leader forgot get nothing
        to do.
        """
        generation = self.generation

        def undo(instead: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if generation == self.generation and self.state in (State.COMPLETING_REBALANCE, State.STABLE):
                self._prepare_rebalance(f"{code.name} when the assignment was written", then, instead)

        out.records.append(record)
        out.if_failed(undo)
        for member in self.members:
            waiting, member.syncing = member.syncing, None
            if waiting is not None:
                synced = self._synced(assignments.get(member.member_id, b""))
                out.reply_when_committed(waiting.token, synced, _sync_refusal)
                self._heard_of(member, now)

    def _synced(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=assignment,
        )

    # -- Heartbeat, LeaveGroup, OffsetCommit ------------------------------------------------------

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None, now: Now) -> ErrorCode:
        """NONE, or what the member must do: 27 join again, 22, 25 and 82 start over."""
        refusal = self.check_member(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._heard_of(self.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, reason: str | None, now: Now, out: Decision) -> ErrorCode:
        """Take one member out, at its own wish or an administrator's, who may name the instance id alone."""
        if not member_id:
            member_id = self.members.static_id(instance_id) or "" if instance_id is not None else ""
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self.members.pending:
            self._remove(member_id, out)
            self._maybe_complete_join(now, out)
            return ErrorCode.NONE
        else:
            refusal = self.check_member(member_id, instance_id)
            if refusal is not None:
                return refusal
        self._remove_and_rebalance(member_id, f"member {member_id!r} left{_given(reason)}", now, out)
        return ErrorCode.NONE

    def check_commit(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        now: Now,
        *,
        partitions: Iterable[TopicPartition] = (),
        version: int = 9,
        is_transactional: bool = False,
    ) -> ErrorCode | None:
        """Whether offsets may be committed; a member's commit counts as a sign of life. A producer need not name the
        member, and may go on while the group rebalances. `partitions` and `version` matter to other groups.
        """
        if generation < 0 and self.state is State.EMPTY:
            # An administrator, or a consumer that assigns partitions to itself.
            return None
        if generation < 0 and not member_id and instance_id is None:
            return None if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        refusal = self.check_member(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if is_transactional:
            return None
        if self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard_of(self.members[member_id], now)
        return None

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """None if the member is in the group, and its instance id stands for it."""
        if instance_id is not None:
            current = self.members.static_id(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID


def _rebalance_timeout_ms(request: JoinGroupRequest, version: int) -> int:
    """Version 0 has none: the session time-out stands in."""
    return request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms


def _sync_refusal(code: ErrorCode) -> SyncGroupResponse:
    return sync_error(group_write_error(code))


def _given(reason: str | None) -> str:
    """The client's own reason, for a log line; most clients give none."""
    return f": {reason!r}" if reason else ""
