"""`barnabas-log` against Spark's Kafka source: the same rows for the same topics, from the directories of both brokers,
while they run and from copies.

The one part of this suite that loads something of ours: the data source is what users load into their Spark.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compat_tests.clients.spark.queries import rows, source
from compat_tests.clients.spark.topics import BASE_TIME_MS, CODECS, Message, Topics, numbered, wait_for
from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]

OPEN_MS = 3_600_000
"""How long a transaction may stay open: longer than all tests take, also on a busy machine."""
KAFKA_SETTINGS = (
    f"transaction.max.timeout.ms={OPEN_MS}",
    "log.cleaner.backoff.ms=100",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
)
ANSWER_TIMEOUT_S = 60
MIXED, SEGMENTS, STAMPED, COMPACTED, TXNS = "mixed", "segments", "stamped", "compacted", "txns"
IN_SEGMENTS = 3000
"""Records of about 1 KiB in segments of 1 MiB, one a second."""


APACHE_KAFKAS = pytest.mark.parametrize("place", ["kafka"], indirect=True)


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: log directories", title, client="spark")


@dataclass
class Place:
    """A broker, filled, and its log directory."""

    broker: Broker
    directory: Path
    topics: list[str]

    def kafka(self, spark: SparkSession, **options: object) -> DataFrame:
        """By the Kafka source."""
        if not {"subscribe", "subscribePattern", "assign"} & options.keys():
            options["subscribe"] = ",".join(self.topics)
        return source(spark, self.broker.bootstrap, **options)

    def log(self, spark: SparkSession, *directories: Path, **options: object) -> DataFrame:
        """By ours; from the broker's own directory unless others are named."""
        kafka = {f"kafka.{key}": value for key, value in options.pop("kafka", {}).items()}  # type: ignore[attr-defined]
        given = {key: str(value) for key, value in (options | kafka).items()} | {"includeHeaders": "true"}
        return (
            spark.read.format("barnabas-log")
            .options(**given)
            .load([str(directory) for directory in directories] or str(self.directory))
        )


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Spark with the data source."""
    import barnabas.spark

    barnabas.spark.register(spark)
    return spark


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Each broker in turn, with topics of all kinds; transactions and compaction in Apache Kafka's."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        broker = start_kafka(directory, KAFKA_SETTINGS)
        data = directory / "data"
    else:
        data = directory / "data"
        broker = start_barnabas(directory, [f"log.dirs={data}"])
    topics = Topics(broker.bootstrap)
    try:
        names = [MIXED, SEGMENTS, STAMPED]
        fill(topics)
        if request.param == "kafka":
            fill_compacted(topics)
            fill_transactions(topics)
            names += [COMPACTED, TXNS]
        yield Place(broker, data, names)
    finally:
        topics.close()
        broker.stop()


def fill(topics: Topics) -> None:
    """What any broker has."""
    rnd = random.Random(7)
    topics.create(MIXED, 3, exactly=True)
    topics.send(
        MIXED,
        [
            Message(0, b"value", b"key", BASE_TIME_MS, (("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None))),
            Message(0, None, b"tombstone", BASE_TIME_MS + 1),
            Message(0, b"", b"", 1),
            Message(2, b"no key", None, BASE_TIME_MS - 1),
            Message(2, "Größe ∞ \0".encode(), b"\xff\x00", BASE_TIME_MS + 999, (("schlüssel", b"\x00\xff"),)),
        ],
    )
    for codec in CODECS:
        some = [
            message._replace(
                value=rnd.randbytes(rnd.randrange(300)),
                timestamp_ms=BASE_TIME_MS + rnd.randrange(3_000_000),
                headers=((codec, b"%d" % number),) * (number % 3),
            )
            for number, message in enumerate(numbered(400, 3))
        ]
        topics.send(MIXED, some, codec=codec)
    topics.create(SEGMENTS, 1, exactly=True, configs={"segment.bytes": str(1 << 20)})
    # Acknowledged in steps, so that batches stay small and the index has many places.
    for first in range(0, IN_SEGMENTS, 100):
        some = [message._replace(value=rnd.randbytes(1000)) for message in numbered(100, first=first)]
        topics.send(SEGMENTS, some)
    topics.create(STAMPED, 1, exactly=True, configs={"message.timestamp.type": "LogAppendTime"})
    topics.send(STAMPED, numbered(200), codec="zstd")


def fill_compacted(topics: Topics) -> None:
    """Keys written many times, a tombstone; returns when Apache Kafka's cleaner has made gaps."""
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    topics.create(COMPACTED, 1, exactly=True, configs=configs)
    some = [Message(0, b"v%d" % number, b"k%d" % (number % 7)) for number in range(300)]
    topics.send(COMPACTED, [*some, Message(0, None, b"k3")])

    times = itertools.count(BASE_TIME_MS + 1000, 1000)

    def cleaned() -> bool:
        # A segment is complete when a record comes that is so much later than its first one.
        topics.send(COMPACTED, [Message(0, b"roll", b"roll", next(times))])
        return len(topics.read(COMPACTED)) < 200

    wait_for(cleaned)


