"""Apache Kafka's command-line tools, 3.9.1 and 4.3.1, on a cluster: topics with replicas, elections, moves, throttles,
configuration of one broker through another, verification of replicas, groups.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA_ZK_JARS
from compat_tests.faults.cluster.load import FAST_CLIENT
from compat_tests.harness.brokers import KAFKA_JARS

Names = Callable[..., str]
pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(600)]

VERSIONS = {"3.9.1": KAFKA_ZK_JARS, "4.3.1": KAFKA_JARS}


@pytest.fixture(scope="module")
def cluster(kinds: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that do not move leaders by themselves. So who stands still for a while keeps its own: nobody would
    give them back.
    """
    settings = {
        "auto.leader.rebalance.enable": "false",
        "zookeeper.session.timeout.ms": "60000",
        "replica.lag.time.max.ms": "60000",
    }
    with Cluster(tmp_path_factory.mktemp("tools"), kinds, settings=settings) as cluster:
        yield cluster


@pytest.fixture(params=list(VERSIONS))
def tools(request: pytest.FixtureRequest, cluster: Cluster, warm_jvms: WarmJvms) -> Tools:
    """The tools of one version."""
    return Tools(cluster.bootstrap, warm_jvms, VERSIONS[request.param])


@pytest.fixture
def old_tools(cluster: Cluster, warm_jvms: WarmJvms) -> Tools:
    """The tools of 3.9.1."""
    return Tools(cluster.bootstrap, warm_jvms, KAFKA_ZK_JARS)


def at(tools: Tools, bootstrap: str) -> Tools:
    """Return the same tools, asking these brokers only."""
    other = copy.copy(tools)
    other.bootstrap = bootstrap
    return other


