"""Rounds of harm under the load, and the judgement afterwards.

A round does one kind of harm at a random moment and undoes it; then everybody must commit again, and whatever was open
must have ended when its time-out has passed. That is measured: the end of each partition is noted, and how long it
takes until the last stable offset has come so far. After the last round the load ends, what was committed must have
been copied, and everything is read and checked.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from compat_tests.clusters.harness import Cluster, done
from compat_tests.clusters.nodes import KAFKA, NodeFailed
from compat_tests.clusters.replicas import differences
from compat_tests.faults.cluster.checker import distribution
from compat_tests.faults.eos.checker import Findings, check
from compat_tests.faults.eos.load import COPIES, ORIGINALS, TIMEOUT_S, Load, read_committed
from compat_tests.faults.eos.places import (
    ABORT_INTERVAL_S,
    PARTITIONS,
    TRANSACTIONS,
    Alone,
    Place,
    Together,
    internal_partition,
    start,
)
from compat_tests.harness.brokers import BrokerFailed

COMMIT_S = 180
"""By then, on a busy machine, every writer must have committed again after the harm was undone."""
HANGS_S = TIMEOUT_S + ABORT_INTERVAL_S + 120
"""An open transaction must have ended: its time-out, the interval of the look-out, and a slow machine."""


@dataclass
class Round:
    """One round as it went; seconds."""

    kind: str
    text: str
    commits_after_s: float = 0
    stable_after_s: float = 0


@dataclass
class Report:
    """What a run found."""

    place: str
    seed: int
    rounds: list[Round] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    errors: list[str] = field(default_factory=list)
    clients: dict[str, int] = field(default_factory=dict)
    seconds: float = 0

    @property
    def good(self) -> bool:
        """Nothing went wrong."""
        return self.findings.good and not self.errors

    def __str__(self) -> str:
        lines = [
            f"{self.place}; seed {self.seed}; {len(self.rounds)} rounds, {self.seconds:.0f} s",
            f"checker: {self.findings}",
            "clients: " + ", ".join(f"{count} {name}" for name, count in sorted(self.clients.items())),
        ]
        lines += [f"error: {text}" for text in self.errors]
        kinds: dict[str, list[Round]] = defaultdict(list)
        for one in self.rounds:
            kinds[one.kind].append(one)
        lines.append("after the harm was undone: everybody has committed again | what was open has ended:")
        for kind, rounds in sorted(kinds.items()):
            commits = distribution([one.commits_after_s for one in rounds])
            lines.append(f"  {kind}: {commits} | {distribution([one.stable_after_s for one in rounds])}")
        return "\n".join(lines)


class Harm:
    """The kinds of harm. Each undoes what it did, and returns what it was."""

    def __init__(self, place: Place, load: Load, rng: random.Random) -> None:
        self.place = place
        self.load = load
        self.rng = rng

    # One broker alone

    def _alone(self) -> Alone:
        assert isinstance(self.place, Alone)
        return self.place

    def kill(self) -> str:
        """kill -9 and start."""
        server = self._alone().server
        server.kill()
        down_s = self.rng.choice((0, 0, self.rng.uniform(0, 12)))
        time.sleep(down_s)
        server.start()
        return f"kill -9, down for {down_s:.1f} s"

    def kill_again(self) -> str:
        """kill -9, and again while it starts or has just started."""
        server = self._alone().server
        server.kill()
        server.start()
        pause_s = self.rng.uniform(0, 1.5)
        time.sleep(pause_s)
        server.kill()
        server.start()
        return f"kill -9 twice, {pause_s:.2f} s after it was open"

    # Several

    def _together(self) -> Together:
        assert isinstance(self.place, Together)
        return self.place

    def _victim(self, number: int, what: str) -> str:
        """kill -9 of one; it comes back after its session has ended, or at once."""
        cluster = self._together().cluster
        node = cluster.nodes[number]
        node.kill()
        waits = self.rng.random() < 0.7 or node.kind == KAFKA
        if waits:
            cluster.wait_gone(number)
            time.sleep(self.rng.uniform(0, 3))
        cluster.start_node(number)
        return f"kill -9 of {node}, {what}, {'back after its session' if waits else 'back at once'}"

    def _some_id(self) -> str:
        return self.rng.choice([*self.load.writer_ids, *self.load.copier_ids])

    def kill_transaction_coordinator(self) -> str:
        name = self._some_id()
        return self._victim(self._together().transaction_coordinator(name), f"coordinator of {name}")

    def kill_group_coordinator(self) -> str:
        return self._victim(self._together().group_coordinator(), "coordinator of the copiers")

    def kill_leader(self) -> str:
        topic, index = self.rng.choice((ORIGINALS, COPIES)), self.rng.randrange(PARTITIONS)
        return self._victim(self._together().leader(topic, index), f"leader of {topic}-{index}")

    def kill_controller(self) -> str:
        return self._victim(self._together().cluster.controller(), "controller")

    def kill_all(self) -> str:
        """kill -9 of every broker at once."""
        cluster = self._together().cluster
        for node in cluster.nodes.values():
            node.kill()
        for number in self.rng.sample(list(cluster.nodes), len(cluster.nodes)):
            cluster.start_node(number, wait=False)
        return "kill -9 of all"

    def pause_transaction_coordinator(self) -> str:
        """SIGSTOP until others have taken over, then SIGCONT: it believes that it coordinates."""
        place, name = self._together(), self._some_id()
        number = place.transaction_coordinator(name)
        node = place.cluster.nodes[number]
        node.pause()
        try:
            place.cluster.wait_gone(number)
            time.sleep(self.rng.uniform(0, 4))
        finally:
            node.resume()
        return f"SIGSTOP of {node}, coordinator of {name}, for longer than its session"

    def restart_transaction_coordinator(self) -> str:
        """A controlled shutdown hands its partitions over."""
        place, name = self._together(), self._some_id()
        number = place.transaction_coordinator(name)
        node = place.cluster.nodes[number]
        status = node.stop()
        if status not in (0, 143):
            raise NodeFailed(f"{node} stopped with {status}\n{node.log_tail()}")
        place.cluster.start_node(number)
        return f"restart of {node}, coordinator of {name}"

    def hand_over(self) -> str:
        """kill -9 of a coordinator whose successor is of the other kind; of the one kind and of the other by turns."""
        place = self._together()
        cluster = place.cluster
        name, number, heir = "", -1, -1
        names = [*self.load.writer_ids, *self.load.copier_ids]
        for name in self.rng.sample(names, len(names)):
            index = internal_partition(name)
            number, found = place.leader(TRANSACTIONS, index), place.successor(index)
            heir = -1 if found is None else found
            if heir > 0 and cluster.nodes[number].kind != cluster.nodes[heir].kind:
                break
        else:
            return self._victim(number, f"coordinator of {name}; no heir of the other kind")
        index = internal_partition(name)
        cluster.nodes[number].kill()
        cluster.wait(
            lambda: cluster.leader(TRANSACTIONS, index) not in (-1, number), f"another leads {TRANSACTIONS}-{index}"
        )
        # The heir, unless it stood still just then and had fallen behind.
        heir = cluster.leader(TRANSACTIONS, index)
        begun = time.monotonic()
        while self.load.committed_at.get(name, 0) < begun:
            # A copier may have nothing to do while the other has all partitions.
            if name in self.load.copier_ids and time.monotonic() > begun + 15:
                break
            if time.monotonic() > begun + COMMIT_S:
                raise NodeFailed(f"{name} does not commit with {cluster.nodes[heir]}\n{cluster.logs()}")
            time.sleep(0.1)
        cluster.start_node(number)
        return f"{name} from {cluster.nodes[number]} to {cluster.nodes[heir]}"


KINDS: dict[str, Callable[[Harm], str]] = {
    "kill transaction coordinator": Harm.kill_transaction_coordinator,
    "kill partition leader": Harm.kill_leader,
    "kill group coordinator": Harm.kill_group_coordinator,
    "pause transaction coordinator": Harm.pause_transaction_coordinator,
    "kill controller": Harm.kill_controller,
    "restart transaction coordinator": Harm.restart_transaction_coordinator,
    "kill all": Harm.kill_all,
}
ALONE_KINDS: dict[str, Callable[[Harm], str]] = {"kill": Harm.kill, "kill again": Harm.kill_again}
MIXED_KINDS: dict[str, Callable[[Harm], str]] = {"hand over": Harm.hand_over, **KINDS}


def kinds_of(place: str) -> dict[str, Callable[[Harm], str]]:
    """What can be done to a place."""
    if place.endswith("alone"):
        return ALONE_KINDS
    return MIXED_KINDS if place == "mixed" else KINDS


def run(
    directory: Path,
    place: str,
    rounds: int,
    *,
    kinds: Sequence[str] = (),
    seed: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run so many rounds, each of *kinds* (parts of names; default: all of the place) as often as the others.

    Whatever goes wrong is in the report; raises NodeFailed or BrokerFailed only when the place does not start.
    """
    rng = random.Random(seed)
    report = Report(place, seed)
    chosen = {name: harm for name, harm in kinds_of(place).items() if not kinds or any(part in name for part in kinds)}
    assert chosen, f"no kind has one of {list(kinds)} in its name"
    begun = time.monotonic()
    there = start(place, directory)
    try:
        there.begin()
        load = Load(there.bootstrap, PARTITIONS, seed=seed)
        harm = Harm(there, load, rng)
        load.start()
        deck: list[str] = []
        try:
            _commits(there, load)
            for _ in range(rounds):
                deck = deck or rng.sample(list(chosen), len(chosen))
                name = deck.pop(0)
                time.sleep(rng.uniform(0, 3))
                _round(there, load, Round(name, chosen[name](harm)), report, say)
        except (NodeFailed, BrokerFailed, OSError) as error:
            report.errors.append(f"round {len(report.rounds) + 1}: {error}")
            _rescue(there)
        _judge(there, load, report)
    finally:
        there.close()
    report.seconds = time.monotonic() - begun
    return report