def fill_transactions(topics: Topics) -> None:
    """Committed, aborted, interleaved with an ordinary producer, and one left open at the end."""
    topics.create(TXNS, 2, exactly=True)

    def producer(name: str) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": topics.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": OPEN_MS,
                # Unset, it follows the transaction's, and an hour is more than librdkafka can count.
                "socket.timeout.ms": ANSWER_TIMEOUT_S * 1000,
                "linger.ms": 1,
            }
        )
        made.init_transactions(ANSWER_TIMEOUT_S)
        return made

    first, second = producer("first"), producer("second")
    for number in range(4):
        for each in (first, second):
            each.begin_transaction()
            for i in range(30):
                each.produce(TXNS, b"%d %d" % (number, i), b"key", i % 2, timestamp=BASE_TIME_MS + number * 1000)
            each.flush(ANSWER_TIMEOUT_S)
        topics.send(TXNS, numbered(20, 2, first=number * 20))
        (first.abort_transaction if number % 2 else first.commit_transaction)(ANSWER_TIMEOUT_S)
        (second.commit_transaction if number == 1 else second.abort_transaction)(ANSWER_TIMEOUT_S)
    topics.send(TXNS, numbered(20, 2, first=200))
    first.begin_transaction()
    first.produce(TXNS, b"open", None, 0)
    first.flush(ANSWER_TIMEOUT_S)
    topics.send(TXNS, numbered(20, 2, first=300))
    # Gone, and the transaction with it still open for an hour.


@case("the same rows, live and copied")
def test_the_same_rows(session: SparkSession, place: Place, tmp_path: Path) -> None:
    expected = rows(place.kafka(session))
    assert len(expected) > 5000
    live = place.log(session)
    assert live.schema == place.kafka(session).schema
    assert rows(live) == expected

    copy = tmp_path / "copy"
    shutil.copytree(place.directory, copy)
    assert rows(place.log(session, copy)) == expected
    two = rows(place.log(session, copy / f"{MIXED}-2", copy / f"{STAMPED}-0"))
    assert two == [row for row in expected if (row.topic, row.partition) in ((MIXED, 2), (STAMPED, 0))]
    assert {row.timestamp_type for row in expected} == {0, 1}


@case("read_committed")
@APACHE_KAFKAS
def test_read_committed(session: SparkSession, place: Place) -> None:
    committed = {"kafka": {"isolation.level": "read_committed"}, "subscribe": f"{MIXED},{TXNS}"}
    expected = rows(place.kafka(session, **committed))
    assert rows(place.log(session, **committed)) == expected
    # 4 x 60 in transactions, of which 3 x 30 were committed; ordinary ones behind the open one wait for its end.
    assert len([row for row in expected if row.topic == TXNS]) == 90 + 80 + 20 + 10
    assert place.log(session, subscribe=TXNS).count() == 240 + 80 + 20 + 1 + 20


