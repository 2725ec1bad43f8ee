"""What is given to users for running a cluster (docs/cluster.md): each is executed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clusters.harness import Cluster, ask
from compat_tests.harness.brokers import Broker, wait_until_open
from compat_tests.harness.checks import wait_until
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import Background
from compat_tests.harness.zookeeper import zookeeper

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")} | {
    "PYTHONPATH": str(PROJECT_ROOT),
    "PYTHONUNBUFFERED": "1",
}


def test_three_brokers() -> None:
    """Kills a broker while it writes, and finds everything."""
    command = [sys.executable, str(PROJECT_ROOT / "examples/three_brokers.py"), "--seconds", "8"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ records written, \d+ read: all there$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.jvm
def test_three_brokers_on_zookeeper(tmp_path: Path) -> None:
    """Starts, survives the death of a broker and brings it back, ends cleanly on Ctrl-C, keeps its data."""
    command = [sys.executable, str(PROJECT_ROOT / "examples/three_brokers_zookeeper.py"), "--port", "0"]
    command += ["--data", str(tmp_path / "data")]
    with Background(command, ENVIRONMENT) as program:
        program.wait_for("Ctrl-C ends it all", timeout=120)
        bootstrap = said(program, r"bootstrap=(\S+)")
        assert len(bootstrap.split(",")) == 3
        admin = Cluster.admin_of(bootstrap)
        topics = [NewTopic("events", 6)]
        ask(lambda: admin, lambda admin: admin.create_topics(topics), KafkaError.TOPIC_ALREADY_EXISTS)
        send(bootstrap, range(100))
        victim = int(said(program, r"broker 2 (\d+)"))
        os.kill(victim, signal.SIGKILL)
        program.wait_for("broker 2 ended")
        send(bootstrap, range(100, 200))
        program.wait_for("broker 2 is back")
        wait_until(lambda: in_sync(admin, "events") == [3] * 6, "all are in sync again", timeout=120, every=0.2)
        pids = [int(pid) for pid in re.findall(r" (\d+)(?=[,;]|$)", said(program, r"(pids: .*?);"))]
        program.process.send_signal(signal.SIGINT)
        assert program.process.wait(120) == 0, program.lines
        program.stop(60)  # its last lines are read
        assert [line for line in program.lines if "has ended" in line][-1] == "ZooKeeper has ended"
        for pid in pids:
            assert not Path(f"/proc/{pid}").exists()
    with Background([*command], ENVIRONMENT) as again:
        again.wait_for("Ctrl-C ends it all", timeout=120)
        admin = Cluster.admin_of(said(again, r"bootstrap=(\S+)"))
        wait_until(lambda: len(in_sync(admin, "events")) == 6, "the broker that answers knows the topic", timeout=120)
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(120) == 0, again.lines


@pytest.mark.jvm
def test_systemd_unit(tmp_path: Path) -> None:
    """What the unit starts serves, with the settings file of the README, and TERM ends it with 0 in time."""
    unit = (PROJECT_ROOT / "examples/barnabas.service").read_text()
    entries = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    if shutil.which("systemd-analyze"):
        checked = tmp_path / "barnabas.service"
        checked.write_text(unit.replace(entries["ExecStart"].split()[0], sys.executable))
        verdict = subprocess.run(
            ["systemd-analyze", "verify", str(checked)], capture_output=True, text=True, timeout=180, check=False
        )
        assert str(checked) not in verdict.stdout + verdict.stderr, verdict.stderr
        assert "barnabas.service" not in verdict.stderr, verdict.stderr
    program, verb, file, *rest = shlex.split(entries["ExecStart"])
    assert (Path(program).name, verb) == ("barnabas", "serve")
    (port,) = free_ports(1)
    with zookeeper(tmp_path / "zookeeper") as zk:
        settings = tmp_path / Path(file).name
        settings.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path / 'data'}\n"
            f"zookeeper.connect={zk.connect}\n"
        )
        serves([*ours(), verb, str(settings), *rest], ENVIRONMENT, port, tmp_path)
    lines = (tmp_path / "broker.log").read_text().splitlines()
    assert lines
    assert all(json.loads(line) for line in lines)


def test_dockerfile(tmp_path: Path) -> None:
    """The image is built and run where there is Docker; its command and variables are run in any case."""
    text = (PROJECT_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    final = text.rpartition("\nFROM ")[2]
    given: dict[str, str] = {}
    for line in re.findall(r"^ENV (.*)$", final, re.MULTILINE):
        given |= dict(word.split("=", 1) for word in shlex.split(line))
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", final, re.MULTILINE)
    program, *arguments = json.loads(entry)
    assert Path(program).name == "barnabas"
    (port,) = free_ports(1)
    assert given["KAFKA_LISTENERS"] == "PLAINTEXT://0.0.0.0:9092"
    given |= {
        "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{port}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
    }
    serves([*ours(), *arguments], ENVIRONMENT | given, port, tmp_path)
    if docker_works():
        built = subprocess.run(
            ["docker", "build", "-q", str(PROJECT_ROOT)], capture_output=True, text=True, timeout=280, check=False
        )
        assert built.returncode == 0, built.stderr
        image = built.stdout.strip()
        container = docker("run", "--rm", "-d", "-p", f"127.0.0.1:{port}:9092", image)
        try:
            wait_until_open(Broker(f"127.0.0.1:{port}", "container"))
            wait_until(lambda: answers(f"127.0.0.1:{port}"), "it answers", timeout=120)
        finally:
            docker("stop", container)


def docker(*arguments: str) -> str:
    """Run docker; return what it printed."""
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=180, check=True
    ).stdout.strip()


def docker_works() -> bool:
    """There is a daemon to talk to."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False).returncode == 0


def ours() -> list[str]:
    """The program under test."""
    return os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]


def serves(command: list[str], environment: dict[str, str], port: int, directory: Path) -> None:
    """Start a broker, ask it for its topics, end it with TERM and expect 0."""
    log = directory / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    broker = Broker(f"127.0.0.1:{port}", "Barnabas", process, log)
    try:
        wait_until_open(broker)
        wait_until(lambda: answers(broker.bootstrap), "it answers", timeout=120)
        process.terminate()
        assert process.wait(120) == 0, broker.log_tail()
    finally:
        broker.stop()


def answers(bootstrap: str) -> bool:
    """Whether a broker tells a client of itself."""
    try:
        return bool(Cluster.admin_of(bootstrap).list_topics(timeout=30).brokers)
    except KafkaException:
        return False


def in_sync(admin: AdminClient, topic: str) -> list[int]:
    """How many replicas of each partition are in sync; none while nobody says so."""
    try:
        return [len(each.isrs) for each in admin.list_topics(topic, timeout=30).topics[topic].partitions.values()]
    except KafkaException:
        return []


def said(program: Background, pattern: str) -> str:
    """Return what the program printed in place of the group of *pattern*."""
    found = re.search(pattern, "\n".join(program.lines))
    assert found is not None, program.lines
    return found[1]


def send(bootstrap: str, numbers: range) -> None:
    """Send records; each must be acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 2})
    for number in numbers:
        producer.produce("events", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(120) == 0
    assert not failed
