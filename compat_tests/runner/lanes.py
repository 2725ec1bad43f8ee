"""Runs the steps of a stage as processes, so many at a time, and tells a listener where they are.

Each step's output goes to a file of its own; a pytest step says in another one what became of which test (`events`),
another step begins lines that are meant for the person with `== `. Ctrl-C reaches the steps too, as they are of the
terminal's group; whoever else ends this has them interrupted, so that they end what they have started.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from compat_tests.runner.plan import Step

POLL_S = 0.2
ENDINGS: tuple[tuple[signal.Signals | None, float], ...] = ((None, 20), (signal.SIGINT, 20), (signal.SIGKILL, 5))
"""How steps end that are not wanted any more: by themselves, interrupted, killed; and seconds for each."""
SAYS = "== "


@dataclass
class Test:
    """What became of one."""

    name: str
    outcome: str
    seconds: float
    why: str


@dataclass
class Running:
    """A step that has been started. `seconds`, `cpu_s` (of all its processes that were waited for) and `status` are
    known when it has ended.
    """

    step: Step
    log: Path
    events: Path
    process: subprocess.Popen[bytes]
    started: float
    tests: list[Test] = field(default_factory=list)
    collected: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    status: int | None = None
    _read: TextIO | None = None
    _partial: str = ""
    _heard: int = 0

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(test.outcome == outcome for test in self.tests)

    @property
    def well(self) -> bool:
        """Whether it ended as it should: no test failed, none of those that were announced is missing."""
        return self.status == 0 and (self.step.cases is None or len(self.tests) == self.step.cases)

    def look(self) -> None:
        """Take in what the step has said since."""
        if self._read is None:
            if not self.events.exists():
                return
            self._read = self.events.open()
        self._partial += self._read.read()
        *lines, self._partial = self._partial.split("\n")
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if "test" in said:
                self.tests.append(Test(said["test"], said["outcome"], said["seconds"], said["why"]))
            elif "collected" in said:
                self.collected = said["collected"]

    def said(self) -> Iterator[str]:
        """What a step that is no test has told the person since."""
        if self.step.cases is not None:
            return
        with self.log.open("rb") as log:
            log.seek(self._heard)
            for line in log:
                if line.endswith(b"\n"):
                    self._heard += len(line)
                    text = line.decode(errors="replace").rstrip()
                    if text.startswith(SAYS):
                        yield text

    def close(self, now: float) -> None:
        """The process has ended: take in the rest."""
        self.status, self.seconds = self.process.returncode, now - self.started
        self.look()
        if self._read is not None:
            self._read.close()


class Listener(Protocol):
    """Is told of what happens, and often where the running steps are."""

    def begun(self, one: Running) -> None: ...
    def ended(self, one: Running) -> None: ...
    def going_on(self, running: Sequence[Running]) -> None: ...
    def say(self, text: str) -> None: ...


class Lanes:
    """Runs steps with *python*; `done` are all that have ended."""

    def __init__(self, python: Path, root: Path, results: Path, width: int, listener: Listener) -> None:
        self.done: list[Running] = []
        self._python = python
        self._root = root
        self._results = results
        self._width = width
        self._listener = listener

    def run(self, steps: Sequence[Step], then: Callable[[Running], Sequence[Step]] = lambda one: ()) -> None:
        """Run these and what follows when one of them has ended; returns when all have ended, well or not."""
        waiting = list(steps)
        running: list[Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self._width:
                    running.append(self._start(waiting.pop(0)))
                time.sleep(POLL_S)
                for one in list(running):
                    one.look()
                    for text in one.said():
                        self._listener.say(text)
                    cpu_s = children_cpu_s()
                    if one.process.poll() is not None:
                        one.cpu_s = children_cpu_s() - cpu_s
                        one.close(time.monotonic())
                        running.remove(one)
                        self.done.append(one)
                        self._listener.ended(one)
                        waiting += then(one)
                self._listener.going_on(running)
        except BaseException:
            end([one.process for one in running])
            for one in running:
                one.close(time.monotonic())
                self.done.append(one)
            raise

    def _start(self, step: Step) -> Running:
        stem = re.sub("[^a-z0-9]+", "-", step.title.lower()).strip("-")
        log, events = self._results / f"{stem}.log", self._results / f"{stem}.events"
        events.unlink(missing_ok=True)
        given = ["--events", str(events)] if step.cases is not None else []
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable if step.bare else str(self._python), *step.arguments, *given],
                cwd=self._root,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **dict(step.environment)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        one = Running(step, log, events, process, time.monotonic())
        self._listener.begun(one)
        return one


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return when these have ended, whose terminal may have told them to; killed when we are interrupted once more."""
    try:
        for number, patience_s in ENDINGS:
            left = [process for process in processes if process.poll() is None]
            for process in left if number is not None else ():
                process.send_signal(number)
            deadline = time.monotonic() + patience_s
            while any(process.poll() is None for process in left) and time.monotonic() < deadline:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
    for process in processes:
        process.wait()


def children_cpu_s() -> float:
    """CPU that our processes took which have ended and were waited for, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
