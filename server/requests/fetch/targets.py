"""What a Fetch request asks for, as targets: made of a full request, changed in a session by an incremental one."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.sessions import NOT_SENT, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.services import Services

REPLICA_STATE_FROM = 15
"""The fetching broker is named in `replica_state`, before in `replica_id`."""
PART = 250
"""How many partitions of a large request are dealt with in one step (`barnabas.server.runtime.turns`)."""


def targets_of(topics: Iterable[FetchRequest.FetchTopic], by_id: bool) -> Iterable[tuple[TargetKey, FetchTarget]]:
    """What a full request asks for. `by_id`: topics are named by their ids."""
    for topic in topics:
        for asked in topic.partitions:
            target = _target(topic, asked.partition, by_id)
            ask(target, asked)
            yield target.key, target


def _target(topic: FetchRequest.FetchTopic, index: int, by_id: bool) -> FetchTarget:
    return FetchTarget(None, topic.topic_id, index) if by_id else FetchTarget(topic.topic, ZERO_UUID, index)


def find_partition(svc: Services, target: FetchTarget) -> Partition:
    """The partition that is meant. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
    INCONSISTENT_TOPIC_ID.
    """
    topic = target.topic
    if topic is not None:
        partition = svc.partitions.get(topic, target.index)
        if target.topic_id != ZERO_UUID and partition.topic_id != target.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition
    return svc.partitions.get_by_id(target.topic_id, target.index)


def ask(target: FetchTarget, asked: FetchRequest.FetchPartition) -> None:
    """Note what a request says of a partition."""
    if target.current_leader_epoch != asked.current_leader_epoch:
        target.current_leader_epoch = asked.current_leader_epoch
        target.sent_high_watermark = NOT_SENT  # what was answered in the old epoch may have been dropped
    target.fetch_offset = asked.fetch_offset
    target.last_fetched_epoch = asked.last_fetched_epoch
    target.log_start_offset = asked.log_start_offset
    target.max_bytes = asked.partition_max_bytes
    target.settled = False
    target.known_high_watermark = asked.high_watermark


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
    """Put what an incremental request adds or changes into the session."""
    targets = session.targets
    for topic in topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            target = targets.get((name, asked.partition))
            if target is None:
                target = targets[name, asked.partition] = _target(topic, asked.partition, by_id)
            ask(target, asked)


def forget(session: FetchSession, req: FetchRequest, by_id: bool) -> None:
    """Take what an incremental request does not want any more out of the session."""
    targets = session.targets
    for forgotten in req.forgotten_topics_data:
        name = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            targets.pop((name, index), None)
