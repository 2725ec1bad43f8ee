"""The Spark side: a session with the Kafka connector, and the windowed aggregation of the shop's events.

`windows` counts per ten minutes and country what arrives at most fifteen minutes late. Two queries run over it, each
with a checkpoint of its own: one appends to Parquet (exactly once), one writes to a topic (at least once: after a crash
a window may be there twice, with the same key and the same value).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVENT = (
    "id long, session long, customer string, country string, kind string, product string, at long, cents long, "
    "garbled string"
)
WINDOW, LATENESS = "10 minutes", "15 minutes"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def session(jars: str | None) -> SparkSession:
    """Return a local session. *jars*: the connector's jars, comma-separated; None lets Spark fetch them."""
    # Python workers must be this Python, and no socket needs to leave the machine.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("shop")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # Late is what lies behind the watermark that stands when a batch begins. By default Spark uses the one before
        # that, so that what counts as late depends on how many batches there were: not the same after a kill.
        "spark.sql.streaming.statefulOperator.allowMultiple": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jars:
        settings["spark.jars"] = jars
    else:
        settings["spark.jars.packages"] = f"{CONNECTOR}:{pyspark.__version__}"
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def parse(records: DataFrame) -> DataFrame:
    """Return the events of Kafka records; `garbled` holds the line that is no JSON, and is null otherwise."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "garbled"}
    return records.select(F.from_json(F.col("value").cast("string"), EVENT, options).alias("event")).select("event.*")


def windows(records: DataFrame) -> DataFrame:
    """Return views, carts, purchases and revenue per window and country, from a stream of Kafka records."""
    kinds = {"views": "view", "carts": "cart", "purchases": "purchase"}
    return (
        parse(records)
        .where("garbled is null")
        .withColumn("time", F.timestamp_millis("at"))
        .withWatermark("time", LATENESS)
        .groupBy(F.window("time", WINDOW), "country")
        .agg(
            *(F.count_if(F.col("kind") == kind).alias(name) for name, kind in kinds.items()),
            F.coalesce(F.sum("cents"), F.lit(0)).alias("revenue_cents"),
        )
        .select(
            F.col("window.start").alias("start"),
            F.col("window.end").alias("end"),
            "country",
            *kinds,
            "revenue_cents",
        )
    )


def to_records(counted: DataFrame) -> DataFrame:
    """Return windows as Kafka records: the key names window and country, the value is JSON."""
    key = F.concat_ws("/", F.date_format("start", "yyyy-MM-dd'T'HH:mm"), "country")
    return counted.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))


class Pipeline:
    """The two queries over topic *source*. *directory* keeps the Parquet files and the checkpoints."""

    def __init__(self, spark: SparkSession, bootstrap: str, source: str, sink: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.source = source
        self.sink = sink
        self.parquet = directory / "windows.parquet"
        self.checkpoints = directory / "checkpoints"

    def drain(self) -> int:
        """Run both queries over all records that are there now. Returns how many records each of them read."""
        records = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "5000")
            .load()
        )
        counted = windows(records)
        to_parquet = (
            counted.writeStream.format("parquet")
            .outputMode("append")
            .option("path", str(self.parquet))
            .option("checkpointLocation", str(self.checkpoints / "parquet"))
        )
        to_topic = (
            to_records(counted)
            .writeStream.format("kafka")
            .outputMode("append")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", self.sink)
            .option("checkpointLocation", str(self.checkpoints / "topic"))
        )
        read = []
        for writer in (to_parquet, to_topic):
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()  # raises the query's failure
            read.append(sum(progress["numInputRows"] for progress in query.recentProgress))
        return max(read)
