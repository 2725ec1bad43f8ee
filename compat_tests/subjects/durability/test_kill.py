"""kill -9 under load, again and again: every acknowledged record is there, in order, once; groups go on where they
committed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.harness.broker_process import Server
from compat_tests.harness.checks import wait_until

pytestmark = pytest.mark.campaign

TOPIC = "killed"
PARTITIONS = 3
ROUNDS = 4
PER_ROUND = 4000
NO_MEMBER = (22, 25, 27)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    # Small segments, so that a kill also falls on rolls.
    server = Server(tmp_path, **{"log.segment.bytes": "300000", "offsets.topic.num.partitions": "5"})
    server.start()
    yield server
    server.stop()


def test_acknowledged_records_survive_kill_9(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    acknowledged: dict[tuple[int, int], int] = {}
    failed: list[object] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(error)
            return
        number = int(message.value().split(b" ")[0])
        place = (message.partition(), message.offset())
        assert place not in acknowledged, f"{place} was given to {acknowledged[place]} and to {number}"
        acknowledged[place] = number

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "compression.type": "lz4",
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    numbers = itertools.count()
    sent = 0
    for _ in range(ROUNDS):
        goal = len(acknowledged) + PER_ROUND
        while len(acknowledged) < goal:
            number = next(numbers)
            try:
                producer.produce(
                    TOPIC, b"%d " % number + b"x" * 200, partition=number % PARTITIONS, on_delivery=delivered
                )
                sent += 1
            except BufferError:
                producer.poll(0.1)
            producer.poll(0)
            assert not failed
        server.kill()
        server.start()
    assert producer.flush(180) == 0
    assert not failed
    assert len(acknowledged) == sent

    read = _read_all(server, sent)
    assert read == acknowledged
    for partition in range(PARTITIONS):
        in_order = [number for (where, _), number in sorted(read.items()) if where == partition]
        assert in_order == sorted(in_order), f"partition {partition} is out of order"
        assert len(set(in_order)) == len(in_order), f"partition {partition} holds a record twice"


def _read_all(server: Server, count: int) -> dict[tuple[int, int], int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    read: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + 60
    while len(read) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            read[message.partition(), message.offset()] = int(message.value().split(b" ")[0])
    # Nothing may come after what was acknowledged.
    for message in consumer.consume(1000, 1.0):
        read[message.partition(), message.offset()] = -1
    consumer.close()
    return read


def test_groups_go_on_where_they_committed(server: Server) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    for number in range(1000):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(60) == 0

    committed = 0
    for stop_at in (300, 700, 1000):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "goes-on",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([TOPIC])
        seen: list[int] = []
        deadline = time.monotonic() + 120
        while len(seen) < stop_at - committed or not is_committed(consumer, stop_at):
            assert time.monotonic() < deadline, f"only {len(seen)} records came"
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None
                if seen and message.offset() == committed:
                    seen.clear()  # it was thrown out, as the machine stood still, and has come back
                seen.append(int(message.value()))
        assert seen[: stop_at - committed] == list(range(committed, stop_at))
        committed = stop_at
        server.kill()
        server.start()
        consumer.close()


def is_committed(consumer: confluent_kafka.Consumer, offset: int) -> bool:
    """Commit; False for who is no member any more."""
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    except confluent_kafka.KafkaException as problem:
        if problem.args[0].code() not in NO_MEMBER:
            raise
        return False
    return True


def test_lost_indexes_are_rebuilt(server: Server) -> None:
    start_ms = int(time.time() * 1000) - 60_000  # not as old as what retention deletes
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    for number in range(3000):
        producer.produce(TOPIC, str(number).encode() * 100, partition=0, timestamp=start_ms + number)
        if number % 50 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0

    def saved() -> list[Path]:
        return [*server.data.glob(f"{TOPIC}-0/*.index"), *server.data.glob(f"{TOPIC}-0/*.timeindex")]

    wait_until(lambda: len(saved()) > 4, "two segments' indexes are saved, which no write waits for")
    server.kill()
    indexes = saved()
    sizes = {path: path.stat().st_size for path in indexes}
    for path in indexes:
        path.unlink()
    server.start()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "rebuilt"})
    wanted = confluent_kafka.TopicPartition(TOPIC, 0, start_ms + 2345)
    assert consumer.offsets_for_times([wanted], timeout=60)[0].offset == 2345
    consumer.close()
    assert server.stop() == 0
    assert all(path.exists() for path in indexes), sizes
