"""The curve over partitions: a new broker for each count, topics of ten partitions, a record in each.

Times are seconds, memory is resident, `per_partition_kb` what it grew by since the broker was idle and empty, divided
by the partitions. `idle_cpu` is CPU seconds per second over `idle_s`, with everything created and nobody there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from compat_tests.bench.machine import processes
from compat_tests.scale.subject import Subject
from compat_tests.scale.wire import Connection

COUNTS = (1000, 2000, 5000, 10_000)
PER_TOPIC = 10
TIMEOUT_S = 300


def measure(name: str, directory: Path, count: int, idle_s: float) -> dict[str, float]:
    """All values of one count. The directory is removed."""
    subject = Subject(name, directory)
    try:
        return _measure(subject, count, idle_s)
    finally:
        subject.remove()


def _measure(subject: Subject, count: int, idle_s: float) -> dict[str, float]:
    found: dict[str, float] = {}
    subject.start()
    topics = [(f"scale-{number}", PER_TOPIC) for number in range(count // PER_TOPIC)]
    with Connection(subject.bootstrap) as connection:
        connection.metadata_of_all()
    empty = processes.resident_bytes(subject.pid)

    begun = time.perf_counter()
    admin = subject.admin()
    answers = admin.create_topics([NewTopic(topic, number, 1) for topic, number in topics])
    for answer in answers.values():
        answer.result(TIMEOUT_S)
    found["created_s"] = time.perf_counter() - begun
    until_ends(subject.bootstrap, topics, 0)
    found["all_lead_s"] = time.perf_counter() - begun

    begun = time.perf_counter()
    producer = Producer({"bootstrap.servers": subject.bootstrap, "linger.ms": 20, "log_level": 0})
    for topic, number in topics:
        for index in range(number):
            producer.produce(topic, b"x" * 100, partition=index)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    found["first_records_s"] = time.perf_counter() - begun
    del producer
    until_ends(subject.bootstrap, topics, 1)

    found |= {f"{what}_s": taken for what, taken in questions(subject.bootstrap, topics).items()}
    found["per_partition_kb"] = (processes.resident_bytes(subject.pid) - empty) / count / 1024
    found["idle_cpu"] = idle_cpu(subject.pid, idle_s)

    begun = time.perf_counter()
    subject.stop()
    found["stop_s"] = time.perf_counter() - begun
    for what in ("start", "start_after_kill"):
        found[f"{what}_s"] = subject.start()
        until_ends(subject.bootstrap, topics, 1)
        found[f"{what}_all_lead_s"] = time.perf_counter() - subject.started_at
        subject.kill()
    subject.start()
    return found


def questions(bootstrap: str, topics: list[tuple[str, int]]) -> dict[str, float]:
    """Seconds that questions about everything take, the best of three each."""
    names = [topic for topic, _ in topics]
    with Connection(bootstrap) as connection:
        asked: dict[str, Callable[[], object]] = {
            "metadata": connection.metadata_of_all,
            "list_offsets": lambda: connection.log_ends(topics),
            "describe_configs": lambda: connection.describe_topics(names),
        }
        return {what: min(_seconds(question) for _ in range(3)) for what, question in asked.items()}


def _seconds(question: Callable[[], object]) -> float:
    begun = time.perf_counter()
    question()
    return time.perf_counter() - begun


def until_ends(bootstrap: str, topics: list[tuple[str, int]], end: int) -> None:
    """Return when all partitions say that they end there."""
    deadline = time.monotonic() + TIMEOUT_S
    left = topics
    while left:
        assert time.monotonic() < deadline, f"{len(left)} topics do not end at {end}"
        try:
            with Connection(bootstrap) as connection:
                ends = connection.log_ends(left)
        except ConnectionError:
            continue
        left = [(topic, count) for topic, count in left if any(ends[topic, index] != end for index in range(count))]


def idle_cpu(pid: int, seconds: float) -> float:
    """CPU seconds per second while nobody asks anything."""
    time.sleep(1.0)
    before = processes.cpu_seconds(pid)
    time.sleep(seconds)
    return (processes.cpu_seconds(pid) - before) / seconds
