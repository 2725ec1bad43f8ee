"""Brokers under test as child processes: ours (`python -m barnabas dev --port 0`) and Apache Kafka 4.3.1 (one node).

A started broker writes into a directory of the caller's (log file, data) and is ended by its own pid: TERM, and KILL
when it has not gone after 60 s. Sizes are bytes, times seconds.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.harness.jars import PROJECT_ROOT, classpath, java
from compat_tests.harness.ports import free_ports

START_TIMEOUT_S = 400
QUICK = (
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "offsets.retention.check.interval.ms=86400000",
)
"""Settings for cases: they do not wait for long until the broker looks for transactions that are too old; it does not
look for old offsets, and so delete an empty group, just between two steps of a case.
"""
STOP_TIMEOUT_S = 60
KAFKA_VERSION = "4.3.1"
KAFKA_JARS = f"kafka-{KAFKA_VERSION}"
# What Apache Kafka's own start script gives the JVM, with a heap that fits a shared machine.
KAFKA_JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class BrokerFailed(Exception):
    """The broker did not start; the message holds the end of its log."""


@dataclass
class Broker:
    """A broker to talk to. *process* and *log* are None for one we did not start."""

    bootstrap: str
    name: str
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the (first) bootstrap address."""
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        return host, int(port)

    def log_tail(self, size: int = 4000) -> str:
        """Return the end of the broker's log."""
        if self.log is None or not self.log.exists():
            return ""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def stop(self) -> None:
        """End the process we started, if any; waits until it is gone."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)


def start_barnabas(
    directory: Path,
    settings: Sequence[str] = (),
    command: Sequence[str] | None = None,
    checkout: Path = PROJECT_ROOT,
    more: Sequence[str] = (),
) -> Broker:
    """Start our broker on a port of its choice. *settings* are `key=value` texts, *more* are further arguments of
    `dev`. Raises BrokerFailed.

    The command is `python -m barnabas dev` from *checkout*; BARNABAS_COMMAND (split at blanks) or *command* replaces
    `python -m barnabas`, to test an installed one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "barnabas.log"
    given = os.environ.get("BARNABAS_COMMAND", "").split()
    program = list(command or given or [sys.executable, "-P", "-m", "barnabas"])
    arguments = [*program, "dev", "--port", "0"]
    for setting in settings:
        arguments += ["--set", setting]
    arguments += more
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"}
    # Where Python may not keep its bytecode, half of a start is compiling; an installed broker has it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    broker = Broker("", "Barnabas", process, log)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("bootstrap="):
                broker.bootstrap = line.split()[0].removeprefix("bootstrap=")
                return broker
        if process.poll() is not None:
            break
        time.sleep(0.01)
    broker.stop()
    raise BrokerFailed(
        f"{' '.join(arguments)} gave no `bootstrap=` line (exit {process.returncode}):\n{broker.log_tail()}"
    )


def start_kafka(
    directory: Path,
    settings: Sequence[str] = (),
    *,
    heap: str = "512m",
    wait: bool = True,
    java_options: Sequence[str] = (),
    classes: str = "",
) -> Broker:
    """Start Apache Kafka 4.3.1, one KRaft node with fresh data in *directory*. *classes* is a directory of plug-ins.
    Raises BrokerFailed, ToolMissing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_ports(2)
    properties = directory / "server.properties"
    properties.write_text(_kraft_properties(port, controller_port, directory / "data", settings))
    log = directory / "kafka.log"
    jars = classpath(KAFKA_JARS)
    path = f"{classes}:{jars}" if classes else jars
    options = [*KAFKA_JAVA_OPTIONS, *java_options]
    if not (directory / "data" / "meta.properties").exists():
        formatted = subprocess.run(
            [
                *java(),
                "-XX:TieredStopAtLevel=1",
                "-cp",
                jars,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qk",
                "-c",
                str(properties),
            ],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if formatted.returncode != 0:
            raise BrokerFailed(f"formatting the data directory failed:\n{formatted.stdout}{formatted.stderr}")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*java(), f"-Xms{heap}", f"-Xmx{heap}", *options, "-cp", path, "kafka.Kafka", str(properties)],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    broker = Broker(f"127.0.0.1:{port}", f"Apache Kafka {KAFKA_VERSION}", process, log)
    if wait:
        wait_until_open(broker)
    return broker


def wait_until_open(broker: Broker, timeout: float = START_TIMEOUT_S) -> None:
    """Return when the broker's port accepts a connection. Raises BrokerFailed after *timeout* or when it ends."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            socket.create_connection(broker.address, timeout=1).close()
            return
        except OSError:
            pass
        if broker.process is not None and broker.process.poll() is not None:
            break
        time.sleep(0.05)
    broker.stop()
    raise BrokerFailed(f"{broker.name} did not open {broker.bootstrap}:\n{broker.log_tail()}")


def wait_for_groups(bootstrap: str, group: str = "compat-no-group", timeout: float = START_TIMEOUT_S) -> None:
    """Return when the coordinator of this group answers. Raises BrokerFailed.

    Apache Kafka makes `__consumer_offsets` when it is first wanted, and says NOT_COORDINATOR until it has loaded it.
    A librdkafka consumer that hears this when it looks for its offsets does not ask again.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                (found,) = consumer.committed([TopicPartition("no-topic", 0)], 30)
            except KafkaException as refused:
                problem = refused.args[0]
            else:
                problem = found.error
            if problem is None:
                return
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{bootstrap} has no coordinator of group {group}: {problem}")
            time.sleep(0.1)
    finally:
        consumer.close()


def _kraft_properties(port: int, controller_port: int, data: Path, settings: Sequence[str]) -> str:
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        f"log.dirs={data}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
        # A broker that was killed is let in again when its old session has ended.
        "broker.session.timeout.ms=5000",
        "broker.heartbeat.interval.ms=500",
        *QUICK,
        *settings,
    ]
    return "\n".join(lines) + "\n"
