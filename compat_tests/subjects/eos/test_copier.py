"""Two of Apache Kafka's TransactionalMessageCopier in one group copy a topic while they and the broker are killed: in
the output is the input, each record once and in order, at the end and at any moment for a reader with read_committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from compat_tests.clusters.nodes import KAFKA_ZK_JARS
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.copiers import Copier
from compat_tests.subjects.eos.readers import Seen, Watcher, administrator, committed, nothing_open, whole

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(3600)]

INPUT, OUTPUT, GROUP = "input", "output", "copiers"
PARTITIONS = 2
PER_TRANSACTION = 60
LEFT_TO_COPY = 1500
"""So many records of each partition are at least to be copied when somebody is killed."""
TRANSACTION_TIMEOUT_MS = 120_000
"""Longer than the broker is away, or the copiers that live would be fenced."""
LONGEST_BEFORE_KILL_S = 0.5
PATIENCE_S = 300


def value(partition: int, number: int) -> bytes:
    """The record *number* of a partition of the input."""
    return b"%d:%06d" % (partition, number)


@dataclass
class Work:
    """The input as far as it was written, the two copiers, and who looks on."""

    broker: Restartable
    copiers: list[Copier]
    watcher: Watcher
    written: int = 0
    kills: dict[str, int] = field(default_factory=lambda: {"copier": 0, "broker": 0})

    def write(self, count: int) -> None:
        """Add so many records to each partition of the input."""
        failures: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        for number in range(self.written, self.written + count):
            for partition in range(PARTITIONS):
                producer.produce(
                    INPUT,
                    value(partition, number),
                    b"%d" % number,
                    partition,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            producer.poll(0)
        assert producer.flush(120) == 0
        assert not failures, failures[:3]
        self.written += count

    def keep_going(self) -> None:
        """Add to the input if little of it is left; start the copiers that have ended. Raises what went wrong."""
        copied = [len(seen) for seen in self.watcher.seen]
        if min(copied) + LEFT_TO_COPY > self.written:
            self.write(2 * LEFT_TO_COPY)
        self.keep_copying()

    def keep_copying(self) -> None:
        """Start the copiers that have ended. Raises what went wrong."""
        self.watcher.fail_if_wrong()
        for copier in self.copiers:
            if not copier.runs():
                copier.start()

    def until(self, done: Callable[[], bool], what: str, keep: Callable[[], None]) -> None:
        """Wait for *done*, with copiers always running."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}; {self.state()}"
            keep()
            time.sleep(0.02)

    def state(self) -> str:
        """How far it is, for a message."""
        copied = [len(seen) for seen in self.watcher.seen]
        return f"{copied} of {self.written} per partition are copied; kills {self.kills}"


@contextmanager
def working(broker: Restartable, kinds: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Work]:
    """Topics, copiers of these versions with these options, and a watcher that compares what it sees with the input."""
    admin = administrator(broker.bootstrap)
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]).values():
        made.result(60)
    shared = ("--input-topic", INPUT, "--output-topic", OUTPUT, "--consumer-group", GROUP)
    limits = ("--transaction-timeout", str(TRANSACTION_TIMEOUT_MS), "--transaction-size", str(PER_TRANSACTION))
    copiers = [
        Copier(broker.bootstrap, f"copier-{number}", jars, [*shared, *limits, "--enable-random-aborts", *own])
        for number, (jars, own) in enumerate(kinds)
    ]

    def check(partition: int, before: Sequence[Seen], record: Seen) -> None:
        number = len(before)
        expected = value(partition, number)
        assert record.value == expected, (
            f"{record} in partition {partition} is not {expected!r}, the one after {before[-3:]}"
        )

    work = Work(broker, copiers, Watcher(broker.bootstrap, OUTPUT, PARTITIONS, check))
    try:
        work.write(2 * LEFT_TO_COPY)
        yield work
    finally:
        work.watcher.stop()
        for copier in copiers:
            copier.kill()


