"""The controller: a machine that takes what happened in the cluster and says what to write and whom to tell.

Pure: events in, `effects.Effect`s out; no store, socket, clock. Its picture (`image`) changes in two ways: brokers come
and go as told, and everything that is also in the store changes in `committed`, after the store has accepted the write.
Every write starts with a check of /controller_epoch's version: once another controller was elected, none is accepted.

    elected ─► brokers_changed · topics_seen · deletions_seen · config_changed · create · expand · …
                  │ Commit ──► committed / refused ──► Tell: LeaderAndIsr first, then UpdateMetadata, then StopReplica
                  └ deletion: StopReplica ──► replicas_stopped ──► Remove ──► removed ──► Answer

| file | subject |
| --- | --- |
| `controller_core.py` | the picture, who can lead, writing states, telling brokers |
| `controller_deletion.py` | topics on their way out |
| `controller_election.py` | leaders and ISR as brokers live and die, elections on request, shutdown, balance |
| `controller_reassignment.py` | moving partitions to other brokers |
| `controller_isr.py` | ISR as leaders report it, failed log directories |
| this one | the events of brokers and topics, outcomes of commits |

A topic that this controller creates is one commit together with its partitions' first states, as long as it is small;
large ones, and topics that another tool wrote, get their states in commits of `STATES_PER_COMMIT`.

Partition states: no state → led (first live replica, epoch 0); leader dead → another of the ISR, or none (−1), or with
unclean election any live one; each change raises the leader epoch. Source: `KafkaController.scala` (core, 3.9).

Not here: finalized features, delegation tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from kproto import ErrorCode, KafkaError
from replication import paths
from replication.controller_core import STATES_PER_COMMIT, Announce, TopicPartition, Work, answer
from replication.controller_isr import FreshStates, InSyncReplicas, IsrWish
from replication.controller_reassignment import MAX_ATTEMPTS
from replication.effects import Answer, Commit, Effect, Later, PartitionChange
from replication.image import BrokerImage, TopicImage, unled
from replication.nodes import SeenTopic, topic_image, topic_node, with_state
from replication.paths import Assignment, TopicNode
from replication.placement import Assignments
from replication.store import CommitTooLarge, ConnectionLost, Create, NodeExists, NoSuchNode, Op, Set, StoreError
from replication.topics import NewTopic, extent, fold, new_uuid

__all__ = ["STATES_PER_COMMIT", "Controller", "IsrWish"]

NOTHING_RETURNED: Mapping[TopicPartition, Collection[int]] = MappingProxyType({})


class Controller(InSyncReplicas):
    """One term of office. broker_id: ours; epoch: of this term; epoch_version: version of /controller_epoch.

    unclean_allowed: whether a topic with these settings may elect a leader outside its ISR. deletion_enabled: Kafka's
    delete.topic.enable. rng: for ids of topics that have none.
    """

    @property
    def reserved(self) -> Mapping[str, str]:
        """Names that cannot be had because they are being created, as `topics.plan_creation` wants them."""
        return self._creating

    # -- events ------------------------------------------------------------------------------------------------------

    def elected(
        self,
        wishes: Collection[str] = (),
        bounced: Collection[int] = (),
        returned: Mapping[TopicPartition, Collection[int]] = NOTHING_RETURNED,
        *,
        reassignments: Mapping[TopicPartition, tuple[int, ...]] | None = None,
        elections: Collection[TopicPartition] | None = None,
    ) -> list[Effect]:
        """The term begins with `image` as read from the store.

        wishes: topics that somebody asked to delete. bounced: live brokers that restarted and may have lost the end of
        their logs without any controller noticing: what they led gets a new leader epoch. returned: such brokers by
        partition. reassignments, elections: what old tools have asked for under /admin, None where there is no node.
        """
        effects: list[Effect] = [*self._update(self._live())]  # brokers first: they need addresses to follow leaders
        effects += self.deletions_seen(wishes)
        everything = self._everything()
        due = [
            state
            for change in everything
            if (state := self._next(change, {*bounced, *returned.get((change.topic, change.partition.index), ())}))
            is not None
        ]
        moving = {(change.topic, change.partition.index) for change in due}
        steady = [c for c in everything if c.partition.has_state and (c.topic, c.partition.index) not in moving]
        by_tool = set(reassignments or ())
        resumed = [c for c in steady if c.partition.is_reassigning and (c.topic, c.partition.index) not in by_tool]
        moving = {(change.topic, change.partition.index) for change in resumed}
        effects += self._announce([c for c in steady if (c.topic, c.partition.index) not in moving])
        effects += self._decided(due)
        effects += self._resume(resumed)
        effects += self.reassignments_seen(reassignments)
        return effects if elections is None else effects + self.elections_seen(elections)

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> list[Effect]:
        """The live brokers are now these. A known id with a higher epoch has restarted in between."""
        before = self.image.brokers
        started = [b for b in brokers if b not in before]
        died = [b for b in before if b not in brokers]
        bounced = [b for b in brokers if b in before and brokers[b].epoch > before[b].epoch]
        moved = any(b in before and brokers[b] != before[b] for b in brokers)
        if not (started or died or bounced or moved):
            return []
        self.image = self.image.with_brokers(brokers)
        self._forget_shutdowns([*died, *bounced])
        fresh = {*started, *bounced}
        others = [b for b in self._live() if b not in fresh]
        effects: list[Effect] = [*self._update(others)]
        everything = self._everything()
        known = [change for change in everything if change.partition.has_state]
        for broker in sorted(fresh):
            effects += self._update([broker], known)
            effects += self._lead([change for change in known if broker in change.partition.replicas], [broker])
        due = self._due(everything, bounced)
        moving = {(change.topic, change.partition.index) for change in due}
        touched = fresh.union(died)
        shown = [
            change
            for change in known
            if not touched.isdisjoint(change.partition.replicas)
            and (change.topic, change.partition.index) not in moving
        ]
        if shown:  # others show which replicas are offline
            effects += self._update(others, shown)
        effects += self._decided(due)
        effects += self._finish((c.topic, c.partition.index) for c in known if c.partition.is_reassigning)
        for name, deletion in self._deleting.items():
            if any(broker in fresh for _, broker in deletion.waiting):
                effects += self._stop_replicas(name)
        return effects + (self._answer_suspended(self._deleting) if died else [])

    def topics_seen(self, topics: Iterable[SeenTopic], gone: Collection[str] = ()) -> list[Effect]:
        """Nodes of topics that are new or changed, and names of topics whose node is gone."""
        effects: list[Effect] = []
        changed: list[TopicImage] = []
        for seen in topics:
            known = self.image.topics.get(seen.name)
            if known is None:
                topic_id = seen.node.topic_id
                topic = topic_image(seen.name, topic_id or new_uuid(self._rng), seen.node, seen.config)
                if topic_id is None:  # written by a tool older than topic ids
                    write = Set(paths.topic(seen.name), paths.encode_topic(topic_node(topic)), seen.version)
                    effects.append(Commit((self._guard, write), topics=(topic,)))
                else:
                    changed.append(topic)
            elif seen.name not in self.deleting:
                added = [
                    unled(index, assignment.replicas)
                    for index, assignment in seen.node.partitions.items()
                    if index >= len(known.partitions)
                ]
                if added:
                    changed.append(known.with_partitions(added))
        if changed or gone:
            self.image = self.image.with_topics(changed, gone)
        effects += self.removed([name for name in gone if name in self.deleting])
        return effects + self._decided(self._due(self._partitions(changed)))

    def config_changed(self, topic: str, config: Mapping[str, str]) -> list[Effect]:
        """A topic has other settings now. Unclean election may have become allowed."""
        known = self.image.topics.get(topic)
        if known is None or known.config == config:
            return []
        changed = replace(known, config=config)
        self.image = self.image.with_topics([changed])
        return self._decided(self._due(self._partitions([changed])))

    def reconsider(self) -> list[Effect]:
        """The brokers' settings have changed: unclean election may have become allowed everywhere."""
        return self._decided(self._due(self._everything()))

    # -- requests ----------------------------------------------------------------------------------------------------

    def create(self, new: NewTopic, token: object) -> list[Effect]:
        """Create a topic that `topics.plan_creation` has let through."""
        node = TopicNode(new.topic_id, {index: Assignment(replicas) for index, replicas in new.assignments.items()})
        topic = topic_image(new.name, new.topic_id, node, new.config)
        ops: list[Op] = [
            self._guard,
            Create(paths.config_entity(paths.TOPIC_CONFIG, new.name), paths.encode_config(new.config)),
            Create(paths.topic(new.name), paths.encode_topic(node)),
            Create(paths.partitions(new.name)),
        ]
        states: list[PartitionChange] = []
        if len(new.assignments) <= STATES_PER_COMMIT:
            states = self._due(self._partitions([topic]))
            for state in states:
                ops += self._state_ops(state, made=False)
        self._creating[fold(new.name)] = new.name
        self._rooted.add(new.name)
        event = f"created{' automatically' if new.automatic else ''}: {extent(list(new.assignments.values()))}"
        return [Commit(tuple(ops), topics=(topic,), states=tuple(states), token=token, event=event)]

    def expand(self, topic: str, added: Assignments, token: object) -> list[Effect]:
        """Add partitions that `topics.plan_expansion` has let through."""

        def write() -> list[Effect]:
            known = self.image.topics.get(topic)
            error: KafkaError | None = None
            if known is None or topic in self.deleting:
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
                return [*answer(token, error), *self._next_in_turn(topic)]
            changed = known.with_partitions(unled(index, replicas) for index, replicas in added.items())
            node = Set(paths.topic(topic), paths.encode_topic(topic_node(changed)))
            work = Work(self._next, self._announce, topic=topic, outstanding=1)
            event = f"given partitions: {len(changed.partitions)}, {len(known.partitions)} before"
            return [Commit((self._guard, node), topics=(changed,), token=token, event=event, work=work)]

        return self._in_turn(topic, write)

    # -- outcomes of commits -----------------------------------------------------------------------------------------

    def committed(self, commits: Sequence[Commit]) -> list[Effect]:
        """The store accepted these."""
        written = self._take_topics(commits)
        changes: dict[Announce, list[PartitionChange]] = {}
        for commit in commits:
            announce = commit.work.announce if isinstance(commit.work, Work) else self._announce
            for change in commit.states:
                if change.topic not in self._deleting:  # what is going is not led again
                    changes.setdefault(announce, []).append(change)
        effects: list[Effect] = []
        for announce, some in changes.items():
            effects += announce(some)
        for name in written:
            self._creating.pop(fold(name), None)
        effects += self._first_states([self.image.topics[name] for name in written])
        effects += self._wished(commits)
        for commit in commits:
            if commit.deletion is None:
                effects += answer(commit.token)
            effects += self._settled(commit)
        moved = ((c.topic, c.partition.index) for some in changes.values() for c in some if c.partition.is_reassigning)
        return effects + self._finish(moved)

    def _first_states(self, topics: Iterable[TopicImage]) -> list[Effect]:
        """Write those of new partitions, of which there were too many for the commit that wrote their topic."""
        effects: list[Effect] = []
        few: list[PartitionChange] = []
        for topic in topics:
            new = [change for change in self._partitions([topic]) if not change.partition.has_state]
            if len(new) <= STATES_PER_COMMIT:
                few += new
            else:
                effects.append(Later(partial(self._states_of, new, 0)))
        return [*self._decided(self._due(few)), *effects]

    def _states_of(self, new: Sequence[PartitionChange], start: int) -> list[Effect]:
        """From the one at `start` on, as many as go into one commit, and then the rest."""
        end = start + STATES_PER_COMMIT
        due = []
        for was in new[start:end]:
            now = self._change(was.topic, was.partition.index)
            if now is not None and now.topic_id == was.topic_id and not now.partition.has_state:
                due.append(now)
        effects = self._decided(self._due(due))
        return [*effects, Later(partial(self._states_of, new, end))] if end < len(new) else effects

    def _take_topics(self, commits: Sequence[Commit]) -> list[str]:
        """Topics and states that were written, into the picture. Returns the names of new and grown topics."""
        topics: dict[str, TopicImage] = {}
        written: list[str] = []
        states: dict[str, list[PartitionChange]] = {}
        for commit in commits:
            for topic in commit.topics:
                known = topics.get(topic.name) or self.image.topics.get(topic.name)
                if known is not None and known.topic_id == topic.topic_id:  # the rest may have moved on meanwhile
                    topic = known.with_partitions(p for p in topic.partitions if p.index >= len(known.partitions))
                topics[topic.name] = topic
                written.append(topic.name)
            for change in commit.states:
                states.setdefault(change.topic, []).append(change)
        for name, changes in states.items():
            found = topics.get(name) or self.image.topics.get(name)
            if found is not None and found.topic_id == changes[0].topic_id:
                topics[name] = found.with_partitions(change.partition for change in changes)
        if topics:
            self.image = self.image.with_topics(topics.values())
        return written

    def _settled(self, commit: Commit) -> list[Effect]:
        """One commit less of its work; what follows if it was the last."""
        work = commit.work
        if not isinstance(work, Work):
            return []
        work.outstanding -= 1
        if work.outstanding:
            return []
        effects = work.done()
        if work.topic is not None:
            effects += self._next_in_turn(work.topic)
            effects += self._resume_deletions()
        return effects

    def refused(self, commit: Commit, error: StoreError, fresh: FreshStates) -> list[Effect]:
        """The store refused this, for another reason than that our term is over; or its answer was lost.

        error: CommitRefused, or ConnectionLost: then it may have happened. fresh: the state nodes of `commit.states` as
        they are now, with their versions; None where there is none.
        """
        for topic in commit.topics:
            self._creating.pop(fold(topic.name), None)
        if commit.deletion is not None and isinstance(error, NodeExists):  # somebody wished the same
            return self.committed([commit])
        if commit.attempt < MAX_ATTEMPTS:
            again = self._once_more(commit, error)
            if again is not None:
                return again
        work = commit.work
        if commit.topics or commit.token is not None:
            return self._give_up(commit, error) + self._settled(commit)
        concerned = self._take_over(commit, fresh)
        if not isinstance(work, Work):
            return []
        attempt = commit.attempt + 1
        if isinstance(error, NoSuchNode) and work.topic is not None and error.path == paths.topic(work.topic):
            attempt = MAX_ATTEMPTS  # the topic is gone
        if work.again is not None:
            return self._announce_all(concerned, ()) + work.again(attempt)
        states = [] if commit.attempt >= MAX_ATTEMPTS else [s for c in concerned if (s := work.decide(c)) is not None]
        effects = self._announce_all(concerned, states) + self._commits(states, work, ensure=True, attempt=attempt)
        moved = [(c.topic, c.partition.index) for c in concerned if c.partition.is_reassigning]
        return effects + self._settled(commit) + self._finish(moved)

    def _once_more(self, commit: Commit, error: StoreError) -> list[Effect] | None:
        """The same commit again, where that can help."""
        again = replace(commit, attempt=commit.attempt + 1)
        if isinstance(error, ConnectionLost):
            if commit.states and not commit.topics:
                return None
            for topic in commit.topics:
                if topic.name not in self.image.topics:
                    self._creating[fold(topic.name)] = topic.name
                    self._unknown |= {topic.topic_id}
            return [again]
        for topic in commit.topics:
            config_path = paths.config_entity(paths.TOPIC_CONFIG, topic.name)
            if isinstance(error, NodeExists) and error.path == config_path:  # left over from an earlier topic
                self._creating[fold(topic.name)] = topic.name
                ops = tuple(_overwriting(op) if op.path == config_path else op for op in commit.ops)
                return [replace(again, ops=ops)]
        return None

    def _give_up(self, commit: Commit, error: StoreError) -> list[Effect]:
        if commit.token is None:
            return []
        if isinstance(error, NodeExists) and commit.topics:
            if commit.topics[0].topic_id in self._unknown:  # perhaps it is ours: whoever asked waits for its id
                return [Answer(commit.token)]
            return [Answer(commit.token, KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "The topic already exists."))]
        if isinstance(error, NoSuchNode) and commit.topics:
            return [Answer(commit.token, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))]
        if isinstance(error, CommitTooLarge):
            return [Answer(commit.token, KafkaError(ErrorCode.POLICY_VIOLATION, "The topic is too large to store."))]
        return [Answer(commit.token, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Not accepted by the store: {error}"))]

    def _take_over(self, commit: Commit, fresh: FreshStates) -> list[PartitionChange]:
        """State nodes were not as thought: take what is there into the picture."""
        concerned: list[PartitionChange] = []
        for change in commit.states:
            now = self._change(change.topic, change.partition.index)
            if now is None or now.topic_id != change.topic_id:
                continue
            found = fresh.get((change.topic, change.partition.index))
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
        self._apply(concerned)
        return concerned

    def _announce_all(self, concerned: Sequence[PartitionChange], but: Sequence[PartitionChange]) -> list[Effect]:
        settled = {(state.topic, state.partition.index) for state in but}
        return self._announce(
            [c for c in concerned if c.partition.has_state and (c.topic, c.partition.index) not in settled]
        )


def _overwriting(op: Op) -> Op:
    return Set(op.path, op.data) if isinstance(op, Create) else op
