"""Stock clients through `barnabas wire tap`: they work as without it, stay on it, and nothing about them is odd. What
was recorded is said again to another broker.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.broker_process import Server
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import run

pytestmark = pytest.mark.slow


class Tap:
    """The process. `bootstrap`: where its clients connect; `events`: what it has said, once it has ended."""

    def __init__(self, to: str, tape: Path) -> None:
        command = [sys.executable, "-P", "-m", "barnabas", "wire", "tap", "--listen", "0", "--to", to]
        self._output = tape.with_suffix(".json")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--record", str(tape)],
                stdout=output,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
            )
        assert self._process.stderr is not None
        self.bootstrap = self._process.stderr.readline().decode().split()[-1]
        self.events: list[dict[str, Any]] = []

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0
        assert self._process.stderr is not None
        self._process.stderr.close()
        self.events = [json.loads(line) for line in self._output.read_text().splitlines()]

    def requests(self, client_id: str) -> list[str]:
        return [each["request"] for each in self.events if each.get("client_id") == client_id and "request" in each]


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT_ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def broker(directory: Path) -> Iterator[Server]:
    directory.mkdir(exist_ok=True)
    server = Server(directory, **{"num.partitions": "2"})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def odd(tap: Tap) -> list[Any]:
    """But for requests that wait when a client closes its connection: a Fetch, mostly."""
    return [each for each in tap.events if "odd" in each and "closed_by" not in each]


def replayed(tape: Path, to: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-P", "-m", "barnabas", "wire", "replay", str(tape), "--to", to, "--timing"]
    done = run(command, environment=ENVIRONMENT, timeout=300, expect=None)
    return done.returncode, [json.loads(line) for line in done.stdout.decode().splitlines()]


def with_librdkafka(bootstrap: str) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "client.id": "rd", "enable.idempotence": True})
    for number in range(20):
        producer.produce("of-rd", b"%d" % number)
    assert producer.flush(60) == 0
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "client.id": "rd", "group.id": "rd", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["of-rd"])
    read = 0
    while read < 20:
        message = consumer.poll(60)
        assert message is not None
        read += message.error() is None
    consumer.close()


def with_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="py")
    for number in range(20):
        producer.send("of-py", b"%d" % number).get(60)
    producer.close()
    consumer = KafkaConsumer(
        "of-py", bootstrap_servers=bootstrap, client_id="py", group_id="py", auto_offset_reset="earliest"
    )
    assert [next(consumer) is not None for _ in range(20)] == [True] * 20
    consumer.close()


def test_librdkafka_and_kafka_python(tmp_path: Path) -> None:
    tape = tmp_path / "it.tape"
    with broker(tmp_path / "one") as server:
        tap = Tap(server.bootstrap, tape)
        with_librdkafka(tap.bootstrap)
        with_kafka_python(tap.bootstrap)
        tap.stop()
    assert odd(tap) == []
    for client_id in ("rd", "py"):
        assert {"Produce", "Fetch", "Metadata", "JoinGroup", "OffsetCommit"} <= set(tap.requests(client_id))
    # One broker, one port: nobody has left.
    assert len([each for each in tap.events if "listening" in each]) == 1
    with broker(tmp_path / "two") as server:
        # A broker that stands still may need longer for a new topic than a client that is recorded can wait.
        topics = [NewTopic(name, 2, 1) for name in ("of-rd", "of-py")]
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for made in admin.create_topics(topics).values():
            made.result(60)
        _, events = replayed(tape, server.bootstrap)
        assert [each for each in events if "left_out" in each and each.get("request") is not None] == []
        assert any(each.get("replaced") for each in events)
        produced = [each for each in events if each.get("request") == "Produce"]
        assert produced
        assert [each for each in produced if "errors" in each["now"]] == []


@pytest.mark.jvm
def test_java(tmp_path: Path, warm_jvms: WarmJvms) -> None:
    tape = tmp_path / "it.tape"
    with broker(tmp_path / "one") as server:
        tap = Tap(server.bootstrap, tape)
        tools = Tools(tap.bootstrap, warm_jvms)
        tools("kafka-topics", "--create", "--topic", "of-java", "--partitions", "2")
        tools.produce("of-java", [f"line {number}" for number in range(20)])
        assert len(tools.consume("of-java", 20, "--from-beginning")) == 20
        modern = ("--command-property", "group.protocol=consumer", "--group", "modern")
        assert len(tools.consume("of-java", 20, "--from-beginning", *modern)) == 20
        tools("kafka-consumer-groups", "--describe", "--group", "modern")
        tap.stop()
    assert odd(tap) == []
    asked = {each["request"] for each in tap.events if "request" in each}
    assert {"InitProducerId", "Produce", "Fetch", "ConsumerGroupHeartbeat", "JoinGroup", "CreateTopics"} <= asked
    with broker(tmp_path / "two") as server:
        _, events = replayed(tape, server.bootstrap)
        assert [each for each in events if "left_out" in each and each.get("request") is not None] == []
        written = [each for each in events if each.get("request") in ("CreateTopics", "Produce", "JoinGroup")]
        assert written
        assert all(each["same"] for each in written), [each for each in written if not each["same"]]
        tools = Tools(server.bootstrap, warm_jvms)
        assert len(tools.consume("of-java", 20, "--from-beginning")) == 20
