"""What the cases share: topics that are ready, reading with a deadline, waiting for a condition, expecting a refusal.

Everything has a deadline (seconds): a broker that never answers fails the case, it does not hang it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from compat_tests.harness.client import (
    UNKNOWN_TOPIC_OR_PARTITION,
    Client,
    Consumer,
    Message,
    Record,
    Refused,
    positions,
)

DEADLINE_S = 60.0
"""Ends what hangs: a machine with too much to do may let each process stand still for many seconds."""


def ready_topic(
    client: Client,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
) -> str:
    """Create a topic and return its name when metadata shows a leader for every partition."""
    client.create_topic(name, partitions, 1, config, assignment=assignment)
    wait_until(lambda: visible(client, name, partitions), f"topic {name} with {partitions} partitions in the metadata")
    # Metadata names a leader before that has opened its log. A first batch refused for that reason is sent again behind
    # the second one, which was accepted: the order is lost without idempotence, and with it the producer is stuck (seen
    # on Apache Kafka 4.3.1 under load).
    wait_until(lambda: client.leaders_answer(positions(name, partitions)), f"the leaders of {name}")
    return name


def visible(client: Client, name: str, partitions: int) -> bool:
    """Return whether metadata shows the topic with so many partitions, all with a leader."""
    try:
        found = client.describe_topic(name)
    except Refused as refusal:
        if refusal.code != UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return len(found) == partitions and all(one.leader >= 0 for one in found.values())


def wait_until(condition: Callable[[], object], what: str, timeout: float = DEADLINE_S, every: float = 0.02) -> None:
    """Return when *condition* holds; fail with *what* after *timeout*."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(every)


def read(consumer: Consumer, count: int, timeout: float = DEADLINE_S) -> list[Record]:
    """Poll until *count* records are there; fail if they are not in time, or if there are more."""
    deadline = time.monotonic() + timeout
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records within {timeout} s"
        records += consumer.poll(0.2)
    assert len(records) == count, f"{len(records)} records, expected {count}"
    return records


def read_topic(client: Client, topic: str, count: int, partitions: int = 1, **options: object) -> list[Record]:
    """Read a whole topic from its beginning by assignment; without options the client's kept reader does it."""
    if not options:
        reader = client.reader()
        reader.reassign(positions(topic, partitions))
        return read(reader, count)
    with opened(client.consumer(assign=[(topic, index) for index in range(partitions)], **options)) as consumer:  # type: ignore[arg-type]
        return read(consumer, count)


@contextmanager
def opened(*consumers: Consumer) -> Iterator[Consumer]:
    """Close the consumers at the end, whatever happens; yields the first."""
    try:
        yield consumers[0]
    finally:
        for one in consumers:
            one.close()


@contextmanager
def refused(*codes: int) -> Iterator[None]:
    """Expect a Refused with one of the error numbers."""
    try:
        yield
    except Refused as refusal:
        if refusal.code not in codes:
            raise AssertionError(f"refused with {refusal}, expected one of {codes}") from refusal
    else:
        raise AssertionError(f"was not refused; expected one of the errors {codes}")


def texts(count: int, stem: str = "record", partition: int | None = 0) -> list[Message]:
    """Return messages with distinct keys and values."""
    return [Message(f"{stem}-{n}".encode(), f"key-{n}".encode(), partition) for n in range(count)]


def contents(records: Sequence[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values in order."""
    return [(one.key, one.value) for one in records]


def sent(messages: Sequence[Message]) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values in order."""
    return [(one.key, one.value) for one in messages]
