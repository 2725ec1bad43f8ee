"""Two consumers share a topic in one group; one leaves, the other takes over where it stopped.

    python3 run.py example groups --bootstrap 127.0.0.1:9092

Every consumer commits what it has handled before it asks for more, so each record is handled once although the
partitions change hands twice. Needs: pip install "kafka-python[crc32c]".
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter

try:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaTimeoutError
except ImportError as error:
    raise SystemExit(
        f"{error}: `python3 run.py example groups` installs what this needs, or: pip install 'kafka-python[crc32c]'"
    ) from None

PARTITIONS = 4


class Member(threading.Thread):
    """One consumer of the group, in a thread of its own."""

    def __init__(self, name: str, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(name=name, daemon=True)
        self.handled: Counter[bytes] = Counter()
        self.partitions: set[int] = set()
        self._stop_asked = threading.Event()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def run(self) -> None:
        while not self._stop_asked.is_set():
            # kafka-python 3.0.12 loses an assignment that arrives between two polls: they are long; records end them.
            for records in self._consumer.poll(timeout_ms=2000).values():
                self.handled.update(record.value for record in records)
                self._consumer.commit()
            self.partitions = {partition.partition for partition in self._consumer.assignment()}
        self._consumer.close()  # leaves the group at once
        self.partitions = set()

    def stop(self) -> None:
        """Leave the group."""
        self._stop_asked.set()
        self.join()


def wait_for(done: object, what: str) -> None:
    """Wait until *done*() is true, for at most two minutes."""
    deadline = time.monotonic() + 120
    while not done():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within two minutes: {what}")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--topic", default=f"orders-{int(time.time())}", help="a topic that does not exist yet")
    arguments = parser.parse_args()
    topic, group = arguments.topic, f"{arguments.topic}-workers"

    try:
        admin = KafkaAdminClient(bootstrap_servers=arguments.bootstrap, bootstrap_timeout_ms=10_000)
    except KafkaTimeoutError:
        raise SystemExit(f"no broker answers at {arguments.bootstrap}; to start one: python3 run.py serve") from None
    admin.create_topics({topic: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    producer = KafkaProducer(bootstrap_servers=arguments.bootstrap, acks="all", linger_ms=10)

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.send(topic, b"order %d" % number, partition=number % PARTITIONS)
        producer.flush()

    anna = Member("anna", arguments.bootstrap, topic, group)
    anna.start()
    wait_for(lambda: len(anna.partitions) == PARTITIONS, "anna has all partitions")
    send(0, 200)
    wait_for(lambda: anna.handled.total() == 200, "anna handled 200 records")
    print("anna alone: 4 partitions, 200 records")

    ben = Member("ben", arguments.bootstrap, topic, group)
    ben.start()
    half = PARTITIONS // 2
    wait_for(lambda: len(anna.partitions) == len(ben.partitions) == half, "they share")
    send(200, 200)
    wait_for(lambda: anna.handled.total() + ben.handled.total() == 400, "200 more records")
    print(f"anna and ben: 2 + 2 partitions, {anna.handled.total() - 200} + {ben.handled.total()} records")

    ben.stop()
    wait_for(lambda: len(anna.partitions) == PARTITIONS, "anna takes over")
    send(400, 200)
    wait_for(lambda: anna.handled.total() + ben.handled.total() == 600, "the last 200 records")
    print("ben has left: anna has 4 partitions again")

    anna.stop()
    handled = anna.handled + ben.handled
    once = sum(count == 1 for count in handled.values())
    print(f"{len(handled)} records handled, {once} of them exactly once")
    committed = admin.list_group_offsets({group: None})[group]
    ends = {TopicPartition(topic, number): 600 // PARTITIONS for number in range(PARTITIONS)}
    lag = sum(end - committed[partition].offset for partition, end in ends.items())
    print(f"group {group}: lag {lag}")
    producer.close()
    admin.close()


if __name__ == "__main__":
    main()
