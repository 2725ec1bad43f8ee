"""Many connections of strangers in one loop. Each says what its script says: the next input follows the answer, or does
not wait for it. Whoever is closed comes again as somebody else.
"""

from __future__ import annotations

import random
import select
import socket
import ssl
import struct
import time
from collections.abc import Mapping

from compat_tests.fuzz.strangers.talk import Talker, Visit

CONNECTIONS = 128
PATIENCE_S = (0.0, 0.0, 0.002, 0.02)
"""How long a link waits for an answer before it goes on."""
SEND_S = 5.0
RECEIVE_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class _Link:
    def __init__(self, sock: socket.socket, visit: Visit, patience_s: float) -> None:
        self.sock = sock
        self.script = visit.script
        self.patience_s = patience_s
        self.out = b""
        self.due = 0.0
        self.has_begun = False
        self.mask = 0


class Storm:
    """addresses: by protocol. client: the context of those who go through TLS."""

    def __init__(
        self,
        addresses: Mapping[str, tuple[str, int]],
        talker: Talker,
        rng: random.Random,
        client: ssl.SSLContext,
        connections: int = CONNECTIONS,
    ) -> None:
        self._addresses = addresses
        self._talker = talker
        self._rng = rng
        self._client = client
        self._connections = connections
        self._poll = select.epoll()
        self._links: dict[int, _Link] = {}
        self.inputs = self.answers = self.visits = self.refused = 0

    def step(self, seconds: float = 0.005) -> None:
        """Send, wait for at most `seconds`, read."""
        while len(self._links) < self._connections and self._open():
            pass
        for fd, events in self._poll.poll(seconds, 512):
            link = self._links.get(fd)
            if link is not None:
                self._serve(link, events)
        now = time.monotonic()
        for link in [link for link in self._links.values() if link.due <= now]:
            if link.out:
                self._end(link)  # the broker reads no more of it
            else:
                self._go_on(link, b"")

    def close(self) -> None:
        for link in list(self._links.values()):
            self._end(link)
        self._poll.close()

    def _open(self) -> bool:
        visit = self._talker.visit()
        try:
            if visit.through_tls:
                plain = socket.create_connection(self._addresses[visit.listener], SEND_S)
                sock: socket.socket = self._client.wrap_socket(plain, server_hostname="localhost")
                sock.setblocking(False)
            else:
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(self._addresses[visit.listener])
        except OSError:
            self.refused += 1
            return False
        self.visits += 1
        link = self._links[sock.fileno()] = _Link(sock, visit, self._rng.choice(PATIENCE_S))
        link.due = time.monotonic() + SEND_S
        link.mask = select.EPOLLOUT
        self._poll.register(sock.fileno(), link.mask)
        return True

    def _serve(self, link: _Link, events: int) -> None:
        try:
            if events & select.EPOLLIN:
                came = link.sock.recv(RECEIVE_BYTES)
                if not came:
                    self._end(link)
                    return
                self.answers += 1
                if not link.out:
                    self._go_on(link, came)
                    return
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self._end(link)
                return
            if events & select.EPOLLOUT:
                if link.has_begun:
                    self._send(link)
                else:
                    link.has_begun = True
                    self._go_on(link, b"", begin=True)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._end(link)

    def _go_on(self, link: _Link, answer: bytes, *, begin: bool = False) -> None:
        """The next input."""
        try:
            link.out = next(link.script) if begin else link.script.send(answer)
        except StopIteration:
            self._end(link)
            return
        self.inputs += 1
        try:
            self._send(link)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._watch(link, select.EPOLLIN | select.EPOLLOUT)
        except OSError:
            self._end(link)

    def _send(self, link: _Link) -> None:
        if link.out:
            link.out = link.out[link.sock.send(link.out) :]
        waits = SEND_S if link.out else link.patience_s
        link.due = time.monotonic() + waits
        self._watch(link, select.EPOLLIN | (select.EPOLLOUT if link.out else 0))

    def _watch(self, link: _Link, mask: int) -> None:
        if mask != link.mask:
            link.mask = mask
            self._poll.modify(link.sock.fileno(), mask)

    def _end(self, link: _Link) -> None:
        if self._links.pop(link.sock.fileno(), None) is None:
            return
        if self._rng.random() < 0.2:
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        link.sock.close()
