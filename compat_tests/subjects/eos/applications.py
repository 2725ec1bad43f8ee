"""The word count by Kafka Streams (`src/WordCount.java`) as a process: started, stopped, killed, its state lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from compat_tests.clients.tools_cli.tools import JAVA_OPTIONS, Tools
from compat_tests.harness.jars import classpath, compiled, java
from compat_tests.harness.processes import Background

JARS = "streams-4.3.1"
SOURCES = Path(__file__).parent / "src"
READY_TIMEOUT_S = 240
CLOSE_TIMEOUT_S = 180
RECORD_TIMEOUT_S = 150
_RESTORED = re.compile(r"^RESTORED \S+ ([0-9]+)$")


def written(tools: Tools, topic: str, count: int) -> list[str]:
    """The first so many records that applications have committed, sorted. Uncommitted ones lie there, too: a task that
    moves on while its first lines are counted aborts them, and they are counted again.
    """
    limits = ("--max-messages", str(count), "--timeout-ms", str(RECORD_TIMEOUT_S * 1000))
    words = ("--topic", topic, *limits, "--from-beginning", "--isolation-level", "read_committed")
    return sorted(tools("kafka-console-consumer", *words).splitlines())


class Application:
    """One instance of the application, with a state directory of its own."""

    def __init__(self, bootstrap: str, arguments: Sequence[str], state: Path, settings: Sequence[str]) -> None:
        self.state = state
        path = f"{compiled('streams', sorted(SOURCES.glob('*.java')), JARS)}:{classpath(JARS)}"
        self._command = [*java(), *JAVA_OPTIONS, "-cp", path, "WordCount", bootstrap, *arguments, str(state), *settings]
        self._program: Background | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and not ended by us."""
        return self._program is not None

    def start(self) -> None:
        """Start it, without waiting."""
        assert self._program is None
        self._program = Background(self._command)

    def wait_until_ready(self) -> None:
        """Return when it has its tasks, with their state."""
        assert self._program is not None
        self._program.wait_for("STATE RUNNING", timeout=READY_TIMEOUT_S)

    def wait_until_failed(self, why: str) -> None:
        """Return when a thread has failed with a text that holds *why*, and the process has ended."""
        assert self._program is not None
        self._program.wait_for("FAILED ", timeout=READY_TIMEOUT_S)
        said = [line for line in self._program.lines if line.startswith("FAILED ")]
        assert all(why in line for line in said), "\n".join(self._program.lines[-80:])
        self.wait_until_ended()

    def wait_until_ended(self) -> None:
        """Return when it has come to an end by itself, in error."""
        assert self._program is not None
        self._program.wait_for("STATE ERROR", timeout=READY_TIMEOUT_S)
        self._program.process.wait(CLOSE_TIMEOUT_S)
        self._program.stop()
        self._program = None

    def restored(self) -> int:
        """How many records of changelogs this process has read to have its state back."""
        found = map(_RESTORED.match, list(self._program.lines) if self._program else [])
        return sum(int(one.group(1)) for one in found if one)

    def fail_if_wrong(self) -> None:
        """Raise what it said if it ended by itself or a thread of it failed."""
        if self._program is not None:
            failed = self._program.process.poll() is not None or any(
                line.startswith("FAILED") for line in list(self._program.lines)
            )
            assert not failed, "\n".join(self._program.lines[-80:])

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._program is not None:
            self._program.stop(kill=True)
            self._program = None

    def stop(self) -> None:
        """TERM; it must close what it has."""
        assert self._program is not None
        self._program.stop(CLOSE_TIMEOUT_S)
        assert "CLOSED" in self._program.lines, "\n".join(self._program.lines[-80:])
        self._program = None

    def lose_state(self) -> None:
        """Remove its state directory; it must not run."""
        assert self._program is None
        shutil.rmtree(self.state, ignore_errors=True)
