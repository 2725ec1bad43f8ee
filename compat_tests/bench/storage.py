"""What the disk costs: compaction, recovery after kill -9, a start with thousands of partitions, creating them.

One broker at a time, each measure with fresh data, in alternating order: Apache Kafka 4.3.1 and ours.

- Compaction: a log of one partition is filled with keyed records while its topic asks for no compaction; then it does.
  Dirty bytes are those of the closed segments; clean is the log when the cleaner's checkpoint file names the end of
  them. A producer of one record every 5 ms on another topic shows what the clients feel.
- Recovery: six partitions are filled, the broker is killed -9 right behind the last acknowledgement, and started again.
  `read_gb` is what it read from files until all partitions answered.
- A partition answers when ListOffsets does. Files stay in the page cache; times are seconds unless named.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from compat_tests.bench import processes
from compat_tests.bench.measures import GIB, first_answer
from compat_tests.bench.report import KAFKA, Results, add
from compat_tests.bench.storage_clients import Probe
from compat_tests.harness.broker_process import Server
from compat_tests.harness.brokers import Broker, start_kafka
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import run

HEAP = "1g"
SEGMENT_BYTES = 64 << 20
PARTITIONS = 6
QUIET_S = 3.0
TIMEOUT_S = 900


@dataclass(frozen=True)
class StorageScale:
    """How much: MB of records to compact (1 KB each), records of 100 bytes to compact, GB to recover, partitions."""

    compaction_mb: int = 512
    small_records: int = 1_500_000
    recovery_gb: float = 3.0
    partitions: int = 2000

    @property
    def text(self) -> str:
        """For the heading."""
        return f"segments of {SEGMENT_BYTES >> 20} MiB to compact, {self.compaction_mb:,} MB of them with 1 KB records"

    @classmethod
    def quick(cls) -> StorageScale:
        """Shows that everything works."""
        return cls(compaction_mb=150, small_records=700_000, recovery_gb=0.5, partitions=200)


class Subject:
    """A broker on a directory of its own that can be stopped, killed and started again."""

    def __init__(self, name: str, directory: Path, settings: Sequence[str] = ()) -> None:
        self.name = name
        self.directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._settings = settings
        self._server = Server(directory, **dict(setting.split("=", 1) for setting in settings))
        self._broker: Broker | None = None
        self.started_at = 0.0

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def pid(self) -> int:
        assert self.broker.process is not None
        return self.broker.process.pid

    def start(self) -> float:
        """Start it; the seconds until it answered a first request. `started_at` is the clock's at the start."""
        if self.name == KAFKA and not (self.data / "meta.properties").exists():
            start_kafka(self.directory, self._settings, heap=HEAP, wait=False).stop()  # formats, which does not count
        self.started_at = time.perf_counter()
        if self.name == KAFKA:
            self._broker = start_kafka(self.directory, self._settings, heap=HEAP, wait=False)
        else:
            self._server.start(wait=False)
            self._broker = Broker(self._server.bootstrap, "Barnabas", self._server.process, self._server.log)
        return first_answer(self._broker, self.started_at)

    def stop(self) -> None:
        """Stop it in order."""
        if self._broker is not None:
            self._broker.stop()

    def kill(self) -> None:
        """End it without warning."""
        process = self.broker.process
        assert process is not None
        process.kill()
        process.wait(30)

    def admin(self) -> AdminClient:
        """To be kept by who waits for an answer."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    def create(self, partitions: int, **config: str) -> str:
        """Create a topic and wait until all its partitions answer."""
        name = f"bench-{secrets.token_hex(4)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        self.wait_led(name, partitions)
        return name

    def wait_led(self, topic: str, partitions: int) -> None:
        """Return when every partition has said where it ends."""
        wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
        deadline = time.monotonic() + TIMEOUT_S
        admin = self.admin()
        while wanted:
            assert time.monotonic() < deadline, f"{len(wanted)} partitions do not answer: {self.broker.log_tail()}"
            for one, future in admin.list_offsets(wanted, request_timeout=30).items():
                try:
                    future.result()
                except KafkaException:
                    continue
                del wanted[one]

    def set_topic(self, topic: str, key: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(30)

    def fill(self, topic: str, partitions: int, records: int, value_bytes: int, keys: int) -> float:
        """Write records; MB/s."""
        command = [sys.executable, "-m", "compat_tests.bench.storage_clients", self.bootstrap, topic]
        command += [str(number) for number in (partitions, records, value_bytes, keys)]
        environment = {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"}
        done = run(command, environment=environment, timeout=TIMEOUT_S)
        return float(json.loads(done.stdout)["mb_per_s"])

    def closed_segments(self, topic: str) -> list[Path]:
        """The log files of partition 0 but the last one."""
        return sorted((self.data / f"{topic}-0").glob("*.log"))[:-1]

    def cleaned_to(self, topic: str) -> int:
        """What the cleaner's checkpoint says of partition 0."""
        try:
            lines = (self.data / "cleaner-offset-checkpoint").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return next((int(line.split()[2]) for line in lines[2:] if line.startswith(f"{topic} 0 ")), 0)


@contextmanager
def running(name: str, directory: Path, *settings: str) -> Iterator[Subject]:
    """A started broker, stopped at the end and its data removed."""
    subject = Subject(name, directory, settings)
    try:
        subject.start()
        yield subject
    finally:
        subject.stop()
        shutil.rmtree(directory, ignore_errors=True)


