"""kcat, configured with -X. A process for each record that is sent, and for each look at a topic.

With a librdkafka older than 2.6.1, as Debian 12 and Ubuntu 24.04 have it, it cannot log in by SCRAM: it says its nonce
twice, which Apache Kafka refuses since 4.0.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

from compat_tests.harness.processes import run
from compat_tests.harness.secured import Access
from compat_tests.harness.tools import Program, kcat
from compat_tests.subjects.security.clients.client import WITHIN_S, kind_of, refused


class Kcat:
    """The program."""

    def __init__(self) -> None:
        self._program = kcat()
        said = run([self._program.path, "-V"], environment=self._program.environment()).stdout.decode()
        version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said)
        assert version is not None, said
        self.speaks_scram = tuple(map(int, version.groups())) >= (2, 6, 1)

    def sender(self, access: Access) -> _Sender:
        return _Sender(self._program, access)

    def reader(self, access: Access, topic: str) -> _Reader:
        return _Reader(self._program, access, topic)


class _Sender:
    def __init__(self, program: Program, access: Access) -> None:
        self._program = program
        self._options = list(_options(access))

    def send(self, topic: str, value: bytes) -> None:
        _run(self._program, [*self._options, "-P", "-t", topic, "-p", "0"], value)

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        pass


class _Reader:
    def __init__(self, program: Program, access: Access, topic: str) -> None:
        self._program = program
        self._arguments = [*_options(access), "-C", "-q", "-e", "-t", topic, "-p", "0"]
        self._next = 0

    def read(self) -> list[bytes]:
        found = _run(self._program, [*self._arguments, "-o", str(self._next)]).splitlines()
        self._next += len(found)
        return found

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        pass


def _run(program: Program, arguments: list[str], text: bytes = b"") -> bytes:
    """Its output. Raises Refused when it ends with an error, and as soon as it complains of one: it goes on trying."""
    deadline = time.monotonic() + 2 * WITHIN_S
    with ExitStack() as files:
        given, output, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(
            [program.path, *arguments], stdin=given, stdout=output, stderr=errors, env=program.environment()
        )

        def said() -> list[str]:
            # Its own place in the file is not to move: that is kcat's, too.
            return os.pread(errors.fileno(), 1 << 20, 0).decode(errors="replace").splitlines()

        try:
            while process.poll() is None:
                if kind_of(said()) is not None or time.monotonic() > deadline:
                    raise refused(said())
                time.sleep(0.01)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise refused(said())
        output.seek(0)
        return output.read()


def _options(access: Access) -> Iterator[str]:
    options = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "message.timeout.ms": str(WITHIN_S * 1000),
    }
    if access.authority is not None:
        options["ssl.ca.location"] = str(access.authority)
    if access.identity is not None:
        options |= {"ssl.certificate.location": str(access.identity), "ssl.key.location": str(access.identity)}
    if access.mechanism:
        options |= {"sasl.mechanism": access.mechanism, "sasl.username": access.user, "sasl.password": access.password}
    for key, value in options.items():
        yield "-X"
        yield f"{key}={value}"
