"""A broker on a directory of its own, as the benchmark starts it: ours, or Apache Kafka 4.3.1."""

from __future__ import annotations

import resource
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.bench.brokers import Server, Side
from compat_tests.scale.wire import Connection


class Subject:
    """See the module. `started_at` is the clock's at the last start."""

    def __init__(self, name: str, directory: Path, settings: Sequence[str] = ()) -> None:
        self._server = Server(Side(name), directory, settings)
        self.directory = directory
        self.started_at = 0.0

    def start(self) -> float:
        """Start it; the seconds until it answered a first request."""
        self.started_at = time.perf_counter()
        return self._server.start()

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    @property
    def pid(self) -> int:
        return self._server.process.pid

    def stop(self) -> None:
        """Stop it in order."""
        self._server.stop()

    def kill(self) -> None:
        """End it without warning."""
        self._server.kill()

    def remove(self) -> None:
        """Stop it, and remove all that it has written."""
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def admin(self) -> AdminClient:
        """To be kept by who waits for an answer."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 120_000, "log_level": 0})

    def create(self) -> str:
        """A topic of one partition, which is led."""
        name = f"scale-{secrets.token_hex(4)}"
        admin = self.admin()
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(120)
        deadline = time.monotonic() + 60
        with Connection(self.bootstrap) as connection:
            while connection.log_ends([(name, 1)])[name, 0] != 0:
                assert time.monotonic() < deadline, f"nobody leads {name}"
                time.sleep(0.01)
        return name


def raise_descriptor_limit() -> None:
    """Each broker opens thousands of files, and so do the measures of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
