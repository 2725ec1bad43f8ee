"""ConsumerGroupDescribe (key 69, versions 0-1): state, epochs and members of KIP-848 groups.

Behaviour: of every member what it has and what it is to have. Each group has its own error: GROUP_ID_NOT_FOUND, with a
text, also for a classic group, which makes clients ask DescribeGroups. While the protocol is off all of them get
UNSUPPORTED_VERSION.

Versions: 1 tells whether a member speaks the classic protocol still. What the client may do with the group: all that
there is, as long as there are no ACLs.
"""

from __future__ import annotations

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from server.api import Api
from server.apis.consumer_group_heartbeat import is_enabled
from server.apis.describe_groups import ALL_GROUP_OPERATIONS
from server.context import RequestContext
from server.services import Services

_Group = ConsumerGroupDescribeResponse.DescribedGroup


def handle(svc: Services, ctx: RequestContext, req: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    if not is_enabled(svc):
        return _on_error(req, ErrorCode.UNSUPPORTED_VERSION, ctx.api_version)
    response = ConsumerGroupDescribeResponse()
    for group_id in req.group_ids:
        try:
            group = svc.groups.consumer_describe(group_id)
        except KafkaError as error:
            group = _Group(group_id=group_id, error_code=error.code, error_message=error.message or None)
        if req.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        response.groups.append(group)
    return response


def _on_error(req: ConsumerGroupDescribeRequest, code: ErrorCode, version: int) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_Group(group_id=group_id, error_code=code) for group_id in req.group_ids]
    )


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), handle, on_error=_on_error)
