"""The brokers that are measured: which ones (`Side`), as processes that can be started again (`Server`), and as what
the measures see of them (`Subject`).

All have default settings but for `group.initial.rebalance.delay.ms=0`, replication factors that one broker can have,
and what a row is about. Apache Kafka has a heap of 1 GB and the JVM options of its own start script.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.bench.loads import exchanges, frames
from compat_tests.bench.machine import processes
from compat_tests.clusters.harness import Cluster
from compat_tests.harness.brokers import Broker as Started
from compat_tests.harness.brokers import BrokerFailed, start_kafka
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports

KAFKA, OURS, BEFORE = "kafka", "barnabas", "before"
HEAP = "1g"
HOST = "127.0.0.1"
TIMEOUT_S = 120.0
LED_TIMEOUT_S = 400.0
# What the harness sets for tests is Apache Kafka's default again.
KAFKA_DEFAULTS = (
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=10000",
    "offsets.retention.check.interval.ms=600000",
)


@dataclass(frozen=True)
class Side:
    """One of the two: its name (KAFKA, OURS or BEFORE), and for a broker of ours the interpreter and the checkout."""

    name: str
    python: str = sys.executable
    checkout: Path = PROJECT_ROOT


class Server:
    """A broker on a directory of its own that can be stopped, killed and started again. `settings`: `key=value`.
    `bootstrap`: HOST:PORT of the plain listener, where the settings name one.
    """

    def __init__(self, side: Side, directory: Path, settings: Sequence[str] = (), bootstrap: str = "") -> None:
        self.side = side
        self.data = directory / "data"
        self._directory = directory
        self._settings = settings
        self._given = bootstrap
        self._started: Started | None = None
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        if side.name == KAFKA:
            start_kafka(directory, settings, heap=HEAP, wait=False).stop()  # formats its directory
        else:
            self._listener = bootstrap or f"{HOST}:{free_ports(1)[0]}"

    def start(self) -> float:
        """Start it; the seconds until it answered a first request. Raises BrokerFailed."""
        begun = time.perf_counter()
        if self.side.name == KAFKA:
            settings = (*KAFKA_DEFAULTS, *self._settings)
            self._started = start_kafka(self._directory, settings, heap=HEAP, wait=False)
            self._started.bootstrap = self._given or self._started.bootstrap
        else:
            self._started = self._start_ours()
        while True:
            try:
                with exchanges.trying(self.address) as broker:
                    broker.ask(frames.api_versions())
                return time.perf_counter() - begun
            except OSError:
                if self.process.poll() is not None or time.perf_counter() - begun > TIMEOUT_S:
                    raise BrokerFailed(f"{self.side.name} does not answer: {self.log_tail()}") from None
                time.sleep(0.005)

    def _start_ours(self) -> Started:
        chosen = [
            f"listeners=PLAINTEXT://{self._listener}",
            f"log.dirs={self.data}",
            "group.initial.rebalance.delay.ms=0",
            *self._settings,
        ]
        arguments = [self.side.python, "-P", "-m", "barnabas", "serve", "--no-env"]
        arguments += [word for setting in chosen for word in ("--set", setting)]
        environment = {**os.environ, "PYTHONPATH": str(self.side.checkout)}
        # Where Python may not keep its bytecode, half of a start is compiling; an installed broker has it.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        log = self._directory / "barnabas.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                arguments,
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Started(self._listener, "Barnabas", process, log)

    @property
    def started(self) -> Started:
        """Its process, address and log."""
        assert self._started is not None
        return self._started

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Its process."""
        assert self.started.process is not None
        return self.started.process

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the plain listener; Apache Kafka's changes with each start."""
        return self.started.bootstrap

    @property
    def address(self) -> tuple[str, int]:
        """The same as host and port."""
        return self.started.address

    def log_tail(self) -> str:
        """The end of what it said."""
        return self.started.log_tail()

    def stop(self) -> None:
        """Stop it in order."""
        if self._started is not None:
            self._started.stop()

    def kill(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@dataclass
class Subject:
    """A broker, or several, being measured. `bootstrap`: for what makes topics; `clients`: for measured clients, where
    that is another listener; `java`, `librdkafka`: what these are told besides. `pids`: the processes now.
    """

    side: Side
    bootstrap: str
    pids: Callable[[], list[int]]
    stop: Callable[[], None]
    clients: str = ""
    java: Sequence[str] = ()
    librdkafka: Mapping[str, str] = field(default_factory=dict)
    replication: int = 1
    server: Server | None = None
    cluster: Cluster | None = None
    topics: dict[str, str] = field(default_factory=dict)
    """Topics that a measure fills once and reads in each round, by what they hold."""

    @classmethod
    def of(cls, server: Server) -> Subject:
        """One that has been started."""
        return cls(server.side, server.bootstrap, lambda: [server.process.pid], server.stop, server=server)

    def __post_init__(self) -> None:
        self.clients = self.clients or self.bootstrap
        # Kept by who waits for an answer; one for all, as each has threads of its own.
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    @property
    def admin(self) -> AdminClient:
        """A client that administers."""
        return self._admin

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first broker's plain listener."""
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        return host, int(port)

    def leaders(self, topic: str, partitions: int) -> list[tuple[str, int]]:
        """Host and port of the leader of each partition. Of several brokers the one that is asked may not know yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self._admin.list_topics(topic, timeout=60)
            known = found.topics[topic].partitions
            if len(known) == partitions and all(one.leader in found.brokers for one in known.values()):
                brokers = [found.brokers[known[index].leader] for index in range(partitions)]
                return [(broker.host, broker.port) for broker in brokers]
            assert time.monotonic() < deadline, f"the leaders of {topic} are not known"
            time.sleep(0.05)

    def new_topic(self, partitions: int, **config: str) -> str:
        """Create a topic and wait until it is led. `config`: topic settings, `_` for `.`."""
        name = f"bench-{secrets.token_hex(4)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, self.replication, config=settings)
        self._changed(lambda: self._admin.create_topics([topic])[name])
        self.wait_led(name, partitions)
        return name

    def wait_led(self, topic: str, partitions: int) -> None:
        """Return when every partition has said where it ends. That it has a leader by the metadata is not enough: who
        writes to Apache Kafka before the log is there may have its first batch refused and its second one taken, and
        is told OUT_OF_ORDER_SEQUENCE_NUMBER for ever after.
        """
        deadline = time.monotonic() + LED_TIMEOUT_S
        while not self._is_led(topic, partitions):
            assert time.monotonic() < deadline, f"{topic} is not led"
            time.sleep(0.05)

    def _is_led(self, topic: str, partitions: int) -> bool:
        # Asked by hand: librdkafka's admin client (2.16) may keep, for five minutes, that a new topic is unknown.
        led: dict[tuple[str, int], list[int]] = {}
        for index, address in enumerate(self.leaders(topic, partitions)):
            led.setdefault(address, []).append(index)
        for address, indexes in led.items():
            with exchanges.trying(address) as leader:
                if not leader.leads(topic, indexes):
                    return False
        return True

    def delete_topic(self, name: str) -> None:
        """Delete a topic, to free the disk."""
        self._changed(lambda: self._admin.delete_topics([name])[name])

    def _changed(self, ask: Callable[[], Future[None]]) -> None:
        """Return when it is done. A client knows for minutes who was controller of a cluster; a new one asks."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                ask().result(90)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                self._admin = self._new_admin()
            else:
                return

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A topic for one measure."""
        name = self.new_topic(partitions)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def cpu_seconds(self) -> float:
        """CPU time of the broker's processes so far."""
        return sum(map(processes.cpu_seconds, self.pids()))

    def resident_mb(self) -> float:
        """Their resident memory."""
        return sum(map(processes.resident_bytes, self.pids())) / 1e6


def ready(subject: Subject) -> None:
    """Wait until the topics of the coordinators are there: librdkafka (2.16) asks for a coordinator three times in
    0.3 s, and waits for ever in send_offsets_to_transaction when there is none yet.
    """
    with exchanges.trying(subject.address) as broker:
        broker.coordinators("bench")
