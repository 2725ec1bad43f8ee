"""`run.py test` and `run.py test --all` from the beginning to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from compat_tests.harness.jars import cache_root, empty_jvm_directory
from compat_tests.runner.lanes import Lanes, Running
from compat_tests.runner.plan import COLLECTING, ENVIRONMENT, PURE, Step, beginning, groups, plan, with_environment
from compat_tests.runner.preflight import NATIVE, Tool, look, too_full
from compat_tests.runner.report import Report

MOST_LANES = 4
"""A step's processes (pytest, a broker, a JVM) wait for each other, and for time-outs: with three steps a fifth of two
cores was idle.
"""
ABOUT = {False: "15 minutes", True: "35 to 60 minutes"}


def run(root: Path, everything: bool, python: Path) -> int:
    """Look, install, run, sum up. *python* is that of the environment, once it is made. Returns the exit status."""
    report = Report(sys.stderr)
    more = "" if everything else "; all that there is: python3 run.py test --all"
    report.say(f"==== lint, types and tests: about {ABOUT[everything]} on two cores{more}")
    results = root / ".cache" / "test-results"
    results.mkdir(parents=True, exist_ok=True)
    empty_jvm_directory()  # of a run that was killed
    tools = look()
    for tool in tools:
        report.say(f"     {tool.name}: {tool.found or f'LEFT OUT, {tool.missing}'}")
    full = too_full([root, cache_root(), Path(os.environ.get("TMPDIR") or "/tmp")])
    if full:
        report.say(f"==== not begun: {full}")
        return 2
    if wanted(tools):
        report.say(f"==== not begun: with CI=true nothing is left out: {'; '.join(wanted(tools))}")
        return 2
    listing = results / "listing"
    listing.unlink(missing_ok=True)
    lanes = Lanes(python, root, results, MOST_LANES, report)
    # Whoever ends this (Ctrl-C, a machine that cancels a run) ends the steps, too, and hears what became of the others.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    troubles: list[str] = []
    left_out: dict[str, int] = {}
    begun: list[Step] = beginning(tools)

    def then(one: Running) -> list[Step]:
        following: list[Step] = []
        if one.step is ENVIRONMENT and one.well:
            following = with_environment(listing, tools)
        elif one.step is ENVIRONMENT:
            troubles.append("no test was run: there is no environment")
        elif one.step.title == COLLECTING and listing.exists():
            native = has_native(python)
            if not native and in_ci() and any(tool.name == NATIVE and tool.found for tool in tools):
                troubles.append(f"{NATIVE} could not be built: {results / 'the-environment.log'}")
            made = plan(groups(listing), tools, everything=everything, has_native=native)
            left_out.update(made.left_out)
            following = made.steps
            report.total = len(begun) + len(following)
        elif one.step.title == COLLECTING:
            troubles.append("no test was run: they could not be collected")
        begun.extend(following)
        return following

    try:
        lanes.run(list(begun), then)
    except KeyboardInterrupt:
        troubles.append("interrupted")
    finally:
        empty_jvm_directory()
    green = report.summary(lanes.done, left_out, troubles)
    return 0 if green else 1


def has_native(python: Path) -> bool:
    """Whether the tests run with barnabas-native."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return False
    done = subprocess.run([python, "-c", "import barnabas_native"], capture_output=True, check=False, timeout=300)
    return done.returncode == 0


def in_ci() -> bool:
    """Whether a machine, and no person, reads the summary."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def wanted(tools: list[Tool]) -> list[str]:
    """What must not be missing there."""
    if not in_ci():
        return []
    return [f"{tool.name}: {tool.missing}" for tool in tools if tool.missing and tool.marker == "jvm"]
