"""What brokers and old tools leave in the coordination tree for the controller: requests and notifications.

| place | who | then |
| --- | --- | --- |
| /brokers/topics/T, with its settings | a broker that needs a topic and is no controller | its partitions are led |
| /admin/reassign_partitions | kafka-reassign-partitions before 2.6 | see `replication/controller/reassignment.py` |
| /admin/preferred_replica_election | kafka-preferred-replica-election | elected, then the node goes |
| /isr_change_notification/isr_change_N | leaders before 2.7-IV2, which write states | read again, node goes |
| /log_dir_event_notification/log_dir_event_N | a broker that has lost a log directory | it is asked, node goes |
| /feature | no broker here; the first controller makes it, as brokers since 2.7 expect | |

Notifications from before a term are discarded: its controller reads all states anyway. Source: `KafkaZkClient.scala`
(core, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.store import (
    Check,
    CommitRefused,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoSuchNode,
    Set,
    Store,
)
from barnabas.replication.tree import features, paths
from barnabas.replication.tree.paths import Assignment, BadNode, TopicNode

Unreadable = Callable[[BadNode], None]
TopicPartition = tuple[str, int]


class AdminRequests(NamedTuple):
    """What old tools have asked for; None where there is no node, or none that can be read."""

    reassignments: Mapping[TopicPartition, tuple[int, ...]] | None
    elections: list[TopicPartition] | None


async def begin_admin_nodes(
    store: Store, guard: Check, unreadable: Unreadable, new_levels: features.Levels
) -> AdminRequests:
    """A term begins: drop old notifications, make /feature with `new_levels` if there is none, read what old tools ask
    for.
    """
    await drop_log_dir_events(store, guard, await store.children(paths.LOG_DIR_EVENTS))
    await drop_isr_changes(store, guard, await store.children(paths.ISR_CHANGES))
    if await store.get(paths.FEATURE) is None:
        try:
            await store.commit([guard, Create(paths.FEATURE, features.encode_finalised(new_levels))])
        except NodeExists:
            pass
    return AdminRequests(await read_reassignments(store, unreadable), await read_elections(store, unreadable))


async def read_reassignments(store: Store, unreadable: Unreadable) -> Mapping[TopicPartition, tuple[int, ...]] | None:
    """What stands in /admin/reassign_partitions."""
    node = await store.get(paths.REASSIGNMENTS)
    try:
        return None if node is None else paths.decode_reassignments(node.data)
    except BadNode as exc:
        unreadable(exc)
        return None


async def read_elections(store: Store, unreadable: Unreadable) -> list[TopicPartition] | None:
    """What stands in /admin/preferred_replica_election."""
    node = await store.get(paths.PREFERRED_ELECTION)
    try:
        return None if node is None else paths.decode_partitions(node.path, node.data)
    except BadNode as exc:
        unreadable(exc)
        return None


async def read_isr_changes(store: Store, unreadable: Unreadable) -> tuple[list[str], list[TopicPartition]]:
    """Names of the ISR change notifications, and the partitions that they name."""
    names = await store.children(paths.ISR_CHANGES)
    partitions: dict[TopicPartition, None] = {}
    for node in await store.get_many([f"{paths.ISR_CHANGES}/{name}" for name in names]):
        if node is not None:
            try:
                partitions.update(dict.fromkeys(paths.decode_partitions(node.path, node.data)))
            except BadNode as exc:
                unreadable(exc)
    return names, list(partitions)


async def read_log_dir_events(store: Store, unreadable: Unreadable) -> tuple[list[str], list[int]]:
    """Names of the notifications, and the brokers that have lost log directories."""
    names = await store.children(paths.LOG_DIR_EVENTS)
    brokers: set[int] = set()
    for node in await store.get_many([f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]):
        if node is not None:
            try:
                brokers.add(paths.decode_log_dir_event(node.path, node.data))
            except BadNode as exc:
                unreadable(exc)
    return names, sorted(brokers)


async def leave_log_dir_event(store: Store, broker_id: int) -> None:
    """Notify the controller that this broker has lost a log directory. Raises StoreError."""
    data = paths.encode_log_dir_event(broker_id)
    await store.commit([Create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)])


async def drop_isr_changes(store: Store, guard: Check, names: Iterable[str]) -> None:
    """Remove ISR change notifications. What cannot be removed now is met again with the next one."""
    await _drop(store, guard, paths.ISR_CHANGES, names)


async def drop_log_dir_events(store: Store, guard: Check, names: Iterable[str]) -> None:
    """Remove notifications of failed log directories; as above."""
    await _drop(store, guard, paths.LOG_DIR_EVENTS, names)


async def _drop(store: Store, guard: Check, place: str, names: Iterable[str]) -> None:
    for name in names:
        try:
            await store.commit([guard, Delete(f"{place}/{name}")])
        except NoSuchNode:
            pass
        except (CommitRefused, ConnectionLost):  # the term is over, which its owner learns elsewhere
            return


async def leave_topic(store: Store, new: NewTopic) -> None:
    """Write a topic for the controller to find; what is left of settings of an earlier one is overwritten.

    Raises NodeExists if there is such a topic.
    """
    path, config_path = paths.topic(new.name), paths.config_entity(paths.TOPIC_CONFIG, new.name)
    assignment = {index: Assignment(replicas) for index, replicas in new.assignments.items()}
    topic = Create(path, paths.encode_topic(TopicNode(new.topic_id, assignment)))
    config = paths.encode_config(new.config)
    while True:
        exists = await store.get(config_path) is not None
        try:
            await store.commit([Set(config_path, config) if exists else Create(config_path, config), topic])
        except (NodeExists, NoSuchNode) as error:
            if error.path != config_path:
                raise
        else:
            return
