"""The group APIs of a whole broker, asked by every version of every client there ever was, over a memory stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinator.tests.kit import subscription
from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from barnabas.server.apis.groups import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker

E = ErrorCode


def versions(module: Any) -> range:
    first, last = module.API.versions
    return range(first, last + 1)


class Asker:
    """Asks one broker in the words of each version. session_timeout_ms: how long members may be silent; in real time,
    longer than anything stands still.
    """

    session_timeout_ms = 10_000

    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client

    async def ask(self, request: Any, version: int) -> Any:
        with trio.fail_after(120):
            return await self.client.ask(request, version)

    async def topic(self, name: str, partitions: int = 2) -> bytes:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        created = await self.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert created.topics[0].error_code == E.NONE
        return bytes(created.topics[0].topic_id)

    async def coordinator(self, version: int = 6, group: str = "g") -> Any:
        """Ask until there is one."""
        while True:
            request = FindCoordinatorRequest(key=group) if version < 4 else None
            answer = await self.ask(request or FindCoordinatorRequest(coordinator_keys=[group]), version)
            told = answer if version < 4 else answer.coordinators[0]
            if told.error_code != E.COORDINATOR_NOT_AVAILABLE:
                return told
            await trio.sleep(0.05)

    async def join(
        self, version: int = 9, *, member_id: str = "", group: str = "g", instance: str | None = None
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=-1 if version == 0 else 20_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        answer = await self.ask(request, version)
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            assert version >= 4
            request.member_id = answer.member_id
            answer = await self.ask(request, version)
        return answer

    async def sync(self, member_id: str, generation: int, version: int = 5, *, group: str = "g") -> Any:
        named = version >= 5
        return await self.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer" if named else None,
                protocol_name="range" if named else None,
                assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
            ),
            version,
        )

    async def member(self, group: str = "g") -> str:
        """The only member of a stable group, generation 1."""
        member_id = str((await self.join(group=group)).member_id)
        assert (await self.sync(member_id, 1, group=group)).error_code == E.NONE
        return member_id

    async def commit(
        self,
        offsets: dict[int, int],
        version: int = 9,
        *,
        topic: str = "t",
        topic_id: bytes = ZERO_UUID,
        group: str = "g",
        generation: int = -1,
        member_id: str = "",
    ) -> list[ErrorCode]:
        by_id = version >= 10
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="" if by_id else topic,
                    topic_id=topic_id if by_id else ZERO_UUID,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=f"m{offset}"
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        answer = (await self.ask(request, version)).topics[0]
        assert answer.topic_id == (topic_id if by_id else ZERO_UUID)
        assert [each.partition_index for each in answer.partitions] == list(offsets)
        return [ErrorCode(each.error_code) for each in answer.partitions]

    async def fetch(
        self,
        version: int = 9,
        *,
        group: str = "g",
        partitions: list[int] | None = None,
        topic: str = "t",
        topic_id: bytes = ZERO_UUID,
    ) -> list[tuple[int, int, str, ErrorCode]]:
        """(partition, offset, metadata, error) of one topic; all of the group's topics with None."""
        by_id = version >= 10
        if version >= 8:
            wanted = None
            if partitions is not None:
                wanted = [
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name="" if by_id else topic,
                        topic_id=topic_id if by_id else ZERO_UUID,
                        partition_indexes=partitions,
                    )
                ]
            asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=wanted)
            answer = (await self.ask(OffsetFetchRequest(groups=[asked]), version)).groups[0]
            assert answer.group_id == group
        else:
            topics = None
            if partitions is not None:
                topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
            answer = await self.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
        assert answer.error_code == E.NONE
        return [
            (each.partition_index, each.committed_offset, each.metadata, ErrorCode(each.error_code))
            for topic_answer in answer.topics
            for each in topic_answer.partitions
        ]


@asynccontextmanager
async def asker(**settings: str) -> AsyncIterator[Asker]:
    async with embedded_broker(**settings) as broker, connected(broker) as client:
        yield Asker(broker, client)


