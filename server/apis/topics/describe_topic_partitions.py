"""DescribeTopicPartitions (key 75, version 0): topics in pages of partitions (KIP-966).

Behaviour: topics asked for, or all for an empty list, in the order of their names, at most `response_partition_limit`
partitions (not more than `max.request.partition.size.limit`, at least one). What does not fit is where `next_cursor`
points; the client sends it back to go on. The cursor's topic must be among the topics asked for, and its partition not
negative. Partitions without a leader show leader -1 without an error; unknown topics give UNKNOWN_TOPIC_OR_PARTITION,
impossible names INVALID_TOPIC_EXCEPTION. Java admin clients ask this instead of Metadata where it is advertised.

Eligible leader replicas are always empty: clusters on ZooKeeper have none. Not done: authorization.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import merge
from itertools import islice

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from barnabas.replication import NO_LEADER, Image, PartitionImage, is_internal, name_fault
from barnabas.server.apis.topics.metadata import offline_replicas
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_TOPIC_OPERATIONS
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


_SORTED_AT_ONCE = 2000


def handle(
    svc: Services, ctx: RequestContext, req: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    image = svc.image
    everything = not req.topics
    asked = {topic.name for topic in req.topics}
    names: Iterable[str] = image.topic_names if everything else (yield from _sorted(asked))
    first = 0
    if req.cursor is not None:
        cursor_name = req.cursor.topic_name
        names = (name for name in names if name >= cursor_name)
        first = req.cursor.partition_index
        if not everything and cursor_name not in asked:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's topic is not among those asked for")
        if first < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a cursor at partition {first}")
    left = max(1, min(svc.config.get_int("max.request.partition.size.limit"), req.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield 1
        if left == 0:
            response.next_cursor = _Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            if not everything:
                response.topics.append(_missing(name))
            continue
        start = first if req.cursor is not None and name == req.cursor.topic_name else 0
        partitions = topic.partitions[start : start + left]
        yield 2 * len(partitions)
        response.topics.append(
            _Topic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[_described(image, p, ctx.listener) for p in partitions if p.has_state],
                topic_authorized_operations=ALL_TOPIC_OPERATIONS,
            )
        )
        if start + left < len(topic.partitions):
            response.next_cursor = _Cursor(topic_name=name, partition_index=start + left)
            break
        left -= len(partitions)
    return response


def _sorted(names: Collection[str]) -> Steps[Iterable[str]]:
    """The names in order; many are put in order a part at a time, and merged as they are taken."""
    parts = []
    rest = iter(names)
    while part := sorted(islice(rest, _SORTED_AT_ONCE)):
        parts.append(part)
        yield _SORTED_AT_ONCE // 2
    return merge(*parts)


def _missing(name: str) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    unknown = name_fault(name) is None
    return _Topic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _described(
    image: Image, partition: PartitionImage, listener: str
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    leader = image.brokers.get(partition.leader)
    reachable = leader is not None and leader.endpoint(listener) is not None
    return _Partition(
        partition_index=partition.index,
        leader_id=partition.leader if reachable else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline_replicas(image, partition),
    )


def _refusal(req: DescribeTopicPartitionsRequest, code: ErrorCode, version: int) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_Topic(error_code=code, name=topic.name) for topic in req.topics])


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), handle, on_error=_refusal)
