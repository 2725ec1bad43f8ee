"""DeleteShareGroupOffsets (key 92, version 0): an administrator has a share group without members forget topics.

Behaviour: all of a topic's partitions, here and at the share coordinators, are forgotten; answered when they are.
Errors of all: INVALID_GROUP_ID for the empty id, GROUP_ID_NOT_FOUND also for a group of another kind, NON_EMPTY_GROUP,
UNSUPPORTED_VERSION while `share.version` is 0. Of a topic: UNKNOWN_TOPIC_OR_PARTITION, with a message, if there is no
such topic or nothing is stored of it; TOPIC_AUTHORIZATION_FAILED; what the share coordinators answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.coordinator.group.share import Codes
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from barnabas.server.requests.access import AccessCheck, Admitted, Op, Outcome, both, for_each, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps

_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


class _Deletion:
    """A response in progress: the topics in `open` wait for the coordinator."""

    __slots__ = ("_ctx", "_response", "open")

    def __init__(self, ctx: RequestContext, response: DeleteShareGroupOffsetsResponse) -> None:
        self._ctx = ctx
        self._response = response
        self.open: list[Any] = []

    def reply(self, codes: Codes | ErrorCode) -> None:
        if not isinstance(codes, Mapping):
            self._ctx.reply(DeleteShareGroupOffsetsResponse(error_code=codes))
            return
        of_topic: dict[bytes, ErrorCode] = {}
        for (topic_id, _), code in codes.items():
            of_topic[topic_id] = of_topic.get(topic_id) or code
        for answer in self.open:
            if answer.topic_id in of_topic:
                answer.error_code = of_topic[answer.topic_id]
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = "There is no offset information to delete."
        self._ctx.reply(self._response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def handle(svc: Services, ctx: RequestContext, req: DeleteShareGroupOffsetsRequest) -> Steps[Any]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    topics = svc.image.topics
    response = DeleteShareGroupOffsetsResponse()
    deletion = _Deletion(ctx, response)
    for topic in req.topics:
        known = topics.get(topic.topic_name)
        answer = _Topic(topic_name=topic.topic_name)
        response.responses.append(answer)
        if known is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = "There is no such topic."
        else:
            answer.topic_id = known.topic_id
            deletion.open.append(answer)
        yield 1
    svc.groups.shares.delete_offsets(req.group_id, {each.topic_id for each in deletion.open}, deletion)
    return PENDING


def _denied(req: DeleteShareGroupOffsetsRequest, code: ErrorCode) -> DeleteShareGroupOffsetsResponse:
    """The answer with `code` at every topic."""
    return DeleteShareGroupOffsetsResponse(
        responses=[_Topic(topic_name=topic.topic_name, error_code=code) for topic in req.topics]
    )


_may_delete = both(
    needs(on_group(Op.DELETE)), for_each("topics", "responses", Op.READ, name="topic_name", refusal=_denied)
)


def _access(check: AccessCheck) -> Steps[Outcome]:
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _may_delete(check))


API = Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), handle, access=_access)
