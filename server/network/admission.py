"""Admission of connections: whether the reactor may accept one more, and what becomes of one that it has accepted.

The limits are those of `barnabas.server.security.quotas.connections`; here they get values, a clock and sockets.
A connection that has to wait is muted: nothing is read from it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.values import TypedValues
from barnabas.server.network.addresses import HostLimits, plain_host
from barnabas.server.network.connection import LOGIN_S, Connection, Dispatch, Meter, Transport
from barnabas.server.runtime.log_throttle import LogThrottle
from barnabas.server.runtime.timers import Timers
from barnabas.server.security.quotas.connections import Ceiling, ConnectionLimits, Held, Refused

if TYPE_CHECKING:
    from barnabas.server.network.login import LoginService

log = logging.getLogger("barnabas.network")


class ConnectionServer(Transport, Protocol):
    """Where connections are served: the reactor."""

    def resume_accepting(self) -> None:
        """Accept connections that wait in the backlog."""

    def close_excess(self) -> None:
        """Close connections beyond `max.connections`."""


class Admission:
    """Makes connections for accepted sockets. meter: counts their requests."""

    def __init__(
        self,
        dispatch: Dispatch,
        server: Callable[[], ConnectionServer],
        config: Callable[[], BrokerConfig],
        limits: ConnectionLimits,
        timers: Timers,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter
        self._dispatch = dispatch
        self._server = server
        self._config = config
        self._limits = limits
        self._timers = timers
        self._logins: dict[str, LoginService] = {}
        self._held: set[Connection] = set()
        self._throttle = LogThrottle()
        self.hosts = HostLimits(limits.limit_hosts)
        self._set_limits()

    # -- limits ------------------------------------------------------------------------------------------------------

    def config_changed(self) -> None:
        """Apply the limits of the settings now in force."""
        self._set_limits()
        self._server().resume_accepting()
        self._server().close_excess()

    def _set_limits(self) -> None:
        config = self._config()
        own = {address.name: _ceiling(config.for_listener(address.name)) for address in config.listeners}
        self._limits.listen_on(own)
        self._limits.limit(_ceiling(config), own)
        self._limits.limit_each_host(config.get_int("max.connections.per.ip"))
        self.hosts.set(config.max_connections_per_ip_overrides)

    @property
    def logins(self) -> Mapping[str, LoginService]:
        """The log-ins, by listener."""
        return self._logins

    @property
    def limits(self) -> ConnectionLimits:
        """How many connections there are."""
        return self._limits

    def set_login(self, listener: str, login: LoginService | None) -> None:
        """Have clients of this listener authenticate first; None: without authentication. For new connections."""
        if login is None:
            self._logins.pop(listener, None)
        else:
            self._logins[listener] = login

    def may_accept(self, listener: str) -> Callable[[], bool]:
        """Returns what says whether one more connection may be accepted on `listener` now."""
        return lambda: self._limits.may_accept(listener, trio.current_time())

    # -- connections -------------------------------------------------------------------------------------------------

    def accept(self, listener: str) -> Callable[[socket.socket, Any], Connection | None]:
        """Returns what makes the connection for a socket accepted on `listener`; None: the connection is rejected."""

        def accept(sock: socket.socket, address: Any) -> Connection | None:
            host, now = plain_host(str(address[0])), trio.current_time()
            found = self._limits.accepted(listener, host, now)
            if isinstance(found, Refused):
                self._rejected(host, found.limit, now)
                return None
            connection = self.connection(listener, host, self._server(), self._meter)
            connection.client_port = address[1] if len(address) > 1 else 0
            if isinstance(found, Held):
                # A client that is closed immediately reconnects immediately.
                self._held.add(connection)
                log.debug(
                    "closing the connection of %s in %d ms: connection_creation_rate exceeded", host, found.delay_ms
                )
                self._wait(connection, now + found.delay_ms / 1000, connection.abort)
                return connection
            self._prepare(sock)
            if found.delay_ms:
                served_at = now + found.delay_ms / 1000

                def serve() -> None:
                    connection.unmute(trio.current_time())
                    self._server().resume_accepting()

                self._wait(connection, served_at, serve)
            return connection

        return accept

    def _wait(self, connection: Connection, until: float, then: Callable[[], None]) -> None:
        connection.mute(until)
        self._timers.at(until, then)

    def _rejected(self, host: str, limit: int, now: float) -> None:
        more = self._throttle.due(host, now)
        if more is not None:
            log.warning("rejected a connection of %s: max.connections.per.ip=%d is reached%s", host, limit, more)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Notices a peer whose machine is down: otherwise a request that waits would keep the socket open.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        config = self._config()
        send_buffer_bytes = config.get_int("socket.send.buffer.bytes")
        if send_buffer_bytes > 0 and config.is_set("socket.send.buffer.bytes"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

    def connection(self, listener: str, host: str, transport: Transport, meter: Meter | None = None) -> Connection:
        """A connection over any transport; where the listener has SASL it starts with a `Login`. meter: counts its
        requests, if the transport tells it of rounds.
        """
        service = self._logins.get(listener)
        if service is None:
            return Connection(
                self._dispatch,
                transport,
                listener=listener,
                client_host=host,
                max_frame_bytes=self._config().get_int("socket.request.max.bytes"),
                meter=meter,
            )
        connection = Connection(
            service.begin(),
            transport,
            listener=listener,
            client_host=host,
            max_frame_bytes=service.frame_bytes_before,
            meter=meter,
        )
        connection.login_deadline = trio.current_time() + LOGIN_S
        return connection

    def closed(self, connection: Connection) -> None:
        """A connection made here has ended; called by the reactor."""
        if connection in self._held:
            self._held.remove(connection)
        else:
            self._limits.left(connection.listener, connection.client_host)


def _ceiling(config: TypedValues) -> Ceiling:
    return Ceiling(config.get_int("max.connections"), config.get_int("max.connection.creation.rate"))
