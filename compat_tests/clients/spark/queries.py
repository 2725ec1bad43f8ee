"""Spark side of the tests: DataFrames over topics, their rows as `Row`, streaming queries run to the end of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from compat_tests.clients.spark.topics import Row, order

QUERY_TIMEOUT_S = 240
OFFSET_FETCHING = pytest.mark.parametrize(
    "deprecated_offset_fetching",
    [pytest.param(False, id="admin"), pytest.param(True, id="consumer", marks=pytest.mark.campaign)],
)
"""Both ways the connector's driver asks for offsets: the admin client (its default) and, deprecated, a consumer."""


def source(spark: SparkSession, bootstrap: str, *, stream: bool = False, **options: Any) -> DataFrame:
    """Return Kafka as a DataFrame (headers included). Option names are Spark's; `kafka.` ones go in as `kafka={…}`."""
    reader = spark.readStream if stream else spark.read
    given = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}
    given |= {f"kafka.{key}": str(value) for key, value in options.pop("kafka", {}).items()}
    given |= {key: str(value) for key, value in options.items()}
    return reader.format("kafka").options(**given).load()


def flat(frame: DataFrame) -> DataFrame:
    """Return the source's columns in the order of `Row`, the timestamp as exact milliseconds."""
    return frame.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        "timestampType",
        "key",
        "value",
        "headers",
    )


def rows(frame: DataFrame) -> list[Row]:
    """Run a batch query over the source (or over what `flat` stored) and return its rows, sorted."""
    if "timestamp_ms" not in frame.columns:
        frame = flat(frame)
    return sorted((_row(found) for found in frame.collect()), key=order)


def _row(found: Any) -> Row:
    headers = None
    if found.headers is not None:
        headers = tuple((h.key, None if h.value is None else bytes(h.value)) for h in found.headers)
    key, value = (None if part is None else bytes(part) for part in (found.key, found.value))
    return Row(found.topic, found.partition, found.offset, found.timestamp_ms, found.timestampType, key, value, headers)


class Store:
    """A directory a streaming query appends Parquet to, exactly once, with the query's checkpoint beside it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.checkpoint = directory / "checkpoint"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start a query that appends *frame* (a streaming `source`) here; *trigger* as in Spark's `trigger()`."""
        writer = flat(frame).writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start(str(self.data))

    def drain(self, frame: DataFrame) -> list[int]:
        """Append all that is there now (Trigger.AvailableNow); return the rows of each batch, empty ones left out."""
        return finish(self.start(frame, availableNow=True))

    def rows(self, spark: SparkSession) -> list[Row]:
        """Return what was appended so far, sorted."""
        return rows(spark.read.parquet(str(self.data)))


def finish(query: StreamingQuery) -> list[int]:
    """Wait for the end of a query; return the rows of each batch, empty ones left out. Raises the query's failure."""
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"the query did not end in {QUERY_TIMEOUT_S} s: {query.status}"
    finally:
        query.stop()
    return batch_sizes(query)


def batch_sizes(query: StreamingQuery) -> list[int]:
    """Return the number of rows each batch read so far, empty batches left out."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
