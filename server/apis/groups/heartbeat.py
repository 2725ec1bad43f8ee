"""Heartbeat (key 12, versions 0-4): a member is alive.

Behaviour: REBALANCE_IN_PROGRESS tells the member to join again; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and
FENCED_INSTANCE_ID, to start over. While the group is being loaded every heartbeat succeeds: no session runs yet.

Versions:

- 3: adds static members
- 4: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import HeartbeatRequest, HeartbeatResponse
from barnabas.server.requests.access import Op, needs, on_group
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


def handle(svc: Services, ctx: RequestContext, req: HeartbeatRequest) -> HeartbeatResponse:
    try:
        return svc.groups.heartbeat(req)
    except KafkaError as error:
        if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return HeartbeatResponse()


API = Api(ApiKey.HEARTBEAT, (0, 4), handle, access=needs(on_group(Op.READ)))
