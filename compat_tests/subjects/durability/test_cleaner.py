"""A broker that is stopped, or killed, in the middle of a compaction: no process is left, and no record is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.harness.broker_process import Server

pytestmark = pytest.mark.campaign

TOPIC = "compacted"
DONE = f"compacted {TOPIC}-0"
KEYS = 500
ROUNDS = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, **{"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "2e5"})
    server.start()
    yield server
    server.stop()


def child_of(pid: int) -> int | None:
    """The process that compacts, if there is one."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            return int(child)
    return None


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def value_of(number: int) -> bytes:
    return b"%d" % number * 700


def write(server: Server, turn: int) -> None:
    """Each key as often as there are rounds."""
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(TOPIC, value_of(turn * ROUNDS + number), b"%d" % key)
        assert producer.flush(60) == 0


def ended_amid(server: Server, ending: str) -> bool:
    """Stop or kill the broker while it compacts; whether that was so."""
    directory = server.data / f"{TOPIC}-0"
    wait_for(lambda: child_of(server.pid), "no process compacts")
    process = Path(f"/proc/{child_of(server.pid)}")
    wait_for(lambda: list(directory.glob("*.cleaned")), "nothing is written")
    if ending == "stopped":
        assert server.stop() == 0
    else:
        server.kill()
    before, _, after = server.log_text().rpartition("serves PLAINTEXT")[2].partition("stopping on")
    assert DONE not in after, "the stop has waited for the compaction"
    if ending == "stopped":
        assert list(directory.glob("*.cleaned")) == []
    wait_for(lambda: not process.exists(), "the process outlived its broker")
    return DONE not in before


def test_stops_and_kills_during_compaction(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
    write(server, 0)
    latest = 1
    for ending in ("stopped", "killed"):
        while not ended_amid(server, ending):
            # The machine stood still, and the compaction was done before.
            server.start()
            write(server, latest)
            latest += 1
        if ending == "killed":
            server.settings["log.cleaner.io.max.bytes.per.second"] = "1e9"
        server.start()
    wait_for(lambda: DONE in server.log_text().rpartition("serves PLAINTEXT")[2], "not compacted")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "all"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes, bytes] = {}
    last = value_of(latest * ROUNDS - 1)
    count, deadline = 0, time.monotonic() + 60
    while count == 0 or found.get(b"%d" % (KEYS - 1)) != last:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found[message.key()] = message.value()
            count += 1
    consumer.close()
    assert found == {b"%d" % key: last for key in range(KEYS)}
    assert count < latest * KEYS * ROUNDS / 2
