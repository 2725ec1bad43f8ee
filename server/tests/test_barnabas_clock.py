"""The clock and the snapshots of `barnabas.Broker`, as stock clients see them, and the page about them."""

from __future__ import annotations

import datetime
import re
import statistics
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import barnabas
from barnabas.server.tests.test_barnabas_pytest import patient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of what it reads its schemas with
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker() as one:
        yield one


@pytest.fixture
def topic(broker: barnabas.Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=1)
    return name


def write(broker: barnabas.Broker, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for value in values:
        producer.send(topic, value, timestamp_ms=broker.clock.now_ms()).get(60)
    producer.close()


def span(broker: barnabas.Broker, topic: str) -> tuple[int, int]:
    """Of partition 0, from the log start to the end."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    place = TopicPartition(topic, 0)
    found = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
    consumer.close()
    return found


def test_seven_days_of_retention_take_no_time(broker: barnabas.Broker, topic: str) -> None:
    write(broker, topic, b"x", b"y")
    before = broker.clock.now()
    broker.clock.advance("6d")
    assert span(broker, topic) == (0, 2)
    begun = time.perf_counter()
    broker.clock.advance(datetime.timedelta(days=1, minutes=10))
    print(f"a day and ten minutes: {time.perf_counter() - begun:.3f} s")
    assert span(broker, topic) == (2, 2)
    assert datetime.timedelta(days=7) < broker.clock.now() - before < datetime.timedelta(days=7, hours=1)
    write(broker, topic, b"z")
    assert span(broker, topic) == (2, 3)


def test_a_session_expires_and_its_consumer_joins_again(broker: barnabas.Broker, topic: str) -> None:
    write(broker, topic, b"x")
    settings = {"auto_offset_reset": "earliest", "session_timeout_ms": 30_000, "heartbeat_interval_ms": 1000}
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=topic, **settings)
    assert next(consumer).value == b"x"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def members() -> int:
        return len(admin.describe_consumer_groups([topic])[topic].result(60).members)

    assert members() == 1
    broker.clock.advance(5)
    assert members() == 1
    broker.clock.advance("2m")
    while members():  # a heartbeat came in the middle: its session lasts into the next two minutes
        broker.clock.advance("2m")
    until = time.monotonic() + 60
    while not members() and time.monotonic() < until:
        consumer.poll(100)  # its next heartbeat tells it
    assert members() == 1
    consumer.close()


def test_a_transaction_runs_out_of_time(broker: barnabas.Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(60)
    broker.clock.advance("2m")
    write(broker, topic, b"after")
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    assert next(consumer).value == b"after"
    consumer.close()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(60)
    assert refused.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
    )


def test_offsets_expire(broker: barnabas.Broker, topic: str) -> None:
    write(broker, topic, b"x")
    conf = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(conf)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.close()

    def committed() -> int:
        asked = confluent_kafka.TopicPartition(topic, 0)
        looker = confluent_kafka.Consumer(conf)
        (found,) = looker.committed([asked], 60)
        looker.close()
        return int(found.offset)

    assert committed() == 1
    broker.clock.advance("6d")
    assert committed() == 1
    broker.clock.advance("1d20m")
    assert committed() == confluent_kafka.OFFSET_INVALID


def test_what_cannot_be_is_refused(broker: barnabas.Broker) -> None:
    for by in ("7 days", "", "-1s", "d7", -1, float("nan")):
        with pytest.raises(ValueError, match="by"):
            broker.clock.advance(by)
    with pytest.raises(ValueError, match="no snapshot"):
        broker.restore(barnabas.Snapshot("0" * 32))


@pytest.mark.campaign
def test_restored_it_is_as_it_was_also_after_a_kill() -> None:
    with barnabas.Broker(topics={"a": 2}) as broker:
        write(broker, "a", b"one")
        snapshot = broker.snapshot()
        bootstrap = broker.bootstrap
        for act in (lambda: None, broker.kill, broker.stop):
            write(broker, "a", b"two")
            broker.create_topic("b")
            broker.clock.advance("30d")
            act()
            if not broker.running:
                broker.start()
            broker.restore(snapshot)
            assert broker.bootstrap == bootstrap
            assert "b" not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
            assert span(broker, "a")[0] == 0
            now = datetime.datetime.now(datetime.UTC)
            assert abs(broker.clock.now() - now) < datetime.timedelta(minutes=1)
        write(broker, "a", b"three")
        broker.forget(snapshot)
        with pytest.raises(ValueError, match="no snapshot"):
            broker.restore(snapshot)
        assert broker.log == ""


def test_data_that_is_kept_is_left_without_snapshots(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        broker.snapshot()
        assert [path.name for path in tmp_path.iterdir() if path.name != "data"] != []
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_hundred_topics() -> None:
    """How long it takes is printed, not judged."""
    topics = [f"t{number}" for number in range(100)]
    with barnabas.Broker(topics=topics) as broker:
        conf = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
        producer = confluent_kafka.Producer(conf)
        for name in topics:
            for number in range(10):
                producer.produce(name, b"%d" % number)
        assert producer.flush(60) == 0
        conf = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(conf)  # now there are the 50 partitions of offsets as well
        consumer.subscribe(topics)
        assert consumer.poll(60) is not None
        consumer.close()
        taking, restoring = [], []
        for _ in range(5):
            begun = time.perf_counter()
            snapshot = broker.snapshot()
            taking.append(time.perf_counter() - begun)
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
            for name in topics:
                producer.produce(name, b"more")
            assert producer.flush(60) == 0
            begun = time.perf_counter()
            broker.restore(snapshot)
            restoring.append(time.perf_counter() - begun)
            assert span(broker, "t50") == (0, 10)
        print(f"snapshot: {statistics.median(taking) * 1000:.0f} ms")
        print(f"restore: {statistics.median(restoring) * 1000:.0f} ms")


@pytest.mark.campaign
def test_the_page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/testing-time.md shows does what it says."""
    from importlib.metadata import entry_points

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    if not any(point.name == "barnabas" for point in entry_points(group="pytest11")):
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p barnabas.pytest_plugin")
    page = (ROOT / "docs/testing-time.md").read_text(encoding="utf-8")
    blocks = [patient(block) for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)]
    pytester.makepyfile(**{f"test_{number}": block for number, block in enumerate(blocks)})
    pytester.runpytest_subprocess().assert_outcomes(passed=4)
