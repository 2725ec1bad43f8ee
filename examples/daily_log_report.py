"""A nightly job over yesterday's records, read from a copy of the broker's files: no consumer, no load on the broker.

    barnabas dev --port 9092 --data /tmp/logs                                               # in one terminal
    python3 run.py example daily_log_report --bootstrap 127.0.0.1:9092 --logs /tmp/logs --out /tmp/report

With --bootstrap the topic is filled with made-up orders first. Without it, --logs is any log directory of Barnabas or
Apache Kafka. The topic's directories are copied while the broker goes on writing (`rsync -a` or `cp -r` would do as
well: what is half written at the end of a copy is left out). Then Spark reads the copy, one task for each segment that
may hold records of the day, counts them by hour and country, writes OUT/hours/day=.../*.parquet and OUT/report.json,
and prints a summary. Run it again for the same day and it replaces that day.

Needs: pip install ".[spark]" in a checkout, and Java 17 or newer; kafka-python for --bootstrap.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

COUNTRIES = ("CZ", "DE", "FR", "PL")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, required=True, metavar="DIR", help="the broker's log directory")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="copy, Parquet files and report")
    parser.add_argument("--topic", default="orders", metavar="NAME")
    parser.add_argument("--day", type=date.fromisoformat, help="YYYY-MM-DD, UTC (default: yesterday)")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="send made-up orders to this broker first")
    arguments = parser.parse_args()
    day = arguments.day or datetime.now(UTC).date() - timedelta(days=1)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)

    if arguments.bootstrap:
        print(f"sent {send_orders(arguments.bootstrap, arguments.topic, start):,} orders of three days")
    copied = copy_topic(arguments.logs, arguments.topic, arguments.out / "copy")
    if not copied:
        print(f"{arguments.logs} has no topic {arguments.topic}", file=sys.stderr)
        return 2
    print(f"copied {copied:,} bytes")

    report = aggregate(arguments.out, arguments.topic, start)
    (arguments.out / "report.json").write_text(json.dumps(report, indent=1))
    print(f"{day}: {report['orders']:,} orders, {report['amount']:,.2f} in all, busiest hour {report['busiest_hour']}")
    for country, amount in report["by_country"].items():
        print(f"  {country} {amount:12,.2f}")
    return 0


def copy_topic(logs: Path, topic: str, copy: Path) -> int:
    """Copy the topic's partitions as they are now; return the bytes of their logs. Files that the broker removes
    meanwhile, as it does with old segments, are passed over. The checkpoint files know which records were deleted.
    """
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for checkpoint in logs.glob("*-checkpoint"):
        shutil.copy(checkpoint, copy)
    size = 0
    for partition in sorted(logs.glob(f"{topic}-*")):
        if not partition.name.removeprefix(f"{topic}-").isdecimal():
            continue
        (copy / partition.name).mkdir()
        for file in sorted(partition.iterdir()):
            try:
                target = Path(shutil.copy(file, copy / partition.name))
            except FileNotFoundError:
                continue
            size += target.stat().st_size if target.suffix == ".log" else 0
    return size


def aggregate(out: Path, topic: str, start: datetime) -> dict[str, Any]:
    """Read the day from the copy, write its hours as Parquet, and return the report."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import barnabas.spark

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("daily log report")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    barnabas.spark.register(spark)
    # Only these columns are read, and, as the filter is pushed down, only segments with records that late.
    orders = (
        spark.read.format("barnabas-log")
        .option("subscribe", topic)
        .option("columns", "value,timestamp")
        .load(str(out / "copy"))
        .where((F.col("timestamp") >= start) & (F.col("timestamp") < start + timedelta(days=1)))
        .select("timestamp", F.from_json(F.col("value").cast("string"), "country string, amount double").alias("order"))
    )
    hours = orders.groupBy(
        F.to_date("timestamp").alias("day"), F.hour("timestamp").alias("hour"), F.col("order.country").alias("country")
    ).agg(F.count("*").alias("orders"), F.round(F.sum("order.amount"), 2).alias("amount"))
    hours.coalesce(1).write.mode("overwrite").partitionBy("day").parquet(str(out / "hours"))

    found = spark.read.parquet(str(out / "hours")).where(F.col("day") == F.lit(start.date())).collect()
    spark.stop()
    by_hour: dict[int, int] = {}
    by_country: dict[str, float] = {}
    for row in found:
        by_hour[row.hour] = by_hour.get(row.hour, 0) + row.orders
        by_country[row.country] = round(by_country.get(row.country, 0.0) + row.amount, 2)
    return {
        "day": start.date().isoformat(),
        "orders": sum(by_hour.values()),
        "amount": round(sum(by_country.values()), 2),
        "busiest_hour": max(by_hour, key=lambda hour: (by_hour[hour], -hour)) if by_hour else None,
        "by_country": dict(sorted(by_country.items())),
    }


def send_orders(bootstrap: str, topic: str, start: datetime) -> int:
    """One order a minute of the day before, the day, and the day after, most of them by day; the same every time."""
    from kafka import KafkaProducer

    rnd = random.Random(start.toordinal())
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20)
    sent = 0
    for minute in range(-24 * 60, 48 * 60):
        at = start + timedelta(minutes=minute)
        for _ in range(rnd.randrange(3) if 7 <= at.hour < 22 else rnd.random() < 0.1):
            order = {"country": rnd.choice(COUNTRIES), "amount": round(rnd.expovariate(1 / 40), 2)}
            key = f"customer {rnd.randrange(300)}".encode()
            producer.send(topic, json.dumps(order).encode(), key, timestamp_ms=int(at.timestamp() * 1000))
            sent += 1
    producer.flush()
    producer.close()
    return sent


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ImportError as error:
        raise SystemExit(
            f"{error}: `python3 run.py example daily_log_report` installs what this needs, or, in a checkout: "
            "pip install '.[spark]' 'kafka-python[crc32c]'"
        ) from None
