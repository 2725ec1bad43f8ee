"""Sessions with the coordination store that can be slow, cut off and expired, as ZooKeeper's are.

One tree (`barnabas.replication.EmbeddedStore`) for the cluster; `SimStore.connect(broker)` gives a session to one
incarnation of a broker. What ZooKeeper and its client do is kept:

- Requests of one session are carried out in order, after a delay; responses are delayed as well.
- *Interrupted* (the link is cut, or the broker is frozen): commits in flight end in ConnectionLost, done or not;
  reads, and requests made meanwhile, wait until the link is mended. The server ends the session when the interruption
  has lasted for the session's timeout: its ephemeral nodes vanish for all other sessions. The broker learns that
  (SessionLost, and SessionBack a little later) only when it reaches the server again. Between the two, commits end in
  SessionExpired and reads wait.
- Change notifications arrive after a delay, merged; none is lost while the session lives.
- A killed process's session lives until its timeout. An orderly stop closes it immediately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import trio

from barnabas.replication import (
    Changed,
    ConnectionLost,
    EmbeddedSession,
    EmbeddedStore,
    Node,
    Op,
    SessionBack,
    SessionExpired,
    SessionLost,
    StoreClosed,
    StoreEvent,
)
from barnabas.server.sim.world import Call, World

T = TypeVar("T")


class SimStore:
    """The store and all sessions with it. Times in seconds.

    timeout_s: of sessions. delay_s: smallest and largest, each way; watch_delay_s: until a change is notified.
    """

    def __init__(
        self,
        world: World,
        rng: Random,
        *,
        timeout_s: float = 6.0,
        delay_s: tuple[float, float] = (0.0003, 0.002),
        watch_delay_s: tuple[float, float] = (0.0005, 0.02),
    ) -> None:
        self.world = world
        self.tree = EmbeddedStore.open()
        self.timeout_s = timeout_s
        self.delay_s = delay_s
        self.watch_delay_s = watch_delay_s
        self.rng = rng

    def connect(self, owner: str) -> SimSession:
        """A session of `owner`."""
        return SimSession(self, owner)


class SimSession:
    """A `Store`; see the module."""

    def __init__(self, store: SimStore, owner: str) -> None:
        self.owner = owner
        self._store = store
        self._inner = store.tree.connect()
        self._interruptions = 0
        self._losses = 0  # counts interruptions, to know whether there was one meanwhile
        self._way_is_open = trio.Event()
        self._way_is_open.set()
        self._expiry: Call | None = None
        self._expired = False  # at the server
        self._lost = False  # and the broker knows
        self._dead = False  # the process is gone
        self._closed = False
        self._due_there = 0.0
        self._due_back = 0.0
        self._watches: dict[_Watch, None] = {}

    @property
    def is_interrupted(self) -> bool:
        return self._interruptions > 0

    # -- what happens to it ------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """The way to the server is cut, or the process stands still. Ends with as many `resume`s."""
        self._interruptions += 1
        if self._interruptions > 1 or self._closed:
            return
        self._close_the_way()
        if not self._expired:
            patience = self._store.timeout_s * self._store.rng.uniform(0.9, 1.3)
            self._expiry = self._store.world.after(patience, self.expire)

    def _close_the_way(self) -> None:
        self._losses += 1
        if self._way_is_open.is_set():
            self._way_is_open = trio.Event()

    def resume(self) -> None:
        self._interruptions -= 1
        if self._interruptions or self._dead or self._closed:
            return
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._store.world.after(self._store.rng.uniform(0.001, 0.2), self._reconnected)

    def expire(self) -> None:
        """The server ends the session: after its timeout, or by a fault."""
        if self._expired or self._closed:
            return
        self._expired = True
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._store.world.note(f"session of {self.owner} expires")
        self._store.world.nursery.start_soon(self._inner.aclose)
        for watch in self._watches:
            watch.forget()
        if not self._interruptions and not self._dead:
            self._close_the_way()
            self._store.world.after(self._store.rng.uniform(0.001, 0.2), self._reconnected)

    def kill(self) -> None:
        """The process is gone; the server does not know that."""
        if not self._dead and not self._closed:
            self.interrupt()
            self._dead = True
            for watch in list(self._watches):
                self._store.tree.unobserve(watch)

    def _reconnected(self) -> None:
        if self._interruptions or self._dead or self._closed:
            return
        if self._expired and not self._lost:
            self._lost = True
            for watch in self._watches:
                watch.notify(SessionLost())
            self._store.world.after(self._store.rng.uniform(0.001, 0.1), self._reconnected)
            return
        if self._expired:
            self._inner = self._store.tree.connect()
            self._expired = self._lost = False
            for watch in self._watches:
                watch.notify(SessionBack())
            self._store.world.note(f"{self.owner} has a new session")
        self._way_is_open.set()
        for watch in self._watches:
            watch.deliver_later()

    # -- Store -------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        return await self._read(lambda inner: inner.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._read(lambda inner: inner.get_many(paths))

    async def children(self, path: str) -> list[str]:
        return await self._read(lambda inner: inner.children(path))

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        if self._lost:
            raise SessionExpired("the session has expired")
        return await self._ask(lambda inner: inner.commit(ops))

    async def _read(self, work: Callable[[EmbeddedSession], Awaitable[T]]) -> T:
        """Again until there is an answer."""
        while True:
            try:
                return await self._ask(work)
            except (ConnectionLost, SessionExpired):
                pass

    async def _ask(self, work: Callable[[EmbeddedSession], Awaitable[T]]) -> T:
        if self._closed:
            raise StoreClosed("the session is closed")
        store = self._store
        inner = self._inner
        while not self._way_is_open.is_set():
            await self._way_is_open.wait()
        if self._inner is not inner:
            raise SessionExpired("the session has expired")
        losses = self._losses
        self._due_there = max(self._due_there + 1e-6, store.world.now + store.rng.uniform(*store.delay_s))
        await trio.sleep_until(self._due_there)
        self._check(losses)
        try:
            result = await work(inner)
        except StoreClosed:  # the server ended the session while the request was on its way
            raise SessionExpired("the session has expired") from None
        finally:
            self._due_back = max(self._due_back + 1e-6, store.world.now + store.rng.uniform(*store.delay_s))
        await trio.sleep_until(self._due_back)
        self._check(losses)
        return result

    def _check(self, losses: int) -> None:
        if losses != self._losses:
            raise ConnectionLost("the connection to the store was lost")

    @asynccontextmanager
    async def changes(self, places: Collection[str]) -> AsyncIterator[AsyncIterator[StoreEvent]]:
        if self._closed:
            raise StoreClosed("the session is closed")
        watch = _Watch(self, frozenset(places))
        self._watches[watch] = None
        self._store.tree.observe(watch)
        try:
            await trio.lowlevel.checkpoint()
            yield watch
        finally:
            self._store.tree.unobserve(watch)
            del self._watches[watch]

    async def aclose(self) -> None:
        """End the session in order: its ephemeral nodes vanish at once, if the server can be reached."""
        if self._closed or self._dead:
            return
        if self._interruptions:
            self.kill()
            return
        self._closed = True
        if not self._expired:
            await self._inner.aclose()


class _Watch:
    """One subscriber. Changes are notified after a delay; those from before a new session are dropped."""

    def __init__(self, session: SimSession, places: frozenset[str]) -> None:
        self._session = session
        self._places = places
        self._changed: set[str] = set()
        self._events: deque[StoreEvent] = deque()
        self._something = trio.Event()
        self._on_its_way = False

    def offer(self, paths: set[str]) -> None:
        places = self._places
        mine = {path for path in paths if path in places or (path[: path.rfind("/")] or "/") in places}
        if mine and not self._session._expired:
            self._changed |= mine
            self.deliver_later()

    def deliver_later(self) -> None:
        if self._changed and not self._on_its_way:
            self._on_its_way = True
            store = self._session._store
            store.world.after(store.rng.uniform(*store.watch_delay_s), self._deliver)

    def _deliver(self) -> None:
        self._on_its_way = False
        if self._changed and self._session._way_is_open.is_set():
            self.notify(Changed(frozenset(self._changed)))
            self._changed = set()

    def forget(self) -> None:
        self._changed = set()

    def notify(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._something.set()

    def __aiter__(self) -> AsyncIterator[StoreEvent]:
        return self

    async def __anext__(self) -> StoreEvent:
        await trio.lowlevel.checkpoint()
        while not self._events:
            self._something = trio.Event()
            await self._something.wait()
        return self._events.popleft()
