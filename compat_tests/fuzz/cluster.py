"""Three brokers of ours under attack, beside a load of which every acknowledged record must be there at the end, on all
replicas.

Requests between brokers are left out: who may send them may take a cluster apart, as with Apache Kafka. The load's
topic has settings of its own and a name that no attacker learns.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import OURS, Node, NodeFailed
from compat_tests.clusters.replicas import differences
from compat_tests.faults.cluster.checker import check
from compat_tests.faults.cluster.load import Load, read_everything
from compat_tests.fuzz.campaign import Campaign, Plan, Target, Totals
from compat_tests.fuzz.findings import Findings
from compat_tests.fuzz.honest import SETTINGS

TOPIC = "load-of-the-cluster"
PARTITIONS = 3
BROKERS = 3


def target_of(node: Node) -> Target:
    return Target(f"broker {node.number}", node.address, node.pid, node.log, lambda: node.alive)


def attack_cluster(plan: Plan, findings: Findings, totals: Totals, say: Callable[[str], None]) -> None:
    """One campaign; what is wrong with the load goes to `findings` too."""
    plan = dataclasses.replace(plan, clustered=True, replicas=BROKERS)
    settings = {key.replace(".", "_"): value for key, value in SETTINGS.items()} | {"min_insync_replicas": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as temporary,
        Cluster(Path(temporary), [OURS] * BROKERS) as cluster,
    ):
        cluster.create_topic(TOPIC, PARTITIONS, BROKERS, **settings)
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
        load.start()
        try:
            targets = [target_of(node) for node in cluster.nodes.values()]
            Campaign(targets, plan, findings, totals, say).run(plan.seconds, 0)
        finally:
            load.stop()
        judge(cluster, load, findings, say)


def judge(cluster: Cluster, load: Load, findings: Findings, say: Callable[[str], None]) -> None:
    """Is everything there that was acknowledged, once, in order, on every replica?"""
    try:
        cluster.wait_healthy()
        final = read_everything(cluster.bootstrap, TOPIC, PARTITIONS)
    except (NodeFailed, OSError, AssertionError) as error:
        findings.add("the cluster after the attack", str(error))
        return
    report = check(load.sends, final, load.seen)
    say(f"the load: {report}")
    if not report.good:
        findings.add("the load's records", str(report))
    for text in (*load.errors, *load.refused, *differences(cluster, TOPIC)):
        findings.add("the load beside the attack", text)
