"""The stores that the contract tests run on, behind one face: a tree that can be connected to and expired.

in memory, on disk, on disk with IO in threads: the embedded store. On a socket, in memory or in a file, and over one
that is cut all the time: the store of one machine. simulated: that of server/sim, with delays. On a
fake ZooKeeper: the store on ZooKeeper with the small server of `fake_zookeeper.py`; on ZooKeeper: with a real one
(slow; needs a JVM). Each test has a tree of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import trio
from trio.testing import memory_stream_pair

from barnabas.replication.store.journal_files import DirectoryFiles
from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.socket_server import StoreServer
from barnabas.replication.store.socket_store import SocketStore, socket_store
from barnabas.replication.store.store import Store
from barnabas.replication.store.zk import ZooKeeperStore, zookeeper_store
from barnabas.replication.store.zk_settings import ZooKeeperSettings
from barnabas.replication.tests.store.fake_zookeeper import fake_zookeeper
from barnabas.server.sim.store import SimSession, SimStore
from compat_tests.harness.zookeeper import ZooKeeper, expire_session

SESSION_TIMEOUT_MS = 100_000
"""Longer than anything stands still."""
_numbers = itertools.count(1)


class Home(Protocol):
    """A tree and the sessions on it."""

    async def connect(self) -> Any:
        """A new session: a Store."""

    async def close(self, store: Any) -> None:
        """End a session in order."""

    async def expire(self, store: Any) -> None:
        """End a session as a time-out does; returns when its ephemeral nodes are gone for others."""


class EmbeddedHome:
    """The embedded store."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store

    async def connect(self) -> Store:
        return self.store.connect()

    async def close(self, store: EmbeddedSession) -> None:
        await store.aclose()

    async def expire(self, store: EmbeddedSession) -> None:
        await store.expire()


class SocketHome:
    """The store of one machine, over streams in memory."""

    def __init__(self, nursery: trio.Nursery, store: EmbeddedStore) -> None:
        ids = random.Random(1)
        self.server = StoreServer(store, new_id=lambda: ids.getrandbits(62) + 1, now=trio.current_time)
        self.listener = MemoryListener()
        self.nursery = nursery
        self._ends: dict[SocketStore, tuple[trio.Event, trio.Event]] = {}

    async def start(self) -> None:
        await self.nursery.start(self.server.run, self.listener)

    async def connect(self) -> SocketStore:
        store: SocketStore = await self.nursery.start(self._session)
        return store

    async def _session(self, task_status: trio.TaskStatus[SocketStore]) -> None:
        """A task for each session, as they end in any order."""
        wanted, ended = trio.Event(), trio.Event()
        async with socket_store(self.listener.connect, timeout_ms=SESSION_TIMEOUT_MS) as store:
            self._ends[store] = wanted, ended
            task_status.started(store)
            await wanted.wait()
        ended.set()

    async def close(self, store: SocketStore) -> None:
        wanted, ended = self._ends.pop(store)
        wanted.set()
        await ended.wait()

    async def expire(self, store: SocketStore) -> None:
        while store.session_id not in self.server.store.tree.sessions:  # noqa: ASYNC110 – the last one has just expired
            await trio.sleep(0.001)
        await self.server.store.until_durable(self.server.end(store.session_id).zxid)


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """Connections without sockets. `connect` opens one."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](0)

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        await self._send.send(theirs)
        return ours

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    async def aclose(self) -> None:
        await self._receive.aclose()


class SimulatedHome:
    """The simulation's store, in real time with short delays."""

    def __init__(self, nursery: trio.Nursery) -> None:
        world: Any = RealTime(nursery)
        delays = {"delay_s": (0.0, 0.0005), "watch_delay_s": (0.0, 0.002)}
        self.store = SimStore(world, random.Random(1), timeout_s=60, **delays)

    async def connect(self) -> SimSession:
        return self.store.connect("broker")

    async def close(self, store: SimSession) -> None:
        await store.aclose()

    async def expire(self, store: SimSession) -> None:
        number = store._inner._session
        store.expire()
        while self.store.tree._tree.owned_by(number):  # noqa: ASYNC110 – the store has no event for it
            await trio.sleep(0.001)


class RealTime:
    """As much of the simulation's `World` as its store needs, without virtual time."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery

    @property
    def now(self) -> float:
        return trio.current_time()

    def note(self, text: str) -> None:
        pass

    def after(self, seconds: float, fn: Callable[..., object], *args: object) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def later() -> None:
            with scope:
                await trio.sleep(seconds)
                fn(*args)

        self.nursery.start_soon(later)
        return scope


class ZooKeeperHome:
    """The store on a ZooKeeper, under a chroot."""

    def __init__(self, connect: str, expire: Callable[[int], None], stack: AsyncExitStack) -> None:
        self.settings = ZooKeeperSettings(
            connect=f"{connect}/contract/{next(_numbers)}", session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self._expire = expire
        self._stack = stack
        self._stacks: dict[ZooKeeperStore, AsyncExitStack] = {}

    async def connect(self) -> ZooKeeperStore:
        stack = await self._stack.enter_async_context(AsyncExitStack())
        store = await stack.enter_async_context(zookeeper_store(self.settings))
        self._stacks[store] = stack
        return store

    async def close(self, store: ZooKeeperStore) -> None:
        await self._stacks.pop(store).aclose()

    async def expire(self, store: ZooKeeperStore) -> None:
        await trio.to_thread.run_sync(self._expire, store.session_id)


Kind = Callable[[Path, Callable[[], ZooKeeper]], AbstractAsyncContextManager[Home]]


@asynccontextmanager
async def in_memory(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    yield EmbeddedHome(EmbeddedStore.open())


@asynccontextmanager
async def on_disk(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    store = EmbeddedStore.open(DirectoryFiles(path))
    yield EmbeddedHome(store)
    await store.aclose()


@asynccontextmanager
async def on_disk_in_threads(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    store = EmbeddedStore.open(DirectoryFiles(path), run_io=trio.to_thread.run_sync)
    yield EmbeddedHome(store)
    await store.aclose()


@asynccontextmanager
async def on_a_socket(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    store = EmbeddedStore.open(DirectoryFiles(path), run_io=trio.to_thread.run_sync, keeps_sessions=True)
    async with trio.open_nursery() as nursery:
        home = SocketHome(nursery, store)
        await home.start()
        yield home
        nursery.cancel_scope.cancel()
    await store.aclose()


@asynccontextmanager
async def simulated(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    async with trio.open_nursery() as nursery:
        yield SimulatedHome(nursery)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def on_a_fake_zookeeper(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    with fake_zookeeper() as fake:
        async with AsyncExitStack() as stack:
            yield ZooKeeperHome(fake.connect, fake.expire, stack)


@asynccontextmanager
async def on_zookeeper(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    real = server()
    async with AsyncExitStack() as stack:
        yield ZooKeeperHome(real.connect, lambda session: expire_session(real.host, real.port, session, 60), stack)
