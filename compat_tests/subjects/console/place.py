"""A broker with something to see, one with access control, and consoles beside them, as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.harness.brokers import PROJECT_ROOT, start_barnabas
from compat_tests.subjects.security.guarded import Guarded
from compat_tests.subjects.security.guarded import start as start_guarded

LIMIT_S = 60
_TOPICS = {"orders": 3, "payments": 2, "shipments": 1, "customers": 2, "clicks": 6}
STOCK = json.dumps(
    {
        "type": "record",
        "name": "Stock",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": "string"},
            {"name": "count", "type": "int"},
        ],
    },
    indent=2,
)
_HOSTILE = "<script>document.title='run'</script>"


@contextmanager
def console(bootstrap: str, *arguments: str) -> Iterator[str]:
    """A console's URL."""
    program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
    command = [*program, "console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *arguments]
    command += ["--timeout", str(LIMIT_S)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("console="), line
            yield line.strip().removeprefix("console=")
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@contextmanager
def broker(directory: Path, *, is_hostile: bool = True) -> Iterator[str]:
    """A broker's address, with topics, records and groups: `billing` has stopped in one partition. is_hostile: some
    names are scripts.
    """
    started = start_barnabas(directory, ["offsets.topic.num.partitions=3", "num.partitions=1"])
    try:
        fill(started.bootstrap, is_hostile=is_hostile)
        yield started.bootstrap
    finally:
        started.stop()


@contextmanager
def guarded_broker(directory: Path) -> Iterator[Guarded]:
    """The same with access control: `guarded.plaintext` is for super users, `guarded.clients` for who logs in."""
    started = start_guarded(directory, peer=False)
    try:
        fill(started.plaintext, is_hostile=False)
        write_stock(started.plaintext)
        yield started
    finally:
        started.broker.stop()


def write_stock(bootstrap: str) -> None:
    """Records in Avro, by the schema STOCK, to the topic `stock`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("stock", 1, 1)])["stock"].result(LIMIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, item in enumerate(["lamp", "chair", "desk", "shelf", "rug"] * 6):
        name = item.encode()
        value = b"\0\0\0\0\x11" + _zigzag(1000 + number) + _zigzag(len(name)) + name + _zigzag(number * 7 % 40)
        producer.produce("stock", value, name)
    assert producer.flush(LIMIT_S) == 0


def _zigzag(number: int) -> bytes:
    """A long of Avro that is not negative."""
    left, data = number << 1, bytearray()
    while left > 127:
        data.append(left & 127 | 128)
        left >>= 7
    return bytes([*data, left])


def fill(bootstrap: str, *, is_hostile: bool) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, count, 1) for name, count in _TOPICS.items()]
    wanted[3].config = {"cleanup.policy": "compact"}
    for made in admin.create_topics(wanted).values():
        made.result(LIMIT_S)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", "enable.idempotence": True}
    )
    names = ["Ada", "Grace", "Edsger", "Barbara", "Donald"]
    for number in range(400):
        who = names[number % len(names)]
        order = {
            "order": 1000 + number,
            "customer": who,
            "items": number % 7 + 1,
            "total": round(number * 1.37 % 90, 2),
        }
        headers = [("trace", f"{number * 7919:08x}".encode()), ("source", b"shop")]
        producer.produce("orders", json.dumps(order).encode(), who.encode(), headers=headers)
        if number % 3 == 0:
            payment = {"order": 1000 + number, "state": "refused" if number % 60 == 0 else "paid"}
            producer.produce("payments", json.dumps(payment).encode(), str(1000 + number).encode())
    for name in names:
        producer.produce("customers", json.dumps({"name": name}).encode(), name.encode())
    producer.produce("customers", None, b"Donald")
    producer.produce("shipments", bytes(range(64)), b"\x00\x01\xff")
    odd = _HOSTILE if is_hostile else "shipped"
    producer.produce("shipments", odd.encode(), odd.encode(), headers=[(odd, odd.encode())])
    assert producer.flush(LIMIT_S) == 0
    for group, topic, left in (("billing", "orders", 120), ("mail", "payments", 0), (odd, "shipments", 1)):
        read(bootstrap, group, topic, left)


def read(bootstrap: str, group: str, topic: str, left: int) -> None:
    """Have a group commit all of a topic but the last `left` records of partition 0."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    offsets = []
    for index in range(_TOPICS[topic]):
        place = confluent_kafka.TopicPartition(topic, index)
        _, end = consumer.get_watermark_offsets(place, timeout=LIMIT_S)
        place.offset = max(0, end - (left if index == 0 else 0))
        offsets.append(place)
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
