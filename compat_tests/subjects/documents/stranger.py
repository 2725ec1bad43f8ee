"""Documents, typed by a stranger: the blocks of a page, and a shell with an empty home in a fresh directory.

On the stranger's PATH are `barnabas`, Python as `python3` and `python`, `kafka-python` and Apache Kafka's scripts by
their names, with and without `.sh`; else what the machine has. The ports of a page (9092, 8080, …) are replaced by free
ones: others on the machine may have these.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.clients.tools_cli.tools import JAVA_OPTIONS, MAIN_CLASSES
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import NO_JVM, PROJECT_ROOT, classpath, java
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import Failed

LIMIT_S = 400
"""Of a block, in which several JVMs may start one after the other."""
PATIENT = """\
case "$1:$*" in
*--timeout*) ;;
health:* | topic:* | group:* | produce:* | consume:* | console:*) set -- "$@" --timeout 60 ;;
esac
"""
"""Before `barnabas`: its commands wait for ten seconds where nothing else is said; a busy machine may take longer."""
_FENCE = re.compile(r"^(#+ [^\n]*)$|^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
"""A heading, or a block."""
_PORT = re.compile(r"(?<![\w.])(?:9[0-9]{3}|8080)(?![\w.])")


@dataclass(frozen=True)
class Block:
    """What stands between two fences. section: the heading above it, without its #."""

    section: str
    language: str
    text: str


def blocks(page: str, *languages: str) -> list[Block]:
    """Those of a page, `docs/wire.md`, in their order. languages: of these only."""
    found = []
    section = ""
    for heading, _, language, text in _FENCE.findall((PROJECT_ROOT / page).read_text(encoding="utf-8")):
        if heading:
            section = heading.lstrip("# ")
        elif not languages or language in languages:
            found.append(Block(section, language, text))
    return found


def texts(page: str, section: str, language: str) -> list[str]:
    """Of the blocks of a section."""
    return [block.text for block in blocks(page, language) if block.section == section]


@dataclass
class Stranger:
    """directory: where the shell is. ports: what the page's stand for here."""

    directory: Path
    ports: dict[str, str] = field(default_factory=dict)
    with_kafka: bool = False

    def __post_init__(self) -> None:
        self.home = self.directory / "home"
        self.here = self.directory / "here"
        self._programs = self.directory / "bin"
        for place in (self.home, self.here, self._programs):
            place.mkdir(parents=True)
        ours = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
        self.program("barnabas", ours, before=PATIENT)
        self.program(
            "kafka-python", [sys.executable, "-c", "from kafka.cli import run_cli; raise SystemExit(run_cli())"]
        )
        for name in ("python", "python3"):
            self.program(name, [sys.executable])
        if self.with_kafka:
            for name, main_class in MAIN_CLASSES.items():
                for script in (name, f"{name}.sh"):
                    self.program(script, [*java(), *JAVA_OPTIONS, "-cp", classpath(KAFKA_JARS), main_class])

    def program(
        self, name: str, words: Sequence[str], environment: Mapping[str, str] | None = None, before: str = ""
    ) -> None:
        """Put a program on the path. environment: variables of its own. before: lines of shell."""
        file = self._programs / name
        given = [f"{key}={value}" for key, value in (environment or {}).items()]
        file.write_text(f'#!/bin/sh\n{before}exec env {shlex.join([*given, *words])} "$@"\n')
        file.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the shell."""
        kept = {key: os.environ[key] for key in ("BARNABAS_PURE", "LANG", NO_JVM) if key in os.environ}
        path = f"{self._programs}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        more = {"PYTHONPATH": str(PROJECT_ROOT), "PYTHONUNBUFFERED": "1", "TZ": "UTC"}
        return {"HOME": str(self.home), "PATH": path, **kept, **more}

    def text(self, said: str) -> str:
        """A page's text with the ports that are used here."""
        for known in _PORT.findall(said):
            if known not in self.ports:
                self.ports[known] = str(free_ports(1)[0])
        return _PORT.sub(lambda found: self.ports[found[0]], said)

    def write(self, name: str, said: str) -> None:
        """A file of the page."""
        (self.here / name).write_text(self.text(said), encoding="utf-8")

    def types(self, script: str, *, code: int = 0, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """What the page's lines say; the first that fails is the end. Raises Failed unless that ends with `code`."""
        script = f"set -euo pipefail\n{self.text(script)}"
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            errors += f"\nnot done after {limit_s:g} s"
        if process.returncode != code:
            raise Failed(f"{script}\nexit status {process.returncode}\n{output[-4000:]}\n{errors[-4000:]}")
        return subprocess.CompletedProcess(script, process.returncode, output, errors)

    @contextmanager
    def keeps_running(self, line: str, ready: str) -> Iterator[Running]:
        """A line that runs until Ctrl-C; the block begins when it has said `ready`. Raises Failed."""
        running = Running(self, line)
        try:
            running.wait_for(ready)
            yield running
        finally:
            running.end()


class Running:
    """A command of a page, as a terminal has it: standard output and error go to files."""

    def __init__(self, stranger: Stranger, line: str) -> None:
        self.line = stranger.text(line)
        number = sum(1 for _ in stranger.directory.glob("*.out"))
        self._files = stranger.directory / f"{number}.out", stranger.directory / f"{number}.err"
        with self._files[0].open("wb") as output, self._files[1].open("wb") as errors:
            self.process = subprocess.Popen(
                ["bash", "-c", f"set -euo pipefail\n{self.line}"],
                cwd=stranger.here,
                env=stranger.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return self._files[1].read_text(encoding="utf-8", errors="replace")

    def wait_for(self, what: str, limit_s: float = LIMIT_S) -> None:
        """Return when it has said `what`. Raises Failed."""
        until = time.monotonic() + limit_s
        while what not in self.output + self.errors:
            if self.process.poll() is not None or time.monotonic() > until:
                raise Failed(f"{self.line}\nno {what!r} in\n{self.output[-4000:]}\n{self.errors[-4000:]}")
            time.sleep(0.02)

    def end(self) -> None:
        """Ctrl-C: all of the line's processes get it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(90)
