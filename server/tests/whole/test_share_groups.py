"""Share groups of whole brokers over TCP."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import trio
from trio.testing import MockClock

from barnabas.coordinator.share import AcknowledgeType
from barnabas.kproto import ErrorCode, uuid_to_text
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from barnabas.replication.tree import features
from barnabas.server.security.quotas.entities import QuotaKey
from barnabas.server.testing import Client, EmbeddedCluster, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import dialled, measured_broker, scrape
from barnabas.server.tests.requests.test_throttling import limit
from barnabas.server.tests.whole.cluster_users import User, three_brokers
from barnabas.server.tests.whole.test_share_state_topic import until

E = ErrorCode


def heartbeat(epoch: int, *topics: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )


LOCK_MS = "60000"
"""The longest there is: in real time, nobody's lock is to run out on a busy machine."""


def fetch(epoch: int, topic_id: bytes, *batches: tuple[int, int]) -> ShareFetchRequest:
    said = [
        ShareFetchRequest.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[AcknowledgeType.ACCEPT]
        )
        for first, last in batches
    ]
    partition = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=said)
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        topics=[ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


async def from_earliest(client: Client) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32, resource_name="g", configs=[change]
    )
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == E.NONE


async def coordinator(client: Client) -> None:
    """Wait until there is one: its topic is made when it is asked for."""
    with trio.fail_after(120):
        while (await client.ask(FindCoordinatorRequest(key="g"), 3)).error_code:
            await trio.lowlevel.checkpoint()


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == E.NONE
    for topic in answer.responses:
        for each in topic.partitions:
            assert each.acknowledge_error_code == E.NONE
            assert each.error_code in (E.NONE, E.COORDINATOR_NOT_AVAILABLE)
    return [
        (got.first_offset, got.last_offset, got.delivery_count)
        for topic in answer.responses
        for each in topic.partitions
        for got in each.acquired_records
    ]


async def test_a_broker_alone(tmp_path: Any) -> None:
    async with embedded_broker(tmp_path, num_partitions="1", group_share_record_lock_duration_ms=LOCK_MS) as broker:
        await broker.services.topics.auto_create(["t"])
        topic_id = broker.services.image.topics["t"].topic_id
        async with dialled(broker) as client:
            versions = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            assert {78, 90} <= {row.api_key for row in versions.api_keys}
            await from_earliest(client)
            await coordinator(client)
            joined = await client.ask(heartbeat(0, "t"), 1)
            assert joined.error_code == E.NONE
            with trio.fail_after(120):
                is_assigned = False
                while not is_assigned:
                    await trio.sleep(0.02)
                    is_assigned = bool((await client.ask(heartbeat(0, "t"), 1)).assignment.topic_partitions)
            await client.ask(request(batch(b"a", b"b", b"c")), 9)
            got, epoch = await first_acquired(client, topic_id)
            assert got == [(0, 2, 1)]
            assert acquired(await client.ask(fetch(epoch, topic_id, (0, 1)), 2)) == []
        # The connection was closed, and with it the session. A member that begins anew before that has its locks still.
        with trio.fail_after(120):
            await until(lambda: not len(broker.services.share_partitions.sessions))
        async with connected(broker) as client:
            assert await until_acquired(client, topic_id) == [(2, 2, 2)]
            acknowledgement = ShareAcknowledgeRequest.AcknowledgementBatch(
                first_offset=2, last_offset=2, acknowledge_types=[1]
            )
            partition = ShareAcknowledgeRequest.AcknowledgePartition(
                partition_index=0, acknowledgement_batches=[acknowledgement]
            )
            topics = [ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
            last = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=-1, topics=topics)
            answer = await client.ask(last, 2)
            assert answer.responses[0].partitions[0].error_code == E.NONE
            everything = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g")
            everything.topics = None
            where = await client.ask(DescribeShareGroupOffsetsRequest(groups=[everything]), 1)
            assert [each.lag for each in where.groups[0].topics[0].partitions] == [0]
    async with embedded_broker(tmp_path, num_partitions="1") as broker, connected(broker) as client:
        await client.ask(request(batch(b"d")), 9)
        assert await until_acquired(client, topic_id) == [(3, 3, 1)], "what was acknowledged is not delivered again"


