"""StreamsGroupDescribe (key 89, version 0): state, epochs, topology and members of streams groups (KIP-1071).

Behaviour: each group is answered once, with its own error: GROUP_ID_NOT_FOUND, with a message, also for a group of
another kind; INVALID_GROUP_ID for the empty id; TOPIC_AUTHORIZATION_FAILED for a group with a topic that the caller may
not describe. A topology that is ready has the partitions that its internal topics have; else it is as a member has sent
it. While the protocol is off all groups get UNSUPPORTED_VERSION. Authorized operations: all of them without an
authorizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from barnabas.server.apis.groups.streams_group_heartbeat import is_enabled
from barnabas.server.requests.access import GROUP, TOPIC, AccessCheck, Admitted, Op, Outcome, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Group = StreamsGroupDescribeResponse.DescribedGroup


def handle(svc: Services, ctx: RequestContext, req: StreamsGroupDescribeRequest) -> Steps[StreamsGroupDescribeResponse]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    response = StreamsGroupDescribeResponse()
    for group_id in dict.fromkeys(req.group_ids):
        try:
            group = svc.groups.streams.describe(group_id)
        except KafkaError as error:
            group = _Group(group_id=group_id, error_code=error.code, error_message=error.message or None)
        if req.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        response.groups.append(group)
        yield 1 + sum(_size(member) for member in group.members) + sum(1 for _ in _topics(group))
    return response


def _size(member: StreamsGroupDescribeResponse.Member) -> int:
    """How much a member's description contains, in the units of a handler's steps."""
    lists = (
        tasks
        for each in (member.assignment, member.target_assignment)
        for tasks in (each.active_tasks, each.standby_tasks, each.warmup_tasks)
    )
    return 3 + sum(1 + len(each.partitions) // 8 for tasks in lists for each in tasks)


def _topics(group: _Group) -> Iterator[str]:
    """Names of the topics in a topology."""
    for each in () if group.topology is None else group.topology.subtopologies or ():
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name


def _visible(check: AccessCheck, response: StreamsGroupDescribeResponse) -> Steps[None]:
    """A group with a topic that the caller may not describe is not described at all."""
    for number, group in enumerate(response.groups):
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = check.bits(GROUP, group.group_id)
        names = set(_topics(group))
        yield 1 + len(names) + len(group.members) // 4
        denied = [name for name in names if not check.allows(Op.DESCRIBE, TOPIC, name)]
        if denied:
            response.groups[number] = _Group(
                group_id=group.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="The group has topics that the client may not describe.",
            )
    check.note()


def _on_error(req: StreamsGroupDescribeRequest, code: ErrorCode, version: int) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[_Group(group_id=group_id, error_code=code) for group_id in req.group_ids]
    )


_each = both(for_each("group_ids", "groups", Op.DESCRIBE, GROUP, name="", answer_name="group_id"), amended(_visible))


def _access(check: AccessCheck) -> Steps[Outcome]:
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _each(check))


API = Api(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), handle, access=_access, on_error=_on_error)
