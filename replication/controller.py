"""The controller: a machine that takes what happened in the cluster and says what to write and whom to tell.

Pure: events in, `effects.Effect`s out; no store, socket, clock. Its picture (`image`) changes in two ways: brokers come
and go as told, and everything that is also in the store changes in `committed`, after the store has accepted the write.
Every write starts with a check of /controller_epoch's version: once another controller was elected, none is accepted.

    elected ─► brokers_changed · topics_seen · deletions_seen · config_changed · create · expand · delete · elect
                  │ Commit ──► committed / refused ──► Tell: LeaderAndIsr first, then UpdateMetadata, then StopReplica
                  └ deletion: StopReplica ──► replicas_stopped ──► Remove ──► removed ──► Answer

A topic that this controller creates is one commit together with its partitions' first states, as long as it is small;
large ones, and topics that another tool wrote, get their states in commits of `STATES_PER_COMMIT`.

Partition states: no state → led (first live replica, epoch 0); leader dead → another of the ISR, or none (−1), or with
unclean election any live one; each change raises the leader epoch. Source: `KafkaController.scala`,
`PartitionStateMachine.scala`, `TopicDeletionManager.scala` (core, 3.9).

Not here: reassignment, controlled shutdown, ISR changes by leaders (AlterPartition), failed log directories, automatic
preferred elections, requests of old tools through /admin. They are further events on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kproto import ErrorCode, KafkaError
from replication import election, paths
from replication.effects import (
    Answer,
    Commit,
    Effect,
    LeaderAndIsr,
    PartitionChange,
    Remove,
    StoppedPartition,
    StopReplica,
    Tell,
    UpdateMetadata,
    being_deleted,
)
from replication.image import NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage, unled
from replication.nodes import SeenTopic, state_node, topic_image, topic_node, with_state
from replication.paths import Assignment, StateNode, TopicNode
from replication.placement import Assignments
from replication.store import (
    Check,
    CommitRefused,
    CommitTooLarge,
    Create,
    Delete,
    NodeExists,
    NoSuchNode,
    Op,
    Set,
)
from replication.topics import NewTopic, fold, new_uuid

STATES_PER_COMMIT = 500
MAX_ATTEMPTS = 20

TopicPartition = tuple[str, int]
UncleanAllowed = Callable[[Mapping[str, str]], bool]


@dataclass(slots=True)
class _Deletion:
    """A topic on its way out; `elected` rebuilds it. waiting: replicas (partition, broker) that have not confirmed."""

    waiting: set[tuple[int, int]]
    tokens: list[object] = field(default_factory=list)
    removing: bool = False


class Controller:
    """One term of office. broker_id: ours; epoch: of this term; epoch_version: version of /controller_epoch.

    unclean_allowed: whether a topic with these settings may elect a leader outside its ISR. deletion_enabled: Kafka's
    delete.topic.enable. rng: for ids of topics that have none.
    """

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        image: Image,
        *,
        unclean_allowed: UncleanAllowed,
        rng: Random,
        deletion_enabled: bool = True,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.image = image.with_controller(broker_id, epoch)
        self._guard = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._unclean_allowed = unclean_allowed
        self._rng = rng
        self._deletion_enabled = deletion_enabled
        self._deleting: dict[str, _Deletion] = {}
        self._creating: dict[str, str] = {}  # folded name → name, of topics whose commit is under way
        self._rooted: set[str] = set()  # topics without a state so far that do have the parent node of states

    @property
    def guard(self) -> Check:
        """The check that every write of this term starts with."""
        return self._guard

    @property
    def reserved(self) -> Mapping[str, str]:
        """Names that cannot be had because they are being created, as `topics.plan_creation` wants them."""
        return self._creating

    @property
    def deleting(self) -> Collection[str]:
        """Topics on their way out."""
        return self._deleting.keys()

    # -- events ------------------------------------------------------------------------------------------------------

    def elected(self, wishes: Collection[str] = (), bounced: Collection[int] = ()) -> list[Effect]:
        """The term begins with `image` as read from the store.

        wishes: topics that somebody asked to delete. bounced: live brokers that restarted and may have lost the end of
        their logs without any controller noticing: what they led gets a new leader epoch.
        """
        effects: list[Effect] = [*self._update(self._live())]  # brokers first: they need addresses to follow leaders
        effects += self.deletions_seen(wishes)
        everything = self._everything()
        due = self._due(everything, bounced)
        moving = {(change.topic, change.partition.index) for change in due}
        effects += self._announce(
            [c for c in everything if c.partition.has_state and (c.topic, c.partition.index) not in moving]
        )
        return effects + self._commits(due)

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
        fresh = {*started, *bounced}
        effects: list[Effect] = [*self._update([b for b in self._live() if b not in fresh])]
        everything = self._everything()
        known = [change for change in everything if change.partition.has_state]
        for broker in sorted(fresh):
            effects += self._update([broker], known)
            effects += self._lead([change for change in known if broker in change.partition.replicas], [broker])
        effects += self._commits(self._due(everything, bounced))
        for name, deletion in self._deleting.items():
            if any(broker in fresh for _, broker in deletion.waiting):
                effects += self._stop_replicas(name)
        return effects

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
            elif seen.name not in self._deleting:
                added = [
                    unled(index, assignment.replicas)
                    for index, assignment in seen.node.partitions.items()
                    if index >= len(known.partitions)
                ]
                if added:
                    changed.append(known.with_partitions(added))
        if changed or gone:
            self.image = self.image.with_topics(changed, gone)
        for name in gone:
            if name in self._deleting:
                effects += self.removed(name)
        return effects + self._commits(self._due(self._partitions(changed)))

    def deletions_seen(self, names: Collection[str]) -> list[Effect]:
        """Somebody wishes these topics deleted (nodes under /admin/delete_topics)."""
        refused = [name for name in sorted(names) if name not in self.image.topics or not self._deletion_enabled]
        effects: list[Effect] = [Commit((self._guard, Delete(paths.topic_deletion(name)))) for name in refused]
        begin = [name for name in sorted(names) if name not in self._deleting and name not in refused]
        return effects + self._begin_deletions(begin)

    def config_changed(self, topic: str, config: Mapping[str, str]) -> list[Effect]:
        """A topic has other settings now. Unclean election may have become allowed."""
        known = self.image.topics.get(topic)
        if known is None or known.config == config:
            return []
        changed = replace(known, config=config)
        self.image = self.image.with_topics([changed])
        return self._commits(self._due(self._partitions([changed])))

    def replicas_stopped(self, broker: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted these replicas of topics being deleted."""
        effects: list[Effect] = []
        for topic, index in partitions:
            deletion = self._deleting.get(topic)
            if deletion is not None:
                deletion.waiting.discard((index, broker))
                if not deletion.waiting and not deletion.removing:
                    deletion.removing = True
                    effects.append(Remove(topic))
        return effects

    def removed(self, topic: str) -> list[Effect]:
        """The nodes of a deleted topic are gone: the name is free."""
        deletion = self._deleting.pop(topic, None)
        self._rooted.discard(topic)
        self.image = self.image.with_topics((), [topic])
        return [Answer(token) for token in deletion.tokens] if deletion else []

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
        return [Commit(tuple(ops), topics=(topic,), states=tuple(states), token=token)]

    def expand(self, topic: str, added: Assignments, token: object) -> list[Effect]:
        """Add partitions that `topics.plan_expansion` has let through."""
        known = self.image.topics[topic]
        changed = known.with_partitions(unled(index, replicas) for index, replicas in added.items())
        write = Set(paths.topic(topic), paths.encode_topic(topic_node(changed)))
        return [Commit((self._guard, write), topics=(changed,), token=token)]

    def delete(self, topic: str, token: object) -> list[Effect]:
        """Delete a topic of the picture; answered when nothing is left of it."""
        deletion = self._deleting.get(topic)
        if deletion is not None:
            deletion.tokens.append(token)
            return []
        return [Commit((self._guard, Create(paths.topic_deletion(topic))), deletion=topic, token=token)]

    def elect(
        self, partitions: Iterable[TopicPartition], *, unclean: bool
    ) -> tuple[dict[TopicPartition, KafkaError | None], list[Effect]]:
        """Elect preferred leaders (or, `unclean`, any leader for partitions without one) as an administrator asks.

        Returns the outcome per partition – None where an election is under way – and the effects.
        """
        outcome: dict[TopicPartition, KafkaError | None] = {}
        states: list[PartitionChange] = []
        for name, index in partitions:
            topic, partition = self.image.topics.get(name), self.image.partition(name, index)
            elected: PartitionImage | None = None
            error: KafkaError | None = None
            if (name, index) in outcome:
                continue
            if topic is None or partition is None:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            elif name in self._deleting:
                error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
            elif unclean:
                if partition.leader in self.image.brokers:
                    error = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has such a leader.")
                elif partition.has_state:
                    elected = election.offline(partition, self.image.brokers, unclean=True)
                if error is None and elected is None:
                    error = KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
            elif partition.leader == partition.replicas[0]:
                error = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has such a leader.")
            elif (elected := election.preferred(partition, self.image.brokers)) is None:
                error = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            outcome[name, index] = error
            if elected is not None and topic is not None:
                states.append(_written(PartitionChange(name, topic.topic_id, elected)))
        return outcome, self._commits(states)

    # -- outcomes of commits -----------------------------------------------------------------------------------------

    def committed(self, commits: Sequence[Commit]) -> list[Effect]:
        """The store accepted these."""
        topics = {topic.name: topic for commit in commits for topic in commit.topics}
        changes: dict[str, list[PartitionChange]] = {}
        for commit in commits:
            for change in commit.states:
                changes.setdefault(change.topic, []).append(change)
        for name, states in changes.items():
            topic = topics.get(name) or self.image.topics.get(name)
            if topic is not None:
                topics[name] = topic.with_partitions(change.partition for change in states)
        if topics:
            self.image = self.image.with_topics(topics.values())
        effects: list[Effect] = self._announce([change for states in changes.values() for change in states])
        written = [topic.name for commit in commits for topic in commit.topics]
        for name in written:
            self._creating.pop(fold(name), None)
        effects += self._commits(  # partitions too many for the commit that wrote their topic
            self._due(c for c in self._partitions(topics[name] for name in written) if not c.partition.has_state)
        )
        effects += self._begin_deletions([commit.deletion for commit in commits if commit.deletion is not None])
        for commit in commits:
            if commit.deletion in self._deleting:
                self._deleting[commit.deletion].tokens.append(commit.token)
            elif commit.token is not None:
                effects.append(Answer(commit.token))
        return effects

    def refused(
        self, commit: Commit, error: CommitRefused, fresh: Mapping[TopicPartition, tuple[StateNode, int] | None]
    ) -> list[Effect]:
        """The store refused this, for another reason than that our term is over.

        fresh: the state nodes of `commit.states` as they are now, with their versions; None where there is none.
        """
        for topic in commit.topics:
            self._creating.pop(fold(topic.name), None)
        if commit.deletion is not None and isinstance(error, NodeExists):  # somebody wished the same
            return self.committed([commit])
        if commit.attempt >= MAX_ATTEMPTS:
            return self._give_up(commit, error)
        again = replace(commit, attempt=commit.attempt + 1)
        for topic in commit.topics:
            config_path = paths.config_entity(paths.TOPIC_CONFIG, topic.name)
            if error.path == config_path and isinstance(error, NodeExists):  # left over from an earlier topic
                self._creating[fold(topic.name)] = topic.name
                ops = tuple(_overwriting(op) if op.path == config_path else op for op in commit.ops)
                return [replace(again, ops=ops)]
        if commit.topics or commit.token is not None:
            return self._give_up(commit, error)
        return self._settle_fresh(commit, fresh)

    def _give_up(self, commit: Commit, error: CommitRefused) -> list[Effect]:
        if commit.token is None:
            return []
        if isinstance(error, NodeExists) and commit.topics:
            return [Answer(commit.token, KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "The topic already exists."))]
        if isinstance(error, NoSuchNode) and commit.topics:
            return [Answer(commit.token, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))]
        if isinstance(error, CommitTooLarge):
            return [Answer(commit.token, KafkaError(ErrorCode.POLICY_VIOLATION, "The topic is too large to store."))]
        return [Answer(commit.token, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Not accepted by the store: {error}"))]

    def _settle_fresh(
        self, commit: Commit, fresh: Mapping[TopicPartition, tuple[StateNode, int] | None]
    ) -> list[Effect]:
        """State nodes were not as thought: take over what is there, and decide again."""
        concerned: list[PartitionChange] = []
        changed: dict[str, TopicImage] = {}
        for change in commit.states:
            topic = changed.get(change.topic) or self.image.topics.get(change.topic)
            if topic is None or topic.topic_id != change.topic_id or change.partition.index >= len(topic.partitions):
                continue
            known = topic.partitions[change.partition.index]
            found = fresh.get((change.topic, known.index))
            actual = unled(known.index, known.replicas) if found is None else with_state(known, *found)
            changed[change.topic] = topic.with_partitions([actual])
            concerned.append(PartitionChange(change.topic, change.topic_id, actual))
        self.image = self.image.with_topics(changed.values())
        states = self._due(concerned)
        settled = {(state.topic, state.partition.index) for state in states}
        announce = [c for c in concerned if c.partition.has_state and (c.topic, c.partition.index) not in settled]
        return self._announce(announce) + self._commits(states, ensure=True, attempt=commit.attempt + 1)

    # -- deciding ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _partitions(topics: Iterable[TopicImage]) -> Iterator[PartitionChange]:
        for topic in topics:
            for partition in topic.partitions:
                yield PartitionChange(topic.name, topic.topic_id, partition)

    def _everything(self) -> list[PartitionChange]:
        """All partitions but those of topics being deleted."""
        return list(self._partitions(t for t in self.image.topics.values() if t.name not in self._deleting))

    def _due(self, changes: Iterable[PartitionChange], bounced: Collection[int] = ()) -> list[PartitionChange]:
        """Those of `changes` that must become something else with the present brokers, as they must become."""
        return [state for change in changes if (state := self._next(change, bounced)) is not None]

    def _next(self, change: PartitionChange, bounced: Collection[int] = ()) -> PartitionChange | None:
        """What a partition must become; None if it may stay as it is, or nobody can lead it."""
        if change.topic in self._deleting:
            return None
        live = self.image.brokers
        before = change.partition
        if not before.has_state:
            first = election.initial(before, live)
            return None if first is None else PartitionChange(change.topic, change.topic_id, first, is_new=True)
        steady = [broker for broker in live if broker not in bounced] if bounced else live
        after = before
        if before.leader not in steady:
            after = election.offline(before, steady, unclean=False) or election.lose_brokers(before, steady)
            if after.leader == NO_LEADER:  # nobody who stayed: now those who came back, then unclean
                topic = self.image.topics.get(change.topic)
                unclean = topic is not None and self._unclean_allowed(topic.config)
                after = election.offline(after, live, unclean=unclean) or after
        else:
            after = election.lose_brokers(before, steady)
        return None if after is before else _written(replace(change, partition=after))

    def _commits(self, states: Sequence[PartitionChange], *, ensure: bool = False, attempt: int = 0) -> list[Effect]:
        effects: list[Effect] = []
        for start in range(0, len(states), STATES_PER_COMMIT):
            chunk = states[start : start + STATES_PER_COMMIT]
            ops: list[Op] = [self._guard]
            parents: dict[str, None] = {}
            for state in chunk:
                ops += self._state_ops(state, made=ensure)
                if state.is_new and (ensure or not self._has_root(state.topic)):
                    parents[paths.partitions(state.topic)] = None
                if state.is_new and ensure:
                    parents[paths.partition(state.topic, state.partition.index)] = None
            effects.append(Commit(tuple(ops), states=tuple(chunk), ensure=tuple(parents), attempt=attempt))
        return effects

    def _has_root(self, topic: str) -> bool:
        known = self.image.topics.get(topic)
        return topic in self._rooted or (known is not None and any(p.has_state for p in known.partitions))

    def _state_ops(self, change: PartitionChange, *, made: bool) -> list[Op]:
        """Write one state. made: the node above it is there."""
        partition = change.partition
        data = paths.encode_state(state_node(partition, self.epoch))
        path = paths.state(change.topic, partition.index)
        if not change.is_new:
            return [Set(path, data, partition.partition_epoch - 1)]
        above: list[Op] = [] if made else [Create(paths.partition(change.topic, partition.index))]
        return [*above, Create(path, data)]

    # -- deletion ----------------------------------------------------------------------------------------------------

    def _begin_deletions(self, names: Iterable[str]) -> list[Effect]:
        topics = [self.image.topics[name] for name in names if name in self.image.topics]
        forget: list[PartitionChange] = []
        for topic in topics:
            if topic.name not in self._deleting:
                replicas = {(p.index, broker) for p in topic.partitions for broker in p.replicas}
                self._deleting[topic.name] = _Deletion(replicas)
                forget += being_deleted(topic)
        if not forget:
            return []
        effects: list[Effect] = [*self._update(self._live(), forget)]
        for topic in topics:
            effects += self._stop_replicas(topic.name)
        return effects

    def _stop_replicas(self, name: str) -> list[Effect]:
        """Ask the live brokers that have not confirmed; those that are down are asked when they are back."""
        deletion = self._deleting[name]
        if not deletion.waiting and not deletion.removing:  # a topic without replicas
            deletion.removing = True
            return [Remove(name)]
        effects: list[Effect] = []
        for broker in sorted({broker for _, broker in deletion.waiting}):
            if broker in self.image.brokers:
                indexes = sorted(index for index, replica in deletion.waiting if replica == broker)
                for delete in (False, True):  # followers stop fetching before leaders vanish
                    stopped = tuple(StoppedPartition(name, index, -2, delete) for index in indexes)
                    effects.append(
                        Tell(broker, StopReplica(self.broker_id, self.epoch, self._epoch_of(broker), stopped))
                    )
        return effects

    # -- telling -----------------------------------------------------------------------------------------------------

    def _live(self) -> list[int]:
        return list(self.image.brokers)

    def _epoch_of(self, broker: int) -> int:
        return self.image.brokers[broker].epoch

    def _announce(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """Tell replicas to lead and follow, then everybody where the leaders are."""
        if not changes:
            return []
        return [*self._lead(changes, self._live()), *self._update(self._live(), changes)]

    def _lead(self, changes: Sequence[PartitionChange], brokers: Iterable[int]) -> Iterator[Tell]:
        for broker in brokers:
            mine = tuple(change for change in changes if broker in change.partition.replicas)
            if mine:
                ids = {change.partition.leader for change in mine}
                leaders = tuple(image for image in self.image.brokers.values() if image.id in ids)
                yield Tell(broker, LeaderAndIsr(self.broker_id, self.epoch, self._epoch_of(broker), mine, leaders))

    def _update(self, brokers: Iterable[int], changes: Sequence[PartitionChange] = ()) -> Iterator[Tell]:
        everybody = tuple(self.image.brokers.values())
        for broker in brokers:
            message = UpdateMetadata(self.broker_id, self.epoch, self._epoch_of(broker), everybody, tuple(changes))
            yield Tell(broker, message)


def _written(change: PartitionChange) -> PartitionChange:
    """With the version that its state node will have."""
    partition = change.partition
    return replace(change, partition=replace(partition, partition_epoch=partition.partition_epoch + 1))


def _overwriting(op: Op) -> Op:
    return Set(op.path, op.data) if isinstance(op, Create) else op
