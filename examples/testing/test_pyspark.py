"""Tests of a Structured Streaming job: what it makes of the records in a topic, and that it survives a broker in
trouble.

    pip install pytest pyspark kafka-python
    pytest test_pyspark.py

Needs Java 17 or newer. Spark fetches its Kafka connector by itself unless SPARK_KAFKA_JARS names the jars, with commas.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyspark
import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas import Broker

# -- the job under test ----------------------------------------------------------------------------------------------


def sums(lines: DataFrame) -> DataFrame:
    """Amounts by customer, out of the records of a topic."""
    order = F.from_json(F.col("value").cast("string"), "customer string, amount long").alias("order")
    totals = lines.select(order).groupBy("order.customer").agg(F.sum("order.amount").alias("total"))
    return totals.select(F.col("customer").alias("key"), F.to_json(F.struct("customer", "total")).alias("value"))


def run(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
    """Add up what is in `source` now, into `target`."""
    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    (
        sums(lines)
        .writeStream.format("kafka")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        # One batch at a time: an idempotent producer cannot mend that a later one overtook the one that was refused.
        .option("kafka.max.in.flight.requests.per.connection", 1)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


# -- its tests -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def spark():
    jars = os.environ.get("SPARK_KAFKA_JARS")
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    made = (
        SparkSession.builder.master("local[2]")
        .config(*(("spark.jars", jars) if jars else ("spark.jars.packages", connector)))
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def orders(kafka_broker: Broker, kafka_topic: str) -> str:
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    for customer, amount in (("ada", 3), ("bob", 5), ("ada", 4)):
        producer.send(kafka_topic, json.dumps({"customer": customer, "amount": amount}).encode())
    producer.close()
    return kafka_topic


def totals(broker: Broker, topic: str) -> dict[str, int]:
    rows = [json.loads(record.value) for record in broker.topics[topic].records()]
    return {row["customer"]: row["total"] for row in rows}


def test_amounts_are_added_up(spark: SparkSession, kafka_broker: Broker, orders: str, tmp_path: Path) -> None:
    target = f"{orders}-totals"
    kafka_broker.create_topic(target)
    run(spark, kafka_broker.bootstrap, orders, target, tmp_path)
    assert totals(kafka_broker, target) == {"ada": 7, "bob": 5}


def test_it_survives_a_new_leader(spark: SparkSession, kafka_broker: Broker, orders: str, tmp_path: Path) -> None:
    target = f"{orders}-totals"
    kafka_broker.create_topic(target)
    moved = "NOT_LEADER_OR_FOLLOWER"
    with (
        kafka_broker.faults.fetch(topic=orders, error=moved, times=1) as read,
        kafka_broker.faults.produce(topic=target, error=moved, times=1) as write,
    ):
        run(spark, kafka_broker.bootstrap, orders, target, tmp_path)
    assert (read.hits, write.hits) == (1, 1)
    assert totals(kafka_broker, target) == {"ada": 7, "bob": 5}
