"""Metadata (key 3, versions 0-13): brokers, topics, partitions and their leaders.

Behaviour: answers from one image of the cluster. Brokers are those alive on the listener the request came in on;
topics those asked for, or all. A partition without a leader answers LEADER_NOT_AVAILABLE and leader -1; a leader that
is not on this listener LISTENER_NOT_FOUND. Names that exist nowhere give UNKNOWN_TOPIC_OR_PARTITION, impossible ones
INVALID_TOPIC_EXCEPTION, unknown ids UNKNOWN_TOPIC_ID.

Missing topics are created if the request and `auto.create.topics.enable` allow it; asking for all topics never creates.
The answer does not wait for them: it says UNKNOWN_TOPIC_OR_PARTITION, as Apache Kafka's does, and clients ask again. A
request that names any topic by id is about ids alone.

A broker of a cluster that has not received an image from the controller yet answers when it has: it cannot know that a
topic does not exist, and clients drop their state of such topics. (Apache Kafka answers immediately.)

Versions:

- 0: takes an empty list for "all", answers replicas and in-sync replicas only where they are alive, and
  REPLICA_NOT_AVAILABLE if that leaves some out
- 1: null for "all", an empty list for none; controller, rack, internal topics
- 2: cluster id
- 4: `allow_auto_topic_creation`
- 5: offline replicas
- 6: LISTENER_NOT_FOUND (LEADER_NOT_AVAILABLE before)
- 7: leader epoch
- 8: authorized operations on topics, and up to version 10 on the cluster
- 9: flexible
- 10: topic ids in answers
- 12: topic ids in requests
- 13: an error of the whole answer (not used by this broker: it never asks clients to start over)

What a topic's answer says is put together once per image of the cluster (`barnabas.server.requests.image_cache`).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import trio

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import MetadataRequest, MetadataResponse
from barnabas.replication import BrokerImage, Image, PartitionImage, TopicImage, is_internal, is_prohibited, name_fault
from barnabas.server.requests.access import CLUSTER, TOPIC, AccessCheck, Admitted, Op, Outcome, merge, split
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.authorized_operations import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    NOT_ASKED,
    cluster_operations,
)
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Broker = MetadataResponse.MetadataResponseBroker
_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition


_LOOK_AGAIN_S = 0.05


def handle(svc: Services, ctx: RequestContext, req: MetadataRequest) -> object:
    if not svc.cluster.has_image:
        return _answer_when_image_received(svc, ctx, req)
    return _answer_now(svc, ctx, req)


async def _answer_when_image_received(svc: Services, ctx: RequestContext, req: MetadataRequest) -> object:
    if req.topics:
        await svc.turns.run(_asked(req.topics, ctx.api_version))  # what is wrong with the request is said at once
    while not svc.cluster.has_image:
        await trio.sleep(_LOOK_AGAIN_S)
        if ctx.closed:
            return PENDING
    return _answer_now(svc, ctx, req)


def _answer_now(svc: Services, ctx: RequestContext, req: MetadataRequest) -> Steps[MetadataResponse]:
    wanted = req.topics
    if wanted is None or (ctx.api_version == 0 and not wanted):
        return (yield from _answer(svc, svc.image, ctx, req, svc.image.topic_names))
    names, ids = yield from _asked(wanted, ctx.api_version)
    image = svc.image
    if ids:
        known = [topic.name for topic_id in ids if (topic := image.topic_by_id(topic_id)) is not None]
        unknown = [topic_id for topic_id in ids if image.topic_by_id(topic_id) is None]
        return (yield from _answer(svc, image, ctx, req, known, unknown_ids=unknown))
    missing = [name for name in names if name not in image.topics]
    if missing and req.allow_auto_topic_creation and svc.config.get_bool("auto.create.topics.enable"):
        new = [name for name in missing if not is_prohibited(name) and name not in svc.topics.auto_creating]
        ctx.charge(len(new) * svc.config.get_int("num.partitions"), strict=False)
        svc.topics.auto_create_soon(new)
    return (yield from _answer(svc, image, ctx, req, names))


def _asked(
    wanted: Iterable[MetadataRequest.MetadataRequestTopic], version: int
) -> Steps[tuple[list[str], list[bytes]]]:
    """Names and ids in the order asked, each once. Raises KafkaError INVALID_REQUEST."""
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for topic in wanted:
        yield 1
        if topic.topic_id != ZERO_UUID:
            if version < 12:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic ids are not part of version {version}")
            ids[topic.topic_id] = None
        elif topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
        else:
            names[topic.name] = None
    return list(names), list(ids)


def _answer(
    svc: Services,
    image: Image,
    ctx: RequestContext,
    req: MetadataRequest,
    names: Iterable[str],
    unknown_ids: Iterable[bytes] = (),
) -> Steps[MetadataResponse]:
    version, listener = ctx.api_version, ctx.listener
    topics = [_Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=unknown) for unknown in unknown_ids]
    unknown_count = len(topics)
    with_operations = req.include_topic_authorized_operations
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            yield 1
        elif with_operations:
            topics.append((yield from _described(image, topic, version, listener)))
        else:
            key = ("metadata", name, version == 0, version >= 6, listener)
            answer = svc.image_cache.get(image, key) if image is svc.image else None
            if answer is None:
                answer = yield from _described(image, topic, version, listener)
                svc.image_cache.keep(image, key, answer)
            topics.append(answer)
            yield 1 + len(answer.partitions)  # which stand in the answer each time
    if with_operations:
        for answer in topics[unknown_count:]:
            answer.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[known for broker in image.brokers.values() if (known := _broker(broker, listener)) is not None],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if req.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def _broker(broker: BrokerImage, listener: str) -> MetadataResponse.MetadataResponseBroker | None:
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return _Broker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)


def _missing(name: str) -> MetadataResponse.MetadataResponseTopic:
    unknown = name_fault(name) is None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _Topic(error_code=code, name=name, is_internal=is_internal(name))


def _described(
    image: Image, topic: TopicImage, version: int, listener: str
) -> Steps[MetadataResponse.MetadataResponseTopic]:
    answer = _Topic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal)
    for partition in topic.partitions:
        if partition.has_state:
            answer.partitions.append(_partition(image, partition, version, listener))
            yield 2
    return answer


def _partition(
    image: Image, partition: PartitionImage, version: int, listener: str
) -> MetadataResponse.MetadataResponsePartition:
    brokers = image.brokers
    answer = _Partition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline_replicas(image, partition),
    )
    if version == 0:
        answer.replica_nodes = [replica for replica in partition.replicas if _is_alive(image, replica, listener)]
        answer.isr_nodes = [replica for replica in partition.isr if _is_alive(image, replica, listener)]
        if len(answer.replica_nodes) < len(partition.replicas) or len(answer.isr_nodes) < len(partition.isr):
            answer.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    if not _is_alive(image, partition.leader, listener):
        there = partition.leader in brokers and version >= 6
        answer.error_code = ErrorCode.LISTENER_NOT_FOUND if there else ErrorCode.LEADER_NOT_AVAILABLE
        answer.leader_id = -1
    return answer


def offline_replicas(image: Image, partition: PartitionImage) -> list[int]:
    """Replicas on brokers that are not alive, and those that the controller reports offline on live brokers."""
    offline = partition.offline_replicas
    return [replica for replica in partition.replicas if replica not in image.brokers or replica in offline]


def _is_alive(image: Image, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener) is not None


def _refusal(req: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    """An error of the whole request stands at every topic; before version 13 there is no other place."""
    return MetadataResponse(
        error_code=code if version >= 13 else ErrorCode.NONE,
        topics=[_Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in req.topics or ()],
    )


def _access(check: AccessCheck) -> Steps[Outcome]:
    """DESCRIBE on each topic that is named; a request for all topics leaves out those that may not be described. A
    missing topic is created only for a caller that may create it.
    """
    svc, req, version = check.services, check.request, check.version
    image, wanted = svc.image, req.topics
    admitted = copy(req)
    refusals: list[_Topic] = []
    keys = [(topic.name, topic.topic_id) for topic in wanted or ()]
    is_all = wanted is None or (version == 0 and not wanted)
    by_id = any(topic_id != ZERO_UUID for _, topic_id in keys)
    has_image = svc.cluster.has_image
    creates = (
        req.allow_auto_topic_creation
        and svc.config.get_bool("auto.create.topics.enable")
        and not check.would_allow(Op.CREATE, CLUSTER)
    )
    if creates and not has_image:
        admitted.allow_auto_topic_creation = False  # what is missing is not known yet
    denied = set()
    for key in dict.fromkeys(keys):
        yield 1
        name = check.topic_name(*key) if by_id else key[0]
        if name is None or (by_id and key[1] == ZERO_UUID) or (by_id and version < 12):
            continue  # left to the handler: unknown, ignored, or wrong
        refusal = None
        if not check.allows(Op.DESCRIBE, TOPIC, name):
            refusal = _denied(None if by_id else name, key[1])
        elif creates and has_image and name not in image.topics and not check.allows(Op.CREATE, TOPIC, name):
            refusal = _denied(name, ZERO_UUID)
            refusal.is_internal = is_internal(name)
        if refusal is not None:
            denied.add(key)
            refusals.append(refusal)
    if denied:
        admitted, _ = split(admitted, "topics", keys, denied)
        if version == 0 and not admitted.topics:
            admitted.topics = None  # so that no topic is created; `amend` drops the topics of the answer

    def amend(response: MetadataResponse) -> Steps[None]:
        topics = [] if version == 0 and denied and admitted.topics is None else response.topics
        if is_all or by_id or not has_image:  # what is known now may not have been known
            seen = []
            for topic in topics:
                yield 1
                if topic.name is None or check.would_allow(Op.DESCRIBE, TOPIC, topic.name):
                    seen.append(topic)
                elif not is_all:
                    seen.append(_denied(None if by_id else topic.name, topic.topic_id if by_id else ZERO_UUID))
            topics = seen
        for topic in topics:
            if topic.topic_authorized_operations != NOT_ASKED:
                topic.topic_authorized_operations = check.bits(TOPIC, topic.name or "")
                yield 1
        response.topics = topics
        merge(response, "topics", refusals, keys, "name")
        if response.cluster_authorized_operations != NOT_ASKED:
            response.cluster_authorized_operations = cluster_operations(check)

    return Admitted(admitted, amend)


def _denied(name: str | None, topic_id: bytes) -> MetadataResponse.MetadataResponseTopic:
    return _Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)


API = Api(ApiKey.METADATA, (0, 13), handle, access=_access, on_error=_refusal)
