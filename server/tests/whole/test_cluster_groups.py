"""Groups of three brokers in one process, under a mock clock: what members see while coordinators come and go."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    DeleteTopicsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.testing import Client, connected
from barnabas.server.tests.whole.cluster_users import RETRIABLE, E, User, three_brokers


async def test_commits_survive_their_coordinators(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        groups = [f"g{i}" for i in range(6)]
        for turn in range(4):
            for group in groups:
                await user.commit(group, turn + 1)
            gone = await user.coordinator(groups[0])
            await cluster.kill(gone)
            for group in groups:
                assert await user.committed(group) == turn + 1
            await cluster.start(gone)
            await cluster.all_alive()
            for index in range(3):
                await cluster.partition_until(GROUP_METADATA_TOPIC, index, lambda p: len(p.isr) == 3)
        assert user.retried <= RETRIABLE


async def test_a_coordinator_that_is_slow_to_be_missed(autojump_clock: MockClock) -> None:
    """Its session lasts: no broker answers for its groups until the controller knows, and then nothing is lost."""
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.commit("g", 41)
        gone = await user.coordinator("g")
        await cluster.kill(gone, session_lasts_s=18)
        began = trio.current_time()
        assert await user.committed("g") == 41
        assert 17 < trio.current_time() - began < 25
        await user.commit("g", 42)
        assert await user.committed("g") == 42


async def test_members_of_a_group_continue_with_the_next_coordinator(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.commit("g", 1)
        coordinator = await user.coordinator("g")
        async with connected(cluster[coordinator]) as client:
            member_id, generation = await _join(client)
        waiting = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        await cluster.stop(coordinator)
        after = await user.coordinator("g")
        assert after != coordinator
        answer = await user.ask(after, waiting, 3)
        assert answer.error_code == E.NONE


async def _join(client: Client) -> tuple[str, int]:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = await client.ask(join, 3)
    assert joined.error_code == E.NONE
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    sync = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    assert (await client.ask(sync, 3)).error_code == E.NONE
    return joined.member_id, joined.generation_id


async def test_members_that_wait_for_a_rebalance_find_the_next_coordinator(autojump_clock: MockClock) -> None:
    async with three_brokers(group_initial_rebalance_delay_ms="60000") as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.commit("other", 1)
        coordinator = await user.coordinator("g")
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        async with connected(cluster[coordinator]) as client, trio.open_nursery() as nursery:
            await client.send(join, 3)
            await trio.sleep(1)
            nursery.start_soon(cluster.stop, coordinator)
            answer = await client.receive(join, 3)
            assert answer.error_code == E.NOT_COORDINATOR


async def test_offsets_of_a_deleted_topic_are_removed_on_every_coordinator(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        for number in range(3):
            await user.topic(f"t{number}", replicas=1)
        for number in range(3):
            for group in ("a", "b", "c", "d"):
                await user.commit(group, 5, f"t{number}")
        deletion = DeleteTopicsRequest(topic_names=["t0", "t1"], timeout_ms=10_000)
        answer = await user.ask(cluster.controller(), deletion, 5)
        assert [each.error_code for each in answer.responses] == [0, 0]
        await trio.sleep(1)
        for group in ("a", "b", "c", "d"):
            assert [await user.committed(group, f"t{number}") for number in range(3)] == [-1, -1, 5]


async def test_commits_need_as_many_replicas_as_their_topic_says(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.commit("g", 1)
        coordinator = await user.coordinator("g")
        other = next(i for i in cluster.running if i != coordinator)
        await user.configure(other, 2, GROUP_METADATA_TOPIC, "min.insync.replicas", "3")
        await trio.sleep(1)
        await user.commit("g", 2)
        await cluster.kill(other)
        await trio.sleep(1)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        answer = await user.ask(coordinator, OffsetCommitRequest(group_id="g", topics=[topic]), 7)
        assert answer.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
        assert await user.committed("g") == 2
