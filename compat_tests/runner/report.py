"""What a person sees: a line for every step, on a terminal also where the running ones are, and the summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TextIO

from compat_tests.runner.lanes import Running

SAY_AGAIN_S = 60
"""How often a log, where no line can be written over, hears where the running steps are."""
LOG_LINES = 60
MOST_FAILURES = 30
SLOWEST = 30


class Report:
    """Prints to *out*. *total* is how many steps there will be, as far as is known; None as long as it is not."""

    def __init__(self, out: TextIO) -> None:
        self.total: int | None = None
        self._out = out
        self._terminal = out.isatty()
        self._started = time.monotonic()
        self._said = self._started
        self._ended = 0
        self._width = 0

    def say(self, text: str) -> None:
        """A line."""
        self._wipe()
        print(text, file=self._out, flush=True)

    def begun(self, one: Running) -> None:
        """A step has been started: seen in the next look at what is running."""

    def ended(self, one: Running) -> None:
        """A step has ended."""
        self._ended += 1
        of = f"/{self.total}" if self.total else ""
        self.say(f"[{self._ended:2}{of}] {one.step.title:40} {outcome(one):32} {one.seconds:6.1f} s")
        if one.step.cases is None and not one.well:
            self.say(tail(one, LOG_LINES))
        for test in one.tests:
            if test.outcome == "failed":
                self.say(f"        failed: {test.name}")

    def going_on(self, running: Sequence[Running]) -> None:
        """Where the running steps are."""
        now = time.monotonic()
        if not running or (not self._terminal and now - self._said < SAY_AGAIN_S):
            return
        self._said = now
        text = f"{clock(now - self._started)}  " + " · ".join(map(progress, running))
        if self._terminal:
            text = text[:110]
            self._out.write(f"\r{text:{self._width}}")
            self._width = len(text)
            self._out.flush()
        else:
            print(f"   … {text}", file=self._out, flush=True)

    def summary(self, done: Sequence[Running], left_out: Mapping[str, int], troubles: Sequence[str]) -> bool:
        """All of it once more, shortly: failures last, and the one line that counts. Returns whether it is green."""
        seconds = time.monotonic() - self._started
        failed = [(one, test) for one in done for test in one.tests if test.outcome == "failed"]
        for _, test in failed[:MOST_FAILURES]:
            self.say(f"\n---- {test.name}\n{test.why.strip()}")
        unwell = [one for one in done if not one.well]
        for one in unwell:
            if one.step.cases is not None and not one.count("failed"):
                self.say(f"\n---- {one.step.title}: {outcome(one)}\n{tail(one, LOG_LINES)}")
        tests = [test for one in done for test in one.tests]
        self.say("\n==== seconds by step, and those of CPU")
        for one in sorted(done, key=lambda one: -one.seconds):
            self.say(f"{one.seconds:8.1f} {one.cpu_s:8.1f}  {one.step.title:40} {outcome(one)}")
        self.say(f"{seconds:8.1f} {sum(one.cpu_s for one in done):8.1f}  all, side by side")
        slowest = sorted(tests, key=lambda test: -test.seconds)[:SLOWEST]
        if slowest:
            self.say(f"==== the slowest {len(slowest)} tests")
            for test in slowest:
                self.say(f"{test.seconds:8.1f}  {test.name}")
        skipped = Counter(test.why for test in tests if test.outcome == "skipped")
        reasons = [*left_out.items(), *((f"skipped: {why}", count) for why, count in skipped.items())]
        if reasons:
            self.say("==== left out")
            for why, count in reasons:
                self.say(f"{count:8,}  {why}")
        if unwell or troubles:
            self.say("==== failed")
            for trouble in troubles:
                self.say(f"          {trouble}")
            for one in unwell:
                self.say(f"          {one.step.title}: {outcome(one)}   (all it said: {one.log})")
            for _, test in failed:
                self.say(f"          {test.name}")
        passed = sum(test.outcome == "passed" for test in tests)
        out = sum(count for _, count in reasons)
        self.say(f"==== {passed:,} passed, {len(failed):,} failed, {out:,} left out, in {clock(seconds)}")
        return not (unwell or failed or troubles)

    def _wipe(self) -> None:
        if self._terminal and self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._width = 0


def outcome(one: Running) -> str:
    """How a step ended."""
    if one.step.cases is None:
        return "well" if one.well else f"FAILED (exit status {one.status})"
    parts = [f"{one.count('passed'):,} passed"]
    for name in ("failed", "skipped"):
        if one.count(name):
            parts.append(f"{one.count(name):,} {name.upper() if name == 'failed' else name}")
    missing = one.step.cases - len(one.tests)
    if missing:
        parts.append(f"{missing:,} NOT RUN" if missing > 0 else f"{-missing:,} more than collected")
    if one.status and not one.count("failed"):
        parts.append(f"EXIT STATUS {one.status}")
    return ", ".join(parts)


def progress(one: Running) -> str:
    """Where a running step is."""
    if one.step.cases is None:
        return one.step.title
    return f"{one.step.title} {len(one.tests):,}/{one.step.cases:,}"


def tail(one: Running, lines: int) -> str:
    """The end of what a step printed."""
    return "\n".join(one.log.read_text(errors="replace").splitlines()[-lines:])


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