def fence(bootstrap: str, transactional_id: str) -> None:
    """End what a killed copier left open, as an application does that starts with its transactions.

    The copier asks for its position first, if it has a partition of its own, and gets no answer while the offset is
    part of an open transaction: it would wait until that times out.
    """
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    Producer(settings).init_transactions(120)


def copy_with_kills(work: Work, chance: random.Random, kills: Sequence[str], *, end_transactions: bool) -> None:
    """Kill whoever *kills* names, one after the other, each at a random moment after the output has grown; then let the
    rest be copied and look at everything.
    """
    for whom in kills:
        seen = work.watcher.total()
        victim = chance.choice(work.copiers)
        work.until(
            lambda seen=seen, victim=victim: work.watcher.total() > seen and victim.copied() > 0,  # type: ignore[misc]
            f"{victim.transactional_id} copies something before the next kill ({whom})",
            work.keep_going,
        )
        time.sleep(chance.uniform(0, LONGEST_BEFORE_KILL_S))
        if whom == "broker":
            work.broker.kill()
            time.sleep(chance.uniform(0, 0.5))
            work.broker.start()
        else:
            victim.kill()
            if end_transactions:
                fence(work.broker.bootstrap, victim.transactional_id)
        work.kills[whom] += 1
    everything = PARTITIONS * work.written
    work.until(lambda: work.watcher.total() >= everything, "all is copied", work.keep_copying)
    bootstrap = work.broker.bootstrap
    # A transaction may be open behind the last record: with nothing in it, or to be aborted.
    work.until(lambda: nothing_open(bootstrap, OUTPUT, PARTITIONS), "no transaction is open", work.keep_copying)
    work.until(
        lambda: committed(bootstrap, GROUP, INPUT, PARTITIONS) == [work.written] * PARTITIONS,
        "the offsets that the group has committed are the ends of the input",
        work.keep_copying,
    )
    work.watcher.stop()
    assert work.watcher.total() == everything
    assert whole(bootstrap, OUTPUT, PARTITIONS) == work.watcher.seen
    every = whole(bootstrap, OUTPUT, PARTITIONS, "read_uncommitted")
    aborted = sum(map(len, every)) - everything
    print(f"{work.state()}; {aborted} records aborted; starts {[copier.starts for copier in work.copiers]}")
    assert aborted > 0, "no transaction was aborted: the test has not tested anything"
    for partition, seen in enumerate(work.watcher.seen):
        assert set(seen) <= set(every[partition])


def chosen_kills(config: pytest.Config, chance: random.Random, default: Sequence[str]) -> list[str]:
    """Whom to kill: *default*, or as many as `--rounds` says, one of five the broker."""
    rounds = config.getoption("--rounds")
    if not rounds:
        return list(default)
    return [*default, *(("broker" if chance.random() < 0.2 else "copier") for _ in range(rounds))][:rounds]


@pytest.mark.case(
    "exactly once", "TransactionalMessageCopier: a partition each, killed, and the broker", client="copier"
)
def test_a_partition_each(restartable: Restartable, chance: random.Random, pytestconfig: pytest.Config) -> None:
    # Offsets go to the coordinator without member and generation, as the first transactional clients sent them; and one
    # of the two speaks the protocol of before KIP-890: the partitions announced, the same epoch in all transactions.
    kinds = [(KAFKA_JARS, ("--input-partition", "0")), (KAFKA_ZK_JARS, ("--input-partition", "1"))]
    kills = chosen_kills(pytestconfig, chance, ["copier", "broker", "copier"])
    with working(restartable, kinds) as work:
        copy_with_kills(work, chance, kills, end_transactions=True)


@pytest.mark.case(
    "exactly once", "TransactionalMessageCopier: members of a group, killed, and the broker", client="copier"
)
def test_members_of_a_group(restartable: Restartable, chance: random.Random, pytestconfig: pytest.Config) -> None:
    kinds = [(KAFKA_JARS, ("--input-partition", "-1", "--group-mode", "--use-group-metadata"))] * PARTITIONS
    kills = chosen_kills(pytestconfig, chance, ["copier", "broker"])
    with working(restartable, kinds) as work:
        copy_with_kills(work, chance, kills, end_transactions=False)
