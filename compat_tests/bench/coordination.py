"""The measures of the coordinators: transactions, offset commits, members to a stable assignment.

Each runs one client program against one broker; see Bench.java, loops.py and members.py. Broker CPU is counted over the
whole program, warm-up included, as are the operations it is divided by.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from functools import partial

from compat_tests.bench import processes
from compat_tests.bench.measures import CLIENT_TIMEOUT_S, JAVA_OPTIONS, Subject
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import PROJECT_ROOT, classpath, java
from compat_tests.harness.processes import run

Measure = Callable[[Subject], dict[str, float]]

SOURCE = PROJECT_ROOT / "compat_tests" / "bench" / "src" / "Bench.java"
MEMBERS = 100
SHAPES = ((1, 1), (10, 1), (10, 6), (100, 1), (100, 6))
"""Records of a transaction, and partitions they go to."""


def java_program(*arguments: object) -> dict[str, float]:
    """Run Bench.java; its JSON."""
    command = [java(), *JAVA_OPTIONS, "-cp", classpath(KAFKA_JARS), str(SOURCE), *map(str, arguments)]
    return dict(json.loads(run(command, timeout=CLIENT_TIMEOUT_S).stdout.splitlines()[-1]))


def charged(subject: Subject, quantity: str, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Run it; add the broker's CPU microseconds for each operation."""
    before = processes.cpu_seconds(subject.pid)
    found = work()
    found[quantity] = (processes.cpu_seconds(subject.pid) - before) / found.pop("total") * 1e6
    return found


def transactions(
    subject: Subject, client: str, records: int, partitions: int, *, offsets: bool = False
) -> dict[str, float]:
    """One producer, one transaction after the other."""
    topic = subject.new_topic(partitions)
    group = f"group-{topic}" if offsets else "-"
    arguments = ("transactions", subject.broker.bootstrap, topic, subject.scale.seconds, partitions, records, group)
    work = partial(java_program, *arguments) if client == "Java" else partial(subject.python, "loops", *arguments)
    found = charged(subject, "cpu_us_per_transaction", work)
    subject.delete_topic(topic)
    return found


def java_commits(subject: Subject, partitions: int) -> dict[str, float]:
    """commitSync, one after the other."""
    topic = subject.new_topic(partitions)
    arguments = ("commits", subject.broker.bootstrap, topic, subject.scale.seconds, partitions, f"group-{topic}")
    found = charged(subject, "cpu_us_per_commit", partial(java_program, *arguments))
    subject.delete_topic(topic)
    return found


def librdkafka_commits(subject: Subject, members: int) -> dict[str, float]:
    """commit(asynchronous=False), one after the other by each consumer."""
    topic = subject.new_topic(1)
    arguments = ("commits", subject.broker.bootstrap, topic, subject.scale.seconds, 1, members, f"group-{topic}")
    found = charged(subject, "cpu_us_per_commit", partial(subject.python, "loops", *arguments))
    subject.delete_topic(topic)
    return found


def commit_requests(subject: Subject, connections: int, in_flight: int) -> dict[str, float]:
    """OffsetCommit requests of one partition."""
    topic = subject.new_topic(1)
    arguments = ("requests", subject.broker.bootstrap, topic, subject.scale.seconds, connections, in_flight)
    found = charged(subject, "cpu_us_per_commit", partial(subject.python, "loops", *arguments))
    subject.delete_topic(topic)
    return found


def stable(subject: Subject, kind: str) -> dict[str, float]:
    """MEMBERS librdkafka consumers join a group of twice as many partitions; then one leaves."""
    topic = subject.new_topic(2 * MEMBERS)
    before = processes.cpu_seconds(subject.pid)
    group = f"group-{secrets.token_hex(4)}"
    found = subject.python("members", subject.broker.bootstrap, topic, 2 * MEMBERS, MEMBERS, kind, group)
    found["cpu_s"] = processes.cpu_seconds(subject.pid) - before
    subject.delete_topic(topic)
    return found


def _transaction_measures() -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for client in ("Java", "librdkafka"):
        for records, partitions in SHAPES:
            title = f"{client} transactions, {records} x 100 B, partitions: {partitions}"
            found[title] = partial(transactions, client=client, records=records, partitions=partitions)
        title = f"{client} transactions, 10 x 100 B and an offset"
        found[title] = partial(transactions, client=client, records=10, partitions=1, offsets=True)
    return found


TRANSACTIONS: dict[str, Measure] = _transaction_measures()
GROUPS: dict[str, Measure] = {
    "Java commitSync, 1 partition": partial(java_commits, partitions=1),
    "Java commitSync, 100 partitions": partial(java_commits, partitions=100),
    "librdkafka commit": partial(librdkafka_commits, members=1),
    "librdkafka commit, 20 consumers at once": partial(librdkafka_commits, members=20),
    "commit requests, 64 connections": partial(commit_requests, connections=64, in_flight=1),
    "commit requests, 4 connections, 32 in flight on each": partial(commit_requests, connections=4, in_flight=32),
    f"{MEMBERS} consumers, eager (range)": partial(stable, kind="eager"),
    f"{MEMBERS} consumers, cooperative-sticky": partial(stable, kind="cooperative"),
    f"{MEMBERS} consumers, group.protocol=consumer": partial(stable, kind="consumer"),
}


def warm_up_transactions(subject: Subject) -> None:
    """Let the broker see it once. The first commit is another's: librdkafka (2.16) asks for the group's coordinator
    three times in 0.3 s, and waits for ever in send_offsets_to_transaction if __consumer_offsets is still being made.
    """
    commit_requests(subject, 1, 1)
    transactions(subject, "librdkafka", 10, 6, offsets=True)


def warm_up_groups(subject: Subject) -> None:
    """Let the broker see it once."""
    commit_requests(subject, 64, 1)
