"""Listening sockets of the reactor: new connections are accepted while limits
(`barnabas.server.security.quotas.connections`) and the process's descriptors allow more, and wait in the backlog
otherwise.
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

Accept = Callable[[socket.socket, Any], Connection | None]
Secure = Callable[[], TlsCarrier]


def always() -> bool:
    """No limits."""
    return True


class _Listener(NamedTuple):
    sock: socket.socket
    accept: Accept
    secure: Secure | None
    may_accept: Callable[[], bool]


class Acceptor:
    """See the module. count(): open connections. take(socket, connection, secure): serve a new one;
    without a connection it is rejected.
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
        """A connection was accepted since this was last set to False."""

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, sock: socket.socket, accept: Accept, secure: Secure | None, may_accept: Callable[[], bool]) -> None:
        """Part of `Reactor.add_listener`."""
        self._epoll.register(sock.fileno(), READABLE)
        self._listeners[sock.fileno()] = _Listener(sock, accept, secure, may_accept)

    def remove(self, sock: socket.socket) -> None:
        """Stop accepting from this one, and close it."""
        fd = sock.fileno()
        del self._listeners[fd]
        self._paused.discard(fd)
        self._epoll.unregister(fd)
        sock.close()

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        for fd, listener in self._listeners.items():
            self._epoll.unregister(fd)
            listener.sock.close()
        self._listeners.clear()

    def accept(self, fd: int) -> None:
        """Accept what waits at a descriptor, if it is one of a listener."""
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
                # No memory, or no descriptors in the whole system: leave the rest in the backlog until the next sweep.
                log.error("pausing accept: %s", system_says(error))
                self._pause(fd)
                return
            self.has_accepted = True
            try:
                self._take(sock, listener.accept(sock, address), listener.secure)
            except Exception as error:
                # The system's (the peer has disconnected, no memory) or ours: it costs this connection.
                sock.close()
                contain(log, f"accepting the connection of {address}", error)

    def _pause(self, fd: int) -> None:
        self._epoll.modify(fd, 0)
        self._paused.add(fd)

    def resume_accepting(self) -> None:
        """Accept again where that was paused: a connection has ended, limits have changed, or time has passed."""
        if not self._paused or self._epoll.closed:
            return
        for fd in self._paused:
            if fd in self._listeners:
                self._epoll.modify(fd, READABLE)
        self._paused.clear()
