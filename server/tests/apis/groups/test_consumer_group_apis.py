"""KIP-848 groups of a whole broker over the wire format: heartbeats, descriptions, settings, expressions, a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    UpdateFeaturesRequest,
)
from barnabas.server.coordinators import pattern_resolver
from barnabas.server.testing import Client, connected, embedded_broker

E = ErrorCode
GROUP = 32
NOW = {"group.consumer.assignment.interval.ms": "0"}

SETTLED_S = 30
"""After so much time without a change a group has its usual heartbeat interval."""


class Asker:
    """One broker, asked by one client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ids: dict[str, bytes] = {}

    async def ask(self, request: Any, version: int) -> Any:
        with trio.fail_after(60):
            return await self.client.ask(request, version)

    async def topic(self, name: str, partitions: int = 2) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        created = await self.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert created.topics[0].error_code == E.NONE
        self.ids[bytes(created.topics[0].topic_id)] = name

    async def coordinator(self) -> None:
        while True:
            found = (await self.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators[0]
            if found.error_code == E.NONE:
                return
            await trio.sleep(0.05)

    async def beat(self, member: str, epoch: int, version: int = 1, *, group: str = "g", **fields: Any) -> Any:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5000, "topic_partitions": [], **fields}
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
        return await self.ask(request, version)

    async def join(self, member: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        answer = await self.beat(member, 0, subscribed_topic_names=list(topics), **fields)
        assert answer.error_code == E.NONE, answer.error_message
        return answer  # type: ignore[no-any-return]

    def held(self, answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
        assert answer.assignment is not None
        return {self.ids[one.topic_id]: sorted(one.partitions) for one in answer.assignment.topic_partitions}

    async def commit(self, member: str, epoch: int, version: int = 9, *, topic: str = "t") -> int:
        place = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[place])],
        )
        return int((await self.ask(request, version)).topics[0].partitions[0].error_code)

    async def fetch(self, member: str | None, epoch: int) -> tuple[int, list[int]]:
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", member_id=member, member_epoch=epoch, topics=[topic]
        )
        answer = (await self.ask(OffsetFetchRequest(groups=[group]), 9)).groups[0]
        return answer.error_code, [one.committed_offset for told in answer.topics for one in told.partitions]

    async def alter(self, group: str, **settings: str | None) -> tuple[int, str | None]:
        alter = IncrementalAlterConfigsRequest
        configs = [
            alter.AlterableConfig(name=name.replace("_", "."), config_operation=int(value is None), value=value)
            for name, value in settings.items()
        ]
        resource = alter.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
        (told,) = (await self.ask(alter(resources=[resource]), 1)).responses
        return told.error_code, told.error_message


@asynccontextmanager
async def asking(directory: Path | None = None, **settings: str) -> AsyncIterator[Asker]:
    async with embedded_broker(directory, **{**NOW, **settings}) as broker, connected(broker) as client:
        yield Asker(client)


async def test_another_broker_reports_an_invalid_request_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asking() as asker:
        wrong = await asker.beat("m", 0)
        assert (wrong.error_code, "missing" in wrong.error_message) == (E.INVALID_REQUEST, True)
        wrong = await asker.beat("m", 0, subscribed_topic_names=["t"], server_assignor="best")
        assert (wrong.error_code, "best" in wrong.error_message) == (E.UNSUPPORTED_ASSIGNOR, True)
        assert (await asker.beat("m", 0, subscribed_topic_names=["t"])).error_code == E.NOT_COORDINATOR


@pytest.mark.parametrize("version", [0, 1])
async def test_two_members_share_and_one_leaves(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as asker:
        await asker.topic("t", 4)
        await asker.coordinator()
        first = await asker.beat("one" if version else "", 0, version, subscribed_topic_names=["t"])
        assert first.error_code == E.NONE
        assert first.heartbeat_interval_ms == 250, "the group has just changed"
        assert asker.held(first) == {"t": [0, 1, 2, 3]}
        me = first.member_id
        assert me == "one" if version else len(me) == 22
        second = await asker.beat("two" if version else "", 0, version, subscribed_topic_names=["t"])
        assert second.member_epoch > first.member_epoch
        assert asker.held(second) == {}
        told = asker.held(await asker.beat(me, first.member_epoch, version))
        assert [len(indexes) for indexes in told.values()] == [2]
        (topic_id,) = asker.ids
        kept = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=told["t"])]
        answer = await asker.beat(me, first.member_epoch, version, topic_partitions=kept)
        assert answer.member_epoch == second.member_epoch
        taken = asker.held(await asker.beat(second.member_id, second.member_epoch, version, topic_partitions=[]))
        assert sorted(taken["t"] + told["t"]) == [0, 1, 2, 3]
        gone = await asker.beat(second.member_id, -1, version)
        assert (gone.error_code, gone.member_epoch) == (E.NONE, -1)
        again = await asker.beat(me, answer.member_epoch, version, topic_partitions=kept)
        assert asker.held(again) == {"t": [0, 1, 2, 3]}


