"""Numbers and registrations of brokers in the coordination tree.

    /brokers/seqid             written by a broker that needs a number: the version that its write gave the node
    /brokers/ids/N             there while broker N is alive

Source: `KafkaZkClient.generateBrokerId` (core, 3.9).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.replication.store.store import Set, Store, StoreEvent
from barnabas.replication.tree import paths
from barnabas.replication.tree.cluster_tree import make_paths
from barnabas.replication.tree.registration import decode_broker
from barnabas.replication.values.image import BrokerImage


async def take_broker_number(store: Store) -> int:
    """A number that no other broker gets, from 1 on. Raises StoreError."""
    await make_paths(store, [paths.SEQUENCE_ID])
    [node] = await store.commit([Set(paths.SEQUENCE_ID, b"")])
    assert node is not None
    return node.version


async def read_broker(store: Store, broker_id: int) -> BrokerImage | None:
    """The registration of a broker; None if it is not alive, or its node is unreadable. Raises StoreError."""
    node = await store.get(paths.broker(broker_id))
    if node is None:
        return None
    try:
        return decode_broker(broker_id, node.data, node.czxid)
    except paths.BadNode:
        return None


class Registration:
    """The place where a broker registers, seen from outside. Made by `watch_registration`."""

    def __init__(self, store: Store, path: str, changes: AsyncIterator[StoreEvent]) -> None:
        self._store = store
        self._path = path
        self._changes = changes

    async def is_there(self) -> bool:
        """Whether a broker is registered. Raises StoreError."""
        return await self._store.get(self._path) is not None

    async def until_gone(self) -> None:
        """Return when no broker is registered. Raises StoreError."""
        while await self.is_there():
            await anext(self._changes)


@asynccontextmanager
async def watch_registration(store: Store, broker_id: int) -> AsyncIterator[Registration]:
    """Watch the registration of `broker_id` while in the context."""
    async with store.changes([paths.BROKER_IDS]) as changes:
        yield Registration(store, paths.broker(broker_id), changes)
