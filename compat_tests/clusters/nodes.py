"""One broker of a cluster as a process: ours (`python -m barnabas serve`) or Apache Kafka 3.9.1 in ZooKeeper mode.

Both get the same settings in the same words. A node keeps its directory, address and id over restarts. Ended by its own
pid. Times are seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from compat_tests.harness.jars import PROJECT_ROOT, SHORT_LIVED, classpath, java
from compat_tests.harness.processes import pause

OURS, KAFKA = "ours", "kafka"
KAFKA_ZK_JARS = "kafka-3.9.1"
STARTED = "--- started"
STOP_TIMEOUT_S = 180
OPEN_TIMEOUT_S = 400
DEFAULT_HEAP = "256m"
# Small machines run three of these beside each other: no second tier of compilation, one collector thread.
KAFKA_OPTIONS = (*SHORT_LIVED, "-Xss512k")
# What measurements use instead: what Apache Kafka's own start script gives.
KAFKA_SERVER_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOG4J = "-Dorg.slf4j.simpleLogger."
LOGGING = (
    f"{LOG4J}defaultLogLevel=info",
    f"{LOG4J}showDateTime=true",
    f"{LOG4J}dateTimeFormat=HH:mm:ss.SSS",
    f"{LOG4J}log.org.apache.zookeeper=warn",
    f"{LOG4J}log.kafka.server.KafkaConfig=warn",
    f"{LOG4J}log.org.apache.kafka.common.config=warn",
    f"{LOG4J}log.kafka.log=warn",
)


class NodeFailed(Exception):
    """A broker did not do as asked; the message holds the end of its log."""


class Node:
    """A broker that can be started, stopped, killed, paused, again and again."""

    kind = ""

    def __init__(
        self,
        number: int,
        directory: Path,
        address: tuple[str, int],
        settings: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        self.number = number
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.address = address
        self.settings = {"broker.id": str(number), "log.dirs": str(self.data), **settings}
        self.settings.setdefault("listeners", "PLAINTEXT://{}:{}".format(*address))
        self.prefix = list(prefix)
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False
        directory.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return f"broker {self.number} ({self.kind})"

    @property
    def name(self) -> str:
        """Its name in the network."""
        return f"b{self.number}"

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT`."""
        return "{}:{}".format(*self.address)

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        """The process runs (it may be paused)."""
        return self.process is not None and self.process.poll() is None

    @property
    def accepts(self) -> bool:
        """Each of its listeners accepts a connection."""
        for listener in self.settings["listeners"].split(","):
            host, _, port = listener.partition("://")[2].rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                return False
        return True

    def command(self) -> list[str]:
        """Return its command line; writes what files that needs."""
        raise NotImplementedError

    @property
    def wants_another_start(self) -> bool:
        """It has ended by itself, and only a supervisor is lacking who starts it again, as there is for a service."""
        return False

    def start(self) -> None:
        """Start the process; do not wait for it."""
        assert not self.alive, f"{self} runs already"
        with self.log.open("ab") as output:
            output.write(f"{STARTED} {time.strftime('%H:%M:%S')}\n".encode())
            output.flush()
            self.process = subprocess.Popen(
                [*self.prefix, *self.command()],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.paused = False

    def wait_open(self, timeout: float = OPEN_TIMEOUT_S) -> None:
        """Return when its listeners accept connections. Raises NodeFailed."""
        deadline = time.monotonic() + timeout
        while not self.accepts:
            if self.wants_another_start:
                self.start()
            elif not self.alive:
                raise NodeFailed(f"{self} ended with {self.process and self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"{self} did not open {self.bootstrap} in {timeout} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP: it hangs, its connections stay."""
        pause(self.pid)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.alive:
            os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Ask it to stop (a controlled shutdown) and return its exit status. Raises NodeFailed when it does not."""
        if self.process is None:
            return 0
        if self.alive:
            if self.paused:
                self.resume()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired as late:
                self.process.kill()
                self.process.wait(60)
                raise NodeFailed(f"{self} had not stopped after {timeout} s:\n{self.log_tail()}") from late
        return self.process.returncode

    def wipe(self) -> None:
        """Lose its disk."""
        assert not self.alive
        shutil.rmtree(self.data)

    def log_text(self) -> str:
        """Everything it said."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, size: int = 5000) -> str:
        """The end of what it said."""
        return self.log_text()[-size:]


class OurNode(Node):
    """`python -m barnabas serve`, or what BARNABAS_COMMAND (split at blanks) names instead of `python -m barnabas`."""

    kind = OURS

    def command(self) -> list[str]:
        program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
        arguments = [*program, "serve"]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments


class KafkaNode(Node):
    """Apache Kafka 3.9.1. *heap* and *options* may be changed before it starts."""

    kind = KAFKA
    jars = KAFKA_ZK_JARS
    heap = DEFAULT_HEAP
    options: Sequence[str] = KAFKA_OPTIONS
    logging: Sequence[str] = LOGGING

    @property
    def wants_another_start(self) -> bool:
        """Apache Kafka gives up, with status 1, when its session with ZooKeeper expires while it starts: it, or the
        machine, stood still for as long. Once it has started it gets itself another session.
        """
        if self.process is None or self.process.poll() != 1:
            return False
        said = self.log_text().rpartition(STARTED)[2]
        return "fatal exception during startup" in said and "KeeperException$SessionExpiredException" in said

    def command(self) -> list[str]:
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        memory = (f"-Xms{self.heap}", f"-Xmx{self.heap}")
        jars = classpath(self.jars)
        return [*java(), *memory, *self.options, *self.logging, "-cp", jars, "kafka.Kafka", str(properties)]


NODES: dict[str, type[Node]] = {OURS: OurNode, KAFKA: KafkaNode}
