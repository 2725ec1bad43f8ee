"""What a Fetch request asks for, as targets: created by a full request, changed in a session by an incremental one."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.sessions import NOT_SENT, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.services import Services

REPLICA_STATE_FROM = 15
"""From this version on the follower is in `replica_state`, before in `replica_id`."""
PART = 250
"""Partitions of a large request per step (`barnabas.server.runtime.turns`)."""


def targets_of(topics: Iterable[FetchRequest.FetchTopic], by_id: bool) -> Iterable[tuple[TargetKey, FetchTarget]]:
    """What a full request asks for. `by_id`: topics are named by their ids."""
    for topic in topics:
        for requested in topic.partitions:
            target = _target(topic, requested.partition, by_id)
            ask(target, requested)
            yield target.key, target


def _target(topic: FetchRequest.FetchTopic, index: int, by_id: bool) -> FetchTarget:
    return FetchTarget(None, topic.topic_id, index) if by_id else FetchTarget(topic.topic, ZERO_UUID, index)


def new_target(key: TargetKey) -> FetchTarget:
    """A target of nothing yet; `ask` says what."""
    name, index = key
    return FetchTarget(None, name, index) if isinstance(name, bytes) else FetchTarget(name, ZERO_UUID, index)


def find_partition(svc: Services, target: FetchTarget) -> Partition:
    """The target's partition. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
    INCONSISTENT_TOPIC_ID.
    """
    topic = target.topic
    if topic is not None:
        partition = svc.partitions.get(topic, target.index)
        if target.topic_id != ZERO_UUID and partition.topic_id != target.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition
    return svc.partitions.get_by_id(target.topic_id, target.index)


def ask(target: FetchTarget, requested: FetchRequest.FetchPartition) -> None:
    """Update a target from a request's partition."""
    if target.current_leader_epoch != requested.current_leader_epoch:
        target.current_leader_epoch = requested.current_leader_epoch
        target.sent_high_watermark = NOT_SENT  # the fetcher may have dropped what was sent in the old epoch
    target.fetch_offset = requested.fetch_offset
    target.last_fetched_epoch = requested.last_fetched_epoch
    target.log_start_offset = requested.log_start_offset
    target.max_bytes = requested.partition_max_bytes
    target.settled = False
    target.known_high_watermark = requested.high_watermark


def parts_of(topics: Iterable[FetchRequest.FetchTopic]) -> Iterable[list[FetchRequest.FetchTopic]]:
    """The same topics in lists of at most `PART` partitions."""
    part: list[FetchRequest.FetchTopic] = []
    room = PART
    for topic in topics:
        for begin in range(0, len(topic.partitions), PART):
            some = copy(topic)
            some.partitions = topic.partitions[begin : begin + PART]
            if len(some.partitions) > room:
                yield part
                part, room = [], PART
            part.append(some)
            room -= len(some.partitions)
    yield part


def apply_changes(session: FetchSession, topics: Iterable[FetchRequest.FetchTopic], by_id: bool) -> None:
    """Apply what an incremental request adds or changes."""
    targets = session.targets
    for topic in topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for requested in topic.partitions:
            target = targets.get((name, requested.partition))
            if target is None:
                target = targets[name, requested.partition] = _target(topic, requested.partition, by_id)
            ask(target, requested)


def forget(session: FetchSession, req: FetchRequest, by_id: bool) -> None:
    """Apply what an incremental request removes."""
    targets = session.targets
    for forgotten in req.forgotten_topics_data:
        name = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            targets.pop((name, index), None)
