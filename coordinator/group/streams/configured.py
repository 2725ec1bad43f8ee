"""A topology beside the topics that are there (KIP-1071): how many tasks it has, which internal topics it wants, and
what stands in the way of starting it.

Computed in this order; the first problem ends it, but for topics that are only to be made:

1. All source topics are there, else MISSING_SOURCE_TOPICS.
2. Repartition topics have the partitions that the client fixed. Others have as many as the largest topic that the
   subtopology that writes them reads: of those whose count is known, again and again until all are. Where that comes to
   no end (a loop), or nobody writes a topic that is read, the topology is wrong.
3. Topics of a copartition group have equally many. If there are source topics among them, these must agree, and the
   repartition topics follow; else those fixed must agree and the others follow; else all follow the largest. Else
   INCORRECTLY_PARTITIONED_TOPICS.
4. A subtopology has as many tasks, and its changelogs as many partitions, as the largest topic that it reads. One that
   reads nothing is wrong.
5. An internal topic that is there must have the computed count, else INCORRECTLY_PARTITIONED_TOPICS.
6. Those that are not there are wanted: MISSING_INTERNAL_TOPICS. The topology is configured all the same, so that it can
   be described and its topics made.

Where a topic is there its own count is what others are computed from. Subtopologies are taken in the order in which
Java would: where one repartition topic has several writers, or its writer reads several that come to be known one
after another, counts depend on it, and a topic made by one broker must suit the other.

Differences from Apache Kafka 4.3: a topology may not have more than TASKS_MAX tasks, as a small one, of many
subtopologies that read one large topic, could take all memory. And its third step looks at all fixed repartition topics
of the topology where it means those of the group, so that unrelated topics with different counts stop an application.
Here a group is only its own topics, as in Kafka Streams' own assignor. Sources: KIP-1071; `InternalTopicManager`,
`RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from barnabas.coordinator.group.streams.java_order import hash_order, text_order
from barnabas.coordinator.group.streams.topology import Subtopology, TopicInfo, Topology, invalid

TASKS_MAX: Final = 100_000
"""Of a topology. To assign so many takes a tenth of a second, with standbys three."""


class Status(IntEnum):
    """What a member is told beside error 0, with a detail for its log. The numbers are the protocol's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    """Why a topology is not ready."""

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """A repartition topic or a changelog as it is to be. replication_factor: 0 or −1 for the broker's own, as sent."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class ConfiguredSubtopology(NamedTuple):
    """tasks: how many, one for each partition from 0. The topics are as the topology names them, in its order, internal
    ones with their counts.
    """

    tasks: int
    is_stateful: bool
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]


class ConfiguredTopology(NamedTuple):
    """What became of a topology. subtopologies: by id, sorted; None if the problem is one that leaves counts unknown.
    wanted: internal topics to be made, by name.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    wanted: Mapping[str, InternalTopic]
    problem: Problem | None

    @property
    def is_ready(self) -> bool:
        """Whether tasks may be assigned."""
        return self.problem is None

    def unknown_task(self, subtopology_id: str, partitions: Collection[int]) -> int | None:
        """One of the partitions, of which there is at least one, without a task; None if all have one."""
        subtopology = None if self.subtopologies is None else self.subtopologies.get(subtopology_id)
        least, greatest = min(partitions), max(partitions)
        if subtopology is None or least < 0:
            return least
        return greatest if greatest >= subtopology.tasks else None


def configure(topology: Topology, partitions: Mapping[str, int]) -> ConfiguredTopology:
    """See the module. partitions: how many each topic has that is there, `topology.required_topics` at least. Raises
    KafkaError STREAMS_INVALID_TOPOLOGY if no topics could make it right. The topology has passed `check_topology`.
    """
    subtopologies = topology.subtopologies
    missing = sorted(
        {topic for each in subtopologies.values() for topic in each.source_topics if topic not in partitions},
        key=text_order,
    )
    if missing:
        detail = f"Source topics that do not exist: {_some(missing)}."
        return _stopped(topology, Problem(Status.MISSING_SOURCE_TOPICS, detail))
    in_order = [subtopologies[subtopology_id] for subtopology_id in hash_order(subtopologies)]
    decided = _repartition_counts(in_order, partitions)
    read = [topic for subtopology in in_order for topic in subtopology.repartition_source_topics]
    repartition = {topic.name for topic in read}
    fixed = {topic.name for topic in read if topic.partitions}
    try:
        for subtopology in in_order:
            for group in subtopology.copartition_groups:
                topics = subtopology.copartitioned(group)
                decided.update(_copartitioned(topics, repartition, fixed, partitions, decided))
        configured = {
            subtopology_id: _configured(subtopologies[subtopology_id], partitions, decided)
            for subtopology_id in sorted(subtopologies, key=text_order)
        }
        tasks = sum(each.tasks for each in configured.values())
        if tasks > TASKS_MAX:
            raise invalid(f"The topology has {tasks} tasks; it may have {TASKS_MAX}.")
        wanted = _wanted(configured, partitions)
    except _IncorrectlyPartitioned as conflict:
        return _stopped(topology, Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, str(conflict)))
    problem = None
    if wanted:
        detail = f"Internal topics that do not exist: {_some(sorted(wanted, key=text_order))}."
        problem = Problem(Status.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, configured, wanted, problem)


class _IncorrectlyPartitioned(Exception):
    """Topics of the cluster, or counts fixed by the client, do not go together; the text says which."""


