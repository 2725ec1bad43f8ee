"""`barnabas.Cluster`, brokers and their store as child processes, and its fixtures in pytest runs of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import barnabas
from barnabas.server.tests.test_barnabas_process import gone, wait_until_gone
from barnabas.server.tests.test_barnabas_pytest import suite  # noqa: F401  # a fixture

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["pytester"]
pytestmark = pytest.mark.campaign


def send(cluster: barnabas.Cluster, topic: str, count: int = 100) -> None:
    """All are acknowledged on return."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2})
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)


def test_a_life() -> None:
    cluster = barnabas.Cluster(3, {"num.partitions": 4}, topics={"orders": 6})
    with pytest.raises(barnabas.BrokerError, match="was not started"):
        _ = cluster.bootstrap
    with cluster as same:
        assert same is cluster
        pids = [broker.pid for broker in cluster.brokers] + [cluster.store.pid]
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
        assert cluster.bootstrap == ",".join(broker.bootstrap for broker in cluster.brokers)
        cluster.create_topic("clicks")
        cluster.create_topic("single", 1, {"retention.ms": 1000}, replicas=1)
        with pytest.raises(barnabas.BrokerError, match="topic single was not created"):
            cluster.create_topic("single")
        with pytest.raises(barnabas.BrokerError, match="topic many was not created"):
            cluster.create_topic("many", replicas=4)
        for broker in cluster.brokers:  # without another look: every broker knows it
            metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60)
            assert len(metadata.topics["clicks"].partitions) == 4
            assert len(metadata.topics["orders"].partitions[0].replicas) == 3
            assert len(metadata.topics["single"].partitions[0].replicas) == 1
        send(cluster, "orders")
        data = [broker.data for broker in cluster.brokers]
        assert all((each / "orders-0").is_dir() for each in data)

        killed = cluster.brokers[1]
        killed.kill()
        assert not killed.running
        assert cluster.running
        send(cluster, "orders")
        killed.start()
        killed.restart()
        killed.stop()
        killed.stop()
        killed.start()
        send(cluster, "orders")

        cluster.stop()
        assert not cluster.running
        bootstrap = cluster.bootstrap
        cluster.start()
        assert cluster.bootstrap == bootstrap
        assert topics(bootstrap) >= {"orders", "clicks", "single"}
        cluster.kill()
        cluster.start()
        send(cluster, "orders")
        pids += [broker.pid for broker in cluster.brokers] + [cluster.store.pid]
    assert all(gone(pid) for pid in pids)
    assert not any(each.exists() for each in data)


def test_topics_and_groups_go_between_tests() -> None:
    with barnabas.Cluster(2, topics=["orders:3"]) as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        send(cluster, "orders", 5)
        consumer.subscribe(["orders"])
        assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        consumer.close()
        cluster.reset()
        assert "orders" not in topics(cluster.bootstrap)
        for broker in cluster.brokers:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert not admin.list_consumer_groups(request_timeout=60).result().valid
        cluster.create_topic("orders", 2)
        cluster.delete_topic("orders")
        cluster.delete_topic("never")
        cluster.reset()


def test_the_store_away_and_back() -> None:
    """Brokers serve meanwhile; topics wait."""
    with barnabas.Cluster(2, topics={"orders": 2}) as cluster:
        cluster.store.kill()
        send(cluster, "orders")
        cluster.store.start()
        cluster.create_topic("later")
        send(cluster, "later")
        cluster.store.stop()
        cluster.store.start()
        cluster.delete_topic("later")


@pytest.mark.parametrize("security", ["SSL", "SASL_SSL"])
def test_security(security: str) -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with barnabas.Cluster(2, settings, security=security, topics=["orders"]) as cluster:
        failed: list[object] = []
        for user, is_let in (("admin", True), ("alice", False)):
            producer = Producer({**cluster.access(user).librdkafka(), "acks": "all", "log_level": 1})
            producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
            assert producer.flush(60) == 0
            assert bool(failed) is not is_let, failed
        with pytest.raises(ValueError, match="no user 'bob', but admin, alice"):
            cluster.access("bob")


