"""What is hurt: one broker alone (ours, or Apache Kafka 4.3.1), or three with ZooKeeper (ours and Apache Kafka 3.9.1).

Both kinds of places have the same settings in the same words: few partitions of the internal topics, so that each
matters, and an abort of what is out of time within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from compat_tests.clusters.harness import Cluster, ask
from compat_tests.clusters.nodes import KAFKA, OURS
from compat_tests.faults.eos.load import COPIES, GROUP, ORIGINALS
from compat_tests.harness.broker_process import Server
from compat_tests.harness.brokers import start_kafka
from compat_tests.harness.restartable import Restartable

PARTITIONS = 3
INTERNAL_PARTITIONS = 5
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ABORT_INTERVAL_S = 1
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(ABORT_INTERVAL_S * 1000),
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
}
ALONE_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
}
MIXED = {
    "ours3": [OURS, OURS, OURS],
    "mixed": [OURS, OURS, KAFKA],
    "kafka3": [KAFKA, KAFKA, KAFKA],
}
PLACES = ("alone", "kafka-alone", *MIXED)


def internal_partition(name: str) -> int:
    """The partition of an internal topic that coordinates a group or a transactional id: Java's hash of the name."""
    found = 0
    for char in name:
        found = (31 * found + ord(char)) & 0xFFFFFFFF
    # Utils.abs: the sign bit is dropped.
    return (found & 0x7FFFFFFF) % INTERNAL_PARTITIONS


class Alone:
    """One broker that keeps its directory and port."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        settings = {**SETTINGS, **ALONE_SETTINGS}
        directory.mkdir(parents=True, exist_ok=True)
        self.server: Server | Restartable
        if kind == OURS:
            self.server = Server(directory, **settings)
            self.server.start()
        else:
            broker = start_kafka(directory, [f"{key}={value}" for key, value in settings.items()], heap="384m")
            assert broker.process is not None
            self.server = Restartable(broker, list(broker.process.args), directory, {}, directory / "data")  # type: ignore[arg-type]

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    def begin(self) -> None:
        """Make the topics."""
        for name in (ORIGINALS, COPIES):
            self._create(NewTopic(name, PARTITIONS, 1))

    def _create(self, topic: NewTopic) -> None:
        had = KafkaError.TOPIC_ALREADY_EXISTS
        ask(lambda: Cluster.admin_of(self.bootstrap), lambda admin: admin.create_topics([topic]), had)

    def close(self) -> None:
        self.server.kill()

    def logs(self) -> str:
        """The end of what it said."""
        log = self.server.log if isinstance(self.server, Server) else self.server.broker.log
        assert log is not None
        return log.read_text(errors="replace")[-4000:]


class Together:
    """Three brokers."""

    def __init__(self, directory: Path, kinds: Sequence[str]) -> None:
        self.cluster = Cluster(directory, kinds, settings=SETTINGS)
        self.cluster.__enter__()

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def begin(self) -> None:
        """Make the topics."""
        for name in (ORIGINALS, COPIES):
            self.cluster.create_topic(name, PARTITIONS, 3, min_insync_replicas=2)

    def close(self) -> None:
        self.cluster.close()

    def logs(self) -> str:
        """The ends of what they said."""
        return self.cluster.logs()

    # Who has which part

    def leader(self, topic: str, index: int) -> int:
        """The leader of a partition; waits for one."""
        cluster = self.cluster
        cluster.wait(lambda: cluster.leader(topic, index) >= 0, f"{topic}-{index} has a leader")
        return cluster.leader(topic, index)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates an id."""
        return self.leader(TRANSACTIONS, internal_partition(transactional_id))

    def group_coordinator(self) -> int:
        """The broker that coordinates the copiers' group."""
        return self.leader(OFFSETS, internal_partition(GROUP))

    def successor(self, index: int) -> int | None:
        """Who will lead a partition of `__transaction_state` when its leader dies: the first other replica in sync."""
        state = self.cluster.tree.state(TRANSACTIONS, index)
        assert state is not None
        replicas = self.cluster.tree.assignment(TRANSACTIONS)[index]
        return next((number for number in replicas if number in state.isr and number != state.leader), None)


Place = Alone | Together


def start(name: str, directory: Path) -> Place:
    """Start one of `PLACES`."""
    if name in MIXED:
        return Together(directory, MIXED[name])
    return Alone(directory, OURS if name == "alone" else KAFKA)
