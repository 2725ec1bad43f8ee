"""Spark structured streaming from a topic: checkpoints, rate limits, growing topics and lost data, counted exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from compat_tests.clients.spark.queries import OFFSET_FETCHING, Store, batch_sizes, finish, rows, source
from compat_tests.clients.spark.topics import BASE_TIME_MS, CODECS, Topics, doubled, numbered, order, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: streaming reads", title, client="spark")


def earliest(spark: SparkSession, topics: Topics, **options: object) -> DataFrame:
    """Return a streaming source that begins with the first record."""
    return source(spark, topics.bootstrap, stream=True, **{"startingOffsets": "earliest", **options})


@case("stop and restart from the checkpoint")
@OFFSET_FETCHING
def test_restart_from_checkpoint(
    spark: SparkSession, topics: Topics, store: Store, deprecated_offset_fetching: bool
) -> None:
    topic = topics.create("restart", 3)
    sent = []
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, str(deprecated_offset_fetching).lower())
    try:
        for turn in range(3):
            sent += topics.send(topic, numbered(700, 3, first=turn * 700))
            assert sum(store.drain(earliest(spark, topics, subscribe=topic))) == 700
        assert store.drain(earliest(spark, topics, subscribe=topic)) == []
    finally:
        spark.conf.unset(key)
    found = store.rows(spark)
    assert doubled(found) == []
    assert found == sorted(sent, key=order)
    assert len(found) == 2100


@case("stop in the middle of the data, restart")
def test_stopped_between_batches(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("stopped", 2)
    sent = topics.send(topic, numbered(2000, 2))
    frame = earliest(spark, topics, subscribe=topic, maxOffsetsPerTrigger=100)
    # Stopped wherever it happens to be; the rest must follow without a gap or a double.
    query = store.start(frame)
    _until(query, lambda: len(batch_sizes(query)) >= 3)
    query.stop()
    before = len(store.rows(spark)) if store.data.exists() else 0
    assert before >= 300
    store.drain(frame)
    found = store.rows(spark)
    assert doubled(found) == []
    assert found == sorted(sent, key=order)


@case("a running query follows the topic")
def test_following(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("follow", 2)
    sent = topics.send(topic, numbered(10, 2))
    query = store.start(source(spark, topics.bootstrap, stream=True, subscribe=topic, startingOffsets="latest"))
    query.processAllAvailable()  # "latest" is decided now: what was sent before is not read
    expected = []
    for turn in range(5):
        expected += topics.send(topic, numbered(100, 2, first=1000 + turn * 100), codec=CODECS[turn])
        query.processAllAvailable()
        assert store.rows(spark) == sorted(expected, key=order)
    query.stop()
    assert sum(batch_sizes(query)) == 500
    assert len(sent) == 10


@case("AvailableNow with maxOffsetsPerTrigger")
def test_available_now_in_limited_batches(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("limited", 2)
    sent = topics.send(topic, numbered(1050, 2))
    sizes = store.drain(earliest(spark, topics, subscribe=topic, maxOffsetsPerTrigger=200))
    assert sum(sizes) == 1050
    assert max(sizes) <= 200
    assert len(sizes) == 6
    assert store.rows(spark) == sorted(sent, key=order)


@case("AvailableNow ends at what was there at the start")
def test_available_now_is_bounded(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("bounded")
    first = topics.send(topic, numbered(300))
    query = store.start(earliest(spark, topics, subscribe=topic, maxOffsetsPerTrigger=50), availableNow=True)
    _until(query, lambda: len(batch_sizes(query)) >= 1)
    second = topics.send(topic, numbered(40, first=300))
    assert sum(finish(query)) == 300
    assert store.rows(spark) == first
    assert store.drain(earliest(spark, topics, subscribe=topic)) == [40]
    assert store.rows(spark) == first + second


@case("Trigger.Once")
def test_once(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("once", 2)
    sent = topics.send(topic, numbered(500, 2))
    assert finish(store.start(earliest(spark, topics, subscribe=topic), once=True)) == [500]
    assert store.rows(spark) == sorted(sent, key=order)


@case("minOffsetsPerTrigger")
def test_min_offsets_per_trigger(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("patient")
    sent = topics.send(topic, numbered(10))
    frame = earliest(spark, topics, subscribe=topic, minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    query = store.start(frame)
    query.processAllAvailable()
    assert batch_sizes(query) == [10]  # the first batch never waits
    sent += topics.send(topic, numbered(60, first=10))
    query.processAllAvailable()
    assert batch_sizes(query) == [10]
    sent += topics.send(topic, numbered(40, first=70))
    query.processAllAvailable()
    query.stop()
    assert batch_sizes(query) == [10, 100]
    assert store.rows(spark) == sent


@case("minPartitions and maxRecordsPerPartition in a stream")
@pytest.mark.parametrize(
    ("options", "tasks"), [({"minPartitions": 6}, [100] * 6), ({"maxRecordsPerPartition": 150}, [150] * 4)]
)
def test_divided_batches(
    spark: SparkSession, topics: Topics, store: Store, options: dict[str, int], tasks: list[int]
) -> None:
    topic = topics.create("divided", 2)
    topics.send(topic, numbered(600, 2))
    found: list[list[int]] = []

    def count(batch: DataFrame, _: int) -> None:
        counted = batch.groupBy(F.spark_partition_id().alias("task")).count().collect()
        found.append([row["count"] for row in counted])

    frame = earliest(spark, topics, subscribe=topic, **options)
    writer = frame.writeStream.foreachBatch(count).option("checkpointLocation", str(store.checkpoint))
    finish(writer.trigger(availableNow=True).start())
    assert found == [tasks]


@case("starting timestamps in a stream")
def test_starting_timestamps(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("since", 2)
    sent = topics.send(topic, numbered(200, 2))
    at_100 = BASE_TIME_MS + 100_000
    both = source(spark, topics.bootstrap, stream=True, subscribe=topic, startingTimestamp=at_100)
    assert sum(store.drain(both)) == 100
    assert store.rows(spark) == sorted((row for row in sent if row.timestamp_ms >= at_100), key=order)
    other = Store(store.data.parent / "by partition")
    each = {"0": at_100, "1": at_100 + 50_000}
    frame = source(
        spark, topics.bootstrap, stream=True, subscribe=topic, startingOffsetsByTimestamp=json.dumps({topic: each})
    )
    assert sum(other.drain(frame)) == 50 + 25
    expected = [row for row in sent if row.timestamp_ms >= each[str(row.partition)]]
    assert other.rows(spark) == sorted(expected, key=order)


@case("starting offsets and assign in a stream")
def test_starting_offsets_and_assign(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("assigned", 3)
    sent = topics.send(topic, numbered(300, 3))
    frame = source(
        spark,
        topics.bootstrap,
        stream=True,
        assign=json.dumps({topic: [1, 2]}),
        startingOffsets=json.dumps({topic: {"1": 40, "2": -1}}),
    )
    query = store.start(frame)
    query.processAllAvailable()
    sent += topics.send(topic, numbered(30, 3, first=300))
    query.processAllAvailable()
    query.stop()
    expected = [r for r in sent if (r.partition == 1 and r.offset >= 40) or (r.partition == 2 and r.offset >= 100)]
    assert store.rows(spark) == sorted(expected, key=order)
    assert len(expected) == 60 + 10 + 10


@case("partitions added while streaming")
def test_partitions_added(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("growing", 2)
    sent = topics.send(topic, numbered(100, 2))
    query = store.start(earliest(spark, topics, subscribe=topic))
    query.processAllAvailable()
    assert len(store.rows(spark)) == 100
    topics.grow(topic, 5)
    sent += topics.send(topic, numbered(500, 5, first=100))
    _until(query, lambda: sum(batch_sizes(query)) >= 600)
    query.processAllAvailable()
    query.stop()
    assert store.rows(spark) == sorted(sent, key=order)
    # The checkpoint knows the new partitions as well.
    sent += topics.send(topic, numbered(50, 5, first=600))
    assert store.drain(earliest(spark, topics, subscribe=topic)) == [50]
    assert store.rows(spark) == sorted(sent, key=order)


@case("topics of a pattern appear while streaming")
def test_topics_appear(spark: SparkSession, topics: Topics, store: Store) -> None:
    stem = topics.name("appear")
    sent = topics.send(topics.create(f"{stem}-1", 2, exactly=True), numbered(100, 2))
    query = store.start(earliest(spark, topics, subscribePattern=re.escape(stem) + "-.*"))
    query.processAllAvailable()
    assert len(store.rows(spark)) == 100
    for number in (2, 3):
        sent += topics.send(topics.create(f"{stem}-{number}", 2, exactly=True), numbered(100, 2))
        _until(query, lambda expected=number * 100: sum(batch_sizes(query)) >= expected)
    query.stop()
    assert store.rows(spark) == sorted(sent, key=order)


@case("records deleted beyond the checkpoint: failOnDataLoss")
def test_data_loss_after_delete_records(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("lost", 2)
    read = topics.send(topic, numbered(200, 2))
    assert sum(store.drain(earliest(spark, topics, subscribe=topic))) == 200
    after = topics.send(topic, numbered(200, 2, first=200))
    topics.delete_before(topic, {0: 150})
    with pytest.raises(StreamingQueryException, match=r"(?s)may have been lost"):
        store.drain(earliest(spark, topics, subscribe=topic, failOnDataLoss=True))
    store.drain(earliest(spark, topics, subscribe=topic, failOnDataLoss=False))
    left = [row for row in after if row.partition == 1 or row.offset >= 150]
    assert store.rows(spark) == sorted(read + left, key=order)
    assert len(left) == 150


@case("topic deleted and made again: failOnDataLoss")
def test_data_loss_after_recreation(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("again")
    read = topics.send(topic, numbered(200))
    assert store.drain(earliest(spark, topics, subscribe=topic)) == [200]
    topics.admin.delete_topics([topic])
    wait_for(lambda: topic not in topics.admin.list_topics())
    topics.close()
    fresh = Topics(topics.bootstrap)  # the old producer would go on with the old topic's identity
    try:
        fresh.create(topic, exactly=True)
        again = fresh.send(topic, numbered(50, first=500))
        assert [row.offset for row in again] == list(range(50))
        with pytest.raises(StreamingQueryException, match=r"(?s)may have been|was changed from"):
            store.drain(earliest(spark, fresh, subscribe=topic, failOnDataLoss=True))
        assert store.rows(spark) == read
    finally:
        fresh.close()


@case("stateful aggregation over a restart")
def test_aggregation_over_a_restart(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("counted", 2)

    def counts() -> dict[str, int]:
        frame = earliest(spark, topics, subscribe=topic, maxOffsetsPerTrigger=150)
        last_digit = F.substring(F.col("value").cast("string"), -1, 1).alias("digit")
        found: dict[str, int] = {}

        def keep(batch: DataFrame, _: int) -> None:
            found.update({row["digit"]: row["count"] for row in batch.collect()})

        counted = frame.groupBy(last_digit).count().writeStream.outputMode("complete").foreachBatch(keep)
        finish(counted.option("checkpointLocation", str(store.checkpoint)).trigger(availableNow=True).start())
        return found

    topics.send(topic, numbered(500, 2))
    assert counts() == {str(digit): 50 for digit in range(10)}
    topics.send(topic, numbered(250, 2, first=500))
    assert counts() == {str(digit): 75 for digit in range(10)}


@case("continuous processing, topic to topic")
def test_continuous(spark: SparkSession, topics: Topics, store: Store) -> None:
    start, end = topics.create("from", 2), topics.create("to", 2)
    frame = earliest(spark, topics, subscribe=start).select("key", "value", "partition", "headers")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.options(topic=end, includeHeaders="true", checkpointLocation=str(store.checkpoint))
    query = writer.trigger(continuous="500 milliseconds").start()
    sent = []
    for turn in range(3):
        sent += topics.send(start, numbered(100, 2, first=turn * 100))
        _until(query, lambda expected=100 * (turn + 1): len(topics.read(end)) >= expected)
    query.stop()
    found = topics.read(end)
    assert [row[5:] for row in found] == [row[5:] for row in sorted(sent, key=order)]
    assert [row.offset for row in found] == [*range(150)] * 2


@case("foreachBatch")
def test_foreach_batch(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("each", 2)
    sent = topics.send(topic, numbered(450, 2))
    batches: dict[int, list[object]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = rows(batch)

    frame = earliest(spark, topics, subscribe=topic, maxOffsetsPerTrigger=200)
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(store.checkpoint))
    assert finish(writer.trigger(availableNow=True).start()) == [200, 200, 50]
    assert list(batches) == [0, 1, 2]
    assert sorted((row for batch in batches.values() for row in batch), key=order) == sorted(sent, key=order)


def _until(query: StreamingQuery, done: Callable[[], bool]) -> None:
    """Wait for something a running query brings about; its failure is raised here."""

    def check() -> bool:
        failure = query.exception()
        if failure is not None:
            raise failure
        return done()

    wait_for(check)
