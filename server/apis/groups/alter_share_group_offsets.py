"""AlterShareGroupOffsets (key 91, version 0): an administrator lets a share group without members go on elsewhere.

Behaviour: each partition begins anew at the offset given, whatever was acquired or acknowledged; the offset is not
compared with the log's. A group that does not exist is made. Answered when the share coordinators have it. Errors of
all: INVALID_GROUP_ID for the empty id, GROUP_ID_NOT_FOUND for a group of another kind, NON_EMPTY_GROUP,
UNSUPPORTED_VERSION while `share.version` is 0. Of a partition: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
and what the share coordinator answers. Of a partition that is named twice the last offset counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.coordinator.group.share import Codes, Place
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from barnabas.server.requests.access import AccessCheck, Admitted, Op, Outcome, both, for_each, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps

_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


class _Alteration:
    """A response in progress: the partitions in `open` wait for the coordinator."""

    __slots__ = ("_ctx", "_response", "open")

    def __init__(self, ctx: RequestContext, response: AlterShareGroupOffsetsResponse) -> None:
        self._ctx = ctx
        self._response = response
        self.open: list[tuple[Place, Any]] = []

    def reply(self, codes: Codes | ErrorCode) -> None:
        if not isinstance(codes, Mapping):
            self._ctx.reply(AlterShareGroupOffsetsResponse(error_code=codes))
            return
        for place, answer in self.open:
            answer.error_code = codes[place]
        self._ctx.reply(self._response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def handle(svc: Services, ctx: RequestContext, req: AlterShareGroupOffsetsRequest) -> Steps[Any]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    topics = svc.image.topics
    response = AlterShareGroupOffsetsResponse()
    alteration = _Alteration(ctx, response)
    starts: dict[Place, int] = {}
    for topic in req.topics:
        known = topics.get(topic.topic_name)
        answers = _Topic(topic_name=topic.topic_name)
        if known is not None:
            answers.topic_id = known.topic_id
        response.responses.append(answers)
        yield 1
        for each in topic.partitions:
            answer = _Partition(partition_index=each.partition_index)
            answers.partitions.append(answer)
            if known is None or not 0 <= each.partition_index < len(known.partitions) or not any(known.topic_id):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                place = known.topic_id, each.partition_index
                starts[place] = each.start_offset
                alteration.open.append((place, answer))
            yield 1
    svc.groups.shares.alter_offsets(req.group_id, starts, alteration)
    return PENDING


def _denied(req: AlterShareGroupOffsetsRequest, code: ErrorCode) -> AlterShareGroupOffsetsResponse:
    """The answer with `code` at every partition."""
    return AlterShareGroupOffsetsResponse(
        responses=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(partition_index=each.partition_index, error_code=code) for each in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


_may_alter = both(
    needs(on_group(Op.READ)), for_each("topics", "responses", Op.READ, name="topic_name", refusal=_denied)
)


def _access(check: AccessCheck) -> Steps[Outcome]:
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _may_alter(check))


API = Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), handle, access=_access)
