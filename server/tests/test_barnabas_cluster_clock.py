"""The clock and the snapshots of `barnabas.Cluster`, as stock clients see them."""

from __future__ import annotations

import datetime
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from barnabas.cluster_clock import ClusterClock
from barnabas.process import SNAPSHOTS_SUFFIX

pytestmark = pytest.mark.campaign
PATIENT = {"num.partitions": 3, "zookeeper.session.timeout.ms": 60_000}
"""A process that stands still for a while does not lose its session."""
START_S = 300
"""Three brokers that recover all they have, on a machine whose cores are wanted by ten others."""


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Cluster]:
    with barnabas.Cluster(3, PATIENT, timeout_s=START_S) as one:
        yield one


@pytest.fixture
def cluster(shared: barnabas.Cluster) -> Iterator[barnabas.Cluster]:
    yield shared
    assert "ERROR" not in shared.log
    shared.reset()


@pytest.fixture(scope="module")
def mortal() -> Iterator[barnabas.Cluster]:
    """One whose dead brokers are missed after six seconds."""
    with barnabas.Cluster(3, {"num.partitions": 3}, timeout_s=START_S) as one:
        yield one
        assert "ERROR" not in one.log


def write(cluster: barnabas.Cluster, topic: str, *values: bytes) -> None:
    """With the brokers' time. All are acknowledged on return."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for value in values:
        producer.produce(
            topic,
            value,
            timestamp=cluster.clock.now_ms(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(120) == 0
    assert not failed


def values(cluster: barnabas.Cluster, topic: str, *, committed: bool = False) -> list[bytes]:
    return sorted(record.value for record in cluster.topics[topic].records(committed=committed) if record.value)


def sizes(cluster: barnabas.Cluster, topic: str) -> list[int]:
    """How many bytes of it each broker has."""
    return [sum(file.stat().st_size for file in broker.data.glob(f"{topic}-*/*.log")) for broker in cluster.brokers]


def consumer_of(cluster: barnabas.Cluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "log_level": 2,
        }
    )


def members(cluster: barnabas.Cluster, group: str) -> set[str]:
    """Their ids."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return {each.member_id for each in admin.describe_consumer_groups([group])[group].result(60).members}


def in_sync(cluster: barnabas.Cluster, topic: str) -> set[tuple[int, ...]]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=60).topics[topic]
    return {tuple(sorted(each.isrs)) for each in found.partitions.values()}


