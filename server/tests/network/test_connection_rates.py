"""Addresses that connect too often: their connections are accepted, not served for a while, and closed."""

from __future__ import annotations

import socket
from typing import Any

import trio

from barnabas.server.network.connection import Connection
from barnabas.server.network.listeners import Door
from barnabas.server.runtime.timers import Timers
from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey
from barnabas.server.testing import embedded_broker


class Transport:
    """Knows what was closed, and when."""

    def __init__(self) -> None:
        self.aborted: list[float] = []

    def wake(self, connection: Connection) -> None:
        pass

    def abort(self, connection: Connection) -> None:
        self.aborted.append(trio.current_time())
        connection.lost()


async def test_a_connection_that_comes_too_soon_waits_and_is_closed(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        timers, transport, seen = Timers(), Transport(), []
        nursery.start_soon(timers.run)
        delays = {"10.0.0.1": 700, "10.0.0.2": 0}

        def dispatch(connection: Connection, frame: memoryview) -> Any:
            seen.append(connection.client_host)
            connection.abort()
            raise AssertionError

        door = Door(
            dispatch, lambda: transport, lambda: broker.services.config, too_soon=delays.__getitem__, timers=timers
        )
        begin = trio.current_time()
        with socket.socket() as sock:
            hasty = door.welcome("PLAINTEXT")(sock, ("10.0.0.1", 1))
            other = door.welcome("PLAINTEXT")(sock, ("10.0.0.2", 1))
        assert hasty is not None
        assert other is not None
        assert hasty.blocked
        assert not other.blocked
        hasty.receive(memoryview(b"\0\0\0\1x"))
        await trio.sleep(5)
        assert seen == []
        assert transport.aborted == [begin + 0.7]
        assert hasty.closed
        assert not other.closed
        nursery.cancel_scope.cancel()


async def test_the_limit_of_an_address_is_what_the_door_asks(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker:
        quota = {QuotaKey.CONNECTIONS: "1"}
        await broker.services.quotas.alter(QuotaEntity(ip="10.0.0.1"), quota)
        welcome = broker.parts.door.welcome("PLAINTEXT")

        def blocked(host: str) -> list[bool]:
            connections = []
            for port in range(12):
                with socket.socket() as sock:
                    connections.append(welcome(sock, (host, port)))
            return [connection is not None and connection.blocked for connection in connections]

        assert blocked("10.0.0.1") == [False] * 10 + [True] * 2
        assert blocked("10.0.0.2") == [False] * 12
