"""Listening sockets and the welcome: who may connect, and what a new connection is given.

`max.connections` lets further clients wait in the backlog; `max.connections.per.ip` closes them at once, as Apache
Kafka does. An address that connects too often (KIP-612) is left waiting for a second at most, and its connection closed
then. `sweep_idle` closes who is silent for `connections.max.idle.ms`. Not done: TLS listeners,
`max.connection.creation.rate`, limits per listener.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.connection import Connection, Dispatch, Transport
from barnabas.server.network.login import Login, LoginDesk
from barnabas.server.runtime.timers import Timers
from barnabas.server.runtime.wording import system_says
from barnabas.server.settings.endpoints import ListenAddress

if TYPE_CHECKING:
    from barnabas.server.network.reactor import Reactor

log = logging.getLogger("barnabas.network")

SWEEP_S = 1.0


_ADVICE = {
    errno.EADDRINUSE: "another program listens there, perhaps another broker",
    errno.EADDRNOTAVAIL: "no interface of this machine has it; what clients shall connect to is advertised.listeners",
    errno.EACCES: "ports below 1024 are for privileged users",
    socket.EAI_NONAME: "listeners takes addresses of this machine, or names of them",
}


_LOOPBACK = ("127.0.0.1", "::1")
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class CannotListen(Exception):
    """A listener's address cannot be used; the message says which and why. number: the system's, if it was that."""

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.number = number


def bind(address: ListenAddress, backlog: int, receive_buffer_bytes: int) -> list[socket.socket]:
    """Non-blocking listening sockets, on one port: one; for `localhost` one for each loopback address of this machine.
    An empty host means every interface. Raises CannotListen.
    """
    if address.host.lower() == "localhost":
        listening = _bind_loopback(address, backlog)
    else:
        listening = [_bind_one(address, address.host, address.port, backlog)]
    for sock in listening:
        if receive_buffer_bytes > 0:
            # Set before accepting, so that the window is scaled for it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
    return listening


def _bind_loopback(address: ListenAddress, backlog: int, tries: int = 20) -> list[socket.socket]:
    """Both addresses, as clients try either first: on the other one, another program would hear what is for us."""
    listening: list[socket.socket] = []
    port = address.port
    try:
        for host in _LOOPBACK:
            try:
                sock = _bind_one(address, host, port, backlog)
            except CannotListen as error:
                if error.number in _NO_SUCH_ADDRESS and (listening or host != _LOOPBACK[-1]):
                    continue
                raise
            listening.append(sock)
            port = sock.getsockname()[1]
        return listening
    except CannotListen as error:
        for sock in listening:
            sock.close()
        if address.port or error.number != errno.EADDRINUSE or tries <= 1:
            raise
    # The port that was free on one was taken on the other.
    return _bind_loopback(address, backlog, tries - 1)


def _bind_one(address: ListenAddress, host: str, port: int, backlog: int) -> socket.socket:
    try:
        if host in ("", "::") and socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        why = f"cannot listen on {address}: {system_says(error)}"
        raise CannotListen(f"{why} ({advice})" if advice else why, error.errno) from None
    except UnicodeError:  # out of the name's encoding for DNS
        raise CannotListen(f"cannot listen on {address}: that is no host name") from None


def bind_all(config: BrokerConfig) -> list[tuple[socket.socket, str]]:
    """Sockets for each of `listeners`, with the listener's name. Raises CannotListen, and leaves none open then."""
    listening: list[tuple[socket.socket, str]] = []
    open_to_others: list[str] = []
    key = "socket.receive.buffer.bytes"
    receive_buffer_bytes = config.get_int(key) if config.is_set(key) else -1
    try:
        for address in config.listeners:
            for sock in bind(address, config.get_int("socket.listen.backlog.size"), receive_buffer_bytes):
                listening.append((sock, address.name))
                if not _is_loopback(sock):
                    open_to_others.append(str(address))
    except BaseException:
        for sock, _ in listening:
            sock.close()
        raise
    if open_to_others and not config.get_optional_str("authorizer.class.name"):
        log.warning(
            "open to other machines without access control: %s; whoever reaches it may read, change and delete all",
            ", ".join(open_to_others),
        )
    return listening


def _is_loopback(sock: socket.socket) -> bool:
    host = plain_host(str(sock.getsockname()[0]))
    return host == "::1" or host.startswith("127.")


class Door:
    """Makes connections for accepted sockets, and counts them by address. `desks`: by name, the listeners whose clients
    log in first. too_soon(host): one more connection; for how many milliseconds it is not served, and then closed.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        transport: Callable[[], Transport],
        config: Callable[[], BrokerConfig],
        desks: Mapping[str, LoginDesk] = MappingProxyType({}),
        too_soon: Callable[[str], int] = lambda host: 0,
        timers: Timers | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._desks = desks
        self._too_soon = too_soon
        self._timers = timers
        self._transport = transport
        self._config = config
        self._per_host: Counter[str] = Counter()

    def welcome(self, listener: str) -> Callable[[socket.socket, Any], Connection | None]:
        """What the reactor calls for a socket accepted on `listener`."""

        def welcome(sock: socket.socket, address: Any) -> Connection | None:
            host = plain_host(str(address[0]))
            config = self._config()
            limit = config.max_connections_per_ip_overrides.get(host, config.get_int("max.connections.per.ip"))
            if self._per_host[host] >= limit:
                log.warning("refusing a connection of %s: max.connections.per.ip=%d is reached", host, limit)
                return None
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A peer whose machine went dark says nothing; without this its waiting request would keep the socket.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            send_buffer_bytes = config.get_int("socket.send.buffer.bytes")
            if send_buffer_bytes > 0 and config.is_set("socket.send.buffer.bytes"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            self._per_host[host] += 1
            connection = self.connection(listener, host, self._transport())
            delay_ms = self._too_soon(host)
            if delay_ms and self._timers is not None:
                # A client that is closed at once comes again at once.
                closed_at = trio.current_time() + delay_ms / 1000
                connection.mute(closed_at)
                self._timers.at(closed_at, connection.abort)
                log.debug("closing a connection of %s in %d ms: it connects too often", host, delay_ms)
            return connection

        return welcome

    def connection(self, listener: str, host: str, transport: Transport) -> Connection:
        """A connection over any transport; whoever must log in there does that first."""
        desk = self._desks.get(listener)
        if desk is not None:
            return Connection(
                Login(desk),
                transport,
                listener=listener,
                client_host=host,
                max_frame_bytes=desk.frame_bytes_before,
            )
        return Connection(
            self._dispatch,
            transport,
            listener=listener,
            client_host=host,
            max_frame_bytes=self._config().get_int("socket.request.max.bytes"),
        )

    def closed(self, connection: Connection) -> None:
        """The reactor tells that a connection it was given has ended."""
        host = connection.client_host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]


async def sweep_idle(reactor: Reactor, current_config: Callable[[], BrokerConfig]) -> None:
    """Close idle connections until cancelled."""
    while True:
        await trio.sleep(SWEEP_S)
        idle_ms = current_config().get_int("connections.max.idle.ms")
        reactor.sweep(trio.current_time() - idle_ms / 1000 if idle_ms >= 0 else float("-inf"))


def plain_host(host: str) -> str:
    """The address as a person writes it: IPv4 addresses seen by a dual-stack socket lose their prefix."""
    return host.removeprefix("::ffff:")
