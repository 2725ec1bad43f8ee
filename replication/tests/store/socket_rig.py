"""The store of one machine in a test: a server that can be killed and started again on its directory, connections that
can be cut or stand still, sessions with names. Runs in virtual time where the test asks for it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from trio.testing import memory_stream_pair

from barnabas.replication.store.journal_files import DirectoryFiles
from barnabas.replication.store.memory import EmbeddedStore, RunIO, run_inline
from barnabas.replication.store.socket_server import StoreServer
from barnabas.replication.store.socket_store import SocketStore, socket_store

TIMEOUT_MS = 6000


class Line(trio.abc.Stream):
    """One end of a connection. While `still` is closed nothing comes out of it."""

    def __init__(self, inner: trio.StapledStream, still: Gate) -> None:  # type: ignore[type-arg]
        self._inner = inner
        self._still = still

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        piece = await self._inner.receive_some(max_bytes)
        await self._still.passed()
        return piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class Gate:
    """Open or closed."""

    def __init__(self) -> None:
        self._open = trio.Event()
        self._open.set()

    def close(self) -> None:
        self._open = trio.Event()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        await self._open.wait()


class Machine(trio.abc.Listener[trio.abc.Stream]):
    """See the module. clock_s is added to the server's clock: it jumps as a process that was stopped sees it."""

    def __init__(self, nursery: trio.Nursery, directory: Path | None, run_io: RunIO = run_inline) -> None:
        self.nursery = nursery
        self.directory = directory
        self.run_io = run_io
        self.gate = Gate()
        self.clock_s = 0.0
        self.server: StoreServer
        self.store: EmbeddedStore
        self._ids = random.Random(1)
        self._scope = trio.CancelScope()
        self._is_up = False
        self._lines: list[trio.StapledStream] = []  # type: ignore[type-arg]
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](1000)

    # -- the server --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        files = None if self.directory is None else DirectoryFiles(self.directory)
        self.store = EmbeddedStore.open(files, run_io=self.run_io, keeps_sessions=True, snapshot_after_bytes=2000)
        self.server = StoreServer(
            self.store,
            new_id=lambda: self._ids.getrandbits(62) + 1,
            now=lambda: trio.current_time() + self.clock_s,
        )
        await self.nursery.start(self._run)

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scope:
            await self.server.run(self, task_status)

    def kill(self) -> None:
        """As kill -9: what was not confirmed may be lost, and all connections are."""
        self._is_up = False
        self._scope.cancel()
        self.cut()

    async def accept(self) -> trio.abc.Stream:
        self._is_up = True
        return await self._receive.receive()

    async def aclose(self) -> None:
        self._is_up = False

    # -- connections -------------------------------------------------------------------------------------------------

    async def connect(self) -> trio.abc.Stream:
        """Raises OSError while the server is down."""
        await trio.lowlevel.checkpoint()
        if not self._is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = memory_stream_pair()
        self._lines += (ours, theirs)
        await self._send.send(Line(theirs, self.gate))
        return Line(ours, Gate())

    def cut(self) -> None:
        """All connections end, at both ends, wherever they are."""
        lines, self._lines = self._lines, []
        for line in lines:
            line.send_stream.close()
            line.receive_stream.close()

    @asynccontextmanager
    async def session(self, name: str = "a broker", timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[SocketStore]:
        async with socket_store(self.connect, timeout_ms=timeout_ms, name=name) as store:
            yield store


@asynccontextmanager
async def machine(directory: Path | None, run_io: RunIO = run_inline) -> AsyncIterator[Machine]:
    """A machine whose store runs."""
    async with trio.open_nursery() as nursery:
        one = Machine(nursery, directory, run_io)
        await one.start()
        yield one
        nursery.cancel_scope.cancel()
