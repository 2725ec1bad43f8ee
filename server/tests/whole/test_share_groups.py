"""Share groups of whole brokers over TCP. No broker serves them yet: here they are told to."""

from __future__ import annotations

from typing import Any

import pytest
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
from barnabas.server.apis import APIS
from barnabas.server.apis.between_brokers import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.server.apis.groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from barnabas.server.broker import build
from barnabas.server.testing import Client, EmbeddedCluster, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import dialled
from barnabas.server.tests.whole.cluster_users import User, three_brokers
from barnabas.server.tests.whole.test_share_state_topic import until

E = ErrorCode
SHARE_APIS = tuple(
    each.API
    for each in (
        share_group_heartbeat,
        share_group_describe,
        share_fetch,
        share_acknowledge,
        initialize_share_group_state,
        read_share_group_state,
        write_share_group_state,
        delete_share_group_state,
        read_share_group_state_summary,
        describe_share_group_offsets,
        alter_share_group_offsets,
        delete_share_group_offsets,
    )
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "APIS", (*APIS, *SHARE_APIS))
    monkeypatch.setitem(features.SUPPORTED, features.SHARE_VERSION, (0, 1))  # type: ignore[arg-type]


def test_nobody_is_told_of_them() -> None:
    assert features.SHARE_VERSION not in features.SUPPORTED
    assert not {api.key for api in APIS} & {api.key for api in SHARE_APIS}


def heartbeat(epoch: int, *topics: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )


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


async def test_a_broker_alone(served: None, tmp_path: Any) -> None:
    async with embedded_broker(tmp_path, num_partitions="1") as broker:
        await broker.services.topics.auto_create(["t"])
        topic_id = broker.services.image.topics["t"].topic_id
        async with dialled(broker) as client:
            versions = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            assert {78, 90} <= {row.api_key for row in versions.api_keys}
            await from_earliest(client)
            await client.ask(FindCoordinatorRequest(key="g"), 3)
            joined = await client.ask(heartbeat(0, "t"), 1)
            assert joined.error_code == E.NONE
            with trio.fail_after(30):
                is_assigned = False
                while not is_assigned:
                    await trio.sleep(0.02)
                    is_assigned = bool((await client.ask(heartbeat(0, "t"), 1)).assignment.topic_partitions)
            await client.ask(request(batch(b"a", b"b", b"c")), 9)
            assert acquired(await client.ask(fetch(0, topic_id), 2)) == [(0, 2, 1)]
            assert acquired(await client.ask(fetch(1, topic_id, (0, 1)), 2)) == []
        # The connection was closed, and with it the session. A member that begins anew before that has its locks still.
        with trio.fail_after(30):
            await until(lambda: not len(broker.services.share_partitions.sessions))
        async with connected(broker) as client:
            assert acquired(await client.ask(fetch(0, topic_id), 2)) == [(2, 2, 2)]
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
        with trio.fail_after(30):
            epoch, got = 0, []
            while not got:
                got = acquired(await client.ask(fetch(epoch, topic_id), 2))
                epoch += 1
        assert got == [(3, 3, 1)], "what was acknowledged is not delivered again"


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


async def test_a_cluster_whose_leaders_are_killed(served: None, autojump_clock: MockClock) -> None:
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
