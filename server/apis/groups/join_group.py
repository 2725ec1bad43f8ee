"""JoinGroup (key 11, versions 0-9): become, or stay, a member of a group.

Behaviour: the request is parked until all members of the group have joined, or the rebalance time-out passes; all are
answered together, the leader alone with the list of members and what they support. See
`barnabas.coordinator.group.classic`.

Versions:

- 1: adds the rebalance time-out (0: the session time-out stands in)
- 4: sends a new dynamic member back with MEMBER_ID_REQUIRED and its id, which it joins with (KIP-394)
- 5: adds static members (KIP-345)
- 6: flexible
- 7: adds the protocol type, and the protocol name may be null
- 8: adds the client's reason (only logged)
- 9: lets a static leader that returns skip the assignment (KIP-814)
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator import join_error
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import JoinGroupRequest, JoinGroupResponse
from barnabas.server.requests.access import Op, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


def handle(svc: Services, ctx: RequestContext, req: JoinGroupRequest) -> Any:
    svc.groups.join(req, ctx.api_version, ctx.client_id, ctx.client_host, ctx)
    return PENDING


def _on_error(req: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    return join_error(code, req.member_id, version)


API = Api(ApiKey.JOIN_GROUP, (0, 9), handle, access=needs(on_group(Op.READ)), on_error=_on_error)
