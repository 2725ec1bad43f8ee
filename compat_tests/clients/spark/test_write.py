"""Spark writes to topics, in batches and streams, read back by another client."""

from __future__ import annotations

from collections import Counter

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compat_tests.clients.spark.queries import Store, finish, source
from compat_tests.clients.spark.topics import CODECS, CREATE_TIME, Message, Row, Topics, numbered, order, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]
FAILURES = (PySparkException, Py4JJavaError)
OUTGOING = "key binary, value binary, topic string, partition int, headers array<struct<key: string, value: binary>>"


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: writes", title, client="spark")


def save(frame: DataFrame, topics: Topics, **options: str) -> None:
    """Write a batch to Kafka, headers included. Options with a dot are the producer's."""
    settings = {"kafka.bootstrap.servers": topics.bootstrap, "includeHeaders": "true", **options}
    frame.write.format("kafka").options(**settings).save()


@case("batch write: key, value, headers, partition and topic columns")
def test_every_column(spark: SparkSession, topics: Topics) -> None:
    one, two = topics.create("one", 3), topics.create("two", 2)
    outgoing = [
        (b"k", b"v", one, 0, [("a", b"1"), ("a", b"2"), ("none", None)]),
        (None, b"no key", one, 1, None),
        (b"tombstone", None, one, 1, None),
        (b"", b"", one, 2, [("empty", b"")]),
        (b"\xff\x00", "Größe ∞".encode(), two, 1, [("schlüssel", b"\x00\xff")]),
    ]
    save(spark.createDataFrame(outgoing, OUTGOING).coalesce(1), topics)
    found = topics.read(one, two)
    assert Counter((r.topic, r.partition, r.key, r.value, r.headers) for r in found) == Counter(
        (topic, partition, key, value, tuple(headers) if headers else None)
        for key, value, topic, partition, headers in outgoing
    )
    assert {row.timestamp_type for row in found} == {CREATE_TIME}
    assert [(row.topic, row.partition, row.offset) for row in found] == [
        (one, 0, 0),
        (one, 1, 0),
        (one, 1, 1),
        (one, 2, 0),
        (two, 1, 0),
    ]


