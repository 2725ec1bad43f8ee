"""The controller machine in a cluster of several brokers: scenarios, and random ones against invariants.

`Cluster` is a store and the other brokers in one: it accepts commits by the rules of the tree, remembers what every
broker was told, and confirms deletions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from random import Random

import pytest

from kproto import ErrorCode, KafkaError
from replication import paths
from replication.controller import Controller
from replication.effects import (
    Answer,
    Commit,
    Effect,
    LeaderAndIsr,
    Remove,
    StopReplica,
    Tell,
    UpdateMetadata,
    apply_update,
)
from replication.image import BrokerImage, Image, PartitionImage
from replication.nodes import SeenTopic
from replication.paths import Assignment, StateNode, TopicNode
from replication.placement import Assignments
from replication.store import CommitRefused, Create, Delete, Op, Set, VersionMoved
from replication.topics import NewTopic
from replication.tree import Tree


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
        self.pictures: dict[int, Image] = {}
        self.led: dict[int, dict[tuple[str, int], PartitionImage]] = {}
        self.trace: list[str] = []
        self.answers: dict[object, KafkaError | None] = {}
        self.silent: set[int] = set()  # brokers that do not confirm deletions
        self.refusals: deque[CommitRefused] = deque()  # what happens to the next commits
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

    def run(self, effects: Iterable[Effect]) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            match effect:
                case Commit():
                    queue.extendleft(reversed(self._commit(effect)))
                case Tell():
                    queue.extend(self._told(effect))
                case Remove(topic):
                    self.trace.append(f"remove {topic}")
                    self._remove(topic)
                    queue.extend(self.machine.removed(topic))
                case Answer(token, error):
                    self.answers[token] = error

    def _commit(self, commit: Commit) -> list[Effect]:
        assert commit.ops[0] == self.machine.guard, "every write is guarded"
        for path in commit.ensure:
            if self.tree.get(path) is None:
                self.tree.apply([Create(path)], 1)
        try:
            if self.refusals:
                raise self.refusals.popleft()
            self.tree.apply(commit.ops, 1)
        except CommitRefused as error:
            self.trace.append(f"refused {error.path}")
            fresh: dict[tuple[str, int], tuple[StateNode, int] | None] = {}
            for state in commit.states:
                node = self.tree.get(paths.state(state.topic, state.partition.index))
                key = state.topic, state.partition.index
                fresh[key] = (paths.decode_state(node.path, node.data), node.version) if node else None
            return self.machine.refused(commit, error, fresh)
        return self.machine.committed([commit])

    def _remove(self, topic: str) -> None:
        doomed = [paths.topic(topic)]
        for path in doomed:
            doomed += [f"{path}/{name}" for name in self.tree.children(path)]
        doomed = [*reversed(doomed), paths.config_entity("topics", topic), paths.topic_deletion(topic)]
        self.tree.apply([Delete(path) for path in doomed if self.tree.get(path)], 1)

    def _told(self, tell: Tell) -> list[Effect]:
        broker, message = tell.broker, tell.message
        assert broker in self.machine.image.brokers, "the dead are not spoken to"
        assert message.controller_epoch == self.machine.epoch
        assert message.broker_epoch == self.machine.image.brokers[broker].epoch
        match message:
            case UpdateMetadata():
                self.pictures[broker] = apply_update(self.pictures.get(broker, Image()), message, {})
            case LeaderAndIsr():
                led = self.led.setdefault(broker, {})
                for change in message.partitions:
                    key = change.topic, change.partition.index
                    before = led.get(key)
                    assert broker in change.partition.replicas
                    assert before is None or before.leader_epoch <= change.partition.leader_epoch
                    led[key] = change.partition
                    self.trace.append(
                        f"{broker}: {change.topic}-{change.partition.index} led by {change.partition.leader} "
                        f"epoch {change.partition.leader_epoch} isr {list(change.partition.isr)}"
                        + (" new" if change.is_new else "")
                    )
            case StopReplica():
                gone = [(stopped.topic, stopped.index) for stopped in message.partitions if stopped.delete]
                for key in gone:
                    self.led.get(broker, {}).pop(key, None)
                    self.trace.append(f"{broker}: delete {key[0]}-{key[1]}")
                if gone and broker not in self.silent:
                    return self.machine.replicas_stopped(broker, gone)
        return []

    # -- what happens ------------------------------------------------------------------------------------------------

    def create(self, name: str, assignments: Assignments, config: Mapping[str, str] | None = None) -> None:
        self.run(self.machine.create(NewTopic(name, name.encode().ljust(16), assignments, config or {}), name))

    def alive(self, *ids: int, epochs: Mapping[int, int] | None = None) -> None:
        self.live = {
            broker: BrokerImage(broker, (), epoch=(epochs or {}).get(broker) or known.epoch)
            for broker in ids
            for known in [self.live.get(broker, BrokerImage(broker, (), epoch=1))]
        }
        for dead in set(self.led) - set(ids):
            del self.led[dead]
            self.pictures.pop(dead, None)
        self.run(self.machine.brokers_changed(self.live))

    def state(self, name: str, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch and ISR, which machine and store must agree on."""
        partition = self.machine.image.partition(name, index)
        assert partition is not None
        node = self.tree.get(paths.state(name, index))
        if node is None:
            assert not partition.has_state
            return -1, -1, ()
        stored = paths.decode_state(node.path, node.data)
        assert (stored.leader, stored.leader_epoch, stored.isr) == (
            partition.leader,
            partition.leader_epoch,
            partition.isr,
        )
        assert partition.partition_epoch == node.version
        return partition.leader, partition.leader_epoch, partition.isr

    def shrink(self, name: str, index: int, isr: tuple[int, ...]) -> None:
        """The leader writes another ISR into the tree by itself, as old brokers do."""
        path = paths.state(name, index)
        node = self.tree.get(path)
        assert node is not None
        before = paths.decode_state(path, node.data)
        after = StateNode(before.leader, before.leader_epoch, before.controller_epoch, isr)
        self.tree.apply([Set(path, paths.encode_state(after), node.version)], 1)


