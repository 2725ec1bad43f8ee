"""Random lives of a cluster against invariants: brokers die, return and stop, partitions move, commits are refused or
their answers lost, controllers fail at any moment. A failure names its seed and step.

`Cluster` looks at every write; `check` at the whole whenever there is nothing left to do. At the end all brokers live
and catch up: then every move has arrived, every deletion is done, every request has its answer.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.kproto import ErrorCode
from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.store import Create, VersionMoved
from barnabas.replication.tests.controller.controller_rig import Cluster, check
from barnabas.replication.tree import paths

ALL = (1, 2, 3, 4)
MAY_BE_REFUSED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.TOPIC_ALREADY_EXISTS,
}


class Walk:
    """One life. troubles: commits are refused or lost, controllers die, requests come at any moment."""

    def __init__(self, seed: int, *, unclean: bool, troubles: bool) -> None:
        self.rng = Random(seed)
        self.unclean = unclean
        self.troubles = troubles
        self.cluster = Cluster(ALL)
        self.epoch = 100
        self.tokens: set[str] = set()
        self.cluster.shuffle = self.rng.shuffle
        self.lost_tokens: set[str] = set()  # their controller is gone, and with it the answer
        self.step = 0
        if troubles:
            self.cluster.lost = lambda: self.rng.choices(("", "before", "after"), (12, 1, 1))[0]

    def token(self, what: str) -> str:
        token = f"{what} {self.step} {len(self.tokens)}"
        self.tokens.add(token)
        return token

    def topics(self) -> list[str]:
        machine = self.cluster.machine
        return [name for name in machine.image.topics if name not in machine.deleting]

    def partition(self) -> tuple[str, int] | None:
        topics = self.topics()
        if not topics:
            return None
        name = self.rng.choice(topics)
        return name, self.rng.randrange(len(self.cluster.machine.image.topics[name].partitions))

    # -- what may happen ---------------------------------------------------------------------------------------------

    def brokers(self) -> None:
        wanted = [broker for broker in ALL if self.rng.random() < 0.75]
        epochs = {}
        for broker in wanted:
            if broker not in self.cluster.live or self.rng.random() < 0.15:
                self.epoch += 1
                epochs[broker] = self.epoch
        self.cluster.set_alive(*wanted, epochs=epochs)
        self.cluster.queue.extend(self.cluster.machine.brokers_changed(self.cluster.live))

    def create(self) -> None:
        cluster, rng = self.cluster, self.rng
        replicas = rng.sample(ALL, 3)
        if not set(replicas) & set(cluster.machine.image.brokers):
            return
        name = f"t{self.step}"
        assignments = {
            index: tuple(rng.sample(replicas, rng.choice((1, 2, 3)))) for index in range(rng.randrange(1, 4))
        }
        token = self.token("create")
        config = {"unclean.leader.election.enable": "true"} if self.unclean else {}
        new = NewTopic(name, rng.randbytes(16), assignments, config)
        cluster.queue.extend(cluster.machine.create(new, token))

    def expand(self) -> None:
        machine = self.cluster.machine
        if topics := self.topics():
            name = self.rng.choice(topics)
            count = len(machine.image.topics[name].partitions)
            added = {count: tuple(self.rng.sample(ALL, 2))}
            self.cluster.queue.extend(machine.expand(name, added, self.token("expand")))

    def delete(self) -> None:
        if topics := self.topics():
            self.cluster.queue.extend(self.cluster.machine.delete(self.rng.choice(topics), self.token("delete")))

    def reassign(self) -> None:
        wishes: dict[tuple[str, int], tuple[int, ...] | None] = {}
        for _ in range(self.rng.randrange(1, 4)):
            key = self.partition()
            if key is not None:
                target = tuple(self.rng.sample(ALL, self.rng.choice((1, 2, 2, 3))))
                wishes[key] = None if self.rng.random() < 0.2 else target
        _, effects = self.cluster.machine.reassign(wishes, self.token("reassign"))
        self.cluster.queue.extend(effects)

    def old_tool(self) -> None:
        key = self.partition()
        tree = self.cluster.tree
        if key is None:
            return
        if self.rng.random() < 0.5:
            if tree.get(paths.REASSIGNMENTS) is None:
                data = paths.encode_reassignments({key: tuple(self.rng.sample(ALL, 2)), ("ghost", 0): (1,)})
                tree.apply([Create(paths.REASSIGNMENTS, data)], 1)
        elif tree.get(paths.PREFERRED_ELECTION) is None:
            tree.apply([Create(paths.PREFERRED_ELECTION, paths.encode_partitions([key, ("ghost", 0)]))], 1)

    def look(self) -> None:
        """The controller notices what is under /admin."""
        cluster = self.cluster
        node = cluster.tree.get(paths.REASSIGNMENTS)
        wishes = None if node is None else paths.decode_reassignments(node.data)
        cluster.queue.extend(cluster.machine.reassignments_seen(wishes))
        node = cluster.tree.get(paths.PREFERRED_ELECTION)
        if node is not None:
            cluster.queue.extend(cluster.machine.elections_seen(paths.decode_partitions(node.path, node.data)))
        cluster.queue.extend(cluster.machine.topics_seen(cluster.seen(), self.gone()))

    def gone(self) -> list[str]:
        present = set(self.cluster.tree.children(paths.TOPICS))
        creating = set(self.cluster.machine.reserved.values())
        return [name for name in self.cluster.machine.image.topics if name not in present | creating]

    def report(self) -> None:
        """A leader reports some of those who follow it."""
        for broker in list(self.cluster.led):
            views = self.cluster.led.get(broker, {})
            wishes = {}
            for key, mine in views.items():
                if mine.leader == broker and self.rng.random() < 0.5:
                    following = self.cluster.in_sync(broker, key)
                    wishes[key] = [r for r in following if r == broker or self.rng.random() < 0.7]
            known = self.cluster.machine.image.brokers.get(broker)
            if wishes and known is not None and known.epoch == self.cluster.live[broker].epoch:
                self.cluster.report(broker, wishes, self.token("report"))

    def write(self) -> None:
        """A leader of an old release writes its ISR by itself, and notifies."""
        key = self.partition()
        found = None if key is None else self.cluster.stored(*key)
        if key is not None and found is not None and found[0].leader >= 0 and len(found[0].isr) > 1:
            self.cluster.shrink(*key, (found[0].leader,))
            self.cluster.queue.extend(self.cluster.machine.states_seen({key: self.cluster.stored(*key)}))

    def elect(self) -> None:
        if self.rng.random() < 0.3:
            self.cluster.queue.extend(self.cluster.machine.rebalance_due(10))
            return
        keys = [key for key in (self.partition() for _ in range(3)) if key is not None]
        unclean = self.unclean and self.rng.random() < 0.3
        self.cluster.queue.extend(self.cluster.machine.elect(keys, unclean=unclean, token=self.token("elect"))[1])

    def shut_down(self) -> None:
        live = [b for b in self.cluster.live if b in self.cluster.machine.image.brokers]
        if len(live) > 1:
            broker = self.rng.choice(live)
            token = self.token("shutdown")
            _, effects = self.cluster.machine.controlled_shutdown(broker, -1, token)
            self.cluster.queue.extend(effects)
            if self.rng.random() < 0.5:  # it waits for the answer, then goes
                self.cluster.run()
                self.cluster.alive(*(b for b in self.cluster.live if b != broker))

    def refuse(self) -> None:
        if key := self.partition():
            self.cluster.refusals.append(VersionMoved(paths.state(*key)))

    def fail_over(self) -> None:
        self.lost_tokens |= self.tokens - self.cluster.answers.keys()
        if self.rng.random() < 0.5:
            self.brokers()
        self.cluster.fail_over()

    def go(self, steps: int) -> None:
        """Live."""
        happenings = [
            *(self.brokers, self.brokers, self.create, self.create, self.expand, self.delete, self.reassign),
            *(self.reassign, self.report, self.report, self.report, self.write, self.elect, self.shut_down),
            *(self.old_tool, self.look),
        ]
        if self.troubles:
            happenings += [self.refuse, self.fail_over]
        for self.step in range(steps):
            self.rng.choice(happenings)()
            if self.troubles and self.rng.random() < 0.5:
                for _ in range(self.rng.randrange(12)):
                    if self.cluster.queue:
                        self.cluster.step()
                continue
            self.settle()

    def settle(self) -> None:
        self.cluster.run()
        self.look()
        self.cluster.run()
        if not self.cluster.refusals and not self.troubles:
            check(self.cluster, f"step {self.step}")

    def end(self) -> None:
        """All brokers live and all replicas catch up."""
        cluster = self.cluster
        cluster.refusals.clear()
        cluster.lost = str
        self.settle()
        self.epoch += 10
        cluster.alive(*ALL, epochs=dict.fromkeys(ALL, self.epoch))
        for _ in range(10):
            self.look()
            cluster.run()
            cluster.catch_up()
        check(cluster, "end")
        assert cluster.tree.get(paths.REASSIGNMENTS) is None, "the old tool's node is gone"
        assert cluster.tree.get(paths.PREFERRED_ELECTION) is None
        assert not cluster.machine.deleting
        assert not cluster.machine.reassigning(None)
        for topic in cluster.machine.image.topics.values():
            for partition in topic.partitions:
                assert partition.has_state
                assert set(partition.isr) == set(partition.replicas), (topic.name, partition)
                for broker, led in cluster.led.items():
                    holds = (topic.name, partition.index) in led
                    assert holds == (broker in partition.replicas), (topic.name, partition, broker)
        unanswered = self.tokens - cluster.answers.keys() - self.lost_tokens
        assert not unanswered
        for token, error in cluster.answers.items():
            if error is not None:
                assert error.code in MAY_BE_REFUSED, (token, error.code, error.message)
        assert self.unclean or not cluster.unclean_seen


@pytest.mark.parametrize("seed", range(40))
def test_quiet_lives(seed: int) -> None:
    walk = Walk(seed, unclean=seed % 4 == 3, troubles=False)
    walk.go(50)
    walk.end()


@pytest.mark.parametrize("seed", range(80))
def test_troubled_lives(seed: int) -> None:
    walk = Walk(seed, unclean=seed % 4 == 3, troubles=True)
    walk.go(60)
    walk.end()


def test_the_walk_does_what_it_is_for() -> None:
    """Moves arrive, leaders report, answers get lost: else the lives above prove nothing."""
    traces: list[str] = []
    arrived = 0
    for seed in range(10):
        walk = Walk(seed, unclean=False, troubles=True)
        walk.go(60)
        traces += walk.cluster.trace
        arrived += sum(token.startswith("reassign") for token in walk.cluster.answers if isinstance(token, str))
    assert arrived > 30
    assert traces.count("lost") > 30
    assert any(": delete t" in line for line in traces)
