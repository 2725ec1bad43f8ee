"""Topics on their way out.

    wish ─► held while a partition of it is being reassigned ─► brokers forget it (UpdateMetadata, leader −2)
         ─► StopReplica to every replica, without and then with deletion ─► all confirmed ─► Remove ─► removed ─► Answer

A replica on a dead broker, or one that could not be deleted, suspends the deletion: it is asked again when its broker
has come back; requests are answered when only dead brokers are left. The topic's name can be had again when its nodes
are gone. Source: `TopicDeletionManager.scala`, `DelayedDeleteTopics.scala` (core, 3.9).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable
from functools import partial

from replication import paths
from replication.controller_core import STATES_PER_COMMIT, ControllerCore, Deletion, TopicPartition, answer
from replication.effects import Commit, Effect, Later, PartitionChange, Remove, StoppedPartition, being_deleted
from replication.image import TopicImage
from replication.store import Create, Delete

_EPOCH_DURING_DELETE = -2


class Deletions(ControllerCore):
    """See the module."""

    @property
    def deleting(self) -> Collection[str]:
        """Topics on their way out, begun or not: not copied, as it is asked for with each topic of a request."""
        return ChainMap[str, object](self._deleting, self._held)  # type: ignore[arg-type]

    def delete(self, topic: str, token: object) -> list[Effect]:
        """Delete a topic of the picture; answered when nothing is left of it."""
        deletion = self._deleting.get(topic)
        if deletion is not None:
            deletion.tokens.append(token)
            return self._answer_suspended([topic])
        if topic in self._held:
            self._held[topic].append(token)
            return []
        return [Commit((self._guard, Create(paths.topic_deletion(topic))), deletion=topic, token=token)]

    def deletions_seen(self, names: Collection[str]) -> list[Effect]:
        """Somebody wishes these topics deleted (nodes under /admin/delete_topics)."""
        wished = sorted(names)
        refused = {name: None for name in wished if name not in self.image.topics or not self._deletion_enabled}
        effects: list[Effect] = [Commit((self._guard, Delete(paths.topic_deletion(name)))) for name in refused]
        begin = [name for name in wished if name not in self.deleting and name not in refused]
        return effects + self._begin_deletions(begin)

    def replicas_stopped(self, broker: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted these replicas of topics being deleted; without those that it could not delete."""
        effects: list[Effect] = []
        touched: dict[str, None] = {}
        for topic, index in partitions:
            deletion = self._deleting.get(topic)
            if deletion is not None:
                deletion.waiting.discard((index, broker))
                touched[topic] = None
                if not deletion.waiting and not deletion.removing:
                    deletion.removing = True
                    effects.append(Remove(topic))
        return effects + self._answer_suspended(touched)  # once for each: it looks at all that are waited for

    def removed(self, topics: Collection[str]) -> list[Effect]:
        """The nodes of deleted topics are gone: the names are free. All that come together in one call, please: the
        picture is made anew.
        """
        if not topics:
            return []
        tokens: list[object] = []
        for topic in topics:
            deletion = self._deleting.pop(topic, None)
            tokens += [*(deletion.tokens if deletion else ()), *self._held.pop(topic, ())]
        self._rooted.difference_update(topics)
        gone = frozenset(topics)
        for offline in self._offline.values():
            offline.difference_update([key for key in offline if key[0] in gone])
        self.image = self.image.with_topics((), topics)
        return [effect for token in tokens for effect in answer(token)]

    def _wished(self, commits: Iterable[Commit]) -> list[Effect]:
        """Wishes that we have written: begin, and remember who waits."""
        wishes = [(commit.deletion, commit.token) for commit in commits if commit.deletion is not None]
        effects = self._begin_deletions([name for name, _ in wishes])
        for name, token in wishes:
            if name in self._deleting:
                self._deleting[name].tokens.append(token)
                effects += self._answer_suspended([name])
            elif name in self._held:
                self._held[name].append(token)
            else:
                effects += answer(token)  # gone in the meantime
        return effects

    def _begin_deletions(self, names: Iterable[str]) -> list[Effect]:
        topics: list[TopicImage] = []
        forget: list[PartitionChange] = []
        for name in dict.fromkeys(names):
            topic = self.image.topics.get(name)
            if topic is None or name in self._deleting:
                continue
            if any(partition.is_reassigning for partition in topic.partitions) or name in self._assigning:
                self._held.setdefault(name, [])
                continue
            replicas = {(p.index, broker) for p in topic.partitions for broker in p.replicas}
            self._deleting[name] = Deletion(replicas, self._held.pop(name, []))
            topics.append(topic)
            forget += being_deleted(topic)
        effects: list[Effect] = [*self._update(self._live(), forget)] if forget else []
        for topic in topics:
            if len(topic.partitions) > STATES_PER_COMMIT:
                effects.append(Later(partial(self._stop_replicas, topic.name)))
            else:
                effects += self._stop_replicas(topic.name)
        return effects

    def _answer_suspended(self, names: Iterable[str]) -> list[Effect]:
        """Who waits for a deletion that waits for dead brokers alone is told that it is done: nobody sees the topic."""
        effects: list[Effect] = []
        for name in names:
            deletion = self._deleting[name]
            if deletion.waiting and not any(broker in self.image.brokers for _, broker in deletion.waiting):
                tokens, deletion.tokens = deletion.tokens, []
                effects += [effect for token in tokens for effect in answer(token)]
        return effects

    def _resume_deletions(self) -> list[Effect]:
        """Reassignments have ended: begin what waited for them."""
        return self._begin_deletions(list(self._held)) if self._held else []

    def _stop_replicas(self, name: str) -> list[Effect]:
        """Ask the live brokers that have not confirmed; those that are down are asked when they are back."""
        deletion = self._deleting.get(name)
        if deletion is None:
            return []
        if not deletion.waiting and not deletion.removing:  # a topic without replicas
            deletion.removing = True
            return [Remove(name)]
        effects: list[Effect] = []
        for broker in sorted({broker for _, broker in deletion.waiting}):
            indexes = sorted(index for index, replica in deletion.waiting if replica == broker)
            for delete in (False, True):  # followers stop fetching before leaders vanish
                effects += self._stop(
                    broker, (StoppedPartition(name, index, _EPOCH_DURING_DELETE, delete) for index in indexes)
                )
        return effects
