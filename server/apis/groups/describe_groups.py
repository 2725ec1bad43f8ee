"""DescribeGroups (key 15, versions 0-6): state and members of groups.

Behaviour: subscriptions are reported of stable groups only, for the protocol that was chosen; assignments always. Each
group has its own error, and is answered once. An unknown group is "Dead".

Versions:

- 3: can ask for the authorized operations: all of them without an authorizer
- 4: adds instance ids
- 5: flexible
- 6: reports an unknown group as GROUP_ID_NOT_FOUND, with a message
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.server.requests.access import GROUP, AccessCheck, Op, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    response = DescribeGroupsResponse()
    for group_id in dict.fromkeys(req.groups):
        try:
            group = svc.groups.describe(group_id, ctx.api_version)
        except KafkaError as error:
            group = DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code)
        if req.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        response.groups.append(group)
        yield 1 + len(group.members)
    return response


def _on_error(req: DescribeGroupsRequest, code: ErrorCode, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=code) for group_id in req.groups]
    )


def _operations(check: AccessCheck, response: DescribeGroupsResponse) -> Steps[None]:
    for group in response.groups:
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = check.bits(GROUP, group.group_id)
        yield 1


API = Api(
    ApiKey.DESCRIBE_GROUPS,
    (0, 6),
    handle,
    access=both(
        for_each("groups", "groups", Op.DESCRIBE, GROUP, name="", answer_name="group_id"), amended(_operations)
    ),
    on_error=_on_error,
)