def told(cluster: Cluster) -> list[str]:
    """What was traced since the last call."""
    trace, cluster.trace = cluster.trace, []
    return trace


def test_a_topic_is_one_commit_and_everybody_hears_of_it() -> None:
    cluster = Cluster()
    before = cluster.tree.zxid
    cluster.create("t", {0: (1, 2), 1: (2, 3)})
    assert cluster.tree.zxid == before + 1
    assert told(cluster) == [
        "1: t-0 led by 1 epoch 0 isr [1, 2] new",
        "2: t-0 led by 1 epoch 0 isr [1, 2] new",
        "2: t-1 led by 2 epoch 0 isr [2, 3] new",
        "3: t-1 led by 2 epoch 0 isr [2, 3] new",
    ]
    assert cluster.answers == {"t": None}
    assert {len(image.topics["t"].partitions) for image in cluster.pictures.values()} == {2}
    assert sorted(cluster.pictures) == [1, 2, 3]


def test_a_dead_leader_is_replaced_and_leaves_the_isr() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3), 1: (3, 1, 2)})
    told(cluster)
    cluster.alive(2, 3)
    assert cluster.state("t", 0) == (2, 1, (2, 3))
    assert cluster.state("t", 1) == (3, 1, (3, 2)), "an epoch of its own for a mere loss of a follower"
    assert told(cluster) == [
        "2: t-0 led by 2 epoch 1 isr [2, 3]",
        "2: t-1 led by 3 epoch 1 isr [3, 2]",
        "3: t-0 led by 2 epoch 1 isr [2, 3]",
        "3: t-1 led by 3 epoch 1 isr [3, 2]",
    ]
    cluster.alive(1, 2, 3)
    assert cluster.state("t", 0) == (2, 1, (2, 3)), "a broker that is back joins the ISR when it has caught up"
    assert told(cluster) == ["1: t-0 led by 2 epoch 1 isr [2, 3]", "1: t-1 led by 3 epoch 1 isr [3, 2]"]
    assert cluster.pictures[1].topics["t"].partitions[0].leader == 2


