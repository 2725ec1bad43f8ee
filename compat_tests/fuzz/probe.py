"""How long a small honest request takes: ApiVersions every 10 ms on a connection of its own, in a process of its own.

    python -m compat_tests.fuzz.probe HOST:PORT [PID] [LIMIT_MS]

For each answer that takes longer than the limit a line `stall BEGIN SECONDS CPU` goes to standard output: the monotonic
clock at which it was sent, how long the answer took without the time for which the broker's loop or this probe had no
core, and how much of that the loop was running. So a loaded machine is not blamed on the broker. At the end (its input
closes) `longest SECONDS CPU`; `lost REASON` when the connection ends.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from compat_tests.fuzz.watch import Busy, busy
from compat_tests.harness.jars import PROJECT_ROOT

PAUSE_S = 0.01
LIMIT_MS = 100
ANSWER_S = 120.0
REQUEST = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"


@dataclass
class Stall:
    """`begin` on the monotonic clock; `seconds` and `cpu_seconds` as above."""

    begin: float
    seconds: float
    cpu_seconds: float


def answered(sock: socket.socket) -> None:
    """One ApiVersions 0. Raises OSError, EOFError."""
    sock.sendall(REQUEST)
    wanted = 4
    data = b""
    while len(data) < wanted:
        piece = sock.recv(65536)
        if not piece:
            raise EOFError("closed by the broker")
        data += piece
        if len(data) >= 4:
            wanted = 4 + int.from_bytes(data[:4], "big")


def measured(
    ask: Callable[[], None],
    pid: int,
    busy: Callable[[int | str], Busy] = busy,
    clock: Callable[[], float] = time.monotonic,
) -> Stall:
    """How long `ask` takes of which the broker with this pid is to blame."""
    own, loop, begun = busy("self"), busy(pid), clock()
    ask()
    took = clock() - begun
    after = busy(pid)
    blamed = took - (after.waited - loop.waited) - (busy("self").waited - own.waited)
    return Stall(begun, max(blamed, 0.0), after.ran - loop.ran if loop.ran >= 0 else took)


def main() -> int:
    host, _, port = sys.argv[1].rpartition(":")
    pid = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    limit = (int(sys.argv[3]) if len(sys.argv) > 3 else LIMIT_MS) / 1000
    longest = Stall(0.0, 0.0, 0.0)
    sock: socket.socket | None = None
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        try:
            if sock is None:
                sock = socket.create_connection((host, int(port)), ANSWER_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one = measured(partial(answered, sock), pid)
        except (OSError, EOFError) as error:
            print(f"lost {error!r}", flush=True)
            sock = None
            time.sleep(0.2)
            continue
        if one.seconds > longest.seconds:
            longest = one
        if one.seconds >= limit:
            print(f"stall {one.begin:.4f} {one.seconds:.4f} {one.cpu_seconds:.4f}", flush=True)
    print(f"longest {longest.seconds:.4f} {longest.cpu_seconds:.4f}", flush=True)
    return 0


@dataclass
class Probe:
    """The process, seen from the one that started it."""

    address: str
    pid: int = 0
    limit_ms: int = LIMIT_MS
    longest: float = 0.0
    lost: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _rest: bytes = b""

    def start(self) -> Probe:
        command = [
            sys.executable,
            "-P",
            "-m",
            "compat_tests.fuzz.probe",
            self.address,
            str(self.pid),
            str(self.limit_ms),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={"PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"},
        )
        return self

    def stalls(self) -> list[Stall]:
        """What it found since the last call."""
        assert self._process is not None
        assert self._process.stdout is not None
        found = []
        while select.select([self._process.stdout], [], [], 0)[0]:
            data = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                found += self._line(line.decode())
        return found

    def _line(self, line: str) -> list[Stall]:
        word, _, rest = line.partition(" ")
        if word == "stall":
            stall = Stall(*map(float, rest.split()))
            self.longest = max(self.longest, stall.seconds)
            return [stall]
        if word == "longest":
            self.longest = max(self.longest, float(rest.split()[0]))
        elif word == "lost":
            self.lost.append(rest)
        return []

    def stop(self) -> list[Stall]:
        """End it; what it had not told yet."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        found = self.stalls()
        self._process.stdout.close()
        return found


__all__ = ["Probe", "Stall", "answered", "measured"]

if __name__ == "__main__":
    sys.exit(main())
