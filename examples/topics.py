"""The life of a topic by kafka-python's admin client: settings, more partitions, offsets by time, deleting records.

    python3 run.py example topics --bootstrap 127.0.0.1:9092

The same from the shell, without a program: `kafka-python admin --bootstrap-servers 127.0.0.1:9092 topics list`.
Needs: pip install "kafka-python[crc32c]".
"""

from __future__ import annotations

import argparse
import time

try:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaTimeoutError
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example topics` installs what this needs, or: pip install 'kafka-python[crc32c]'"
    ) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--topic", default=f"readings-{int(time.time())}", help="a topic that does not exist yet")
    arguments = parser.parse_args()
    topic = arguments.topic
    try:
        admin = KafkaAdminClient(bootstrap_servers=arguments.bootstrap, bootstrap_timeout_ms=10_000)
    except KafkaTimeoutError:
        raise SystemExit(f"no broker answers at {arguments.bootstrap}; to start one: python3 run.py serve") from None

    cluster = admin.describe_cluster()
    print(f"cluster of {len(cluster['brokers'])} broker(s)")

    settings = {"retention.ms": "3600000", "message.timestamp.type": "CreateTime"}
    admin.create_topics({topic: {"num_partitions": 2, "configs": settings}}, wait_for_metadata=True)
    print(f"created {topic}: retention.ms={setting(admin, topic, 'retention.ms')}")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})])
    print(f"altered {topic}: retention.ms={setting(admin, topic, 'retention.ms')}")

    # One reading a second, ending now.
    start_ms = int(time.time() * 1000) - 100_000
    producer = KafkaProducer(bootstrap_servers=arguments.bootstrap, acks="all")
    for number in range(100):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=start_ms + number * 1000)
    producer.flush()
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=arguments.bootstrap)
    first = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({first: start_ms + 60_000})[first]
    print(f"the first reading of the last 40 seconds has offset {found.offset}")

    admin.delete_records({first: found.offset})
    print(
        f"records before it deleted: offsets {consumer.beginning_offsets([first])[first]} to "
        f"{consumer.end_offsets([first])[first]}"
    )
    consumer.close()

    admin.create_partitions({topic: 5})
    wait_for_partitions(admin, topic, 5)
    print("partitions: 5")

    admin.delete_topics([topic])
    while topic in admin.list_topics():
        time.sleep(0.05)
    print(f"deleted {topic}")
    admin.close()


def setting(admin: KafkaAdminClient, topic: str, name: str) -> str:
    """Return the value of one setting of a topic."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, [name])], config_filter="all")
    return str(found["topic"][topic][name]["value"])


def wait_for_partitions(admin: KafkaAdminClient, topic: str, count: int) -> None:
    """Wait until the broker shows *count* partitions: on a cluster that takes a moment after the change."""
    while len(admin.describe_topics([topic])[0]["partitions"]) < count:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
