"""A broker that is killed and comes back under running queries: they wait, go on, and lose and double nothing.

These tests start a broker of their own (ours, or Apache Kafka with `--peer kafka`), because the session's must live.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from compat_tests.clients.spark.queries import Store, batch_sizes, source
from compat_tests.clients.spark.topics import Topics, numbered, order, wait_for
from compat_tests.harness.restartable import Restartable, start_restartable

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.jvm,
    pytest.mark.timeout(1200),
]


@pytest.fixture
def restartable(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Restartable]:
    """A broker of this test's own, running."""
    made = start_restartable(pytestconfig, tmp_path / "broker")
    yield made
    made.stop()


@pytest.mark.case("Spark: the broker is killed", "a streaming read goes on", client="spark")
def test_read_over_a_kill(spark: SparkSession, restartable: Restartable, store: Store) -> None:
    topics = Topics(restartable.bootstrap)
    topic = topics.create("outlives", 3)
    sent = topics.send(topic, numbered(600, 3))
    query = store.start(source(spark, topics.bootstrap, stream=True, subscribe=topic, startingOffsets="earliest"))
    query.processAllAvailable()
    for turn in range(2):
        restartable.kill()
        restartable.start()
        sent += topics.send(topic, numbered(600, 3, first=600 + turn * 600))
        _until_read(query, len(sent))
    query.stop()
    topics.close()
    assert [row.offset for row in sorted(sent, key=order)] == [*range(600)] * 3
    assert store.rows(spark) == sorted(sent, key=order)


@pytest.mark.case("Spark: the broker is killed", "a streaming write goes on, once each", client="spark")
def test_write_over_a_kill(spark: SparkSession, restartable: Restartable, store: Store) -> None:
    topics = Topics(restartable.bootstrap)
    start, end = topics.create("start", 3), topics.create("end", 3)
    count = 30_000
    topics.send(start, numbered(count, 3))
    frame = source(
        spark, topics.bootstrap, stream=True, subscribe=start, startingOffsets="earliest", maxOffsetsPerTrigger=3000
    )
    writer = frame.select("key", "value", "partition").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", end)
    # Many small requests, so that the kill meets some under way: idempotence must recognise what is sent again.
    writer = writer.options(**{"kafka.batch.size": "2000", "kafka.linger.ms": "0"})
    query = writer.option("checkpointLocation", str(store.checkpoint)).trigger(availableNow=True).start()
    watcher = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "watcher"})

    def written() -> int:
        """Records in the topic; -1 while the watcher has not found the restarted broker."""
        places = [TopicPartition(end, number) for number in range(3)]
        try:
            return sum(watcher.get_watermark_offsets(place, 30)[1] for place in places)
        except KafkaException:
            return -1

    kills_in_a_batch = 0
    for least in (1500, 10_500, 19_500):
        deadline = time.monotonic() + 240
        # The watcher may be too late for the middle of a batch: then the next one will do.
        while (seen := written()) < least or (seen % 3000 == 0 and seen < count):
            assert query.exception() is None
            assert time.monotonic() < deadline, f"{seen} records are written, not {least}"
        if seen == count:
            break
        restartable.kill()
        restartable.start()
        kills_in_a_batch += 1
    watcher.close()
    assert kills_in_a_batch, "all was written before a kill: the test has not tested anything"
    assert query.awaitTermination(400)
    assert sum(batch_sizes(query)) == count
    found = Counter((row.partition, row.key, row.value) for row in topics.read(end))
    topics.close()
    expected = Counter((n % 3, b"key %d" % n, b"value %d" % n) for n in range(count))
    assert found - expected == Counter(), "doubled"
    assert expected - found == Counter(), "lost"


def _until_read(query: StreamingQuery, count: int) -> None:
    """Wait until the query has read so many records; its failure is raised here."""
    wait_for(lambda: query.exception() is not None or sum(batch_sizes(query)) >= count)
    failure = query.exception()
    if failure is not None:
        raise failure
