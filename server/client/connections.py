"""How brokers are reached: TCP, TLS and log-ins stacked, and one connection to each broker and lane.

A lane is a connection of its own to the same broker, for requests that wait there: brokers answer each connection in
order. A connection that was idle for `IDLE_S` is opened anew, as brokers close such connections
(connections.max.idle.ms), and a request that meets the close may or may not have been seen.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from barnabas.kproto import ApiKey
from barnabas.server.client.approach import Approach
from barnabas.server.client.failures import Unreachable
from barnabas.server.client.versions import choose
from barnabas.server.network.peers import Connect, PeerConnection
from barnabas.server.runtime.wording import causes, system_says

if TYPE_CHECKING:
    from barnabas.replication import Endpoint

ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
ANSWER_ELEMENTS_MAX: Final = 3_000_000
"""More than any answer that is asked for here: 300,000 partitions, or a batch of 100 MB. An element of one byte takes a
hundred in memory.
"""
IDLE_S: Final = 240.0
MAIN: Final = "main"
"""The lane of requests that are answered at once."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The fields of `Endpoint`, without its package: loading that would be a third of a command's start."""

    listener: str
    host: str
    port: int
    security_protocol: str


def endpoint(host: str, port: int, security_protocol: str) -> Endpoint:
    """Where a broker is; the name of its listener is not known."""
    return cast("Endpoint", _Place("", host, port, security_protocol))


async def tcp(endpoint: Endpoint) -> trio.abc.Stream:
    """A TCP connection, with the system's own words for why there is none. Raises OSError."""
    try:
        return await trio.open_tcp_stream(endpoint.host, endpoint.port)
    except OSError as error:
        cause = error.__cause__
        if error.errno is None and cause is not None:  # one for each address that was tried
            for each in causes(cause):
                if isinstance(each, OSError) and each.errno is not None:
                    raise OSError(each.errno, os.strerror(each.errno).lower()) from None
        raise OSError(error.errno or errno.EIO, system_says(error)) from None


def approached(approach: Approach, carrier: Connect = tcp) -> Connect:
    """A `Connect` over another one, as the approach wants it."""
    connect = carrier
    if approach.tls is not None:
        from barnabas.server.network.peer_tls import encrypted

        context = approach.tls
        connect = encrypted(connect, lambda: context)
    if approach.credentials is not None:
        from barnabas.server.network.peer_login import logging_in  # loads the mechanisms

        connect = logging_in(connect, approach.credentials)
    return connect


class Pool:
    """Connections by address and lane, opened when they are used first. timeout_s: to connect, and for an answer."""

    def __init__(self, connect: Connect, client_id: str, timeout_s: float) -> None:
        self._connect = connect
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._open: dict[tuple[Endpoint, str], _Kept] = {}
        self._is_closed = False

    async def ask(
        self,
        endpoint: Endpoint,
        key: ApiKey,
        make: Callable[[int], Any],
        *,
        lane: str = MAIN,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer to `make(version)`. Raises PeerError, NotSent, Unsupported; Unreachable after `close`."""
        async with self._use(endpoint, lane) as connection:
            version = choose(await connection.versions(endpoint), key, f"{endpoint.host}:{endpoint.port}")
            return await connection.ask(endpoint, make(version), version, timeout_s=timeout_s)

    async def version(self, endpoint: Endpoint, key: ApiKey) -> int:
        """The version of `key` to ask this broker in. Raises PeerError, Unsupported; Unreachable after `close`."""
        async with self._use(endpoint, MAIN) as connection:
            return choose(await connection.versions(endpoint), key, f"{endpoint.host}:{endpoint.port}")

    @asynccontextmanager
    async def _use(self, endpoint: Endpoint, lane: str) -> AsyncIterator[PeerConnection]:
        if self._is_closed:
            raise Unreachable("the connections to the brokers were closed")
        kept = self._open.get((endpoint, lane))
        if kept is None:
            kept = self._open[endpoint, lane] = _Kept(self._new())
        if not kept.users and trio.current_time() - kept.used > IDLE_S:
            await kept.connection.close()
        kept.users += 1
        try:
            yield kept.connection
        finally:
            kept.users -= 1
            kept.used = trio.current_time()
            if self._is_closed:  # whoever waited for his turn has opened it again
                await kept.connection.close()

    def _new(self) -> PeerConnection:
        return PeerConnection(
            self._connect,
            self._client_id,
            self._timeout_s,
            answer_bytes_max=ANSWER_BYTES_MAX,
            answer_elements_max=ANSWER_ELEMENTS_MAX,
        )

    def is_connected(self, endpoint: Endpoint) -> bool:
        """There is a connection for quick requests."""
        kept = self._open.get((endpoint, MAIN))
        return kept is not None and kept.connection.is_open

    async def keep_only(self, endpoints: Iterable[Endpoint]) -> None:
        """Close what is idle and leads to other addresses: brokers come and go."""
        wanted = set(endpoints)
        for place in [place for place, kept in self._open.items() if place[0] not in wanted and not kept.users]:
            await self._open.pop(place).connection.close()

    async def close(self) -> None:
        """Close all, for good: whoever still asks must not log in anew. Requests under way end with PeerError."""
        self._is_closed = True
        for kept in list(self._open.values()):
            await kept.connection.close()
        self._open.clear()


class _Kept:
    __slots__ = ("connection", "used", "users")

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection
        self.used = trio.current_time()
        self.users = 0


def words_of(error: BaseException) -> str:
    """A failed connection attempt without the number of its error."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
        return str(error).replace(str(cause), cause.strerror or os.strerror(cause.errno))
    return str(error)
