"""What the disk costs: compaction, recovery after kill -9, and a topic of thousands of partitions.

- Compaction: a log of one partition is filled with keyed records while its topic asks for no compaction; then it does.
  Dirty bytes are those of the closed segments; clean is the log when the cleaner's checkpoint file names the end of
  them. A producer of one record every 5 ms on another topic shows what the clients feel.
- Recovery: six partitions are filled, the broker is killed -9 right behind the last acknowledgement, and started again.
- A partition answers when ListOffsets does. Files stay in the page cache; times are seconds unless named.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from compat_tests.bench.brokers import Server, Side, Subject
from compat_tests.bench.loads.keyed import Probe
from compat_tests.bench.machine import processes
from compat_tests.bench.measures.context import GIB, Context

PARTITIONS = 6
QUIET_S = 2.0
TIMEOUT_S = 400.0


def compaction(context: Context, subject: Subject, value_bytes: int) -> dict[str, float]:
    """Compact one filled log, whose records replace nine tenths of each other."""
    scale = context.scale
    records = scale.compacted_mb * 1000 if value_bytes >= 1000 else scale.compacted_small
    assert subject.server is not None
    data = subject.server.data
    other = subject.new_topic(1)
    topic = subject.new_topic(
        1, cleanup_policy="compact", segment_bytes=str(scale.segment_bytes), min_cleanable_dirty_ratio="1.0"
    )
    context.python("keyed", subject.bootstrap, topic, 1, records, value_bytes, records // 10)
    os.sync()
    closed = _closed_segments(data, topic)
    dirty_bytes = sum(path.stat().st_size for path in closed)
    goal = int(sorted((data / f"{topic}-0").glob("*.log"))[-1].stem)
    assert dirty_bytes, "no segment is complete: more records are needed"
    assert _cleaned_to(data, topic) == 0
    probe = Probe(subject.bootstrap, other)
    try:
        time.sleep(0.5)
        probe.forget()
        time.sleep(QUIET_S)
        quiet = probe.percentiles()
        probe.forget()
        cpu_before, begun = subject.cpu_seconds(), time.perf_counter()
        _set_topic(subject, topic, "min.cleanable.dirty.ratio", "0.01")
        deadline = time.monotonic() + TIMEOUT_S
        while _cleaned_to(data, topic) < goal:
            assert time.monotonic() < deadline, subject.server.log_tail()
            time.sleep(0.02)
        taken = time.perf_counter() - begun
        cpu = subject.cpu_seconds() - cpu_before
        found = probe.percentiles()
    finally:
        probe.stop()
    left = sum(path.stat().st_size for path in _closed_segments(data, topic))
    for one in (topic, other):
        subject.delete_topic(one)
    return {
        "mb_per_s": dirty_bytes / 1e6 / taken,
        "cpu_s_per_gib": cpu / (dirty_bytes / GIB),
        **found,
        "quiet_p99_ms": quiet["ack_p99_ms"],
        "size_left": left / dirty_bytes,
    }


def recovery(context: Context, side: Side) -> dict[str, float]:
    """Fill, kill, start again. `read_gb` is what it read from files until all partitions answered."""
    with _running(context, side) as (server, subject):
        topic = subject.new_topic(PARTITIONS)
        context.python("keyed", subject.bootstrap, topic, PARTITIONS, context.scale.recovered_mb * 1000, 1000, 0)
        server.kill()
        begun = time.perf_counter()
        first = server.start()
        again = Subject.of(server)
        again.wait_led(topic, PARTITIONS)
        return {
            "all_led_s": time.perf_counter() - begun,
            "first_answer_s": first,
            "read_gb": processes.read_bytes(server.process.pid) / 1e9,
            "resident_mb": again.resident_mb(),
        }


def many_partitions(context: Context, side: Side) -> dict[str, float]:
    """Create partitions and write one record into each (`written_s`), stop, start again (`restarted_s`). A small topic
    goes before it, so that nothing is done for the first time.
    """
    partitions = context.scale.partitions
    with _running(context, side) as (server, subject):
        with subject.topic(PARTITIONS) as small:
            _write_each(subject, small, PARTITIONS)
        begun = time.perf_counter()
        topic = subject.new_topic(partitions)
        created = time.perf_counter() - begun
        _write_each(subject, topic, partitions)
        written = time.perf_counter() - begun
        cpu = subject.cpu_seconds()
        server.stop()
        begun = time.perf_counter()
        first = server.start()
        again = Subject.of(server)
        again.wait_led(topic, partitions)
        return {
            "written_s": written,
            "restarted_s": time.perf_counter() - begun,
            "created_s": created,
            "first_answer_s": first,
            "cpu_s": cpu,
            "restart_cpu_s": again.cpu_seconds(),
            "resident_mb": again.resident_mb(),
        }


@contextmanager
def _running(context: Context, side: Side) -> Iterator[tuple[Server, Subject]]:
    """A started broker of a measure's own, stopped at the end and its data removed."""
    directory = context.directory / f"storage-{side.name}"
    _raise_descriptor_limit()
    server = Server(side, directory)
    try:
        server.start()
        yield server, Subject.of(server)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _write_each(subject: Subject, topic: str, partitions: int) -> None:
    """One record into each partition."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": subject.bootstrap, "linger.ms": 20, "log_level": 2})
    for index in range(partitions):
        producer.produce(
            topic,
            b"x" * 100,
            partition=index,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
    left = producer.flush(TIMEOUT_S)
    assert not left, f"{left} records were not answered"
    assert not failed, failed[0]


def _set_topic(subject: Subject, topic: str, key: str, value: str) -> None:
    """Change one setting of a topic."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    subject.admin.incremental_alter_configs([resource])[resource].result(60)


def _closed_segments(data: Path, topic: str) -> list[Path]:
    """The log files of partition 0 but the last one."""
    return sorted((data / f"{topic}-0").glob("*.log"))[:-1]


def _cleaned_to(data: Path, topic: str) -> int:
    """What the cleaner's checkpoint says of partition 0."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[2]) for line in lines[2:] if line.startswith(f"{topic} 0 ")), 0)


def _raise_descriptor_limit() -> None:
    """Each broker opens thousands of files."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
