"""A cluster for the controller machine: the tree and all brokers in one object, without tasks.

It accepts commits by the rules of the tree, remembers what every broker was told, and does what brokers do: it confirms
deletions, and its leaders report in-sync replicas as far as they know of them. Effects wait in one queue, as in the
driver; `run` works it off, `step` does one of them, so that requests can come in between. Every write is looked at:
epochs only rise, no leader comes from outside the ISR unless unclean election is allowed, no ISR loses its last member.

Troubles: `refusals` (what happens to the next commits), `lost` (draws whether the answer to a commit is lost),
`shuffle` (commits that stand together happen in another order),
`fail_over` (this controller is gone with its queue; the next reads the tree).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.controller import Controller
from barnabas.replication.controller.in_sync import ProposedState
from barnabas.replication.controller.state import ClusterState
from barnabas.replication.messages.effects import (
    Answer,
    Commit,
    Effect,
    Later,
    LeaderAndIsr,
    Remove,
    SendMessage,
    StopReplica,
    UpdateMetadata,
    apply_update,
)
from barnabas.replication.planning.placement import Assignments
from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.node_tree import Tree
from barnabas.replication.store.store import CommitRefused, ConnectionLost, Create, Delete, Set, StoreError
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import SeenTopic, topic_image, with_state
from barnabas.replication.tree.paths import StateNode
from barnabas.replication.values.image import BrokerImage, Image, PartitionImage

TopicPartition = tuple[str, int]


def brokers(*ids: int, epoch: int = 1) -> dict[int, BrokerImage]:
    return {broker: BrokerImage(broker, (), epoch=epoch) for broker in ids}


class Cluster:
    """See the module."""

    def __init__(self, live: Iterable[int] = (1, 2, 3), *, unclean: bool = False) -> None:
        self.tree = Tree()
        made: dict[str, None] = {}
        for path in (*paths.PERSISTENT, paths.CONTROLLER_EPOCH):
            steps = path.split("/")
            made.update(dict.fromkeys("/".join(steps[: end + 1]) for end in range(1, len(steps))))
        self.tree.apply([Create(path) for path in made], 1)
        self.unclean = unclean
        self.live = brokers(*live)
        self.images: dict[int, Image] = {}
        self.led: dict[int, dict[TopicPartition, PartitionImage]] = {}
        self.stopped: dict[int, set[TopicPartition]] = {}
        self.trace: list[str] = []
        self.answers: dict[object, KafkaError | None] = {}
        self.silent: set[int] = set()  # brokers that do not confirm deletions
        self.broken: dict[int, set[TopicPartition]] = {}  # replicas on failed log directories
        self.refusals: deque[CommitRefused] = deque()  # what happens to the next commits
        self.lost: Callable[[], str] = str  # 'before', 'after' or '': how the answer to a commit is lost
        self.shuffle: Callable[[list[Commit]], None] | None = None
        self.queue: deque[Effect] = deque()
        self.unclean_seen = False  # somebody was elected who was not in sync
        self.machine = self.new_term(Image().with_brokers(self.live))

    def new_term(self, image: Image, epoch: int = 1) -> Controller:
        node = self.tree.get(paths.CONTROLLER_EPOCH)
        assert node is not None
        return Controller(
            1,
            epoch,
            node.version,
            image,
            unclean_allowed=lambda config: config.get("unclean.leader.election.enable") == "true" or self.unclean,
            rng=Random(1),
        )

    # -- effects -----------------------------------------------------------------------------------------------------

    def run(self, effects: Iterable[Effect] = ()) -> None:
        """Do all there is to do."""
        self.queue.extend(effects)
        steps = 0
        while self.queue:
            self.step()
            steps += 1
            assert steps < 20_000, "no end of it"

    def step(self) -> None:
        """Do the next effect."""
        check_state(self.machine.state, self.queue)
        effect = self.queue.popleft()
        match effect:
            case Commit():
                commits = [effect]
                while self.queue and isinstance(head := self.queue[0], Commit):
                    commits.append(head)
                    self.queue.popleft()
                self.queue.extendleft(reversed(self._commit_all(commits)))
            case SendMessage():
                self.queue.extend(self._told(effect))
            case Later(decide):
                self.queue.extendleft(reversed(decide()))
            case Remove(topic):
                self.trace.append(f"remove {topic}")
                self._remove(topic)
                self.queue.extend(self.machine.removed([topic]))
            case Answer(token, error):
                assert token not in self.answers, f"{token} is answered twice"
                self.answers[token] = error

    def _commit_all(self, commits: list[Commit]) -> list[Effect]:
        """Commits that stand together happen in any order; their outcomes come back in the order of the effects."""
        shuffled = list(commits)
        if self.shuffle is not None:
            self.shuffle(shuffled)
        failures = {id(commit): error for commit in shuffled if (error := self._commit(commit)) is not None}
        effects = self.machine.committed([commit for commit in commits if id(commit) not in failures])
        for commit in commits:
            if (failure := failures.get(id(commit))) is not None:
                self.trace.append(f"refused {failure.path}" if isinstance(failure, CommitRefused) else "lost")
                effects += self.machine.refused(commit, failure, self.fresh(commit))
        return effects

    def _commit(self, commit: Commit) -> StoreError | None:
        assert commit.ops[0] == self.machine.guard, "every write is guarded"
        for path in commit.ensure:
            if self.tree.get(path) is None and self.tree.get(path[: path.rindex("/")]) is not None:
                self.tree.apply([Create(path)], 1)
        lost = self.lost()
        try:
            if self.refusals and commit.states and not commit.topics:
                raise self.refusals.popleft()
            if lost == "before":
                raise ConnectionLost
            before = {op.path: self.tree.get(op.path) for op in commit.ops}
            self.tree.apply(commit.ops, 1)
            for op in commit.ops:
                node = before[op.path]
                if isinstance(op, Set) and node is not None and op.path.endswith("/state"):
                    self._look_at(op, paths.decode_state(op.path, node.data))
            if lost == "after":
                raise ConnectionLost
        except StoreError as error:
            return error
        return None

    def fresh(self, commit: Commit) -> dict[TopicPartition, tuple[StateNode, int] | None]:
        """The states that a commit concerns, as they are."""
        fresh: dict[TopicPartition, tuple[StateNode, int] | None] = {}
        for state in commit.states:
            fresh[state.topic, state.partition.index] = self.stored(state.topic, state.partition.index)
        return fresh

    def _look_at(self, op: Set, before: StateNode) -> None:
        after = paths.decode_state(op.path, op.data)
        where = f"{op.path}: {before} → {after}"
        assert after.leader_epoch >= before.leader_epoch, where
        assert after.isr, where
        assert after.leader == -1 or after.leader in after.isr, where
        reported = (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch, where
        if not after.recovering and not reported:
            assert set(after.isr) <= set(before.isr), where
        self.unclean_seen = self.unclean_seen or after.recovering

    def _remove(self, topic: str) -> None:
        doomed = [paths.topic(topic)]
        for path in doomed:
            doomed += [f"{path}/{name}" for name in self.tree.children(path)]
        doomed = [*reversed(doomed), paths.config_entity("topics", topic), paths.topic_deletion(topic)]
        self.tree.apply([Delete(path) for path in doomed if self.tree.get(path)], 1)

    def _told(self, tell: SendMessage) -> list[Effect]:
        broker, message = tell.broker, tell.message
        known = self.live.get(broker)
        if known is None or message.broker_epoch != known.epoch:
            return []  # it is gone, or another one
        assert message.controller_epoch == self.machine.epoch
        match message:
            case UpdateMetadata():
                self.images[broker] = apply_update(self.images.get(broker, Image()), message, {})
            case LeaderAndIsr():
                return self._asked_to_lead(broker, message)
            case StopReplica():
                gone = [(stopped.topic, stopped.index) for stopped in message.partitions if stopped.delete]
                self.stopped.setdefault(broker, set()).update((s.topic, s.index) for s in message.partitions)
                for key in gone:
                    self.led.get(broker, {}).pop(key, None)
                    self.trace.append(f"{broker}: delete {key[0]}-{key[1]}")
                if gone and broker not in self.silent:
                    return self.machine.replicas_stopped(broker, gone)
        return []

    def _asked_to_lead(self, broker: int, message: LeaderAndIsr) -> list[Effect]:
        led = self.led.setdefault(broker, {})
        errors: dict[TopicPartition, ErrorCode] = {}
        for change in message.partitions:
            key = change.topic, change.partition.index
            before = led.get(key)
            assert broker in change.partition.replicas
            self.trace.append(
                f"{broker}: {change.topic}-{change.partition.index} led by {change.partition.leader} "
                f"epoch {change.partition.leader_epoch} isr {list(change.partition.isr)}"
                + (" new" if change.is_new else "")
            )
            if key in self.broken.get(broker, ()):
                errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if before is not None and change.partition.leader_epoch <= before.leader_epoch:
                errors[key] = ErrorCode.STALE_CONTROLLER_EPOCH
                continue
            errors[key] = ErrorCode.NONE
            led[key] = change.partition
            self.stopped.get(broker, set()).discard(key)
        return self.machine.leader_and_isr_answered(broker, errors)

    # -- what is there -----------------------------------------------------------------------------------------------

    def stored(self, name: str, index: int = 0) -> tuple[StateNode, int] | None:
        """A state node and its version."""
        node = self.tree.get(paths.state(name, index))
        return None if node is None else (paths.decode_state(node.path, node.data), node.version)

    def assigned(self, name: str, index: int = 0) -> paths.Assignment:
        """A partition's assignment in the tree."""
        node = self.tree.get(paths.topic(name))
        assert node is not None
        return paths.decode_topic(node.path, node.data).partitions[index]

    def state(self, name: str, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch and ISR, which machine and store must agree on."""
        partition = self.machine.image.partition(name, index)
        assert partition is not None
        found = self.stored(name, index)
        if found is None:
            assert not partition.has_state
            return -1, -1, ()
        stored, version = found
        assert with_state(partition, stored, version) == partition
        return partition.leader, partition.leader_epoch, partition.isr

    def read(self) -> Image:
        """The image as a new controller reads it."""
        image = Image().with_brokers(self.live)
        for seen in self.seen():
            assert seen.node.topic_id is not None
            topic = topic_image(seen.name, seen.node.topic_id, seen.node, seen.config)
            states = [
                with_state(partition, *found)
                for partition in topic.partitions
                if (found := self.stored(seen.name, partition.index)) is not None
            ]
            image = image.with_topics([topic.with_partitions(states)])
        return image

    def seen(self) -> list[SeenTopic]:
        """All topics' nodes."""
        seen = []
        for name in self.tree.children(paths.TOPICS):
            node, config = self.tree.get(paths.topic(name)), self.tree.get(paths.config_entity("topics", name))
            assert node is not None
            settings = {} if config is None else paths.decode_config(config.path, config.data)
            seen.append(SeenTopic(name, paths.decode_topic(node.path, node.data), node.version, settings))
        return seen

    # -- what happens ------------------------------------------------------------------------------------------------

    def create(self, name: str, assignments: Assignments, config: Mapping[str, str] | None = None) -> None:
        self.run(self.machine.create(NewTopic(name, name.encode().ljust(16), assignments, config or {}), name))

    def alive(self, *ids: int, epochs: Mapping[int, int] | None = None) -> None:
        """From now on these brokers live."""
        self.set_alive(*ids, epochs=epochs)
        self.run(self.machine.brokers_changed(self.live))

    def set_alive(self, *ids: int, epochs: Mapping[int, int] | None = None) -> None:
        """The same before the controller has noticed."""
        before = self.live
        self.live = {
            broker: BrokerImage(broker, (), epoch=(epochs or {}).get(broker) or known.epoch)
            for broker in ids
            for known in [self.live.get(broker, BrokerImage(broker, (), epoch=1))]
        }
        for broker in (1, 2, 3, 4, *before):
            if self.live.get(broker) != before.get(broker):
                self.led.pop(broker, None)
                self.stopped.pop(broker, None)
                self.images.pop(broker, None)

    def shrink(self, name: str, index: int, isr: tuple[int, ...]) -> None:
        """The leader writes another ISR into the tree by itself, as old brokers do."""
        path = paths.state(name, index)
        node = self.tree.get(path)
        assert node is not None
        before = paths.decode_state(path, node.data)
        after = StateNode(before.leader, before.leader_epoch, before.controller_epoch, isr)
        self.tree.apply([Set(path, paths.encode_state(after), node.version)], 1)

    def report(
        self, broker: int, wishes: Mapping[TopicPartition, Sequence[int]], token: object = None
    ) -> dict[TopicPartition, PartitionImage | ErrorCode]:
        """A leader reports ISRs as it knows its partitions, and takes the answer in."""
        asked: dict[TopicPartition, ProposedState] = {}
        for key, isr in wishes.items():
            mine = self.led[broker][key]
            asked[key] = ProposedState(mine.leader_epoch, mine.partition_epoch, dict.fromkeys(isr, -1))
        outcome, effects = self.machine.alter_partition(broker, self.live[broker].epoch, asked, token)
        self.run(effects)
        for key, found in outcome.items():
            mine_now = self.led.get(broker, {}).get(key)
            if not isinstance(found, PartitionImage) or mine_now is None:
                continue
            if mine_now.leader_epoch == found.leader_epoch and mine_now.partition_epoch <= found.partition_epoch:
                self.led[broker][key] = replace(mine_now, isr=found.isr, partition_epoch=found.partition_epoch)
        return outcome

    def in_sync(self, broker: int, key: TopicPartition) -> tuple[int, ...]:
        """Replicas that follow a leader, itself included: what it would report if all caught up."""
        mine = self.led[broker][key]
        following = []
        for replica in mine.replicas:
            view = self.led.get(replica, {}).get(key)
            follows = replica == broker or key not in self.stopped.get(replica, ())
            if view is not None and follows and (view.leader, view.leader_epoch) == (broker, mine.leader_epoch):
                following.append(replica)
        return tuple(following)

    def catch_up(self) -> None:
        """All followers catch up, and the leaders report it."""
        for broker in list(self.led):
            wishes = {
                key: self.in_sync(broker, key)
                for key, mine in self.led[broker].items()
                if mine.leader == broker and set(self.in_sync(broker, key)) != set(mine.isr)
            }
            if wishes:
                self.report(broker, wishes)

    def fail_over(self, token: object = None) -> None:
        """This controller is gone, with all it had in mind; another one begins."""
        self.queue.clear()
        node = self.tree.get(paths.CONTROLLER_EPOCH)
        assert node is not None
        self.tree.apply([Set(node.path, b"", node.version)], 1)
        self.machine = self.new_term(self.read(), self.machine.epoch + 1)
        legacy = self.tree.get(paths.REASSIGNMENTS)
        elections = self.tree.get(paths.PREFERRED_ELECTION)
        self.run(
            self.machine.elected(
                self.tree.children(paths.DELETE_TOPICS),
                reassignments=None if legacy is None else paths.decode_reassignments(legacy.data),
                elections=None if elections is None else paths.decode_partitions(elections.path, elections.data),
            )
        )

    def reassign(
        self, wishes: Mapping[TopicPartition, Sequence[int] | None], token: object = "reassign"
    ) -> dict[TopicPartition, int]:
        """Ask for moves; error codes by partition."""
        self.answers.pop(token, None)
        outcome, effects = self.machine.reassign(wishes, token)
        self.run(effects)
        assert self.answers[token] is None
        return {key: 0 if error is None else int(error.code) for key, error in outcome.items()}


def told(cluster: Cluster) -> list[str]:
    """What was traced since the last call."""
    trace, cluster.trace = cluster.trace, []
    return trace


def check_state(state: ClusterState, queue: Iterable[Effect]) -> None:
    """What the fields of the state promise, whatever is under way. queue: the effects that wait."""
    image = state.image
    where = f"epoch {state.epoch}"
    works = [effect.work for effect in queue if isinstance(effect, Commit) and effect.work is not None]
    assigned = [work.topic for work in works if work.topic is not None]
    assert len(assigned) == len(set(assigned)), f"{where}: two writers of one topic's node"
    assert set(assigned) <= state.assigning.keys(), where
    assert image.controller_id == state.broker_id, where
    assert image.controller_epoch == state.epoch, where
    assert state.shutting_down <= image.brokers.keys(), where
    assert state.offline.keys() <= image.brokers.keys(), where
    assert state.deletions.keys() <= image.topics.keys(), where
    assert state.held_deletions.keys() <= image.topics.keys(), where
    assert not state.deletions.keys() & state.held_deletions.keys(), where
    for name, deletion in state.deletions.items():
        assert not any(partition.is_reassigning for partition in image.topics[name].partitions), where
        assert not (deletion.removing and deletion.waiting), where


def check(cluster: Cluster, where: str) -> None:
    """What must hold whenever the controller has nothing left to do."""
    image = cluster.machine.image
    for topic in image.topics.values():
        if topic.name in cluster.machine.deleting:
            continue
        for partition in topic.partitions:
            leader, _, isr = cluster.state(topic.name, partition.index)
            assigned = cluster.assigned(topic.name, partition.index)
            assert (assigned.replicas, assigned.adding, assigned.removing) == (
                partition.replicas,
                partition.adding_replicas,
                partition.removing_replicas,
            ), where
            assert set(isr) <= set(partition.replicas), where
            if leader == -1:
                stopping = cluster.machine.state.shutting_down
                assert not set(isr) & set(cluster.live) - stopping, f"{where}: a live in-sync replica does not lead"
                assert partition.has_state or not set(partition.replicas) & set(cluster.live) - stopping, where
                continue
            assert leader in cluster.live, f"{where}: led by a dead broker"
            assert set(isr) <= set(cluster.live), f"{where}: dead brokers in sync"
            assert leader in isr, where
            for broker in cluster.live:
                known = cluster.images[broker].partition(topic.name, partition.index)
                assert known is not None, f"{where}: broker {broker} does not know {topic.name}"
                assert (known.leader, known.leader_epoch, known.isr) == (
                    partition.leader,
                    partition.leader_epoch,
                    partition.isr,
                ), where
                if broker in partition.replicas and broker not in cluster.machine.state.shutting_down:
                    view = cluster.led[broker][topic.name, partition.index]
                    assert (view.leader, view.leader_epoch) == (partition.leader, partition.leader_epoch), where
    for name in cluster.machine.state.deletions:
        replicas = {replica for partition in image.topics[name].partitions for replica in partition.replicas}
        assert replicas - set(cluster.live), f"{where}: {name} could be gone"
    stored = set(cluster.tree.children("/brokers/topics"))
    assert stored == set(image.topics), where
    assert cluster.machine.reserved == {}, where
    assert not cluster.machine.state.assigning, where
    assert not cluster.machine.state.finishing, where
