"""DescribeProducers (key 61, version 0): the producers with an id that write to a partition (KIP-664).

Behaviour: for each partition its idempotent and transactional producers as the log knows them: epoch, last sequence,
time of the last write, the coordinator epoch of the last marker, and the start of an open transaction (-1 none). They
are known until `producer.id.expiration.ms` after their last write. A partition named twice is answered once. An invalid
topic name gives INVALID_TOPIC_EXCEPTION, an unknown topic UNKNOWN_TOPIC_OR_PARTITION, a partition on another broker
NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeProducersRequest, DescribeProducersResponse
from barnabas.replication import check_name
from barnabas.server.requests.access import Op, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Answer = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


def handle(svc: Services, ctx: RequestContext, req: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    topics: dict[str, dict[int, _Answer]] = {}
    for topic in req.topics:
        answers = topics.setdefault(topic.name, {})
        yield 1
        for index in topic.partition_indexes:
            yield 1
            if index not in answers:
                answers[index] = yield from _answer(svc, topic.name, index)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(name=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _answer(svc: Services, topic: str, index: int) -> Steps[_Answer]:
    try:
        check_name(topic)
        partition = svc.partitions.get(topic, index)
    except KafkaError as error:
        yield 1
        return _Answer(partition_index=index, error_code=error.code, error_message=error.message or None)
    answer = _Answer(partition_index=index)
    for producer_id, producer in list(partition.log.producers.entries.items()):
        answer.active_producers.append(
            _Producer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_start,
            )
        )
        yield 1
    return answer


def _on_error(req: DescribeProducersRequest, code: ErrorCode, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_Answer(partition_index=index, error_code=code) for index in topic.partition_indexes],
            )
            for topic in req.topics
        ]
    )


def _is_wrong(name: str) -> bool:
    """Whether the name is invalid, which any caller may know."""
    try:
        check_name(name)
    except KafkaError:
        return True
    return False


API = Api(
    ApiKey.DESCRIBE_PRODUCERS,
    (0, 0),
    handle,
    access=for_each("topics", "topics", Op.READ, is_wrong=_is_wrong),
    on_error=_on_error,
)
