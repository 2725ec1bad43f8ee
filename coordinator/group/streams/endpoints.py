"""Which partitions are where, for applications that ask each other for what is in their stores (interactive queries).

Topics of a task are those that its subtopology reads. Source: `EndpointToPartitionsManager` of Apache Kafka 4.3, which
also names partitions that a topic does not have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from barnabas.coordinator.group.streams.configured import ConfiguredTopology
from barnabas.coordinator.group.streams.state import StreamsMember
from barnabas.coordinator.group.streams.tasks import TaskSet, in_order
from barnabas.coordinator.group.topics import Topic
from barnabas.kproto.messages import StreamsGroupHeartbeatResponse

_Endpoints = StreamsGroupHeartbeatResponse.EndpointToPartitions
_Partitions = StreamsGroupHeartbeatResponse.TopicPartition


def by_endpoint(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, topics: Mapping[str, Topic]
) -> list[_Endpoints] | None:
    """What the members with an endpoint have, in this order; None while the tasks' topics are not known."""
    if configured.subtopologies is None:
        return None
    found = []
    for member in members:
        endpoint, assigned = member.metadata.user_endpoint, member.standing.assigned
        if endpoint is not None:
            found.append(
                _Endpoints(
                    user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(host=endpoint.host, port=endpoint.port),
                    active_partitions=_partitions(assigned.active, configured, topics),
                    standby_partitions=_partitions(assigned.standby, configured, topics),
                )
            )
    return found


def _partitions(tasks: TaskSet, configured: ConfiguredTopology, topics: Mapping[str, Topic]) -> list[_Partitions]:
    found = []
    for subtopology_id, numbers in in_order(tasks):
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            continue
        internal = (topic.name for topic in subtopology.repartition_source_topics)
        for name in (*subtopology.source_topics, *internal):
            count = topics[name].partition_count if name in topics else 0
            partitions = numbers[: bisect_left(numbers, count)]
            if partitions:
                found.append(_Partitions(topic=name, partitions=partitions))
    return found
