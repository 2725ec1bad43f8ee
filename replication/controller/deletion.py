"""Deletion of topics.

    request ─► held while a partition of it is being reassigned ─► brokers forget it (UpdateMetadata, leader −2)
         ─► StopReplica to every replica, without and then with deletion ─► all confirmed ─► Remove ─► removed ─► Answer

A replica on a dead broker, or one that could not be deleted, suspends the deletion: it is stopped again when its broker
has come back; requests are answered when only dead brokers are left. The topic's name is free when its nodes are gone.
Source: `TopicDeletionManager.scala`, `DelayedDeleteTopics.scala` (core, 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.state import BrokerChanges, ClusterState, Deletion, TopicPartition
from barnabas.replication.controller.writes import STATES_PER_COMMIT
from barnabas.replication.messages.effects import (
    Commit,
    Effect,
    Later,
    PartitionChange,
    Remove,
    StoppedPartition,
    answer,
    being_deleted,
)
from barnabas.replication.store.store import Create, Delete
from barnabas.replication.tree import paths
from barnabas.replication.values.image import TopicImage

_EPOCH_DURING_DELETE = -2


class Deletions:
    """See the module. enabled: Kafka's delete.topic.enable. Owns `deletions` and `held_deletions` of the state."""

    def __init__(self, state: ClusterState, messages: Messages, *, enabled: bool = True) -> None:
        self._state = state
        self._messages = messages
        self._enabled = enabled

    def delete(self, topic: str, token: object) -> list[Effect]:
        """Delete a topic of the image; answered when nothing is left of it."""
        deletion = self._state.deletions.get(topic)
        if deletion is not None:
            deletion.tokens.append(token)
            return self._answer_suspended([topic])
        held = self._state.held_deletions.get(topic)
        if held is not None:
            held.append(token)
            return []
        return [Commit((self._state.guard, Create(paths.topic_deletion(topic))), deletion=topic, token=token)]

    def seen(self, names: Collection[str]) -> list[Effect]:
        """Deletion of these topics was requested (nodes under /admin/delete_topics)."""
        state = self._state
        requested = sorted(names)
        refused = {name: None for name in requested if name not in state.image.topics or not self._enabled}
        effects: list[Effect] = [Commit((state.guard, Delete(paths.topic_deletion(name)))) for name in refused]
        return effects + self._begin([name for name in requested if name not in state.deleting and name not in refused])

    def written(self, commits: Iterable[Commit]) -> list[Effect]:
        """Some of these commits are requests that `delete` wrote: begin, and keep the waiting tokens."""
        requests = [(commit.deletion, commit.token) for commit in commits if commit.deletion is not None]
        effects = self._begin([name for name, _ in requests])
        for name, token in requests:
            if name in self._state.deletions:
                self._state.deletions[name].tokens.append(token)
                effects += self._answer_suspended([name])
            elif name in self._state.held_deletions:
                self._state.held_deletions[name].append(token)
            else:
                effects += answer(token)  # gone in the meantime
        return effects

    def resume(self) -> list[Effect]:
        """Reassignments have ended: begin what waited for them."""
        return self._begin(list(self._state.held_deletions)) if self._state.held_deletions else []

    def _begin(self, names: Iterable[str]) -> list[Effect]:
        state = self._state
        topics: list[TopicImage] = []
        forget: list[PartitionChange] = []
        for name in dict.fromkeys(names):
            topic = state.image.topics.get(name)
            if topic is None or name in state.deletions:
                continue
            if any(partition.is_reassigning for partition in topic.partitions) or name in state.assigning:
                state.held_deletions.setdefault(name, [])
                continue
            replicas = {(p.index, broker) for p in topic.partitions for broker in p.replicas}
            state.deletions[name] = Deletion(replicas, state.held_deletions.pop(name, []))
            topics.append(topic)
            forget += being_deleted(topic)
        effects: list[Effect] = [*self._messages.update(state.live, forget)] if forget else []
        for topic in topics:
            if len(topic.partitions) > STATES_PER_COMMIT:
                effects.append(Later(partial(self._stop_replicas, topic.name)))
            else:
                effects += self._stop_replicas(topic.name)
        return effects

    def _stop_replicas(self, name: str) -> list[Effect]:
        """Ask the live brokers that have not confirmed; those that are down are asked when they are back."""
        deletion = self._state.deletions.get(name)
        if deletion is None:
            return []
        if not deletion.waiting and not deletion.removing:  # a topic without replicas
            deletion.removing = True
            return [Remove(name)]
        effects: list[Effect] = []
        for broker in sorted({broker for _, broker in deletion.waiting}):
            indexes = sorted(index for index, replica in deletion.waiting if replica == broker)
            for delete in (False, True):  # followers stop fetching before leaders vanish
                effects += self._messages.stop(
                    broker, (StoppedPartition(name, index, _EPOCH_DURING_DELETE, delete) for index in indexes)
                )
        return effects

    def replicas_stopped(self, broker: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted these replicas of topics being deleted; without those that it could not delete."""
        effects: list[Effect] = []
        touched: dict[str, None] = {}
        for topic, index in partitions:
            deletion = self._state.deletions.get(topic)
            if deletion is not None:
                deletion.waiting.discard((index, broker))
                touched[topic] = None
                if not deletion.waiting and not deletion.removing:
                    deletion.removing = True
                    effects.append(Remove(topic))
        return effects + self._answer_suspended(touched)  # once for each: it checks all awaited deletions

    def removed(self, topics: Collection[str]) -> list[Effect]:
        """The nodes of deleted topics are gone: the names are free. All that come together in one call: the image is
        replaced.
        """
        if not topics:
            return []
        return [effect for token in self._state.remove_topics(topics) for effect in answer(token)]

    def brokers_changed(self, changes: BrokerChanges) -> list[Effect]:
        """Send the deletion to returned brokers again; if only dead ones are left, answer waiting requests."""
        returned = {*changes.started, *changes.restarted}
        effects: list[Effect] = []
        for name, deletion in self._state.deletions.items():
            if any(broker in returned for _, broker in deletion.waiting):
                effects += self._stop_replicas(name)
        return effects + (self._answer_suspended(self._state.deletions) if changes.died else [])

    def _answer_suspended(self, names: Iterable[str]) -> list[Effect]:
        """Answer success to requests whose deletion waits for dead brokers alone: no client sees the topic any more."""
        effects: list[Effect] = []
        for name in names:
            deletion = self._state.deletions[name]
            if deletion.waiting and not any(broker in self._state.image.brokers for _, broker in deletion.waiting):
                tokens, deletion.tokens = deletion.tokens, []
                effects += [effect for token in tokens for effect in answer(token)]
        return effects
