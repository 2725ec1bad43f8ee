"""How long single records take while something large goes on: a row for each disturbance and rate.

A new broker for each disturbance; a new topic, and a new process of the disturbance, for each rate. `probe.py` says
what is measured, `disturbances.py` what goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import Background
from compat_tests.harness.processes import run as run_process
from compat_tests.scale.disturbances import DISTURBANCES, SETTINGS
from compat_tests.scale.subject import Subject

SHOWN = ("p50", "p99", "p999", "max")
ENVIRONMENT = {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class Size:
    """How long each row is measured, how much of the disturbances' full amounts there is, and the usual rates."""

    seconds: float = 10.0
    share: float = 1.0
    rates: tuple[int, ...] = (200, 1000, 10_000)

    @classmethod
    def small(cls) -> Size:
        """Shows that everything works."""
        return cls(seconds=1.0, share=0.01, rates=(100,))


def run(
    name: str, directory: Path, rates: Sequence[int], only: str, size: Size, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Measure; the values by "disturbance rate". Prints rows as they come."""
    found: dict[str, dict[str, float]] = {}
    titles = [f"{what} {each}" for what in ("Produce", "end to end") for each in SHOWN]
    say(f"| ms | records/s | {' | '.join(titles)} |\n| --- | --- |{' --- |' * len(titles)}")
    for disturbance in DISTURBANCES:
        if only not in disturbance:
            continue
        subject = Subject(name, directory, SETTINGS.get(disturbance, ()))
        try:
            subject.start()
            for rate in rates:
                values = found[f"{disturbance} {rate}"] = _row(subject, disturbance, rate, size)
                cells = [f"{values[f'{what}_{each}_ms']:.2f}" for what in ("produce", "end_to_end") for each in SHOWN]
                say(f"| {disturbance} | {rate:,} | {' | '.join(cells)} |")
        finally:
            subject.remove()
    return found


def _row(subject: Subject, disturbance: str, rate: int, size: Size) -> dict[str, float]:
    topic = subject.create()
    module = [sys.executable, "-m", "compat_tests.scale.disturbances"]
    command = [*module, disturbance, subject.bootstrap, str(subject.directory), str(size.share)]
    with Background(command, ENVIRONMENT) as disturbing:
        disturbing.wait_for("ready", timeout=300)
        probe = [sys.executable, "-m", "compat_tests.scale.probe", subject.bootstrap, topic]
        done = run_process([*probe, str(rate), str(size.seconds)], environment=ENVIRONMENT, timeout=300)
        disturbing.stop(kill=True)
    values: dict[str, float] = json.loads(done.stdout)
    return values
