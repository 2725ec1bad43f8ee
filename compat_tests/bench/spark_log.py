"""Spark reads one topic twice: with its Kafka source through the broker, and with `barnabas-log` from the broker's
directory. Local Spark on two cores, the broker beside it, all in the page cache.

Topics of `records` records, once of 100 bytes and once of 1 KiB, filled by the Java producer, three partitions, and
100 bytes once more in lz4. Three queries each: all columns to nowhere (`noop`), count with the sum of the lengths of
the values, and the same for the last tenth by a filter on time. One warm-up run of each is not counted; after that
the sources take turns and the best of the runs counts, since whatever else the machine does only ever slows down.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compat_tests.bench.measures import Scale, Subject
from compat_tests.bench.report import KAFKA, number
from compat_tests.clients.spark.session import new_session
from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka

PARTITIONS = 3
SMALL = 100
SIZES = {"100 bytes": (SMALL, ()), "100 bytes, lz4": (SMALL, ("compression.type=lz4",)), "1 KiB": (1024, ())}
KAFKA_SOURCE, LOG_SOURCE = "kafka", "barnabas-log"

Query = Callable[[DataFrame], object]


def run(directory: Path, names: Sequence[str], rounds: int, records: int, only: str = "") -> str:
    """The table: records a second with either source, and how many times as many the second one reads. `records`: in
    the topics of 100 bytes; a fifth of that in those of 1 KiB. `only`: topics whose title has this text.
    """
    import barnabas.spark

    lines = [
        f"| directory of | records | query | {KAFKA_SOURCE}, records/s | {LOG_SOURCE}, records/s | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    session = new_session(directory / "spark")
    barnabas.spark.register(session)
    try:
        for name in names:
            broker, data = start(name, directory / name)
            try:
                for title, (size, properties) in SIZES.items():
                    if only not in title:
                        continue
                    count = records if size == SMALL else records // 5
                    topic = fill(broker, count, size, properties)
                    for query, seconds in measure(session, broker, data, topic, rounds).items():
                        theirs, ours = count / seconds[KAFKA_SOURCE], count / seconds[LOG_SOURCE]
                        cells = [broker.name, title, query, number(theirs), number(ours), f"{ours / theirs:.2f}"]
                        lines.append(f"| {' | '.join(cells)} |")
                        print(lines[-1], file=sys.stderr, flush=True)
            finally:
                broker.stop()
    finally:
        session.stop()
    return "\n".join(lines)


def start(name: str, directory: Path) -> tuple[Broker, Path]:
    """Start a broker; it and its log directory."""
    data = directory / "data"
    if name == KAFKA:
        return start_kafka(directory), data
    return start_barnabas(directory, [f"log.dirs={data}"]), data


def fill(broker: Broker, records: int, size: int, properties: tuple[str, ...]) -> str:
    """Fill a new topic with the Java producer at its defaults but for `properties`."""
    subject = Subject(broker, Scale())
    topic = subject.new_topic(PARTITIONS)
    subject.java(
        *("ProducerPerformance", "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(size), "--throughput", "-1"),
        *(("--command-property", *properties) if properties else ()),
    )
    return topic


def measure(session: SparkSession, broker: Broker, data: Path, topic: str, rounds: int) -> dict[str, dict[str, float]]:
    """By query, the best seconds with each source."""
    frames = {
        KAFKA_SOURCE: session.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .load(),
        LOG_SOURCE: session.read.format("barnabas-log").option("subscribe", topic).load(str(data)),
    }
    first, last = (int(each) for each in frames[LOG_SOURCE].agg(*span()).first() or ())
    late = F.timestamp_millis(F.lit(last - (last - first) // 10))
    total = [F.count("*"), F.sum(F.length("value"))]
    queries: dict[str, Query] = {
        "full scan": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "count, sum of lengths": lambda frame: frame.agg(*total).collect(),
        "the same, last tenth of time": lambda frame: frame.where(F.col("timestamp") >= late).agg(*total).collect(),
    }
    found: dict[str, dict[str, float]] = {}
    for title, query in queries.items():
        answers = [query(frame) for frame in frames.values()]
        assert answers[0] == answers[1], f"{title} of {topic}: {answers}"
        best: dict[str, float] = {}
        for turn in range(rounds):
            for source in list(frames)[:: -1 if turn % 2 else 1]:
                begin = time.perf_counter()
                query(frames[source])
                best[source] = min(best.get(source, 1e9), time.perf_counter() - begin)
        found[title] = best
    return found


def span() -> list[F.Column]:
    """The first and the last timestamp, milliseconds."""
    return [F.unix_millis(F.min("timestamp")), F.unix_millis(F.max("timestamp"))]
