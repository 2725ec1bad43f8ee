"""docs/cluster.md: the commands for one machine, for a store that something else starts, and for ZooKeeper.

The examples that the page names are run by `compat_tests/clusters/test_examples.py`, Docker where there is one.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from compat_tests.harness.checks import wait_until
from compat_tests.harness.ports import free_ports
from compat_tests.harness.zookeeper import zookeeper
from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]
PAGE = "docs/cluster.md"
LIMIT_S = 120


def partitions(bootstrap: str, topic: str) -> dict[int, PartitionMetadata]:
    """Of a topic that exists: brokers hear of it one after the other, and any of them may be the one that answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[int, PartitionMetadata] = {}
    wait_until(
        lambda: found.update(admin.list_topics(topic, timeout=60).topics[topic].partitions) or found,
        "it is known",
        LIMIT_S,
    )
    return found


def replicas(bootstrap: str, topic: str) -> set[tuple[int, ...]]:
    """Of a topic that this makes with the cluster's own numbers, by a record that all have acknowledged."""
    # A new topic may be unknown for a while.
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "topic.metadata.propagation.max.ms": LIMIT_S * 1000}
    )
    failed: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(LIMIT_S) == 0
    assert not failed
    return {tuple(sorted(each.replicas)) for each in partitions(bootstrap, topic).values()}


def test_on_one_machine(tmp_path: Path) -> None:
    plain, with_data, example = texts(PAGE, "On one machine", "sh")[0].splitlines()
    assert example.startswith("python3 run.py example ")
    stranger = Stranger(tmp_path)
    on_free_ports = " --port 0"
    with stranger.keeps_running(plain.partition("#")[0] + on_free_ports, "bootstrap=") as cluster:
        bootstrap = cluster.output.splitlines()[0].removeprefix("bootstrap=")
        assert len(bootstrap.split(",")) == 3
        assert replicas(bootstrap, "t") == {(1, 2, 3)}
    line = with_data.replace("/var/lib/barnabas", str(tmp_path / "data")) + on_free_ports
    with stranger.keeps_running(line, "bootstrap=") as cluster:
        bootstrap = cluster.output.splitlines()[0].removeprefix("bootstrap=")
        assert len(bootstrap.split(",")) == 4
        replicas(bootstrap, "t")
        assert len(partitions(bootstrap, "t")) == 8
    assert sorted(path.name for path in (tmp_path / "data").glob("broker-*")) == [f"broker-{n}" for n in range(1, 5)]


def test_a_store_that_something_else_starts(tmp_path: Path) -> None:
    """`barnabas store DIR`, and brokers with `metadata.store.socket=DIR/socket`."""
    stranger = Stranger(tmp_path)
    with ExitStack() as stack:
        stack.enter_context(stranger.keeps_running("barnabas store store", "serving brokers"))
        for number in (1, 2):
            line = (
                f"barnabas serve --set metadata.store.socket=store/socket --set broker.id={number} "
                f"--set listeners=PLAINTEXT://localhost:909{number} --set log.dirs=broker-{number}"
            )
            stack.enter_context(stranger.keeps_running(line, "serves "))
        admin = AdminClient({"bootstrap.servers": stranger.text("localhost:9091")})
        wait_until(
            lambda: sorted(admin.list_topics(timeout=60).brokers) == [1, 2], "one broker knows of the other", LIMIT_S
        )


@pytest.mark.jvm
def test_on_zookeeper(tmp_path: Path) -> None:
    """The command for each of three brokers, whose machines are one here."""
    example, serve = texts(PAGE, "On ZooKeeper", "sh")
    assert example == "python3 run.py example three_brokers_zookeeper\n"
    stranger = Stranger(tmp_path)
    with zookeeper(tmp_path / "zookeeper") as zk, ExitStack() as stack:
        ports = free_ports(3)
        for number, port in enumerate(ports, 1):
            line = serve.replace("zk1:2181,zk2:2181,zk3:2181", zk.connect)
            line = line.replace("broker.id=1", f"broker.id={number}").replace("broker-1:9092", f"localhost:{port}")
            line = line.replace("/var/lib/barnabas", str(tmp_path / f"broker-{number}"))
            brokers = stack.enter_context(stranger.keeps_running(line.strip(), "serves "))
            assert brokers.process.poll() is None
        bootstrap = ",".join(f"localhost:{port}" for port in ports)
        assert replicas(bootstrap, "t") == {(1, 2, 3)}
        assert (tmp_path / "broker-3" / "t-0").is_dir()
