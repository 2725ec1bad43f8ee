"""Listening sockets of the reactor: new connections are accepted while there may be more, and wait in the backlog
otherwise: where limits say so (`barnabas.server.security.quotas.connections`), and where the process has no more
descriptors for them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.server.network.connection import Connection
from barnabas.server.network.readiness import READABLE
from barnabas.server.network.tls_carrier import TlsCarrier
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.descriptors import Allowance
from barnabas.server.runtime.wording import system_says

log = logging.getLogger("barnabas.network")

_ACCEPTS_PER_EVENT = 64

Welcome = Callable[[socket.socket, Any], Connection | None]
Secure = Callable[[], TlsCarrier]


def always() -> bool:
    """Without limits."""
    return True


class _Listener(NamedTuple):
    sock: socket.socket
    welcome: Welcome
    secure: Secure | None
    may_accept: Callable[[], bool]


class Acceptor:
    """See the module. count(): the connections that there are. take(socket, connection, secure): serve a new one;
    without a connection it is refused.
    """

    def __init__(
        self,
        epoll: Any,
        allowance: Allowance,
        count: Callable[[], int],
        take: Callable[[socket.socket, Connection | None, Secure | None], None],
    ) -> None:
        self._epoll = epoll
        self._allowance = allowance
        self._count = count
        self._take = take
        self._listeners: dict[int, _Listener] = {}
        self._paused: set[int] = set()
        self.has_accepted = False
        """There is somebody new since it was last set to False."""

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, sock: socket.socket, welcome: Welcome, secure: Secure | None, may_accept: Callable[[], bool]) -> None:
        """Part of `Reactor.add_listener`."""
        self._listeners[sock.fileno()] = _Listener(sock, welcome, secure, may_accept)
        self._epoll.register(sock.fileno(), READABLE)

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        for fd, listener in self._listeners.items():
            self._epoll.unregister(fd)
            listener.sock.close()
        self._listeners.clear()

    def accept(self, fd: int) -> None:
        """Somebody may be waiting at this descriptor, if it is one of ours."""
        listener = self._listeners.get(fd)
        if listener is None:
            return
        for _ in range(_ACCEPTS_PER_EVENT):
            if not listener.may_accept() or not self._allowance.admits(self._count(), fd):
                self._pause(fd)
                return
            try:
                sock, address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of memory, or the system of descriptors: leave the rest in the backlog until the next sweep.
                log.error("connections cannot be accepted for a moment: %s", system_says(error))
                self._pause(fd)
                return
            self.has_accepted = True
            try:
                self._take(sock, listener.welcome(sock, address), listener.secure)
            except Exception as error:
                # Of the system (the peer is gone already, out of memory) or ours: it costs this connection.
                sock.close()
                contain(log, f"taking up the connection of {address}", error)

    def _pause(self, fd: int) -> None:
        self._epoll.modify(fd, 0)
        self._paused.add(fd)

    def listen_again(self) -> None:
        """Somebody has left, or limits have changed, or time has passed: look who waits."""
        if not self._paused or self._epoll.closed:
            return
        for fd in self._paused:
            if fd in self._listeners:
                self._epoll.modify(fd, READABLE)
        self._paused.clear()
