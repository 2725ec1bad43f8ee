"""Members of the groups of one partition that speak the classic protocol, in groups of either kind: JoinGroup,
SyncGroup, Heartbeat, LeaveGroup.

What a request does in its group is `barnabas.coordinator.group.classic`'s, or `consumer.classic_members`'s where the
group is of the next generation; here is which group it means, and that an empty one changes its kind.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.answers import join_error, sync_error, write_error
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.consumer import classic_members
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.store import EpochGroup, GroupStore
from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)


class Membership:
    """See the module."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store

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
        store, config = self._store, self._store.context.config
        member_id, session_ms = request.member_id, request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= session_ms <= config.group_max_session_timeout_ms:
            return answer(token, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id, version))
        if not fits(request.group_id):
            return answer(token, join_error(ErrorCode.INVALID_GROUP_ID, "", version))
        if request.group_id in store.foreign:
            return answer(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", version))
        group = store.groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return self._join_epochs(group, request, version, client_id or "", client_host, unique, token, now)
        if group is None:
            if member_id:
                return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id, version))
            group = store.classic_group(request.group_id)
            group.begin(now)
        out = Decision()
        group.join(request, version, client_id or "", client_host, unique, token, now, out)
        return store.finish(group, out)

    def _join_epochs(
        self,
        group: EpochGroup,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
    ) -> Result:
        context, out = self._store.context, Decision()
        if not group.is_empty:
            if not isinstance(group, ConsumerGroup):
                return answer(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", version))
            try:
                classic_members.join(group, request, version, client_id, client_host, unique, token, now, out)
            except KafkaError as error:
                return answer(token, join_error(error.code, "", version))
            return out.result()
        if request.member_id:
            return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, version))
        # An empty group makes room for a classic one, whose generations begin with the first again.
        out.records.extend(group.removal_records())
        classic = ClassicGroup(group.group_id, context.config, context.deadlines, group.offsets)
        classic.begin(now)
        context.next_classic[group.group_id] = classic

        def undo(instead: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended:
                context.next_classic.pop(group.group_id, None)
                classic.unload(then, instead)

        out.if_failed(undo)
        classic.join(request, version, client_id, client_host, unique, token, now, out)
        return out.result()

    def sync(self, request: SyncGroupRequest, version: int, token: Any, now: Now) -> Result:
        """SyncGroup. Answers `SyncGroupResponse` once the leader's assignment is committed."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return answer(token, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self._store.groups.get(request.group_id)
        out = Decision()
        if isinstance(group, ConsumerGroup):
            try:
                classic_members.sync(group, request, token, now, out)
            except KafkaError as error:
                return answer(token, sync_error(error.code))
        elif isinstance(group, ClassicGroup):
            group.sync(request, token, now, out)
        else:
            return answer(token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        return out.result()

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Heartbeat; nothing to write, so the answer is the result."""
        group = self._store.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            try:
                return classic_members.heartbeat(group, request, now)
            except KafkaError as error:
                return HeartbeatResponse(error_code=error.code)
        if not isinstance(group, ClassicGroup):
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return HeartbeatResponse(
            error_code=group.heartbeat(request.generation_id, request.member_id, request.group_instance_id, now)
        )

    def leave(self, request: LeaveGroupRequest, version: int, token: Any, now: Now) -> Result:
        """LeaveGroup: one member below version 3, a list (also an administrator's) from there on. Answers
        `LeaveGroupResponse`.
        """
        out = Decision()
        group = self._store.groups.get(request.group_id)
        members = request.members
        if version < 3:
            members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        results = []
        if isinstance(group, ConsumerGroup):
            results = classic_members.leave(group, members, now, out)
            response = (
                LeaveGroupResponse(members=results)
                if version >= 3
                else LeaveGroupResponse(error_code=results[0].error_code)
            )
            out.reply_when_committed(token, response, lambda code: LeaveGroupResponse(error_code=write_error(code)))
            return out.result()
        for member in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if isinstance(group, ClassicGroup):
                code = group.leave(member.member_id, member.group_instance_id, member.reason, now, out)
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
            )
        if version < 3:
            out.reply(token, LeaveGroupResponse(error_code=results[0].error_code))
        else:
            out.reply(token, LeaveGroupResponse(members=results))
        return out.result() if group is None else self._store.finish(group, out)
