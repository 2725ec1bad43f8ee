"""Producing and consuming as fast as it goes: MB/s of values, percentiles of acknowledgements, broker CPU per GiB."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from compat_tests.bench.brokers import Subject
from compat_tests.bench.loads.values import MIXED, Shape
from compat_tests.bench.measures.context import GIB, Context, charged, given

LARGE_BATCHES = ("batch.size=131072", "linger.ms=5")
LIVE_RECORDS_PER_S = 5_000


def java_produce(
    context: Context,
    subject: Subject,
    *,
    shape: Shape,
    partitions: int = 1,
    settings: Sequence[str] = (),
    keys: int = 0,
    part: float = 1.0,
) -> dict[str, float]:
    """Java's producer with its defaults and `settings`. `keys`: so many, in turn. `part`: of the scale's megabytes."""
    with subject.topic(partitions) as topic:
        return _java_fill(context, subject, topic, shape, settings, keys, part)


def java_consume(context: Context, subject: Subject, partitions: int = 1, times: int = 6) -> dict[str, float]:
    """Java's consumer, a log that lies in the page cache, nobody else about."""
    topic = _filled(context, subject, "Java", partitions)
    return _java_read(context, subject, topic, 1.0, times, known=partitions == 1)


def java_catch_up(context: Context, subject: Subject) -> dict[str, float]:
    """The same on a log that goes on growing, by 5,000 records a second."""
    with subject.topic(1) as topic:
        _java_fill(context, subject, topic, MIXED, LARGE_BATCHES, 0, 2.0)
        with context.background("librdkafka", "stream", *_stream(context, subject, topic)):
            return _java_read(context, subject, topic, 2.0, 1)


def java_share(context: Context, subject: Subject, members: int, *, singly: bool = False) -> dict[str, float]:
    """So many of Java's share consumers, a log that lies in the page cache: records that are acknowledged. singly: each
    record by itself, and the answer is waited for; else as polls bring them.
    """
    partitions = 1 if members == 1 else 6
    topic = _filled(context, subject, "Java", partitions)
    count = _count(context, MIXED, 0.003 if singly else 0.3)
    group = f"share-{topic}-{token_hex(4)}"
    words = (subject.clients, topic, count, members, group, "singly" if singly else "polls")
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_us", "total", 1e6):
        values |= context.java.ask("share", *words, *subject.java)
    return values


def librdkafka_produce(context: Context, subject: Subject, part: float = 2.0) -> dict[str, float]:
    """librdkafka's producer with its defaults."""
    with subject.topic(1) as topic:
        return _librdkafka_fill(context, subject, topic, part)


def librdkafka_consume(context: Context, subject: Subject, times: int = 3) -> dict[str, float]:
    """librdkafka's consumer, a log that lies in the page cache, nobody else about."""
    return _librdkafka_read(context, subject, _filled(context, subject, "librdkafka", 1), 1.0, times)


def librdkafka_catch_up(context: Context, subject: Subject) -> dict[str, float]:
    """The same on a log that goes on growing, by 5,000 records a second."""
    with subject.topic(1) as topic:
        _librdkafka_fill(context, subject, topic, 2.0)
        with context.background("librdkafka", "stream", *_stream(context, subject, topic)):
            return _librdkafka_read(context, subject, topic, 2.0, 1)


def _count(context: Context, shape: Shape, part: float) -> int:
    return int(context.scale.megabytes * part * 1e6 / shape.mean_bytes)


def _filled(context: Context, subject: Subject, client: str, partitions: int) -> str:
    """The topic that this client fills once and reads in each round, with a tenth more than is read: who reads to the
    end asks once more, and starts again at the beginning half a second later, when that is answered.
    """
    what = f"{client}, {partitions}"
    if what not in subject.topics:
        topic = subject.new_topic(partitions)
        if client == "Java":
            _java_fill(context, subject, topic, MIXED, LARGE_BATCHES if partitions > 1 else (), 0, 1.1)
        else:
            _librdkafka_fill(context, subject, topic, 1.1)
        subject.topics[what] = topic
    return subject.topics[what]


def _stream(context: Context, subject: Subject, topic: str) -> tuple[object, ...]:
    return subject.clients, topic, context.values.file(MIXED), LIVE_RECORDS_PER_S, given(subject)


def _java_fill(
    context: Context, subject: Subject, topic: str, shape: Shape, settings: Sequence[str], keys: int, part: float
) -> dict[str, float]:
    count = _count(context, shape, part)
    words = (subject.clients, topic, context.values.file(shape), count, keys, *subject.java, *settings)
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_s_per_gib", "bytes", GIB):
        values |= context.java.ask("produce", *words)
    return values


def _java_read(
    context: Context, subject: Subject, topic: str, part: float, times: int, *, known: bool = True
) -> dict[str, float]:
    """`known`: which records come first, as in a single partition."""
    count = _count(context, MIXED, part)
    expected = context.values.total_bytes(MIXED, count) if known else 0
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_s_per_gib", "bytes", GIB):
        values |= context.java.ask("consume", subject.clients, topic, count, expected, times, *subject.java)
    return values


def _librdkafka_fill(context: Context, subject: Subject, topic: str, part: float) -> dict[str, float]:
    count = _count(context, MIXED, part)
    words = ("produce", subject.clients, topic, context.values.file(MIXED), count, given(subject))
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_s_per_gib", "bytes", GIB):
        values |= context.python("librdkafka", *words)
    return values


def _librdkafka_read(context: Context, subject: Subject, topic: str, part: float, times: int) -> dict[str, float]:
    count = _count(context, MIXED, part)
    words = ("consume", subject.clients, topic, count, context.values.total_bytes(MIXED, count), times, given(subject))
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_s_per_gib", "bytes", GIB):
        values |= context.python("librdkafka", *words)
    return values
