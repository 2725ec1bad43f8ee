"""What every measure is given: how much work it is, the clients, and the records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compat_tests.bench.brokers import Side, Subject
from compat_tests.bench.loads.java_client import JavaClient
from compat_tests.bench.loads.values import Values
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import Failed, run

CLIENT_TIMEOUT_S = 400
GIB = 1 << 30
ENVIRONMENT = {"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class Scale:
    """How much work a measure is, so that it takes 5 to 20 seconds on each broker of a machine with two cores.

    `megabytes` of values for throughput; measures that are slower or faster take a part or a multiple of it. `seconds`
    for measures that last, behind `warm_up_s`. `compacted_mb` of 1 KB records, `compacted_small` records of 100 bytes,
    in segments of `segment_bytes`; `recovered_mb`; `partitions` of the topic that is restarted; `members` that join,
    and are stable when nothing has changed for `quiet_s`; an idle broker has been so for `idle_s`.
    """

    megabytes: int = 1000
    seconds: float = 8.0
    warm_up_s: float = 1.0
    connections: int = 64
    segment_bytes: int = 64 << 20
    compacted_mb: int = 512
    compacted_small: int = 1_500_000
    recovered_mb: int = 3000
    partitions: int = 2000
    members: int = 100
    quiet_s: float = 7.0
    idle_s: float = 3.0

    def part(self, part: float) -> Scale:
        """A part of it, of what lasts and of what is written. How many members, partitions and connections there are
        stays.
        """
        return replace(
            self,
            megabytes=max(1, int(self.megabytes * part)),
            seconds=self.seconds * part,
            recovered_mb=max(1, int(self.recovered_mb * part)),
        )

    @classmethod
    def quick(cls) -> Scale:
        """Shows that everything works; what comes out is no measurement."""
        return cls(
            megabytes=4,
            seconds=0.5,
            warm_up_s=0.2,
            connections=8,
            segment_bytes=4 << 20,
            compacted_mb=6,
            compacted_small=60_000,
            recovered_mb=20,
            partitions=30,
            members=6,
            quiet_s=1.0,
            idle_s=0.1,
        )


@dataclass
class Context:
    """Of a run."""

    directory: Path
    scale: Scale
    values: Values
    java: JavaClient

    def python(self, module: str, *arguments: object) -> dict[str, Any]:
        """Run one of the client programs of librdkafka; its JSON. Raises Failed."""
        done = run(program(module, *arguments), environment=ENVIRONMENT, timeout=CLIENT_TIMEOUT_S)
        return dict(json.loads(done.stdout))

    @contextmanager
    def background(self, module: str, *arguments: object) -> Iterator[None]:
        """The same beside what is measured, until its standard input is closed at the end. Raises Failed."""
        with subprocess.Popen(
            program(module, *arguments), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process:
            try:
                yield
            except BaseException:
                process.kill()
                raise
            assert process.stdin is not None
            process.stdin.close()
            if process.wait(CLIENT_TIMEOUT_S):
                raise Failed(f"{module} {arguments[0]}: exit status {process.returncode}")


def program(module: str, *arguments: object) -> list[str]:
    """The command line of a client program."""
    return [sys.executable, "-P", "-m", f"compat_tests.bench.loads.{module}", *map(str, arguments)]


def given(subject: Subject) -> str:
    """The settings of librdkafka that a broker needs, as an argument."""
    return json.dumps(dict(subject.librdkafka))


@contextmanager
def charged(subject: Subject, values: dict[str, Any], quantity: str, per: str, factor: float) -> Iterator[None]:
    """Add the broker's CPU seconds of what is done inside, times `factor`, for each of what `values[per]` says then."""
    before = subject.cpu_seconds()
    yield
    values[quantity] = (subject.cpu_seconds() - before) * factor / values[per]


__all__ = ["GIB", "Context", "Scale", "Side", "Subject", "charged", "given"]