async def test_what_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as asker:
        await asker.topic("t")
        early = await asker.beat("m", 0, subscribed_topic_names=["t"])
        assert early.error_code == E.NOT_COORDINATOR
        await asker.coordinator()
        assert (await asker.beat("", 0, subscribed_topic_names=["t"])).error_code == E.INVALID_REQUEST
        assert (await asker.beat("m", 0, group="", subscribed_topic_names=["t"])).error_code == E.INVALID_REQUEST
        assert (await asker.beat("m", 3)).error_code == E.GROUP_ID_NOT_FOUND
        wrong = await asker.beat("m", 0, subscribed_topic_names=["t"], server_assignor="sticky")
        assert wrong.error_code == E.UNSUPPORTED_ASSIGNOR
        wrong = await asker.beat("m", 0, subscribed_topic_regex="a(")
        assert wrong.error_code == E.INVALID_REGULAR_EXPRESSION
        assert "a(" in wrong.error_message
        epoch = (await asker.join("m", "t")).member_epoch
        assert (await asker.beat("m", epoch + 1)).error_code == E.FENCED_MEMBER_EPOCH
        assert (await asker.beat("x", epoch)).error_code == E.UNKNOWN_MEMBER_ID


async def test_switched_off_by_setting_or_feature(autojump_clock: trio.testing.MockClock) -> None:
    describe = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    async with asking(**{"group.coordinator.rebalance.protocols": "classic"}) as asker:
        assert (await asker.beat("m", 0, subscribed_topic_names=["t"])).error_code == E.UNSUPPORTED_VERSION
        told = await asker.ask(describe, 1)
        assert [one.error_code for one in told.groups] == [E.UNSUPPORTED_VERSION] * 2
    async with asking() as asker:
        await asker.coordinator()
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        done = await asker.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert done.error_code == E.NONE
        assert (await asker.beat("m", 0, subscribed_topic_names=["t"])).error_code == E.UNSUPPORTED_VERSION


async def test_described_and_listed(autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as asker:
        await asker.topic("t")
        await asker.coordinator()
        epoch = (await asker.join("m", "t", instance_id="i", rack_id="r")).member_epoch
        request = ConsumerGroupDescribeRequest(group_ids=["g", "x", ""], include_authorized_operations=True)
        for version in (0, 1):
            found, unknown, nameless = (await asker.ask(request, version)).groups
            assert (found.error_code, found.group_state, found.assignor_name) == (E.NONE, "Stable", "uniform")
            assert found.group_epoch == found.assignment_epoch == epoch
            assert found.authorized_operations == 0xD48
            (member,) = found.members
            assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", epoch)
            assert member.subscribed_topic_names == ["t"]
            assert [one.topic_name for one in member.assignment.topic_partitions] == ["t"]
            assert member.assignment == member.target_assignment
            assert member.member_type == (1 if version else -1)
            assert unknown.error_code == E.GROUP_ID_NOT_FOUND
            assert "x" in unknown.error_message
            assert nameless.error_code == E.INVALID_GROUP_ID
        classic = (await asker.ask(DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
        assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
        for states, types, listed in (([], ["Consumer"], 1), (["stable"], [], 1), ([], ["classic"], 0)):
            told = (await asker.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)).groups
            assert len(told) == listed
            assert all((one.group_type, one.group_state) == ("consumer", "Stable") for one in told)


async def test_offsets_and_their_epochs(autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as asker:
        await asker.topic("t")
        await asker.topic("u")
        await asker.coordinator()
        epoch = (await asker.join("m", "t")).member_epoch
        assert await asker.commit("m", epoch) == E.NONE
        assert await asker.commit("m", epoch + 1) == E.STALE_MEMBER_EPOCH
        assert await asker.commit("m", epoch, 8) == E.UNSUPPORTED_VERSION
        assert await asker.commit("x", epoch) == E.UNKNOWN_MEMBER_ID
        assert await asker.commit("", -1) == E.UNKNOWN_MEMBER_ID
        assert await asker.fetch("m", epoch) == (E.NONE, [3])
        assert await asker.fetch(None, -1) == (E.NONE, [3])
        assert await asker.fetch("m", epoch - 1) == (E.STALE_MEMBER_EPOCH, [])
        assert await asker.fetch("x", epoch) == (E.UNKNOWN_MEMBER_ID, [])

        async def forget(topic: str) -> int:
            place = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
            named = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[place])
            told = await asker.ask(OffsetDeleteRequest(group_id="g", topics=[named]), 0)
            return int(told.topics[0].partitions[0].error_code)

        delete = DeleteGroupsRequest(groups_names=["g"])
        assert [await forget(topic) for topic in ("t", "u", "v")] == [86, 0, 3]
        assert (await asker.ask(delete, 2)).results[0].error_code == E.NON_EMPTY_GROUP
        leaver = LeaveGroupRequest.MemberIdentity(member_id="m")
        left = await asker.ask(LeaveGroupRequest(group_id="g", members=[leaver]), 5)
        assert left.members[0].error_code == E.NONE
        assert await asker.commit("", -1) == E.NONE
        assert (await asker.ask(delete, 2)).results[0].error_code == E.NONE
        assert await asker.fetch(None, -1) == (E.NONE, [-1])


async def test_topics_change_and_a_pattern_follows(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few names or many: on the loop, or through the offload.
    monkeypatch.setattr(pattern_resolver, "INLINE_MATCHES", 7)
    async with asking() as asker:
        await asker.topic("logs-a", 1)
        await asker.coordinator()
        await asker.join("m", "t")
        answer = await asker.beat("p", 0, group="h", subscribed_topic_regex="logs-.*")
        held: dict[str, list[int]] = {}

        async def until(wanted: dict[str, list[int]]) -> None:
            nonlocal answer, held
            with trio.fail_after(60):
                while held != wanted:
                    await trio.sleep(1)
                    epoch = answer.member_epoch
                    owned = [
                        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=key, partitions=held[name])
                        for key, name in asker.ids.items()
                        if name in held
                    ]
                    answer = await asker.beat("p", epoch, group="h", topic_partitions=owned)
                    assert answer.error_code == E.NONE, answer.error_message
                    if answer.assignment is not None:
                        held = asker.held(answer)

        await until({"logs-a": [0]})
        for name in ("logs-b", "other", "t", "v", "w"):
            await asker.topic(name, 1)
        await until({"logs-a": [0], "logs-b": [0]})
        more = CreatePartitionsRequest.CreatePartitionsTopic(name="logs-b", count=3, assignments=None)
        await asker.ask(CreatePartitionsRequest(topics=[more], timeout_ms=60_000), 3)
        await until({"logs-a": [0], "logs-b": [0, 1, 2]})
        gone = DeleteTopicsRequest.DeleteTopicState(name="logs-a")
        await asker.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=60_000), 6)
        await until({"logs-b": [0, 1, 2]})


