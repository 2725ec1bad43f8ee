"""The smallest Spark stream over a topic: words are counted as they come, and the counts go to another topic.

    python3 run.py example spark_stream --bootstrap 127.0.0.1:9092

Writes some lines first, so that there is something to count; runs until all of them are counted. Stream for ever by
leaving the trigger away. Needs: pip install "pyspark==4.2.0" "kafka-python[crc32c]", and Java 17 or newer. Spark
fetches its Kafka connector by itself unless --jars (or SPARK_KAFKA_JARS) names the jars.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

try:
    import pyspark
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaTimeoutError
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example spark_stream` installs what this needs, or: "
        "pip install pyspark==4.2.0 'kafka-python[crc32c]'"
    ) from None

LINES = ("the quick brown fox", "jumps over the lazy dog", "the dog sleeps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--topic", default=f"lines-{int(time.time())}", help="a topic that does not exist yet")
    parser.add_argument("--jars", default=os.environ.get("SPARK_KAFKA_JARS"), help="connector jars, comma-separated")
    arguments = parser.parse_args()
    lines, counts = arguments.topic, f"{arguments.topic}-counts"

    try:
        producer = KafkaProducer(bootstrap_servers=arguments.bootstrap, bootstrap_timeout_ms=10_000)
    except KafkaTimeoutError:
        raise SystemExit(f"no broker answers at {arguments.bootstrap}; to start one: python3 run.py serve") from None
    for number in range(30):
        producer.send(lines, LINES[number % len(LINES)].encode())
    producer.flush()
    producer.close()

    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    jars = ("spark.jars", arguments.jars) if arguments.jars else ("spark.jars.packages", connector)
    spark = (
        SparkSession.builder.master("local[2]").config(*jars).config("spark.sql.shuffle.partitions", 2).getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    words = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", lines)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("key"))
    )
    # Where Spark keeps its place: give a lasting directory, and a restart goes on where this run ended.
    with tempfile.TemporaryDirectory(prefix="spark-stream-") as place:
        query = (
            words.groupBy("key")
            .count()
            .select("key", F.col("count").cast("string").alias("value"))
            .writeStream.format("kafka")
            .outputMode("update")
            .option("kafka.bootstrap.servers", arguments.bootstrap)
            .option("topic", counts)
            .option("checkpointLocation", place)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spark.stop()

    consumer = KafkaConsumer(bootstrap_servers=arguments.bootstrap)
    partitions = [TopicPartition(counts, number) for number in consumer.partitions_for_topic(counts)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    latest = {}
    while any(consumer.position(one) < ends[one] for one in partitions):
        for records in consumer.poll(timeout_ms=1000).values():
            latest.update((record.key.decode(), int(record.value)) for record in records)
    consumer.close()
    for word, count in sorted(latest.items(), key=lambda item: (-item[1], item[0])):
        print(f"{word:6} {count:3}")


if __name__ == "__main__":
    main()
