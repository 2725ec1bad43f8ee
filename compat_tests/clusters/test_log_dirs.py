"""Two brokers with two log directories each, one of either kind: Apache Kafka's tools move replicas between the
directories of a broker, and when a directory is lost the other broker takes over, under either side's controller.

A directory is lost by a file in its place, as in Apache Kafka's own system tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA
from compat_tests.clusters.replicas import content
from compat_tests.faults.cluster.load import FAST_CLIENT, watermarks

Names = Callable[..., str]
pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
SETTINGS = {
    # Who stands still for a while keeps its leaderships and its place in sync: nobody would give them back.
    "zookeeper.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "30000",
    "min.insync.replicas": "1",
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.leader.rebalance.enable": "false",
    "log.segment.bytes": "20000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}
BOTH = [1, 2]


@pytest.fixture(scope="module")
def cluster(kinds: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker 1 is the one under test, broker 2 Apache Kafka."""
    directory = tmp_path_factory.mktemp("jbod")
    with Cluster(directory, [kinds[0], KAFKA], settings=SETTINGS, start=False) as cluster:
        for node in cluster.nodes.values():
            node.settings["log.dirs"] = ",".join(str(path) for path in dirs(cluster, node.number))
            if node.kind == KAFKA:
                # Apache Kafka 3.9.1 flushes a segment in another thread some time after it has rolled. If a move has
                # closed the log by then, the flush fails, and it takes the whole directory offline.
                del node.settings["log.segment.bytes"]
            node.start()
        for node in cluster.nodes.values():
            node.wait_open()
        cluster.wait_registered()
        yield cluster


def dirs(cluster: Cluster, number: int) -> list[Path]:
    """The log directories of a broker."""
    return [cluster.nodes[number].directory / name for name in ("first", "second")]


def home(cluster: Cluster, number: int, topic: str, index: int) -> Path:
    """The directory that holds a broker's replica."""
    (found,) = [path for path in dirs(cluster, number) if (path / f"{topic}-{index}").is_dir()]
    return found


def other(cluster: Cluster, number: int, path: Path) -> Path:
    (found,) = [each for each in dirs(cluster, number) if each != path]
    return found


def send(cluster: Cluster, topic: str, count: int, index: int = 0) -> list[bytes]:
    """Send records to a partition, waiting for all replicas in sync; what was acknowledged."""
    acknowledged: list[bytes] = []
    producer = Producer(
        {
            **FAST_CLIENT,
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 10000,
        }
    )

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())

    for number in range(count):
        producer.produce(topic, b"%08d" % number + b"x" * 400, partition=index, on_delivery=delivered)
    assert producer.flush(120) == 0
    assert len(acknowledged) == count
    return acknowledged


def described(tools: Tools, topic: str) -> dict[tuple[int, str], dict[str, Any]]:
    """What kafka-log-dirs tells, by broker and directory."""
    text = tools("kafka-log-dirs", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    return {
        (broker["broker"], directory["logDir"]): directory
        for broker in found["brokers"]
        for directory in broker["logDirs"]
    }


def test_replicas_move_between_directories(
    cluster: Cluster, unique: Names, tmp_path: Path, warm_jvms: WarmJvms
) -> None:
    """kafka-reassign-partitions with log_dirs; kafka-log-dirs shows where they are; nothing is lost meanwhile."""
    topic = unique()
    tools = Tools(cluster.bootstrap, warm_jvms)
    cluster.create_topic(topic, replicas=[[1, 2], [2, 1]])
    sent = [send(cluster, topic, 300, index) for index in range(2)]
    targets = {
        (index, number): other(cluster, number, home(cluster, number, topic, index))
        for index in range(2)
        for number in BOTH
    }
    wish = tmp_path / "wish.json"
    wish.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {
                        "topic": topic,
                        "partition": index,
                        "replicas": replicas,
                        "log_dirs": [str(targets[index, number]) for number in replicas],
                    }
                    for index, replicas in enumerate(([1, 2], [2, 1]))
                ],
            }
        )
    )
    begin = ("--reassignment-json-file", str(wish), "--execute", "--replica-alter-log-dirs-throttle", "50000000")
    assert tools("kafka-reassign-partitions", *begin).count("Successfully started moving log directory to") == 4
    for index in range(2):
        sent[index] += send(cluster, topic, 100, index)
    deadline = time.monotonic() + 180
    while True:
        said = tools("kafka-reassign-partitions", "--reassignment-json-file", str(wish), "--verify")
        done = [f"Reassignment of replica {topic}-{index}-{number} completed" in said for index, number in targets]
        if all(done):
            break
        assert time.monotonic() < deadline, said + cluster.logs()
    shown = described(tools, topic)
    assert len(shown) == 4
    for (index, number), target in targets.items():
        cluster.wait(lambda t=target, i=index, n=number: home_or_none(cluster, n, topic, i) == t, "one is left")
        (found,) = [p for p in shown[number, str(target)]["partitions"] if p["partition"] == f"{topic}-{index}"]
        assert (found["offsetLag"], found["isFuture"]) == (0, False)
        assert found["size"] > 400 * 400
    assert everything(cluster, topic, 2) == sent


