"""Entering topics that were found on disk into a new store: a log directory that came from elsewhere.

Written in the order config, topic, partitions, states, only where absent, so that it can be done again after a crash in
between. A state names a leader epoch above all in the logs: so new records are distinguishable from those appended
elsewhere. Offsets and epochs as in `paths.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.replication.store.store import Create, Set, Store
from barnabas.replication.tree import paths
from barnabas.replication.tree.cluster_tree import make_roots
from barnabas.replication.tree.paths import Assignment, ProducerIdBlock, StateNode, TopicNode

_NODES_PER_COMMIT = 500


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic to enter. leader_epochs: the epoch that each of its partitions begins with, by index from 0."""

    name: str
    topic_id: bytes
    leader_epochs: tuple[int, ...]
    config: Mapping[str, str] = field(default_factory=dict)


async def is_new(store: Store) -> bool:
    """Nothing has ever run on this store: a cluster's first act is to give itself an id."""
    return await store.get(paths.CLUSTER_ID) is None


async def enter_topics(store: Store, broker_id: int, topics: Iterable[FoundTopic]) -> None:
    """Make the nodes of `topics`, all replicas on this broker. Raises StoreError."""
    await make_roots(store)
    nodes: list[tuple[str, bytes]] = []
    for topic in topics:
        assignment = {index: Assignment((broker_id,)) for index in range(len(topic.leader_epochs))}
        nodes.append((paths.config_entity(paths.TOPIC_CONFIG, topic.name), paths.encode_config(topic.config)))
        nodes.append((paths.topic(topic.name), paths.encode_topic(TopicNode(topic.topic_id, assignment))))
        nodes.append((paths.partitions(topic.name), b""))
        for index, epoch in enumerate(topic.leader_epochs):
            nodes.append((paths.partition(topic.name, index), b""))
            state = StateNode(broker_id, epoch, 0, (broker_id,))
            nodes.append((paths.state(topic.name, index), paths.encode_state(state)))
    for start in range(0, len(nodes), _NODES_PER_COMMIT):
        some = nodes[start : start + _NODES_PER_COMMIT]
        found = await store.get_many([path for path, _ in some])
        missing = [Create(path, data) for (path, data), node in zip(some, found, strict=True) if node is None]
        if missing:
            await store.commit(missing)


async def reserve_producer_ids(store: Store, broker_id: int, first_free: int) -> None:
    """Producer ids below `first_free` are never given out. Raises StoreError."""
    if first_free <= 0:
        return
    await make_roots(store)
    node = await store.get(paths.PRODUCER_ID_BLOCK)
    assert node is not None
    known = paths.decode_producer_ids(node.data)
    if known is None or known.last < first_free - 1:
        block = ProducerIdBlock(broker_id, 0, first_free - 1)
        await store.commit([Set(node.path, paths.encode_producer_ids(block), node.version)])
