"""A store that survives lost connections: for the controller's loop and the receiver of its messages.

A lost connection does not end the session: the client reconnects, perhaps to another server of the ensemble. Until then
reads wait and are repeated. A commit of unknown outcome is repeated as well; if the store rejects the repetition, the
nodes show whether the first attempt succeeded (each has the data and version that the commit gave it), and then it
counts as done. So callers see neither ConnectionLost nor a commit done twice – except for sequential nodes
(notifications, which may appear twice) and writes to any version, which are idempotent.

Waits end when the session does: SessionExpired. A partitioned broker waits here; versions and epochs protect
what others decide meanwhile. Apache Kafka's `KafkaZkClient.retryRequestsUntilConnected` does this.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import trio

from barnabas.replication import CommitRefused, ConnectionLost, Node, Op, Store, StoreEvent, done_already

log = logging.getLogger("barnabas.store")

RETRY_S = 0.1
T = TypeVar("T")


class SteadyStore:
    """A `Store` over another one. See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.newest_commit = 0
        """Id of the newest commit whose outcome was written or read here; it never falls."""

    async def get(self, path: str) -> Node | None:
        node = await self._until_answered(lambda: self._store.get(path))
        self._seen([node])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = await self._until_answered(lambda: self._store.get_many(paths))
        self._seen(nodes)
        return nodes

    async def children(self, path: str) -> list[str]:
        return await self._until_answered(lambda: self._store.children(path))

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        repeated = False
        while True:
            try:
                nodes = await self._store.commit(ops)
                self._seen(nodes)
                return nodes
            except ConnectionLost:
                repeated = True
                await trio.sleep(RETRY_S)
            except CommitRefused:
                if repeated:
                    done = await self._until_answered(lambda: done_already(self._store, ops))
                    if done is not None:
                        log.info("commit of %s: its outcome was unknown, it had succeeded", ops[-1].path)
                        self._seen(done)
                        return done
                raise

    def changes(self, places: Collection[str]) -> AbstractAsyncContextManager[AsyncIterator[StoreEvent]]:
        return self._store.changes(places)

    async def _until_answered(self, read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await read()
            except ConnectionLost:
                await trio.sleep(RETRY_S)

    def _seen(self, nodes: Sequence[Node | None]) -> None:
        self.newest_commit = max(self.newest_commit, *(node.mzxid for node in nodes if node is not None), 0)
