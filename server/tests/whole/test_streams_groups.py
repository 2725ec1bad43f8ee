"""Streams groups of whole brokers over TCP."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.group.streams import Status
from barnabas.coordinator.tests.streams_groups.streams_group_kit import listed, shown, subtopology, topology
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.replication.tree import features
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.apis.access_world import Op, world
from barnabas.server.tests.apis.test_access import group, on_topic
from barnabas.server.tests.metrics.kit import dialled
from barnabas.server.tests.whole.cluster_users import User, three_brokers

E = ErrorCode
COUNTED = topology(subtopology(writes=["g-r"]), subtopology("1", (), reads=["g-r"], changelogs=["g-cl"]))


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
        "ours = ('barnabas.coordinator.group.streams.', 'barnabas.server.coordinators.streams.')\n"
        "print([name for name in sys.modules if name.startswith(ours)])\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def joining(member_id: str = "m", topology: Any = COUNTED) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=10_000,
        topology=topology,
        process_id=f"p-{member_id}",
        user_endpoint=StreamsGroupHeartbeatRequest.Endpoint(host=member_id, port=1),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        client_tags=[],
    )


def beat(member_id: str, epoch: int, owned: str | None = None) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
    if owned is not None:
        request.active_tasks, request.standby_tasks, request.warmup_tasks = listed(owned), [], []
    return request


class Member:
    """Does what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.tasks = ""

    async def once(self, client: Client) -> StreamsGroupHeartbeatResponse:
        request = beat(self.name, self.epoch, self.tasks) if self.epoch else joining(self.name)
        answer = await client.ask(request, 0)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = shown(answer.active_tasks)
        elif answer.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH):
            self.epoch, self.tasks = 0, ""
        return answer

    async def until(self, client: Client, tasks: set[str], *others: Member) -> None:
        """Heartbeats, of others too, until it has these tasks."""
        while set(self.tasks.split()) != tasks:
            await trio.sleep(0.05)
            for member in (self, *others):
                await member.once(client)


async def without_delay(client: Client) -> None:
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=f"streams.{name}.ms", value="0")
        for name in ("initial.rebalance.delay", "assignment.interval")
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=32, resource_name="g", configs=changes)
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == E.NONE


async def test_a_broker_alone(tmp_path: Any) -> None:
    every = {"0_0", "0_1", "0_2", "1_0", "1_1", "1_2"}
    async with embedded_broker(tmp_path, num_partitions="3") as broker, dialled(broker) as client:
        versions = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert {88, 89} <= {row.api_key for row in versions.api_keys}
        assert ("streams.version", 1) in {(each.name, each.max_version_level) for each in versions.finalized_features}
        await without_delay(client)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        first = Member("m")
        with trio.fail_after(120):
            answer = await first.once(client)
            while answer.error_code:
                await trio.sleep(0.02)
                answer = await first.once(client)
        assert [status.status_code for status in answer.status] == [Status.MISSING_SOURCE_TOPICS]
        await broker.services.topics.auto_create(["in"])
        with trio.fail_after(120):
            await first.until(client, every)
        topics = broker.services.image.topics
        assert [len(topics[name].partitions) for name in ("g-r", "g-cl")] == [3, 3], "the broker has made them"
        second = Member("n")
        with trio.fail_after(120):
            while len(second.tasks.split()) != 3 or len(first.tasks.split()) != 3:
                await trio.sleep(0.05)
                for member in (second, first):
                    await member.once(client)
        described = await client.ask(StreamsGroupDescribeRequest(group_ids=["g", "x"]), 0)
        assert [each.error_code for each in described.groups] == [E.NONE, E.GROUP_ID_NOT_FOUND]
        told = described.groups[0]
        assert (told.group_state, len(told.members)) == ("Stable", 2)
        assert {topic.partitions for topic in told.topology.subtopologies[1].state_changelog_topics} == {3}
        groups = await client.ask(ListGroupsRequest(types_filter=["streams"]), 5)
        assert [(each.group_id, each.group_type, each.protocol_type) for each in groups.groups] == [
            ("g", "streams", "streams")
        ]
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="in", partitions=[partition])
        for epoch, code in ((first.epoch, E.NONE), (first.epoch + 1, E.STALE_MEMBER_EPOCH)):
            commit = OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=epoch, member_id="m", topics=[topic]
            )
            committed = await client.ask(commit, 9)
            assert committed.topics[0].partitions[0].error_code == code
        assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == E.NON_EMPTY_GROUP
    async with embedded_broker(tmp_path, num_partitions="3") as broker, dialled(broker) as client:
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        with trio.fail_after(120):
            answer = await second.once(client)
            while answer.error_code:
                await trio.sleep(0.02)
                answer = await second.once(client)
            assert (await client.ask(beat("m", -1), 0)).member_epoch == -1
            await second.until(client, every)
            assert (await client.ask(beat("n", -1), 0)).error_code == E.NONE
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = await client.ask(OffsetFetchRequest(groups=[asked]), 9)
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == 5
        assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == E.NONE
        described = await client.ask(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
        assert described.groups[0].error_code == E.GROUP_ID_NOT_FOUND
        names = ["streams.num.standby.replicas", "streams.initial.rebalance.delay.ms"]
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=32, resource_name="g", configuration_keys=names
        )
        configs = (await client.ask(DescribeConfigsRequest(resources=[resource]), 4)).results[0].configs
        assert {each.name: each.value for each in configs} == dict(zip(names, "00", strict=True))