def compaction(name: str, directory: Path, records: int, value_bytes: int, keys: int) -> dict[str, float]:
    """Compact one filled log."""
    with running(name, directory, "log.cleaner.backoff.ms=100") as subject:
        other = subject.create(1)
        topic = subject.create(
            1, cleanup_policy="compact", segment_bytes=str(SEGMENT_BYTES), min_cleanable_dirty_ratio="1.0"
        )
        subject.fill(topic, 1, records, value_bytes, keys)
        os.sync()
        closed = subject.closed_segments(topic)
        dirty_bytes = sum(path.stat().st_size for path in closed)
        goal = int(sorted((subject.data / f"{topic}-0").glob("*.log"))[-1].stem)
        assert dirty_bytes, "no segment is complete: more records are needed"
        assert subject.cleaned_to(topic) == 0
        probe = Probe(subject.bootstrap, other)
        try:
            time.sleep(1)
            probe.forget()
            time.sleep(QUIET_S)
            quiet = probe.percentiles()
            probe.forget()
            cpu_before, begun = processes.cpu_seconds(subject.pid), time.perf_counter()
            subject.set_topic(topic, "min.cleanable.dirty.ratio", "0.01")
            deadline = time.monotonic() + TIMEOUT_S
            while subject.cleaned_to(topic) < goal:
                assert time.monotonic() < deadline, subject.broker.log_tail()
                time.sleep(0.02)
            taken = time.perf_counter() - begun
            cpu = processes.cpu_seconds(subject.pid) - cpu_before
            found = probe.percentiles()
        finally:
            probe.stop()
        left = sum(path.stat().st_size for path in subject.closed_segments(topic))
        return {
            "dirty_mb_per_s": dirty_bytes / 1e6 / taken,
            "cpu_s_per_gib": cpu / (dirty_bytes / GIB),
            **found,
            "quiet_p99_ms": quiet["ack_p99_ms"],
            "size_left": left / dirty_bytes,
        }


def recovery(name: str, directory: Path, gigabytes: float) -> dict[str, float]:
    """Fill, kill, start again."""
    with running(name, directory) as subject:
        topic = subject.create(PARTITIONS)
        subject.fill(topic, PARTITIONS, int(gigabytes * 1e9 / 1000), 1000, 0)
        subject.kill()
        first = subject.start()
        subject.wait_led(topic, PARTITIONS)
        return {
            "first_answer_s": first,
            "all_led_s": time.perf_counter() - subject.started_at,
            "read_gb": _read_bytes(subject.pid) / 1e9,
        }


def _read_bytes(pid: int) -> int:
    """What the process has read through system calls, from the page cache or not."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def many_partitions(name: str, directory: Path, partitions: int) -> dict[str, dict[str, float]]:
    """Create partitions, write one record into each, stop, start again: two measures of one run."""
    with running(name, directory) as subject:
        begun = time.perf_counter()
        topic = subject.create(partitions)
        created = time.perf_counter() - begun
        producer = Producer({"bootstrap.servers": subject.bootstrap, "linger.ms": 20, "log_level": 3})
        begun = time.perf_counter()
        for index in range(partitions):
            producer.produce(topic, b"x" * 100, partition=index)
        assert producer.flush(TIMEOUT_S) == 0
        written = time.perf_counter() - begun
        subject.stop()
        first = subject.start()
        subject.wait_led(topic, partitions)
        led = time.perf_counter() - subject.started_at
        resident = processes.resident_bytes(subject.pid) / 1e6
        return {
            f"create {partitions:,} partitions": {"all_led_s": created, "write_s": written},
            f"start with {partitions:,} partitions after a clean stop": {
                "first_answer_s": first,
                "all_led_s": led,
                "resident_mb": resident,
            },
        }


def run_rounds(
    directory: Path,
    names: list[str],
    rounds: int,
    scale: StorageScale,
    only: str,
    results: Results,
    say: Callable[[str], None],
) -> None:
    """Take all measures in alternating rounds."""
    raise_descriptor_limit()
    small_records = scale.small_records
    records = scale.compaction_mb * 1000
    measures: dict[str, Callable[[str, Path], dict[str, dict[str, float]]]] = {
        "compaction, 1 KB records": lambda name, place: {
            "compaction, 1 KB records": compaction(name, place, records, 1000, records // 10)
        },
        "compaction, 100 byte records": lambda name, place: {
            "compaction, 100 byte records": compaction(name, place, small_records, 100, small_records // 10)
        },
        f"recovery after kill -9 with {scale.recovery_gb:g} GB": lambda name, place: {
            f"recovery after kill -9 with {scale.recovery_gb:g} GB": recovery(name, place, scale.recovery_gb)
        },
        "partitions": lambda name, place: many_partitions(name, place, scale.partitions),
    }
    for turn in range(rounds):
        for title, measure in measures.items():
            if only not in title:
                continue
            for name in names if turn % 2 == 0 else names[::-1]:
                found = measure(name, directory / f"storage-{name}")
                for what, values in found.items():
                    add(results, what, name, values)
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
                    say(f"round {turn + 1}: {what}: {name}: {shown}")


def raise_descriptor_limit() -> None:
    """Each broker opens thousands of files."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
