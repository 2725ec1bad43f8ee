"""Create a topic, write records with keys and headers, read them back: the first thing to try on a new broker.

    python3 run.py example produce_consume --bootstrap 127.0.0.1:9092

Needs: pip install "kafka-python[crc32c]".
"""

from __future__ import annotations

import argparse
import time

try:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaTimeoutError
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example produce_consume` installs what this needs, or: "
        "pip install 'kafka-python[crc32c]'"
    ) from None

PARTITIONS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--topic", default=f"greetings-{int(time.time())}", help="a topic that does not exist yet")
    parser.add_argument("--records", type=int, default=1000, metavar="N")
    arguments = parser.parse_args()

    try:
        admin = KafkaAdminClient(bootstrap_servers=arguments.bootstrap, bootstrap_timeout_ms=10_000)
    except KafkaTimeoutError:
        raise SystemExit(f"no broker answers at {arguments.bootstrap}; to start one: python3 run.py serve") from None
    admin.create_topics({arguments.topic: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    admin.close()
    print(f"created topic {arguments.topic} with {PARTITIONS} partitions")

    # Records with the same key go to the same partition and so stay in order. gzip is in Python's own library.
    producer = KafkaProducer(bootstrap_servers=arguments.bootstrap, acks="all", compression_type="gzip", linger_ms=10)
    futures = [
        producer.send(
            arguments.topic,
            key=b"customer %d" % (number % 10),
            value=b"greeting %d" % number,
            headers=[("language", b"en")],
        )
        for number in range(arguments.records)
    ]
    producer.flush()
    for future in futures:
        future.get(timeout=0)  # raises if the broker refused this record
    producer.close()
    print(f"wrote {len(futures)} records")

    consumer = KafkaConsumer(bootstrap_servers=arguments.bootstrap)
    partitions = [TopicPartition(arguments.topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    found = []
    while len(found) < len(futures):
        for records in consumer.poll(timeout_ms=1000).values():
            found += records
    consumer.close()
    for partition in partitions:
        values = [record.value for record in found if record.partition == partition.partition]
        print(f"partition {partition.partition}: {len(values)} records")
    first = min(found, key=lambda record: int(record.value.split()[1]))
    print(f"first record: key={first.key!r} value={first.value!r} headers={first.headers!r}")
    print(f"read {len(found)} records back")


if __name__ == "__main__":
    main()
