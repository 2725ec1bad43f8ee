"""Transactional producers of Apache Kafka's Java clients behind `compat_tests.harness.client.Transactor`: one JVM for
each version obeys lines (see src/Transactors.java).
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from compat_tests.harness.client import Delivered, Message, Partition, Refused
from compat_tests.harness.jars import SHORT_LIVED, classpath, compiled, java

SOURCES = sorted((Path(__file__).parent / "src").glob("*.java"))
STOP_TIMEOUT_S = 60


class JavaTransactors:
    """A JVM with any number of transactional producers."""

    def __init__(self, version: str, bootstrap: str, log: Path) -> None:
        self.name = f"Java {version}"
        self._numbers = itertools.count()
        jars = f"clients-{version}"
        classes = compiled(f"transactors-{version}", SOURCES, jars)
        options = ["-Xmx256m", *SHORT_LIVED]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*java(), *options, "-cp", f"{classes}:{classpath(jars)}", "Transactors", bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, *words: object) -> list[str]:
        """Say a line, return the words of the answer. Raises Refused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        verdict, *found = self._process.stdout.readline().split()
        if verdict == "error":
            raise Refused(int(found[0]), " ".join(found[1:]))
        return found

    def transactor(self, transactional_id: str, *, timeout_ms: int = 60_000) -> JavaTransactor:
        """As `Client.transactor`."""
        number = next(self._numbers)
        self.ask("open", number, transactional_id, timeout_ms)
        return JavaTransactor(self, number)

    def values(self, topic: str, isolation: str, last: bytes) -> list[bytes]:
        """Return the values of partition 0 before the first that is *last*."""
        return [bytes.fromhex(one.partition(":")[2]) for one in self.ask("read", topic, isolation, last.hex())]

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.stdout.close()


class JavaTransactor:
    """A KafkaProducer with a transactional.id."""

    def __init__(self, jvm: JavaTransactors, number: int) -> None:
        self.jvm = jvm
        self.number = number

    def begin(self) -> None:
        self.jvm.ask("begin", self.number)

    def send(self, topic: str, messages: Iterable[Message]) -> list[Delivered]:
        sent = list(messages)
        (partition,) = {one.partition for one in sent}
        assert partition is not None
        offsets = self.jvm.ask("send", self.number, topic, partition, *((one.value or b"").hex() for one in sent))
        return [Delivered(partition, int(offset)) for offset in offsets]

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, membership: object = None) -> None:
        assert membership is None, "groups with members are in the Java cases"
        for (topic, partition), offset in offsets.items():
            self.jvm.ask("offsets", self.number, group, topic, partition, offset)

    def commit(self) -> None:
        self.jvm.ask("commit", self.number)

    def abort(self) -> None:
        self.jvm.ask("abort", self.number)

    def close(self) -> None:
        self.jvm.ask("vanish", self.number)
