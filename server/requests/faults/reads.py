"""Errors in the answers of APIs that only read: the request is handled as a whole, and its answer changed.

| API | an error stands |
| --- | --- |
| Fetch | in the partition; those of sessions and of the whole request at the top (7+), and nothing is read |
| Metadata | at the topic; `OF_PARTITIONS`, and any that is meant for one partition, in the partition |
| OffsetFetch | of the group: at the group (8+), at the top (2-7), in each partition (0-1); of partitions: there |
| DescribeTopicPartitions | at the topic |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode
from barnabas.kproto.messages import DescribeTopicPartitionsResponse, FetchResponse, MetadataResponse
from barnabas.server.requests.faults.names import name_of
from barnabas.server.requests.faults.placing import Placed, Refuse
from barnabas.server.requests.faults.rules import Item
from barnabas.server.requests.fetch.sessions import NOT_SENT

if TYPE_CHECKING:
    from barnabas.server.requests.services import Services

OF_FETCHES: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""Of the whole answer of a Fetch."""
OF_PARTITIONS: Final = frozenset(
    (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.REPLICA_NOT_AVAILABLE)
)
"""Which Metadata has in partitions."""
OF_OFFSETS: Final = frozenset(
    (
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""Which OffsetFetch has in partitions; others are the group's."""
SESSIONS_FROM: Final = 7
BY_ID_FROM: Final = 13
Errors = Mapping[int, ErrorCode]


def placed_in_read(
    services: Services,
    key: ApiKey,
    version: int,
    request: Any,
    items: Sequence[Item],
    errors: Errors,
    refuse: Refuse,
) -> Placed:
    """As `placing.placed`, for an API that only reads."""
    by_item = {items[number]: code for number, code in errors.items()}
    if key is ApiKey.FETCH:
        return _fetch(services, version, request, by_item, refuse)
    if key is ApiKey.OFFSET_FETCH:
        return _offset_fetch(services, version, request, by_item, refuse)
    if not any(item.topic for item in by_item):
        response = refuse(request, next(iter(by_item.values())))
        return Placed(None, lambda _: response)
    change = _metadata if key is ApiKey.METADATA else _topic_partitions
    return Placed(request, lambda response: change(services, response, by_item))


# -- Fetch -----------------------------------------------------------------------------------------------------------


def _fetch(services: Services, version: int, request: Any, errors: Mapping[Item, ErrorCode], refuse: Refuse) -> Placed:
    code = next((code for code in errors.values() if code in OF_FETCHES), None)
    if (code is not None and version >= SESSIONS_FROM) or not any(item.topic for item in errors):
        response = refuse(request, code or next(iter(errors.values())))
        return Placed(None, lambda _: response)
    at_once = copy(request)
    at_once.max_wait_ms = 0  # an error is not held back until there are records
    return Placed(at_once, lambda response: _fetched(services, version, request, response, errors))


def _fetched(services: Services, version: int, request: Any, response: Any, errors: Mapping[Item, ErrorCode]) -> Any:
    if response.error_code:
        return response  # its session is unknown, for instance
    by_id = version >= BY_ID_FROM
    for topic in response.responses:
        name = name_of(services, topic.topic, topic.topic_id)
        topic.partitions = [each for each in topic.partitions if Item(name, each.partition_index) not in errors]
    response.responses = [topic for topic in response.responses if topic.partitions]
    by_topic = {topic.topic_id if by_id else topic.topic: topic for topic in response.responses}
    session = services.fetch_sessions.find(response.session_id or request.session_id)
    for item, code in errors.items():
        if item.topic is None or item.partition is None:
            continue
        known = services.image.topics.get(item.topic)
        topic_id = ZERO_UUID if known is None else known.topic_id
        key: Any = topic_id if by_id else item.topic
        topic = by_topic.get(key)
        if topic is None:
            topic = by_topic[key] = FetchResponse.FetchableTopicResponse(
                topic=item.topic, topic_id=topic_id, partitions=[]
            )
            response.responses.append(topic)
        topic.partitions.append(
            FetchResponse.PartitionData(partition_index=item.partition, error_code=code, high_watermark=-1, records=b"")
        )
        if session is not None and (key, item.partition) in session.targets:
            session.targets[key, item.partition].sent_high_watermark = NOT_SENT  # sent again when the error is over
    return response


# -- Metadata, DescribeTopicPartitions -------------------------------------------------------------------------------


def _metadata(services: Services, response: Any, errors: Mapping[Item, ErrorCode]) -> Any:
    topics = []
    for topic in response.topics:  # rows are shared with other answers: changed ones are copies
        name = name_of(services, topic.name, topic.topic_id)
        code = errors.get(Item(name))
        if code is not None and (code not in OF_PARTITIONS or not topic.partitions):
            topic = MetadataResponse.MetadataResponseTopic(
                error_code=code, name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal
            )
        elif any(item.topic == name for item in errors):
            topic = copy(topic)
            topic.partitions = [
                _partition(each, errors.get(Item(name, each.partition_index))) for each in topic.partitions
            ]
        topics.append(topic)
    response.topics = topics
    return response


def _partition(partition: Any, code: ErrorCode | None) -> Any:
    if code is None:
        return partition
    changed = copy(partition)
    changed.error_code = code
    if code is not ErrorCode.REPLICA_NOT_AVAILABLE:
        changed.leader_id = -1
    return changed


def _topic_partitions(services: Services, response: Any, errors: Mapping[Item, ErrorCode]) -> Any:
    response.topics = [
        topic
        if (code := errors.get(Item(topic.name))) is None
        else DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
            error_code=code, name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal
        )
        for topic in response.topics
    ]
    return response


# -- OffsetFetch -----------------------------------------------------------------------------------------------------


def _offset_fetch(
    services: Services, version: int, request: Any, errors: Mapping[Item, ErrorCode], refuse: Refuse
) -> Placed:
    of_groups = {item.group: code for item, code in errors.items() if code not in OF_OFFSETS}
    of_partitions = {item: code for item, code in errors.items() if code in OF_OFFSETS}
    if version < 8:
        if of_groups:
            response = refuse(request, next(iter(of_groups.values())))
            return Placed(None, lambda _: response)
        return Placed(request, lambda response: _offsets(services, [response], [request.group_id], of_partitions))

    def amend(response: Any) -> Any:
        for code in dict.fromkeys(of_groups.values()):
            some = copy(request)
            some.groups = [group for group in request.groups if of_groups.get(group.group_id) is code]
            failed = {group.group_id: group for group in refuse(some, code).groups}
            response.groups = [failed.get(group.group_id, group) for group in response.groups]
        _offsets(services, response.groups, [group.group_id for group in response.groups], of_partitions)
        return response

    return Placed(request, amend)


def _offsets(
    services: Services, answers: Sequence[Any], groups: Sequence[str], errors: Mapping[Item, ErrorCode]
) -> Any:
    """Errors in the partitions of some groups' answers; returns the first of these."""
    for answer, group in zip(answers, groups, strict=True):
        every = errors.get(Item(group=group))
        for topic in answer.topics:
            name = name_of(services, topic.name, getattr(topic, "topic_id", ZERO_UUID))
            for partition in topic.partitions:
                code = errors.get(Item(name, partition.partition_index, group), every)
                if code is not None:
                    partition.error_code = code
                    partition.committed_offset = partition.committed_leader_epoch = -1
                    partition.metadata = ""
    return answers[0] if answers else None
