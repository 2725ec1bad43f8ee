"""The store that brokers of one machine share instead of ZooKeeper: its process, and a client that looks into it.

The client is made after the description of the format in `replication/store/socket_wire.py`, and has as much of kazoo's
face as `tree.Tree` needs.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from kazoo.exceptions import NoNodeError

from compat_tests.clusters.nodes import NodeFailed
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import pause

HELLO, GET, CHILDREN = 1, 3, 4
WELCOME, NODES, NAMES = 1, 5, 6
SESSION_MS = 3_600_000
ANSWER_S = 30.0
START_S = 120.0
END_S = 60.0


class StoreProcess:
    """`barnabas store`, or what BARNABAS_COMMAND names instead of `python -m barnabas`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The path of its socket."""
        return str(self.directory / "socket")

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*program, "store", str(self.directory)],
                cwd=PROJECT_ROOT,
                env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                LocalClient(self.connect).close()
                return
            except OSError as error:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    text = self.log.read_text(errors="replace")[-5000:]
                    raise NodeFailed(f"the store does not serve ({error}):\n{text}") from error
            time.sleep(0.02)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(END_S)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.process is not None
        pause(self.process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to stop, insist after a while."""
        if self.process is None or self.process.poll() is not None:
            return
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass(frozen=True)
class Found:
    """A node as the store tells it."""

    data: bytes
    version: int
    czxid: int


class LocalClient:
    """A connection to a store's socket, made again when it is lost."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = self._connect()

    def close(self) -> None:
        """End the connection; the session is left to the store."""
        self._socket.close()

    def get(self, path: str) -> tuple[bytes, SimpleNamespace]:
        """Return data and numbers of a node. Raises NoNodeError."""
        found = self._node(path)
        if found is None:
            raise NoNodeError
        return found.data, SimpleNamespace(version=found.version, czxid=found.czxid)

    def exists(self, path: str) -> SimpleNamespace | None:
        """Return the numbers of a node, None when there is none."""
        found = self._node(path)
        return None if found is None else SimpleNamespace(version=found.version, czxid=found.czxid)

    def get_children(self, path: str) -> list[str]:
        """Return the names below a node; none when it is not there."""
        answer = self._ask(CHILDREN, text(path), NAMES)
        names, at = [], 5
        for _ in range(struct.unpack_from(">I", answer, 1)[0]):
            name, at = taken(answer, at)
            names.append(name.decode())
        return names

    def _node(self, path: str) -> Found | None:
        answer = self._ask(GET, struct.pack(">I", 1) + text(path), NODES)
        assert struct.unpack_from(">I", answer, 1) == (1,)
        if not answer[5]:
            return None
        _, at = taken(answer, 6)
        data, at = taken(answer, at)
        version, czxid, _, _ = struct.unpack_from(">iqqB", answer, at)
        return Found(data, version, czxid)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(ANSWER_S)
            connection.connect(self._path)
            hello = struct.pack(">8sHqI", b"BNBSSTOR", 1, 0, SESSION_MS) + text("the tests")
            connection.sendall(frame(HELLO, hello))
            if received(connection)[0] != WELCOME:
                raise OSError("the store does not welcome us")
        except BaseException:
            connection.close()
            raise
        return connection

    def _ask(self, kind: int, body: bytes, expected: int) -> bytes:
        deadline = time.monotonic() + 2 * ANSWER_S
        while True:
            try:
                self._socket.sendall(frame(kind, body))
                answer = received(self._socket)
                if answer[0] == expected:
                    return answer
                raise OSError(f"an answer of kind {answer[0]}")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            self._socket.close()
            try:
                self._socket = self._connect()
            except OSError:
                pass  # it is away; the next attempt fails on the closed socket


def frame(kind: int, body: bytes) -> bytes:
    """Return a frame as it is sent."""
    return struct.pack(">IB", 1 + len(body), kind) + body


def text(value: str) -> bytes:
    """Return a text as it stands in a frame."""
    encoded = value.encode()
    return struct.pack(">I", len(encoded)) + encoded


def taken(answer: bytes, at: int) -> tuple[bytes, int]:
    """Return what stands there with its length before it, and where it ends."""
    (size,) = struct.unpack_from(">I", answer, at)
    return answer[at + 4 : at + 4 + size], at + 4 + size


def received(connection: socket.socket) -> bytes:
    """Return a frame from its kind on. Raises OSError when the connection ends before."""
    return exactly(connection, struct.unpack(">I", exactly(connection, 4))[0])


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes."""
    parts = b""
    while len(parts) < size:
        piece = connection.recv(size - len(parts))
        if not piece:
            raise OSError("the store has closed the connection")
        parts += piece
    return parts