def test_the_last_in_sync_replica_is_waited_for() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.alive(2, 3)
    cluster.alive(3)
    assert cluster.state("t") == (-1, 2, (2,))
    assert cluster.pictures[3].topics["t"].partitions[0].leader == -1
    cluster.alive(1, 3)
    assert cluster.state("t") == (-1, 2, (2,)), "1 is behind: no unclean election"
    cluster.alive(1, 2, 3)
    assert cluster.state("t") == (2, 3, (2,))


@pytest.mark.parametrize("how", ["topic", "broker", "later"])
def test_unclean_election(how: str) -> None:
    cluster = Cluster(unclean=how == "broker")
    allowed = {"unclean.leader.election.enable": "true"}
    cluster.create("t", {0: (1, 2)}, allowed if how == "topic" else {})
    cluster.alive(2, 3)
    cluster.alive(3)
    cluster.alive(1, 3)
    if how == "later":
        assert cluster.state("t")[0] == -1
        cluster.run(cluster.machine.config_changed("t", allowed))
    leader, _, isr = cluster.state("t")
    assert (leader, isr) == (1, (1,))
    partition = cluster.machine.image.partition("t", 0)
    assert partition is not None
    assert partition.recovering
    node = cluster.tree.get(paths.state("t", 0))
    assert node is not None
    assert b'"leader_recovery_state":1' in node.data


def test_a_bounced_broker_gets_new_epochs_even_if_nobody_else_can_lead() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1,), 1: (1, 2), 2: (2, 1), 3: (2,)})
    cluster.alive(1, 2, 3, epochs={1: 50})
    assert cluster.state("t", 0) == (1, 2, (1,))
    assert cluster.state("t", 1) == (2, 1, (2,))
    assert cluster.state("t", 2) == (2, 1, (2,))
    assert cluster.state("t", 3) == (2, 0, (2,))
    assert cluster.led[1]["t", 0].leader_epoch == 2


def test_a_new_term_takes_over_what_is_there() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 3), 2: (3, 1)})
    image = cluster.machine.image
    told(cluster)
    cluster.live = brokers(1, 2)
    cluster.machine = cluster.new_term(image.with_brokers(cluster.live), epoch=2)
    cluster.run(cluster.machine.elected())
    assert cluster.state("t", 0) == (1, 0, (1, 2))
    assert cluster.state("t", 1) == (2, 1, (2,))
    assert cluster.state("t", 2) == (1, 1, (1,))
    trace = told(cluster)
    assert len(trace) == len(set(trace)), "nothing is told twice"
    assert "1: t-0 led by 1 epoch 0 isr [1, 2]" in trace
    node = cluster.tree.get(paths.state("t", 2))
    assert node is not None
    assert b'"controller_epoch":2' in node.data


def test_a_leader_that_wrote_its_isr_is_not_overwritten() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3)})
    cluster.shrink("t", 0, (1, 3))  # 2 fell behind, which the controller has not heard of
    cluster.alive(2, 3)
    assert "refused /brokers/topics/t/partitions/0/state" in told(cluster)
    assert cluster.state("t") == (3, 1, (3,))


def test_states_that_another_controller_made_are_taken_over() -> None:
    cluster = Cluster()
    seen = SeenTopic("t", TopicNode(b"i" * 16, {0: Assignment((1, 2)), 1: Assignment((2, 3))}), 0, {})
    state = paths.encode_state(StateNode(2, 4, 0, (2, 1)))
    cluster.tree.apply(
        [
            Create(paths.topic("t"), paths.encode_topic(seen.node)),
            Create(paths.partitions("t")),
            Create(paths.partition("t", 0)),
            Create(paths.state("t", 0), state),
        ],
        1,
    )
    cluster.run(cluster.machine.topics_seen([seen]))
    assert cluster.state("t", 0) == (2, 4, (2, 1))
    assert cluster.state("t", 1) == (2, 0, (2, 3))
    assert cluster.led[1]["t", 0].leader == 2


