"""The embedded protocol of `consumer` groups: the metadata that members join with, and the encoding of assignments.

A classic group only needs the topics: the prefix that all versions of `ConsumerProtocolSubscription` share, so the
coordinator does not depend on what clients add. When a group goes over to the next generation, or a classic member is
in such a group, all of it is read and assignments are written here. Metadata of another protocol type is never looked
into.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.topics import Topics
from barnabas.kproto import DecodeError, decode
from barnabas.kproto.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode_versioned

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups; Kafka Connect's and others differ."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that one of the members subscribes to; None when a subscription cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < 2:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, subscription, 2).topics)
        except DecodeError:
            return None
    return frozenset(topics)


_VERSION = Struct(">h")
_NEWEST: Final = 3


class Subscription(NamedTuple):
    """`owned`: partitions that the member says it has. `rack_id` None: it did not say."""

    topics: frozenset[str]
    owned: Mapping[TopicId, Collection[int]]
    rack_id: str | None


def read_subscription(metadata: bytes, topics: Topics) -> Subscription:
    """All of a subscription; partitions of topics that do not exist are left out. Raises DecodeError."""
    decoded = decode(ConsumerProtocolSubscription, _version(metadata), metadata, 2)
    owned: dict[TopicId, list[int]] = {}
    for each in decoded.owned_partitions:
        topic = topics.by_name.get(each.topic)
        if topic is not None:
            owned.setdefault(topic.topic_id, []).extend(each.partitions)
    return Subscription(frozenset(decoded.topics), owned, decoded.rack_id or None)


def read_assignment(assignment: bytes, topics: Topics) -> tuple[Mapping[TopicId, frozenset[int]], bool]:
    """Partitions of topics that exist, and whether the assignor left something of its own beside them. Raises
    DecodeError.
    """
    if not assignment:
        return {}, False
    decoded = decode(ConsumerProtocolAssignment, _version(assignment), assignment, 2)
    assigned = {}
    for each in decoded.assigned_partitions:
        topic = topics.by_name.get(each.topic)
        if topic is not None and each.partitions:
            assigned[topic.topic_id] = frozenset(each.partitions)
    return assigned, bool(decoded.user_data)


def write_assignment(assigned: Mapping[TopicId, Collection[int]], topics: Topics, metadata: bytes) -> bytes:
    """An assignment for the member with this subscription, in its version; topics that are gone are left out."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topics.by_id[topic].name, partitions=sorted(partitions))
            for topic, partitions in assigned.items()
            if topic in topics.by_id
        ]
    )
    return encode_versioned(message, _version(metadata))


def is_readable(metadata: bytes) -> bool:
    """Whether `write_assignment` can write an assignment for a member that says this."""
    try:
        return _version(metadata) >= 0
    except DecodeError:
        return False


def _version(data: bytes) -> int:
    """The version to read or write: what is newer than this release begins like the newest that it knows."""
    if len(data) < 2:
        raise DecodeError("data of the consumer protocol is shorter than its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"the consumer protocol has no version {version}")
    return min(version, _NEWEST)
