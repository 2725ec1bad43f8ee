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

One difference from Apache Kafka 4.3: its third step looks at all fixed repartition topics of the topology where it
means those of the group, so that unrelated topics with different counts stop an application. Here a group is only its
own topics, as in Kafka Streams' own assignor. Sources: KIP-1071; `InternalTopicManager`, `RepartitionTopics`,
`CopartitionedTopicsEnforcer` and `ChangelogTopics` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordinator.group.streams.topology import Topology


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

    def has_task(self, subtopology_id: str, partition: int) -> bool:
        """Whether there is such a task."""
        subtopology = None if self.subtopologies is None else self.subtopologies.get(subtopology_id)
        return subtopology is not None and 0 <= partition < subtopology.tasks


def configure(topology: Topology, partitions: Mapping[str, int]) -> ConfiguredTopology:
    """See the module. partitions: how many each topic has that is there, `topology.required_topics` at least. Raises
    KafkaError STREAMS_INVALID_TOPOLOGY if no topics could make it right. The topology has passed `check_topology`.
    """
    raise NotImplementedError
