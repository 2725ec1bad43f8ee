"""Three brokers with ZooKeeper: replication factor 3, acks=all. Apache Kafka 3.9.1 (the last that knows ZooKeeper) and
ours, one cluster after the other in alternating order, on one machine: six JVMs and brokers at once would measure the
scheduler.

Broker CPU is that of the three brokers together. Fail-over: the longest time without an acknowledgement on a partition
whose leader is killed (kill -9) under a steady load; it is made of the ZooKeeper session (6 s here, for both), the
election, and the client's finding out. Moving: the same for a controlled stop. Times are seconds unless named.
"""

from __future__ import annotations

import json
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat_tests.bench import processes
from compat_tests.bench.measures import CLIENT_TIMEOUT_S, GIB, JAVA_OPTIONS, PRODUCE_LINE, RECORD_BYTES, Scale
from compat_tests.bench.report import KAFKA, Results, add
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA as KAFKA_NODE
from compat_tests.clusters.nodes import KAFKA_SERVER_OPTIONS, OURS, KafkaNode
from compat_tests.faults.cluster.load import Load
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import PROJECT_ROOT, classpath, java
from compat_tests.harness.processes import run

HEAP = "512m"
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
SETTINGS = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "30000"}
KILLS = 3


@dataclass
class Subject:
    """A cluster being measured."""

    cluster: Cluster
    scale: Scale

    def new_topic(self, partitions: int) -> str:
        """Create a topic with three replicas and wait for its leaders."""
        name = f"bench-{secrets.token_hex(4)}"
        self.cluster.create_topic(name, partitions, 3, min_insync_replicas=2)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, to free the disks."""
        self.cluster.ask(lambda admin: admin.delete_topics([name]))

    def cpu_seconds(self) -> float:
        """CPU time of the three brokers."""
        return sum(processes.cpu_seconds(node.pid) for node in self.cluster.nodes.values())

    @contextmanager
    def charged(self, values: dict[str, float], records: int) -> Iterator[None]:
        """Add the brokers' CPU seconds per GiB of what is produced inside."""
        before = self.cpu_seconds()
        yield
        values["cpu_s_per_gib"] = (self.cpu_seconds() - before) / (records * RECORD_BYTES / GIB)


