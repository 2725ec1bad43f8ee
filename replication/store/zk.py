"""The store on a ZooKeeper ensemble: the tree that several brokers share, Apache Kafka's among them.

`zookeeper_store(settings)` connects, makes the chroot if it is absent, and gives one session: a `Store`. kazoo is
imported there and not before, so that a broker alone does not pay for it.

    zk.py           the store
    zk_settings.py  how to reach ZooKeeper
    zk_link.py      trio ↔ kazoo: one ordered queue of requests, and what the end of a connection means
    zk_watches.py   one-shot watches → changes
    zk_multi.py     commits as bytes
    zk_client.py    kazoo set up: thread, sockets, TLS, errors

What a disconnect means. Reads wait and are repeated. A commit in flight raises ConnectionLost; one made meanwhile
waits. Subscribers get no event for a mere disconnect: changes made meanwhile are reported after it. When ZooKeeper
reports that the session has expired, subscribers get SessionLost, commits SessionExpired; a new session is made
automatically, then comes SessionBack. The creators of ephemeral nodes create them again.
Every connection begins with a `sync`: what is read on it is not older than what was read on the last one.

Access lists are Apache Kafka's: with `set_acl` any client may read and the creator may do everything, but only the
creator reads /config/users, /config/brokers and /delegation_token/tokens; /consumers is open. Sources: `ZkData.scala`,
`KafkaZkClient.scala`, `ZooKeeperClient.scala` (core, 3.9).

Not here: SASL with Kerberos, read-only servers, changing the access lists of nodes that exist (Apache Kafka has a tool
for that, zookeeper-security-migration).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from barnabas.replication.store.store import (
    CommitTooLarge,
    ConnectionLost,
    Create,
    Node,
    NodeExists,
    Op,
    StoreError,
    StoreEvent,
    StoreFailed,
    check_path,
    check_size,
    parent_of,
)
from barnabas.replication.store.zk_settings import ZooKeeperSettings, split_connect

if TYPE_CHECKING:
    from barnabas.replication.store.zk_link import Link
    from barnabas.replication.store.zk_multi import Acl
    from barnabas.replication.store.zk_watches import Watches

LARGEST_PACKET = 1024 * 1024 - 1
"""What ZooKeeper takes at most as one request, in bytes (jute.maxbuffer)."""

_STOP_WITHIN_S = 5
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/barnabas")
_OPEN = "/consumers"


def access_list(path: str, *, secure: bool) -> tuple[Acl, ...]:
    """The access list that Apache Kafka gives a new node at `path` (without chroot)."""
    from barnabas.replication.store.zk_multi import Acl

    if not secure or path == _OPEN:
        return (Acl(31, "world", "anyone"),)
    creator = Acl(31, "auth", "")
    return (creator,) if path.startswith(_SENSITIVE) else (creator, Acl(1, "world", "anyone"))


@asynccontextmanager
async def zookeeper_store(settings: ZooKeeperSettings) -> AsyncIterator[ZooKeeperStore]:
    """A session with ZooKeeper, ended on leaving (its ephemeral nodes go at once, if ZooKeeper can be reached).

    Raises ConnectionLost if there is no connection in time, StoreFailed if ZooKeeper refuses our login.
    """
    from barnabas.replication.store.zk_client import make_client
    from barnabas.replication.store.zk_link import Link

    hosts, chroot = split_connect(settings.connect)
    client = make_client(
        hosts,
        session_timeout=settings.session_timeout_ms / 1000,
        context=settings.tls,
        sasl=(settings.sasl.user, settings.sasl.password) if settings.sasl else None,
        digest=(settings.digest.user, settings.digest.password) if settings.digest else None,
    )
    link = Link(client, settings.max_in_flight)
    store = ZooKeeperStore(link, chroot, secure=settings.set_acl)
    within_ms = settings.connection_timeout_ms or settings.session_timeout_ms
    try:
        with trio.CancelScope() as refused, trio.move_on_after(within_ms / 1000) as late:
            link.on_refused = refused.cancel
            await trio.to_thread.run_sync(link.start)
            await store._make_chroot()
        if refused.cancelled_caught:
            raise StoreFailed(f"ZooKeeper at {hosts} refuses our login")
        if late.cancelled_caught:
            raise ConnectionLost(
                f"no connection to ZooKeeper at {hosts} within {within_ms} ms: {link.trouble or 'no answer'}"
            )
        yield store
    finally:
        link.close()
        with trio.CancelScope(shield=True), trio.move_on_after(_STOP_WITHIN_S):
            await trio.to_thread.run_sync(link.stop, abandon_on_cancel=True)


class ZooKeeperStore:
    """A `Store`: one session with ZooKeeper. Made by `zookeeper_store`."""

    def __init__(self, link: Link, chroot: str, *, secure: bool) -> None:
        from barnabas.replication.store.zk_watches import Watches

        self._link = link
        self._chroot = chroot
        self._secure = secure
        self._watches: Watches = Watches(link, self._full_path)
        link.on_lost = self._watches.session_lost
        link.on_connected = self._connected

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the present session, 0 if there is none. Another one after an expiry."""
        return self._link.session_id

    async def get(self, path: str) -> Node | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        from barnabas.replication.store.zk_client import failure, is_no_node

        answers = await self._link.ask([_get(self._full_path(path)) for path in paths])
        nodes: list[Node | None] = []
        for path, (found, error) in zip(paths, answers, strict=True):
            if error is None:
                data, stat = found
                nodes.append(Node(path, data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner != 0))
            elif is_no_node(error):
                nodes.append(None)
            else:
                raise failure(path, error) from error
        return nodes

    async def children(self, path: str) -> list[str]:
        from barnabas.replication.store.zk_client import failure, is_no_node

        full = self._full_path(path)
        [(names, error)] = await self._link.ask([lambda client: client.get_children_async(full)])
        if error is None:
            return sorted(names)
        if is_no_node(error):
            return []
        raise failure(path, error) from error

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        from barnabas.replication.store.zk_client import MultiRequest, failure, refusal, send_multi
        from barnabas.replication.store.zk_multi import Refused, encode_multi

        ops = tuple(ops)
        if not ops:
            await trio.lowlevel.checkpoint()
            return []
        for op in ops:
            check_path(op.path)
        check_size(ops)
        body = encode_multi(ops, self._chroot, self._acls)
        if len(body) + 64 > LARGEST_PACKET:  # 64: its header, with some to spare
            raise CommitTooLarge(ops[0].path, 0, f"{len(ops)} operations of more than {LARGEST_PACKET} bytes as sent")
        request = MultiRequest(ops, self._chroot, body)
        try:
            [outcome] = await self._link.commit(lambda client: send_multi(client, request))
        except StoreError:
            raise
        except Exception as exc:
            raise failure(ops[0].path, exc) from exc
        if isinstance(outcome, Refused):
            raise refusal(ops, outcome)
        return list(outcome)

    def changes(self, places: Collection[str]) -> AbstractAsyncContextManager[AsyncIterator[StoreEvent]]:
        self._link.check_open()
        return self._watches.subscribed(places)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _connected(self, is_new_session: bool) -> None:
        self._watches.connected()
        if is_new_session:
            self._watches.session_back()

    async def _make_chroot(self) -> None:
        """Make the node under which the tree hangs, and those above it, if absent."""
        if not self._chroot:
            await self.get("/")
            return
        chroot, self._chroot = self._chroot, ""
        try:
            missing = []
            path = chroot
            while path != "/" and await self.get(path) is None:
                missing.append(path)
                path = parent_of(path)
            for path in reversed(missing):
                try:
                    await self.commit([Create(path)])
                except NodeExists:  # another broker does the same
                    pass
        finally:
            self._chroot = chroot

    def _full_path(self, path: str) -> str:
        check_path(path)
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _acls(self, path: str) -> Sequence[Acl]:
        return access_list(path, secure=self._secure)


def _get(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_async(path)