def until(expected: object, ask: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """A clock that is advanced waits a second for brokers that do not come to rest. On a busy machine what is due is
    done then, but what follows from it at other brokers may come a little later.
    """
    deadline = time.monotonic() + 60
    while (found := ask(*arguments, **options)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_seven_days_of_retention_on_all_replicas(cluster: barnabas.Cluster) -> None:
    cluster.create_topic("old")
    write(cluster, "old", *[b"%d" % number for number in range(30)])
    before = cluster.clock.now()
    cluster.clock.advance("6d")
    assert len(values(cluster, "old")) == 30
    assert sizes(cluster, "old")[0] > 0
    begun = time.perf_counter()
    cluster.clock.advance(datetime.timedelta(days=1, minutes=10))
    print(f"a day and ten minutes: {time.perf_counter() - begun:.3f} s")
    until([], values, cluster, "old")
    until([0, 0, 0], sizes, cluster, "old")
    assert datetime.timedelta(days=7) < cluster.clock.now() - before < datetime.timedelta(days=7, hours=1)
    until({(1, 2, 3)}, in_sync, cluster, "old")  # nobody was late, or it is over
    write(cluster, "old", b"new")
    assert values(cluster, "old") == [b"new"]
    assert "connection" not in cluster.log


def test_every_broker_has_the_same_time_also_one_that_comes_later(cluster: barnabas.Cluster) -> None:
    from barnabas.control import Control

    def times_ms() -> list[int]:
        found: list[int] = []
        for broker in cluster.brokers:
            found.append(int(Control(lambda broker=broker: broker.control_url).ask("GET", "/v1/clock")["now_ms"]))  # type: ignore[misc]
        return found

    cluster.clock.advance("1d")
    cluster.clock.advance(0)
    cluster.clock.advance(0.25)
    cluster.brokers[1].restart()
    now_ms = cluster.clock.now_ms()
    assert cluster.clock.ahead_s >= 86400.25
    assert all(0 <= each - now_ms < 120_000 for each in times_ms())


def test_sessions_transactions_and_offsets_run_out(cluster: barnabas.Cluster) -> None:
    cluster.create_topic("t", 1)
    write(cluster, "t", b"before")
    consumer = consumer_of(cluster, "g")
    consumer.subscribe(["t"])
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("t", b"never")
    producer.flush(60)
    (member,) = members(cluster, "g")
    cluster.clock.advance("3m")
    while member in members(cluster, "g"):  # a heartbeat came in the middle: its session lasts into the next minutes
        cluster.clock.advance("3m")
    write(cluster, "t", b"after")
    until([b"after", b"before"], values, cluster, "t", committed=True)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(60)
    consumer.close()

    def committed() -> int:
        looker = consumer_of(cluster, "g")
        (found,) = looker.committed([confluent_kafka.TopicPartition("t", 0)], 60)
        looker.close()
        return int(found.offset)

    assert committed() == 1
    cluster.clock.advance("7d1h")
    until(confluent_kafka.OFFSET_INVALID, committed)


def test_with_a_broker_and_then_the_store_away(mortal: barnabas.Cluster) -> None:
    cluster = mortal
    cluster.create_topic("t", 3)
    cluster.brokers[2].kill()
    cluster.clock.advance("1h")
    write(cluster, "t", b"x")
    cluster.brokers[2].start()
    cluster.store.kill()
    cluster.clock.advance("1m")
    with pytest.raises(barnabas.BrokerError, match="all its brokers and of its store"):
        cluster.snapshot()
    cluster.store.start()
    cluster.clock.advance("1m")
    assert values(cluster, "t") == [b"x"]


@pytest.mark.parametrize("by", ["7 days", "", "-1s", -1, float("nan")])
def test_what_cannot_be(by: float | str, shared: barnabas.Cluster) -> None:
    ahead_s = shared.clock.ahead_s
    with pytest.raises(ValueError, match="by"):
        shared.clock.advance(by)
    assert shared.clock.ahead_s == ahead_s


def test_no_broker_no_clock() -> None:
    with pytest.raises(barnabas.BrokerError, match="no broker of the cluster is running"):
        ClusterClock(list).advance(1)
    with pytest.raises(barnabas.BrokerError, match="does not answer /v1/clock/hold"):
        ClusterClock(lambda: ["http://127.0.0.1:1"]).advance(1)


def test_a_broker_that_dies_meanwhile_holds_up_nobody(mortal: barnabas.Cluster) -> None:
    """Those that live go on by themselves."""
    cluster = mortal
    with cluster.clock.held() as brokers:
        cluster.brokers[0].kill()
        with pytest.raises(barnabas.BrokerError, match="does not answer /v1/clock/step"):
            brokers.come_to_rest()
    cluster.brokers[0].start()
    cluster.clock.advance("1m")
    cluster.create_topic("u")
    write(cluster, "u", b"x")


def test_restored_it_is_as_it_was(tmp_path: Path) -> None:
    with barnabas.Cluster(3, PATIENT, data=tmp_path / "data", timeout_s=START_S) as cluster:
        cluster.create_topic("t", settings={"retention.ms": 3_600_000})
        large = os.urandom(300_000)
        write(cluster, "t", b"one", b"two", large)
        consumer = consumer_of(cluster, "g")
        consumer.subscribe(["t"])
        for _ in range(3):
            assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        consumer.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"open")
        producer.flush(60)
        snapshot = cluster.snapshot()
        for turn in range(3):
            write(cluster, "t", b"more")
            cluster.create_topic(f"u{turn}")
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.delete_consumer_groups(["g"])["g"].result(60)
            cluster.clock.advance("2h")
            until([], values, cluster, "t", committed=True)
            if turn == 1:
                cluster.brokers[0].kill()
            if turn == 2:
                cluster.delete_topic("t")
                cluster.stop()
            cluster.restore(snapshot)
            assert cluster.clock.ahead_s == 0
            assert values(cluster, "t") == sorted([b"one", b"two", large, b"open"])
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            assert not {name for name in admin.list_topics(timeout=60).topics if name.startswith("u")}
            looker = consumer_of(cluster, "g")
            places = [confluent_kafka.TopicPartition("t", number) for number in range(3)]
            assert sum(max(each.offset, 0) for each in looker.committed(places, 60)) == 3
            looker.close()
        # The transaction that was open is open again, and runs out.
        cluster.clock.advance("3m")
        until(sorted([b"one", b"two", large]), values, cluster, "t", committed=True)
        with pytest.raises(ValueError, match="no snapshot"):
            cluster.restore(barnabas.Snapshot("0" * 32))
        cluster.forget(snapshot)
        with pytest.raises(ValueError, match="no snapshot"):
            cluster.restore(snapshot)
        cluster.forget(cluster.snapshot())
        damaged = cluster.snapshot()
        shutil.rmtree(f"{cluster.brokers[2].data}{SNAPSHOTS_SUFFIX}")
        with pytest.raises(barnabas.BrokerError, match=r"the cluster cannot be restored: there is no snapshot"):
            cluster.restore(damaged)
        assert all(broker.running for broker in cluster.brokers)
        cluster.snapshot()
        assert "ERROR" not in cluster.log
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["broker-1", "broker-2", "broker-3", "store"]


def test_a_snapshot_while_clients_change_the_metadata() -> None:
    """It is of one moment: what is restored is whole, and goes on."""
    over = threading.Event()

    def create(bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        number = 0
        while not over.is_set():
            for made in admin.create_topics([NewTopic(f"u{number}", 2, 3)]).values():
                made.result(60)
            number += 1

    with barnabas.Cluster(3, PATIENT, timeout_s=START_S) as cluster:
        thread = threading.Thread(target=create, args=(cluster.bootstrap,))
        thread.start()
        try:
            while "u3" not in cluster.topics:
                pass
            snapshots = [cluster.snapshot() for _ in range(3)]
        finally:
            over.set()
            thread.join()
        counts = []
        for snapshot in snapshots:
            cluster.restore(snapshot)
            topics = list(cluster.topics)
            counts.append(len(topics))
            for topic in (topics[0], topics[-1]):
                write(cluster, topic, b"x")
                assert values(cluster, topic) == [b"x"]
        assert counts == sorted(counts)
        assert "ERROR" not in cluster.log
