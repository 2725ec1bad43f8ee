"""A day in a web shop, from clickstream to report: kafka-python -> topic -> Spark -> topic and Parquet -> picture.

    python3 run.py example pipeline --bootstrap 127.0.0.1:9092 --out DIR

The shop's events (shop.py) go to a topic (feed.py), shift by shift. After each shift Spark reads what is new, counts it
per ten minutes and country, and appends closed windows to Parquet and to a second topic (stream.py). At the end a batch
job makes DIR/report.json and DIR/report.png (report.py).

Stop it whenever you like, also with kill -9, and start it again with the same arguments: it goes on where it was, and
the numbers come out the same. Needs: pip install "pyspark==4.2.0" pyarrow "pandas<3" matplotlib kafka-python, and Java
17 or newer. Spark fetches its Kafka connector by itself unless --jars (or the environment variable SPARK_KAFKA_JARS)
names the jars.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

try:
    import report
    import shop
    from feed import Feed, create_topics, end_offsets
    from kafka.errors import KafkaTimeoutError
    from stream import Pipeline, session
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example pipeline` installs what this needs, or: "
        "pip install pyspark==4.2.0 pyarrow 'pandas<3' matplotlib 'kafka-python[crc32c]'"
    ) from None

PARTITIONS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="checkpoints, Parquet files, report")
    parser.add_argument("--topic", default="shop", metavar="NAME", help="topics NAME.events and NAME.windows")
    parser.add_argument(
        "--sessions", type=int, default=9000, metavar="N", help="visits on that day (about 6 events each)"
    )
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="another seed, another day")
    parser.add_argument("--jars", default=os.environ.get("SPARK_KAFKA_JARS"), help="connector jars, comma-separated")
    arguments = parser.parse_args()
    events, windows = f"{arguments.topic}.events", f"{arguments.topic}.windows"

    settings = {name: getattr(arguments, name) for name in ("topic", "sessions", "seed")}
    try:
        problem = _claim(arguments.out, settings, arguments.bootstrap, events)
    except KafkaTimeoutError:
        problem = f"no broker answers at {arguments.bootstrap}; to start one: python3 run.py serve"
    if problem:
        print(problem, file=sys.stderr)
        return 2
    create_topics(arguments.bootstrap, {events: PARTITIONS, windows: 1})
    spark = session(arguments.jars)
    feed = Feed(arguments.bootstrap, events, PARTITIONS)
    pipeline = Pipeline(spark, arguments.bootstrap, events, windows, arguments.out)
    try:
        for number, lines in enumerate(shop.day(arguments.seed, arguments.sessions), 1):
            sent = feed.send(lines)
            # A shift is begun when Spark has read the one before. One that an earlier run left half sent must be
            # completed first: Spark would take the lines that are there for the present and the missing ones for late.
            read = 0 if feed.is_ahead() else pipeline.drain()
            print(f"shift {number} of {shop.SHIFTS}: {sent:,} lines sent, {read:,} read by Spark", flush=True)
        # Sent by every run: a query that was killed before it closed its last windows does so when something comes in.
        feed.send_last(shop.heartbeat())
        pipeline.drain()
        numbers = report.write(pipeline, arguments.out)
    finally:
        feed.close()
        spark.stop()
    print(json.dumps({name: value for name, value in numbers.items() if name != "products"}, indent=2))
    print(f"report: {arguments.out / 'report.png'}")
    return 0 if numbers["topic_equals_parquet"] else 1


def _claim(directory: Path, settings: dict[str, object], bootstrap: str, topic: str) -> str | None:
    """Note in *directory* which day it holds, before the first line is sent. Returns why not, if it cannot be used."""
    mark = directory / "run.json"
    if mark.exists():
        found = json.loads(mark.read_text())
        if found != settings:
            return f"{directory} holds a run with {found}: give the same arguments, or another --out and --topic"
        return None
    if any(end_offsets(bootstrap, topic).values()):
        return f"topic {topic} has records of a run that {directory} does not know: choose another --topic"
    directory.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(settings))
    return None


if __name__ == "__main__":
    sys.exit(main())
