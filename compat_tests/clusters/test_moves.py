"""Leaving the JVM, and going back: the brokers of a cluster are replaced one by one, on their data, under load.

Also clusters of both kinds that speak the older versions of the protocol between brokers which
`inter.broker.protocol.version` stands for, as a cluster does in the middle of an upgrade.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA, OURS
from compat_tests.clusters.replicas import epochs
from compat_tests.clusters.test_mixed import PATIENCE_S, judged, produce, same_everywhere
from compat_tests.faults.cluster.load import Load

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(900)]
TOPIC = "moving"


def test_from_kafka_to_ours_and_back(kinds: list[str], tmp_path: Path) -> None:
    """Three Apache Kafka brokers become three of ours, on the same directories, without a lost record; and back."""
    there = [KAFKA] * 3
    with Cluster(tmp_path, there) as cluster:
        cluster.create_topic(TOPIC, 3)
        load = Load(cluster.bootstrap, TOPIC, 3, log=cluster.directory / "clients.log")
        load.start()
        assert load.wait_acknowledged({0, 1, 2}, PATIENCE_S) is not None
        for kind in (kinds[0], KAFKA):
            for number in cluster.nodes:
                if cluster.nodes[number].kind != kind:
                    replaced(cluster, number, kind)
                    assert load.wait_acknowledged({0, 1, 2}, PATIENCE_S) is not None, cluster.logs()
        judged(cluster, load, TOPIC, 3)
        # Ours writes the file of leader epochs when it stops, at the latest.
        cluster.stop_all()
        for index in range(3):
            kept = {number: epochs(node.data / f"{TOPIC}-{index}") for number, node in cluster.nodes.items()}
            assert len(set(kept.values())) == 1, kept


def replaced(cluster: Cluster, number: int, kind: str) -> None:
    """Stop a broker and start one of the other kind in its place."""
    assert cluster.nodes[number].stop() in (0, 143), cluster.nodes[number].log_tail()
    cluster.replace(number, kind)
    cluster.start_node(number)
    cluster.wait_healthy()


@pytest.mark.parametrize("version", ["2.3", "2.7", "3.1"])
def test_older_protocol(kinds: list[str], tmp_path: Path, version: str) -> None:
    """Each broker leads, follows and is controller in an older version; a leader is killed; nothing differs."""
    brokers = [KAFKA, OURS, OURS] if kinds[0] == OURS else kinds
    settings = {"inter.broker.protocol.version": version}
    with Cluster(tmp_path, brokers, settings=settings) as cluster:
        for controller in ([1], [2, 3]):
            cluster.make_controller(controller)
            topic = f"under-{controller[0]}"
            cluster.create_topic(topic, replicas=[[1, 2, 3], [2, 3, 1]])
            produce(cluster.bootstrap, topic, 2, 50)
            cluster.wait_healthy()
            same_everywhere(cluster, topic)
        for victim in (1, 2):
            cluster.nodes[victim].kill()
            cluster.wait_gone(victim)
            assert produce(cluster.bootstrap, topic, 2, 20) == 100
            cluster.start_node(victim)
            cluster.wait_healthy()
        same_everywhere(cluster, topic)