def test_a_broker_that_nobody_asks_for_them_loads_none_of_it() -> None:
    source = (
        "import sys, trio\n"
        "from barnabas.kproto.messages import FindCoordinatorRequest\n"
        "from barnabas.server.testing import connected, embedded_broker\n"
        "async def main():\n"
        "    async with embedded_broker() as broker, connected(broker) as client:\n"
        "        while (await client.ask(FindCoordinatorRequest(key='g'), 3)).error_code:\n"
        "            pass\n"
        "trio.run(main)\n"
        "ours = tuple(f'barnabas.{each}.share.' for each in ('coordinator', 'coordinator.group'))\n"
        "print([name for name in sys.modules if name.startswith(ours)])\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def first_acquired(client: Client, topic_id: bytes) -> tuple[list[tuple[int, int, int]], int]:
    """By a member that begins anew: what it gets first, and the epoch of its next request."""
    epoch, got = 0, list[tuple[int, int, int]]()
    with trio.fail_after(120):
        while not got:
            got = acquired(await client.ask(fetch(epoch, topic_id), 2))
            epoch += 1
    return got, epoch


async def until_acquired(client: Client, topic_id: bytes) -> list[tuple[int, int, int]]:
    return (await first_acquired(client, topic_id))[0]


async def test_nothing_is_left_when_the_level_falls(autojump_clock: MockClock) -> None:
    async with embedded_broker(num_partitions="1") as broker, dialled(broker) as client, dialled(broker) as other:
        await broker.services.topics.auto_create(["t"])
        topic_id = broker.services.image.topics["t"].topic_id
        await from_earliest(client)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        assert (await client.ask(heartbeat(0, "t"), 1)).error_code == E.NONE
        await client.ask(request(batch(b"a")), 9)
        await trio.sleep(2)
        assert await until_acquired(client, topic_id) == [(0, 0, 1)]
        level = features.FeatureUpdate(features.SHARE_VERSION, 0, features.SAFE_DOWNGRADE)
        await broker.services.features.update([level], validate_only=False)
        shares = broker.services.share_partitions
        assert (len(shares), len(shares.sessions)) == (0, 0)
        for asked, version in ((fetch(1, topic_id), 2), (heartbeat(0, "t"), 1)):
            assert (await client.ask(asked, version)).error_code == E.UNSUPPORTED_VERSION
        level = features.FeatureUpdate(features.SHARE_VERSION, 1)
        await broker.services.features.update([level], validate_only=False)
        assert (await client.ask(fetch(1, topic_id), 2)).error_code == E.SHARE_SESSION_NOT_FOUND
        assert await until_acquired(other, topic_id) == [(0, 0, 1)], "the count was not stored"


async def test_what_waits_is_counted_by_kind() -> None:
    waits = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    async with measured_broker(num_partitions="1") as broker, dialled(broker) as client, dialled(broker) as other:
        await broker.services.topics.auto_create(["t"])
        topic_id = broker.services.image.topics["t"].topic_id
        await from_earliest(client)
        await coordinator(client)
        assert (await client.ask(heartbeat(0, "t"), 1)).error_code == E.NONE
        await client.ask(request(batch(b"a")), 9)
        assert await until_acquired(client, topic_id) == [(0, 0, 1)]
        asked = fetch(0, topic_id)
        asked.member_id, asked.max_wait_ms = "n", 60_000
        await other.send(asked, 2)
        with trio.fail_after(120):
            await until(lambda: broker.services.share_partitions.waiting_count == 1)
        found = await scrape(broker)
        assert [found(waits, delayedOperation=kind) for kind in ("Fetch", "ShareFetch")] == [0, 1]


async def test_what_is_fetched_counts_and_is_not_withheld(autojump_clock: MockClock) -> None:
    async with embedded_broker(num_partitions="1") as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t"])
        topic_id = broker.services.image.topics["t"].topic_id
        await from_earliest(client)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        assert (await client.ask(heartbeat(0, "t"), 1)).error_code == E.NONE
        await client.ask(request(batch(b"a" * 1000)), 9)
        await trio.sleep(2)
        await limit(broker, 100, QuotaKey.FETCH)
        epoch, answer = 0, await client.ask(fetch(0, topic_id), 2)
        while not acquired(answer):
            epoch += 1
            answer = await client.ask(fetch(epoch, topic_id), 2)
        assert answer.throttle_time_ms > 0
        assert answer.responses[0].partitions[0].records


async def consumed(cluster: EmbeddedCluster, user: User, topic_id: bytes, count: int) -> list[int]:
    """The offsets that a member has acknowledged, until there are so many."""
    offsets: list[int] = []
    while len(offsets) < count:
        leader = await cluster.leader("t", 0)
        try:
            async with connected(cluster[leader]) as client:
                epoch, said = 0, []
                while len(offsets) < count:
                    answer = await client.ask(fetch(epoch, topic_id, *said), 2)
                    epoch += 1
                    parts = [each for topic in answer.responses for each in topic.partitions]
                    if answer.error_code or any(each.error_code or each.acknowledge_error_code for each in parts):
                        await trio.sleep(0.1)
                        break
                    offsets += [offset for first, last in said for offset in range(first, last + 1)]
                    said = [(got.first_offset, got.last_offset) for each in parts for got in each.acquired_records]
        except (EOFError, trio.BrokenResourceError):
            await trio.sleep(0.1)
    return offsets


async def test_a_cluster_whose_leaders_are_killed(autojump_clock: MockClock) -> None:
    settings = {"share_coordinator_state_topic_num_partitions": "3"}
    async with three_brokers(**settings) as cluster:
        user = User(cluster)
        await user.topic("t")
        topic_id = cluster[cluster.running[0]].services.image.topics["t"].topic_id
        await cluster[cluster.controller()].services.features.update(
            [features.FeatureUpdate(features.SHARE_VERSION, 1)], validate_only=False
        )
        await trio.sleep(2)
        async with connected(cluster[cluster.running[0]]) as client:
            await from_earliest(client)
        async with connected(cluster[await user.coordinator("g")]) as client:
            assert (await client.ask(heartbeat(0, "t"), 1)).error_code == E.NONE
        await trio.sleep(5)
        key = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{uuid_to_text(topic_id)}:0"])
        for number in range(3):
            for _ in range(5):
                await user.produce("t", b"x")
            got = await consumed(cluster, user, topic_id, 5)
            leader = await cluster.leader("t", 0)
            away = next(broker_id for broker_id in cluster.running if broker_id != leader)
            ends = await cluster[away].services.share_partitions.high_watermarks([("t", 0), ("t", 7)])
            assert ends == {("t", 0): 5 * number + 5}, "also of what another broker leads"
            assert sorted(set(got)) == list(range(5 * number, 5 * number + 5)), "none twice, none lost"
            if number == 0:
                answer = await user.ask(cluster.running[0], key, 6)
                victim = answer.coordinators[0].node_id
            else:
                victim = await cluster.leader("t", 0)
            if number < 2:
                await cluster.kill(victim)
                await cluster.leader("t", 0, but=victim)
                await cluster.start(victim)
                await cluster.all_alive()
