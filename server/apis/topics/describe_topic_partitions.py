"""DescribeTopicPartitions (key 75, version 0): topics in pages of partitions (KIP-966).

Behaviour: the requested topics, or all for an empty list, in the order of their names, at most
`response_partition_limit` partitions (not more than `max.request.partition.size.limit`, at least one). `next_cursor`
points to the first that does not fit; the client sends it back to continue. The cursor's topic must be among the
requested ones, and its partition not negative. Partitions without a leader show leader -1 without an error; unknown
topics give UNKNOWN_TOPIC_OR_PARTITION, invalid names INVALID_TOPIC_EXCEPTION. Java admin clients send this instead of
Metadata where it is advertised.

Eligible leader replicas are always empty: clusters on ZooKeeper have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from heapq import merge
from itertools import islice

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from barnabas.replication import NO_LEADER, Image, PartitionImage, is_internal, name_fault
from barnabas.server.apis.topics.metadata import offline_replicas
from barnabas.server.requests.access import TOPIC, AccessCheck, Admitted, Op, Outcome, Refused
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_TOPIC_OPERATIONS, NOT_ASKED
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
    requested = {topic.name for topic in req.topics}
    names: Iterable[str] = image.topic_names if everything else (yield from _sorted(requested))
    first = 0
    if req.cursor is not None:
        cursor_name = req.cursor.topic_name
        names = (name for name in names if name >= cursor_name)
        first = req.cursor.partition_index
        if not everything and cursor_name not in requested:
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


def _access(check: AccessCheck) -> Steps[Outcome]:
    """DESCRIBE on each topic that is named; a request for all topics leaves out those that may not be described, before
    the others are split into pages.
    """
    req: DescribeTopicPartitionsRequest = check.request
    everything = not req.topics
    begin = "" if req.cursor is None else req.cursor.topic_name
    names = check.services.image.topic_names if everything else [topic.name for topic in req.topics]
    allowed: list[str] = []
    refusals: dict[str, _Topic] = {}
    for name in names:
        yield 1
        if (check.would_allow if everything else check.allows)(Op.DESCRIBE, TOPIC, name):
            allowed.append(name)
        elif not everything and name >= begin:
            refusals[name] = _Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    admitted = copy(req)
    if len(allowed) < len(names):
        if req.cursor is not None and req.cursor.topic_name in names and req.cursor.topic_name not in allowed:
            allowed = [name for name in allowed if name >= begin]
            admitted.cursor = None
        if not allowed:
            return Refused(DescribeTopicPartitionsResponse(topics=sorted(refusals.values(), key=_by_name)))
        admitted.topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in allowed]

    def amend(response: DescribeTopicPartitionsResponse) -> Steps[None]:
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_ASKED:
                topic.topic_authorized_operations = check.bits(TOPIC, topic.name or "")
            yield 1
        response.topics = sorted([*refusals.values(), *response.topics], key=_by_name)

    return Admitted(admitted, amend)


def _by_name(topic: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic) -> str:
    return topic.name or ""


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), handle, access=_access, on_error=_refusal)
