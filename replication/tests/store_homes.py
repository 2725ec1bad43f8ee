"""The stores that the contract tests run on, behind one face: a tree that can be connected to and expired.

in memory, on disk, on disk with IO in threads: the embedded store. fake ZooKeeper: the store on ZooKeeper with the
small server of `fake_zookeeper.py`. ZooKeeper: with a real one (slow; needs a JVM). Each test has a tree of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import trio

from compat_tests.zookeeper import ZooKeeper, expire_session
from replication.journal import DirectoryFiles
from replication.store import Store
from replication.store_memory import EmbeddedSession, EmbeddedStore
from replication.store_zk import ZooKeeperSettings, ZooKeeperStore, zookeeper_store
from replication.tests.fake_zookeeper import fake_zookeeper

SESSION_TIMEOUT_MS = 30_000
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
async def on_a_fake_zookeeper(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    with fake_zookeeper() as fake:
        async with AsyncExitStack() as stack:
            yield ZooKeeperHome(fake.connect, fake.expire, stack)


@asynccontextmanager
async def on_zookeeper(path: Path, server: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    real = server()
    async with AsyncExitStack() as stack:
        yield ZooKeeperHome(real.connect, lambda session: expire_session(real.host, real.port, session), stack)