async def test_a_group_has_settings_of_its_own_that_a_restart_keeps(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with asking(tmp_path) as asker:
        await asker.topic("t")
        await asker.coordinator()
        answer = await asker.join("m", "t")
        assert await asker.alter("g", consumer_heartbeat_interval_ms="7000") == (E.NONE, None)
        await trio.sleep(SETTLED_S)
        assert (await asker.beat("m", answer.member_epoch)).heartbeat_interval_ms == 7000
        code, message = await asker.alter("g", consumer_heartbeat_interval_ms="4999")
        assert code == E.INVALID_CONFIG
        assert "group.consumer.min.heartbeat.interval.ms" in (message or "")
        assert (await asker.alter("", consumer_heartbeat_interval_ms="7000"))[0] == E.INVALID_REQUEST
        assert await asker.alter("later", consumer_session_timeout_ms="50000") == (E.NONE, None)
    async with asking(tmp_path) as asker:
        await asker.coordinator()
        listed = await asker.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
        assert [one.resource_name for one in listed.config_resources] == ["g", "later"]
        await trio.sleep(SETTLED_S)
        assert (await asker.beat("m", answer.member_epoch)).heartbeat_interval_ms == 7000
        one = DescribeConfigsRequest.DescribeConfigsResource(resource_type=GROUP, resource_name="g")
        (told,) = (await asker.ask(DescribeConfigsRequest(resources=[one]), 4)).results
        found = {
            entry.name: (entry.value, entry.config_source)
            for entry in told.configs
            if entry.name.startswith("consumer.")
        }
        assert found == {
            "consumer.assignment.interval.ms": ("0", 4),
            "consumer.heartbeat.interval.ms": ("7000", 8),
            "consumer.session.timeout.ms": ("45000", 5),
        }
        assert await asker.alter("g", consumer_heartbeat_interval_ms=None) == (E.NONE, None)
        assert (await asker.beat("m", answer.member_epoch)).heartbeat_interval_ms == 5000
        listed = await asker.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
        assert [one.resource_name for one in listed.config_resources] == ["later"]


async def test_a_silent_member_is_removed_and_the_group_survives_a_restart(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with asking(tmp_path) as asker:
        await asker.topic("t")
        await asker.coordinator()
        first = await asker.join("one", "t")
        epoch = (await asker.join("two", "t")).member_epoch
        assert await asker.commit("two", epoch) == E.NONE
    async with asking(tmp_path) as again:
        again.ids = asker.ids
        await again.coordinator()
        assert (await again.beat("two", epoch)).member_epoch == epoch
        for _ in range(5):
            await trio.sleep(10)
            answer = await again.beat("two", epoch, topic_partitions=[])
            epoch = answer.member_epoch
        assert again.held(answer) == {"t": [0, 1]}
        assert (await again.beat("one", first.member_epoch)).error_code == E.UNKNOWN_MEMBER_ID
        assert await again.fetch(None, -1) == (E.NONE, [3])
