"""An orderly stop: waiting requests are answered, so that it takes no longer for a thousand idle consumers.

Real sockets under virtual time: what a stop waits for is seconds of the clock, so the time it takes is exact.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.tests.kit import subscription
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import FetchRequest, JoinGroupRequest
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.groups.test_group_apis import Asker
from barnabas.server.tests.apis.records.test_fetch import fetch, produce
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic
from barnabas.server.tests.network.tcp_rig import dialled, fine, moved_by_hand, reactor, until
from barnabas.server.tests.whole.cluster_users import E, User, three_brokers

SOON = 0.1
"""Seconds; a stop that waits for one of the requests here would take `barnabas.server.broker.broker.STOP_S`, or
for ever.
"""
FOR_EVER_MS = 100_000_000


def join(group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )


def waiting(*, min_bytes: int = 1, offset: int = 0) -> FetchRequest:
    return fetch(("t", 0, offset), max_wait_ms=FOR_EVER_MS, min_bytes=min_bytes)


async def let_go(client: Client) -> bool:
    """The broker has closed the connection, and nothing more came."""
    try:
        return await client.stream.receive_some(1) == b""
    except trio.BrokenResourceError:  # what was not taken up any more makes it a reset
        return True


async def stopped_soon(broker: Broker, clock: MockClock) -> None:
    """Stop the broker; by the clock that takes no time to speak of."""
    clock.autojump_threshold = 0
    began = trio.current_time()
    await broker.stop()
    assert trio.current_time() - began < SOON


@pytest.mark.parametrize("version", [3, 11, 12])
async def test_idle_consumers_are_answered(version: int, mock_clock: MockClock) -> None:
    async with (
        embedded_broker() as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as one,
        dialled(broker) as other,
        dialled(broker) as witness,
    ):
        await topic(broker)
        await produce(witness, batch(b"there"))
        waiters = broker.services.partitions.get("t", 0)._waiters
        await one.send(waiting(offset=1), version)
        await other.send(waiting(min_bytes=100_000), version)
        await until(lambda: len(waiters) == 2)
        await fine(witness)
        await stopped_soon(broker, mock_clock)
        empty = (await one.receive(waiting(), version)).responses[0].partitions[0]
        assert (empty.error_code, len(empty.records)) == (0, 0)
        few = (await other.receive(waiting(), version)).responses[0].partitions[0]
        assert few.error_code == 0
        assert b"there" in bytes(few.records)
        for client in (one, other, witness):
            assert await let_go(client)


async def test_what_comes_behind_is_not_taken_up(mock_clock: MockClock) -> None:
    """A consumer asks again as soon as it is answered: the stop must not play this game."""
    async with embedded_broker() as broker, moved_by_hand(mock_clock), dialled(broker) as client:
        await topic(broker)
        waiters = broker.services.partitions.get("t", 0)._waiters
        await client.stream.send_all(b"".join(request_frame(12, i, "test", waiting()) for i in range(3)))
        await until(lambda: waiters)
        await client.send(waiting(), 12)  # which stays in the socket
        await stopped_soon(broker, mock_clock)
        await client.receive(waiting(), 12)
        assert await client.stream.receive_some(1) == b"", "not a reset, though there was more to read"


async def test_members_are_sent_to_another_coordinator(mock_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits for others in JoinGroup, as when the coordinator moves in Apache Kafka."""
    async with (
        embedded_broker(group_initial_rebalance_delay_ms="60000") as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as client,
        dialled(broker) as other,
    ):
        mock_clock.autojump_threshold = 0
        await Asker(broker, client).coordinator(3)
        mock_clock.autojump_threshold = float("inf")
        await client.send(join("g"), 3)
        await other.send(join("h"), 3)
        await until(lambda: sum(each.has_pending for each in reactor(broker).connections) == 2)
        caplog.clear()
        with caplog.at_level("INFO"):
            await stopped_soon(broker, mock_clock)
        for each in (client, other):
            assert (await each.receive(join(), 3)).error_code == E.NOT_COORDINATOR
            assert await let_go(each)
        assert [record.getMessage() for record in caplog.records] == ["broker 1 stopped"]


async def test_a_producer_that_waits_for_replicas_gets_an_error(autojump_clock: MockClock) -> None:
    """acks=all, while no follower replicates and there is no time to move leaderships: the client retries elsewhere."""
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        leader = await cluster.leader("t")
        await user.produce("t", b"first")
        for other in {1, 2, 3} - {leader}:
            await cluster.cut(leader, other)
        async with connected(cluster[leader]) as client:
            partition = cluster[leader].services.partitions.get("t", 0)
            await client.send(request(batch(b"second"), acks=-1), 9)
            while partition.high_watermark == partition.log_end_offset:
                await trio.lowlevel.checkpoint()
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(cluster[leader].stop, now=True))
                answer = only(await client.receive(request(None), 9))
            assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER
            assert trio.current_time() - began < 3 * SOON


@pytest.mark.slow
async def test_idle_consumers_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sockets, in real time: leaderships are handed over first. (The last one has nobody to hand them to, and
    tries again for a while, as Apache Kafka does.)
    """
    async with embedded_cluster(3, tcp=True) as cluster:
        user = User(cluster)
        await user.topic("t", 3)
        for broker_id in (1, 2):
            async with dialled(cluster[broker_id]) as one, dialled(cluster[broker_id]) as other:
                for client in (one, other):
                    await client.send(waiting(), 12)
                waiters = cluster[broker_id].services.partitions.get("t", 0)._waiters
                await until(lambda: len(waiters) == 2)  # noqa: B023
                with monkeypatch.context() as patched, trio.fail_after(120):
                    patched.setattr("barnabas.server.broker.broker.STOP_S", FOR_EVER_MS / 1000)
                    await cluster.stop(broker_id)