def java_produce(
    subject: Subject, partitions: int, records: int, throughput: int, *properties: str
) -> dict[str, float]:
    """Fill a new topic with the Java producer, acks=all: MB/s, percentiles of its latency, CPU."""
    topic = subject.new_topic(partitions)
    values: dict[str, float] = {}
    command = [java(), *JAVA_OPTIONS, "-cp", classpath(KAFKA_JARS), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--bootstrap-server", subject.cluster.bootstrap, "--topic", topic, "--num-records", str(records)]
    command += ["--record-size", str(RECORD_BYTES), "--throughput", str(throughput)]
    command += ["--command-property", "acks=all", *properties]
    with subject.charged(values, records):
        text = run(command, timeout=CLIENT_TIMEOUT_S).stdout.decode()
    subject.delete_topic(topic)
    found = PRODUCE_LINE.findall(text)[-1]
    assert int(found[0]) == records, text
    # The tool's MB are 1,048,576 bytes.
    return {"mb_per_s": float(found[1]) * 1.048576, "p99_ms": float(found[2]), **values}


def produce_one(subject: Subject) -> dict[str, float]:
    """Java producer, one partition, all other settings at their defaults."""
    return java_produce(subject, 1, subject.scale.records, -1)


def produce_six(subject: Subject) -> dict[str, float]:
    """Java producer, six partitions, batches of 128 KB, linger 5 ms."""
    return java_produce(subject, 6, subject.scale.records, -1, "batch.size=131072", "linger.ms=5")


def librdkafka(subject: Subject, kind: str, partitions: int, number: int) -> dict[str, float]:
    """Run one of the librdkafka programs on a new topic."""
    topic = subject.new_topic(partitions)
    command = [
        sys.executable,
        "-m",
        "compat_tests.bench.librdkafka",
        kind,
        subject.cluster.bootstrap,
        topic,
        str(number),
    ]
    environment = {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"}
    found: dict[str, float] = json.loads(run(command, environment=environment, timeout=CLIENT_TIMEOUT_S).stdout)
    subject.delete_topic(topic)
    return found


def librdkafka_produce(subject: Subject) -> dict[str, float]:
    """librdkafka's producer, one partition."""
    values: dict[str, float] = {}
    with subject.charged(values, subject.scale.records):
        values |= librdkafka(subject, "produce", 1, subject.scale.records)
    return values


def end_to_end(subject: Subject) -> dict[str, float]:
    """1,000 records/s, linger 0, acks=all: from produce() to poll() of another client."""
    return librdkafka(subject, "latency", 1, subject.scale.seconds)


def interrupted(subject: Subject, stop: Callable[[int], None]) -> list[float]:
    """Stop the leader of a loaded partition some times; return how long its partitions were silent."""
    topic = subject.new_topic(6)
    load = Load(subject.cluster.bootstrap, topic, 6)
    load.start()
    everything = set(range(6))
    found = []
    try:
        assert load.wait_acknowledged(everything, 60) is not None
        for _ in range(KILLS):
            victim = subject.cluster.leader(topic, 0)
            harmed = subject.cluster.led_by(topic, victim)
            begun, mark = time.monotonic(), len(load.sends)
            stop(victim)
            assert load.wait_acknowledged(everything, 90) is not None, subject.cluster.logs()
            silent = load.silent(begun, mark)
            found += [silent[index] for index in harmed]
            subject.cluster.start_node(victim)
            subject.cluster.wait_healthy()
    finally:
        load.stop()
    subject.delete_topic(topic)
    return found


def fail_over(subject: Subject) -> dict[str, float]:
    """kill -9 of a leader."""

    def kill(number: int) -> None:
        subject.cluster.nodes[number].kill()
        subject.cluster.wait_gone(number)

    silent = interrupted(subject, kill)
    return {"silent_median_s": statistics.median(silent), "silent_max_s": max(silent)}


def controlled_stop(subject: Subject) -> dict[str, float]:
    """TERM to a leader: it hands over first."""
    silent = interrupted(subject, lambda number: void(subject.cluster.nodes[number].stop()))
    return {"silent_median_s": statistics.median(silent), "silent_max_s": max(silent)}


def void(_: object) -> None:
    """Forget a value."""


def memory(subject: Subject) -> dict[str, float]:
    """Resident memory of the three brokers after the work of this round."""
    pids = [node.pid for node in subject.cluster.nodes.values()]
    return {"resident_mb": sum(processes.resident_bytes(pid) for pid in pids) / 1e6}


MEASURES: dict[str, Callable[[Subject], dict[str, float]]] = {
    "RF 3: Java produce acks=all, 1 partition, defaults": produce_one,
    "RF 3: Java produce acks=all, 6 partitions, 128 KB batches": produce_six,
    "RF 3: librdkafka produce acks=all, 1 partition": librdkafka_produce,
    "RF 3: end to end at 1,000 records/s, acks=all": end_to_end,
    "RF 3: memory of three brokers, loaded": memory,
    "RF 3: a leader is stopped": controlled_stop,
    "RF 3: a leader is killed, sessions of 6 s": fail_over,
}


def run_rounds(
    directory: Path,
    names: list[str],
    rounds: int,
    scale: Scale,
    only: str,
    results: Results,
    say: Callable[[str], None],
) -> None:
    """Start each cluster in turn, warm it up, take every measure; stop it."""
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            kinds = [KAFKA_NODE if name == KAFKA else OURS] * 3
            with Cluster(directory / f"{name}-{turn}", kinds, settings=SETTINGS, start=False) as cluster:
                for node in cluster.nodes.values():
                    if isinstance(node, KafkaNode):
                        node.heap, node.options, node.logging = HEAP, KAFKA_SERVER_OPTIONS, QUIET
                    node.start()
                for node in cluster.nodes.values():
                    node.wait_open()
                cluster.wait_registered()
                subject = Subject(cluster, scale)
                java_produce(subject, 6, scale.warm_up_records, -1)
                say(f"three of {name} are warm")
                for title, measure in MEASURES.items():
                    if only in title:
                        values = measure(subject)
                        add(results, title, name, values)
                        shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
                        say(f"round {turn + 1}: {title}: {name}: {shown}")
