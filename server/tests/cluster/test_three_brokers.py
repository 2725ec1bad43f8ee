"""The controller among three brokers in one process: notifications, fail-over, sessions, restarts, slow brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ProduceRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.replication import (
    Endpoint,
    Image,
    LeaderAndIsr,
    PartitionChange,
    StoppedPartition,
    StopReplica,
    TopicRequest,
)
from barnabas.replication.store.store import Delete
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.cluster.topic_requests import TopicRequests
from barnabas.server.testing import EmbeddedCluster, connected, embedded_cluster


@asynccontextmanager
async def cluster(**settings: str) -> AsyncIterator[EmbeddedCluster]:
    with trio.fail_after(600):
        async with embedded_cluster(3, **settings) as three:  # type: ignore[arg-type]
            yield three


def member(three: EmbeddedCluster, broker_id: int | None = None) -> ClusterMember:
    """A broker, or the one that is controller."""
    return three[three.controller() if broker_id is None else broker_id].services.cluster


def topics(three: EmbeddedCluster) -> TopicRequests:
    """Of the broker that is controller."""
    return three[three.controller()].services.topics


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await is_so():
            return
        await trio.sleep(0.1)


async def create(three: EmbeddedCluster, name: str = "t", partitions: int = 6, **fields: object) -> None:
    request = TopicRequest(name, partitions=partitions, replication_factor=len(three.running), **fields)  # type: ignore[arg-type]
    outcome = await topics(three).create_topics([request], timeout_ms=60_000)
    assert outcome[name].error is None
    await three.image_until(lambda image: name in image.topics)


def led_by(image: Image, topic: str = "t") -> list[int]:
    return [partition.leader for partition in image.topics[topic].partitions]


async def settled(three: EmbeddedCluster, topic: str = "t") -> Image:
    """All that run see the same partitions, led by those that run; the controller's image."""
    alive = sorted(three.running)

    def ready(image: Image) -> bool:
        return (
            sorted(image.brokers) == alive
            and image.controller_id in alive
            and topic in image.topics
            and all(leader in alive for leader in led_by(image, topic))
        )

    while True:
        await three.image_until(ready)
        images = {
            (tuple(image.brokers), image.controller_id, image.controller_epoch, image.topics[topic].partitions)
            for image in (three[broker_id].services.image for broker_id in alive)
        }
        if len(images) == 1 and three.controller() == three[alive[0]].services.image.controller_id:
            return member(three).image
        await trio.sleep(0.1)


async def test_all_brokers_are_notified(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three, configs=(("retention.ms", "5000"),))
        image = await settled(three)
        topic = image.topics["t"]
        assert sorted(led_by(image)) == [1, 1, 2, 2, 3, 3]
        for broker_id in (1, 2, 3):
            services = three[broker_id].services
            seen = services.image
            assert (seen.controller_id, seen.controller_epoch) == (three.controller(), 1)
            assert seen.topics["t"].topic_id == topic.topic_id
            assert seen.topics["t"].config == {"retention.ms": "5000"}
            for partition in topic.partitions:
                replica = services.partitions.get("t", partition.index)
                assert replica.is_leader == (partition.leader == broker_id)
                assert replica.leader_epoch == 0


