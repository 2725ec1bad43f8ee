"""Rounds of failures under load, and the judgement afterwards.

    python -m compat_tests.faults.cluster.rounds --rounds 100 --report FILE [--brokers ours,ours,ours] [--peer kafka]
                                          [--seed N] [--kinds TEXT,TEXT] [--directory DIR] [--local]

A round does one kind of harm to a broker chosen by its role, waits until it must have had its effect, undoes it, and
waits until everything is whole again: all brokers registered, all replicas in sync, every partition acknowledging. How
long a partition acknowledged nothing is measured on the way. After the last round the load ends, everything is read
back and checked (`checker`), and the files of the replicas are compared (`replicas`). Without network namespaces the
kinds that cut the network are left out, and the report says so. With --local the brokers share the store of one
machine instead of ZooKeeper; it can be killed and stopped, and not be cut off.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.clusters import network
from compat_tests.clusters.harness import SESSION_TIMEOUT_MS, Cluster
from compat_tests.clusters.nodes import KAFKA, OURS, NodeFailed
from compat_tests.clusters.replicas import broken, differences
from compat_tests.faults.cluster.checker import Findings, check, distribution
from compat_tests.faults.cluster.load import Load, read_everything
from compat_tests.faults.cluster.renumbering import renumbered

TOPIC = "faults"
CLIENTS_LOG = "clients.log"
PARTITIONS = 6
SESSION_S = SESSION_TIMEOUT_MS / 1000
FAIL_OVER_S = SESSION_S + 120
"""By then (on a busy machine) a partition whose in-sync replicas live and hear each other must acknowledge again."""


@dataclass
class Round:
    """One round as it went. *affected*: the partitions whose leader was harmed."""

    kind: str
    victim: int
    affected: list[int]
    silent: dict[int, float] = field(default_factory=dict)
    whole_after_s: float = 0


@dataclass
class Report:
    """What a run found."""

    brokers: Sequence[str]
    seed: int
    rounds: list[Round] = field(default_factory=list)
    left_out: str = ""
    findings: Findings = field(default_factory=Findings)
    differences: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def good(self) -> bool:
        """Nothing went wrong."""
        return self.findings.good and not self.differences and not self.errors

    def __str__(self) -> str:
        lines = [
            f"brokers {', '.join(self.brokers)}; seed {self.seed}; {len(self.rounds)} rounds, {self.seconds:.0f} s",
            f"checker: {self.findings}",
            f"replicas: {'identical bytes' if not self.differences else '; '.join(self.differences)}",
        ]
        lines += [f"error: {text}" for text in self.errors]
        if self.left_out:
            lines.append(f"left out: {self.left_out}")
        kinds: dict[str, list[Round]] = defaultdict(list)
        for one in self.rounds:
            kinds[one.kind].append(one)
        lines.append("time without an acknowledgement, partitions of the harmed leader | all other partitions:")
        for kind in sorted(kinds):
            harmed = [s for one in kinds[kind] for index, s in one.silent.items() if index in one.affected]
            others = [s for one in kinds[kind] for index, s in one.silent.items() if index not in one.affected]
            lines.append(f"  {kind} ({len(kinds[kind])}): {distribution(harmed)} | {distribution(others)}")
        whole = distribution([one.whole_after_s for one in self.rounds])
        lines.append(f"whole again after the harm was undone: {whole}")
        return "\n".join(lines)


class Rounds:
    """A cluster under load and the kinds of harm that can be done to it."""

    def __init__(self, cluster: Cluster, rng: random.Random, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.rng = rng
        self.say = say
        self.load = Load(cluster.bootstrap, TOPIC, PARTITIONS, log=cluster.directory / CLIENTS_LOG)
        self.rounds: list[Round] = []

    # Choosing

    def leader(self) -> int:
        """The leader of some partition."""
        found = -1
        while found < 0:
            found = self.cluster.leader(TOPIC, self.rng.randrange(PARTITIONS))
        return found

    def controller(self) -> int:
        """The controller."""
        return self.cluster.controller()

    def follower(self) -> int:
        """A broker that is not the controller."""
        controller = self.controller()
        return self.rng.choice([number for number in self.cluster.nodes if number != controller])

    # Harm: each waits until its effect must be there, and undoes it

    def kill(self, victim: int) -> None:
        """kill -9; it comes back after its session has ended, or at once."""
        node = self.cluster.nodes[victim]
        node.kill()
        if self.rng.random() < 0.7 or node.kind == KAFKA:
            self.cluster.wait_gone(victim)
            self.acknowledges()
        self.cluster.start_node(victim)

    def kill_all(self, _: int) -> None:
        """kill -9 of every broker at once; they come back in any order."""
        for node in self.cluster.nodes.values():
            node.kill()
        order = list(self.cluster.nodes)
        self.rng.shuffle(order)
        for number in order:
            self.cluster.start_node(number, wait=False)

    def lose_disk(self, victim: int) -> None:
        """kill -9, and all its data is gone; what the other two have is copied again."""
        self.cluster.nodes[victim].kill()
        self.cluster.wait_gone(victim)
        self.acknowledges()
        self.cluster.nodes[victim].wipe()
        self.cluster.start_node(victim)

    def kill_two(self, victim: int) -> None:
        """kill -9 of it and, before anybody has noticed, of another; the third has too few in-sync replicas."""
        other = self.rng.choice([number for number in self.cluster.nodes if number != victim])
        for number in (victim, other):
            self.cluster.nodes[number].kill()
            time.sleep(self.rng.uniform(0, 1))
        self.cluster.wait_gone(victim)
        self.cluster.wait_gone(other)
        for number in self.rng.sample([victim, other], 2):
            self.cluster.start_node(number)

    def pause(self, victim: int) -> None:
        """SIGSTOP for longer than the session lasts, then SIGCONT: it wakes up believing what was true before."""
        node = self.cluster.nodes[victim]
        node.pause()
        try:
            self.cluster.wait_gone(victim)
            self.acknowledges()
            time.sleep(self.rng.uniform(0, 2))
        finally:
            node.resume()

    def pause_briefly(self, victim: int) -> None:
        """SIGSTOP for less than the session lasts."""
        node = self.cluster.nodes[victim]
        node.pause()
        time.sleep(self.rng.uniform(0.5, SESSION_S / 2))
        node.resume()

    def expire(self, victim: int) -> None:
        """Its ZooKeeper session ends; it must register anew."""
        before = self.cluster.tree.brokers().get(victim)
        self.cluster.expire_session(victim)
        self.cluster.wait(
            lambda: self.cluster.tree.brokers().get(victim, before) != before, f"broker {victim} has registered anew"
        )
        self.acknowledges()

    def cut_from_zookeeper(self, victim: int) -> None:
        """No word between it and ZooKeeper until its session has ended, and a little longer."""
        self.cluster.cut_zookeeper(victim)
        try:
            self.cluster.wait_gone(victim)
            self.acknowledges()
            time.sleep(self.rng.uniform(0, 2))
        finally:
            self.cluster.heal()

    def cut_from_a_broker(self, victim: int) -> None:
        """No word between it and one other broker, for longer than a replica may lag."""
        other = self.rng.choice([number for number in self.cluster.nodes if number != victim])
        self.cluster.cut_brokers(victim, [other])
        try:
            time.sleep(self.rng.uniform(8, 12))
        finally:
            self.cluster.heal()

    def cut_from_brokers(self, victim: int) -> None:
        """No word between it and all other brokers; ZooKeeper and the clients reach it still."""
        self.cluster.cut_brokers(victim)
        try:
            time.sleep(self.rng.uniform(8, 12))
        finally:
            self.cluster.heal()

    def cut_off(self, victim: int) -> None:
        """No word between it and ZooKeeper and all other brokers; clients reach it still."""
        self.cluster.cut_brokers(victim)
        self.cut_from_zookeeper(victim)

    def restart_all(self, _: int) -> None:
        """A rolling restart: each broker stops (controlled), starts and catches up before the next."""
        for number, node in self.cluster.nodes.items():
            status = node.stop()
            if status not in (0, 143):
                raise NodeFailed(f"{node} stopped with {status}\n{node.log_tail()}")
            self.cluster.start_node(number)
            self.cluster.wait_healthy()

    def restart_zookeeper(self, _: int) -> None:
        """ZooKeeper itself is away for a while, shorter than the sessions or not."""
        zookeeper = self.cluster.zookeeper
        assert zookeeper is not None
        zookeeper.kill()
        time.sleep(self.rng.uniform(0, SESSION_S + 2))
        zookeeper.start()

    def kill_store(self, _: int) -> None:
        """kill -9 of the store of one machine; it is away for a while, shorter than the sessions or not."""
        assert self.cluster.store is not None
        self.cluster.store.kill()
        time.sleep(self.rng.uniform(0, SESSION_S + 2))
        self.cluster.store.start()

    def pause_store(self, _: int) -> None:
        """SIGSTOP of the store of one machine: the sessions last however long that takes."""
        assert self.cluster.store is not None
        before = self.cluster.tree.brokers()
        self.cluster.store.pause()
        time.sleep(self.rng.uniform(0, SESSION_S * 2))
        self.cluster.store.resume()
        if self.cluster.tree.brokers() != before:
            raise NodeFailed(f"sessions were lost while the store stood still: {before}, {self.cluster.tree.brokers()}")

    def kill_store_and(self, victim: int) -> None:
        """kill -9 of the store and of a broker at once. The store comes back first."""
        assert self.cluster.store is not None
        self.cluster.store.kill()
        self.cluster.nodes[victim].kill()
        time.sleep(self.rng.uniform(0, 3))
        self.cluster.store.start()
        self.cluster.wait_gone(victim)
        self.acknowledges()
        self.cluster.start_node(victim)

    # Rounds

    def acknowledges(self) -> None:
        """All partitions acknowledge again although the harm lasts. Raises NodeFailed when they do not in time."""
        everything = set(range(PARTITIONS))
        begun = time.monotonic()
        if self.load.wait_acknowledged(everything, FAIL_OVER_S) is None:
            missing = sorted(everything - self.load.acknowledged_since(begun))
            states = self.cluster.tree.states(TOPIC)
            raise NodeFailed(
                f"nothing is acknowledged on {missing} within {FAIL_OVER_S} s although enough replicas live"
                f"; {self.load.errors}\nstates: {states}\n{self.cluster.logs()}"
            )

    def run(self, kind: str) -> None:
        """One round."""
        victim = KINDS[kind].choose(self)
        affected = self.cluster.led_by(TOPIC, victim)
        self.say(f"round {len(self.rounds) + 1}: {kind}: {self.cluster.nodes[victim]}, leads {affected}")
        one = Round(kind, victim, affected)
        begun, mark = time.monotonic(), len(self.load.sends)
        KINDS[kind].harm(self, victim)
        undone = time.monotonic()
        self.cluster.wait_healthy()
        one.whole_after_s = time.monotonic() - undone
        self.acknowledges()
        one.silent = self.load.silent(begun, mark)
        self.rounds.append(one)
        longest = max(one.silent.values(), default=0)
        self.say(
            f"  silent for at most {longest:.1f} s, whole again {one.whole_after_s:.1f} s after the harm was undone"
        )
        for node in self.cluster.nodes.values():
            if not node.alive:
                raise NodeFailed(f"{node} has ended:\n{node.log_tail()}")


@dataclass(frozen=True)
class Kind:
    """A kind of harm: whom it hits, what is done, whether it needs a network that can be cut, ZooKeeper, or the store
    of one machine.
    """

    choose: Callable[[Rounds], int]
    harm: Callable[[Rounds, int], None]
    cuts: bool = False
    zookeeper: bool = False
    store: bool = False


KINDS = {
    "kill leader": Kind(Rounds.leader, Rounds.kill),
    "kill follower": Kind(Rounds.follower, Rounds.kill),
    "kill controller": Kind(Rounds.controller, Rounds.kill),
    "kill two": Kind(Rounds.leader, Rounds.kill_two),
    "lose a disk": Kind(Rounds.leader, Rounds.lose_disk),
    "kill all": Kind(Rounds.leader, Rounds.kill_all),
    "pause leader": Kind(Rounds.leader, Rounds.pause),
    "pause controller": Kind(Rounds.controller, Rounds.pause),
    "pause briefly": Kind(Rounds.leader, Rounds.pause_briefly),
    "expire leader": Kind(Rounds.leader, Rounds.expire, zookeeper=True),
    "expire controller": Kind(Rounds.controller, Rounds.expire, zookeeper=True),
    "rolling restart": Kind(Rounds.leader, Rounds.restart_all),
    "restart ZooKeeper": Kind(Rounds.leader, Rounds.restart_zookeeper, zookeeper=True),
    "kill store": Kind(Rounds.leader, Rounds.kill_store, store=True),
    "pause store": Kind(Rounds.leader, Rounds.pause_store, store=True),
    "kill store and leader": Kind(Rounds.leader, Rounds.kill_store_and, store=True),
    "kill store and controller": Kind(Rounds.controller, Rounds.kill_store_and, store=True),
    "cut leader from ZooKeeper": Kind(Rounds.leader, Rounds.cut_from_zookeeper, cuts=True),
    "cut leader from a broker": Kind(Rounds.leader, Rounds.cut_from_a_broker, cuts=True),
    "cut leader from all brokers": Kind(Rounds.leader, Rounds.cut_from_brokers, cuts=True),
    "cut leader off": Kind(Rounds.leader, Rounds.cut_off, cuts=True),
    "cut controller from ZooKeeper": Kind(Rounds.controller, Rounds.cut_from_zookeeper, cuts=True),
    "cut controller from all brokers": Kind(Rounds.controller, Rounds.cut_from_brokers, cuts=True),
    "cut controller off": Kind(Rounds.controller, Rounds.cut_off, cuts=True),
}


def possible(*, local: bool = False) -> list[str]:
    """Return the names of the kinds that can be done on this machine."""
    if local:
        return [name for name, kind in KINDS.items() if not kind.cuts and not kind.zookeeper]
    whole = network.unavailable() is None
    return [name for name, kind in KINDS.items() if not kind.store and (whole or not kind.cuts)]


def run(
    directory: Path,
    brokers: Sequence[str],
    rounds: int,
    *,
    kinds: Sequence[str] = (),
    seed: int = 1,
    local: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run so many rounds, each of *kinds* (default: all that are possible here) as often as the others.

    *local*: on the store of one machine. *kinds* are parts of names. Whatever goes wrong is in the report; raises
    NodeFailed only when the cluster does not start.
    """
    rng = random.Random(seed)
    reason = "the brokers share a Unix socket" if local else network.unavailable()
    report = Report(brokers, seed, left_out=f"cuts of the network: {reason}" if reason else "")
    begun = time.monotonic()
    with Cluster(directory, brokers, network=reason is None, local=local) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        all_rounds = Rounds(cluster, rng, say)
        report.rounds = all_rounds.rounds
        chosen = [name for name in possible(local=local) if not kinds or any(part in name for part in kinds)]
        assert chosen, f"no kind has one of {list(kinds)} in its name"
        all_rounds.load.start()
        deck: list[str] = []
        try:
            all_rounds.acknowledges()
            for _ in range(rounds):
                if not deck:
                    deck = chosen[:]
                    rng.shuffle(deck)
                all_rounds.run(deck.pop())
        except (NodeFailed, OSError) as error:
            report.errors.append(f"round {len(report.rounds) + 1}: {error}")
            say(report.errors[-1])
            rescue(cluster)
        try:
            judge(cluster, all_rounds.load, report)
        except Exception as error:
            report.errors.append(f"reading back failed: {error!r}\n{cluster.logs()}")
        report.seconds = time.monotonic() - begun
    return report


