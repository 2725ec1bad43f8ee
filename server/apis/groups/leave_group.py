"""LeaveGroup (key 13, versions 0-5): members leave, or an administrator takes them out.

Behaviour: the remaining members rebalance. When the last member leaves, an empty generation is stored, which keeps the
offsets.

Versions:

- 0-2: one member, its error at the top level
- 3: a list of members, each with its error; an administrator names static members by their instance id alone (KIP-345)
- 4: flexible
- 5: adds a reason, which is only logged
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import LeaveGroupRequest, LeaveGroupResponse
from barnabas.server.requests.access import Op, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, in_portions
from barnabas.server.requests.services import Services


class _Left:
    """A response that collects the results of members removed in portions. The token of a portion is a `_Some`."""

    __slots__ = ("_code", "_ctx", "_members", "_owed")

    def __init__(self, ctx: RequestContext, count: int) -> None:
        self._ctx = ctx
        self._owed = count
        self._code = ErrorCode.NONE
        self._members: dict[int, list[LeaveGroupResponse.MemberResponse]] = {}

    def answered(self, first: int, end: int, response: LeaveGroupResponse) -> None:
        self._members[first] = response.members
        self._code = self._code or ErrorCode(response.error_code)
        self._owed -= end - first
        if self._owed:
            return
        if self._code:
            self._ctx.reply(LeaveGroupResponse(error_code=self._code))
        else:
            ordered = (member for first in sorted(self._members) for member in self._members[first])
            self._ctx.reply(LeaveGroupResponse(members=list(ordered)))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


class _Some:
    __slots__ = ("_end", "_first", "_left")

    def __init__(self, left: _Left, first: int, end: int) -> None:
        self._left = left
        self._first = first
        self._end = end

    def reply(self, response: LeaveGroupResponse) -> None:
        self._left.answered(self._first, self._end, response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._left.release_waiters()


async def _in_portions(svc: Services, ctx: RequestContext, req: LeaveGroupRequest) -> object:
    left = _Left(ctx, len(req.members))

    def leave(first: int, end: int) -> None:
        some = LeaveGroupRequest(group_id=req.group_id, members=req.members[first:end])
        svc.groups.leave(some, ctx.api_version, _Some(left, first, end))

    await in_portions(svc, len(req.members), leave)
    return PENDING


def handle(svc: Services, ctx: RequestContext, req: LeaveGroupRequest) -> Any:
    if ctx.api_version >= 3 and len(req.members) > AT_ONCE:
        return _in_portions(svc, ctx, req)
    svc.groups.leave(req, ctx.api_version, ctx)
    return PENDING


API = Api(ApiKey.LEAVE_GROUP, (0, 5), handle, access=needs(on_group(Op.READ)))
