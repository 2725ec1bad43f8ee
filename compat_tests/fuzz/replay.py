"""Send a recording again: steps in their order, each connection's answers read meanwhile, values that differ from run
to run (member ids, topic ids, fetch sessions) put in as this run's broker gave them.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable

from barnabas.kproto import DecodeError
from compat_tests.fuzz.attack import read_answer
from compat_tests.fuzz.pools import Pools, Sent
from compat_tests.fuzz.recording import Step

PATIENCE_S = 60.0
SEND_S = 60.0


class _Link:
    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, SEND_S)
        self.received = bytearray()
        self.owed: deque[tuple[int, int]] = deque()
        self.is_open = True


class Replay:
    """Against one address. `answers` counts what came back. patience_s: for an answer, where one is waited for."""

    def __init__(self, address: tuple[str, int], patience_s: float = PATIENCE_S) -> None:
        self._address = address
        self._patience_s = patience_s
        self._links: dict[int, _Link] = {}
        self._pools = Pools()
        self._learnt: dict[tuple[int, str], deque[bytes]] = {}
        self._changed: dict[bytes, bytes] = {}
        self.answers = 0

    def run(self, steps: Iterable[Step]) -> None:
        """All steps; then everything that is owed is waited for, for a while."""
        for step in steps:
            self._step(step)
        self._read_until(lambda: not any(link.owed and link.is_open for link in self._links.values()))

    def waiting(self) -> list[str]:
        """The requests that are owed an answer on connections that are open."""
        return [
            f"API {key} v{version} on connection {number}"
            for number, link in self._links.items()
            if link.is_open
            for key, version in link.owed
        ]

    def close(self) -> None:
        for link in self._links.values():
            link.sock.close()
        self._links.clear()

    def _step(self, step: Step) -> None:
        if step.action == "learnt":
            queue = self._learnt.setdefault((step.connection, step.label), deque())
            self._read_until(lambda: bool(queue))
            if queue and len(queue[0]) == len(step.data):
                self._changed[step.data] = queue.popleft()
            return
        if step.action == "close":
            link = self._links.pop(step.connection, None)
            if link is not None:
                link.sock.close()
            return
        link = self._link(step.connection)
        if step.action == "wait":
            self._read_until(lambda: not link.owed or not link.is_open)
        elif step.action == "eof":
            try:
                link.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        else:
            data = step.on_the_wire
            for old, new in self._changed.items():
                data = data.replace(old, new)
            try:
                link.sock.sendall(data)
            except OSError:
                link.is_open = False
            if len(data) >= 8:
                link.owed.append(struct.unpack_from(">hh", data, 4))
            self._read(0)

    def _link(self, number: int) -> _Link:
        found = self._links.get(number)
        if found is None:
            found = self._links[number] = _Link(self._address)
        return found

    def _read_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._patience_s
        while not condition() and time.monotonic() < deadline:
            self._read(0.02)

    def _read(self, seconds: float) -> None:
        links = [link for link in self._links.values() if link.is_open]
        ready, _, _ = select.select([link.sock for link in links], [], [], seconds)
        for number, link in self._links.items():
            if link.sock not in ready:
                continue
            try:
                data = link.sock.recv(1 << 18)
            except OSError:
                data = b""
            if not data:
                link.is_open = False
                continue
            link.received += data
            self._frames(number, link)

    def _frames(self, number: int, link: _Link) -> None:
        while len(link.received) >= 4:
            (size,) = struct.unpack_from(">i", link.received)
            if len(link.received) < 4 + size:
                return
            frame = bytes(link.received[4 : 4 + size])
            del link.received[: 4 + size]
            self.answers += 1
            if not link.owed:
                continue
            key, version = link.owed.popleft()
            try:
                answer = read_answer(key, version, frame)
            except (DecodeError, ValueError, KeyError):
                continue
            for kind, value in self._pools.see(key, Sent(), answer):
                self._learnt.setdefault((number, kind), deque()).append(value)


def replay(address: tuple[str, int], steps: Iterable[Step], patience_s: float = PATIENCE_S) -> int:
    """Send them; how many answers came."""
    one = Replay(address, patience_s)
    try:
        one.run(steps)
        return one.answers
    finally:
        one.close()
