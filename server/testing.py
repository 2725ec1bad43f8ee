"""A broker inside the test: started in the running trio loop, on a free port and a temporary directory, under a mock
clock if there is one.

    async with embedded_broker() as broker:            # ready in a few milliseconds
        async with connected(broker) as client:        # memory stream, no socket: works under a mock clock
            response = await client.ask(MetadataRequest(topics=None), 12)

`broker_thread()` is the same for synchronous tests with real clients: it runs trio in a thread and gives the
`host:port` to connect to.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import trio
from trio.testing import MockClock, memory_stream_pair

from kproto import ApiKey, decode, response_class
from kproto.frame import FrameSplitter, parse_response_header, request_frame
from server.app import Broker
from server.config import BrokerConfig
from server.offload import Offload, in_thread, inline

TEST_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}

START_OF_VIRTUAL_TIME = 1_750_000_000.0
"""Wall clock, in seconds since the epoch, at the start of a mock clock."""


class Client:
    """Speaks requests over a stream, one at a time, for tests."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._splitter = FrameSplitter(1 << 30)
        self._frames: list[bytes] = []
        self._correlation_id = 0

    async def ask(self, request: Any, version: int, *, client_id: str | None = "test") -> Any:
        """Send `request` and return its response."""
        await self.send(request, version, client_id=client_id)
        return await self.receive(request, version)

    async def send(self, request: Any, version: int, *, client_id: str | None = "test") -> None:
        self._correlation_id += 1
        await self.stream.send_all(request_frame(version, self._correlation_id, client_id, request))

    async def receive(self, request: Any, version: int) -> Any:
        """The next response, read as an answer to `request`."""
        frame = await self.receive_frame()
        key = ApiKey(request.__description__.api_key)
        _, offset = parse_response_header(key, version, frame)
        return decode(response_class(key), version, frame, offset)

    async def receive_frame(self) -> bytes:
        """The next frame without its length. Raises EOFError when the broker closed."""
        while not self._frames:
            data = await self.stream.receive_some(1 << 16)
            if not data:
                raise EOFError("the broker closed the connection")
            self._frames += [bytes(frame) for frame in self._splitter.feed(data)]
        return self._frames.pop(0)


@asynccontextmanager
async def embedded_broker(
    directory: str | Path | None = None, offload: Offload = inline, seed: int = 0, **settings: str
) -> AsyncIterator[Broker]:
    """Start a broker in this loop and stop it at the end. Settings are Kafka's keys with `_` for `.`:
    `num_partitions="3"`.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-") as temporary:
        values = {
            **TEST_SETTINGS,
            "log.dirs": str(directory or temporary),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        clock = trio.lowlevel.current_clock()
        virtual = isinstance(clock, MockClock)
        broker = Broker(
            BrokerConfig.from_values(values),
            offload=offload,
            wall_clock=(lambda: START_OF_VIRTUAL_TIME + clock.current_time()) if virtual else time.time,
            rng=Random(seed),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            try:
                yield broker
            finally:
                await broker.stop()


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Client]:
    """A client on a memory stream."""
    ours, theirs = memory_stream_pair()
    broker.serve_stream(theirs)
    async with ours:
        yield Client(ours)


@contextmanager
def broker_thread(directory: str | Path | None = None, **settings: str) -> Iterator[str]:
    """Run a broker in a thread of its own; the value is its `host:port`."""
    started = threading.Event()
    state: dict[str, Any] = {}

    async def main() -> None:
        async with embedded_broker(directory, in_thread, 0, **settings) as broker:
            state["bootstrap"] = broker.bootstrap
            state["token"] = trio.lowlevel.current_trio_token()
            state["stop"] = trio.Event()
            started.set()
            await state["stop"].wait()

    def target() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            state["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=target, name="barnabas", daemon=True)
    thread.start()
    started.wait()
    if "error" in state:
        raise state["error"]
    try:
        yield state["bootstrap"]
    finally:
        state["token"].run_sync_soon(state["stop"].set)
        thread.join()
        if "error" in state:
            raise state["error"]
