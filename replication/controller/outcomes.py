"""The consequences of a controller's commit, accepted by the store or not.

Accepted: the image takes what was written, then brokers are notified, requests answered, and waiting work begins.
Refused: another session wrote one of the nodes. The states in the store are applied to the image, and `Work.decide`
says whether each must still be changed; at most `MAX_ATTEMPTS` times.
Unanswered (`ConnectionLost`): it may have happened. States are then read and decided as after a refusal; everything
else is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.replication.controller.deletion import Deletions
from barnabas.replication.controller.in_sync import FreshStates
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.reassignment import Reassignments
from barnabas.replication.controller.state import ClusterState
from barnabas.replication.controller.topics import Topics
from barnabas.replication.controller.writes import MAX_ATTEMPTS, Writes
from barnabas.replication.messages.effects import Commit, Effect, PartitionChange, answer
from barnabas.replication.store.store import ConnectionLost, NodeExists, NoSuchNode, StoreError
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import with_state
from barnabas.replication.values.image import unled


class Outcomes:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        messages: Messages,
        writes: Writes,
        topics: Topics,
        deletions: Deletions,
        reassignments: Reassignments,
    ) -> None:
        self._state = state
        self._messages = messages
        self._writes = writes
        self._topics = topics
        self._deletions = deletions
        self._reassignments = reassignments

    def committed(self, commits: Sequence[Commit]) -> list[Effect]:
        """The store accepted these."""
        written = self._topics.take(commits)
        by_announce: dict[Callable[[Sequence[PartitionChange]], list[Effect]], list[PartitionChange]] = {}
        for commit in commits:
            announce = self._messages.announce if commit.work is None else commit.work.announce
            for change in commit.states:
                if change.topic not in self._state.deletions:  # what is being deleted is not led again
                    by_announce.setdefault(announce, []).append(change)
        effects: list[Effect] = []
        for announce, changes in by_announce.items():
            effects += announce(changes)
        effects += self._topics.written(written)
        effects += self._deletions.written(commits)
        for commit in commits:
            if commit.deletion is None:
                effects += answer(commit.token)
            effects += self._settled(commit)
        moving = (c.key for changes in by_announce.values() for c in changes if c.partition.is_reassigning)
        return effects + self._reassignments.finish(moving)

    def refused(self, commit: Commit, error: StoreError, fresh: FreshStates) -> list[Effect]:
        """The store did not accept this, or did not answer. fresh: see `Controller.refused`."""
        self._topics.refused(commit)
        if commit.deletion is not None and isinstance(error, NodeExists):  # another client requested the same
            return self.committed([commit])
        if commit.attempt < MAX_ATTEMPTS:
            again = self._once_more(commit, error)
            if again is not None:
                return [again]
        if commit.topics or commit.token is not None:
            refusal = answer(commit.token, self._topics.refusal(commit, error))
            return refusal + self._settled(commit)
        concerned = self._take_over(commit, fresh)
        work = commit.work
        if work is None:
            return []
        attempt = commit.attempt + 1
        if isinstance(error, NoSuchNode) and work.topic is not None and error.path == paths.topic(work.topic):
            attempt = MAX_ATTEMPTS  # the topic is gone
        if work.again is not None:
            return self._announce_found(concerned, ()) + work.again(attempt)
        states = [] if commit.attempt >= MAX_ATTEMPTS else [s for c in concerned if (s := work.decide(c)) is not None]
        effects = self._announce_found(concerned, states)
        effects += self._writes.commits(states, work, ensure=True, attempt=attempt)
        moving = [c.key for c in concerned if c.partition.is_reassigning]
        return effects + self._settled(commit) + self._reassignments.finish(moving)

    def _settled(self, commit: Commit) -> list[Effect]:
        """One commit less of its work; what follows if it was the last."""
        work = commit.work
        if work is None:
            return []
        work.outstanding -= 1
        if work.outstanding:
            return []
        effects = work.done()
        if work.topic is not None:
            effects += self._writes.next_in_turn(work.topic)
            effects += self._deletions.resume()
        return effects

    def _once_more(self, commit: Commit, error: StoreError) -> Commit | None:
        """The same commit again, where that can help."""
        again = replace(commit, attempt=commit.attempt + 1)
        if isinstance(error, ConnectionLost):
            if commit.states and not commit.topics:
                return None
            self._topics.unanswered(commit)
            return again
        ops = self._topics.over_left_config(commit, error)
        return None if ops is None else replace(again, ops=ops)

    def _take_over(self, commit: Commit, fresh: FreshStates) -> list[PartitionChange]:
        """State nodes were not as thought: take what is there into the image."""
        concerned: list[PartitionChange] = []
        for change in commit.states:
            now = self._state.find(*change.key)
            if now is None or now.topic_id != change.topic_id:
                continue
            found = fresh.get(change.key)
            known = now.partition
            if found is not None:
                actual = with_state(known, *found)
            else:
                actual = replace(
                    unled(known.index, known.replicas),
                    adding_replicas=known.adding_replicas,
                    removing_replicas=known.removing_replicas,
                )
            concerned.append(replace(now, partition=actual))
        self._state.apply(concerned)
        return concerned

    def _announce_found(self, found: Sequence[PartitionChange], but: Sequence[PartitionChange]) -> list[Effect]:
        """Notify of states that were found in the store, `but` for those that are about to change."""
        changing = {change.key for change in but}
        return self._messages.announce([c for c in found if c.partition.has_state and c.key not in changing])
