"""Topics for one test: made, filled and read back by other clients, so that Spark is checked against them.

Records go in and out by librdkafka, which knows every codec and headers without a value; kafka-python administers.

Timestamps are milliseconds since the epoch. A `Row` is what Spark's source must show for a record.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as Delivered
from kafka import KafkaAdminClient
from kafka import TopicPartition as AdminPartition

CREATE_TIME, LOG_APPEND_TIME = 0, 1
BASE_TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKNOWLEDGE_TIMEOUT_S = 120
READ_TIMEOUT_S = 120
WAIT_TIMEOUT_S = 180
_numbers = itertools.count()


class Row(NamedTuple):
    """One record, in Spark's column order; `headers` is None without headers, as in Spark."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


class Message(NamedTuple):
    """A record to send."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = BASE_TIME_MS
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def numbered(count: int, partitions: int = 1, *, first: int = 0, step_ms: int = 1000) -> list[Message]:
    """Return messages `first`, `first`+1, … dealt to the partitions in turn, one `step_ms` after the other."""
    return [
        Message(number % partitions, b"value %d" % number, b"key %d" % number, BASE_TIME_MS + number * step_ms)
        for number in range(first, first + count)
    ]


class Topics:
    """Makes topics with names of their own and speaks to the broker at *bootstrap*."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=60_000)
        self._producers: dict[str, Producer] = {}

    def close(self) -> None:
        """Close every client."""
        self._producers.clear()
        self.admin.close()

    def name(self, stem: str) -> str:
        """Return a topic name nobody else has."""
        return f"{stem}-{os.getpid()}-{next(_numbers)}-{os.urandom(3).hex()}"

    def create(
        self, stem: str, partitions: int = 1, *, exactly: bool = False, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic called after *stem* (*exactly* so, if asked) and return its name."""
        name = stem if exactly else self.name(stem)
        # Records with fixed timestamps are years old: ordinary retention deletes them when its check comes round.
        settings = {"retention.ms": "-1", **(configs or {})}
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
        self.admin.create_topics({name: options}, wait_for_metadata=True)
        return name

    def send(self, topic: str, messages: Iterable[Message], *, codec: str = "none") -> list[Row]:
        """Send with acks=all and wait for every acknowledgement. Return what a reader must see, in order of sending."""
        messages = list(messages)
        rows: dict[int, Row] = {}
        failures: list[str] = []

        def acknowledged(number: int, error: KafkaError | None, done: Delivered) -> None:
            if error is not None:
                failures.append(f"message {number}: {error}")
                return
            m = messages[number]
            rows[number] = Row(
                topic, m.partition, done.offset(), m.timestamp_ms, CREATE_TIME, m.key, m.value, m.headers or None
            )

        producer = self._producer(codec)
        for number, m in enumerate(messages):
            producer.produce(
                topic,
                m.value,
                m.key,
                m.partition,
                on_delivery=lambda error, done, number=number: acknowledged(number, error, done),
                timestamp=m.timestamp_ms,
                headers=list(m.headers or ()),
            )
            producer.poll(0)
        left = producer.flush(ACKNOWLEDGE_TIMEOUT_S)
        assert not failures, failures[:5]
        assert not left, f"{left} of {len(messages)} messages were not acknowledged in {ACKNOWLEDGE_TIMEOUT_S} s"
        return [rows[number] for number in range(len(messages))]

    def _producer(self, codec: str) -> Producer:
        if codec not in self._producers:
            self._producers[codec] = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "linger.ms": 20,
                    "message.max.bytes": 10_000_000,
                }
            )
        return self._producers[codec]

    def read(self, *topics: str) -> list[Row]:
        """Return every record between the first and the last offset of the topics, sorted."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name("reader"),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        try:
            starts, ends = {}, {}
            for topic in topics:
                for partition in consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions:
                    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), READ_TIMEOUT_S)
                    if low < high:
                        starts[topic, partition], ends[topic, partition] = low, high
            consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
            rows: list[Row] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            while ends:
                assert time.monotonic() < deadline, f"the ends {ends} were not reached: {len(rows)} records"
                for found in consumer.consume(1000, 0.1):
                    place = found.topic(), found.partition()
                    if found.error() is None:
                        rows.append(_row(found))
                    elif found.error().code() != KafkaError._PARTITION_EOF:
                        raise AssertionError(f"{place}: {found.error()}")
                    elif found.offset() >= ends.get(place, 0):
                        ends.pop(place, None)
            return sorted(rows, key=order)
        finally:
            consumer.close()

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records of each partition below an offset."""
        self.admin.delete_records({AdminPartition(topic, p): offset for p, offset in offsets.items()})

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions and wait until the broker shows it. Producers start anew, to see them."""
        self.admin.create_partitions({topic: partitions})
        wait_for(lambda: len(self.admin.describe_topics([topic])[0]["partitions"]) == partitions)
        self._producers.clear()


def wait_for(done: Callable[[], bool], timeout: float = WAIT_TIMEOUT_S) -> None:
    """Return when *done* says so; an assertion fails after *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.05)


def order(row: Row) -> tuple[str, int, int]:
    """Sort key: where the record lies."""
    return row.topic, row.partition, row.offset


def doubled(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Return the places that occur more than once."""
    return [place for place, count in Counter(map(order, rows)).items() if count > 1]


def _row(found: Delivered) -> Row:
    kind, timestamp_ms = found.timestamp()
    headers = tuple((name, value) for name, value in found.headers() or ()) or None
    timestamp_type = {1: CREATE_TIME, 2: LOG_APPEND_TIME}[kind]  # librdkafka counts from "not available"
    return Row(
        found.topic(),
        found.partition(),
        found.offset(),
        timestamp_ms,
        timestamp_type,
        found.key(),
        found.value(),
        headers,
    )