def rescue(cluster: Cluster) -> None:
    """Undo all harm as well as possible, so that what is there can still be judged."""
    cluster.heal()
    if cluster.store is not None:
        cluster.store.resume()
        if not cluster.store.alive:
            cluster.store.start()
    for number, node in cluster.nodes.items():
        if node.alive:
            node.resume()
        else:
            cluster.start_node(number, wait=False)


def judge(cluster: Cluster, load: Load, report: Report) -> None:
    """End the load and look at everything that is there."""
    load.stop()
    report.errors += load.errors
    if load.refused:
        report.errors.append(f"{len(load.refused)} sends refused, as if there were no topic, first {load.refused[0]}")
    if not report.errors:
        cluster.wait_healthy()
    final = read_everything(cluster.bootstrap, TOPIC, PARTITIONS)
    report.findings = check(load.sends, final, load.seen, renumbered(cluster.directory / CLIENTS_LOG))
    report.differences = differences(cluster, TOPIC)
    for node in cluster.nodes.values():
        for index in range(PARTITIONS):
            report.errors += broken(node.data / f"{TOPIC}-{index}")


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.faults.cluster.rounds", description="Rounds of failures"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there as well")
    parser.add_argument("--brokers", default=",".join([OURS] * 3), help="kinds of the brokers: ours, kafka")
    parser.add_argument("--peer", choices=["kafka"], help="three Apache Kafka 3.9.1 brokers")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--kinds", default="", help="only kinds with one of these texts in the name")
    parser.add_argument("--local", action="store_true", help="on the store of one machine instead of ZooKeeper")
    parser.add_argument("--directory", type=Path, help="where the brokers keep data and logs, kept afterwards")
    options = parser.parse_args()
    brokers = [KAFKA] * 3 if options.peer else options.brokers.split(",")
    kinds = [part for part in options.kinds.split(",") if part]
    with tempfile.TemporaryDirectory(prefix="cluster-faults-") as temporary:
        directory = options.directory or Path(temporary)
        report = run(directory, brokers, options.rounds, kinds=kinds, seed=options.seed, local=options.local, say=say)
    print(report)
    if options.report:
        options.report.write_text(f"{report}\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
