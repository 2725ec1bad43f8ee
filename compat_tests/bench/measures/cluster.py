"""Three brokers of which one is stopped or killed under a steady load: the longest time without an acknowledgement on a
partition that it led. It is made of the ZooKeeper session (6 s here, for both), if it was killed, the election, and the
client's finding out.
"""

from __future__ import annotations

import statistics
import time

from compat_tests.bench.brokers import Subject
from compat_tests.bench.measures.context import Context
from compat_tests.clusters.harness import Cluster
from compat_tests.faults.cluster.load import Load

PARTITIONS = 6


def leader_killed(context: Context, subject: Subject) -> dict[str, float]:
    """kill -9."""
    return _interrupted(subject, kill=True)


def leader_stopped(context: Context, subject: Subject) -> dict[str, float]:
    """TERM: it hands over first."""
    return _interrupted(subject, kill=False)


def _interrupted(subject: Subject, *, kill: bool) -> dict[str, float]:
    cluster = subject.cluster
    assert cluster is not None
    with subject.topic(PARTITIONS) as topic:
        load = Load(cluster.bootstrap, topic, PARTITIONS)
        load.start()
        everything = set(range(PARTITIONS))
        try:
            assert load.wait_acknowledged(everything, 120) is not None
            victim, harmed = _leader(cluster, topic)
            begun, mark = time.monotonic(), len(load.sends)
            _end(cluster, victim, kill=kill)
            assert load.wait_acknowledged(everything, 120) is not None, cluster.logs()
            silent = load.silent(begun, mark)
            cluster.start_node(victim)
            cluster.wait_healthy()
        finally:
            load.stop()
    found = [silent[index] for index in harmed]
    return {"silent_median_s": statistics.median(found), "silent_max_s": max(found)}


def _leader(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    """Who leads partition 0, and all that this broker leads. Leaders may move between the two questions."""
    deadline = time.monotonic() + 120
    while True:
        found = cluster.leader(topic, 0)
        led = cluster.led_by(topic, found) if found >= 0 else []
        if led:
            return found, led
        assert time.monotonic() < deadline, f"nobody leads {topic}"
        time.sleep(0.1)


def _end(cluster: Cluster, victim: int, *, kill: bool) -> None:
    if kill:
        cluster.nodes[victim].kill()
        cluster.wait_gone(victim)
    else:
        cluster.nodes[victim].stop()
