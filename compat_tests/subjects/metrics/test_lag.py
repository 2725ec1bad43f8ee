"""The lag of a group as our metrics have it equals what kafka-consumer-groups.sh shows, at every sample of a group that
moves.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.broker_process import Server
from compat_tests.harness.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

TOPIC, GROUP = "moving", "readers"
PARTITIONS = 3
SAMPLES = 8

_SAMPLE = re.compile(r'(kafka_consumergroup_\w+)\{consumergroup="readers",topic="moving",partition="(\d)"\} (\S+)')


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    server = Server(tmp_path, **{"metrics.listener": f"http://127.0.0.1:{port}", "num.partitions": str(PARTITIONS)})
    server.start()
    yield server
    server.stop()


def scraped(server: Server) -> dict[str, dict[int, float]]:
    """By metric and partition."""
    url = server.settings["metrics.listener"] + "/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[int, float]] = {}
    for name, partition, value in _SAMPLE.findall(text):
        found.setdefault(name, {})[int(partition)] = float(value)
    return found


def described(tools: Tools) -> dict[int, tuple[str, str]]:
    """(committed offset, lag) by partition, as the tool shows them."""
    text = tools("kafka-consumer-groups", "--describe", "--group", GROUP)
    rows = [line.split() for line in text.splitlines() if TOPIC in line]
    header = next(line.split() for line in text.splitlines() if "CURRENT-OFFSET" in line)
    places = [header.index(name) for name in ("PARTITION", "CURRENT-OFFSET", "LAG")]
    return {int(row[places[0]]): (row[places[1]], row[places[2]]) for row in rows}


def test_lag_at_every_sample(server: Server, warm_jvms: WarmJvms) -> None:
    rng = Random(11)
    tools = Tools(server.bootstrap, warm_jvms)
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=GROUP, enable_auto_commit=False)
    places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    try:
        for index in range(PARTITIONS):
            producer.send(TOPIC, b"first", partition=index).get(60)
        ends, committed = [1] * PARTITIONS, [0] * PARTITIONS
        for _ in range(SAMPLES):
            for index in range(PARTITIONS):
                count = rng.randrange(40)
                for sent in [producer.send(TOPIC, b"x", partition=index) for _ in range(count)]:
                    sent.get(60)
                ends[index] += count
                committed[index] = rng.randint(committed[index], ends[index])
            consumer.commit({place: OffsetAndMetadata(committed[place.partition], "", -1) for place in places})
            told, ours = described(tools), scraped(server)
            lag = {index: ends[index] - committed[index] for index in range(PARTITIONS)}
            assert told == {index: (str(committed[index]), str(lag[index])) for index in range(PARTITIONS)}
            assert ours["kafka_consumergroup_lag"] == lag
            assert ours["kafka_consumergroup_current_offset"] == dict(enumerate(committed))
            for index, seconds in ours["kafka_consumergroup_lag_seconds"].items():
                assert (seconds == 0) is (lag[index] == 0)
                assert seconds < 600
    finally:
        producer.close()
        consumer.close()
