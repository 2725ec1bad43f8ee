"""Partitions go to and fro between two log directories under load, while the broker is killed with kill -9 again and
again: every acknowledged record is there, in order, once, and each partition lies in one directory.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from compat_tests.harness.broker_process import Server

pytestmark = pytest.mark.campaign

TOPIC = "wanderers"
PARTITIONS = 4
ROUNDS = 3
MOVES = 5
LOAD_S = 0.15
LOAD_RECORDS = 5_000


def homes(paths: list[Path], index: int) -> list[int]:
    """The numbers of the directories that hold a partition, or the beginning of a copy."""
    return [
        number
        for number, path in enumerate(paths)
        if any(
            each.name == f"{TOPIC}-{index}" or (each.name.startswith(f"{TOPIC}-{index}.") and "-future" in each.name)
            for each in path.iterdir()
        )
    ]


def test_moving_under_load_survives_kill_9(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    server = Server(tmp_path, **{"log.dirs": f"{paths[0]},{paths[1]}", "log.segment.bytes": "300000"})
    server.start()
    try:
        librdkafka = AdminClient({"bootstrap.servers": server.bootstrap})
        librdkafka.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        failed: list[object] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                acknowledged[message.partition()].append(int(message.value().split(b" ")[0]))

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.size": 50_000,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 10_000_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        numbers = itertools.count()
        seed = time.time_ns()
        print("seed", seed)
        random = Random(seed)

        def load(seconds: float = LOAD_S) -> None:
            """Of bounded weight: a flat-out producer may outrun a copy for a long time."""
            until = time.monotonic() + seconds
            for _ in range(LOAD_RECORDS):
                number = next(numbers)
                place = number % PARTITIONS
                producer.produce(TOPIC, b"%d " % number + b"x" * 200, partition=place, on_delivery=delivered)
                producer.poll(0)
            while time.monotonic() < until:
                producer.poll(0.01)
            assert not failed

        target = 0
        for _ in range(ROUNDS):
            admin = KafkaAdminClient(bootstrap_servers=server.bootstrap, request_timeout_ms=60_000)
            broker_id = admin.describe_cluster()["brokers"][0]["broker_id"]
            for attempt in range(MOVES):
                target = 1 - target
                wishes = {(TOPIC, index, broker_id): str(paths[target]) for index in range(PARTITIONS)}
                assert {error.errno for error in admin.alter_replica_log_dirs(wishes).values()} == {0}
                load(LOAD_S if attempt < 2 else random.random() * LOAD_S)
                # There and back comes to its end under load, however slow the machine and wherever the kill before left
                # them. Those behind it turn back anywhere, and the last is where the kill meets it.
                deadline = time.monotonic() + 60
                while attempt < 2 and any(homes(paths, index) != [target] for index in range(PARTITIONS)):
                    assert time.monotonic() < deadline, server.log_text()[-3000:]
                    load()
            admin.close()
            server.kill()
            server.start()
        assert producer.flush(180) == 0
        assert not failed
        deadline = time.monotonic() + 60
        while any(len(homes(paths, index)) != 1 for index in range(PARTITIONS)):
            assert time.monotonic() < deadline, server.log_text()[-3000:]
            time.sleep(0.1)
        for index in range(PARTITIONS):
            assert read(server, index) == acknowledged[index]
        moved = server.log_text().count("INFO  moves: moved ")
        assert moved >= ROUNDS * PARTITIONS, f"only {moved} moves came to their end"
    finally:
        assert server.stop() == 0, server.log_text()[-3000:]


def read(server: Server, index: int) -> list[int]:
    """The numbers in a partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "error", "check.crcs": True}
    )
    place = confluent_kafka.TopicPartition(TOPIC, index, 0)
    end = consumer.get_watermark_offsets(place, timeout=60)[1]
    consumer.assign([place])
    found: list[int] = []
    while len(found) < end:
        for message in consumer.consume(min(end - len(found), 1000), 5):
            assert message.error() is None
            assert message.offset() == len(found)
            found.append(int(message.value().split(b" ")[0]))
    consumer.close()
    return found
