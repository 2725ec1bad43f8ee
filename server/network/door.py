"""The door: what becomes of a connection that the reactor has accepted, and whether it may accept one more.

The limits are those of `barnabas.server.security.quotas.connections`; here they get values, a clock and sockets.
Whoever has to wait is muted: not a byte of his is read.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.values import TypedValues
from barnabas.server.network.addresses import HostLimits, plain_host
from barnabas.server.network.connection import LOGIN_S, Connection, Dispatch, Transport
from barnabas.server.network.strangers import Quiet
from barnabas.server.runtime.timers import Timers
from barnabas.server.security.quotas.connections import Ceiling, ConnectionLimits, Held, Refused

if TYPE_CHECKING:
    from barnabas.server.network.login import LoginDesk

log = logging.getLogger("barnabas.network")


class Hall(Transport, Protocol):
    """Where connections are served: the reactor."""

    def listen_again(self) -> None:
        """Look who waits to be accepted."""

    def close_excess(self) -> None:
        """Close connections that are too many."""


class Door:
    """Makes connections for accepted sockets. `desks`: by name, the listeners whose clients log in first."""

    def __init__(
        self,
        dispatch: Dispatch,
        hall: Callable[[], Hall],
        config: Callable[[], BrokerConfig],
        limits: ConnectionLimits,
        timers: Timers,
        desks: Mapping[str, LoginDesk] = MappingProxyType({}),
    ) -> None:
        self._dispatch = dispatch
        self._hall = hall
        self._config = config
        self._limits = limits
        self._timers = timers
        self._desks = desks
        self._held: set[Connection] = set()
        self._quiet = Quiet()
        self.hosts = HostLimits(limits.limit_hosts)
        self._set_limits()

    # -- limits ------------------------------------------------------------------------------------------------------

    def config_changed(self) -> None:
        """Settings were changed while the broker runs, perhaps those of limits."""
        self._set_limits()
        self._hall().listen_again()
        self._hall().close_excess()

    def _set_limits(self) -> None:
        config = self._config()
        own = {address.name: _ceiling(config.for_listener(address.name)) for address in config.listeners}
        self._limits.limit(_ceiling(config), own)
        self._limits.limit_each_host(config.get_int("max.connections.per.ip"))
        self.hosts.set(config.max_connections_per_ip_overrides)

    def may_accept(self, listener: str) -> Callable[[], bool]:
        """What the reactor asks before it accepts one more connection on `listener`."""
        return lambda: self._limits.may_accept(listener, trio.current_time())

    # -- coming and going --------------------------------------------------------------------------------------------

    def welcome(self, listener: str) -> Callable[[socket.socket, Any], Connection | None]:
        """What the reactor calls for a socket accepted on `listener`."""

        def welcome(sock: socket.socket, address: Any) -> Connection | None:
            host, now = plain_host(str(address[0])), trio.current_time()
            found = self._limits.accepted(listener, host, now)
            if isinstance(found, Refused):
                self._refused(host, found.limit, now)
                return None
            connection = self.connection(listener, host, self._hall())
            if isinstance(found, Held):
                # A client that is closed at once comes again at once.
                self._held.add(connection)
                log.debug("closing a connection of %s in %d ms: it connects too often", host, found.delay_ms)
                self._wait(connection, now + found.delay_ms / 1000, connection.abort)
                return connection
            self._prepare(sock)
            if found.delay_ms:
                served_at = now + found.delay_ms / 1000

                def serve() -> None:
                    connection.unmute(trio.current_time())
                    self._hall().listen_again()

                self._wait(connection, served_at, serve)
            return connection

        return welcome

    def _wait(self, connection: Connection, until: float, then: Callable[[], None]) -> None:
        connection.mute(until)
        self._timers.at(until, then)

    def _refused(self, host: str, limit: int, now: float) -> None:
        unsaid = self._quiet.due(host, now)
        if unsaid is not None:
            more = f" ({unsaid} more were refused since this was last said)" if unsaid else ""
            log.warning("refusing a connection of %s: max.connections.per.ip=%d is reached%s", host, limit, more)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer whose machine went dark says nothing; without this its waiting request would keep the socket.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        config = self._config()
        send_buffer_bytes = config.get_int("socket.send.buffer.bytes")
        if send_buffer_bytes > 0 and config.is_set("socket.send.buffer.bytes"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

    def connection(self, listener: str, host: str, transport: Transport) -> Connection:
        """A connection over any transport; whoever must log in there does that first."""
        desk = self._desks.get(listener)
        if desk is None:
            return Connection(
                self._dispatch,
                transport,
                listener=listener,
                client_host=host,
                max_frame_bytes=self._config().get_int("socket.request.max.bytes"),
            )
        connection = Connection(
            desk.begin(),
            transport,
            listener=listener,
            client_host=host,
            max_frame_bytes=desk.frame_bytes_before,
        )
        connection.known_by = trio.current_time() + LOGIN_S
        return connection

    def closed(self, connection: Connection) -> None:
        """The reactor tells that a connection it was given has ended."""
        if connection in self._held:
            self._held.remove(connection)
        else:
            self._limits.left(connection.listener, connection.client_host)


def _ceiling(config: TypedValues) -> Ceiling:
    return Ceiling(config.get_int("max.connections"), config.get_int("max.connection.creation.rate"))