def test_a_topic_nobody_alive_can_lead_waits() -> None:
    cluster = Cluster()
    seen = SeenTopic("t", TopicNode(b"i" * 16, {0: Assignment((8, 9)), 1: Assignment((1,))}), 0, {})
    cluster.tree.apply([Create(paths.topic("t"), paths.encode_topic(seen.node))], 1)
    cluster.run(cluster.machine.topics_seen([seen]))
    assert cluster.state("t", 0) == (-1, -1, ())
    assert [p.has_state for p in cluster.pictures[2].topics["t"].partitions] == [False, True]
    cluster.alive(1, 2, 3, 9)
    assert cluster.state("t", 0) == (9, 0, (9,))
    assert cluster.pictures[2].topics["t"].partitions[0].leader == 9


def test_deletion_waits_for_every_replica() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 3)})
    cluster.alive(1, 2)
    told(cluster)
    cluster.run(cluster.machine.delete("t", "one"))
    assert told(cluster) == ["1: delete t-0", "2: delete t-0", "2: delete t-1"]
    assert "t" in cluster.machine.deleting
    assert all("t" not in image.topics for image in cluster.pictures.values())
    cluster.run(cluster.machine.delete("t", "two"))
    assert "one" not in cluster.answers
    cluster.alive(1)
    assert cluster.state("t", 1)[1] == 1, "no elections for what is going"
    cluster.alive(1, 2, 3)
    assert told(cluster) == ["3: delete t-1", "remove t"]
    assert cluster.answers == {"t": None, "one": None, "two": None}
    assert cluster.machine.deleting == set()
    assert cluster.tree.children("/brokers/topics") == []
    assert cluster.tree.children("/admin/delete_topics") == []


def test_a_new_term_goes_on_with_deletions() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.create("u", {0: (1, 2)})
    cluster.silent = {2}
    cluster.run(cluster.machine.delete("t", "lost with the term"))
    told(cluster)
    cluster.silent = set()
    cluster.machine = cluster.new_term(cluster.machine.image, epoch=2)
    cluster.run(cluster.machine.elected(cluster.tree.children("/admin/delete_topics")))
    trace = told(cluster)
    assert trace[:3] == ["1: delete t-0", "2: delete t-0", "remove t"] or "remove t" in trace
    assert not any("t-0 led" in line for line in trace), "what is going is not led again"
    assert sorted(cluster.machine.image.topics) == ["u"]


def test_names_that_are_taken_while_a_topic_is_created() -> None:
    cluster = Cluster()
    new = NewTopic("a.b", b"i" * 16, {0: (1,)}, {})
    effects = cluster.machine.create(new, "token")
    assert cluster.machine.reserved == {"a_b": "a.b"}
    cluster.run(effects)
    assert cluster.machine.reserved == {}
    cluster.run(cluster.machine.create(new, "again"))
    error = cluster.answers["again"]
    assert error is not None
    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.machine.reserved == {}


def test_preferred_elections() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 1), 2: (3, 1)})
    cluster.alive(2, 3)
    cluster.alive(1, 2, 3)
    asked = [("t", 0), ("t", 1), ("t", 0), ("no", 0), ("t", 9)]

    def elect(unclean: bool = False) -> dict[tuple[str, int], int]:
        outcome, effects = cluster.machine.elect(asked, unclean=unclean)
        cluster.run(effects)
        return {key: 0 if error is None else int(error.code) for key, error in outcome.items()}

    assert elect() == {("t", 0): 80, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}, "1 is not in sync"
    cluster.shrink("t", 0, (2, 1))
    assert elect()["t", 0] == 80, "the controller does not know yet"
    cluster.machine.image = cluster.machine.image.with_topics(
        [
            cluster.machine.image.topics["t"].with_partitions(
                [PartitionImage(0, 2, 1, 2, (1, 2), (2, 1))],
            )
        ]
    )
    assert elect() == {("t", 0): 0, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}
    assert cluster.state("t", 0) == (1, 2, (2, 1))
    assert elect(unclean=True) == {("t", 0): 84, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}


def test_a_store_that_always_refuses_is_not_asked_for_ever() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.refusals.extend(VersionMoved(paths.state("t", 0)) for _ in range(1000))
    cluster.alive(2, 3)
    assert len(told(cluster)) < 60
    cluster.refusals.clear()
    cluster.alive(2)
    assert cluster.state("t")[0] == 2, "the next event tries again"


