"""Apache Kafka's Java clients, all of a version in one JVM that obeys lines (`src/ObedientClients.java`).

4.3.1 is given PEM files, 3.9.1 PKCS12 stores; tokens come from a file, as with tools that put one there.
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from compat_tests.harness.jars import classpath, compiled, java
from compat_tests.harness.secured import Access, java_settings
from compat_tests.subjects.security.clients.client import WITHIN_S, refused

SOURCE = Path(__file__).parents[1] / "src" / "ObedientClients.java"
PKCS12_VERSION = "3.9.1"
_MODULES = "org.apache.kafka.common.security"
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class Java:
    """Makes producers and consumers of one version; `stop` ends its JVM."""

    def __init__(self, version: str) -> None:
        self._version = version
        jars = f"kafka-{version}"  # with what the clients want for tokens
        path = f"{compiled(f'security-{version}', [SOURCE], jars)}:{classpath(jars)}"
        self._tokens = tempfile.TemporaryDirectory()
        self._token = Path(self._tokens.name) / "token"
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._token.as_uri()}"
        self._process = subprocess.Popen(
            [*java(), *_OPTIONS, allowed, "-cp", path, "ObedientClients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count()
        self._answers: dict[str, queue.SimpleQueue[list[str]]] = {}
        self._writing = threading.Lock()
        threading.Thread(target=self._listen, name=f"java-{version}", daemon=True).start()

    def sender(self, access: Access) -> _Sender:
        return _Sender(self, self._settings(access))

    def reader(self, access: Access, topic: str) -> _Reader:
        return _Reader(self, self._settings(access), topic)

    def ask(self, *words: str) -> list[str]:
        """What it answers. Raises Refused."""
        answer: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        assert self._process.stdin is not None
        with self._writing:
            number = str(next(self._numbers))
            self._answers[number] = answer
            self._process.stdin.write("\t".join((number, *words)) + "\n")
            self._process.stdin.flush()
        outcome, *said = answer.get(timeout=2 * WITHIN_S)
        if outcome == "ERROR":
            raise refused(said)
        return [word for word in said if word]

    def connects(self, name: str) -> int:
        """How often one of its clients has connected, but for the first time, to ask where brokers are."""
        return self._metric(name, "connection-creation-total") - 1

    def logins_again(self, name: str) -> int:
        """How often one of its clients has logged in again on a connection."""
        return self._metric(name, "successful-reauthentication-total")

    def _metric(self, name: str, metric: str) -> int:
        return int(float(self.ask("metric", name, metric)[0]))

    def name(self) -> str:
        """One that no other of its clients has."""
        return f"client-{next(self._numbers)}"

    def stop(self) -> None:
        """End the JVM, with all that is open."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and stream is self._process.stdin:
                stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._tokens.cleanup()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                number, *words = line.rstrip("\n").split("\t")
                self._answers.pop(number).put(words)

    def _settings(self, access: Access) -> list[str]:
        return [f"{key}={value}" for key, value in self._of(access)]

    def _of(self, access: Access) -> Iterator[tuple[str, str]]:
        yield from java_settings(access, pkcs12=self._version == PKCS12_VERSION)
        yield "max.block.ms", str(WITHIN_S * 1000)
        yield "delivery.timeout.ms", str(WITHIN_S * 1000)
        yield "request.timeout.ms", str(WITHIN_S * 500)
        yield "default.api.timeout.ms", str(WITHIN_S * 1000)
        if access.token:
            # Clients that log in again read it at any moment, and several threads make clients.
            fresh = self._token.with_suffix(f".{threading.get_ident()}")
            fresh.write_text(access.token)
            fresh.replace(self._token)
            yield "sasl.login.callback.handler.class", f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            yield "sasl.oauthbearer.token.endpoint.url", self._token.as_uri()


class _Sender:
    def __init__(self, java: Java, settings: list[str]) -> None:
        self._java = java
        self._settings = settings
        self._name = ""

    def send(self, topic: str, value: bytes) -> None:
        if not self._name:
            name = self._java.name()
            self._java.ask("producer", name, *self._settings)
            self._name = name
        self._java.ask("send", self._name, topic, value.decode())

    def connects(self) -> int:
        return self._java.connects(self._name)

    def logins_again(self) -> int:
        return self._java.logins_again(self._name)

    def close(self) -> None:
        if self._name:
            self._java.ask("close", self._name)


class _Reader:
    def __init__(self, java: Java, settings: list[str], topic: str) -> None:
        self._java = java
        self._name = java.name()
        # Of the consumer no setting has the same name as one of the producer's only.
        own = [each for each in settings if not each.startswith(("max.block.ms", "delivery.timeout.ms"))]
        java.ask("consumer", self._name, topic, *own)

    def read(self) -> list[bytes]:
        return [value.encode() for value in self._java.ask("read", self._name)]

    def connects(self) -> int:
        return self._java.connects(self._name)

    def logins_again(self) -> int:
        return self._java.logins_again(self._name)

    def close(self) -> None:
        self._java.ask("close", self._name)
