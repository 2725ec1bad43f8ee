"""The address of the control channel, bound while the broker starts. Most runs of a test suite never use it: what
serves it is loaded when somebody connects, so that a broker starts as fast with it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.network.listeners import CannotListen, bind, is_loopback
from barnabas.server.settings.endpoints import ListenAddress

if TYPE_CHECKING:
    from barnabas.server.control.controlled import Controlled

log = logging.getLogger("barnabas.control")

BACKLOG: Final = 16


class ControlListener:
    """Binds at once: raises CannotListen, also for what is not loopback. `url`: where it is."""

    def __init__(self, address: ListenAddress) -> None:
        try:
            self._listening = bind(address, BACKLOG, -1)
        except CannotListen as error:
            raise CannotListen(f"--control: {error}", error.number) from None
        if not all(map(is_loopback, self._listening)):
            self.close()
            raise CannotListen(f"--control: {address.host} is not an address of loopback, such as 127.0.0.1")
        host, port = self._listening[0].getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self, controlled: Callable[[], Controlled]) -> None:
        """Serve until cancelled. controlled: called when the first client connects."""
        try:
            async with trio.open_nursery() as nursery:

                async def until_called(sock: socket.socket) -> None:
                    await trio.lowlevel.wait_readable(sock)
                    nursery.cancel_scope.cancel()

                for sock in self._listening:
                    nursery.start_soon(until_called, sock)
            from barnabas.server.control.service import ControlService

            await ControlService(controlled()).run(self._listening)
        finally:
            self.close()

    def close(self) -> None:
        """Close the listening sockets."""
        for sock in self._listening:
            sock.close()