@pytest.mark.parametrize("version", versions(find_coordinator))
async def test_find_coordinator_creates_the_topic_and_names_the_broker(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with asker(offsets_topic_num_partitions="3") as a:
        key = {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}
        first = await a.ask(FindCoordinatorRequest(**key), version)
        told = first if version < 4 else first.coordinators[0]
        host, port = a.broker.bootstrap.split(":")
        assert (told.error_code, told.host, told.port) == (E.NONE, host, int(port))
        metadata = await a.ask(MetadataRequest(topics=None), 12)
        assert [(broker.node_id, broker.port) for broker in metadata.brokers] == [(told.node_id, told.port)]
        (topic,) = metadata.topics
        assert (topic.name, topic.is_internal, len(topic.partitions)) == ("__consumer_offsets", True, 3)
        if version >= 4:
            assert told.key == "g"


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("key_type", [2, 9])
async def test_other_coordinators_are_refused_with_a_reason(version: int, key_type: int) -> None:
    async with asker() as a:
        key = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
        answer = await a.ask(FindCoordinatorRequest(key_type=key_type, **key), version)
        told = answer if version < 4 else answer.coordinators[0]
        assert (told.error_code, told.node_id) == (E.INVALID_REQUEST, -1)
        assert told.error_message


@pytest.mark.parametrize("version", versions(join_group))
async def test_every_version_of_join_group(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        assert (await a.join(version)).error_code == E.NOT_COORDINATOR
        await a.coordinator()
        answer = await a.join(version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (E.NONE, 1, "range")
        assert answer.leader == answer.member_id == answer.members[0].member_id
        assert answer.member_id.startswith("test-")
        assert answer.members[0].metadata == subscription("t")
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        refused = await a.join(version, group="")
        assert refused.error_code == E.INVALID_GROUP_ID
        assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(5, 10))
async def test_static_members_in_every_version(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        first = await a.join(version, instance="i")
        assert first.members[0].group_instance_id == "i"
        await a.sync(first.member_id, 1)
        again = await a.join(version, instance="i")
        assert (again.error_code, again.generation_id) == (E.NONE, 1)
        assert again.skip_assignment == (version >= 9)
        assert (again.leader == again.member_id) == (version >= 9)
        fenced = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i")
        assert (await a.ask(fenced, 4)).error_code == E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", versions(sync_group))
async def test_every_version_of_sync_group(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        member_id = (await a.join()).member_id
        answer = await a.sync(member_id, 1, version)
        assert (answer.error_code, answer.assignment) == (E.NONE, b"all")
        named = ("consumer", "range") if version >= 5 else (None, None)
        assert (answer.protocol_type, answer.protocol_name) == named
        assert (await a.sync("nobody", 1, version)).error_code == E.UNKNOWN_MEMBER_ID
        assert (await a.sync(member_id, 7, version)).error_code == E.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(heartbeat))
async def test_every_version_of_heartbeat(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        member_id = await a.member()

        async def beat(generation: int) -> int:
            request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
            return int((await a.ask(request, version)).error_code)

        assert await beat(1) == E.NONE
        assert await beat(2) == E.ILLEGAL_GENERATION
        await trio.sleep(11)
        assert await beat(1) == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(leave_group))
async def test_every_version_of_leave_group(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.coordinator()
        member_id = await a.member()

        async def leave(who: str) -> int:
            request = LeaveGroupRequest(group_id="g")
            if version < 3:
                request.member_id = who
            else:
                request.members = [LeaveGroupRequest.MemberIdentity(member_id=who)]
            answer = await a.ask(request, version)
            assert version < 3 or answer.error_code == E.NONE
            return int(answer.error_code if version < 3 else answer.members[0].error_code)

        assert await leave("nobody") == E.UNKNOWN_MEMBER_ID
        assert await leave(member_id) == E.NONE
        assert await leave(member_id) == E.UNKNOWN_MEMBER_ID


async def test_three_consumers_rebalance_over_three_connections(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker(group_initial_rebalance_delay_ms="3000") as broker:
        joined: list[Any] = []

        async def consumer() -> None:
            async with connected(broker) as client:
                a = Asker(broker, client)
                await a.coordinator()
                answer = await a.join()
                joined.append(answer)
                if answer.members:
                    assigned = [
                        SyncGroupRequest.SyncGroupRequestAssignment(
                            member_id=each.member_id, assignment=each.member_id.encode()
                        )
                        for each in answer.members
                    ]
                    await trio.sleep(1)
                else:
                    assigned = []
                request = SyncGroupRequest(
                    group_id="g",
                    generation_id=1,
                    member_id=answer.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assigned,
                )
                synced = await a.ask(request, 5)
                assert synced.assignment == answer.member_id.encode()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(consumer)
        assert {answer.generation_id for answer in joined} == {1}
        assert [len(answer.members) for answer in joined if answer.members] == [3]


@pytest.mark.parametrize("version", versions(offset_commit))
async def test_every_version_of_offset_commit(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        topic_id = await a.topic("t")
        await a.coordinator()
        codes = await a.commit({0: 5, 1: 6, 2: 7}, version, topic_id=topic_id)
        assert codes == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await a.fetch(partitions=[0, 1]) == [(0, 5, "m5", E.NONE), (1, 6, "m6", E.NONE)]
        unknown = await a.commit({0: 5}, version, topic="nope", topic_id=b"?" * 16)
        assert unknown == [E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION]
        if version >= 1:
            refused = await a.commit({0: 5, 9: 1}, version, topic_id=topic_id, generation=3, member_id="x")
            assert refused == [E.UNKNOWN_MEMBER_ID, E.UNKNOWN_TOPIC_OR_PARTITION]
        big = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1, committed_metadata="x" * 4097)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[big])
        if version >= 10:
            topic.topic_id = topic_id
        else:
            topic.name = "t"
        answer = await a.ask(OffsetCommitRequest(group_id="g", topics=[topic]), version)
        assert answer.topics[0].partitions[0].error_code == E.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", versions(offset_commit))
async def test_commits_without_a_coordinator_are_refused_each(version: int) -> None:
    async with asker() as a:
        topic_id = await a.topic("t")
        assert await a.commit({0: 5, 1: 6}, version, topic_id=topic_id) == [E.NOT_COORDINATOR] * 2


async def test_version_0_clients_need_no_coordinator(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.topic("t")
        assert await a.commit({0: 5}, 0) == [E.NOT_COORDINATOR]
        await trio.sleep(1)  # the attempt had the topic created
        assert await a.commit({0: 5}, 0) == [E.NONE]
        answer = await a.fetch(0, partitions=[0, 1])
        assert answer == [(0, 5, "m5", E.NONE), (1, -1, "", E.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", versions(offset_fetch))
async def test_every_version_of_offset_fetch(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        topic_id = await a.topic("t")
        await a.coordinator()
        await a.commit({0: 5})
        missing = E.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else E.NONE
        answer = await a.fetch(version, partitions=[0, 1], topic_id=topic_id)
        assert answer == [(0, 5, "m5", E.NONE), (1, -1, "", missing)]
        answer = await a.fetch(version, partitions=[0], topic="nope", topic_id=b"?" * 16)
        assert answer == [(0, -1, "", E.UNKNOWN_TOPIC_ID if version >= 10 else missing)]
        assert await a.fetch(version, group="nobody", partitions=[0], topic_id=topic_id) == [(0, -1, "", missing)]
        if version >= 2:
            assert await a.fetch(version) == [(0, 5, "m5", E.NONE)]
            assert await a.fetch(version, group="nobody") == []


@pytest.mark.parametrize("version", versions(offset_fetch))
async def test_fetching_without_a_coordinator_fails_where_the_version_has_room(version: int) -> None:
    async with asker() as a:
        if version >= 8:
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[])
            answer = await a.ask(OffsetFetchRequest(groups=[group]), version)
            assert [(each.group_id, each.error_code) for each in answer.groups] == [("g", E.NOT_COORDINATOR)]
            return
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        answer = await a.ask(OffsetFetchRequest(group_id="g", topics=[topic]), version)
        if version >= 2:
            assert answer.error_code == E.NOT_COORDINATOR
        else:
            assert answer.topics[0].partitions[0].error_code == E.NOT_COORDINATOR


async def test_offsets_of_several_groups_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        topic_id = await a.topic("t")
        await a.coordinator()
        await a.commit({0: 5}, group="a")
        await a.commit({1: 6}, group="b")
        wanted = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in "abc"]
        answer = await a.ask(OffsetFetchRequest(groups=wanted), 10)
        told = [
            [(topic.topic_id, topic.partitions[0].committed_offset) for topic in each.topics] for each in answer.groups
        ]
        assert told == [[(topic_id, 5)], [(topic_id, 6)], []]


async def test_a_deleted_topic_takes_its_offsets_along(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        old_id = await a.topic("t")
        await a.coordinator()
        await a.commit({0: 5, 1: 6})
        await a.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5)
        assert await a.fetch() == []
        assert await a.fetch(10, partitions=[0], topic_id=old_id) == [(0, -1, "", E.UNKNOWN_TOPIC_ID)]
        await a.topic("t")
        assert await a.fetch(partitions=[0]) == [(0, -1, "", E.NONE)]


@pytest.mark.parametrize("version", versions(describe_groups))
async def test_every_version_of_describe_groups(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        request = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=version >= 3)
        answer = await a.ask(request, version)
        assert [each.error_code for each in answer.groups] == [E.NOT_COORDINATOR] * 2
        await a.coordinator()
        member_id = await a.member()
        group, unknown = (await a.ask(request, version)).groups
        assert (group.group_id, group.group_state, group.protocol_type) == ("g", "Stable", "consumer")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (member_id, "test")
        assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all")
        assert group.authorized_operations == (0xD48 if version >= 3 else -(2**31))
        assert unknown.group_state == "Dead"
        assert unknown.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE)


@pytest.mark.parametrize("version", versions(list_groups))
async def test_every_version_of_list_groups(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        assert (await a.ask(ListGroupsRequest(), version)).groups == []
        await a.topic("t")
        await a.coordinator()
        await a.member()
        await a.commit({0: 1}, group="simple")

        async def names(**filters: list[str]) -> dict[str, str]:
            answer = await a.ask(ListGroupsRequest(**filters), version)
            assert answer.error_code == E.NONE
            return {each.group_id: each.protocol_type for each in answer.groups}

        assert await names() == {"g": "consumer", "simple": ""}
        if version >= 4:
            assert await names(states_filter=["empty"]) == {"simple": ""}
        if version >= 5:
            assert await names(types_filter=["classic"], states_filter=["Stable"]) == {"g": "consumer"}
            assert await names(types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", versions(delete_groups))
async def test_every_version_of_delete_groups(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        request = DeleteGroupsRequest(groups_names=["simple", "g", "nobody", "simple"])
        answer = await a.ask(request, version)
        assert {each.group_id: each.error_code for each in answer.results} == dict.fromkeys(
            ["simple", "g", "nobody"], E.NOT_COORDINATOR
        )
        assert (await a.ask(DeleteGroupsRequest(), version)).results == []
        await a.topic("t")
        await a.coordinator()
        await a.member()
        await a.commit({0: 1, 1: 2}, group="simple")
        answer = await a.ask(request, version)
        assert {each.group_id: each.error_code for each in answer.results} == {
            "simple": E.NONE,
            "g": E.NON_EMPTY_GROUP,
            "nobody": E.GROUP_ID_NOT_FOUND,
        }
        assert await a.fetch(group="simple") == []


async def test_offset_delete(autojump_clock: trio.testing.MockClock) -> None:
    async with asker() as a:
        await a.topic("t")
        await a.topic("u")

        def request(group: str) -> OffsetDeleteRequest:
            partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in (0, 7)]
            return OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=partitions)
                    for name in ("t", "u", "nope")
                ],
            )

        def told(answer: Any) -> list[list[int]]:
            return [[each.error_code for each in topic.partitions] for topic in answer.topics]

        assert (await a.ask(request("g"), 0)).error_code == E.NOT_COORDINATOR
        await a.coordinator()
        assert (await a.ask(request("g"), 0)).error_code == E.GROUP_ID_NOT_FOUND
        member_id = await a.member()
        for topic in ("t", "u"):
            await a.commit({0: 1}, topic=topic, generation=1, member_id=member_id)
        answer = await a.ask(request("g"), 0)
        assert answer.error_code == E.NONE
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        assert told(answer) == [[E.GROUP_SUBSCRIBED_TO_TOPIC, unknown], [E.NONE, unknown], [unknown, unknown]]
        assert await a.fetch() == [(0, 1, "m1", E.NONE)]


async def test_groups_survive_a_restart_of_the_broker(tmp_path: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        a = Asker(broker, client)
        await a.topic("t")
        await a.coordinator()
        member_id = await a.member()
        await a.commit({0: 5}, generation=1, member_id=member_id)
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        a = Asker(broker, client)
        assert (await a.coordinator()).error_code == E.NONE
        for _ in range(100):
            if (await a.ask(ListGroupsRequest(), 5)).error_code != E.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await trio.sleep(0.01)
        assert await a.fetch() == [(0, 5, "m5", E.NONE)]
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        assert (await a.ask(beat, 4)).error_code == E.NONE
