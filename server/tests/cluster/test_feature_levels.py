"""The levels of features that new clusters begin with, in one process, by their stores."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

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