async def test_deleting_a_topic_leaves_nothing_anywhere(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        outcome = await topics(three).delete_topics(["t"], timeout_ms=60_000)
        assert outcome["t"].error is None
        await three.image_until(lambda image: "t" not in image.topics)
        for broker_id in (1, 2, 3):
            assert three[broker_id].services.partitions.find("t", 0) is None
            assert not list((three.members[broker_id].directory).glob("t-?"))
        assert await three.members[1].session.children("/brokers/topics") == []


async def test_a_topic_is_deleted_when_its_last_broker_is_back(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        away = next(b for b in (1, 2, 3) if b != three.controller())
        await three.kill(away)
        await settled(three)
        await topics(three).delete_topics(["t"], timeout_ms=60_000)
        assert await three.members[three.controller()].session.children("/admin/delete_topics") == ["t"]
        assert list((three.members[away].directory).glob("t-?"))
        await three.start(away)

        async def is_gone() -> bool:
            return not await three.members[away].session.children("/brokers/topics")

        await until(is_gone)
        assert not list((three.members[away].directory).glob("t-?"))


async def test_a_leader_dies_and_comes_back(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        victim = next(b for b in (1, 2, 3) if b != three.controller())
        await three.kill(victim)
        image = await settled(three)
        assert victim not in led_by(image)
        assert all(victim not in partition.isr for partition in image.topics["t"].partitions)
        await three.start(victim)
        await three.image_until(
            lambda image: all(sorted(partition.isr) == [1, 2, 3] for partition in image.topics["t"].partitions)
        )


async def test_the_controller_dies_and_another_takes_over(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        old = three.controller()
        await three.kill(old)
        image = await settled(three)
        assert image.controller_epoch == 2
        assert image.controller_id not in (old, -1)
        assert old not in led_by(image)
        await create(three, "u", 3)
        await three.start(old)
        image = await settled(three, "u")
        assert image.controller_epoch == 2, "who comes back follows"
        assert not member(three, old).is_active


async def test_a_clean_stop_of_the_controller_hands_its_leaderships_over_first(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        old = three.controller()
        await three.stop(old)
        image = await settled(three)
        assert image.controller_epoch == 2
        assert old not in led_by(image)


@pytest.mark.parametrize("who", ["controller", "other"])
async def test_a_session_expires(who: str, autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        old = three.controller()
        victim = old if who == "controller" else next(b for b in (1, 2, 3) if b != old)
        epoch = member(three, victim).broker_epoch
        await three.expire(victim)
        await three.image_until(lambda image: image.controller_epoch == (2 if who == "controller" else 1))

        async def has_registered() -> bool:
            return member(three, victim).broker_epoch > epoch

        await until(has_registered)
        image = await settled(three)
        assert sum(member(three, b).is_active for b in (1, 2, 3)) == 1
        assert member(three, victim).broker_epoch > epoch
        assert image.brokers[victim].epoch in (-1, member(three, victim).broker_epoch)
        await create(three, "u", 3)
        await three.image_until(
            lambda image: all(sorted(partition.isr) == [1, 2, 3] for partition in image.topics["t"].partitions)
        )


async def test_all_sessions_expire_again_and_again(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        for victim in (1, 2, 3, 3, 2, 1, 1, 1):
            await three.expire(victim)
        await settled(three)
        await create(three, "u", 3)
        await settled(three, "u")


async def test_messages_of_a_deposed_controller_are_refused(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        old = three.controller()
        await three.expire(old)
        await three.image_until(lambda image: image.controller_epoch == 2)
        image = await settled(three)
        target = next(b for b in (1, 2, 3) if b != old)
        epoch = member(three, target).broker_epoch
        topic = image.topics["t"]
        change = PartitionChange("t", topic.topic_id, topic.partitions[0])
        for message in (
            LeaderAndIsr(old, 1, epoch, (change,)),
            StopReplica(old, 1, epoch, (StoppedPartition("t", 0, -2, True),)),
        ):
            with pytest.raises(KafkaError) as caught:
                await member(three, target).receive(message)
            assert caught.value.code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert three[target].services.partitions.find("t", 0) is not None


async def test_an_unreachable_broker_does_not_delay_others(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        controller = three.controller()
        lonely, other = (b for b in (1, 2, 3) if b != controller)
        await three.cut(controller, lonely)
        request = TopicRequest("t", partitions=3, replication_factor=3)
        began = trio.current_time()
        outcome = await topics(three).create_topics([request], timeout_ms=60_000)
        assert outcome["t"].error is None
        await three.image_until(lambda image: "t" in image.topics, other)
        assert trio.current_time() - began < 1
        assert "t" not in three[lonely].services.image.topics
        three.heal(controller, lonely)
        await settled(three)
        assert sorted(led_by(three[lonely].services.image)) == [1, 2, 3]


async def test_a_quick_restart_is_noticed_by_the_new_registration(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        before = {p.index: p.leader_epoch for p in member(three).image.topics["t"].partitions}
        victim = next(b for b in (1, 2, 3) if b != three.controller())
        led = [p.index for p in member(three).image.topics["t"].partitions if p.leader == victim]
        epoch = member(three, victim).broker_epoch
        await three.kill(victim, session_lasts_s=6)
        began = trio.current_time()
        await three.start(victim)
        assert trio.current_time() - began >= 6, "it waits for its old registration to go"
        assert member(three, victim).broker_epoch > epoch
        image = await settled(three)
        assert all(image.topics["t"].partitions[index].leader_epoch > before[index] for index in led)


async def test_the_controller_node_is_removed_by_hand(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        session = three.members[1].session
        await session.commit([Delete("/controller")])
        await three.image_until(lambda image: image.controller_epoch == 2)
        await settled(three)
        assert sum(member(three, b).is_active for b in (1, 2, 3)) == 1
        await create(three, "u", 3)


async def test_topic_settings_changed_while_a_session_was_lost_are_read(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        victim = next(b for b in (1, 2, 3) if b != three.controller())
        await three.expire(victim)
        await topics(three).alter_topic_config("t", lambda before: {"retention.ms": "77"})
        await three.image_until(lambda image: image.topics["t"].config == {"retention.ms": "77"})


async def test_every_broker_stops_and_starts_again(autojump_clock: MockClock) -> None:
    async with cluster() as three:
        await create(three)
        topic_id = member(three).image.topics["t"].topic_id
        for broker_id in (1, 2, 3):
            await three.kill(broker_id)
        for broker_id in (3, 1, 2):
            await three.start(broker_id)
        image = await settled(three)
        assert image.topics["t"].topic_id == topic_id
        await three.image_until(
            lambda image: all(sorted(partition.isr) == [1, 2, 3] for partition in image.topics["t"].partitions)
        )


async def produce(three: EmbeddedCluster, index: int, value: bytes) -> int:
    """One record with acks=all to a partition of `t`; its offset."""
    rows = [ProduceRequest.PartitionProduceData(index=index, records=build_batch([Record(0, 0, None, value, [])]))]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=rows)]
    async with connected(three[await three.leader("t", index)]) as client:
        answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    [row] = answer.responses[0].partition_responses
    assert row.error_code == 0
    return row.base_offset  # type: ignore[no-any-return]


@pytest.mark.parametrize("protocol", ["1.0", "2.2", "2.4", "2.6", "2.7-IV1", "2.8", "3.2", "3.4"])
async def test_older_inter_broker_protocols(protocol: str, autojump_clock: MockClock) -> None:
    async with cluster(inter_broker_protocol_version=protocol) as three:
        await create(three)
        assert [await produce(three, index, b"one") for index in range(6)] == [0] * 6
        victim = next(b for b in (1, 2, 3) if b != three.controller())
        await three.kill(victim)
        image = await settled(three)
        assert victim not in led_by(image)
        assert [await produce(three, index, b"two") for index in range(6)] == [1] * 6
        await three.start(victim)
        await three.image_until(
            lambda image: all(sorted(partition.isr) == [1, 2, 3] for partition in image.topics["t"].partitions)
        )
        await topics(three).delete_topics(["t"], timeout_ms=60_000)
        await three.image_until(lambda image: "t" not in image.topics)
        for broker_id in (1, 2, 3):
            assert not list((three.members[broker_id].directory).glob("t-?"))


async def test_a_listener_of_its_own_between_brokers(autojump_clock: MockClock) -> None:
    async with cluster(
        listeners="PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    ) as three:
        used: set[Endpoint] = set()
        await create(three)
        image = await settled(three)
        for member in three.members.values():
            used.update(member.broker.endpoints)
        assert {endpoint.listener for endpoint in used} == {"PLAINTEXT", "INSIDE"}
        assert {len(broker.endpoints) for broker in image.brokers.values()} == {2}