def test_what_ends_by_itself_is_reported() -> None:
    cluster = barnabas.Cluster(2)
    cluster.start()
    os.kill(cluster.brokers[1].pid, signal.SIGKILL)
    while cluster.brokers[1].running:  # its last thread may take a moment longer than its first
        time.sleep(0.01)
    with pytest.raises(barnabas.BrokerError, match=r"broker 2 had ended by itself \(signal 9\)"):
        cluster.close()
    assert not cluster.running


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="1 to 64 brokers, not 0"):
        barnabas.Cluster(0)
    with pytest.raises(ValueError, match=r"broker.id is not among the settings of barnabas.Cluster: each broker"):
        barnabas.Cluster(2, {"broker.id": 1})
    with pytest.raises(ValueError, match="say data=DIRECTORY"):
        barnabas.Cluster(2, {"log.dirs": "/x"})
    with pytest.raises(ValueError, match=r"users of barnabas.Cluster have no effect without security"):
        barnabas.Cluster(2, users={"a": "b"})
    with pytest.raises(ValueError, match=r"security of barnabas.Cluster is one of"):
        barnabas.Cluster(2, security="TLS")
    with pytest.raises(TypeError, match=r"topics of barnabas.Cluster are a list or a dictionary"):
        barnabas.Cluster(2, topics="orders")
    with (
        pytest.raises(barnabas.BrokerError, match="broker 1 refuses its settings"),
        barnabas.Cluster(2, {"num.partitions": 0}),
    ):
        pass


PARENT = """
import sys, barnabas
cluster = barnabas.Cluster(2, topics=["orders"]).start()
print(cluster.store.pid, *(broker.pid for broker in cluster.brokers), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "left"])
def test_it_does_not_outlive_its_parent(tmp_path: Path, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        if how == "killed":
            parent.kill()
        else:
            parent.communicate("")  # without having stopped the cluster
    for pid in pids:
        wait_until_gone(pid)
    assert not list(tmp_path.iterdir())


FIXTURES = """
    import pytest
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    def send(cluster, topic):
        told = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce(topic, b"hello", on_delivery=lambda error, message: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None]

    def replicas(cluster, topic):
        found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=60).topics[topic]
        return len(found.partitions), len(found.partitions[0].replicas)

    def test_shared(kafka_cluster, kafka_topic):
        assert len(kafka_cluster.brokers) == 2
        assert replicas(kafka_cluster, kafka_topic) == (3, 2)
        send(kafka_cluster, kafka_topic)

    @pytest.mark.kafka_topic(partitions=1, replicas=1)
    def test_same(kafka_cluster, kafka_topic):
        assert replicas(kafka_cluster, kafka_topic) == (1, 1)

    @pytest.mark.kafka_brokers(3)
    @pytest.mark.kafka_settings({"num.partitions": 4})
    def test_of_its_own(kafka_cluster_fresh, kafka_topic):
        assert replicas(kafka_cluster_fresh, kafka_topic) == (4, 3)
        kafka_cluster_fresh.brokers[2].kill()
        send(kafka_cluster_fresh, kafka_topic)
        kafka_cluster_fresh.store.kill()  # now no topic can be deleted, and none need be

    @pytest.mark.kafka_brokers(3)
    def test_wrong_fixture(kafka_cluster): pass

    @pytest.mark.kafka_brokers("3")
    def test_wrong_number(kafka_cluster_fresh): pass

    @pytest.mark.kafka_settings({"num.partitions": 4})
    def test_no_effect(kafka_cluster): pass

    @pytest.mark.kafka_topic(replicas=1)
    def test_no_cluster(kafka_broker, kafka_topic): pass
"""


def test_fixtures(suite: pytest.Pytester) -> None:  # noqa: F811
    suite.makeini("[pytest]\nkafka_cluster_brokers = 2\nkafka_broker_settings = num.partitions=3\n")
    suite.makepyfile(FIXTURES)
    result = suite.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=3, errors=4)
    result.stdout.fnmatch_lines(
        [
            "*kafka_brokers has no effect without kafka_cluster_fresh",
            "*kafka_brokers takes one number: kafka_brokers(4)",
            "*kafka_settings has no effect on kafka_cluster, which all tests share: use kafka_cluster_fresh",
            "*kafka_topic takes replicas for a cluster only",
        ]
    )
    result.stdout.no_fnmatch_line("*was not deleted*")


def test_a_failure_shows_the_log_of_the_cluster(suite: pytest.Pytester) -> None:  # noqa: F811
    suite.makepyfile(
        """
        import time

        def test_fails(kafka_cluster_fresh):
            kafka_cluster_fresh.store.kill()
            kafka_cluster_fresh.store.start()
            deadline = time.monotonic() + 60
            while "connection to the metadata store was lost" not in kafka_cluster_fresh.log:
                assert time.monotonic() < deadline, "no broker says so"
                time.sleep(0.05)
            assert False
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- end of the log of kafka_cluster_fresh -*",
            "*broker-? store: the connection to the metadata store was lost*",
        ]
    )