@case("batch write: topic option, keys decide the partition")
def test_partitions_by_key(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("keyed", 4)
    frame = spark.range(4000).select(
        (F.col("id") % 50).cast("string").alias("key"), F.col("id").cast("string").alias("value")
    )
    save(frame, topics, topic=topic)
    found = topics.read(topic)
    assert Counter(int(row.value or b"-1") for row in found) == Counter(range(4000))
    by_key: dict[bytes | None, set[int]] = {}
    for row in found:
        by_key.setdefault(row.key, set()).add(row.partition)
        assert int(row.value or b"-1") % 50 == int(row.key or b"-1")
    assert len(by_key) == 50
    assert all(len(partitions) == 1 for partitions in by_key.values())
    assert set.union(*by_key.values()) == {0, 1, 2, 3}


@case("batch write with each codec")
@pytest.mark.parametrize("codec", CODECS)
def test_codecs(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.create(f"written-{codec}", 2)
    frame = spark.range(3000).select(
        F.col("id").cast("string").alias("key"),
        F.repeat(F.col("id").cast("string"), 30).alias("value"),
        (F.col("id") % 2).cast("int").alias("partition"),
    )
    save(frame, topics, topic=topic, **{"kafka.compression.type": codec})
    found = topics.read(topic)
    assert Counter((row.partition, row.key, row.value) for row in found) == Counter(
        (n % 2, b"%d" % n, b"%d" % n * 30) for n in range(3000)
    )
    assert [row.offset for row in found] == [*range(1500)] * 2


@case("write with acks 0, 1 and all, without idempotence")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(spark: SparkSession, topics: Topics, acks: str) -> None:
    topic = topics.create(f"acks-{acks}")
    frame = spark.range(500).select(F.col("id").cast("string").alias("value"))
    # What is given up is sent again, and is there twice then.
    patient = {"kafka.request.timeout.ms": "120000", "kafka.delivery.timeout.ms": "240000"}
    save(frame, topics, topic=topic, **{"kafka.acks": acks, "kafka.enable.idempotence": "false", **patient})
    wait_for(lambda: len(topics.read(topic)) >= 500)  # with acks=0 Spark is done before the broker is
    assert Counter(row.value for row in topics.read(topic)) == Counter(b"%d" % n for n in range(500))


@case("write and read back by Spark")
def test_there_and_back(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("back", 3)
    frame = spark.range(1000).select(
        F.col("id").cast("string").alias("key"),
        F.to_json(F.struct("id", (F.col("id") * F.col("id")).alias("square"))).alias("value"),
    )
    save(frame, topics, topic=topic)
    read = source(spark, topics.bootstrap, subscribe=topic).select(
        F.col("key").cast("string").cast("long").alias("key"),
        F.from_json(F.col("value").cast("string"), "id long, square long").alias("v"),
    )
    assert read.where("key = v.id and v.square = key * key").count() == 1000
    assert read.agg(F.sum("v.id"), F.countDistinct("key")).first() == (499_500, 1000)


@case("streaming write with topic, partition and headers columns")
def test_stream(spark: SparkSession, topics: Topics, store: Store) -> None:
    start, even, odd = topics.create("start", 2), topics.create("even", 2), topics.create("odd", 2)
    headers = (("h", b"\x00"), ("none", None))
    sent: list[Row] = []

    def run() -> None:
        frame = source(
            spark,
            topics.bootstrap,
            stream=True,
            subscribe=start,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=250,
        )
        routed = frame.select(
            "key",
            F.concat(F.lit("seen "), F.col("value").cast("string")).alias("value"),
            "headers",
            F.when(F.col("offset") % 2 == 0, even).otherwise(odd).alias("topic"),
            (1 - F.col("partition")).alias("partition"),
        )
        writer = routed.writeStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
        writer = writer.options(includeHeaders="true", checkpointLocation=str(store.checkpoint))
        assert sum(finish(writer.trigger(availableNow=True).start())) == 600

    for turn in range(2):
        messages = [Message(m.partition, m.value, m.key, m.timestamp_ms, headers) for m in numbered(600, 2)]
        sent += topics.send(start, messages)
        run()
        found = topics.read(even, odd)
        assert len(found) == 600 * (turn + 1)
        for topic, remainder in ((even, 0), (odd, 1)):
            expected = [
                (1 - row.partition, row.key, b"seen " + (row.value or b""), headers)
                for row in sent
                if row.offset % 2 == remainder
            ]
            assert Counter((r.partition, r.key, r.value, r.headers) for r in found if r.topic == topic) == Counter(
                expected
            )


@case("aggregate to a topic in update mode")
def test_update_mode(spark: SparkSession, topics: Topics, store: Store) -> None:
    start, end = topics.create("raw", 2), topics.create("counts")
    for turn in range(2):
        topics.send(start, numbered(300, 2, first=turn * 300))
        frame = source(spark, topics.bootstrap, stream=True, subscribe=start, startingOffsets="earliest")
        counted = frame.groupBy(F.substring(F.col("value").cast("string"), -1, 1).alias("key")).count()
        writer = counted.select("key", F.col("count").cast("string").alias("value")).writeStream.outputMode("update")
        writer = writer.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", end)
        finish(writer.option("checkpointLocation", str(store.checkpoint)).trigger(availableNow=True).start())
    found = topics.read(end)
    latest = {row.key: row.value for row in found}
    assert latest == {b"%d" % digit: b"60" for digit in range(10)}
    assert Counter(row.value for row in found) == {b"30": 10, b"60": 10}


@case("foreachBatch to a topic")
def test_foreach_batch(spark: SparkSession, topics: Topics, store: Store) -> None:
    start, end = topics.create("in", 2), topics.create("out", 2)
    sent = topics.send(start, numbered(400, 2))

    def copy(batch: DataFrame, _: int) -> None:
        save(batch.select("key", "value", "partition"), topics, topic=end)

    frame = source(
        spark, topics.bootstrap, stream=True, subscribe=start, startingOffsets="earliest", maxOffsetsPerTrigger=100
    )
    writer = frame.writeStream.foreachBatch(copy).option("checkpointLocation", str(store.checkpoint))
    assert finish(writer.trigger(availableNow=True).start()) == [100] * 4
    found = topics.read(end)
    assert [(r.partition, r.offset, r.key, r.value) for r in found] == [
        (r.partition, r.offset, r.key, r.value) for r in sorted(sent, key=order)
    ]


@case("record above max.message.bytes is refused")
def test_too_large(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("narrow", configs={"max.message.bytes": "2000"})
    save(spark.createDataFrame([("x" * 1000,)], "value string"), topics, topic=topic)
    with pytest.raises(FAILURES, match="RecordTooLargeException"):
        save(spark.createDataFrame([("x" * 5000,)], "value string"), topics, topic=topic)
    assert [row.value for row in topics.read(topic)] == [b"x" * 1000]