@case("startingOffsets, startingTimestamp and the like")
@APACHE_KAFKAS
def test_where_from_and_where_to(session: SparkSession, place: Place) -> None:
    mixed = {"0": 100, "1": -2, "2": 300}
    ends = {"0": 400, "1": 350, "2": -1}
    at, later = BASE_TIME_MS + 1_000_000, BASE_TIME_MS + 2_000_000
    by_time = {"0": at, "1": at + 1, "2": BASE_TIME_MS}
    choices = [
        {"startingOffsets": json.dumps({MIXED: mixed}), "endingOffsets": json.dumps({MIXED: ends})},
        {"startingTimestamp": at, "endingTimestamp": later},
        {"startingOffsetsByTimestamp": json.dumps({MIXED: by_time}), "endingTimestamp": at * 2},
        {"endingOffsetsByTimestamp": json.dumps({MIXED: by_time}), "startingTimestamp": BASE_TIME_MS},
    ]
    for options in choices:
        expected = rows(place.kafka(session, subscribe=MIXED, **options))
        assert rows(place.log(session, subscribe=MIXED, **options)) == expected, options
    part = {"startingTimestamp": BASE_TIME_MS + 1_500_000, "endingTimestamp": BASE_TIME_MS + 1_600_000}
    expected = rows(place.kafka(session, subscribe=SEGMENTS, **part))
    assert [row.offset for row in expected] == list(range(1500, 1600))
    assert rows(place.log(session, subscribe=SEGMENTS, **part)) == expected
    late = {"startingTimestamp": at * 2, "startingOffsetsByTimestampStrategy": "latest"}
    assert place.log(session, assign=json.dumps({MIXED: [0, 2]}), **late).count() == 0


# (filter, most tasks for the topic with segments, and whether Spark has nothing left to filter)
FILTERS = [
    ("topic = 'segments' and offset between 2000 and 2010", 1, True),
    ("topic = 'segments' and timestamp >= timestamp_millis(1700002900000)", 1, True),
    ("topic in ('segments', 'none') and timestamp < timestamp_millis(1700000010500)", 4, True),
    ("topic = 'segments' and offset in (5, 2990)", 4, False),
    ("partition = 2 and timestamp >= timestamp_millis(1700001000000) and key is not null", 1, False),
    ("topic like 'mix%' and partition <> 1 and length(value) > 200", 2, False),
]


@case("filters: the same rows, fewer segments")
def test_filters(session: SparkSession, place: Place) -> None:
    every = place.kafka(session, subscribe=f"{MIXED},{SEGMENTS},{STAMPED}").cache()
    for text, tasks_max, nothing_left in FILTERS:
        found = place.log(session, subscribe=f"{MIXED},{SEGMENTS},{STAMPED}").where(text)
        assert rows(found) == rows(every.where(text)), text
        assert found.rdd.getNumPartitions() <= tasks_max, text
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert ("Filter " not in plan) == nothing_left, plan
    every.unpersist()


@case("tasks: one for each segment, split and gathered")
@APACHE_KAFKAS
def test_tasks(session: SparkSession, place: Place) -> None:
    files = len(list(place.directory.glob(f"{SEGMENTS}-0/*.log")))
    assert files >= 3
    frame = place.log(session, subscribe=SEGMENTS)
    assert frame.rdd.getNumPartitions() == files
    split = place.log(session, subscribe=SEGMENTS, maxPartitionBytes="256k")
    assert split.rdd.getNumPartitions() >= 3 * files
    assert rows(split) == rows(frame)
    assert place.log(session, subscribe=SEGMENTS, minPartitionBytes="1g").rdd.getNumPartitions() == 1


@case("few columns, and a session without pushdown")
@APACHE_KAFKAS
def test_columns_and_no_pushdown(session: SparkSession, place: Place) -> None:
    total = [F.count("*"), F.sum("offset"), F.max("timestamp")]
    expected = place.kafka(session).agg(*total).collect()
    reader = session.read.format("barnabas-log").option("subscribe", ",".join(place.topics))
    assert (
        reader.schema("timestamp timestamp, offset long").load(str(place.directory)).agg(*total).collect() == expected
    )
    setting = "spark.sql.python.filterPushdown.enabled"
    session.conf.set(setting, "false")
    try:
        frame = place.log(session).where("offset >= 10").select("offset")
        assert frame.count() == place.kafka(session).where("offset >= 10").count()
    finally:
        session.conf.set(setting, "true")