@pytest.mark.parametrize("by_setting", [True, False])
async def test_while_the_protocol_is_off(by_setting: bool, tmp_path: Any) -> None:
    offered = {"group_coordinator_rebalance_protocols": "classic,consumer"} if by_setting else {}
    async with embedded_broker(tmp_path, **offered) as broker, dialled(broker) as client:
        if not by_setting:
            await broker.services.features.update(
                [features.FeatureUpdate(features.STREAMS_VERSION, 0, features.SAFE_DOWNGRADE)], validate_only=False
            )
        assert (await client.ask(joining(), 0)).error_code == E.UNSUPPORTED_VERSION
        described = await client.ask(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
        assert described.groups[0].error_code == E.UNSUPPORTED_VERSION


async def test_what_cannot_be_made_is_told(tmp_path: Any) -> None:
    """Of topics with a bad replication factor, for two heartbeats."""
    bad = topology(subtopology(changelogs=["cl"]))
    bad.subtopologies[0].state_changelog_topics[0].replication_factor = 7
    async with embedded_broker(tmp_path) as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["in"])
        await without_delay(client)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        with trio.fail_after(120):
            answer = await client.ask(joining(topology=bad), 0)
            while answer.error_code:
                await trio.sleep(0.02)
                answer = await client.ask(joining(topology=bad), 0)
            epoch = answer.member_epoch
            while "INVALID_REPLICATION_FACTOR" not in answer.status[0].status_detail:
                assert [status.status_code for status in answer.status] == [Status.MISSING_INTERNAL_TOPICS]
                await trio.sleep(0.02)
                answer = await client.ask(beat("m", epoch), 0)
        assert "cl" in answer.status[0].status_detail
        assert "cl" not in broker.services.image.topics


async def test_topics_that_are_made_count_for_the_quota_of_the_client(tmp_path: Any) -> None:
    large = topology(subtopology(changelogs=["first", "second"]))
    async with embedded_broker(tmp_path, num_partitions="50") as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["in"])
        await without_delay(client)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        entity = [AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=None)]
        limit = AlterClientQuotasRequest.OpData(key="controller_mutation_rate", value=0.001)
        await client.ask(
            AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=entity, ops=[limit])]), 1
        )
        with trio.fail_after(120):
            answer = await client.ask(joining(topology=large), 0)
            while answer.error_code:
                await trio.sleep(0.02)
                answer = await client.ask(joining(topology=large), 0)
            while "THROTTLING_QUOTA_EXCEEDED" not in answer.status[0].status_detail:
                await trio.sleep(0.02)
                answer = await client.ask(beat("m", answer.member_epoch), 0)
        assert answer.throttle_time_ms == 0
        assert {"first", "second"} & broker.services.image.topics.keys() == {"first"}, "the quota may be passed once"


