"""OffsetForLeaderEpoch (key 23, versions 0-4): where a leader epoch ended (KIP-101, KIP-320).

Behaviour: for an epoch, the greatest one known that is not above it, and the offset at which that one ended: the start
of the next, or the log's end for the newest. Followers find with it the offset to truncate to, consumers whether what
they read was truncated. An epoch above all known ones, or a log without epochs, answers -1, -1 without error.

Versions:

- 1: the epoch that was found
- 2: `current_leader_epoch`, answered with FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when it is not ours
- 3: replica id; only the leader answers, to any replica id
- 4: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from barnabas.server.requests.access import Op, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Requested = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
_Answer = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(svc: Services, ctx: RequestContext, req: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in req.topics:
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        topics.append(result)
        yield 1
        for requested in topic.partitions:
            result.partitions.append(_answer(svc, topic.topic, requested))
            yield 2
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(svc: Services, topic: str, requested: _Requested) -> _Answer:
    try:
        partition = svc.partitions.get(topic, requested.partition)
        partition.check_leader_epoch(requested.current_leader_epoch)
    except KafkaError as error:
        return _Answer(partition=requested.partition, error_code=error.code)
    epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
    return _Answer(partition=requested.partition, leader_epoch=epoch, end_offset=end_offset)


def _on_error(req: OffsetForLeaderEpochRequest, code: ErrorCode, version: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_Answer(partition=requested.partition, error_code=code) for requested in topic.partitions],
            )
            for topic in req.topics
        ]
    )


API = Api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    (0, 4),
    handle,
    access=for_each("topics", "topics", Op.DESCRIBE, name="topic", unless=Op.CLUSTER_ACTION),
    on_error=_on_error,
)
