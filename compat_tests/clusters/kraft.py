"""Apache Kafka 4.3.1 with KRaft: one node, and a cluster of several, each of which is broker and controller.

The cluster is asked by its clients' protocol only. Killing one of three leaves a quorum of controllers. Times are
seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from compat_tests.clusters import harness
from compat_tests.clusters.nodes import KafkaNode, Node, NodeFailed
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import classpath, java
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import run

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = {
    **{key: value for key, value in harness.SETTINGS.items() if not key.startswith("zookeeper.")},
    # A broker that was killed is let in again when its old session has ended.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


class KRaftNode(KafkaNode):
    """Apache Kafka 4.3.1. Its directory is formatted when there is none; features have the levels of the release."""

    jars = KAFKA_JARS

    def command(self) -> list[str]:
        command = super().command()
        if not (self.data / "meta.properties").exists():
            properties = str(self.directory / "server.properties")
            tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties]
            run([*java(), "-XX:TieredStopAtLevel=1", "-cp", classpath(self.jars), *tool])
        return command


class KRaftCluster:
    """Nodes from 1 on, started; a context manager, which ends them. What it offers it has in common with
    `harness.Cluster`.
    """

    def __init__(self, directory: Path, brokers: int = 3, *, settings: Mapping[str, str] | None = None) -> None:
        ports = free_ports(2 * brokers)
        voters = [f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports[brokers:], 1)]
        self.nodes: dict[int, Node] = {}
        for number, (port, controller) in enumerate(zip(ports[:brokers], ports[brokers:], strict=True), 1):
            roles = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": ",".join(voters),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            }
            given = {**SETTINGS, **roles, **(settings or {})}
            self.nodes[number] = KRaftNode(number, directory / f"broker-{number}", ("127.0.0.1", port), given)

    def __enter__(self) -> KRaftCluster:
        try:
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_open()
            self.wait_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all, the hard way."""
        for node in self.nodes.values():
            if node.alive:
                node.kill()

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def node(self, number: int) -> Node:
        """A node by its id."""
        return self.nodes[number]

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic, each partition on three brokers, and wait until all replicas are in sync."""
        topics = [NewTopic(name, partitions, 3)]
        harness.ask(self._admin, lambda admin: admin.create_topics(topics), KafkaError.TOPIC_ALREADY_EXISTS)
        self.wait_healthy()

    def leader(self, topic: str, index: int) -> int:
        """The leader of a partition, -1 when it has none."""
        return int(self._seen().topics[topic].partitions[index].leader)

    def wait_healthy(self, timeout: float = harness.HEALTHY_TIMEOUT_S) -> None:
        """Return when all nodes are there and all replicas in sync. Raises NodeFailed."""
        self._wait(self._is_healthy, "all brokers are there and all replicas in sync", timeout)

    def _is_healthy(self) -> bool:
        seen = self._seen()
        return seen.brokers.keys() == self.nodes.keys() and all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for topic in seen.topics.values()
            for partition in topic.partitions.values()
        )

    def _admin(self) -> AdminClient:
        return harness.Cluster.admin_of(self.bootstrap)

    def _seen(self) -> ClusterMetadata:
        return self._admin().list_topics(timeout=20)

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                if condition():
                    return
            except KafkaException:
                pass  # nobody answers just now
            if time.monotonic() > deadline:
                logs = "\n".join(f"=== {node}\n{node.log_tail(2500)}" for node in self.nodes.values())
                raise NodeFailed(f"waited {timeout} s in vain until {what}\n{logs}")
            time.sleep(0.1)
