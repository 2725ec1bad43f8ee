"""A connection over a trio stream, such as the memory streams of tests and of the simulation.

Same `Connection`, same dispatcher, another transport. File slices are read and sent as bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from barnabas.kproto import Part
from barnabas.logdir import FileSlice
from barnabas.server.network.connection import Connection, ProtocolViolation
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.network")

RECV_BYTES = 64 * 1024


class StreamTransport:
    """The transport of one connection over `stream`. `end_of_round` is called after each batch of received bytes."""

    def __init__(self, stream: trio.abc.Stream, end_of_round: Callable[[], None]) -> None:
        self._stream = stream
        self._end_of_round = end_of_round
        self._wake = Wakeup()
        self._scope = trio.CancelScope()

    def wake(self, connection: Connection) -> None:
        self._wake.set()

    def abort(self, connection: Connection) -> None:
        self._scope.cancel()

    async def serve(self, connection: Connection) -> None:
        """Serve until either side closes."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send, connection)
                    await self._receive(connection)
                    nursery.cancel_scope.cancel()
        finally:
            connection.lost()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.aclose_forcefully(self._stream)

    async def _receive(self, connection: Connection) -> None:
        try:
            while True:
                data = await self._stream.receive_some(RECV_BYTES)
                if not data:
                    return
                if not self._take_up(connection, partial(connection.receive, memoryview(bytearray(data)))):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def _take_up(self, connection: Connection, act: Callable[[], None]) -> bool:
        """Run the requests that `act` finds, and end the round. False: close the connection."""
        try:
            act()
        except ProtocolViolation:
            return False
        except Exception as error:
            contain(log, f"taking up requests of {connection.client_host}", error)
            return False
        finally:
            self._end_of_round()
        return True

    async def _send(self, connection: Connection) -> None:
        try:
            while True:
                while connection.out:
                    try:
                        data = _bytes_of(connection.out.popleft())
                    except (OSError, EOFError) as error:
                        log.error("closing the connection of %s: %s", connection.client_host, error)
                        self._scope.cancel()
                        return
                    await self._stream.send_all(data)
                    connection.sent(len(data))
                if connection.ends:
                    self._scope.cancel()
                    return
                backlog_bytes = connection.backlog_bytes
                if backlog_bytes and not connection.blocked:
                    if not self._take_up(connection, connection.resume):
                        self._scope.cancel()
                        return
                    if connection.out or connection.backlog_bytes != backlog_bytes:
                        continue  # but not for half a frame, whose rest may never come
                await self._wake.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._scope.cancel()


def _bytes_of(part: Part) -> bytes | bytearray | memoryview:
    if isinstance(part, FileSlice):
        return part.read()
    return part  # type: ignore[return-value]
