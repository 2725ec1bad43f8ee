"""All groups of one partition of `__consumer_offsets`: what the driver holds per partition it leads.

Life: `replay` every record from the log start to the high watermark, then `loaded(now)`; operations from then on;
`unload(now)` when the partition is led elsewhere. What must be refused before (loading, not the coordinator, an
invalid group id) is the driver's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `barnabas.coordinator.machine`. `committed_to` is the high watermark of the partition: reads
tell nothing that may still be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from barnabas.coordinator.group import modern_classic
from barnabas.coordinator.group.answers import join_error, sync_error
from barnabas.coordinator.group.classic import ClassicGroup
from barnabas.coordinator.group.member_step import InvalidPattern, ResolvePatterns
from barnabas.coordinator.group.modern import ModernGroup, check_heartbeat, heartbeat_refusal, write_error
from barnabas.coordinator.group.modern_state import MEMBER_DUES
from barnabas.coordinator.group.offset_operations import FetchedOffset, OffsetToCommit
from barnabas.coordinator.group.stored_modern import modern_record
from barnabas.coordinator.group.upgrade import gone_over, upgrade
from barnabas.coordinator.group.views import GroupViews
from barnabas.coordinator.machine import FAILED_AGAIN_SECONDS, NOTHING, Decision, Now, Result, StepFailed, answer
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)

__all__ = ["FetchedOffset", "GroupShard", "OffsetToCommit"]


class GroupShard(GroupViews):
    """See the module. What is hard and what is soft: `barnabas.coordinator.group.store`."""

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self._deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. One at a time, as each may write and
        change what the next one finds. Raises StepFailed for one group, whose members are told to come again.
        """
        due = self._deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        group_id, what, member_id = due
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        out = Decision()
        try:
            if isinstance(group, ModernGroup) == (what in MEMBER_DUES):
                group.expire(what, member_id, now, out)
            return self._done(group, out)
        except Exception as error:
            self._deadlines.set(due, now.seconds + FAILED_AGAIN_SECONDS)
            group.send_away(ErrorCode.NOT_COORDINATOR, out)
            raise StepFailed(due, Result(replies=out.replies)) from error

    # -- membership -------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
    ) -> Result:
        """JoinGroup. `client_host`: as stored and shown (`/127.0.0.1`). `unique`: random text for a new member's id.

        Answers `JoinGroupResponse`, usually much later.
        """
        out = Decision()
        member_id = request.member_id
        if (
            not self.config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            return answer(token, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id, version))
        if not fits(request.group_id):
            return answer(token, join_error(ErrorCode.INVALID_GROUP_ID, "", version))
        if request.group_id in self.foreign:
            return answer(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", version))
        group = self.groups.get(request.group_id)
        if isinstance(group, ModernGroup):
            return self._join_modern(group, request, version, client_id or "", client_host, unique, token, now)
        if group is None:
            if member_id:
                return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id, version))
            group = self._classic_group(request.group_id)
            group.state_time_ms = now.wall_ms
        group.join(request, version, client_id or "", client_host, unique, token, now, out)
        return self._done(group, out)

    def _join_modern(
        self,
        group: ModernGroup,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
    ) -> Result:
        out = Decision()
        if not group.is_empty:
            try:
                modern_classic.join(group, request, version, client_id, client_host, unique, token, now, out)
            except KafkaError as error:
                return answer(token, join_error(error.code, "", version))
            return out.result()
        if request.member_id:
            return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, version))
        # An empty group makes room for a classic one, which begins anew.
        out.records.extend(modern_record(record) for record in group.tombstones())
        classic = ClassicGroup(group.group_id, self.config, self._deadlines, group.offsets)
        classic.state_time_ms = now.wall_ms
        self.around.next_classic[group.group_id] = classic

        def undo(instead: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended:
                self.around.next_classic.pop(group.group_id, None)
                classic.unload(then, instead)

        out.if_failed(undo)
        classic.join(request, version, client_id, client_host, unique, token, now, out)
        return out.result()

    def sync(self, request: SyncGroupRequest, version: int, token: Any, now: Now) -> Result:
        """SyncGroup. Answers `SyncGroupResponse` once the leader's assignment is committed."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return answer(token, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        out = Decision()
        if isinstance(group, ModernGroup):
            try:
                modern_classic.sync(group, request, token, now, out)
            except KafkaError as error:
                return answer(token, sync_error(error.code))
        else:
            group.sync(request, token, now, out)
        return out.result()

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Heartbeat; nothing to write, so the answer is the result."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ModernGroup):
            try:
                return modern_classic.heartbeat(group, request, now)
            except KafkaError as error:
                return HeartbeatResponse(error_code=error.code)
        return HeartbeatResponse(
            error_code=group.heartbeat(request.generation_id, request.member_id, request.group_instance_id, now)
        )

    def leave(self, request: LeaveGroupRequest, version: int, token: Any, now: Now) -> Result:
        """LeaveGroup: one member below version 3, a list (also an administrator's) from there on. Answers
        `LeaveGroupResponse`.
        """
        out = Decision()
        group = self.groups.get(request.group_id)
        members = request.members
        if version < 3:
            members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        told = []
        if isinstance(group, ModernGroup):
            told = modern_classic.leave(group, members, now, out)
            response = (
                LeaveGroupResponse(members=told) if version >= 3 else LeaveGroupResponse(error_code=told[0].error_code)
            )
            out.reply_when_committed(token, response, lambda code: LeaveGroupResponse(error_code=write_error(code)))
            return out.result()
        for member in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = group.leave(member.member_id, member.group_instance_id, member.reason, now, out)
            told.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
            )
        if version < 3:
            out.reply(token, LeaveGroupResponse(error_code=told[0].error_code))
        else:
            out.reply(token, LeaveGroupResponse(members=told))
        return out.result() if group is None else self._done(group, out)

    # -- membership of the next generation --------------------------------------------------------

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        unique: str,
        invalid_pattern: InvalidPattern,
        token: Any,
        now: Now,
    ) -> Result:
        """ConsumerGroupHeartbeat. `client_host`: as stored and shown (`/127.0.0.1`). `unique`: random text, the id of a
        new member that brings none (version 0). `invalid_pattern`: why a regular expression cannot be used, or None.

        Answers `ConsumerGroupHeartbeatResponse`. May have the effect `ResolvePatterns`.
        """
        out = Decision()
        try:
            check_heartbeat(request, version, self.config)
            if request.member_epoch < 0:
                self._modern_group(request.group_id, "Group").leave(request, token, now, out)
                return out.result()
            before = self.groups.get(request.group_id)
            group = self._joined_group(request, out)
            member_id = request.member_id or unique
            group.heartbeat(request, member_id, client_id or "", client_host, invalid_pattern, token, now, out)
            if isinstance(before, ClassicGroup):
                gone_over(before, group, now, out)
        except KafkaError as error:
            return answer(token, heartbeat_refusal(error.code, error.message))
        return out.result()

    def _joined_group(self, request: ConsumerGroupHeartbeatRequest, out: Decision) -> ModernGroup:
        """The group of a heartbeat; a member that joins may make one, or out of a classic one. Nothing has changed yet
        but a list of records.
        """
        group = self.groups.get(request.group_id)
        if request.member_epoch != 0 or isinstance(group, ModernGroup) or request.group_id in self.foreign:
            return self._modern_group(request.group_id, "Consumer group")
        if group is None:
            return ModernGroup(request.group_id, self.around)
        return upgrade(group, self.around, out)

    def _modern_group(self, group_id: str, what: str) -> ModernGroup:
        """Raises KafkaError 69."""
        group = self.groups.get(group_id)
        if isinstance(group, ModernGroup) and group_id not in self.foreign:
            return group
        why = f"{what} {group_id} not found."
        if group is not None or group_id in self.foreign:
            why = f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)

    def patterns_resolved(
        self, effect: ResolvePatterns, resolved: Mapping[str, Collection[str]] | None, started_ms: int, now: Now
    ) -> Result:
        """What an effect came to: for each pattern the names of topics that match it, as of `started_ms`. None: it
        failed, and is tried again with a later heartbeat.
        """
        self.around.resolving.discard(effect.group_id)
        group = self.groups.get(effect.group_id)
        if resolved is None or not isinstance(group, ModernGroup):
            return NOTHING
        out = Decision()
        group.patterns_resolved(effect, resolved, started_ms, out)
        return out.result()