async def test_names_that_no_topology_may_have(tmp_path: Any) -> None:
    async with embedded_broker(tmp_path) as broker, dialled(broker) as client:
        for name in ("__consumer_offsets", "no/name", ""):
            answer = await client.ask(joining(topology=topology(subtopology(sources=[name]))), 0)
            assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY, name
        broken = joining()
        broken.rebalance_timeout_ms = -1
        broken.group_id = ""
        assert (await client.ask(broken, 0)).error_code == E.INVALID_REQUEST


async def test_a_cluster_whose_coordinators_are_killed(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("in")
        await cluster[cluster.controller()].services.features.update(
            [features.FeatureUpdate(features.STREAMS_VERSION, 1)], validate_only=False
        )
        await trio.sleep(2)
        partitions = len(cluster[cluster.running[0]].services.image.topics["in"].partitions)
        every = {f"{key}_{number}" for key in "01" for number in range(partitions)}
        members = [Member("m"), Member("n")]
        for number in range(3):
            victim = await user.coordinator("g")
            with trio.fail_after(600):
                while set(" ".join(member.tasks for member in members).split()) != every:
                    coordinator = await user.coordinator("g")
                    for member in members:
                        await trio.sleep(0.2)
                        try:
                            async with dialled(cluster[coordinator]) as client:
                                await member.once(client)
                        except (EOFError, OSError, trio.BrokenResourceError):
                            break
            assert not set(members[0].tasks.split()) & set(members[1].tasks.split())
            if number < 2:
                epochs = [member.epoch for member in members]
                await cluster.kill(victim)
                await trio.sleep(10)
                await cluster.start(victim)
                await cluster.all_alive()
                assert [member.epoch for member in members] == epochs
                members[1].epoch, members[1].tasks = 0, ""


async def test_who_may_join_describe_and_have_topics_made(autojump_clock: MockClock) -> None:
    async with world("in") as (broker, rights, alice, root):
        await root.ask(FindCoordinatorRequest(key="g"), 3)
        await trio.sleep(1)
        await without_delay(root)
        mine = topology(subtopology(changelogs=["cl"]))
        assert (await alice.ask(joining(topology=mine), 0)).error_code == E.GROUP_AUTHORIZATION_FAILED
        rights.put(group(Op.READ))
        internal = joining(topology=topology(subtopology(sources=["__consumer_offsets", "in"])))
        assert (await alice.ask(internal, 0)).error_code == E.STREAMS_INVALID_TOPOLOGY
        rights.put(on_topic(Op.DESCRIBE, name="in"))
        static = joining(topology=mine)
        static.instance_id = "i"
        assert (await alice.ask(static, 0)).error_code == E.TOPIC_AUTHORIZATION_FAILED, "before what is not there yet"
        rights.put(on_topic(Op.DESCRIBE, name="cl"))
        assert (await alice.ask(static, 0)).error_code == E.INVALID_REQUEST
        joined = await alice.ask(joining(topology=mine), 0)
        assert joined.error_code == E.NONE
        (status,) = joined.status
        assert (status.status_code, "may not create cl" in status.status_detail) == (
            Status.MISSING_INTERNAL_TOPICS,
            True,
        )
        await trio.sleep(2)
        assert "cl" not in broker.services.image.topics
        rights.put(on_topic(Op.CREATE, name="cl"))
        answer = await alice.ask(beat("m", joined.member_epoch), 0)
        assert "may not" not in answer.status[0].status_detail
        await trio.sleep(2)
        assert "cl" in broker.services.image.topics
        assert (await alice.ask(beat("m", joined.member_epoch, ""), 0)).status == []
        ask = StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)

        async def described() -> tuple[int, int]:
            (told,) = (await alice.ask(ask, 0)).groups
            return told.error_code, len(told.members)

        rights.clear()
        assert await described() == (E.GROUP_AUTHORIZATION_FAILED, 0)
        rights.put(group(Op.DESCRIBE) + on_topic(Op.DESCRIBE, name="in"))
        assert await described() == (E.TOPIC_AUTHORIZATION_FAILED, 0)
        rights.put(on_topic(Op.DESCRIBE, name="cl"))
        assert await described() == (E.NONE, 1)
