"""Spark with `kafka.isolation.level=read_committed` over topics with committed, aborted and open transactions: batches
and micro-batches that begin and end anywhere, also among aborted records and on control records. `barnabas-log` shows
the same.

What must be seen is not read by another consumer but kept as it is sent: offsets as acknowledged, and how each
transaction ended.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from compat_tests.clients.spark.queries import OFFSET_FETCHING, Store, batch_sizes, rows, source
from compat_tests.clients.spark.topics import BASE_TIME_MS, CREATE_TIME, Message, Row, Topics, numbered, order, wait_for
from compat_tests.harness.brokers import Broker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]

READ_COMMITTED = {"isolation.level": "read_committed"}
PARTITIONS = 3
ANSWER_TIMEOUT_S = 60


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: read_committed", title, client="spark")


class Transactions:
    """A transactional producer; the rows of a transaction are known when it ends."""

    def __init__(self, topics: Topics) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": topics.bootstrap,
                "transactional.id": topics.name("spark"),
                "transaction.timeout.ms": 600_000,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(ANSWER_TIMEOUT_S)
        self._rows: list[Row] = []

    def send(self, topic: str, partition: int, count: int, stem: str) -> None:
        """Send records, beginning a transaction if none is open; returns when they are acknowledged."""
        if not self._rows:
            self._producer.begin_transaction()
        sent: list[Row] = []

        def acknowledged(error: object, done: object) -> None:
            assert error is None, error
            place = (done.partition(), done.offset())  # type: ignore[attr-defined]
            sent.append(Row(topic, *place, BASE_TIME_MS, CREATE_TIME, None, done.value()))  # type: ignore[attr-defined]

        for number in range(count):
            value = f"{stem} {number}".encode()
            self._producer.produce(topic, value, None, partition, on_delivery=acknowledged, timestamp=BASE_TIME_MS)
        assert self._producer.flush(ANSWER_TIMEOUT_S) == 0
        assert len(sent) == count
        self._rows += sent

    def commit(self) -> list[Row]:
        """Commit; return what is to be seen now."""
        self._producer.commit_transaction(ANSWER_TIMEOUT_S)
        return self._ended()

    def abort(self) -> list[Row]:
        """Abort; return what must not be seen."""
        self._producer.abort_transaction(ANSWER_TIMEOUT_S)
        return self._ended()

    def _ended(self) -> list[Row]:
        found, self._rows = self._rows, []
        return found


@dataclass
class Story:
    """A topic, what of it is committed (records outside of transactions too), and what is aborted."""

    topic: str
    committed: list[Row] = field(default_factory=list)
    aborted: list[Row] = field(default_factory=list)

    def between(self, starts: dict[int, int], ends: dict[int, int]) -> list[Row]:
        """What is committed from *starts* (inclusive) to *ends* (exclusive), by partition."""
        return sorted((r for r in self.committed if starts[r.partition] <= r.offset < ends[r.partition]), key=order)


def tell(topics: Topics) -> Story:
    """A topic whose partitions end in an abort marker, a commit marker, and have aborted records only."""
    story = Story(topics.create("told", PARTITIONS))
    one, other = Transactions(topics), Transactions(topics)
    other.send(story.topic, 1, 4, "aborted at the very beginning")
    story.aborted += other.abort()
    for turn in range(3):
        # Two at once, so that aborted ones lie between committed ones.
        for step in range(2):
            one.send(story.topic, 0, 3, f"kept {turn} {step}")
            other.send(story.topic, 0, 2, f"dropped {turn} {step}")
            one.send(story.topic, 1, 1, f"kept {turn} {step}")
        story.committed += topics.send(story.topic, numbered(4, 2, first=100 * turn))
        story.aborted += other.abort()
        story.committed += one.commit()
    for turn in range(4):
        # A record, its marker, a record, its marker.
        one.send(story.topic, 0, 1, f"single {turn}")
        if turn % 2:
            story.aborted += one.abort()
        else:
            story.committed += one.commit()
    other.send(story.topic, 0, 9, "aborted at the end")
    other.send(story.topic, 2, 5, "aborted, and nothing else")
    story.aborted += other.abort()
    one.send(story.topic, 1, 2, "committed at the end")
    story.committed += one.commit()
    return story


@pytest.fixture(scope="module")
def story(bootstrap: str) -> Story:
    """One for all tests that only read it."""
    topics = Topics(bootstrap)
    try:
        return tell(topics)
    finally:
        topics.close()


def kafka(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> DataFrame:
    """The topic by the Kafka source, with read_committed."""
    return source(spark, bootstrap, subscribe=topic, kafka=READ_COMMITTED, **options)


def ends_of(story: Story) -> dict[int, int]:
    """The end of each partition: the last record of each is followed by one marker."""
    last: dict[int, int] = {}
    for row in [*story.committed, *story.aborted]:
        last[row.partition] = max(last.get(row.partition, 0), row.offset)
    return {partition: offset + 2 for partition, offset in last.items()}


@case("a batch shows what is committed, and nothing else")
@OFFSET_FETCHING
def test_batch(spark: SparkSession, bootstrap: str, story: Story, deprecated_offset_fetching: bool) -> None:
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, str(deprecated_offset_fetching).lower())
    try:
        assert rows(kafka(spark, bootstrap, story.topic)) == sorted(story.committed, key=order)
    finally:
        spark.conf.unset(key)
    uncommitted = rows(source(spark, bootstrap, subscribe=story.topic))
    assert uncommitted == sorted(story.committed + story.aborted, key=order)
    assert len(story.aborted) > 25


@case("batches that begin and end among aborted records and on control records")
def test_batch_ranges(spark: SparkSession, bootstrap: str, story: Story) -> None:
    last = ends_of(story)
    seed = random.randrange(1 << 31)
    chance = random.Random(seed)
    records = {(row.partition, row.offset) for row in story.committed + story.aborted}
    controls = [(p, offset) for p in last for offset in range(last[p]) if (p, offset) not in records]
    assert len(controls) > 10
    ranges = [
        # From the last marker to the end: nothing; all but the last marker; the aborted end alone.
        ({p: last[p] - 1 for p in last}, last),
        (dict.fromkeys(last, 0), {p: last[p] - 1 for p in last}),
        ({0: last[0] - 8, 1: 1, 2: 2}, {0: last[0] - 2, 1: 3, 2: 4}),
        # On a marker, for one offset.
        *(({**last, p: offset}, {**last, p: offset + 1}) for p, offset in chance.sample(controls, 2)),
    ]
    for _ in range(6):
        starts = {p: chance.randrange(last[p] + 1) for p in last}
        ranges.append((starts, {p: chance.randint(starts[p], last[p]) for p in last}))
    for starts, ends in ranges:
        given = {name: json.dumps({story.topic: {str(p): offset for p, offset in offsets.items()}}) for name, offsets in
                 (("startingOffsets", starts), ("endingOffsets", ends))}  # fmt: skip
        found = rows(kafka(spark, bootstrap, story.topic, **given))
        assert found == story.between(starts, ends), f"seed {seed}: from {starts} to {ends}"


@case("micro-batches of a few offsets: each committed record once")
def test_small_micro_batches(spark: SparkSession, bootstrap: str, story: Story, store: Store) -> None:
    # The first partition alone: its end is ten offsets of an aborted transaction.
    given = {"assign": json.dumps({story.topic: [0]}), "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    query = store.start(source(spark, bootstrap, stream=True, kafka=READ_COMMITTED, **given), availableNow=True)
    assert query.awaitTermination(ANSWER_TIMEOUT_S * 4)
    expected = sorted((row for row in story.committed if row.partition == 0), key=order)
    assert store.rows(spark) == expected
    batches = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(batches) == len(expected)
    assert len(batches) >= ends_of(story)[0] // 5
    assert 0 in batches, "no micro-batch had aborted records and markers only"


@case("a stream waits at an open transaction until its end")
def test_open_transaction(spark: SparkSession, topics: Topics, store: Store) -> None:
    topic = topics.create("open", 1)
    one, other = Transactions(topics), Transactions(topics)
    seen = topics.send(topic, numbered(3))
    one.send(topic, 0, 5, "in doubt")
    behind = topics.send(topic, numbered(4, first=50))
    frame = kafka(spark, topics.bootstrap, topic, stream=True, startingOffsets="earliest")
    assert store.drain(frame) == [3]
    query = store.start(frame)
    query.processAllAvailable()
    assert store.rows(spark) == seen
    seen += one.commit() + behind
    _until_read(query, len(seen) - 3)
    assert store.rows(spark) == sorted(seen, key=order)
    other.send(topic, 0, 6, "not to be")
    query.processAllAvailable()
    other.abort()
    seen += topics.send(topic, numbered(2, first=90))
    _until_read(query, len(seen) - 3)
    query.stop()
    assert store.rows(spark) == sorted(seen, key=order)
    assert store.drain(frame) == []


def _until_read(query, count: int) -> None:  # type: ignore[no-untyped-def]
    wait_for(lambda: query.exception() is not None or sum(batch_sizes(query)) >= count)
    assert query.exception() is None, query.exception()
    query.processAllAvailable()


@case("barnabas-log shows the same from the broker's directory")
def test_log_source(spark: SparkSession, topics: Topics, broker: Broker, story: Story) -> None:
    if broker.log is None:
        pytest.skip("a broker whose directory is not known")
    import barnabas.spark

    barnabas.spark.register(spark)
    open_one = topics.create("undecided", 1)
    topics.send(open_one, [Message(0, b"before")])
    undecided = Transactions(topics)
    undecided.send(open_one, 0, 3, "in doubt")
    topics.send(open_one, [Message(0, b"behind")])

    def log(isolation: str) -> list[Row]:
        options = {"subscribe": f"{story.topic},{open_one}", "includeHeaders": "true", "isolation": isolation}
        assert broker.log is not None
        return rows(spark.read.format("barnabas-log").options(**options).load(str(broker.log.parent / "data")))

    both = f"{story.topic},{open_one}"
    assert log("read_committed") == rows(kafka(spark, topics.bootstrap, both))
    assert log("read_uncommitted") == rows(source(spark, topics.bootstrap, subscribe=both))
    undecided.commit()
    assert log("read_committed") == rows(kafka(spark, topics.bootstrap, both))
    assert [row.value for row in log("read_committed") if row.topic == open_one] == [
        b"before",
        *(b"in doubt %d" % number for number in range(3)),
        b"behind",
    ]
