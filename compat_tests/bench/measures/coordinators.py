"""Transactions and offset commits, one after the other, and members until their assignment is stable."""

from __future__ import annotations

import secrets
from typing import Any

from compat_tests.bench.brokers import Subject
from compat_tests.bench.measures.context import Context, charged

RECORDS = 10


def transactions(
    context: Context, subject: Subject, client: str, partitions: int, *, offsets: bool = False
) -> dict[str, float]:
    """One producer; transactions of 10 records of 100 bytes, with `offsets` and one offset. Java or librdkafka."""
    with subject.topic(partitions) as topic:
        group = f"group-{topic}" if offsets else "-"
        return _loop(context, subject, client, "transactions", topic, partitions, RECORDS, group)


def java_commits(context: Context, subject: Subject, partitions: int) -> dict[str, float]:
    """commitSync by one consumer."""
    with subject.topic(partitions) as topic:
        return _loop(context, subject, "Java", "commits", topic, partitions, f"group-{topic}")


def librdkafka_commits(context: Context, subject: Subject, members: int) -> dict[str, float]:
    """commit(asynchronous=False) by each of so many consumers, all of different groups."""
    with subject.topic(1) as topic:
        return _loop(context, subject, "librdkafka", "commits", topic, 1, members, f"group-{topic}")


def _loop(context: Context, subject: Subject, client: str, kind: str, topic: str, *rest: object) -> dict[str, float]:
    words = (kind, subject.clients, topic, context.scale.warm_up_s, context.scale.seconds, *rest)
    values: dict[str, Any] = {}
    with charged(subject, values, "cpu_us", "total", 1e6):
        if client == "Java":
            values |= context.java.ask(*words, *subject.java)
        else:
            values |= context.python("loops", *words)
    return values


def stable(context: Context, subject: Subject, kind: str) -> dict[str, float]:
    """librdkafka consumers join a group of twice as many partitions at once; then one leaves. Kinds: members.KINDS."""
    members, quiet_s = context.scale.members, context.scale.quiet_s
    with subject.topic(2 * members) as topic:
        before = subject.cpu_seconds()
        group = f"group-{secrets.token_hex(4)}"
        found = context.python("members", subject.clients, topic, 2 * members, members, kind, group, quiet_s)
        found["cpu_s"] = subject.cpu_seconds() - before
        return found
