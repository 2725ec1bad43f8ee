"""Sends the shop's lines with kafka-python, so that it may be stopped at any moment and started again.

The topic itself is the record of progress. The lines of one partition are always the same in the same order, and an
idempotent producer stores them in order without gaps or doubles: whatever offset a partition ends at, that many of its
lines are there, and sending goes on with the next.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAlreadyExistsError
from kafka.producer.future import FutureRecordMetadata
from shop import Line


class Feed:
    """Sends shifts into *topic*, one after the other."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, compression_type="gzip", linger_ms=20
        )
        self._stored = end_offsets(bootstrap, topic)
        if len(self._stored) != partitions:
            raise ValueError(f"topic {topic} has {len(self._stored)} partitions, not {partitions}: choose another one")
        self._passed = [0] * partitions

    def send(self, lines: Sequence[Line]) -> int:
        """Send the lines of the next shift that are not stored yet. Returns how many; all of them are acknowledged."""
        futures = []
        for line in lines:
            partition = self._partition(line)
            self._passed[partition] += 1
            if self._passed[partition] > self._stored[partition]:
                futures.append(self._send(line))
        self._producer.flush()
        for future in futures:
            future.get(timeout=0)  # raises what went wrong with this line
        return len(futures)

    def is_ahead(self) -> bool:
        """Return whether an earlier run has stored lines beyond those passed to `send` so far."""
        return any(self._stored[partition] > passed for partition, passed in enumerate(self._passed))

    def send_last(self, line: Line) -> None:
        """Send a line that follows the last shift, whether or not an earlier run has sent it too."""
        self._send(line).get(timeout=60)

    def _send(self, line: Line) -> FutureRecordMetadata:
        key, body = line.customer.encode(), line.body.encode()
        return self._producer.send(self.topic, body, key, None, self._partition(line), line.arrival_ms)

    def _partition(self, line: Line) -> int:
        return zlib.crc32(line.customer.encode()) % self.partitions

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


def create_topics(bootstrap: str, topics: dict[str, int]) -> None:
    """Create the topics {name: partitions} that are not there."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        for name, partitions in topics.items():
            # The day lies in the past: with an ordinary retention time the broker would soon delete it.
            options = {"num_partitions": partitions, "replication_factor": -1, "configs": {"retention.ms": "-1"}}
            try:
                admin.create_topics({name: options}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                pass
    finally:
        admin.close()


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the end offset of each partition, {} for a topic that is not there."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, bootstrap_timeout_ms=10_000, allow_auto_create_topics=False)
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return {found.partition: offset for found, offset in consumer.end_offsets(partitions).items()}
    finally:
        consumer.close()
