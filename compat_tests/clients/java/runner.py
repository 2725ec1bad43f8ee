"""Compile the Java cases once per client version, run them in one JVM, and hand out the outcome of each case.

The titles are read from the `cases.add("area", "title", …)` calls in the sources, so that pytest knows the cases before
any JVM runs, and a case that gives no line is a failure. `add4` is for what only clients from 4.0 on can do.
"""

from __future__ import annotations

import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.harness.jars import SHORT_LIVED, classpath, compiled, java

SOURCES = Path(__file__).parent / "src"
RUN_TIMEOUT_S = 900
_FILES = ("Produce", "Consume", "Group", "Admin", "Transaction", "TransactionFencing", "TransactionAdmin")
_ADD = re.compile(r'cases\.(add4?)\("([^"]+)", "([^"]+)",')
_LINE = re.compile(r"^CASE (.+?) / (.+) (PASS|FAIL)\b ?(.*)$")


@dataclass(frozen=True, order=True)
class JavaCase:
    """A case of the Java sources."""

    area: str
    title: str


def java_cases(version: str = "4") -> list[JavaCase]:
    """Return all cases that clients of this version can run, in the order of the sources."""
    text = "".join((SOURCES / f"{name}Cases.java").read_text() for name in _FILES)
    old = version.startswith("3.")
    return [JavaCase(area, title) for call, area, title in _ADD.findall(text) if not (old and call == "add4")]


@dataclass
class JavaRun:
    """A running JVM with all cases; `outcome` waits for the line of one."""

    version: str
    process: subprocess.Popen[str]
    outcomes: dict[JavaCase, tuple[bool, str]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: bool = False

    @classmethod
    def start(cls, version: str, bootstrap: str, log: Path, only: str = "") -> JavaRun:
        """Start the JVM; its log goes to the file *log*. *only* is a regular expression for `area / title`."""
        options = [
            "-Xmx512m",
            *SHORT_LIVED,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        jars = f"clients-{version}"
        path = f"{compiled(jars, sorted(SOURCES.glob('*.java')), jars)}:{classpath(jars)}"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [*java(), *options, "-cp", path, "Cases", bootstrap, only],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        run = cls(version, process)
        threading.Thread(target=run._read, name=f"java-{version}", daemon=True).start()
        return run

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = _LINE.match(line.rstrip("\n"))
            if found:
                with self.changed:
                    area, title, outcome, detail = found.groups()
                    self.outcomes[JavaCase(area, title)] = (outcome == "PASS", detail)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def outcome(self, case: JavaCase, timeout: float = RUN_TIMEOUT_S) -> tuple[bool, str]:
        """Wait for the case's line (or the end of the JVM); return whether it passed, and the detail."""
        with self.changed:
            self.changed.wait_for(lambda: case in self.outcomes or self.ended, timeout)
            if case in self.outcomes:
                return self.outcomes[case]
            how = f"the JVM ended with {self.process.poll()}" if self.ended else f"nothing after {timeout} s"
            return False, f"no outcome: {how}"

    def stop(self) -> None:
        """End the JVM if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
