"""The curve over connections: so many to one broker, each of which has asked for versions and metadata, then silent.

`per_connection_kb` is what the broker's resident memory grew by; sockets' buffers in the kernel are not in it.
`idle_cpu` as in partitions.py. One more client sends a record at a time: what it feels while the others are silent
(`quiet`), and while all of them ask for metadata one after the other (`busy`). Milliseconds.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from compat_tests.bench.machine import processes
from compat_tests.scale.partitions import idle_cpu
from compat_tests.scale.subject import Subject
from compat_tests.scale.wire import Connection

COUNTS = (100, 1000, 5000)
PROBES = 300


def measure(name: str, directory: Path, count: int, idle_s: float) -> dict[str, float]:
    """All values of one count. The directory is removed."""
    subject = Subject(name, directory)
    connections: list[Connection] = []
    try:
        subject.start()
        topic = subject.create()
        found: dict[str, float] = {}
        probe = Producer({"bootstrap.servers": subject.bootstrap, "linger.ms": 0, "log_level": 0})
        _round_trips(probe, topic, 50)
        empty = processes.resident_bytes(subject.pid)
        begun = time.perf_counter()
        for _ in range(count):
            connection = Connection(subject.bootstrap)
            connections.append(connection)
            connection.api_versions()
            connection.metadata_of_all()
        found["connected_s"] = time.perf_counter() - begun
        found["per_connection_kb"] = (processes.resident_bytes(subject.pid) - empty) / count / 1024
        found["idle_cpu"] = idle_cpu(subject.pid, idle_s)
        found |= _percentiles("quiet", _round_trips(probe, topic, PROBES))
        done = threading.Event()

        def ask_on() -> None:
            while not done.is_set():
                for connection in connections:
                    connection.metadata_of_all()

        asking = threading.Thread(target=ask_on)
        asking.start()
        try:
            found |= _percentiles("busy", _round_trips(probe, topic, PROBES))
        finally:
            done.set()
            asking.join()
        begun = time.perf_counter()
        subject.stop()
        found["stop_s"] = time.perf_counter() - begun
        return found
    finally:
        for connection in connections:
            connection.close()
        subject.remove()


def _round_trips(producer: Producer, topic: str, count: int) -> list[float]:
    """Seconds from `produce` to the acknowledgement, one record at a time."""
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        assert producer.flush(60) == 0
        taken.append(time.perf_counter() - begun)
    return taken


def _percentiles(what: str, seconds: list[float]) -> dict[str, float]:
    rising = sorted(seconds)
    return {
        f"{what}_p50_ms": rising[len(rising) // 2] * 1000,
        f"{what}_p99_ms": rising[len(rising) * 99 // 100] * 1000,
    }
