"""A broker in this loop with its control channel on a port, and requests to it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h11
import trio

from barnabas.server.broker.broker import Broker
from barnabas.server.control.controlled import Controlled
from barnabas.server.control.listener import ControlListener
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.virtual_clock import VirtualClock
from barnabas.server.settings.endpoints import parse_control
from barnabas.server.tests.broker.lives_kit import living


class Said(NamedTuple):
    """An answer: `value` is its JSON."""

    status: int
    headers: dict[str, str]
    value: Any


class Channel(NamedTuple):
    broker: Broker
    url: str

    async def ask(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Said:
        """One request over a connection of its own. raw: instead of a body that is made JSON. headers: with `_` for
        `-`; those that are empty are left out.
        """
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        said = {"host": f"127.0.0.1:{port}", "content-type": "application/json", "content-length": str(len(data))}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = h11.Connection(h11.CLIENT)
        async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as stream:
            request = h11.Request(method=method, target=path, headers=[(k, v) for k, v in said.items() if v])
            await stream.send_all(connection.send(request) or b"")
            await stream.send_all(connection.send(h11.Data(data=data)) or b"")
            await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
            status, found, text = 0, {}, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(bytes(await stream.receive_some(1 << 16)))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                    found = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    text += event.data
                else:
                    return Said(status, found, json.loads(text))


@asynccontextmanager
async def controlled_broker(clock: VirtualClock | None = None, **settings: str) -> AsyncIterator[Channel]:
    """clock: that of the loop, if it is to be advanced."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as directory:
        own = clock or VirtualClock()
        async with (
            living(Path(directory) / "data", own, offload=inline, **settings) as lives,
            trio.open_nursery() as nursery,
        ):
            listener = ControlListener(parse_control("127.0.0.1:0"))
            nursery.start_soon(listener.run, lambda: Controlled(lives, "1.2.3"))
            yield Channel(lives.broker, listener.url)
            nursery.cancel_scope.cancel()