def fill(cluster: Cluster, topic: str, lines: list[str]) -> None:
    """Send lines to a topic, round robin."""
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    producer = Producer({**FAST_CLIENT, "socket.timeout.ms": 60_000, **settings})
    count = len(producer.list_topics(topic, timeout=60).topics[topic].partitions)
    for number, line in enumerate(lines):
        producer.produce(
            topic,
            line.encode(),
            partition=number % count,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(120) == 0
    assert not failed


def read(cluster: Cluster, topic: str, group: str, count: int) -> None:
    """Read so many records as a member of a group, and commit."""
    consumer = Consumer(
        {
            **FAST_CLIENT,
            "socket.timeout.ms": 60_000,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found = 0
    deadline = time.monotonic() + 120
    while found < count:
        assert time.monotonic() < deadline, f"{found} of {count} records"
        found += sum(message.error() is None for message in consumer.consume(count, 0.5))
    consumer.commit(asynchronous=False)
    consumer.close()


def create(tools: Tools, cluster: Cluster, name: str, assignment: str) -> None:
    """Create a topic, and wait until all brokers know it: a tool asks any of them."""
    made = tools("kafka-topics", "--create", "--topic", name, "--replica-assignment", assignment)
    assert f"Created topic {name}." in made
    cluster.wait(lambda: cluster.is_served(name, assignment.count(",") + 1), f"all brokers serve {name}")


def described(tools: Tools, topic: str, *arguments: str) -> dict[int, dict[str, str]]:
    """Return the rows of `kafka-topics --describe` by partition."""
    text = tools("kafka-topics", "--describe", "--topic", topic, *arguments)
    found = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+): ([^\t]*)", line))
        if "Partition" in fields:
            found[int(fields["Partition"])] = {name: value.strip() for name, value in fields.items()}
    return found


def eventually(question: Callable[[], object], what: str, timeout: float = 120) -> None:
    """Ask again until the answer is yes."""
    deadline = time.monotonic() + timeout
    while not question():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_topics(tools: Tools, cluster: Cluster, unique: Names) -> None:
    name = unique()
    create(tools, cluster, name, "1:2:3,2:3:1,3:1:2")
    rows = described(tools, name)
    assert [rows[index]["Leader"] for index in range(3)] == ["1", "2", "3"]
    assert [rows[index]["Replicas"] for index in range(3)] == ["1,2,3", "2,3,1", "3,1,2"]
    tools("kafka-topics", "--alter", "--topic", name, "--partitions", "5")

    def has_five() -> bool:
        rows = described(tools, name)
        return len(rows) == 5 and {row["Leader"] for row in rows.values()} == {"1", "2", "3"}

    eventually(has_five, "five partitions are described, which all brokers lead")
    assert "larger than available brokers" in tools(
        "kafka-topics", "--create", "--topic", f"{name}-4", "--replication-factor", "4", "--partitions", "1", expect=1
    )
    tools("kafka-topics", "--delete", "--topic", name)
    eventually(lambda: name not in tools("kafka-topics", "--list").split(), "the topic is gone")


def test_under_replicated_and_elections(tools: Tools, cluster: Cluster, unique: Names) -> None:
    """A broker stops and returns: what --describe filters, and the preferred election that brings it back."""
    name = unique()
    create(tools, cluster, name, "2:3:1")
    eventually(lambda: described(tools, name).get(0, {}).get("Isr", "").count(",") == 2, "all in sync")
    eventually(lambda: described(tools, name, "--under-replicated-partitions") == {}, "none lacks a replica")
    cluster.nodes[2].stop()
    others = at(tools, f"{cluster.nodes[1].bootstrap},{cluster.nodes[3].bootstrap}")
    eventually(lambda: described(others, name)[0]["Leader"] == "3", "broker 3 leads")

    def lacks_one() -> bool:
        rows = described(others, name, "--under-replicated-partitions")
        return 0 in rows and rows[0]["Isr"].split(",") == ["3", "1"]

    eventually(lacks_one, "broker 2 is not in sync")
    eventually(lambda: described(others, name, "--unavailable-partitions") == {}, "it has a leader")
    cluster.start_node(2)
    cluster.wait_healthy()
    assert cluster.leader(name, 0) == 3
    cluster.wait(lambda: cluster.is_served(name, 1), "broker 2 knows it, too")
    assert described(tools, name)[0]["Leader"] == "3"
    election = ("--election-type", "preferred", "--topic", name, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in tools(
        "kafka-leader-election", *election
    )
    eventually(lambda: described(tools, name)[0]["Leader"] == "2", "broker 2 leads again")
    assert "Valid replica already elected" in tools("kafka-leader-election", *election)


def test_reassignment(tools: Tools, cluster: Cluster, unique: Names, tmp_path: Path) -> None:
    """Generate, execute with a throttle, look, verify (which takes the throttle away), and cancel another."""
    name = unique()
    create(tools, cluster, name, "1:2,2:1")
    fill(cluster, name, [f"line {number} {'x' * 200}" for number in range(500)])
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    text = tools(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3"
    )
    plans = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(plans) == 2
    assert {number for one in plans[1]["partitions"] for number in one["replicas"]} == {2, 3}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(plans[1]))
    text = tools(
        "kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan), "--throttle", "50000000"
    )
    assert "Successfully started partition reassignment" in text
    assert "The replica throttle limit was set to 50000000 B/s" in text or "throttle" in text

    def verified() -> bool:
        said = tools("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
        return "is still in progress" not in said and said.count("is completed") + said.count("is complete.") >= 2

    eventually(verified, "the reassignment is complete", 120)

    def replicas() -> set[str]:
        return {number for row in described(tools, name).values() for number in row["Replicas"].split(",")}

    eventually(lambda: replicas() == {"2", "3"}, "the replicas are the new ones")
    entity = ("--entity-type", "brokers", "--entity-name", "2", "--describe")
    eventually(lambda: "replication.throttled.rate" not in tools("kafka-configs", *entity), "there is no rate")
    entity = ("--entity-type", "topics", "--entity-name", name, "--describe")
    eventually(lambda: "throttled.replicas" not in tools("kafka-configs", *entity), "no replica is throttled")
    eventually(lambda: not list(cluster.nodes[1].data.glob(f"{name}-?")), "broker 1 has dropped its replicas")


def test_reassignment_cancelled(tools: Tools, cluster: Cluster, unique: Names, tmp_path: Path) -> None:
    """A move that the throttle makes endless is listed, and cancelled: the old replicas stay."""
    name = unique()
    create(tools, cluster, name, "1:2")
    fill(cluster, name, [f"line {number} {'x' * 10000}" for number in range(500)])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [3, 1]}]}))
    file = ("--reassignment-json-file", str(plan))
    tools("kafka-reassign-partitions", "--execute", *file, "--throttle", "1000")
    time.sleep(2)  # without the throttle it would be over then
    moving = re.compile(rf"{re.escape(name)}-0: replicas: 3,1,2\. adding: 3\. removing: 2\.")
    eventually(lambda: moving.search(tools("kafka-reassign-partitions", "--list")), "the move is listed")
    assert "is still in progress" in tools("kafka-reassign-partitions", "--verify", *file, "--preserve-throttles")
    cancelled = tools("kafka-reassign-partitions", "--cancel", *file)
    assert f"Successfully cancelled partition reassignment for: {name}-0" in cancelled
    none = "No partition reassignments found"
    eventually(lambda: none in tools("kafka-reassign-partitions", "--list"), "nothing moves")
    eventually(lambda: described(tools, name)[0]["Replicas"] == "1,2", "the replicas are the old ones")
    eventually(lambda: not list(cluster.nodes[3].data.glob(f"{name}-0")), "broker 3 has dropped what it had copied")
    entity = ("--entity-type", "brokers", "--entity-name", "1", "--describe")
    eventually(lambda: "replication.throttled.rate" not in tools("kafka-configs", *entity), "there is no rate")


