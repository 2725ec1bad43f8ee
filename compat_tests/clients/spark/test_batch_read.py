"""Spark batch reads: every column of every record, and every way to choose topics, partitions and offsets."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compat_tests.clients.spark.queries import OFFSET_FETCHING, rows, source
from compat_tests.clients.spark.topics import (
    BASE_TIME_MS,
    CODECS,
    CREATE_TIME,
    LOG_APPEND_TIME,
    Message,
    Topics,
    numbered,
    order,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: batch reads", title, client="spark")


# What the JVM raises comes as one or the other: not every exception of the connector is one that PySpark translates.
FAILURES = (PySparkException, Py4JJavaError)


@pytest.fixture
def deprecated_offset_fetching_set(spark: SparkSession, deprecated_offset_fetching: bool):  # type: ignore[no-untyped-def]
    """Choose the way for one test."""
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, str(deprecated_offset_fetching).lower())
    yield
    spark.conf.unset(key)


@case("every column of every record, headers and nulls")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_every_column(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("columns", 3)
    sent = topics.send(
        topic,
        [
            Message(0, b"value", b"key", BASE_TIME_MS, (("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None))),
            Message(0, None, b"tombstone", BASE_TIME_MS + 1),
            Message(0, b"", b"", 1),
            Message(2, b"no key", None, BASE_TIME_MS - 1),
            Message(2, "Größe ∞ \0".encode(), b"\xff\x00", BASE_TIME_MS + 999, (("schlüssel", b"\x00\xff"),)),
        ],
    )
    assert rows(source(spark, topics.bootstrap, subscribe=topic)) == sorted(sent, key=order)
    plain = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic})
    assert plain.load().columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert {row.timestamp_type for row in sent} == {CREATE_TIME}


@case("timestampType of LogAppendTime")
def test_log_append_time(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    topics.send(topic, numbered(200))
    found = rows(source(spark, topics.bootstrap, subscribe=topic))
    assert {row.timestamp_type for row in found} == {LOG_APPEND_TIME}
    assert len(found) == 200
    assert found == topics.read(topic)
    times = [row.timestamp_ms for row in found]
    assert times == sorted(times)
    assert times[0] > BASE_TIME_MS + 1_000_000


@case("subscribe to several, subscribePattern")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_subscribe_several_and_pattern(spark: SparkSession, topics: Topics) -> None:
    stem = topics.name("pattern")
    sent = [
        row
        for suffix, partitions in (("-a", 1), ("-b", 3))
        for row in topics.send(topics.create(stem + suffix, partitions, exactly=True), numbered(300, partitions))
    ]
    topics.send(topics.create(stem + ".other", exactly=True), numbered(10))
    expected = sorted(sent, key=order)
    assert rows(source(spark, topics.bootstrap, subscribe=f"{stem}-a,{stem}-b")) == expected
    assert rows(source(spark, topics.bootstrap, subscribePattern=re.escape(stem) + "-[ab]")) == expected


@case("assign partitions")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_assign(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("assign", 4)
    sent = topics.send(topic, numbered(400, 4))
    found = rows(source(spark, topics.bootstrap, assign=json.dumps({topic: [0, 3]})))
    assert found == sorted((row for row in sent if row.partition in (0, 3)), key=order)
    assert len(found) == 200


@case("startingOffsets, endingOffsets")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_offset_ranges(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("ranges", 3)
    sent = topics.send(topic, numbered(300, 3))
    frame = source(
        spark,
        topics.bootstrap,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 10, "1": -2, "2": 99}}),
        endingOffsets=json.dumps({topic: {"0": 20, "1": 1, "2": -1}}),
    )
    places = [(row.partition, row.offset) for row in rows(frame)]
    assert places == [(0, offset) for offset in range(10, 20)] + [(1, 0), (2, 99)]
    assert len(sent) == 300


@case("startingTimestamp, endingTimestamp, …OffsetsByTimestamp")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_timestamps(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("times", 2)
    # Partition 1 is out of order: what counts is the first offset with a timestamp at or after the wanted one.
    disorder = [Message(1, b"%d" % at, None, BASE_TIME_MS + at * 1000) for at in (0, 50, 10, 60, 20, 70)]
    topics.send(topic, numbered(100) + disorder)

    def places(**options: object) -> list[tuple[int, int]]:
        return [(r.partition, r.offset) for r in rows(source(spark, topics.bootstrap, subscribe=topic, **options))]

    at_40, at_60 = BASE_TIME_MS + 40_000, BASE_TIME_MS + 60_000
    late = [(1, offset) for offset in range(1, 6)]
    assert places(startingTimestamp=at_40) == [(0, offset) for offset in range(40, 100)] + late
    assert places(startingTimestamp=at_40 + 1) == [(0, offset) for offset in range(41, 100)] + late
    assert places(endingTimestamp=at_60) == [(0, offset) for offset in range(60)] + [(1, 0), (1, 1), (1, 2)]
    by_partition = places(
        startingOffsetsByTimestamp=json.dumps({topic: {"0": at_40, "1": at_60}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": at_60, "1": at_60 + 1}}),
    )
    assert by_partition == [(0, offset) for offset in range(40, 60)] + [(1, 3), (1, 4)]


@case("timestamp after the last record: error or latest")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_timestamp_after_the_last_record(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("after", 2)
    topics.send(topic, numbered(20))
    after = BASE_TIME_MS + 20_000
    with pytest.raises(FAILURES, match="No offset matched"):
        source(spark, topics.bootstrap, subscribe=topic, startingTimestamp=after).count()
    frame = source(
        spark,
        topics.bootstrap,
        subscribe=topic,
        startingTimestamp=after,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert frame.count() == 0
    assert source(spark, topics.bootstrap, subscribe=topic, endingTimestamp=after).count() == 20


@case("minPartitions")
def test_min_partitions(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("split", 2)
    sent = topics.send(topic, numbered(1000, 2))
    frame = source(spark, topics.bootstrap, subscribe=topic, minPartitions=8)
    tasks = dict(frame.groupBy(F.spark_partition_id().alias("task")).count().collect())
    assert len(tasks) == 8
    assert set(tasks.values()) == {125}
    assert rows(frame) == sorted(sent, key=order)


@case("maxRecordsPerPartition")
def test_max_records_per_partition(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("small", 2)
    sent = topics.send(topic, numbered(310, 2))
    # In a batch, the connector looks at the limit only where minPartitions asks for a division at all.
    frame = source(spark, topics.bootstrap, subscribe=topic, maxRecordsPerPartition=50, minPartitions=3)
    tasks = dict(frame.groupBy(F.spark_partition_id().alias("task")).count().collect())
    assert max(tasks.values()) <= 50
    assert len(tasks) == 8
    assert rows(frame) == sorted(sent, key=order)


@case("compressed topics: gzip, snappy, lz4, zstd")
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_topic(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.create(f"codec-{codec}", 2)
    value = b"%d " + b"a line that compresses " * 20
    sent = topics.send(
        topic,
        [
            Message(n % 2, value % n, b"%d" % n, BASE_TIME_MS + n, (("n", b"%d" % n), ("no value", None)))
            for n in range(3000)
        ],
        codec=codec,
    )
    assert rows(source(spark, topics.bootstrap, subscribe=topic)) == sorted(sent, key=order)


@case("codecs mixed in one partition")
def test_codecs_mixed_in_one_partition(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("mixed")
    sent = []
    for turn, codec in enumerate(CODECS * 3):
        sent += topics.send(topic, numbered(100, first=turn * 100), codec=codec)
    assert [row.offset for row in sent] == list(range(1500))
    assert rows(source(spark, topics.bootstrap, subscribe=topic)) == sent
    # A range that begins and ends inside compressed batches.
    ranged = {"startingOffsets": json.dumps({topic: {"0": 150}}), "endingOffsets": json.dumps({topic: {"0": 1350}})}
    assert rows(source(spark, topics.bootstrap, subscribe=topic, **ranged)) == sent[150:1350]


@case("compression.type of the topic")
def test_topic_recompressed_by_the_broker(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("recompressed", configs={"compression.type": "zstd"})
    sent = topics.send(topic, numbered(2000), codec="gzip")
    assert rows(source(spark, topics.bootstrap, subscribe=topic)) == sent


@case("records larger than the fetch")
def test_records_near_the_limit(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("large", 2)
    messages = [Message(n % 2, bytes([n]) * 1_000_000, b"%d" % n) for n in range(12)]
    sent = topics.send(topic, messages)
    # Fetches that hold less than one record must still bring it.
    small = {"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000}
    assert rows(source(spark, topics.bootstrap, subscribe=topic, kafka=small)) == sorted(sent, key=order)


@case("many partitions")
def test_many_partitions(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("wide", 32)
    sent = topics.send(topic, numbered(1600, 32))
    found = rows(source(spark, topics.bootstrap, subscribe=topic))
    assert found == sorted(sent, key=order)
    assert all(a.offset + 1 == b.offset for a, b in pairwise(found) if a.partition == b.partition)


@case("empty topic, read_committed")
def test_empty_topic_and_read_committed(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("committed", 2)
    committed = {"isolation.level": "read_committed"}
    assert source(spark, topics.bootstrap, subscribe=topic, kafka=committed).count() == 0
    sent = topics.send(topic, numbered(500, 2))
    assert rows(source(spark, topics.bootstrap, subscribe=topic, kafka=committed)) == sorted(sent, key=order)


@case("records deleted below: failOnDataLoss true and false")
@OFFSET_FETCHING
@pytest.mark.usefixtures("deprecated_offset_fetching_set")
def test_deleted_records(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("trimmed", 2)
    sent = topics.send(topic, numbered(200, 2))
    topics.delete_before(topic, {0: 30, 1: 100})
    left = [row for row in sorted(sent, key=order) if row.partition == 0 and row.offset >= 30]
    assert rows(source(spark, topics.bootstrap, subscribe=topic)) == left
    from_zero = {"startingOffsets": json.dumps({topic: {"0": 0, "1": -2}})}
    with pytest.raises(FAILURES, match="OffsetOutOfRangeException"):
        rows(source(spark, topics.bootstrap, subscribe=topic, failOnDataLoss=True, **from_zero))
    assert rows(source(spark, topics.bootstrap, subscribe=topic, failOnDataLoss=False, **from_zero)) == left


@case("missing topic is not created by reading")
def test_missing_topic_is_an_error_and_is_not_created(spark: SparkSession, topics: Topics) -> None:
    name = topics.name("missing")
    with pytest.raises(FAILURES, match="UnknownTopicOrPartitionException"):
        source(spark, topics.bootstrap, subscribe=name).count()
    assert name not in topics.admin.list_topics()
