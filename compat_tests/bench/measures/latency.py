"""End to end: from produce() in one process to the record in the hands of another, at a steady rate."""

from __future__ import annotations

from typing import Any

from compat_tests.bench.brokers import Subject
from compat_tests.bench.measures.context import Context, charged, given


def end_to_end(context: Context, subject: Subject, rate: int) -> dict[str, float]:
    """So many records a second. At a low rate it lasts longer: p99.9 wants 2,000 records."""
    seconds = context.scale.seconds * (2 if rate < 1000 else 1)
    values: dict[str, Any] = {"sent": rate * (seconds + context.scale.warm_up_s)}
    with subject.topic(1) as topic, charged(subject, values, "cpu_us", "sent", 1e6):
        words = (subject.clients, topic, rate, context.scale.warm_up_s, seconds, given(subject))
        values |= context.python("latency", *words)
    return values
