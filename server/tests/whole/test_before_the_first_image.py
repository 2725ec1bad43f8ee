"""A broker that has no image of the cluster yet: it answers nothing that an image could prove wrong."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FindCoordinatorRequest, MetadataRequest
from barnabas.server.testing import connected, embedded_broker, embedded_cluster

ASK = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)


async def test_metadata_waits_and_nothing_is_made(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, connected(broker) as client, connected(broker) as other:
        member = broker.services.cluster
        member.image_received = trio.Event()
        await client.send(ASK, 12)
        found = await other.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with trio.move_on_after(60) as limit:
            await client.receive(ASK, 12)
        assert limit.cancelled_caught
        assert not member.image.topics, "neither the topic nor that of the groups was made"
        member.image_received.set()
        answer = await client.receive(ASK, 12)
        assert [broker.node_id for broker in answer.brokers] == [1]


async def test_a_client_that_leaves_is_not_kept(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker:
        broker.services.cluster.image_received = trio.Event()
        async with connected(broker) as client:
            await client.send(ASK, 12)
            await trio.sleep(1)
        await trio.sleep(1)
        broker.services.cluster.image_received.set()
        async with connected(broker) as client:
            assert (await client.ask(ASK, 12)).brokers


async def test_all_that_was_there_is_known_when_a_member_is_ready(autojump_clock: MockClock) -> None:
    """All are killed, and the first to return has to be elected and to settle who leads before it can say anything."""
    async with embedded_cluster(2) as cluster:
        topics = cluster[cluster.controller()].services.topics
        await topics.auto_create([f"t{number}" for number in range(20)])
        for number in (1, 2):
            await cluster.kill(number)
        for number in (1, 2):
            broker = await cluster.start(number)
            assert broker.services.cluster.has_image
            assert len(broker.services.image.topics) == 20
