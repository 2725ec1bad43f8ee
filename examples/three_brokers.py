"""Three brokers on this machine; one is killed while records are written, comes back, and nothing is missing.

    python3 run.py example three_brokers
    python3 run.py example three_brokers --brokers 4 --seconds 20

It needs neither ZooKeeper nor a JVM: the brokers share a store on a Unix socket, as those of `barnabas cluster` do.
That command is the way to keep such a cluster; this program shows what one does. Needs: pip install
"kafka-python[crc32c]", and Barnabas itself.
"""

from __future__ import annotations

import argparse
import time

try:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

    import barnabas
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example three_brokers` installs what this needs, or: pip install . "
        "'kafka-python[crc32c]'"
    ) from None

TOPIC, PARTITIONS = "events", 6


def main() -> None:
    parser = argparse.ArgumentParser(description="what a cluster does when a broker dies")
    parser.add_argument("--brokers", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--seconds", type=float, default=10, help="how long to write while one is away (default: 10)")
    options = parser.parse_args()
    if options.brokers < 3:
        raise SystemExit("three brokers at least: a record counts when two have it, and one will be killed")
    begun = time.monotonic()
    with barnabas.Cluster(options.brokers, topics={TOPIC: PARTITIONS}) as cluster:
        print(f"{options.brokers} brokers after {time.monotonic() - begun:.1f} s: {cluster.bootstrap}")
        show(cluster.bootstrap)
        victim = cluster.brokers[0]
        # acks=all: a record is acknowledged when all in-sync replicas have it.
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=5, retries=100)
        written = write(producer, 0, 2)
        print(f"\nkilling broker {victim.id}, as kill -9 does")
        victim.kill()
        written = write(producer, written, options.seconds)
        show(cluster.bootstrap)
        print(f"\nstarting broker {victim.id} again")
        victim.start()
        written = write(producer, written, 2)
        wait_until_in_sync(cluster.bootstrap)
        show(cluster.bootstrap)
        producer.close()
        found = read(cluster.bootstrap)
        print(f"\n{written} records written, {len(found)} read: {'all' if len(found) == written else 'NOT all'} there")
        if found != set(range(written)):
            raise SystemExit(1)


def write(producer: KafkaProducer, number: int, seconds: float) -> int:
    """Write numbers from *number* on for a while, each acknowledged before the next ten; return the next number."""
    end = time.monotonic() + seconds
    longest = 0.0
    while time.monotonic() < end:
        begun = time.monotonic()
        for sent in [producer.send(TOPIC, str(n).encode()) for n in range(number, number + 10)]:
            sent.get(120)
        number += 10
        longest = max(longest, time.monotonic() - begun)
    print(f"  {number} records so far; the longest wait for an acknowledgement was {longest:.2f} s")
    return number


def described(bootstrap: str) -> list[dict[str, object]]:
    """Return the partitions of the topic, as the cluster describes them."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (topic,) = admin.describe_topics([TOPIC])
        return sorted(topic["partitions"], key=lambda one: one["partition_index"])
    finally:
        admin.close()


def show(bootstrap: str) -> None:
    """Print who leads what, and who has all of it."""
    for one in described(bootstrap):
        print(f"  partition {one['partition_index']}: leader {one['leader_id']}, in sync {sorted(one['isr_nodes'])}")


def wait_until_in_sync(bootstrap: str) -> None:
    """Return when every replica has caught up."""
    while any(len(one["isr_nodes"]) < len(one["replica_nodes"]) for one in described(bootstrap)):
        time.sleep(0.2)


def read(bootstrap: str) -> set[int]:
    """Return everything in the topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    found: set[int] = set()
    while any(consumer.position(one) < ends[one] for one in partitions):
        for records in consumer.poll(timeout_ms=1000).values():
            found.update(int(record.value) for record in records)
    consumer.close()
    return found


if __name__ == "__main__":
    main()