def _repartition_counts(subtopologies: Sequence[Subtopology], partitions: Mapping[str, int]) -> dict[str, int]:
    """Step 2, without going through all subtopologies again and again: clients could make a round for each of them."""
    decided = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[int]] = {}
    for position, subtopology in enumerate(subtopologies):
        for topic in subtopology.repartition_source_topics:
            readers.setdefault(topic.name, []).append(position)
    # By round and position, sorted; a subtopology is asked once, as soon as it knows a topic that it reads.
    due = [(0, position) for position, subtopology in enumerate(subtopologies) if _knows_some(subtopology, decided)]
    asked = {position for _, position in due}
    while due:
        number, position = heappop(due)
        subtopology = subtopologies[position]
        known = [partitions[topic] for topic in subtopology.source_topics]
        known += [decided[read.name] for read in subtopology.repartition_source_topics if read.name in decided]
        count = max(known)
        for sink in subtopology.repartition_sink_topics:
            if sink in decided:
                continue
            decided[sink] = count
            for reader in readers.get(sink, ()):
                if reader not in asked:
                    asked.add(reader)
                    heappush(due, (number if reader > position else number + 1, reader))
    if any(sink not in decided for subtopology in subtopologies for sink in subtopology.repartition_sink_topics):
        raise invalid("The partitions of repartition topics cannot be found out; the topology may have a loop.")
    for subtopology in subtopologies:
        for topic in subtopology.repartition_source_topics:
            if topic.name not in decided:
                raise invalid(f"The repartition topic {topic.name} is read, and no subtopology writes it.")
    return decided


def _knows_some(subtopology: Subtopology, decided: Collection[str]) -> bool:
    """Whether the partitions of a topic that it reads are known."""
    return bool(subtopology.source_topics) or any(
        topic.name in decided for topic in subtopology.repartition_source_topics
    )


def _copartitioned(
    topics: frozenset[str],
    all_repartition: set[str],
    all_fixed: set[str],
    partitions: Mapping[str, int],
    decided: Mapping[str, int],
) -> dict[str, int]:
    """Step 3: the counts of the repartition topics of one group. all_repartition, all_fixed: of the topology, all that
    are read, and those whose partitions the client fixed. Raises _IncorrectlyPartitioned.
    """
    repartition, fixed = topics & all_repartition, topics & all_fixed
    counts = {topic: _count(topic, partitions, decided) for topic in sorted(topics, key=text_order)}
    leading = {topic: count for topic, count in counts.items() if topic not in repartition}
    if not leading:
        leading = {topic: count for topic, count in counts.items() if topic in fixed} or counts
        if not fixed:
            return dict.fromkeys(repartition, max(counts.values(), default=0))
    if len(set(leading.values())) > 1:
        raise _IncorrectlyPartitioned(f"Topics that must have equally many partitions: {_with_counts(leading)}.")
    count = next(iter(leading.values()))
    for name in sorted(fixed, key=text_order):
        if counts[name] != count:
            raise _IncorrectlyPartitioned(
                f"The repartition topic {name} has {counts[name]} partitions; the source topics have {count}."
            )
    return dict.fromkeys(repartition, count)


def _configured(
    subtopology: Subtopology, partitions: Mapping[str, int], decided: Mapping[str, int]
) -> ConfiguredSubtopology:
    """Step 4."""
    counts = [_count(topic, partitions, decided) for topic in subtopology.inputs]
    if not counts:
        raise invalid(f"Subtopology {subtopology.subtopology_id} reads no topic.")
    tasks = max(counts)
    return ConfiguredSubtopology(
        tasks,
        subtopology.is_stateful,
        subtopology.source_topics,
        subtopology.repartition_sink_topics,
        tuple(_internal(topic, decided[topic.name]) for topic in subtopology.repartition_source_topics),
        tuple(_internal(topic, tasks) for topic in subtopology.state_changelog_topics),
    )


def _wanted(
    subtopologies: Mapping[str, ConfiguredSubtopology], partitions: Mapping[str, int]
) -> dict[str, InternalTopic]:
    """Steps 5 and 6. Raises _IncorrectlyPartitioned."""
    wanted = {
        topic.name: topic
        for subtopology in subtopologies.values()
        for topic in subtopology.repartition_source_topics + subtopology.state_changelog_topics
    }
    for name in sorted(wanted, key=text_order):
        if name in partitions:
            topic = wanted.pop(name)
            if topic.partitions != partitions[name]:
                raise _IncorrectlyPartitioned(
                    f"The topic {name} exists with {partitions[name]} partitions, and is to have {topic.partitions}."
                )
    return wanted


def _internal(topic: TopicInfo, count: int) -> InternalTopic:
    # One that the client fixed may exist with another count, which a copartition group takes over.
    return InternalTopic(topic.name, topic.partitions or count, topic.replication_factor, topic.configs)


def _count(topic: str, partitions: Mapping[str, int], decided: Mapping[str, int]) -> int:
    """What a topic has, or is to have."""
    return partitions[topic] if topic in partitions else decided[topic]


def _stopped(topology: Topology, problem: Problem) -> ConfiguredTopology:
    return ConfiguredTopology(topology.epoch, None, {}, problem)


def _some(topics: Sequence[str]) -> str:
    """Three of them, and how many more."""
    named = ", ".join(topics[:3])
    return named if len(topics) <= 3 else f"{named} and {len(topics) - 3} more"


def _with_counts(counts: dict[str, int]) -> str:
    """Some of them, those before others whose counts differ."""
    first = {count: topic for topic, count in reversed(counts.items())}
    topics = sorted(counts, key=lambda topic: first[counts[topic]] != topic)
    return _some([f"{topic} ({counts[topic]})" for topic in topics])
