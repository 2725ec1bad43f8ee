"""Our broker as a process on a directory that outlives it: start, stop, kill, measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from compat_tests.harness.brokers import STOP_TIMEOUT_S, Broker, wait_until_open
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports


class Server:
    """`python -m barnabas serve` on one directory and one port, again and again."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "barnabas.log"
        (self.port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> float:
        """Start and wait until the port accepts, unless that is somebody else's business; seconds that took."""
        arguments = [sys.executable, "-P", "-m", "barnabas", "serve"]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        started = time.monotonic()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                arguments,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            wait_until_open(Broker(self.bootstrap, "Barnabas", self.process, self.log))
        return time.monotonic() - started

    def kill(self) -> None:
        """End it without warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        if self.process is None or self.process.poll() is not None:
            return 0 if self.process is None else self.process.returncode
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def resident_bytes(self) -> int:
        """Resident memory now."""
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")
