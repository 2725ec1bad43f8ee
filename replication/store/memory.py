"""The embedded store: the tree in memory, kept in a journal if a directory is given. No ZooKeeper needed.

`EmbeddedStore.open(files)` loads or makes a tree; `connect()` gives a session, which is a `Store`. A broker of its own
has one session. Tests and the cluster simulation connect several to one tree, and end them with `expire()`.

Durability: a commit changes the memory at once, in order, and returns when the journal has it on disk. A commit that
finds no flush in progress writes for all that came meanwhile, so many commits cost one fsync; it waits one pass of the
scheduler for them. Readers and watchers wait until what they would see is on disk: no broker acts on a state that a
crash could undo. File IO goes through `run_io`: inline by default, a thread runner in a broker.

Failures: a commit that cannot be stored (a path that is too long) is refused before anything changes. When the disk
fails, also for lack of room, the part of the flush that was written is truncated, the memory is ahead of the disk, and
from then on the store raises `StoreFailed`: for commits that wait for the flush, and for all later requests.
`on_failure` is called once. Temporary shortages of the process are no failure of the disk, and are waited out
(`journal_files.py`).

A snapshot, due when the journal has doubled, takes the loop some 2 µs per node to collect; writing it is IO.

Ephemeral nodes are on disk only in the store of several brokers (`keeps_sessions`), whose sessions are those of its
server (`socket_server.py`); otherwise a restart ends all sessions. Used from one trio task scheduler only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from barnabas.replication.store.events import EventQueue
from barnabas.replication.store.journal import Journal
from barnabas.replication.store.journal_files import Files
from barnabas.replication.store.node_tree import Effect, Outcome, Tree
from barnabas.replication.store.store import (
    Delete,
    Node,
    Op,
    SessionExpired,
    StoreClosed,
    StoreEvent,
    StoreFailed,
    parent_of,
)

RunIO = Callable[[Callable[[], None]], Awaitable[None]]


async def run_inline(work: Callable[[], None]) -> None:
    """Do the work at once, in the caller's thread."""
    work()


class Observer(Protocol):
    """Is notified of changes as they become durable."""

    def offer(self, paths: set[str]) -> None:
        """Nodes that were created, written or deleted."""


