"""`__share_group_state` of whole brokers: how it is made, and that its partitions are coordinated by their leaders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.share import ShareKey, StateRead, Stored, coordinator_key
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FindCoordinatorRequest
from barnabas.replication import SHARE_GROUP_STATE_TOPIC
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.whole.cluster_users import User, three_brokers

E = ErrorCode
TOPIC = SHARE_GROUP_STATE_TOPIC


class Answer:
    """A token that can be awaited."""

    def __init__(self) -> None:
        self._is_there = trio.Event()
        self.value: Any = None

    def reply(self, response: Any) -> None:
        self.value = response
        self._is_there.set()

    async def wait(self) -> Any:
        await self._is_there.wait()
        return self.value


async def told(broker: Broker, what: str, key: ShareKey, *args: Any) -> Any:
    answer = Answer()
    getattr(broker.services.share_states, what)(key, *args, answer)
    broker.services.partitions.write_staged()
    return await answer.wait()


async def until(ready: Callable[[], bool]) -> None:
    while True:
        if ready():
            return
        await trio.sleep(0.001)


def stored(broker: Broker) -> set[ShareKey]:
    shards = broker.services.share_states.runtime.shards.values()
    return {key for led in shards for key in led.shard.store.partitions}


def share_key(broker: Broker, name: str, group_id: str = "g", partition: int = 0) -> ShareKey:
    return ShareKey(group_id, broker.services.image.topics[name].topic_id, partition)


async def test_a_broker_alone(tmp_path: Path) -> None:
    settings = {
        "share_coordinator_state_topic_num_partitions": "3",
        "share_coordinator_state_topic_segment_bytes": "1000000",
    }
    async with embedded_broker(tmp_path, **settings) as broker:
        assert not broker.services.share_states.runtime.shards
        broker.services.share_states.want_topic()
        await broker.services.cluster.image_until(lambda image: TOPIC in image.topics)
        topic = broker.services.image.topics[TOPIC]
        assert topic.is_internal
        assert len(topic.partitions) == 3
        assert dict(topic.config) == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
            "segment.bytes": "1000000",
        }
        await broker.services.topics.auto_create(["t", "u"])
        t, u = share_key(broker, "t"), share_key(broker, "u")
        assert await told(broker, "initialize", t, 1, 5) == Stored(E.NONE)
        assert await told(broker, "initialize", u, 1, 6) == Stored(E.NONE)
        await broker.services.topics.delete_topics(["u"], timeout_ms=10_000)
        assert stored(broker) == {t}
    async with embedded_broker(tmp_path, **settings) as broker:
        states = broker.services.share_states
        await until(lambda: all(led.is_active for led in states.runtime.shards.values()))
        assert stored(broker) == {t}
        assert await told(broker, "read", t, 0) == StateRead(E.NONE, None, 1, 5, ())


async def test_a_cluster(autojump_clock: MockClock) -> None:
    async with three_brokers(share_coordinator_state_topic_num_partitions="3") as cluster:
        user, one = User(cluster), cluster[cluster.running[0]]
        one.services.share_states.want_topic()
        for index in range(3):
            await cluster.leader(TOPIC, index)
        await cluster.image_until(lambda image: all(len(part.isr) == 3 for part in image.topics[TOPIC].partitions))
        assert one.services.image.topics[TOPIC].config["min.insync.replicas"] == "2"
        await user.topic("t", replicas=1)
        key = share_key(one, "t")
        place = one.services.share_states.place(coordinator_key(key))
        assert place is not None
        leader = cluster[place.leader]
        assert await told(leader, "initialize", key, 1, 5) == Stored(E.NONE)
        await cluster.kill(place.leader)
        after = await cluster.leader(TOPIC, place.index, but=place.leader)
        led = cluster[after].services.share_states.runtime.shards[place.index]
        await until(lambda: led.is_active)
        assert await told(cluster[after], "read", key, 0) == StateRead(E.NONE, None, 1, 5, ())


async def test_a_cluster_forgets_deleted_topics(autojump_clock: MockClock) -> None:
    """Also those of which the coordinator's broker has no partition."""
    async with three_brokers(share_coordinator_state_topic_num_partitions="3") as cluster:
        user, one = User(cluster), cluster[cluster.running[0]]
        one.services.share_states.want_topic()
        for index in range(3):
            await cluster.leader(TOPIC, index)
        await user.topic("t", replicas=1)
        keys = [share_key(one, "t", f"g{n}") for n in range(9)]
        leaders = set()
        for key in keys:
            place = one.services.share_states.place(coordinator_key(key))
            assert place is not None
            leaders.add(place.leader)
            assert await told(cluster[place.leader], "initialize", key, 1, 5) == Stored(E.NONE)
        assert len(leaders) == 3
        await cluster[cluster.controller()].services.topics.delete_topics(["t"], timeout_ms=10_000)
        await until(lambda: not any(stored(cluster[broker_id]) for broker_id in leaders))


async def test_the_coordinator_of_a_share_partition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded_broker(share_coordinator_state_topic_num_partitions="3") as broker:
        await broker.services.topics.auto_create(["t"])
        good = coordinator_key(share_key(broker, "t", "g:h"))
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[good, "g:t:0"])
        async with connected(broker) as client:
            monkeypatch.setattr(broker.services.features, "level", lambda name: 0)
            answer = await client.ask(request, 6)
            assert {each.error_code for each in answer.coordinators} == {E.INVALID_REQUEST}, "nobody may know of them"
            assert TOPIC not in broker.services.image.topics
            monkeypatch.setattr(broker.services.features, "level", lambda name: int(name == "share.version"))
            answer = await client.ask(request, 6)
            assert [(each.key, each.error_code, each.node_id) for each in answer.coordinators] == [
                (good, E.NONE, broker.config.broker_id),
                ("g:t:0", E.INVALID_REQUEST, -1),
            ]
            assert TOPIC in broker.services.image.topics
            answer = await client.ask(request, 5)
            assert {each.error_code for each in answer.coordinators} == {E.INVALID_REQUEST}
