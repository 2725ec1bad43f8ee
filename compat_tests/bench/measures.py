"""The measures: each runs one client program against one broker and returns its values and the broker's CPU time."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.bench import frames, processes
from compat_tests.bench.report import BEFORE, KAFKA
from compat_tests.harness.brokers import KAFKA_JARS, Broker, start_barnabas, start_kafka
from compat_tests.harness.jars import PROJECT_ROOT, classpath, java
from compat_tests.harness.processes import run

GIB = 1 << 30
RECORD_BYTES = 1024
# The clients get a fixed heap and the JVM's default collector for servers, as the scripts of Apache Kafka give them.
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
PRODUCE_LINE = re.compile(r"(\d+) records sent, .*?\((\d+\.\d+) MB/sec\).* (\d+) ms 99th")
CLIENT_TIMEOUT_S = 900


@dataclass(frozen=True)
class Scale:
    """How much work: records for the throughput measures, seconds for the others."""

    records: int = 1_000_000
    seconds: int = 10
    warm_up_records: int = 300_000
    connections: int = 64

    @property
    def text(self) -> str:
        """For the heading."""
        return f"{self.records:,} records of 1 KiB"

    @classmethod
    def quick(cls) -> Scale:
        """A run of minutes whose numbers only show that everything works."""
        return cls(records=200_000, seconds=3, warm_up_records=100_000)


@dataclass
class Subject:
    """A broker being measured; *topics* are those it holds for the consuming measures. *clients*: where the measured
    clients connect, empty for the broker's address; *command_config*, *librdkafka*: what they are told besides.
    """

    broker: Broker
    scale: Scale
    topics: dict[str, str] = field(default_factory=dict)
    clients: str = ""
    command_config: Path | None = None
    librdkafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self.broker.process is not None
        return self.broker.process.pid

    def new_topic(self, partitions: int) -> str:
        """Create a topic and wait until it has its leaders."""
        name = f"bench-{secrets.token_hex(4)}"
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        deadline = time.monotonic() + 30
        while len(admin.list_topics(name, timeout=30).topics[name].partitions) != partitions:
            assert time.monotonic() < deadline, f"{name} did not appear"
            time.sleep(0.05)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, to free the disk."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})
        admin.delete_topics([name])[name].result(30)

    @contextmanager
    def charged(self, values: dict[str, float], gib: float) -> Iterator[None]:
        """Add the broker's CPU seconds per GiB of the work inside."""
        before = processes.cpu_seconds(self.pid)
        yield
        values["cpu_s_per_gib"] = (processes.cpu_seconds(self.pid) - before) / gib

    def java(self, main_class: str, *arguments: str) -> str:
        """Run one of Apache Kafka's tools; return what it printed."""
        command = [java(), *JAVA_OPTIONS, "-cp", classpath(KAFKA_JARS), f"org.apache.kafka.tools.{main_class}"]
        command += ["--bootstrap-server", self.clients or self.broker.bootstrap, *arguments]
        if self.command_config is not None:
            command += ["--command-config", str(self.command_config)]
        return run(command, timeout=CLIENT_TIMEOUT_S).stdout.decode()

    def confluent(self, action: str, topic: str, number: int) -> dict[str, float]:
        """Run the client program of librdkafka."""
        given = json.dumps(dict(self.librdkafka))
        return self.python("librdkafka", action, self.clients or self.broker.bootstrap, topic, number, given)

    def python(self, module: str, *arguments: object) -> dict[str, float]:
        """Run a client program of this package; return its JSON."""
        command = [sys.executable, "-m", f"compat_tests.bench.{module}", *map(str, arguments)]
        environment = {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"}
        done = run(command, environment=environment, timeout=CLIENT_TIMEOUT_S)
        return dict(json.loads(done.stdout))


def java_produce(subject: Subject, partitions: int, records: int, *properties: str) -> tuple[str, dict[str, float]]:
    """Fill a new topic with the Java producer; return the topic, MB/s and the 99th percentile of its latency."""
    topic = subject.new_topic(partitions)
    values: dict[str, float] = {}
    extra = ("--command-property", *properties) if properties else ()
    with subject.charged(values, records * RECORD_BYTES / GIB):
        text = subject.java(
            *("ProducerPerformance", "--topic", topic, "--num-records", str(records)),
            *("--record-size", str(RECORD_BYTES), "--throughput", "-1", *extra),
        )
    found = PRODUCE_LINE.findall(text)[-1]
    assert int(found[0]) == records, text
    # The tool's MB are 1,048,576 bytes.
    return topic, {"mb_per_s": float(found[1]) * 1.048576, "p99_ms": float(found[2]), **values}


def java_consume(subject: Subject, topic: str, records: int) -> dict[str, float]:
    """Read a topic with the Java consumer; MB/s while fetching, without the time it takes to join its group."""
    values: dict[str, float] = {}
    with subject.charged(values, records * RECORD_BYTES / GIB):
        text = subject.java(
            *("ConsumerPerformance", "--topic", topic, "--num-records", str(records), "--hide-header"),
            *("--group", f"bench-{secrets.token_hex(4)}", "--timeout", "60000"),
        )
    fields = [line.split(", ") for line in text.splitlines() if line.count(", ") >= 9][-1]
    assert int(fields[4]) >= records, text
    return {"mb_per_s": float(fields[8]) * 1.048576, **values}


def produce_one(subject: Subject) -> dict[str, float]:
    """Java producer, one partition, all settings at their defaults."""
    subject.topics["one"], values = java_produce(subject, 1, subject.scale.records)
    return values


def consume_one(subject: Subject) -> dict[str, float]:
    """Java consumer, one partition, all settings at their defaults."""
    values = java_consume(subject, subject.topics["one"], subject.scale.records)
    subject.delete_topic(subject.topics.pop("one"))
    return values


def produce_six(subject: Subject) -> dict[str, float]:
    """Java producer, six partitions, batches of 128 KB, linger 5 ms."""
    subject.topics["six"], values = java_produce(subject, 6, subject.scale.records, "batch.size=131072", "linger.ms=5")
    return values


def consume_six(subject: Subject) -> dict[str, float]:
    """Java consumer, six partitions."""
    values = java_consume(subject, subject.topics["six"], subject.scale.records)
    subject.delete_topic(subject.topics.pop("six"))
    return values


def librdkafka_produce(subject: Subject) -> dict[str, float]:
    """librdkafka's producer, one partition."""
    subject.topics["librdkafka"] = subject.new_topic(1)
    values: dict[str, float] = {}
    with subject.charged(values, subject.scale.records * RECORD_BYTES / GIB):
        found = subject.confluent("produce", subject.topics["librdkafka"], subject.scale.records)
    return {**found, **values}


def librdkafka_consume(subject: Subject) -> dict[str, float]:
    """librdkafka's consumer, one partition."""
    topic = subject.topics.pop("librdkafka")
    values: dict[str, float] = {}
    with subject.charged(values, subject.scale.records * RECORD_BYTES / GIB):
        found = subject.confluent("consume", topic, subject.scale.records)
    subject.delete_topic(topic)
    return {**found, **values}


def small_requests(subject: Subject) -> dict[str, float]:
    """64 connections, one record a request, one request in flight on each, acks=1."""
    topic = subject.new_topic(1)
    host, port = subject.broker.address
    before = processes.cpu_seconds(subject.pid)
    found = subject.python("small_requests", host, port, topic, 1, subject.scale.connections, subject.scale.seconds)
    # The second of warm-up counts for the CPU as for the requests.
    requests = found["requests_per_s"] * (subject.scale.seconds + 1)
    found["cpu_us_per_request"] = (processes.cpu_seconds(subject.pid) - before) / requests * 1e6
    subject.delete_topic(topic)
    return found


def end_to_end(subject: Subject) -> dict[str, float]:
    """1,000 records/s, linger 0, acks=all: from produce() to poll() of another client."""
    topic = subject.new_topic(1)
    found = subject.confluent("latency", topic, subject.scale.seconds)
    subject.delete_topic(topic)
    return found


def memory(subject: Subject) -> dict[str, float]:
    """Resident memory after the work of this round."""
    return {"resident_mb": processes.resident_bytes(subject.pid) / 1e6}


# In the order in which they run: a consuming measure reads what the one before it wrote.
MEASURES: dict[str, Callable[[Subject], dict[str, float]]] = {
    "Java produce, 1 partition, defaults": produce_one,
    "Java consume, 1 partition, defaults": consume_one,
    "Java produce, 6 partitions, 128 KB batches": produce_six,
    "Java consume, 6 partitions": consume_six,
    "librdkafka produce, 1 partition": librdkafka_produce,
    "librdkafka consume, 1 partition": librdkafka_consume,
    "64 one-record producers": small_requests,
    "end to end at 1,000 records/s": end_to_end,
    "memory, loaded": memory,
}


def warm_up(subject: Subject) -> None:
    """Let a just started broker (and its just-in-time compiler, if it has one) see each kind of work once."""
    topic, _ = java_produce(subject, 1, subject.scale.warm_up_records)
    java_consume(subject, topic, subject.scale.warm_up_records)
    subject.delete_topic(topic)
    small_requests(subject)


def start(name: str, directory: Path, before: Path = PROJECT_ROOT, settings: Sequence[str] = ()) -> Broker:
    """Start the broker of that name with fresh data, without waiting for it. *before*: the checkout of that one."""
    shutil.rmtree(directory, ignore_errors=True)
    return start_again(name, directory, before, settings)


def start_again(name: str, directory: Path, before: Path, settings: Sequence[str] = ()) -> Broker:
    """Start it with the data that are there."""
    if name == KAFKA:
        return start_kafka(directory, settings, heap="1g", wait=False)
    return start_barnabas(directory, settings, checkout=before if name == BEFORE else PROJECT_ROOT)


def start_subject(name: str, directory: Path, before: Path, scale: Scale) -> Subject:
    """Start it with fresh data and the settings of `start`."""
    return Subject(start(name, directory, before), scale)


def start_up(name: str, directory: Path, before: Path = PROJECT_ROOT) -> dict[str, float]:
    """Start, time the first answer to ApiVersions, look at the memory after three idle seconds, and stop.

    Apache Kafka's data directory is formatted before; ours is timed from the start of the process as well.
    """
    prepared = start(name, directory, before)
    prepared.stop()
    began = time.perf_counter()
    broker = start_again(name, directory, before)
    try:
        taken = first_answer(broker, began)
        time.sleep(3)
        assert broker.process is not None
        idle = processes.resident_bytes(broker.process.pid) / 1e6
    finally:
        broker.stop()
    return {"first_answer_s": taken, "idle_resident_mb": idle}


def first_answer(broker: Broker, began: float) -> float:
    """Ask for the API versions until there is an answer; return the seconds since *began*."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(broker.address, timeout=10) as connection:
                connection.sendall(frames.api_versions())
                frames.receive_frame(connection)
                return time.perf_counter() - began
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(f"no answer from {broker.bootstrap}: {broker.log_tail()}")
