"""DeleteRecords (key 21, versions 0-2): delete the records before an offset (KIP-107).

Behaviour: the log start offset of each partition rises to the given offset; -1 stands for the high watermark. The
answer comes when all live replicas have raised theirs, which their fetches report, or after `timeout_ms`: then
partitions that are late answer REQUEST_TIMED_OUT (their deletion continues). The answer has the low watermark, the
smallest log start offset of the live replicas. The next run of retention deletes the files. Rejected are an offset
above the high watermark or below -1 (OFFSET_OUT_OF_RANGE), an internal topic (INVALID_TOPIC_EXCEPTION), a topic without
`delete` in its `cleanup.policy` (POLICY_VIOLATION). An offset below the log start changes nothing and is no error. Of a
partition that is named twice the last offset counts.

Versions:

- 1: as version 0
- 2: flexible

A waiting request checks every `LOOK_AGAIN_S`: an administrator's request is not worth a hook in every fetch.
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.replication import is_internal
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.access import Op, for_each
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

LOOK_AGAIN_S = 0.05
_HIGH_WATERMARK = -1

_Requested = DeleteRecordsRequest.DeleteRecordsPartition
_Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Waiting = tuple[Partition, int, _Answer]


def handle(svc: Services, ctx: RequestContext, req: DeleteRecordsRequest) -> Steps[Any]:
    waiting: list[_Waiting] = []
    wanted: dict[str, dict[int, _Requested]] = {}
    for topic in req.topics:
        requested_of = wanted.setdefault(topic.name, {})
        yield 1
        for requested in topic.partitions:
            requested_of[requested.partition_index] = requested
            yield 1
    response = DeleteRecordsResponse()
    for name, requested_of in wanted.items():
        answers = []
        for requested in requested_of.values():
            before = len(waiting)
            answers.append(_delete(svc, name, requested, waiting))
            yield 3 if len(waiting) == before else 30
        response.topics.append(_Topic(name=name, partitions=answers))
    _look(waiting)
    if not waiting:
        return response
    again = _Again(svc, ctx, response, waiting, svc.now() + req.timeout_ms / 1000)
    svc.timers.after(min(LOOK_AGAIN_S, max(0.0, req.timeout_ms / 1000)), again.look)
    return PENDING


class _Again:
    """A wait for the replicas. No function that refers to itself: that is a cycle, which would keep the request."""

    __slots__ = ("_ctx", "_due", "_response", "_svc", "_waiting")

    def __init__(
        self, svc: Services, ctx: RequestContext, response: DeleteRecordsResponse, waiting: list[_Waiting], due: float
    ) -> None:
        self._svc = svc
        self._ctx = ctx
        self._response = response
        self._waiting = waiting
        self._due = due

    def look(self) -> None:
        """Answer, or come again. `due`: trio's clock."""
        svc = self._svc
        _look(self._waiting)
        if self._waiting and svc.now() < self._due:
            svc.timers.after(min(LOOK_AGAIN_S, self._due - svc.now()), self.look)
            return
        for _, _, answer in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._ctx.reply(self._response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def _delete(svc: Services, topic: str, requested: _Requested, waiting: list[_Waiting]) -> _Answer:
    index = requested.partition_index
    try:
        partition = svc.partitions.get(topic, index)
        if is_internal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition.check_leader_epoch(-1)
        if not partition.log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        partition.log.delete_records(requested.offset, partition.high_watermark)
    except KafkaError as error:
        return _Answer(partition_index=index, low_watermark=-1, error_code=error.code)
    answer = _Answer(partition_index=index)
    wanted = partition.high_watermark if requested.offset == _HIGH_WATERMARK else requested.offset
    waiting.append((partition, wanted, answer))
    return answer


def _look(waiting: list[_Waiting]) -> None:
    """Fill the answers in as they stand; keep in `waiting` those that are not final."""
    open_ones = []
    for partition, wanted, answer in waiting:
        if not partition.is_leader:
            answer.low_watermark, answer.error_code = -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
            continue
        answer.low_watermark = partition.low_watermark
        if answer.low_watermark < wanted:
            open_ones.append((partition, wanted, answer))
    waiting[:] = open_ones


def _on_error(req: DeleteRecordsRequest, code: ErrorCode, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Answer(partition_index=requested.partition_index, low_watermark=-1, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(ApiKey.DELETE_RECORDS, (0, 2), handle, access=for_each("topics", "topics", Op.DELETE), on_error=_on_error)