def test_configs(tools: Tools, cluster: Cluster, unique: Names) -> None:
    """A broker's settings, changed and described through any broker; a topic's, seen by all."""
    name = unique()
    create(tools, cluster, name, "1:2:3")
    entity = ("--entity-type", "topics", "--entity-name", name)
    tools("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=5400000")
    for node in cluster.nodes.values():
        one = at(tools, node.bootstrap)
        eventually(
            lambda one=one: "retention.ms=5400000" in one("kafka-configs", *entity, "--describe"), f"{node} knows"
        )
    broker = ("--entity-type", "brokers", "--entity-name", "3")
    tools("kafka-configs", *broker, "--alter", "--add-config", "log.cleaner.backoff.ms=12345")
    eventually(
        lambda: "log.cleaner.backoff.ms=12345" in tools("kafka-configs", *broker, "--describe"), "broker 3 has it"
    )
    tools("kafka-configs", *broker, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert cluster.tree.json("/config/brokers/3")["config"] == {}


def test_replica_verification(old_tools: Tools, cluster: Cluster, unique: Names) -> None:
    """kafka-replica-verification fetches as a replica does and finds no lag and no difference."""
    name = unique()
    create(old_tools, cluster, name, "1:2:3,3:2:1")
    fill(cluster, name, [f"line {number}" for number in range(500)])
    with old_tools.background(
        "kafka-replica-verification", "--topics-include", name, "--report-interval-ms", "1000"
    ) as verifier:
        verifier.wait_for("max lag is", 3)

        def lag() -> int:
            return [int(one) for line in verifier.lines for one in re.findall(r"max lag is (\d+)", line)][-1]

        eventually(lambda: lag() == 0, "nobody lags")
        assert [line for line in verifier.lines if "doesn't match" in line or "not match" in line] == []


def test_offsets_and_groups(tools: Tools, cluster: Cluster, unique: Names) -> None:
    """End offsets of partitions led by different brokers; a group is described, reset and deleted."""
    name, group = unique(), unique("group")
    create(tools, cluster, name, "1:2:3,2:3:1,3:1:2")
    fill(cluster, name, [f"{number}" for number in range(60)])
    ends = re.findall(rf"^{re.escape(name)}:\d+:(\d+)$", tools("kafka-get-offsets", "--topic", name), re.MULTILINE)
    assert sum(map(int, ends)) == 60
    read(cluster, name, group, 60)
    assert group in tools("kafka-consumer-groups", "--list").split()

    def lag() -> int | None:
        text = tools("kafka-consumer-groups", "--describe", "--group", group)
        lags = [line.split()[5] for line in text.splitlines() if line.startswith(group)]
        return sum(map(int, lags)) if all(each.isdigit() for each in lags) else None

    assert lag() == 0
    state = tools("kafka-consumer-groups", "--describe", "--group", group, "--state")
    assert re.search(r":\d+ +\([123]\)", state)
    eventually(
        lambda: "Empty" in tools("kafka-consumer-groups", "--describe", "--group", group, "--state"), "it is empty"
    )
    tools("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
    assert lag() == 60
    tools("kafka-consumer-groups", "--delete", "--group", group)
    eventually(lambda: group not in tools("kafka-consumer-groups", "--list").split(), "the group is gone")
