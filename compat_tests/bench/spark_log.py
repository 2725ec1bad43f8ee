"""Spark reads one topic twice: with its Kafka source through the broker, and with `barnabas-log` from the broker's
directory. Local Spark on two cores, the broker beside it, all in the page cache.

    python -m compat_tests.bench.spark_log [--rounds 3] [--records 2000000] [--only TEXT] [--brokers kafka,barnabas]

Topics of `records` records of 60 to 140 bytes, once more in lz4, and a fifth of them with 500 to 1,500; three
partitions each, filled by the Java producer. Three queries each: all columns to nowhere (`noop`), count with the sum of
the lengths of the values, and the same for the last tenth by a filter on time. One warm-up run of each is not counted;
after that the sources take turns and the best of the runs counts, since whatever else the machine does only ever slows
down.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compat_tests.bench.brokers import KAFKA, OURS, Server, Side, Subject
from compat_tests.bench.loads.java_client import JavaClient
from compat_tests.bench.loads.values import MIXED, SMALL, Shape, Values
from compat_tests.bench.report import shown
from compat_tests.clients.spark.session import new_session

PARTITIONS = 3
TOPICS: dict[str, tuple[Shape, tuple[str, ...]]] = {
    "60-140 B": (SMALL, ()),
    "60-140 B, lz4": (SMALL, ("compression.type=lz4",)),
    "500-1,500 B": (MIXED, ()),
}
KAFKA_SOURCE, LOG_SOURCE = "kafka", "barnabas-log"

Query = Callable[[DataFrame], object]


def run(directory: Path, names: Sequence[str], rounds: int, records: int, only: str = "") -> str:
    """The table: records a second with either source, and how many times as many the second one reads. `records`: in
    the topics of small ones; a fifth of that in the other. `only`: topics whose title has this text.
    """
    import barnabas.spark

    lines = [
        f"| directory of | records | query | {KAFKA_SOURCE}, records/s | {LOG_SOURCE}, records/s | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    session = new_session(directory / "spark")
    barnabas.spark.register(session)
    values = Values(directory / "values")
    java = JavaClient(directory / "java-client.log")
    try:
        for name in names:
            server = Server(Side(name), directory / name)
            try:
                server.start()
                subject = Subject.of(server)
                for title, (shape, settings) in TOPICS.items():
                    if only not in title:
                        continue
                    count = records if shape is SMALL else records // 5
                    topic = subject.new_topic(PARTITIONS)
                    java.ask("produce", subject.clients, topic, values.file(shape), count, 0, *settings)
                    for query, seconds in measure(session, server, topic, rounds).items():
                        theirs, ours = count / seconds[KAFKA_SOURCE], count / seconds[LOG_SOURCE]
                        cells = [server.started.name, title, query, shown(theirs), shown(ours), f"{ours / theirs:.2f}"]
                        lines.append(f"| {' | '.join(cells)} |")
                        print(lines[-1], file=sys.stderr, flush=True)
            finally:
                server.stop()
    finally:
        java.stop()
        session.stop()
    return "\n".join(lines)


def measure(session: SparkSession, server: Server, topic: str, rounds: int) -> dict[str, dict[str, float]]:
    """By query, the best seconds with each source."""
    frames = {
        KAFKA_SOURCE: session.read.format("kafka")
        .option("kafka.bootstrap.servers", server.bootstrap)
        .option("subscribe", topic)
        .load(),
        LOG_SOURCE: session.read.format("barnabas-log").option("subscribe", topic).load(str(server.data)),
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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench.spark_log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--only", default="", help="topics whose title has this text")
    parser.add_argument("--brokers", default=f"{KAFKA},{OURS}", help="which of the two, separated by a comma")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compat-bench-") as directory:
        print(run(Path(directory), options.brokers.split(","), options.rounds, options.records, options.only))


if __name__ == "__main__":
    main()
