"""Three brokers on an ensemble of three ZooKeeper servers: servers of the ensemble fail, and so do brokers meanwhile.

While a quorum is there, nobody may notice more than a short wait; while there is none, what does not need ZooKeeper
goes on: leaders go on leading and acknowledging, as in Apache Kafka.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from compat_tests.clusters.harness import Cluster
from compat_tests.faults.cluster.rounds import PARTITIONS, SESSION_S, TOPIC, Report, Rounds, judge, say
from compat_tests.harness.zookeeper import ZooKeeper, ZooKeeperFailed

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
NO_QUORUM_S = 3
"""How long there is none: less than a session lasts."""


def leads(cluster: Cluster) -> ZooKeeper | None:
    """The server that leads the ensemble; None while it elects one."""
    try:
        return cluster.ensemble.leader()
    except ZooKeeperFailed:
        return None


def led(cluster: Cluster) -> ZooKeeper:
    """The server that leads the ensemble; waits for one."""
    cluster.wait(lambda: leads(cluster) is not None, "the ensemble has a leader")
    found = leads(cluster)
    return led(cluster) if found is None else found


@pytest.mark.timeout(900)
def test_servers_of_the_ensemble_fail(kinds: list[str], tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    with Cluster(tmp_path, kinds, zookeepers=3) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        rounds = Rounds(cluster, random.Random(seed), say)
        rounds.load.start()
        rounds.acknowledges()

        # The server that leads the ensemble is killed: the others elect one, brokers keep their sessions.
        cluster.wait_healthy()
        first = led(cluster)
        registered = cluster.tree.brokers()
        first.kill()
        begun = time.monotonic()
        rounds.acknowledges()
        cluster.wait(lambda: leads(cluster) not in (None, first), "the ensemble has another leader")
        # Who heard of no server for as long as a session lasts may have lost it.
        assert cluster.tree.brokers() == registered or time.monotonic() - begun > SESSION_S
        cluster.wait_registered()

        # With two servers left a leader dies: the controller learns it from those two.
        cluster.wait_healthy()
        victim = rounds.leader()
        cluster.nodes[victim].kill()
        cluster.wait_gone(victim)
        rounds.acknowledges()
        cluster.start_node(victim)
        first.start()

        # No quorum for a while: leaders go on. Its last two servers come back in time.
        cluster.wait_healthy()
        second = led(cluster)
        third = next(server for server in cluster.ensemble.servers if server not in (first, second))
        for server in (second, third):
            server.kill()
        rounds.acknowledges()
        time.sleep(NO_QUORUM_S)
        rounds.acknowledges()
        for server in (second, third):
            server.start(wait=False)
        for server in (second, third):
            server.wait_until_serving()

        # A server that hangs: who is connected to it goes elsewhere.
        cluster.wait_healthy()
        third.pause()
        rounds.acknowledges()
        victim = rounds.leader()
        cluster.nodes[victim].kill()
        cluster.wait_gone(victim)
        rounds.acknowledges()
        cluster.start_node(victim)
        third.resume()
        cluster.wait_healthy()

        report = Report(kinds, seed)
        judge(cluster, rounds.load, report)
    print(report)
    assert report.good, report
