"""What a member says its application is (KIP-1071): subtopologies, the topics that they read and write, and which of
these must have equally many partitions. As it is in StreamsGroupHeartbeat and in record 23.

Whether it fits the topics that are there is `configured`'s; here is what can be said of it alone. All refusals are
STREAMS_INVALID_TOPOLOGY. As in Apache Kafka 4.3: a changelog with a partition count, topics whose names may not be
used. Beyond it, where there the request fails without a reason, or goes on: two subtopologies with one id, negative
partition counts, positions of copartition groups that point nowhere, a topology that is too large to be stored anyway.

Regular expressions for source topics are carried, and not used: the coordinator refuses them (INVALID_REQUEST), as
Apache Kafka 4.3 does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.kproto import ErrorCode, KafkaError

SIZE_MAX: Final = 50_000
"""Subtopologies with the characters of their ids, and what they list: topics, their settings, copartition groups and
positions. Applications have some hundreds; as one record of usual names, 1 MB is as much as a log takes.
"""


class TopicInfo(NamedTuple):
    """An internal topic. partitions: 0 if they are to be found out. replication_factor: 0 or −1 for the broker's."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that must have equally many partitions: positions in the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """Lists are in the client's order, which copartition groups point into."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def inputs(self) -> Iterator[str]:
        """The topics that it reads."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    @property
    def is_stateful(self) -> bool:
        """Whether a standby of its tasks has something to do."""
        return bool(self.state_changelog_topics)

    def copartitioned(self, group: CopartitionGroup) -> frozenset[str]:
        """The topics of one of its groups. Raises IndexError if there is none at a position."""
        return frozenset(
            [self.source_topics[at] for at in group.source_topics]
            + [self.repartition_source_topics[at].name for at in group.repartition_source_topics]
        )


class Topology(NamedTuple):
    """Subtopologies by id, in the client's order; equal whatever the order. epoch: the client's number of it."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    @property
    def required_topics(self) -> frozenset[str]:
        """The topics that must be there: all that are read, and the changelogs."""
        found: set[str] = set()
        for subtopology in self.subtopologies.values():
            found.update(subtopology.inputs)
            found.update(topic.name for topic in subtopology.state_changelog_topics)
        return frozenset(found)

    @property
    def readers(self) -> Mapping[str, str]:
        """Which subtopology reads a topic; of several the last. Whose task a partition is, for offset commits."""
        return {
            topic: subtopology_id
            for subtopology_id, subtopology in self.subtopologies.items()
            for topic in subtopology.inputs
        }


class _KeyValue(Protocol):
    key: str
    value: str


class _TopicInfo(Protocol):
    name: str
    partitions: int
    replication_factor: int

    @property
    def topic_configs(self) -> Sequence[_KeyValue]: ...


class _CopartitionGroup(Protocol):
    source_topics: list[int]
    source_topic_regex: list[int]
    repartition_source_topics: list[int]


class _Subtopology(Protocol):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    repartition_sink_topics: list[str]

    @property
    def state_changelog_topics(self) -> Sequence[_TopicInfo]: ...
    @property
    def repartition_source_topics(self) -> Sequence[_TopicInfo]: ...
    @property
    def copartition_groups(self) -> Sequence[_CopartitionGroup]: ...


class SentTopology(Protocol):
    """A topology in a message or in a record: both have the same fields."""

    epoch: int

    @property
    def subtopologies(self) -> Sequence[_Subtopology]: ...


def check_size(sent: SentTopology) -> None:
    """Before anything else is done with what a client sent, as all of that takes longer the larger it is. Raises
    KafkaError STREAMS_INVALID_TOPOLOGY above SIZE_MAX.
    """
    size = 0
    for each in sent.subtopologies:
        infos = (each.state_changelog_topics, each.repartition_source_topics)
        size += 1 + len(each.subtopology_id)
        size += len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_sink_topics)
        size += len(infos[0]) + len(infos[1]) + len(each.copartition_groups)
        if size <= SIZE_MAX:
            size += sum(len(topic.topic_configs) for listed in infos for topic in listed)
            for group in each.copartition_groups:
                size += len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
        if size > SIZE_MAX:
            raise invalid(f"The topology is too large: it may list {SIZE_MAX} topics, settings and other things.")


def topology_of(sent: SentTopology) -> Topology:
    """The topology of a heartbeat, or of a value of record 23. Raises KafkaError STREAMS_INVALID_TOPOLOGY for two
    subtopologies with one id.
    """
    found: dict[str, Subtopology] = {}
    for each in sent.subtopologies:
        if each.subtopology_id in found:
            raise invalid(f"Two subtopologies have the id {each.subtopology_id}.")
        found[each.subtopology_id] = Subtopology(
            each.subtopology_id,
            tuple(each.source_topics),
            tuple(each.source_topic_regex),
            tuple(map(_topic_info, each.state_changelog_topics)),
            tuple(each.repartition_sink_topics),
            tuple(map(_topic_info, each.repartition_source_topics)),
            tuple(
                CopartitionGroup(
                    tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
                )
                for group in each.copartition_groups
            ),
        )
    return Topology(sent.epoch, found)


def check_topology(topology: Topology) -> None:
    """Raises KafkaError STREAMS_INVALID_TOPOLOGY if it cannot be meant; names of topics are `check_names`'."""
    for subtopology_id, subtopology in topology.subtopologies.items():
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise invalid(
                    f"The changelog topic {topic.name} may not have a number of partitions; it has {topic.partitions}."
                )
        for topic in subtopology.repartition_source_topics:
            if topic.partitions < 0:
                raise invalid(f"The repartition topic {topic.name} has {topic.partitions} partitions.")
        for group in subtopology.copartition_groups:
            if not (
                _point_into(group.source_topics, subtopology.source_topics)
                and _point_into(group.source_topic_regex, subtopology.source_topic_regex)
                and _point_into(group.repartition_source_topics, subtopology.repartition_source_topics)
            ):
                raise invalid(
                    f"A copartition group of subtopology {subtopology_id} names topics that it does not read."
                )


def check_names(topology: Topology, is_internal: Callable[[str], bool], is_legal: Callable[[str], bool]) -> list[str]:
    """All topics that the topology names, each once, in its order: who joins must be allowed to describe them. Raises
    KafkaError STREAMS_INVALID_TOPOLOGY if one of them is the cluster's own, or has no name of a topic.
    """
    names = list(dict.fromkeys(_names(topology)))
    own = [name for name in names if is_internal(name)]
    if own:
        raise invalid(f"A topology may not use topics of the cluster itself: {', '.join(own)}.")
    illegal = [name for name in names if not is_legal(name)]
    if illegal:
        raise invalid(f"No names of topics: {', '.join(illegal)}.")
    return names


def invalid(message: str) -> KafkaError:
    """The error for a topology that cannot be meant."""
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _names(topology: Topology) -> Iterator[str]:
    for subtopology in topology.subtopologies.values():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in subtopology.repartition_source_topics + subtopology.state_changelog_topics:
            yield topic.name


def _topic_info(sent: _TopicInfo) -> TopicInfo:
    configs = tuple((config.key, config.value) for config in sent.topic_configs)
    return TopicInfo(sent.name, sent.partitions, sent.replication_factor, configs)


def _point_into(positions: Sequence[int], listed: Sequence[object]) -> bool:
    return all(0 <= at < len(listed) for at in positions)
