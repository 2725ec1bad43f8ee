"""The JVM that serves all Java measures of a run: started once, warm after the first round (`src/Worker.java`).

Its heap is fixed and touched beforehand, its collector the one that Apache Kafka's scripts choose.
"""

from __future__ import annotations

import json
import select
import subprocess
import time
from pathlib import Path

from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import PROJECT_ROOT, classpath, compiled, java
from compat_tests.harness.processes import Failed

SOURCES = PROJECT_ROOT / "compat_tests" / "bench" / "loads" / "src"
OPTIONS = (
    *("-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
TIMEOUT_S = 400.0


class JavaClient:
    """Started by the first request, when `process` is None; `log` takes what it says besides its answers."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, *words: object) -> dict[str, float]:
        """Run one command of `Worker.java`; its values. Raises Failed."""
        if self.process is None:
            self.process = self._start()
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        texts = [str(word) for word in words]
        assert not any("\t" in text or "\n" in text for text in texts), texts
        try:
            process.stdin.write(("\t".join(texts) + "\n").encode())
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, as the empty answer will say
        deadline = time.monotonic() + TIMEOUT_S
        while not select.select([process.stdout], [], [], 1.0)[0]:
            if time.monotonic() > deadline:
                self.stop()
                raise Failed(f"{texts[0]}: no answer from the Java client in {TIMEOUT_S} s: {self._said()}")
        line = process.stdout.readline()
        if not line:
            self.stop()
            raise Failed(f"{texts[0]}: the Java client has ended: {self._said()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise Failed(f"{texts[0]}: {answer['failed']}")
        return dict(answer)

    def stop(self) -> None:
        """End it; the next request starts another one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def _start(self) -> subprocess.Popen[bytes]:
        classes = compiled("bench", sorted(SOURCES.glob("*.java")), KAFKA_JARS)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*java(), *OPTIONS, "-cp", f"{classes}:{classpath(KAFKA_JARS)}", "Worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def _said(self) -> str:
        return self._log.read_bytes()[-2000:].decode(errors="replace") if self._log.exists() else ""
