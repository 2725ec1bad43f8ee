"""SyncGroup (key 14, versions 0-5): the leader sends the assignment, and each member gets its part.

Behaviour: parked until the leader's request has brought the assignment and it is committed to `__consumer_offsets`.
While the group is being loaded the answer is REBALANCE_IN_PROGRESS: the rebalance that this belongs to is lost, and
old clients do not know COORDINATOR_LOAD_IN_PROGRESS here.

Versions:

- 3: adds static members
- 4: flexible
- 5: makes the client name protocol type and protocol, which must be the group's (KIP-559)
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import SyncGroupRequest
from barnabas.server.requests.access import AccessCheck, Op, Outcome, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: SyncGroupRequest) -> Any:
    try:
        svc.groups.sync(req, ctx.api_version, ctx)
    except KafkaError as error:
        if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS) from None
    return PENDING


_may_read = needs(on_group(Op.READ))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """Version 5 must name type and protocol, which is checked first."""
    request = check.request
    if check.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return check.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return (yield from _may_read(check))


API = Api(ApiKey.SYNC_GROUP, (0, 5), handle, access=_access)
