"""The levels of features that new clusters begin with, in one process, by their stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from barnabas.replication import EmbeddedStore, Node, Store
from barnabas.replication.tree import features
from barnabas.server.cluster.features import Features
from barnabas.server.testing import embedded_cluster


async def in_force(found: Features, levels: Mapping[str, int]) -> None:
    """Wait until they are; brokers hear of a change one after the other."""
    while True:
        if all(found.level(name) == level for name, level in levels.items()):
            return
        await trio.sleep(0.1)


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({}, {}),  # brokers of Apache Kafka 3.x may join
        ({"zookeeper_connect": "", "metadata_store_socket": "/in/memory"}, dict(features.NEWEST)),
    ],
    ids=["ZooKeeper", "a store of ours"],
)
async def test_what_a_new_cluster_begins_with(
    autojump_clock: MockClock, settings: dict[str, str], levels: dict[str, int]
) -> None:
    async with embedded_cluster(3, **settings) as cluster:
        for broker_id in cluster.running:
            await in_force(cluster[broker_id].services.features, {**dict.fromkeys(features.NEWEST, 0), **levels})
        node = await cluster.store.connect().get("/feature")
        assert node is not None
        assert json.loads(node.data) == {"version": 2, "status": 1, "features": levels}
        # What is there stays, whoever becomes controller.
        down = features.FeatureUpdate(features.SHARE_VERSION, 0, features.SAFE_DOWNGRADE)
        first = cluster.controller()
        await cluster[first].services.features.update([down], validate_only=False)
        await cluster.kill(first)
        await cluster.all_alive()
        for broker_id in cluster.running:
            await in_force(cluster[broker_id].services.features, {**levels, features.SHARE_VERSION: 0})


async def test_brokers_that_start_together_serve_with_the_levels(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the store is: a client that finds share groups switched off does not ask again."""
    store = EmbeddedStore.open()

    @asynccontextmanager
    async def slow(broker_id: int) -> AsyncIterator[Store]:
        session = store.connect()
        get = session.get

        async def late(path: str) -> Node | None:
            found = await get(path)
            await trio.sleep(1 if path == "/feature" else 0)
            return found

        monkeypatch.setattr(session, "get", late)
        try:
            yield session
        finally:
            with trio.CancelScope(shield=True):
                await session.aclose()

    settings = {"zookeeper_connect": "", "metadata_store_socket": "/in/memory"}
    async with embedded_cluster(0, sessions=slow, **settings) as cluster:

        async def start(broker_id: int) -> None:
            found = (await cluster.start(broker_id)).services.features
            assert {name: found.level(name) for name in features.NEWEST} == features.NEWEST, broker_id

        async with trio.open_nursery() as nursery:
            for broker_id in (1, 2, 3):
                nursery.start_soon(start, broker_id)
