"""The topics of the cluster as next-generation consumer groups see them: an image that is replaced whole, and a hash
of how the subscribed topics look.

A group's epoch rises when the hash of its topics changes (KIP-1101): a topic came or went, got partitions, or its
replicas stand in other racks. The hash is Apache Kafka's own, so a log that changes hands does not upset its groups.
Topic ids are 16 bytes. Source: `Utils.computeTopicHash`, `computeGroupHash` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.xxh3 import xxh3_64

_INT32 = Struct("<i")
_INT64 = Struct("<Q")
_HALVES = Struct(">QQ")
_LITTLE_HALVES = Struct("<QQ")


class Topic(NamedTuple):
    """`racks`: for each partition the racks of its replicas; () when no broker has a rack."""

    name: str
    topic_id: TopicId
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


class Topics:
    """All topics of the cluster at one moment. `version` rises from image to image."""

    __slots__ = ("by_id", "by_name", "version")

    def __init__(self, version: int, by_name: Mapping[str, Topic]) -> None:
        self.version = version
        self.by_name = by_name
        self.by_id = {topic.topic_id: topic for topic in by_name.values()}

    def ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """Ids of those of `names` that exist."""
        found = (self.by_name.get(name) for name in names)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def with_changes(self, version: int, changes: Mapping[str, Topic | None]) -> Topics:
        """The next image: topics by name, None for those that are gone."""
        by_name = {**self.by_name, **changes}
        return Topics(version, {name: topic for name, topic in by_name.items() if topic is not None})


NO_TOPICS = Topics(0, {})


class TopicLooks:
    """Whether a group has to see how its topics look now, as its epoch rises when they look different. Soft: a new
    group, and one that was just loaded, must look.
    """

    __slots__ = ("_looked_at", "_must_look")

    def __init__(self) -> None:
        self._must_look = True
        self._looked_at = 0

    def is_due(self, epoch: int) -> bool:
        """Whether a topic may look different; also when the epoch that followed from it was not written. epoch: of the
        group.
        """
        return self._must_look or epoch < self._looked_at

    def done(self, epoch: int) -> None:
        """The topics as they are now led to this epoch of the group."""
        self._must_look = False
        self._looked_at = epoch

    def changed(self, names: Collection[str], subscribed: Collection[str]) -> None:
        """These topics of the cluster came, went or look different."""
        if any(name in subscribed for name in names):
            self._must_look = True


def topic_hash(topic: Topic) -> int:
    """Of id, name, partitions and racks; unsigned."""
    parts = [
        b"\0",
        _LITTLE_HALVES.pack(*_HALVES.unpack(topic.topic_id)),
        _text(topic.name),
        _INT32.pack(topic.partition_count),
    ]
    for partition in range(topic.partition_count):
        parts.append(_INT32.pack(partition))
        for rack in sorted(topic.racks[partition]) if partition < len(topic.racks) else ():
            text = _text(rack)
            parts += (text[-4:], text)
    return xxh3_64(b"".join(parts))


def group_hash(hashes: Mapping[str, int]) -> int:
    """Of the hashes of a group's topics, by name; signed, as it is stored."""
    if not hashes:
        return 0
    value = xxh3_64(b"".join(_INT64.pack(hashes[name]) for name in sorted(hashes)))
    return value - (1 << 64) if value >> 63 else value


def _text(text: str) -> bytes:
    """UTF-16 units, then how many."""
    units = text.encode("utf-16-le")
    return units + _INT32.pack(len(units) // 2)
