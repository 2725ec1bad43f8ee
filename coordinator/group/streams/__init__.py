"""Streams groups (KIP-1071): members run tasks of a topology, and their coordinator says who runs which.

A *topology* is what a member says of its application: subtopologies, each with the topics that it reads (source topics,
and repartition source topics, that other subtopologies write) and the changelogs of its stores. A subtopology has as
many *tasks* as the topic with most partitions that it reads; a task is a subtopology's id and a partition. A task is
active at one member; a stateful one may be at others as a standby, or to warm up. Members of one *process* share disk
and memory, so a process has a task once.

    groups.py       members of the streams groups of one partition of `__consumer_offsets`: which group is meant
    group.py        one group: heartbeats, leaving, time-outs
    state.py        one group as the log has it
    stored.py       its records
    endpoints.py    which partitions are where, for queries between applications
    config.py       its settings

Values and functions, without state:

    topology.py     a topology as it is sent and stored, and what is wrong with it by itself
    configured.py   a topology beside the topics that are there: tasks, internal topics wanted, what stands in the way
    tasks.py        tasks in their three roles, listed and as sets
    sticky.py       the assignor: who is to have which tasks
    java_order.py   the orders that Apache Kafka's assignor and topology code get from Java's hash tables and heaps
    reconcile.py    how a member gets from what it has to what it is to have
    owners.py       which process has which task now; the one thing here that changes

Not obvious:

- A member's target says what it is to have; it gets it once nobody else has it. What must not be in two places is a
  task in one process, or active twice: one that is revoked counts until the member has said that it closed it.
- What is configured is not stored: it is made again from the topology and the topics' partition counts.
- Warm-up tasks are carried by all values and records, and the assignor never gives one, as in Apache Kafka 4.3.

This is the face; it is not part of the package's, so that a broker without streams groups need not load it.
"""

from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import InternalTopic, Status
from barnabas.coordinator.group.streams.group import HeartbeatAnswer
from barnabas.coordinator.group.streams.groups import StreamsGroups, check_streams_heartbeat
from barnabas.coordinator.group.streams.topology import check_names, check_size, topology_of

__all__ = [
    "HeartbeatAnswer",
    "InternalTopic",
    "Status",
    "StreamsGroupConfig",
    "StreamsGroups",
    "StreamsSettings",
    "check_names",
    "check_size",
    "check_streams_heartbeat",
    "topology_of",
]
