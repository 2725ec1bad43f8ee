"""The store of one machine as a broker sees it: a `Store` over a connection, mostly a Unix socket.

`socket_store(connect)` connects and gives one session, which ends on leaving.

    socket_wire.py      the format
    socket_server.py    the store's side, over the embedded store
    socket_sessions.py  when sessions expire
    socket_link.py      the session's side: requests in order, lost connections
    socket_watches.py   what it watches, over lost connections

What a disconnect means is what it means with ZooKeeper (`zk.py`): reads wait and are repeated, a commit in flight
raises ConnectionLost, one made meanwhile waits. When the store reports that the session has expired, subscribers get
SessionLost, commits SessionExpired; a new session is made automatically, then comes SessionBack.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import trio

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.socket_link import Connect, Link, Outside, Request
from barnabas.replication.store.socket_watches import Watches
from barnabas.replication.store.store import ConnectionLost, Node, Op, StoreEvent, StoreFailed, check_path, check_size

CLOSE_S: Final = 5.0
"""How long the end of the session may take."""
_PATHS_AT_ONCE: Final = 1000
_PATHS_BYTES: Final = 1 << 19


@asynccontextmanager
async def socket_store(
    connect: Connect,
    *,
    timeout_ms: int,
    connect_within_ms: int | None = None,
    name: str = "a broker",
    outside: Outside | None = None,
) -> AsyncIterator[SocketStore]:
    """A session with the store that `connect` reaches, ended on leaving (its ephemeral nodes go at once, if the store
    can be reached). timeout_ms: of the session; name: for the store's log; outside: as of `Link`.

    Raises ConnectionLost if there is no session in time, StoreFailed if the store refuses us.
    """
    watches = Watches()
    link = watches.link = Link(connect, watches, timeout_ms=timeout_ms, name=name, outside=outside)
    within_ms = connect_within_ms or timeout_ms
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run, link, watches)
        try:
            with trio.move_on_after(within_ms / 1000) as late:
                await link.ready()
            if late.cancelled_caught:
                raise ConnectionLost(f"no connection to the metadata store within {within_ms} ms: {link.trouble}")
            try:
                yield SocketStore(link, watches)
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
                    await link.close()
        except BaseException as error:
            failure = error  # raised outside, or it would come out in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _run(link: Link, watches: Watches) -> None:
    try:
        await link.run()
    finally:
        link.finish(StoreFailed("the connection to the metadata store has ended"))
        watches.ended()


class SocketStore:
    """A `Store`: one session with the store of this machine. Made by `socket_store`."""

    def __init__(self, link: Link, watches: Watches) -> None:
        self._link = link
        self._watches = watches

    @property
    def session_id(self) -> int:
        """The present session, 0 if there is none. Another one after an expiry."""
        return self._link.session

    async def get(self, path: str) -> Node | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if not paths:
            await trio.lowlevel.checkpoint()
        nodes: list[Node | None] = []
        while len(nodes) < len(paths):
            some = _some(paths, len(nodes))
            request = Request(wire.encode_paths(wire.GET, some), repeat=True)
            found = await self._link.ask(request, wire.NODES, wire.decode_nodes)
            if not 0 < len(found) <= len(some):
                raise ConnectionLost(f"the metadata store does not make sense: {len(found)} nodes of {len(some)}")
            nodes += found
        return nodes

    async def children(self, path: str) -> list[str]:
        return await self._link.ask(Request(wire.encode_children(path), repeat=True), wire.NAMES, wire.decode_paths)

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        ops = tuple(ops)
        if not ops:
            await trio.lowlevel.checkpoint()
            return []
        for op in ops:
            check_path(op.path)
        check_size(ops)
        request = Request(wire.encode_commit(ops), bound=True)
        return await self._link.ask(request, wire.DONE, lambda reader: wire.decode_done(reader, ops))

    def changes(self, places: Collection[str]) -> AbstractAsyncContextManager[AsyncIterator[StoreEvent]]:
        self._link.check_open()
        return self._watches.subscribed(places)


def _some(paths: Sequence[str], start: int) -> list[str]:
    """As many paths from `start` on as one request may have."""
    some: list[str] = []
    size = 0
    for path in paths[start : start + _PATHS_AT_ONCE]:
        size += len(path.encode())
        if some and size > _PATHS_BYTES:
            break
        some.append(path)
    return some
