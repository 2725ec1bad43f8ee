"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates.

Behaviour: a client asks every broker. While a partition of `__consumer_offsets` is being loaded the answer carries
COORDINATOR_LOAD_IN_PROGRESS and the groups of the others.

Versions:

- 3: flexible
- 4: filters by states and returns them (KIP-518)
- 5: filters by types and returns them (KIP-848)

Names in filters are case-insensitive; unknown ones match nothing.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ListGroupsRequest, ListGroupsResponse
from barnabas.server.requests.access import CLUSTER, GROUP, AccessCheck, Admitted, Op, Outcome, hidden
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    code, groups = yield from svc.groups.listed(req.states_filter or (), req.types_filter or ())
    return ListGroupsResponse(error_code=code, groups=groups)


_described = hidden("groups", Op.DESCRIBE, GROUP, name="group_id")


def _access(check: AccessCheck) -> Steps[Outcome]:
    """A caller that may describe the cluster sees all groups."""
    if check.would_allow(Op.DESCRIBE, CLUSTER):
        return Admitted(check.request)
    return (yield from _described(check))


API = Api(ApiKey.LIST_GROUPS, (0, 5), handle, access=_access)
