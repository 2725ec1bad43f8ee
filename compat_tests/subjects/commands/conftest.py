"""The commands as programs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

LIMIT_S = 150
PATIENCE = ("--timeout", "50")
"""The broker, or the command itself, may stand still for a while."""


@dataclass(frozen=True)
class Commands:
    """Calls `barnabas`, with the broker under test as its bootstrap."""

    bootstrap: str

    @property
    def program(self) -> list[str]:
        return os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "BARNABAS_BOOTSTRAP": self.bootstrap, "TZ": "UTC"}

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        """Standard output of the command, which must end with `code`."""
        return self.whole(*arguments, stdin=stdin, code=code).stdout.decode()

    def whole(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
        ended = subprocess.run(
            [*self.program, *arguments, *PATIENCE],
            input=stdin,
            capture_output=True,
            timeout=LIMIT_S,
            env=self.environment,
        )
        assert ended.returncode == code, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return ended

    def shell(self, script: str) -> subprocess.CompletedProcess[bytes]:
        """A script in which `barnabas` is the command, and any failure the end."""
        function = f'barnabas() {{ {shlex.join(self.program)} "$@" {shlex.join(PATIENCE)}; }}\nset -euo pipefail\n'
        return subprocess.run(
            ["bash", "-c", function + script], capture_output=True, timeout=3 * LIMIT_S, env=self.environment
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.program, *arguments, *PATIENCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )


@pytest.fixture
def commands(bootstrap: str) -> Commands:
    return Commands(bootstrap)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a broker of a KRaft cluster knows a moment after the answer."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


Unique = Callable[..., str]
