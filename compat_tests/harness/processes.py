"""Programs run by the suite: always with a time limit, ended by their own pid, heard when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

RUN_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60


class Failed(AssertionError):
    """A program ended otherwise than expected; the message holds its output."""


def run(
    command: Sequence[str],
    *,
    text: str | bytes = "",
    environment: Mapping[str, str] | None = None,
    timeout: float = RUN_TIMEOUT_S,
    expect: int | None = 0,
) -> subprocess.CompletedProcess[bytes]:
    """Run to the end with *text* as input. Raises Failed unless the exit status is *expect* (None: any) in time."""
    given = text.encode() if isinstance(text, str) else text
    try:
        done = subprocess.run(command, input=given, env=environment, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"") + (late.stderr or b"")
        raise Failed(f"{shown(command)}: not done after {timeout} s\n{said[-3000:].decode(errors='replace')}") from late
    if expect is not None and done.returncode != expect:
        said = done.stdout[-3000:] + done.stderr[-3000:]
        raise Failed(f"{shown(command)}: exit status {done.returncode}\n{said.decode(errors='replace')}")
    return done


def shown(command: Sequence[str]) -> str:
    """Return a command for a message; class paths shortened."""
    return " ".join(part if len(part) < 120 else f"{part[:100]}…" for part in command)


class Background:
    """A program that runs beside the test; its lines (both streams) are gathered."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, what: str, count: int = 1, timeout: float = RUN_TIMEOUT_S) -> None:
        """Return when *count* lines contain *what*. Raises Failed."""
        deadline = time.monotonic() + timeout
        while sum(what in line for line in self.lines) < count:
            if time.monotonic() > deadline or (self.process.poll() is not None and not self._reader.is_alive()):
                raise Failed(f"{shown(self.command)}: no {count} x {what!r} in:\n" + "\n".join(self.lines[-60:]))
            time.sleep(0.02)

    def send(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self, timeout: float = STOP_TIMEOUT_S, *, kill: bool = False) -> int:
        """End it (TERM, or KILL) and return its exit status."""
        if self.process.poll() is None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait(timeout)
        self._reader.join(timeout)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        return status

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def pause(pid: int) -> None:
    """SIGSTOP, and return when no thread of the process runs any more: the signal is on its way when it is sent."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not all(state in "TtZX" for state in _states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.005)


def _states(pid: int) -> Iterator[str]:
    """Of its threads, a letter each, as `proc(5)` has them."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            yield stat.read_text().rpartition(")")[2].split()[0]