def home_or_none(cluster: Cluster, number: int, topic: str, index: int) -> Path | None:
    found = [path for path in dirs(cluster, number) if (path / f"{topic}-{index}").is_dir()]
    return found[0] if len(found) == 1 else None


def everything(cluster: Cluster, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of all records, by partition."""
    consumer = Consumer(
        {**FAST_CLIENT, "bootstrap.servers": cluster.bootstrap, "group.id": "all", "auto.offset.reset": "error"}
    )
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    missing = sum(watermarks(consumer, place)[1] for place in places)
    consumer.assign(places)
    found: list[list[bytes]] = [[] for _ in places]
    deadline = time.monotonic() + 120
    while missing:
        assert time.monotonic() < deadline, f"{missing} records are missing"
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found[message.partition()].append(message.value())
            missing -= 1
    consumer.close()
    return found


@pytest.mark.parametrize("loser", BOTH)
def test_a_lost_directory(cluster: Cluster, unique: Names, loser: int, warm_jvms: WarmJvms) -> None:
    """The other broker leads what lay there; the loser serves the rest; with its directory back it is in sync again."""
    keeper = 3 - loser
    cluster.make_controller([keeper])
    topic = unique()
    tools = Tools(cluster.bootstrap, warm_jvms)
    cluster.create_topic(topic, replicas=[[loser, keeper]] * 4)
    sent = [send(cluster, topic, 30, index) for index in range(4)]
    cluster.wait_healthy()
    lost_dir = dirs(cluster, loser)[1]
    lost = [index for index in range(4) if home(cluster, loser, topic, index) == lost_dir]
    assert lost
    assert len(lost) < 4
    lost_dir.rename(lost_dir.with_suffix(".away"))
    lost_dir.write_text("a file in its place")
    for index in range(4):
        sent[index] += send(cluster, topic, 100, index)
    cluster.wait(lambda: all(cluster.leader(topic, index) == keeper for index in lost), f"{keeper} leads {lost}")
    cluster.wait(
        lambda: all((state := cluster.tree.state(topic, index)) and state.isr == (keeper,) for index in lost),
        f"{loser} is out of sync in {lost}",
    )
    assert all(cluster.leader(topic, index) == loser for index in range(4) if index not in lost)
    shown = described(tools, topic)
    assert shown[loser, str(lost_dir)]["error"] is not None
    assert [found["error"] for place, found in shown.items() if place != (loser, str(lost_dir))] == [None] * 3
    sent = [values + send(cluster, topic, 20, index) for index, values in enumerate(sent)]

    assert cluster.nodes[loser].stop() in (0, 143), cluster.nodes[loser].log_tail()
    lost_dir.unlink()
    lost_dir.with_suffix(".away").rename(lost_dir)
    cluster.start_node(loser)
    cluster.wait_healthy()
    assert everything(cluster, topic, 4) == sent
    for index in range(4):
        copies = [content(home(cluster, number, topic, index) / f"{topic}-{index}") for number in BOTH]
        assert copies[0] == copies[1]
