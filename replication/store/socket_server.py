"""The store of the brokers of one machine: serves an embedded store to sessions on streams, as ZooKeeper would.

`StoreServer.run` serves the streams of a listener: a Unix socket in a process of its own (`barnabas store`), memory in
tests. What ZooKeeper promises its clients holds here too:

- A session's requests are carried out in order, and answered in order when what they say is on the disk.
- A session lives on while its connection is gone, until its time-out (`socket_sessions.py`), and over a restart of the
  store. It may come back on another connection, which takes the place of the one before: what that has sent and was
  not read yet is not done.
- A session that expires, or closes, takes its ephemeral nodes with it, in one commit.
- Changes of watched places are told after they are on the disk and before anything that is asked later is answered.
  They are merged while they wait, so they take no more room than the paths that changed.

One task reads a connection: it applies commits to the tree at once, so that all that come meanwhile share a flush. One
answers, in order. One tells of changes. A connection whose end does not read its answers stops being read when
`UNANSWERED_MOST` requests wait, and then its session expires.

A peer that does not keep to the format loses its connection. Whatever else goes wrong with one connection is logged and
ends that connection only; a failure of the embedded store ends the server.

Not here: the socket's file and who may open it (`barnabas.server.network.unix_socket`); access lists, as only this
user's processes come in.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import trio

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.node_tree import Outcome
from barnabas.replication.store.socket_sessions import TICK_S, Sessions
from barnabas.replication.store.socket_wire import Hello, Reader, Seen, Welcome, WireError
from barnabas.replication.store.store import CommitRefused, StoreError, check_path, parent_of

log = logging.getLogger("barnabas.store")

LEAST_TIMEOUT_MS: Final = 500
MOST_TIMEOUT_MS: Final = 3_600_000
HELLO_S: Final = 5.0
"""How long a connection may be silent before it says who it is."""
SESSIONS_MOST: Final = 1000
UNANSWERED_MOST: Final = 1000
UNANSWERED_BYTES_MOST: Final = 8 << 20
PLACES_MOST: Final = 100_000
_PIECE: Final = 1 << 16
_PATHS_IN_A_FRAME: Final = 10_000

Answer = Callable[[], Awaitable[None]]
"""Answers a request when its turn has come."""


class StoreServer:
    """See the module. new_id: a random positive number of 63 bits, which nobody can guess; now: seconds."""

    def __init__(self, store: EmbeddedStore, *, new_id: Callable[[], int], now: Callable[[], float]) -> None:
        self.store = store
        self.now = now
        self._new_id = new_id
        self._sessions = Sessions(store.tree.sessions, now())
        self._connections: dict[int, _Connection] = {}  # by session
        self._names: dict[int, str] = {}
        self._accepted = trio.Event()
        self._sessionless = trio.Event()

    async def run(
        self,
        listener: trio.abc.Listener[trio.abc.Stream],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled. Raises StoreFailed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush)
            nursery.start_soon(self._expire)
            await nursery.start(trio.serve_listeners, self.serve, [listener])
            task_status.started()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end. Raises nothing but StoreFailed."""
        connection = _Connection(self, stream)
        try:
            await connection.run()
        except* (WireError, trio.TooSlowError) as errors:
            log.warning("a connection of %s is closed: %s", connection.name, _first(errors))
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except* StoreError:
            raise
        except* Exception:
            log.exception("a connection of %s failed", connection.name)
        finally:
            if self._connections.get(connection.session) is connection:
                del self._connections[connection.session]
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.aclose_forcefully(stream)

    # -- sessions ----------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    async def until_sessionless(self) -> None:
        """Return when there is no session."""
        while len(self._sessions):
            self._sessionless = trio.Event()
            await self._sessionless.wait()

    def end_all(self) -> None:
        """End all sessions: whoever starts the store knows that none of those who had one is alive."""
        for session in self._sessions:
            self.end(session)

    def end(self, session: int) -> Outcome:
        """End a session as its time-out would, whatever its connection does."""
        connection = self._connections.pop(session, None)
        if connection is not None:
            connection.session_over()
        return self._end(session)

    def close(self, connection: _Connection) -> Outcome:
        """End the session of a connection, by its wish."""
        del self._connections[connection.session]
        log.info("%s has closed its session", connection.name)
        return self._end(connection.session)

    def _end(self, session: int) -> Outcome:
        self._sessions.end(session)
        self._names.pop(session, None)
        if not len(self._sessions):
            self._sessionless.set()
        return self.accepted(self.store.end_session(session))

    def attach(self, connection: _Connection, hello: Hello) -> tuple[bytes, int]:
        """The answer to a hello, and the commit that must be on the disk before. `connection.session` is set if there
        is a session.
        """
        session, is_old = hello.session, hello.session != 0
        zxid = 0
        if is_old:
            if session not in self._sessions:
                return wire.frame(wire.EXPIRED), 0
            self._sessions.heard(session, self.now())
            timeout_ms = self.store.tree.sessions[session]
            before = self._connections.pop(session, None)
            if before is not None:
                before.replaced()
        else:
            if len(self._sessions) >= SESSIONS_MOST:
                return wire.encode_refused(f"the store has {SESSIONS_MOST} sessions"), 0
            session = self._new_id()
            timeout_ms = max(LEAST_TIMEOUT_MS, min(hello.timeout_ms, MOST_TIMEOUT_MS))
            zxid = self.accepted(self.store.begin_session(session, timeout_ms)).zxid
            self._sessions.open(session, timeout_ms, self.now())
            log.info("new session of %s, time-out %d ms", hello.name, timeout_ms)
        self._names[session] = hello.name
        self._connections[session] = connection
        connection.session = session
        return wire.encode_welcome(Welcome(session, timeout_ms, is_old)), zxid

    def is_current(self, connection: _Connection) -> bool:
        """Whether a connection still speaks for its session."""
        return self._connections.get(connection.session) is connection

    def heard(self, connection: _Connection) -> None:
        """Something came from a connection."""
        self._sessions.heard(connection.session, self.now())

    def accepted(self, outcome: Outcome) -> Outcome:
        """See to it that a commit gets onto the disk, whatever becomes of the connection that brought it."""
        self._accepted.set()
        return outcome

    async def _expire(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            for session in self._sessions.expired(self.now()):
                connection = self._connections.get(session)
                if connection is not None and connection.is_held_up:
                    self.heard(connection)
                else:
                    log.warning("the session of %s has expired", self._names.get(session, "an earlier run"))
                    self.end(session)

    async def _flush(self) -> None:
        while True:
            await self._accepted.wait()
            self._accepted = trio.Event()
            await self.store.until_durable(self.store.tree.zxid)


class _Connection:
    """One connection, from hello to its end."""

    def __init__(self, server: StoreServer, stream: trio.abc.Stream) -> None:
        self.session = 0
        self.name = "somebody"
        self._server = server
        self._store = server.store
        self._stream = stream
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._frames = wire.Frames(wire.REQUEST_BYTES)
        self._is_over = False
        self._is_torn = False  # a frame was sent in part, and nothing can be said any more
        self._unanswered: deque[tuple[Answer, int]] = deque()  # with the lengths of the requests
        self._pending = 0  # those and the one that is being answered
        self._pending_bytes = 0
        self._more = trio.Event()
        self._less: trio.Event | None = None  # reading waits for it
        self._view = self._store.connect()
        self._places: set[str] = set()
        self._changed: set[str] = set()
        self._changes = trio.Event()

    @property
    def is_held_up(self) -> bool:
        """Whether it is not read because the disk is slow, so that silence is no sign of anything."""
        return self._less is not None and not self._sending.locked()

    async def run(self) -> None:
        """Serve it. Raises WireError, TooSlowError, StoreError, trio's errors of streams."""
        with self._scope:
            requests = await self._greet()
            if not self.session:
                return
            self._store.observe(self)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._answer)
                    nursery.start_soon(self._tell)
                    await self._read(requests)
                    nursery.cancel_scope.cancel()
            finally:
                self._store.unobserve(self)
        if self._is_over and not self._is_torn:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await self._send(wire.frame(wire.EXPIRED))

    def session_over(self) -> None:
        """The session has ended, not by this connection's wish: say so, and end."""
        self._is_over = True
        self._scope.cancel()

    def replaced(self) -> None:
        """The session has another connection."""
        self._scope.cancel()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _greet(self) -> list[memoryview]:
        """Take the hello and answer it; returns what came with it."""
        views: list[memoryview] = []
        with trio.fail_after(HELLO_S):
            while not views:
                piece = await self._stream.receive_some(_PIECE)
                if not piece:
                    return []
                views = list(self._frames.feed(piece))
        hello = wire.decode_hello(views[0])
        if isinstance(hello, int):
            await self._send(wire.encode_refused(f"the store speaks format {wire.FORMAT}, not {hello}"))
            return []
        self.name = hello.name
        answer, zxid = self._server.attach(self, hello)
        await self._store.until_durable(zxid)
        await self._send(answer)
        return views[1:]

    async def _read(self, views: Sequence[memoryview]) -> None:
        """Take requests until the connection ends, or the session is another's or over. Raises WireError."""
        while True:
            for view in views:
                await self._until_pending(UNANSWERED_MOST, UNANSWERED_BYTES_MOST)
                if not self._server.is_current(self):  # nothing is waited for between this and what is done
                    return
                if view[0] == wire.CLOSE:
                    outcome = self._server.close(self)
                    self._later(partial(self._committed, outcome.zxid, wire.frame(wire.CLOSED)), 0)
                    with trio.move_on_after(HELLO_S):
                        await self._until_pending(1, 1)
                    return
                if view[0] == wire.PING:
                    Reader(view).end()
                    await self._send(wire.frame(wire.PONG))
                else:
                    self._later(self._take(Reader(view)), len(view))
            piece = await self._stream.receive_some(_PIECE)
            if not piece:
                return
            if self._server.is_current(self):
                self._server.heard(self)
            views = list(self._frames.feed(piece))

    async def _until_pending(self, fewer: int, fewer_bytes: int) -> None:
        while self._pending >= fewer or self._pending_bytes >= fewer_bytes:
            self._less = trio.Event()
            await self._less.wait()
        self._less = None

    def _take(self, request: Reader) -> Answer:
        """Do now what must be done in order; returns what answers. Raises WireError."""
        match request.kind:
            case wire.COMMIT:
                return self._commit(request)
            case wire.GET:
                return partial(self._get, wire.decode_paths(request))
            case wire.CHILDREN:
                return partial(self._children, wire.decode_path(request))
            case wire.WATCH:
                return partial(self._watch, wire.decode_paths(request))
            case wire.UNWATCH:
                return partial(self._unwatch, wire.decode_paths(request))
            case kind:
                raise WireError(f"a request of kind {kind}")

    def _later(self, answer: Answer, length: int) -> None:
        self._unanswered.append((answer, length))
        self._pending += 1
        self._pending_bytes += length
        self._more.set()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _commit(self, request: Reader) -> Answer:
        ops = wire.decode_commit(request)
        if not ops:
            return partial(self._send, wire.encode_done([]))
        try:
            for op in ops:
                check_path(op.path)
        except ValueError as error:
            raise WireError(str(error)) from error
        try:
            outcome = self._server.accepted(self._store.begin(ops, self.session))
        except CommitRefused as error:
            return partial(self._send, wire.encode_failed(error))
        return partial(self._committed, outcome.zxid, wire.encode_done(outcome.nodes))

    async def _committed(self, zxid: int, answer: bytes) -> None:
        await self._store.until_durable(zxid)
        await self._send(answer)

    async def _get(self, paths: list[str]) -> None:
        await self._send(wire.encode_nodes(await self._view.get_many(paths)))

    async def _children(self, path: str) -> None:
        await self._send(_bounded(wire.encode_names(await self._view.children(path)), path))

    async def _watch(self, places: list[str]) -> None:
        async with self._sending:  # no change is told between what is looked at here and its answer
            self._places.update(places)
            if len(self._places) > PLACES_MOST:
                raise WireError(f"more than {PLACES_MOST} watched places")
            seen = {place: self._seen(place) for place in places}
            await self._write(_bounded(wire.encode_watched(self._store.durable, seen), "watch"))

    def _seen(self, place: str) -> Seen:
        tree = self._store.tree
        node = tree.get(place)
        if node is None:
            return Seen(None, {})
        above = place if place != "/" else ""
        children = {}
        for name in tree.children(place):
            child = tree.get(f"{above}/{name}")
            assert child is not None
            children[name] = child.mzxid
        return Seen(node.mzxid, children)

    async def _unwatch(self, places: list[str]) -> None:
        self._places.difference_update(places)
        await self._send(wire.encode_watched(0, {}))

    # -- answers and changes -------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._unanswered:
                answer, length = self._unanswered.popleft()
                await answer()
                self._pending -= 1
                self._pending_bytes -= length
                if self._less is not None:
                    self._less.set()

    def offer(self, paths: Iterable[str]) -> None:
        """Changes that are on the disk now (the embedded store calls)."""
        places = self._places
        mine = {path for path in paths if path in places or parent_of(path) in places}
        if mine:
            self._changed |= mine
            self._changes.set()

    async def _tell(self) -> None:
        while True:
            await self._changes.wait()
            async with self._sending:
                self._changes = trio.Event()
                paths, self._changed = sorted(self._changed), set()
                tree, durable = self._store.tree, self._store.durable
                frames = []
                while paths:
                    some, paths = paths[:_PATHS_IN_A_FRAME], paths[_PATHS_IN_A_FRAME:]
                    there = {path: tree.get(path) is not None for path in some}
                    frames.append(wire.encode_changed(0 if paths else durable, there))
                await self._write(b"".join(frames))

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        """To be called with `_sending` held."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._is_torn = True
        await self._stream.send_all(data)
        self._is_torn = False


def _bounded(answer: bytes, path: str) -> bytes:
    """The answer, or that it is too long for who asked."""
    if len(answer) <= wire.MOST_BYTES:
        return answer
    return wire.encode_failed(StoreError(f"{path}: an answer of {len(answer)} bytes"))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
