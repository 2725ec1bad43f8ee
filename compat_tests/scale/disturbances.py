"""What else goes on: one process each, `python -m compat_tests.scale.disturbances NAME BOOTSTRAP DIRECTORY SIZE`.

A disturbance prepares what it needs, prints `ready`, and goes on until it is ended. SIZE is a share of the full amounts
below. DIRECTORY is on the disk that the broker writes to.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from compat_tests.scale.wire import Connection, request, string

BATCHES_PER_S = 10
TOPICS = 10_000
MEMBERS = 500
RETAINED_SEGMENTS = 1000
SEGMENT_BYTES = 1 << 20
COMPACTED_MB_PER_S = 20
CHURN = 100
"""Partitions that are created and deleted again, over and over."""

_GOING = {27}  # REBALANCE_IN_PROGRESS
_LATER = {14, 15, 16}  # the coordinator is loading, not available, elsewhere


class Disturbance:
    """What all of them have at hand."""

    def __init__(self, bootstrap: str, directory: Path, share: float) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.share = share
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 120_000, "log_level": 0})
        self.name = f"disturb-{os.getpid()}"

    def amount(self, full: int) -> int:
        """A share of it, one at least."""
        return max(int(full * self.share), 1)

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **settings})

    def create(self, partitions: int = 1, **config: str) -> None:
        """The topic `name`."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(self.name, partitions, 1, config=settings)])[self.name].result(120)

    # ---- the disturbances

    def quiet(self) -> None:
        """Nothing."""
        ready()
        time.sleep(3600)

    def compressed_batches(self) -> None:
        """Another client's batches of 1 MB of JSON-like text, compressed with zstd, ten a second."""
        self.create()
        rng = random.Random(5)
        values = [
            json.dumps({"id": rng.randrange(10**9), "name": rng.choice(("ada", "grace", "alan")), "at": rng.random()})
            for _ in range(1000)
        ]
        settings = {"compression.type": "zstd", "batch.size": 1 << 20, "linger.ms": 1000, "message.max.bytes": 2 << 20}
        producer = self.producer(**settings, **{"batch.num.messages": 1_000_000})
        ready()
        while True:
            begun = time.perf_counter()
            size = 0
            while size < 1_000_000:
                value = rng.choice(values)
                producer.produce(self.name, value)
                size += len(value)
            producer.flush(30)
            time.sleep(max(1 / BATCHES_PER_S - (time.perf_counter() - begun), 0))

    def metadata(self) -> None:
        """A client that asks for the metadata of 10,000 topics, over and over."""
        names = [f"{self.name}-{number}" for number in range(self.amount(TOPICS))]
        for first in range(0, len(names), 1000):
            asked = [NewTopic(name, 1, 1) for name in names[first : first + 1000]]
            for answer in self.admin.create_topics(asked).values():
                answer.result(120)
        with Connection(self.bootstrap) as connection:
            ready()
            while True:
                connection.metadata_of_all()
                time.sleep(0.1)

    def compaction(self) -> None:
        """A compacted topic that is written to, with small segments: there is always something to clean."""
        self.create(cleanup_policy="compact", segment_bytes=str(4 << 20), min_cleanable_dirty_ratio="0.01")
        producer = self.producer(**{"linger.ms": 20})
        rng = random.Random(5)
        value = rng.randbytes(1000)
        ready()
        while True:
            begun = time.perf_counter()
            for _ in range(COMPACTED_MB_PER_S * 100):
                producer.produce(self.name, value, b"%d" % rng.randrange(10_000))
            producer.flush(60)
            time.sleep(max(0.1 - (time.perf_counter() - begun), 0))

    def retention(self) -> None:
        """A thousand segments that are too old all at once: marked as deleted, and unlinked a second later."""
        self.create(segment_bytes=str(SEGMENT_BYTES), file_delete_delay_ms="1000", retention_bytes="-1")
        producer = self.producer(**{"linger.ms": 100, "batch.size": 900_000})
        value = random.Random(5).randbytes(100_000)
        for _ in range(self.amount(RETAINED_SEGMENTS) * SEGMENT_BYTES // len(value)):
            while True:
                try:
                    producer.produce(self.name, value)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(120)
        ready()
        time.sleep(3)  # the probe has warmed up
        entry = ConfigEntry("retention.bytes", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)
        time.sleep(3600)

    def fsync(self) -> None:
        """Another program that writes 16 MB and syncs, over and over, on the same disk."""
        path = self.directory / "synced"
        data = os.urandom(1 << 20)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        ready()
        while True:
            for number in range(16):
                os.pwrite(file, data, number << 20)
            os.fsync(file)

    def topics(self) -> None:
        """A topic of a hundred partitions that is created, and deleted, over and over: its directory is synced."""
        ready()
        number = 0
        while True:
            number += 1
            name = f"{self.name}-{number}"
            try:
                self.admin.create_topics([NewTopic(name, self.amount(CHURN), 1)])[name].result(60)
                self.admin.delete_topics([name])[name].result(60)
            except KafkaException as error:
                print(error, file=sys.stderr)

    def rebalance(self) -> None:
        """A group of 500 members (classic protocol) that rebalances without end: all join again with other metadata."""
        Members(self.bootstrap, self.name, self.amount(MEMBERS)).run()


def ready() -> None:
    print("ready", flush=True)


class Members:
    """The members of one group, each on its connection, driven by one epoll: JoinGroup v2, SyncGroup v1, and again."""

    def __init__(self, bootstrap: str, group: str, count: int) -> None:
        self._group = string(group)
        with Connection(bootstrap) as connection:
            while connection.ask(10, 0, self._group)[:2] != bytes(2):  # FindCoordinator makes its topic
                time.sleep(0.1)
        host, _, port = bootstrap.rpartition(":")
        self._members = [_Member(host, int(port)) for _ in range(count)]
        self._round = 0

    def run(self) -> None:
        """Never ends."""
        poller = select.epoll()
        by_file = {}
        for member in self._members:
            poller.register(member.socket, select.EPOLLIN)
            by_file[member.socket.fileno()] = member
            self._join(member)
        settled: set[_Member] = set()
        rounds = 0
        while True:
            for number, _ in poller.poll():
                member = by_file[number]
                for answer in member.answers():
                    if self._has_assignment(member, answer):
                        settled.add(member)
            if len(settled) == len(self._members):
                settled.clear()
                rounds += 1
                self._round += 1
                if rounds == 1:
                    ready()
                for member in self._members:
                    self._join(member)

    def _has_assignment(self, member: _Member, answer: bytes) -> bool:
        """Take the next step of a member; whether it was the last of this round."""
        (error,) = struct.unpack_from(">h", answer, 4)
        if error in _LATER:
            time.sleep(0.05)
        if error:
            if error not in _GOING | _LATER:
                member.id = ""
            self._join(member)
            return False
        if member.is_syncing:
            return True
        member.generation, position = struct.unpack_from(">i", answer, 6)[0], 10
        _, position = _text(answer, position)
        leader, position = _text(answer, position)
        member.id, position = _text(answer, position)
        assignments = b""
        (count,) = struct.unpack_from(">i", answer, position)
        position += 4
        for _ in range(count):
            name, position = _text(answer, position)
            position += 4 + struct.unpack_from(">i", answer, position)[0]
            assignments += string(name) + struct.pack(">i", 1) + b"a"
        body = self._group + struct.pack(">i", member.generation) + string(member.id)
        if leader != member.id:
            count, assignments = 0, b""
        member.is_syncing = True
        member.socket.sendall(request(14, 1, body + struct.pack(">i", count) + assignments))
        return False

    def _join(self, member: _Member) -> None:
        member.is_syncing = False
        metadata = b"%d" % self._round
        body = self._group + struct.pack(">ii", 60_000, 60_000) + string(member.id) + string("consumer")
        body += struct.pack(">i", 1) + string("range") + struct.pack(">i", len(metadata)) + metadata
        member.socket.sendall(request(11, 2, body))


class _Member:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id = ""
        self.generation = -1
        self.is_syncing = False
        self._received = b""

    def answers(self) -> list[bytes]:
        """Whole answers, from the correlation id on without it."""
        self._received += self.socket.recv(1 << 18)
        found = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            found.append(self._received[8:end])
            self._received = self._received[end:]
        return found


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, position)
    return data[position + 2 : position + 2 + max(length, 0)].decode(), position + 2 + max(length, 0)


DISTURBANCES: dict[str, Callable[[Disturbance], None]] = {
    "quiet": Disturbance.quiet,
    "compressed_batches": Disturbance.compressed_batches,
    "metadata": Disturbance.metadata,
    "compaction": Disturbance.compaction,
    "retention": Disturbance.retention,
    "fsync": Disturbance.fsync,
    "topics": Disturbance.topics,
    "rebalance": Disturbance.rebalance,
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "compaction": ("log.cleaner.backoff.ms=100",),
    "retention": ("log.retention.check.interval.ms=1000",),
}
"""What the broker is started with, beside its defaults."""


if __name__ == "__main__":
    _, its_name, its_bootstrap, its_directory, its_share = sys.argv
    DISTURBANCES[its_name](Disturbance(its_bootstrap, Path(its_directory), float(its_share)))
