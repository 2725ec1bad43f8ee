"""`barnabas cluster` as people run it: real processes, killed and stopped in every way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120.0
PATIENT = ("--set", "zookeeper.session.timeout.ms=60000")
"""A process that stands still for a while does not lose its session."""
pytestmark = pytest.mark.campaign


class Running:
    """A cluster's supervisor and what it says. Whatever it started is gone at the end, or the test fails."""

    def __init__(self, *arguments: str, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.log = directory / "log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory), **(environ or {})}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "barnabas", "cluster", "--port", "0", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=ROOT,
            )
        self.pids: dict[str, int] = {}

    def ready(self) -> str:
        """Its addresses."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("bootstrap="), self.text
        self.look()
        return line.strip().removeprefix("bootstrap=")

    def look(self) -> None:
        """Take the pids of the processes that run."""
        self.pids = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                words = (stat.parent / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[1]) == self.process.pid and b"--log-name" in words:
                self.pids[words[words.index(b"--log-name") + 1].decode()] = int(stat.parent.name)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def until_said(self, pattern: str, times: int = 1) -> None:
        wait(lambda: len(re.findall(pattern, self.text)) >= times, lambda: f"{pattern}\n{self.text}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.look()
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        for name, pid in self.pids.items():
            assert gone(pid), f"{name} is left\n{self.text}"
        return code


@contextmanager
def cluster(*arguments: str, directory: Path, **more: Any) -> Iterator[Running]:
    running = Running(*arguments, directory=directory, **more)
    try:
        yield running
    finally:
        running.look()
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        if running.process.stdout is not None:
            running.process.stdout.close()
        for pid in running.pids.values():
            wait(lambda pid=pid: gone(pid), lambda: f"something is left\n{running.text}")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


class Written:
    """Records with acks=all, and what of them must be there."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: set[bytes] = set()
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 2, "linger.ms": 1}
        )
        self.number = 0

    def write(self, count: int = 200) -> None:
        """All are acknowledged on return."""
        for _ in range(count):
            value = b"%d" % self.number
            self.producer.produce(self.topic, value, on_delivery=self._delivered)
            self.number += 1
        assert self.producer.flush(SECONDS) == 0

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None
        self.acknowledged.add(message.value())

    def check(self, bootstrap: str, partitions: int) -> None:
        """Everything acknowledged is there, once."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "check",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(partitions)])
        found: list[bytes] = []
        ended = 0
        deadline = time.monotonic() + SECONDS
        while ended < partitions:
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                ended += 1
            else:
                found.append(message.value())
        consumer.close()
        assert len(found) == len(set(found))
        assert set(found) >= self.acknowledged
        assert len(self.acknowledged) == self.number


def whole(bootstrap: str, topic: str) -> bool:
    """All replicas are in sync."""
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}).list_topics(topic, timeout=60).topics[topic]
    return all(len(each.isrs) == 3 and each.leader > 0 for each in found.partitions.values())


def test_a_life(tmp_path: Path) -> None:
    """Ready, one log, and stopped in order; nothing is left, not even the directory."""
    with cluster(*PATIENT, "--topic", "events:6", "--topic", "single:1:1", directory=tmp_path) as running:
        bootstrap = running.ready()
        assert len(bootstrap.split(",")) == 3
        assert sorted(running.pids) == ["broker-1", "broker-2", "broker-3", "store"]
        wait(lambda: whole(bootstrap, "events"), lambda: running.text)
        written = Written(bootstrap, "events")
        written.write()
        written.check(bootstrap, 6)
        said = re.findall(r"broker-(\d) controller: elected controller", running.text)
        assert running.stop() == 0
        stopped = re.findall(r"(broker-\d) broker: broker \d stopped$|(store) store: stopping", running.text, re.M)
        assert [a or b for a, b in stopped][-2:] == [f"broker-{said[-1]}", "store"], (
            "the controller last, then the store"
        )
        assert len(stopped) == 4
        for line in running.text.splitlines():
            assert re.match(r"[\d-]{10} [\d:.]{12} [A-Z]+ +(cluster|store|broker-[123]) [a-z]+: ", line), line
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_ctrl_c_and_json(tmp_path: Path) -> None:
    with cluster(
        "--brokers", "1", "--log-format", "json", "--data", str(tmp_path / "d"), directory=tmp_path
    ) as running:
        running.ready()
        assert running.stop(signal.SIGINT) == 0
        lines = [json.loads(line) for line in running.text.splitlines()]
        assert {line["process"] for line in lines} == {"cluster", "store", "broker-1"}
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [".cluster.lock", "broker-1", "store"]
    assert (tmp_path / "d" / "broker-1" / ".kafka_cleanshutdown").exists()


def test_two_signals_stop_at_once(tmp_path: Path) -> None:
    with cluster("--topic", "events:6", directory=tmp_path) as running:
        running.ready()
        running.process.send_signal(signal.SIGTERM)
        running.until_said("cluster: stopping on SIGTERM")
        assert running.stop() == 0


@pytest.mark.parametrize("victim", ["controller", "leader", "store"])
def test_what_is_killed_comes_back_and_nothing_acknowledged_is_lost(tmp_path: Path, victim: str) -> None:
    with cluster("--topic", "events:6", directory=tmp_path) as running:
        bootstrap = running.ready()
        written = Written(bootstrap, "events")
        written.write()
        controller = "broker-" + re.findall(r"broker-(\d) controller: elected controller", running.text)[-1]
        other = next(name for name in running.pids if name not in (controller, "store"))
        name = {"controller": controller, "leader": other, "store": "store"}[victim]
        running.kill(name)
        written.write()
        running.until_said(rf"cluster: {name} has ended \(SIGKILL\): started again in 0.5 s")
        wait(lambda: running.look() or name in running.pids, lambda: running.text)
        written.write()
        wait(lambda: whole(bootstrap, "events"), lambda: running.text)
        running.kill(name)  # again: what came back is as good as what was there
        written.write()
        wait(lambda: whole(bootstrap, "events"), lambda: running.text)
        written.check(bootstrap, 6)
        assert not re.search("ERROR|FATAL", running.text)
        assert running.stop() == 0


def test_a_store_restart_does_not_cost_a_session(tmp_path: Path) -> None:
    with cluster(*PATIENT, "--topic", "events:6", directory=tmp_path) as running:
        bootstrap = running.ready()
        for lives in range(1, 4):
            running.kill("store")
            running.until_said("connected to the metadata store: same session", 3 * lives)
            running.look()
            Written(bootstrap, "events").write()
        assert "expired" not in running.text
        assert running.text.count("elected controller") == 1
        assert running.stop() == 0


def test_a_killed_supervisor_leaves_nothing_running_and_nothing_lost(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with cluster(*data, "--topic", "events:6", directory=tmp_path) as running:
        bootstrap = running.ready()
        written = Written(bootstrap, "events")
        written.write()
        running.process.kill()
        running.process.wait()
        # At once the next one: it waits for what is left of the first.
        with cluster(*data, "--topic", "events:6", directory=tmp_path) as second:
            again = second.ready()
            for name, pid in running.pids.items():
                assert gone(pid), name
            written.check(again, 6)
            assert second.stop() == 0


def test_everything_killed_at_once(tmp_path: Path) -> None:
    """As a power cut: the next start does not wait for sessions of the dead."""
    data = ("--data", str(tmp_path / "data"))
    with cluster(*data, "--topic", "events:6", directory=tmp_path) as running:
        written = Written(running.ready(), "events")
        written.write()
        for pid in (running.process.pid, *running.pids.values()):
            os.kill(pid, signal.SIGKILL)
    with cluster(*data, directory=tmp_path) as second:
        bootstrap = second.ready()
        assert "is still registered" not in second.text
        wait(lambda: whole(bootstrap, "events"), lambda: second.text)
        written.check(bootstrap, 6)
        assert second.stop() == 0


def _port_before_a_free_one(held: ExitStack) -> int:
    """A port that is taken until the end, and behind it is one for another broker."""
    while True:
        with ExitStack() as tried:
            port = tried.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            held.push(tried.pop_all())
            return int(port)


def test_a_cluster_that_cannot_start(tmp_path: Path) -> None:
    with ExitStack() as held:
        port = _port_before_a_free_one(held)
        options = ("--set", f"listeners=PLAINTEXT://127.0.0.1:{port}", "--brokers", "1")
        with cluster(*options, directory=tmp_path) as running:
            assert running.process.wait(SECONDS) == 2, "--port and listeners"
        command = [sys.executable, "-P", "-m", "barnabas", "cluster", "--port", str(port), "--brokers", "2"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
        assert done.returncode == 1
        assert done.stdout == ""
        assert (
            f"FATAL broker-1 broker: cannot listen on PLAINTEXT://127.0.0.1:{port}: address already in use"
            in done.stderr
        )
        assert done.stderr.splitlines()[-1].endswith("FATAL cluster cluster: broker-1 did not start (exit code 1)")
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_settings_that_are_refused_start_nothing(tmp_path: Path) -> None:
    with cluster("--set", "num.partitions=0", directory=tmp_path, environ={"KAFKA_BROKER_ID": "3"}) as running:
        assert running.process.wait(SECONDS) == 2
        assert running.text == "barnabas: broker.id=3 is refused: barnabas cluster gives each broker its own.\n"


def test_security(tmp_path: Path) -> None:
    files = tmp_path / "files"
    options = ("--security", "SASL_SSL", "--security-files", str(files), "--topic", "events:2", "--brokers", "2")
    with cluster(*options, directory=tmp_path) as running:
        bootstrap = running.ready()
        said = dict(line.split("=", 1) for line in (files / "alice.properties").read_text().splitlines())
        assert said["bootstrap.servers"] == bootstrap
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "ssl.ca.location": str(files / "ca.pem"),
                "acks": "all",
            }
        )
        failed: list[object] = []
        producer.produce("events", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(SECONDS) == 0
        assert not failed
        assert running.stop() == 0
