"""Between the nodes of the tree and the image: topics and partition states in both forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from barnabas.replication.tree.paths import Assignment, StateNode, TopicNode
from barnabas.replication.values.image import NO_LEADER, PartitionImage, TopicImage, is_internal


class SeenTopic(NamedTuple):
    """A topic as read from the store. version: of its node; config: its settings."""

    name: str
    node: TopicNode
    version: int
    config: Mapping[str, str]


def topic_image(name: str, topic_id: bytes, node: TopicNode, config: Mapping[str, str]) -> TopicImage:
    """The topic with its assignment, none of its partitions having a state yet."""
    return TopicImage(name, topic_id, (), config, is_internal(name)).with_partitions(
        PartitionImage(index, NO_LEADER, -1, -1, a.replicas, (), a.adding, a.removing)  # one call, as there may be many
        for index, a in node.partitions.items()
    )


def topic_node(topic: TopicImage) -> TopicNode:
    """The assignment of a topic."""
    return TopicNode(
        topic.topic_id,
        {p.index: Assignment(p.replicas, p.adding_replicas, p.removing_replicas) for p in topic.partitions},
    )


def with_state(partition: PartitionImage, state: StateNode, version: int) -> PartitionImage:
    """The partition with what its state node says; version: of that node."""
    return replace(
        partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=version,
        isr=state.isr,
        recovering=state.recovering,
    )


def state_node(partition: PartitionImage, controller_epoch: int) -> StateNode:
    """The state to write for a partition."""
    return StateNode(partition.leader, partition.leader_epoch, controller_epoch, partition.isr, partition.recovering)
