"""All groups of one partition of `__consumer_offsets`: what the driver holds per partition it leads.

Life: `replay` every record from the log start to the high watermark, then `loaded(now)`; operations from then on;
`unload(now)` when the partition is led elsewhere. What must be refused before (loading, not the coordinator, an
invalid group id) is the driver's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `coordinator.machine`. `committed_to` is the high watermark of the partition: reads tell
nothing that may still be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from coordinator.group.answers import join_error, sync_error
from coordinator.group.offset_operations import FetchedOffset, OffsetOperations, OffsetToCommit
from coordinator.group.states import State
from coordinator.machine import NOTHING, Decision, Now, Result, answer
from kproto import ErrorCode
from kproto.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupRequest,
)

__all__ = ["FetchedOffset", "GroupShard", "OffsetToCommit"]

GROUP_TYPE = "classic"


class GroupShard(OffsetOperations):
    """See the module. Hard: `ClassicGroup.stored` and `.offsets` of every group, written by `replay` alone. Soft: the
    rest.
    """

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self._deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. One at a time, as each may write and
        change what the next one finds.
        """
        due = self._deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        group_id, what, member_id = due
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        out = Decision()
        group.expire(what, member_id, now, out)
        return self._done(group, out)

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
        group = self.groups.get(request.group_id)
        if group is None:
            if member_id:
                return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id, version))
            group = self._group(request.group_id)
            group.state_time_ms = now.wall_ms
        group.join(request, version, client_id or "", client_host, unique, token, now, out)
        return self._done(group, out)

    def sync(self, request: SyncGroupRequest, version: int, token: Any, now: Now) -> Result:
        """SyncGroup. Answers `SyncGroupResponse` once the leader's assignment is committed."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return answer(token, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        out = Decision()
        group.sync(request, token, now, out)
        return out.result()

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Heartbeat; nothing to write, so the answer is the result."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
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

    # -- views ------------------------------------------------------------------------------------

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        """DescribeGroups, for one group. Unknown ones are "Dead", from version 6 on with error 69 as well."""
        group = self.groups.get(group_id)
        if group is None:
            unknown = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version >= 6:
                unknown.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                unknown.error_message = f"Group {group_id} not found."
            return unknown
        stable = group.state is State.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol or "" if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members
            ],
        )

    def listed(self, states: Collection[str], types: Collection[str]) -> Iterator[ListGroupsResponse.ListedGroup]:
        """ListGroups. `states` and `types`: names in any case to keep; empty: all."""
        if types and GROUP_TYPE not in {name.lower() for name in types}:
            return
        wanted = {name.lower() for name in states}
        for group in self.groups.values():
            if not wanted or group.state.value.lower() in wanted:
                yield ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=GROUP_TYPE,
                )
