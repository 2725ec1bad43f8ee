"""Feature levels in force: what is read while it changes."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.replication.store.store import Node
from barnabas.replication.tree.features import SHARE_VERSION, encode_finalised
from barnabas.server.cluster.features import Features


def node(version: int, level: int) -> Node:
    return Node("/feature", encode_finalised({SHARE_VERSION: level}), version, version, version)


class SlowStore:
    """Answers each read with what is there when it is asked, but only as the test lets it."""

    def __init__(self) -> None:
        self.now = node(1, 0)
        self.reads: list[trio.Event] = []

    async def get(self, path: str) -> Node:
        found, answered = self.now, trio.Event()
        self.reads.append(answered)
        await answered.wait()
        return found


async def test_an_answer_that_is_overtaken_puts_no_former_level_in_force() -> None:
    """A change through this broker is read while the event of the one before is."""
    store: Any = SlowStore()
    features = Features(store, 1, clustered=True, metadata_level=None, uses_zookeeper=False, changed=lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(features.load)
        await wait_all_tasks_blocked()
        store.now = node(2, 1)
        nursery.start_soon(features.load)
        await wait_all_tasks_blocked()
        while any(not each.is_set() for each in store.reads):
            store.reads[-1].set()
            await wait_all_tasks_blocked()
            store.reads[0].set()
            await wait_all_tasks_blocked()
    assert (features.epoch, features.level(SHARE_VERSION)) == (2, 1)
