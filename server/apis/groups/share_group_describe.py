"""ShareGroupDescribe (key 77, version 1): state, epochs and members of share groups (KIP-932).

Behaviour: each group is answered once, with its own error: GROUP_ID_NOT_FOUND, with a message, also for a group of
another kind; INVALID_GROUP_ID for the empty id; TOPIC_AUTHORIZATION_FAILED for a group with a topic that the caller may
not describe. While `share.version` is 0 all groups get UNSUPPORTED_VERSION. Authorized operations: all of them without
an authorizer.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from barnabas.server.requests.access import GROUP, TOPIC, AccessCheck, Admitted, Op, Outcome, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps

_Group = ShareGroupDescribeResponse.DescribedGroup


def handle(svc: Services, ctx: RequestContext, req: ShareGroupDescribeRequest) -> Steps[ShareGroupDescribeResponse]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    response = ShareGroupDescribeResponse()
    for group_id in dict.fromkeys(req.group_ids):
        try:
            group = svc.groups.shares.describe(group_id)
        except KafkaError as error:
            group = _Group(group_id=group_id, error_code=error.code, error_message=error.message or None)
        if req.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        response.groups.append(group)
        yield 1 + sum(_size(member) for member in group.members)
    return response


def _size(member: ShareGroupDescribeResponse.Member) -> int:
    """How much a member's description contains, in the units of a handler's steps."""
    topics = member.assignment.topic_partitions
    return 2 + len(member.subscribed_topic_names) + sum(1 + len(topic.partitions) // 8 for topic in topics)


def _visible(check: AccessCheck, response: ShareGroupDescribeResponse) -> Steps[None]:
    """A group with a topic that the caller may not describe is not described at all."""
    for number, group in enumerate(response.groups):
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = check.bits(GROUP, group.group_id)
        names = {name for member in group.members for name in member.subscribed_topic_names}
        names.update(topic.topic_name for member in group.members for topic in member.assignment.topic_partitions)
        yield 1 + len(names) + len(group.members) // 4
        denied = [name for name in names if not check.allows(Op.DESCRIBE, TOPIC, name)]
        if denied:
            response.groups[number] = _Group(
                group_id=group.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="The group has topics that the client may not describe.",
            )
    check.note()


def _on_error(req: ShareGroupDescribeRequest, code: ErrorCode, version: int) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[_Group(group_id=group_id, error_code=code) for group_id in req.group_ids])


_each = both(for_each("group_ids", "groups", Op.DESCRIBE, GROUP, name="", answer_name="group_id"), amended(_visible))


def _access(check: AccessCheck) -> Steps[Outcome]:
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _each(check))


API = Api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), handle, access=_access, on_error=_on_error)
