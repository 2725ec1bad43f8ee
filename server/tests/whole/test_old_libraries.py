"""kafka-python and librdkafka, set to the protocol of Kafka 0.8 to 0.11, over TCP: they write and read message sets by
code that we did not write. (Apache Kafka 4 would refuse them, so they are not part of the conformance suite.)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from time import monotonic

import confluent_kafka
import pytest

from barnabas.server.testing import broker_thread

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CODECS = ("none", "gzip", "snappy", "lz4")
COUNT = 300
VALUES = [b"value %d" % number for number in range(COUNT)]
PATIENCE_S = 60


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker in a thread."""
    with broker_thread() as address:
        yield address


RELEASES = [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 11)]
# The lz4 of before 0.10, with its odd checksum, is nothing kafka-python can write any more.
PAIRS = [(release, codec) for release in RELEASES for codec in CODECS if codec != "lz4" or release >= (0, 10)]


@pytest.mark.parametrize(("release", "codec"), PAIRS, ids=str)
def test_kafka_python(bootstrap: str, release: tuple[int, ...], codec: str) -> None:
    topic = f"python-{'.'.join(map(str, release))}-{codec}"
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=release,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=False,
        acks=1,
        linger_ms=20,
    )
    sent = [producer.send(topic, value, key=b"k", partition=0) for value in VALUES]
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(COUNT))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        api_version=release,
        group_id=f"group-{topic}" if release >= (0, 9) else None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    read = list(islice(consumer, COUNT))
    consumer.close()
    assert [(message.offset, message.value) for message in read] == list(enumerate(VALUES))
    assert all((message.timestamp is not None) is (release >= (0, 10)) for message in read)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0"])
def test_librdkafka(bootstrap: str, release: str, codec: str) -> None:
    topic = f"c-{release}-{codec}"
    old = {
        "bootstrap.servers": bootstrap,
        "api.version.request": "false",
        "broker.version.fallback": release,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer({**old, "compression.codec": codec, "linger.ms": 20})
    errors: list[object] = []
    for value in VALUES:
        producer.produce(topic, value, b"k", 0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * COUNT
    consumer = confluent_kafka.Consumer(
        {
            **old,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
        }
    )
    if release < "0.9":
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    else:
        consumer.subscribe([topic])
    read: list[tuple[int, bytes]] = []
    end = monotonic() + PATIENCE_S
    while len(read) < COUNT and monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            assert message.timestamp()[0] == confluent_kafka.TIMESTAMP_NOT_AVAILABLE
            read.append((message.offset(), message.value()))
    consumer.close()
    assert read == list(enumerate(VALUES))