@pytest.mark.parametrize("seed", range(60))
def test_random_lives(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster((1, 2, 3, 4))
    epoch = 100
    made = 0
    for step in range(60):
        where = f"seed {seed}, step {step}"
        kind = rng.randrange(8)
        live = list(cluster.live)
        topics = [name for name in cluster.machine.image.topics if name not in cluster.machine.deleting]
        if kind <= 2:
            wanted = [broker for broker in (1, 2, 3, 4) if rng.random() < 0.7]
            epochs = {}
            for broker in wanted:
                if broker not in cluster.live or rng.random() < 0.2:
                    epoch += 1
                    epochs[broker] = epoch
            cluster.alive(*wanted, epochs=epochs)
        elif kind <= 4 and live:
            made += 1
            replicas = rng.sample((1, 2, 3, 4), 3)
            if not set(replicas) & set(live):
                continue
            cluster.create(f"t{made}", {index: tuple(rng.sample(replicas, 2)) for index in range(rng.randrange(1, 4))})
        elif kind == 5 and topics:
            name = rng.choice(topics)
            count = len(cluster.machine.image.topics[name].partitions)
            cluster.run(cluster.machine.expand(name, {count: tuple(rng.sample((1, 2, 3, 4), 2))}, f"more {step}"))
        elif kind == 6 and topics:
            cluster.run(cluster.machine.delete(rng.choice(topics), f"delete {step}"))
        elif kind == 7 and topics:
            name = rng.choice(topics)
            leader, _, isr = cluster.state(name)
            if leader > 0 and len(isr) > 1:
                cluster.shrink(name, 0, (leader,))
                path = paths.state(name, 0)
                node = cluster.tree.get(path)
                assert node is not None
                # the controller is told, as an ISR change notification would
                topic = cluster.machine.image.topics[name]
                known = topic.partitions[0]
                changed = PartitionImage(0, leader, known.leader_epoch, node.version, known.replicas, (leader,))
                cluster.machine.image = cluster.machine.image.with_topics([topic.with_partitions([changed])])
        check(cluster, where)


def check(cluster: Cluster, where: str) -> None:
    """What must hold whenever the controller has nothing left to do."""
    image = cluster.machine.image
    for topic in image.topics.values():
        if topic.name in cluster.machine.deleting:
            continue
        for partition in topic.partitions:
            leader, _, isr = cluster.state(topic.name, partition.index)
            if leader == -1:
                assert not set(isr) & set(cluster.live), f"{where}: a live in-sync replica does not lead"
                assert partition.has_state or not set(partition.replicas) & set(cluster.live), where
                continue
            assert leader in cluster.live, f"{where}: led by a dead broker"
            assert set(isr) <= set(cluster.live), f"{where}: dead brokers in sync"
            assert leader in isr, where
            for broker in cluster.live:
                known = cluster.pictures[broker].partition(topic.name, partition.index)
                assert known is not None, f"{where}: broker {broker} does not know {topic.name}"
                assert (known.leader, known.leader_epoch) == (partition.leader, partition.leader_epoch), where
                if broker in partition.replicas:
                    told = cluster.led[broker][topic.name, partition.index]
                    assert (told.leader, told.leader_epoch) == (partition.leader, partition.leader_epoch), where
    for name in cluster.machine.deleting:
        replicas = {replica for partition in image.topics[name].partitions for replica in partition.replicas}
        assert replicas - set(cluster.live), f"{where}: {name} could be gone"
    stored = set(cluster.tree.children("/brokers/topics"))
    assert stored == set(image.topics), where
    assert all(error is None for error in cluster.answers.values()), where
    assert cluster.machine.reserved == {}, where


def test_no_op_is_without_guard() -> None:
    """The guard comes first in whatever the machine writes."""
    cluster = Cluster()
    ops: list[tuple[Op, ...]] = []
    for effects in (
        cluster.machine.create(NewTopic("t", b"i" * 16, {0: (1,)}, {}), None),
        cluster.machine.deletions_seen(["never"]),
    ):
        ops += [effect.ops for effect in effects if isinstance(effect, Commit)]
    assert len(ops) == 2
    assert all(one[0] == cluster.machine.guard for one in ops)
