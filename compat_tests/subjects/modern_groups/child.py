"""A librdkafka member in a process of its own, to be killed: `python -m compat_tests.subjects.modern_groups.child
ADDRESS GROUP TOPIC` says `assigned N` whenever it has other partitions.
"""

from __future__ import annotations

import sys

import confluent_kafka as ck


def main(bootstrap: str, group: str, topic: str) -> None:
    """Poll for ever."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    before = -1
    while True:
        consumer.poll(0.05)
        held = len(consumer.assignment())
        if held != before:
            before = held
            print(f"assigned {held}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
