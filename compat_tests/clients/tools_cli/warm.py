"""A JVM that runs tool after tool: `src/WarmTools.java` says how it is asked, and what differs from a process for each.

    with WarmJvms() as jvms:
        done = jvms.run("kafka-4.3.1", "org.apache.kafka.tools.TopicCommand", ["--list", …])

There is one for each set of jars, started when it is first asked. One that does not answer in time, or has ended, is
put away; the next tool starts another.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from compat_tests.harness.jars import SHORT_LIVED, classpath, compiled, java
from compat_tests.harness.processes import Failed

SOURCES = sorted((Path(__file__).parent / "src").glob("*.java"))
JAVA_OPTIONS = (
    "-Xmx512m",
    *SHORT_LIVED,
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
STOP_TIMEOUT_S = 60
_LENGTH = struct.Struct("!i")


class WarmJvms:
    """The JVMs by their jars; not for several threads at a time."""

    def __init__(self) -> None:
        self._running: dict[str, WarmJvm] = {}

    def run(
        self, jars: str, main_class: str, arguments: Sequence[str], *, text: str = "", timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a tool to its end with *text* as its input. Raises Failed, ToolMissing."""
        if jars not in self._running:
            self._running[jars] = WarmJvm(jars)
        try:
            return self._running[jars].run([main_class, *arguments], text, timeout)
        except Failed:
            self._running.pop(jars).stop()
            raise

    def __enter__(self) -> WarmJvms:
        return self

    def __exit__(self, *_: object) -> None:
        while self._running:
            self._running.popitem()[1].stop()


class WarmJvm:
    """One of them."""

    def __init__(self, jars: str) -> None:
        path = f"{compiled(f'warm-{jars}', SOURCES, jars)}:{classpath(jars)}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [*java(), *JAVA_OPTIONS, "-cp", path, "WarmTools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def run(self, words: Sequence[str], text: str, timeout: float) -> subprocess.CompletedProcess[bytes]:
        """Run the tool; *words* are its main class and its arguments. Raises Failed, and is of no use then."""
        shown = " ".join(words)
        late = threading.Timer(timeout, self._process.kill)
        late.start()
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            parts = [word.encode() for word in words]
            asked = b"".join(_LENGTH.pack(len(part)) + part for part in [*parts, text.encode()])
            self._process.stdin.write(_LENGTH.pack(len(parts)) + asked)
            self._process.stdin.flush()
            status = _int(self._process.stdout)
            output, errors = (_exactly(self._process.stdout, _int(self._process.stdout)) for _ in range(2))
        except (EOFError, BrokenPipeError) as ended:
            how = self._process.wait(STOP_TIMEOUT_S)
            raise Failed(
                f"{shown}: its JVM ended with {how}; it is given {timeout} s\n{self._said()[-3000:]}"
            ) from ended
        finally:
            late.cancel()
        return subprocess.CompletedProcess(list(words), status, output, errors)

    def stop(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


def _int(stream: IO[bytes]) -> int:
    return int(_LENGTH.unpack(_exactly(stream, _LENGTH.size))[0])


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
