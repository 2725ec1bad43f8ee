"""The brokers that hand directories over: Apache Kafka 4.3.1 (KRaft), 3.9.1 (ZooKeeper), ours alone and in a cluster.

All have the same defaults for what the tests rest on: a cleaner that does not wait, small index files. A directory as
kill -9 leaves it is copied from a broker that is stopped in its tracks: what a killed process has written is what the
system keeps for it, and so is what another process reads meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clusters.kraft import KRaftNode
from compat_tests.clusters.nodes import Node, OurNode
from compat_tests.harness import dump_log
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import run
from compat_tests.subjects.exchange.filler import PENDING, until
from compat_tests.subjects.exchange.picture import CLIENT, OFFSETS, Picture

FAILED_LOG_SIZE = 40_000
"""Of what a broker said before its block failed: its stop alone says 5,000."""
BROKER = 1
SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
    "log.index.size.max.bytes": "65536",
    "log.cleaner.backoff.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "auto.create.topics.enable": "false",
}


def kraft(directory: Path, **settings: str) -> KRaftNode:
    """Apache Kafka 4.3.1 on `directory`/data, one node that is its own controller."""
    port, controller = free_ports(2)
    roles = {
        "process.roles": "broker,controller",
        "node.id": str(BROKER),
        "controller.quorum.voters": f"{BROKER}@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "offsets.topic.segment.bytes": "1048576",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    return KRaftNode(BROKER, directory, ("127.0.0.1", port), {**SETTINGS, **roles, **settings})


def with_zookeeper(kind: type[Node], directory: Path, connect: str, settings: Mapping[str, str]) -> Node:
    """Apache Kafka 3.9.1 or ours on `directory`/data, as a member of the cluster at `connect`."""
    (port,) = free_ports(1)
    return kind(BROKER, directory, ("127.0.0.1", port), {**SETTINGS, "zookeeper.connect": connect, **settings})


def ours_alone(directory: Path, **settings: str) -> OurNode:
    """Our broker without ZooKeeper on `directory`/data."""
    (port,) = free_ports(1)
    return OurNode(BROKER, directory, ("127.0.0.1", port), {**SETTINGS, **settings})


def copy(data: Path, target: Path) -> Path:
    """Copy a log directory to `target`/data, sparse files sparse; returns `target`."""
    target.mkdir(parents=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(data), str(target / "data")], check=True, timeout=300)
    properties = data.parent / dump_log.OF_KAFKA
    if properties.exists():
        shutil.copy(properties, target)
    return target


def copy_as_killed(node: Node, target: Path) -> Path:
    """The directory of a running broker as kill -9 would leave it now, in `target`/data; returns `target`."""
    node.pause()
    try:
        return copy(node.data, target)
    finally:
        node.resume()


class Serving:
    """A broker for the length of a block, from when it leads all that its directory holds. Said what it logged when the
    block fails.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    def __enter__(self) -> Node:
        self.node.start()
        try:
            self.node.wait_open()
            admin = AdminClient({"bootstrap.servers": self.node.bootstrap, **CLIENT})
            until(lambda: partitions_on(self.node.data) <= led(admin), f"{self.node} does not lead all it has")
        except BaseException:
            print(self.node.log_tail())
            self.node.kill()
            raise
        return self.node

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            print(self.node.log_tail(FAILED_LOG_SIZE))
        self.node.stop()


def verify(directory: Path) -> None:
    """`barnabas log verify` finds nothing wrong in `directory`/data. Raises Failed with what it says."""
    program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
    run(
        [*program, "log", "verify", str(directory / "data")],
        environment={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        timeout=600,
    )


def partitions_on(data: Path) -> set[str]:
    """Names of the directories of partitions in a log directory."""
    found = {path.name for path in data.glob("*-*") if path.is_dir() and path.name.rpartition("-")[2].isdigit()}
    return found - {"__cluster_metadata-0"}


def led(admin: AdminClient) -> set[str]:
    """The partitions that have a leader, named like their directories."""
    topics = admin.list_topics(timeout=60).topics
    return {
        f"{name}-{partition.id}"
        for name, topic in topics.items()
        for partition in topic.partitions.values()
        if partition.leader >= 0
    }


def check_filling(filled: Picture) -> None:
    """What the tests rest on is there: a comparison of nothing with nothing proves nothing."""
    records = {place: seen for (isolation, place), seen in filled.records.items() if isolation == "read_uncommitted"}
    assert len(records["compacted", 0]) < 0.5 * filled.facts["end", "compacted", "0", "read_uncommitted"][0]
    assert any(seen.value is None for seen in records["compacted", 0])
    assert filled.facts["start", "records-deleted", "0", "read_uncommitted"][0] == 33
    assert {seen.timestamp_type for seen in records["append-time", 0]} == {2}
    assert filled.facts["group", "static", "state"][2][0][0] == "instance-1"
    assert [place[1] for place in filled.facts["group", "partly", "offsets"]] == [0]
    assert ("group", "deleted", "state") not in filled.facts


def check_transactions(filled: Picture) -> None:
    """As above, where there are transactions."""
    assert len(filled.records["read_committed", ("left-open", 0)]) == 5
    assert [place[2] for place in filled.facts["group", PENDING, "offsets"]] == [1]
    assert len(filled.records["read_committed", ("transactions", 0)]) == 90
    assert len(filled.records["read_uncommitted", ("transactions", 0)]) == 126


def make_topics_like(filled: Picture, node: Node) -> dict[str, str]:
    """Make topics with the names, partitions and settings of those in a picture; their ids. The internal one gets the
    default size of segments, as 4.x does not take ours.
    """
    admin = AdminClient({"bootstrap.servers": node.bootstrap, **CLIENT})
    configs = {path[1]: dict(fact) for path, fact in filled.facts.items() if path[0] == "config"}
    del configs[OFFSETS]["segment.bytes"]
    wanted = [
        NewTopic(path[1], len(partitions), 1, config=configs[path[1]])
        for path, partitions in filled.facts.items()
        if path[0] == "partitions"
    ]
    for future in admin.create_topics(wanted).values():
        future.result(60)
    # Its controller has made them then; the broker beside it is told a little later, and makes the directories last.
    made = {f"{topic.topic}-{index}" for topic in wanted for index in range(topic.num_partitions)}
    until(lambda: made <= led(admin) & partitions_on(node.data), f"{node} does not lead what was made")
    described = admin.describe_topics(TopicCollection([topic.topic for topic in wanted]))
    ids = {name: str(future.result(60).topic_id) for name, future in described.items()}
    # librdkafka writes them in base64, Apache Kafka in base64url.
    return {name: text.replace("+", "-").replace("/", "_") for name, text in ids.items()}


def ids_of(data: Path) -> dict[str, str]:
    """The topics' ids in a log directory, by name."""
    found = {}
    for name in partitions_on(data):
        lines = (data / name / "partition.metadata").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("topic_id: ")]
        found[name.rpartition("-")[0]] = line.removeprefix("topic_id: ")
    return found


def take_over(source: Path, target: Path, ids: Mapping[str, str]) -> None:
    """Put the partitions of a log directory into the places of those of the same names in another broker's, and its
    checkpoints; ids: the topics' ids there.
    """
    for name in partitions_on(source):
        shutil.rmtree(target / name)
        shutil.copytree(source / name, target / name)
        topic_id = ids[name.rpartition("-")[0]]
        (target / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    for checkpoint in source.glob("*-checkpoint"):
        shutil.copy(checkpoint, target)