class EmbeddedStore:
    """One tree, its journal, and the sessions on it."""

    def __init__(self, tree: Tree, journal: Journal | None, run_io: RunIO) -> None:
        self._tree = tree
        self._journal = journal
        self._run_io = run_io
        self._durable = tree.zxid  # id of the last commit on disk
        self._waiting: list[Outcome] = []  # commits that no flush has taken yet
        self._unsettled: dict[str, int] = {}  # what is not on disk: node path, or path + "/" for its children → commit
        self._flushing: trio.Event | None = None
        self._failure: BaseException | None = None
        self.on_failure: Callable[[StoreFailed], None] | None = None
        self._closed = False
        self._watches: dict[Observer, None] = {}
        self._last_session = 0

    @classmethod
    def open(
        cls,
        files: Files | None = None,
        *,
        run_io: RunIO = run_inline,
        snapshot_after_bytes: int = 1 << 20,
        keeps_sessions: bool = False,
    ) -> EmbeddedStore:
        """Load the tree from `files` (synchronously), or start an empty one. Without files nothing is kept.

        keeps_sessions: sessions and their nodes survive a restart; see `node_tree.py`. Raises StoreCorrupt, OSError.
        """
        if files is None:
            return cls(Tree(keeps_sessions=keeps_sessions), None, run_io)
        journal = Journal(files, snapshot_after_bytes=snapshot_after_bytes, keeps_sessions=keeps_sessions)
        return cls(journal.open(), journal, run_io)

    def connect(self) -> EmbeddedSession:
        """A new session."""
        self._last_session += 1
        return EmbeddedSession(self, self._last_session)

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change from now on. The simulation makes its watches of that."""
        self._watches[observer] = None

    def unobserve(self, observer: Observer) -> None:
        self._watches.pop(observer, None)

    async def aclose(self) -> None:
        """Wait for what is under way, then refuse everything. Ephemeral nodes end with the process."""
        if not self._closed:
            with trio.CancelScope(shield=True):
                try:
                    await self._until_durable(self._tree.zxid)
                except StoreFailed:
                    pass  # the commit has raised it already
            self._closed = True
            if self._journal is not None:
                self._journal.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise _failed(self._failure) from self._failure
        if self._closed:
            raise StoreClosed("the metadata store is closed")

    # -- for a server of several sessions, which must order commits itself ---------------------------------------------

    @property
    def tree(self) -> Tree:
        """What is in memory, of which the last commits may not be on disk yet. To be read only."""
        return self._tree

    @property
    def durable(self) -> int:
        """Id of the last commit on disk."""
        return self._durable

    def begin(self, ops: Sequence[Op], session: int) -> Outcome:
        """Accept a commit in memory; somebody must wait for it with `until_durable`. Raises CommitRefused,
        StoreClosed, StoreFailed.
        """
        self._check()
        return self._accept(self._tree.apply(ops, session))

    def begin_session(self, session: int, timeout_ms: int) -> Outcome:
        """`Tree.open_session`, as `begin`."""
        self._check()
        return self._accept(self._tree.open_session(session, timeout_ms))

    def end_session(self, session: int) -> Outcome:
        """`Tree.end_session`, as `begin`."""
        self._check()
        return self._accept(self._tree.end_session(session))

    async def until_durable(self, zxid: int) -> None:
        """Return when a commit is on disk. Raises StoreClosed, StoreFailed."""
        await trio.lowlevel.checkpoint()
        await self._until_durable(zxid)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _accept(self, outcome: Outcome) -> Outcome:
        self._waiting.append(outcome)
        for path in outcome.changed:
            self._unsettled[path] = self._unsettled[parent_of(path) + "/"] = outcome.zxid
        return outcome

    async def _commit(self, ops: Sequence[Op], session: int) -> list[Node | None]:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        if not ops:
            return []
        outcome = self.begin(ops, session)
        with trio.CancelScope(shield=True):  # it is accepted: cancelled now, it would be in memory only
            await trio.lowlevel.checkpoint()  # others come and share the flush
            await self._until_durable(outcome.zxid)
        return outcome.nodes

    async def _settled(self, key: str) -> None:
        """Before a read of `key` (as in `_unsettled`): let the disk catch up with the memory there."""
        await trio.lowlevel.checkpoint()
        self._check()
        while (zxid := self._unsettled.get(key, 0)) > self._durable:
            await self._until_durable(zxid)

    async def _until_durable(self, zxid: int) -> None:
        while self._durable < zxid:
            self._check()
            if self._flushing is not None:
                await self._flushing.wait()
            else:
                self._flushing = trio.Event()
                try:
                    with trio.CancelScope(shield=True):
                        await self._flush()
                finally:
                    self._flushing.set()
                    self._flushing = None

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if self._journal is not None:
            try:
                await self._run_io(self._writing(self._journal, batch))
            except BaseException as exc:
                self._failure = exc
                failed = _failed(exc)
                if self.on_failure is not None:
                    self.on_failure(failed)
                raise failed from exc
        self._durable = batch[-1].zxid
        paths = {path for outcome in batch for path in outcome.changed}
        for path in paths:
            for key in (path, parent_of(path) + "/"):
                if self._unsettled.get(key, self._durable + 1) <= self._durable:
                    del self._unsettled[key]
        for watch in self._watches:
            watch.offer(paths)

    def _writing(self, journal: Journal, batch: list[Outcome]) -> Callable[[], None]:
        """The IO of one flush, on values taken now: it may run beside further commits."""
        commits = [outcome.encoded for outcome in batch]
        if journal.wants_snapshot:
            lasting: list[Effect] = [*self._tree.lasting_nodes(), *self._tree.lasting_sessions()]
            zxid = self._tree.zxid
            return lambda: journal.snapshot(lasting, zxid, commits)
        return lambda: journal.append(commits)

    async def _end(self, session: int) -> None:
        """Remove a session's ephemeral nodes, as ZooKeeper does when it expires or closes."""
        self._check()
        paths = self._tree.owned_by(session)
        if paths:
            await self._commit([Delete(path) for path in paths], session)


class EmbeddedSession:
    """A `Store`: one session on an `EmbeddedStore`."""

    def __init__(self, store: EmbeddedStore, session: int) -> None:
        self._store = store
        self._session = session
        self._watches: dict[EventQueue, None] = {}

    async def get(self, path: str) -> Node | None:
        self._check()
        await self._store._settled(path)
        return self._store._tree.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._check()
        await trio.lowlevel.checkpoint()
        nodes = []
        for path in paths:
            if path in self._store._unsettled:
                await self._store._settled(path)
            nodes.append(self._store._tree.get(path))
        return nodes

    async def children(self, path: str) -> list[str]:
        self._check()
        await self._store._settled(path + "/")
        return self._store._tree.children(path)

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        self._check()
        return await self._store._commit(ops, self._session)

    @asynccontextmanager
    async def changes(self, places: Collection[str]) -> AsyncIterator[AsyncIterator[StoreEvent]]:
        self._check()
        watch = EventQueue(places)
        self._watches[watch] = None
        self._store.observe(watch)
        try:
            await trio.lowlevel.checkpoint()
            yield watch
        finally:
            del self._watches[watch]
            self._store.unobserve(watch)

    async def expire(self) -> None:
        """What a session time-out does to this broker: ephemeral nodes gone, then a new session. For tests."""
        for watch in self._watches:
            watch.lost()
        ended, self._session = self._session, 0
        await self._store._end(ended)
        self._store._last_session += 1
        self._session = self._store._last_session
        for watch in self._watches:
            watch.back()

    async def aclose(self) -> None:
        """End the session: its ephemeral nodes vanish for the others at once."""
        if self._session > 0:
            ended, self._session = self._session, -1
            await self._store._end(ended)

    def _check(self) -> None:
        if self._session == 0:
            raise SessionExpired("the session has expired")
        if self._session < 0:
            raise StoreClosed("the session is closed")


def _failed(cause: BaseException) -> StoreFailed:
    why = (isinstance(cause, OSError) and cause.strerror) or str(cause) or type(cause).__name__
    return StoreFailed(f"the metadata store could not be written: {why}")
