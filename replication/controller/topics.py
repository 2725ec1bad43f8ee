"""Topics and partitions that begin to exist: created by us or by another tool, grown, and given their first leaders.

A topic that this controller creates is one commit together with its partitions' first states, as long as it is small;
large ones, and topics that another tool wrote, get their states in commits of `STATES_PER_COMMIT`.

A creation whose commit got no answer is written again. If the topic is there by then it may be ours: `unanswered` keeps
its id, by which the request finds out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.deletion import Deletions
from barnabas.replication.controller.election import Elections
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.state import ClusterState, partitions_of
from barnabas.replication.controller.writes import STATES_PER_COMMIT, Writes
from barnabas.replication.messages.effects import Commit, Effect, Later, PartitionChange, Work, answer
from barnabas.replication.planning.placement import Assignments
from barnabas.replication.planning.topics import NewTopic, extent, fold, new_uuid
from barnabas.replication.store.store import CommitTooLarge, Create, NodeExists, NoSuchNode, Op, Set, StoreError
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import SeenTopic, topic_image, topic_node
from barnabas.replication.tree.paths import Assignment, TopicNode
from barnabas.replication.values.image import TopicImage, unled


class Topics:
    """See the module. rng: for ids of topics that have none. Of the state it changes `image` and `rooted`.

    `_creating`: folded name → name, of topics whose commit is under way. `_perhaps_created`: ids of topics whose commit
    got no answer.
    """

    def __init__(
        self,
        state: ClusterState,
        messages: Messages,
        writes: Writes,
        elections: Elections,
        deletions: Deletions,
        rng: Random,
    ) -> None:
        self._state = state
        self._messages = messages
        self._writes = writes
        self._elections = elections
        self._deletions = deletions
        self._rng = rng
        self._creating: dict[str, str] = {}
        self._perhaps_created: frozenset[bytes] = frozenset()

    @property
    def reserved(self) -> Mapping[str, str]:
        """Folded name → name, of topics that are being created."""
        return self._creating

    # -- requests ----------------------------------------------------------------------------------------------------

    def create(self, new: NewTopic, token: object) -> list[Effect]:
        """Create a topic that `topics.plan_creation` has let through."""
        node = TopicNode(new.topic_id, {index: Assignment(replicas) for index, replicas in new.assignments.items()})
        topic = topic_image(new.name, new.topic_id, node, new.config)
        ops: list[Op] = [
            self._state.guard,
            Create(paths.config_entity(paths.TOPIC_CONFIG, new.name), paths.encode_config(new.config)),
            Create(paths.topic(new.name), paths.encode_topic(node)),
            Create(paths.partitions(new.name)),
        ]
        states: list[PartitionChange] = []
        if len(new.assignments) <= STATES_PER_COMMIT:
            states = self._elections.due(partitions_of([topic]))
            for state in states:
                ops += self._writes.state_ops(state, made=False)
        self._creating[fold(new.name)] = new.name
        self._state.rooted.add(new.name)
        event = f"created{' automatically' if new.automatic else ''}: {extent(list(new.assignments.values()))}"
        return [Commit(tuple(ops), topics=(topic,), states=tuple(states), token=token, event=event)]

    def expand(self, topic: str, added: Assignments, token: object) -> list[Effect]:
        """Add partitions that `topics.plan_expansion` has let through."""

        def write() -> list[Effect]:
            known = self._state.image.topics.get(topic)
            error: KafkaError | None = None
            if known is None or topic in self._state.deleting:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
            elif min(added) != len(known.partitions):
                error = KafkaError(
                    ErrorCode.INVALID_PARTITIONS, f"Topic has {len(known.partitions)} partitions by now."
                )
            elif any(partition.is_reassigning for partition in known.partitions):
                error = KafkaError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS,
                    f"A partition reassignment is in progress for the topic '{topic}'.",
                )
            if known is None or error is not None:
                return [*answer(token, error), *self._writes.next_in_turn(topic)]
            changed = known.with_partitions(unled(index, replicas) for index, replicas in added.items())
            node = Set(paths.topic(topic), paths.encode_topic(topic_node(changed)))
            work = Work(self._elections.next, self._messages.announce, topic=topic, outstanding=1)
            event = f"given partitions: {len(changed.partitions)}, {len(known.partitions)} before"
            return [Commit((self._state.guard, node), topics=(changed,), token=token, event=event, work=work)]

        return self._writes.in_turn(topic, write)

    # -- what others have done ---------------------------------------------------------------------------------------

    def seen(self, topics: Iterable[SeenTopic], gone: Collection[str] = ()) -> list[Effect]:
        """Nodes of topics that are new or changed, and names of topics whose node is gone."""
        state = self._state
        effects: list[Effect] = []
        changed: list[TopicImage] = []
        for seen in topics:
            known = state.image.topics.get(seen.name)
            if known is None:
                topic_id = seen.node.topic_id
                topic = topic_image(seen.name, topic_id or new_uuid(self._rng), seen.node, seen.config)
                if topic_id is None:  # written by a tool older than topic ids
                    write = Set(paths.topic(seen.name), paths.encode_topic(topic_node(topic)), seen.version)
                    effects.append(Commit((state.guard, write), topics=(topic,)))
                else:
                    changed.append(topic)
            elif seen.name not in state.deleting:
                added = [
                    unled(index, assignment.replicas)
                    for index, assignment in seen.node.partitions.items()
                    if index >= len(known.partitions)
                ]
                if added:
                    changed.append(known.with_partitions(added))
        if changed or gone:
            state.image = state.image.with_topics(changed, gone)
        effects += self._deletions.removed([name for name in gone if name in state.deleting])
        return effects + self._elections.write(self._elections.due(partitions_of(changed)))

    def config_changed(self, topic: str, config: Mapping[str, str]) -> list[Effect]:
        """A topic has other settings now. Unclean election may have become allowed."""
        known = self._state.image.topics.get(topic)
        if known is None or known.config == config:
            return []
        changed = replace(known, config=config)
        self._state.image = self._state.image.with_topics([changed])
        return self._elections.write(self._elections.due(partitions_of([changed])))

    # -- outcomes of commits -----------------------------------------------------------------------------------------

    def take(self, commits: Sequence[Commit]) -> list[str]:
        """Take topics and states that were written into the image. Returns the names of new and grown topics."""
        topics: dict[str, TopicImage] = {}
        written: list[str] = []
        states: dict[str, list[PartitionChange]] = {}
        present = self._state.image.topics
        for commit in commits:
            for topic in commit.topics:
                known = topics.get(topic.name) or present.get(topic.name)
                if known is not None and known.topic_id == topic.topic_id:  # the rest may have moved on meanwhile
                    topic = known.with_partitions(p for p in topic.partitions if p.index >= len(known.partitions))
                topics[topic.name] = topic
                written.append(topic.name)
            for change in commit.states:
                states.setdefault(change.topic, []).append(change)
        for name, changes in states.items():
            found = topics.get(name) or present.get(name)
            if found is not None and found.topic_id == changes[0].topic_id:
                topics[name] = found.with_partitions(change.partition for change in changes)
        if topics:
            self._state.image = self._state.image.with_topics(topics.values())
        return written

    def written(self, names: Iterable[str]) -> list[Effect]:
        """The nodes of these topics, new or grown, are written: write the states of new partitions, unless they stood
        in the same commit.
        """
        effects: list[Effect] = []
        few: list[PartitionChange] = []
        for name in names:
            self._creating.pop(fold(name), None)
            topic = self._state.image.topics[name]
            new = [change for change in partitions_of([topic]) if not change.partition.has_state]
            if len(new) <= STATES_PER_COMMIT:
                few += new
            else:
                effects.append(Later(partial(self._states_of, new, 0)))
        return [*self._elections.write(self._elections.due(few)), *effects]

    def _states_of(self, new: Sequence[PartitionChange], start: int) -> list[Effect]:
        """From the one at `start` on, as many as go into one commit, and then the rest."""
        end = start + STATES_PER_COMMIT
        due = []
        for was in new[start:end]:
            now = self._state.find(*was.key)
            if now is not None and now.topic_id == was.topic_id and not now.partition.has_state:
                due.append(now)
        effects = self._elections.write(self._elections.due(due))
        return [*effects, Later(partial(self._states_of, new, end))] if end < len(new) else effects

    def refused(self, commit: Commit) -> None:
        """The store did not accept this: the names of its topics are free."""
        for topic in commit.topics:
            self._creating.pop(fold(topic.name), None)

    def unanswered(self, commit: Commit) -> None:
        """No answer came to this, which is written again: its topics may have been created."""
        for topic in commit.topics:
            if topic.name not in self._state.image.topics:
                self._creating[fold(topic.name)] = topic.name
                self._perhaps_created |= {topic.topic_id}

    def over_left_config(self, commit: Commit, error: StoreError) -> tuple[Op, ...] | None:
        """The operations of a creation that was refused because the name has settings left over from an earlier topic,
        now replacing them; None if that is not why.
        """
        for topic in commit.topics:
            config_path = paths.config_entity(paths.TOPIC_CONFIG, topic.name)
            if isinstance(error, NodeExists) and error.path == config_path:
                self._creating[fold(topic.name)] = topic.name
                return tuple(_overwriting(op) if op.path == config_path else op for op in commit.ops)
        return None

    def refusal(self, commit: Commit, error: StoreError) -> KafkaError | None:
        """The answer to the request behind this commit when it is abandoned; None: it may be done."""
        if isinstance(error, NodeExists) and commit.topics:
            if commit.topics[0].topic_id in self._perhaps_created:  # perhaps it is ours: the request waits for its id
                return None
            return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "The topic already exists.")
        if isinstance(error, NoSuchNode) and commit.topics:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(error, CommitTooLarge):
            return KafkaError(ErrorCode.POLICY_VIOLATION, "The topic is too large to store.")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Not accepted by the store: {error}")


def _overwriting(op: Op) -> Op:
    return Set(op.path, op.data) if isinstance(op, Create) else op
