"""HTTP on trio by Hypercorn, within bounds that it has not: how many connections there are, and how long one may take
to read what it is sent.

- `connections` at a time, `each` from one address (proxies that are trusted excepted). For one that is too many the
  quietest goes, if no byte has moved there for `spare_s`; else the new one is told 503 and closed.
- A visitor who does not take the next `PIECE` bytes within `send_s` is gone.
- A head that is not whole, and a connection without request, end after Hypercorn's `keep_alive_timeout`; the times and
  numbers of requests are bounded by `web/admission.py` and `app.py`.

Hypercorn's own `serve` takes no such streams, and an exception of one connection would end it; so its server of one
connection (`TCPServer`) is called here, contained. It is the same in Hypercorn 0.17 and 0.18.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app

from barnabas.server.network.addresses import plain_host
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.console")

PIECE: Final = 64 * 1024
REFUSE_S: Final = 1.0
LEFT_S: Final = 5.0
"""How long a request goes on whose visitor has left."""
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: 50\r\n\r\nToo many connections to this console; try later.\r\n"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """See the module. In numbers of connections, and seconds."""

    connections: int = 256
    each: int = 64
    spare_s: float = 15.0
    send_s: float = 30.0


class Visitor(trio.abc.HalfCloseableStream):
    """A connection, as Hypercorn uses it. `moved`: when a byte was last received or taken; long ago if the visitor has
    left. `scope`: of its task, which
    outlasts a closed stream by Hypercorn's `keep_alive_timeout` unless it is cancelled.
    """

    def __init__(self, stream: trio.SocketStream, address: str, send_s: float) -> None:
        self.socket = stream.socket
        self.address = address
        self.moved = trio.current_time()
        self.scope = trio.CancelScope()
        self._stream = stream
        self._send_s = send_s

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with memoryview(data) as whole:
            for at in range(0, len(whole), PIECE):
                try:
                    with trio.fail_after(self._send_s), whole[at : at + PIECE] as piece:
                        await self._stream.send_all(piece)
                except trio.TooSlowError:
                    await self.drop()
                    raise trio.BrokenResourceError("the visitor does not read") from None
                self.moved = trio.current_time()

    async def drop(self) -> None:
        self.scope.cancel()
        await trio.aclose_forcefully(self)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            data = await self._stream.receive_some(max_bytes)
        finally:
            if data:
                self.moved = trio.current_time()
            else:
                self.moved = float("-inf")
                self.scope.deadline = trio.current_time() + LEFT_S
        return data

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Front:
    """Serves `app`, an ASGI application. is_proxy(address): a trusted one, with connections of many visitors."""

    def __init__(
        self, app: Any, config: Config, bounds: Bounds, is_proxy: Callable[[str], bool] = lambda address: False
    ) -> None:
        self._app = wrap_app(app, config.wsgi_max_body_size, "asgi")
        self._config = config
        self._bounds = bounds
        self._is_proxy = is_proxy
        self._context = WorkerContext(None)
        self._here: dict[Visitor, None] = {}
        self._by_address: Counter[str] = Counter()
        self._told = float("-inf")

    @property
    def connections(self) -> int:
        return len(self._here)

    async def serve(
        self,
        listening: Sequence[socket.socket],
        ended: trio.Event,
        grace_s: float,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until `ended`; then answers under way have `grace_s`. The sockets are closed."""
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listening]
        async with trio.open_nursery() as visitors:
            async with trio.open_nursery() as nursery:
                serving = partial(trio.serve_listeners, self._handle, listeners, handler_nursery=visitors)
                await nursery.start(serving)
                task_status.started()
                await ended.wait()
                nursery.cancel_scope.cancel()
            await cast("Any", self._context.terminated).set()
            visitors.cancel_scope.deadline = trio.current_time() + grace_s

    async def _handle(self, stream: trio.SocketStream) -> None:
        try:
            address = plain_host(str(stream.socket.getpeername()[0]))
        except OSError:  # it has left
            await trio.aclose_forcefully(stream)
            return
        if not await self._has_room(address):
            await _refuse(stream)
            return
        visitor = Visitor(stream, address, self._bounds.send_s)
        self._here[visitor] = None
        self._by_address[address] += 1
        try:
            with visitor.scope:
                await cast("Any", TCPServer)(self._app, self._config, self._context, {}, visitor)
        except Exception as error:
            contain(log, f"a connection from {address}", error)
        finally:
            self._forget(visitor)
            await trio.aclose_forcefully(visitor)

    def _forget(self, visitor: Visitor) -> None:
        if visitor in self._here:
            del self._here[visitor]
            self._by_address[visitor.address] -= 1
            if not self._by_address[visitor.address]:
                del self._by_address[visitor.address]

    async def _has_room(self, address: str) -> bool:
        """Whether one more from there may come; the quietest connection may have gone for it."""
        is_crowd = not self._is_proxy(address) and self._by_address[address] >= self._bounds.each
        if not is_crowd and len(self._here) < self._bounds.connections:
            return True
        among = [each for each in self._here if each.address == address] if is_crowd else list(self._here)
        quietest = min(among, key=lambda each: each.moved)
        if trio.current_time() - quietest.moved < self._bounds.spare_s:
            if trio.current_time() - self._told > 60:
                log.warning(
                    "%d connections, %d of them from %s: that is too many", len(self._here), len(among), address
                )
                self._told = trio.current_time()
            return False
        self._forget(quietest)
        await quietest.drop()
        return True


async def _refuse(stream: trio.SocketStream) -> None:
    with trio.move_on_after(REFUSE_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(BUSY)
    await trio.aclose_forcefully(stream)
