"""Three brokers on the store of one machine, under a mock clock: who loses it, and what happens when it goes away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ProduceRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.replication.store.socket_store import SocketStore, socket_store
from barnabas.replication.tests.store.socket_rig import TIMEOUT_MS, Machine, machine
from barnabas.server.testing import EmbeddedCluster, embedded_cluster
from barnabas.server.tests.whole.cluster_users import User

E = ErrorCode
TIMEOUT_S = TIMEOUT_MS / 1000


class Ways:
    """The way of each broker to the store; each can be cut by itself."""

    def __init__(self, one: Machine) -> None:
        self.machine = one
        self.closed: set[int] = set()
        self._open: dict[int, list[trio.abc.Stream]] = {}
        self.stores: dict[int, SocketStore] = {}

    @asynccontextmanager
    async def session(self, broker_id: int) -> AsyncIterator[SocketStore]:
        async def connect() -> trio.abc.Stream:
            if broker_id in self.closed:
                await trio.lowlevel.checkpoint()
                raise ConnectionRefusedError(111, "Connection refused")
            stream = await self.machine.connect()
            self._open.setdefault(broker_id, []).append(stream)
            return stream

        async with socket_store(connect, timeout_ms=TIMEOUT_MS, name=f"broker {broker_id}") as store:
            self.stores[broker_id] = store
            yield store

    async def cut(self, broker_id: int) -> None:
        self.closed.add(broker_id)
        for stream in self._open.pop(broker_id, []):
            await trio.aclose_forcefully(stream)

    def heal(self, broker_id: int) -> None:
        self.closed.discard(broker_id)


@asynccontextmanager
async def three(directory: Path) -> AsyncIterator[tuple[EmbeddedCluster, Ways]]:
    async with machine(directory) as one:
        ways = Ways(one)
        with trio.fail_after(600):
            async with embedded_cluster(
                3,
                sessions=ways.session,
                min_insync_replicas="2",
                zookeeper_session_timeout_ms=str(TIMEOUT_MS),
                replica_lag_time_max_ms="5000",
            ) as cluster:
                yield cluster, ways


async def produced_at(user: User, broker_id: int, index: int) -> ErrorCode:
    """What one broker says to a record with acks=all, whoever leads."""
    partition = ProduceRequest.PartitionProduceData(index=index, records=build_batch([Record(0, 0, None, b"x", [])]))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[topic])
    answer = await user.ask(broker_id, request, 7)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def test_who_has_lost_the_store_commits_nothing_and_comes_back(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with three(tmp_path) as (cluster, ways):
        user = User(cluster)
        await user.topic("t", 3)
        victim = next(number for number in cluster.running if number != cluster.controller())
        index = [await cluster.leader("t", i) for i in range(3)].index(victim)
        epoch = cluster[victim].services.cluster.broker_epoch
        await ways.cut(victim)
        assert await produced_at(user, victim, index) == E.NONE, "its session and its followers are there"
        others = [number for number in cluster.running if number != victim]
        for other in others:
            await cluster[other].services.cluster.image_until(lambda image: victim not in image.brokers)
            await cluster[other].services.cluster.image_until(
                lambda image: image.topics["t"].partitions[index].leader in others
            )
        assert await produced_at(user, victim, index) != E.NONE, "nobody follows it any more"
        leader = cluster[others[0]].services.image.topics["t"].partitions[index].leader
        assert await produced_at(user, leader, index) == E.NONE
        before = await user.end_offset("t", index)
        ways.heal(victim)
        await cluster.all_alive()
        await cluster.partition_until("t", index, lambda partition: len(partition.isr) == 3)
        assert cluster[victim].services.cluster.broker_epoch > epoch
        assert await user.end_offset("t", index) == before, "what it took meanwhile is gone"


async def test_a_controller_that_has_lost_the_store_is_none(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with three(tmp_path) as (cluster, ways):
        user = User(cluster)
        await user.topic("t", 3)
        victim = cluster.controller()
        await ways.cut(victim)
        others = [number for number in cluster.running if number != victim]
        while not any(cluster[number].services.cluster.is_active for number in others):  # noqa: ASYNC110
            await trio.sleep(0.1)
        for index in range(3):
            await cluster[others[0]].services.cluster.image_until(
                lambda image, index=index: image.topics["t"].partitions[index].leader in others
            )
        ways.heal(victim)
        await cluster.all_alive()
        assert not cluster[victim].services.cluster.is_active
        await user.topic("after", 2)


@pytest.mark.parametrize("away_s", [1, 10 * TIMEOUT_S])
async def test_the_store_goes_away_and_comes_back(autojump_clock: MockClock, tmp_path: Path, away_s: float) -> None:
    """However long: sessions last, nobody is elected, records are taken meanwhile."""
    async with three(tmp_path) as (cluster, ways):
        user = User(cluster)
        await user.topic("t", 3)
        controller = cluster.controller()
        sessions = {number: store.session_id for number, store in ways.stores.items()}
        epochs = [await leader_epoch(cluster, index) for index in range(3)]
        ways.machine.kill()
        for index in range(3):
            assert await produced_at(user, await cluster.leader("t", index), index) == E.NONE
        await trio.sleep(away_s)
        await ways.machine.start()
        await user.topic("after", 2)
        assert cluster.controller() == controller
        assert {number: store.session_id for number, store in ways.stores.items()} == sessions
        assert [await leader_epoch(cluster, index) for index in range(3)] == epochs


async def leader_epoch(cluster: EmbeddedCluster, index: int) -> int:
    leader = await cluster.leader("t", index)
    return cluster[leader].services.image.topics["t"].partitions[index].leader_epoch
