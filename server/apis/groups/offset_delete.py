"""OffsetDelete (key 47, version 0): remove single offsets of a group (KIP-496).

Behaviour: of a group without members, any; of a stable or rebalancing consumer group, those of topics that no member
subscribes to, the others get GROUP_SUBSCRIBED_TO_TOPIC; of another group with members, none (NON_EMPTY_GROUP). Topics
and partitions that do not exist get UNKNOWN_TOPIC_OR_PARTITION. An error of the whole request comes without
partitions.
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.server.requests.access import Op, both, for_each, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, Codes, Portion, in_portions
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


class _Deletion:
    """A response in progress: partitions in `open` wait for the coordinator."""

    __slots__ = ("_ctx", "_response", "open")

    def __init__(self, ctx: RequestContext, response: OffsetDeleteResponse) -> None:
        self._ctx = ctx
        self._response = response
        self.open: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []

    def reply(self, codes: list[ErrorCode] | ErrorCode) -> None:
        if isinstance(codes, ErrorCode):
            self._ctx.reply(OffsetDeleteResponse(error_code=codes))
            return
        for partition, code in zip(self.open, codes, strict=True):
            partition.error_code = code
        self._ctx.reply(self._response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def handle(svc: Services, ctx: RequestContext, req: OffsetDeleteRequest) -> Steps[Any]:
    topics = svc.image.topics
    response = OffsetDeleteResponse()
    deletion = _Deletion(ctx, response)
    wanted: list[tuple[str, int]] = []
    for topic in req.topics:
        known = topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        answers: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
        yield 1
        for partition in topic.partitions:
            yield 1
            answer = OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            if 0 <= partition.partition_index < count:
                deletion.open.append(answer)
                wanted.append((topic.name, partition.partition_index))
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    if len(wanted) > AT_ONCE:
        return _in_portions(svc, req.group_id, wanted, deletion)
    svc.groups.delete_offsets(req.group_id, wanted, deletion)
    return PENDING


class _Some(Portion):
    """A token for some of the items, which keeps an error of the whole request as one."""

    __slots__ = ("_refusals",)

    def __init__(self, codes: Codes, first: int, end: int, refusals: list[ErrorCode]) -> None:
        super().__init__(codes, first, end)
        self._refusals = refusals

    def reply(self, codes: list[ErrorCode] | ErrorCode) -> None:
        if isinstance(codes, ErrorCode):
            self._refusals.append(codes)
        super().reply(codes)


async def _in_portions(svc: Services, group_id: str, wanted: list[tuple[str, int]], deletion: _Deletion) -> object:
    """An error of the whole request, which any portion may have, replaces the partitions' results."""
    refusals: list[ErrorCode] = []
    codes = Codes(len(wanted), lambda found: deletion.reply(refusals[0] if refusals else found), deletion)

    def delete(first: int, end: int) -> None:
        svc.groups.delete_offsets(group_id, wanted[first:end], _Some(codes, first, end, refusals))

    await in_portions(svc, len(wanted), delete)
    return PENDING


def _denied(req: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """The answer with `code` at every partition."""
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(
    ApiKey.OFFSET_DELETE,
    (0, 0),
    handle,
    access=both(needs(on_group(Op.DELETE)), for_each("topics", "topics", Op.READ, refusal=_denied)),
)
