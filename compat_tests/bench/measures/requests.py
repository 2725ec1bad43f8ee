"""Single small requests, as bytes, on many connections with one under way on each: requests per second, percentiles of
the time until the answer, broker CPU microseconds a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.bench.brokers import HOST, Subject
from compat_tests.bench.loads import exchanges
from compat_tests.bench.loads.exchanges import Exchange
from compat_tests.bench.measures.context import Context, charged

SMALL_VALUE = b"x" * 100
KB_VALUE = b"x" * 1024


def produce(context: Context, subject: Subject, *, by_id: bool, partitions: int = 1) -> dict[str, float]:
    """One record of 100 bytes to one partition, acks=1. With several partitions each has its share of connections."""
    with subject.topic(partitions) as topic:
        found = []
        for partition, address in enumerate(subject.leaders(topic, partitions)):
            with exchanges.trying(address) as broker:
                found.append(broker.produce(topic, SMALL_VALUE, partition, by_id=by_id))
        return _run(context, subject, found)


def commit(context: Context, subject: Subject, partitions: int, *, one_group: bool) -> dict[str, float]:
    """Offsets of so many partitions, every connection for the same group or each for its own."""
    groups = 1 if one_group else context.scale.connections
    with subject.topic(partitions) as topic:
        with exchanges.trying(subject.address) as broker:
            found = [broker.commit(f"{topic}-{number}", topic, partitions) for number in range(groups)]
        return _run(context, subject, found)


def fetch(context: Context, subject: Subject) -> dict[str, float]:
    """The last record of a partition, which has 1 KB."""
    with subject.topic(1) as topic:
        with exchanges.trying(subject.address) as broker:
            found = [broker.fetch_last(topic, KB_VALUE)]
        return _run(context, subject, found)


def _run(context: Context, subject: Subject, found: Sequence[Exchange]) -> dict[str, float]:
    """`found`: what connections send, in turn."""
    path = context.directory / "exchanges"
    scale = context.scale
    exchanges.write(path, [found[number % len(found)] for number in range(scale.connections)])
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_us", "total", 1e6):
        values |= context.java.ask("exchange", HOST, path, scale.warm_up_s, scale.seconds)
    return values
