"""A store whose connection may come and go: what the controller's loop and the receiver of its messages work with.

A lost connection is not the end of the session: the client connects again, perhaps to another server of the ensemble.
Until then reads wait and are repeated. A commit whose outcome is unknown is repeated as well; if the store refuses the
repetition, the nodes themselves tell whether the first attempt did it (each has the data and version it would have
given them), and then it counts as done. So whoever calls sees neither ConnectionLost nor a commit done twice – but for
sequential nodes (notifications, which may come twice) and writes to whatever version, which mean the same twice.

Waits end when the session does: SessionExpired. A cut-off broker therefore waits here; what others decide meanwhile
is protected from it by versions and epochs. Apache Kafka's `KafkaZkClient.retryRequestsUntilConnected` does this.
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

    async def get(self, path: str) -> Node | None:
        return await self._until_answered(lambda: self._store.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._until_answered(lambda: self._store.get_many(paths))

    async def children(self, path: str) -> list[str]:
        return await self._until_answered(lambda: self._store.children(path))

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        repeated = False
        while True:
            try:
                return await self._store.commit(ops)
            except ConnectionLost:
                repeated = True
                await trio.sleep(RETRY_S)
            except CommitRefused:
                if repeated:
                    done = await self._until_answered(lambda: done_already(self._store, ops))
                    if done is not None:
                        log.info("commit of %s: its outcome was unknown, it had been done", ops[-1].path)
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
