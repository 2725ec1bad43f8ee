"""LeaveGroup (key 13, versions 0-5): members leave, or an administrator takes them out.

Behaviour: what remains of the group rebalances. The last one to leave makes a stored, empty generation, which keeps
the offsets.

Versions: below 3 one member, its error at the top; from 3 on a list, each with its error, in which an administrator
names static members by their instance id alone (KIP-345); 4 is flexible; 5 adds a reason, which is only logged.
"""

from __future__ import annotations

from typing import Any

from kproto import ApiKey
from kproto.messages import LeaveGroupRequest
from server.api import PENDING, Api
from server.context import RequestContext
from server.services import Services


def handle(svc: Services, ctx: RequestContext, req: LeaveGroupRequest) -> Any:
    svc.groups.leave(req, ctx.api_version, ctx)
    return PENDING


API = Api(ApiKey.LEAVE_GROUP, (0, 5), handle)