def _round(there: Place, load: Load, one: Round, report: Report, say: Callable[[str], None]) -> None:
    """What must hold after the harm."""
    if isinstance(there, Together):
        there.cluster.wait_healthy()
    one.commits_after_s = _commits(there, load)
    one.stable_after_s = _stable(there)
    report.rounds.append(one)
    say(
        f"round {len(report.rounds)}: {one.text}; commits after {one.commits_after_s:.1f} s, "
        f"nothing open after {one.stable_after_s:.1f} s"
    )


def _commits(there: Place, load: Load) -> float:
    begun = time.monotonic()
    took = load.wait_commits(COMMIT_S)
    if took is None:
        raise NodeFailed(
            f"{load.silent_since(begun)} commit nothing in {COMMIT_S} s; {load.errors}\n{load.counts}\n{there.logs()}"
        )
    return took


def _ends(there: Place, isolation: IsolationLevel) -> dict[tuple[str, int], int]:
    """High watermarks, or last stable offsets, of all partitions of both topics."""
    places = [TopicPartition(topic, index) for topic in (ORIGINALS, COPIES) for index in range(PARTITIONS)]
    deadline = time.monotonic() + 120
    while True:
        admin = Cluster.admin_of(there.bootstrap)
        try:
            told = done(
                admin.list_offsets(
                    {place: OffsetSpec.latest() for place in places}, isolation_level=isolation, request_timeout=10
                )
            )
            return {(place.topic, place.partition): result.offset for place, result in told.items()}
        except KafkaException:
            # The leader has just moved.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _stable(there: Place) -> float:
    """Seconds until everything that is open now has ended. Raises NodeFailed when it does not in time."""
    ends = _ends(there, IsolationLevel.READ_UNCOMMITTED)
    begun = time.monotonic()
    while True:
        stable = _ends(there, IsolationLevel.READ_COMMITTED)
        open_ = {place: (stable[place], end) for place, end in ends.items() if stable[place] < end}
        if not open_:
            return time.monotonic() - begun
        if time.monotonic() > begun + HANGS_S:
            raise NodeFailed(f"open for {HANGS_S} s (last stable offset, high watermark): {open_}\n{there.logs()}")
        time.sleep(0.1)


def _rescue(there: Place) -> None:
    """Undo all harm as well as possible, so that what is there can still be judged."""
    if isinstance(there, Alone):
        there.server.kill()
        there.server.start()
        return
    for number, node in there.cluster.nodes.items():
        if node.alive:
            node.resume()
        else:
            there.cluster.start_node(number, wait=False)


def _judge(there: Place, load: Load, report: Report) -> None:
    """End the load and look at everything that is there."""
    load.stop()
    try:
        _stable(there)
    except NodeFailed as hangs:
        report.errors.append(f"after the load: {hangs}")
    load.finish()
    report.errors += load.errors
    found = {}
    for topic in (ORIGINALS, COPIES):
        found[topic], errors = read_committed(there.bootstrap, topic, PARTITIONS)
        report.errors += errors
    seen = {"originals": load.seen[ORIGINALS], "copies": load.seen[COPIES]}
    report.findings = check(load.txns, found[ORIGINALS], found[COPIES], seen)
    report.clients = dict(load.counts)
    if isinstance(there, Together) and not report.errors:
        there.cluster.wait_healthy()
        for topic in (ORIGINALS, COPIES, TRANSACTIONS):
            report.errors += differences(there.cluster, topic)
