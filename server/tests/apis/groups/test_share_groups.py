"""Requests about share groups and their offsets over the wire format, and each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from barnabas.server.apis.groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from barnabas.server.requests.api import Api
from barnabas.server.tests.apis.groups.share_world import ShareWorld, share_world
from barnabas.server.tests.coordinators.share.persister_kit import settle

E = ErrorCode
APIS: tuple[tuple[Api, Any], ...] = (
    (share_group_heartbeat.API, ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)),
    (share_group_describe.API, ShareGroupDescribeRequest(group_ids=["g", "h"])),
    (alter_share_group_offsets.API, AlterShareGroupOffsetsRequest(group_id="g")),
    (delete_share_group_offsets.API, DeleteShareGroupOffsetsRequest(group_id="g")),
)


def heartbeat(epoch: int, *topics: str, member: str = "a", group: str = "g") -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )


def codes(answer: Any) -> list[int]:
    """Of the request as a whole, or of its groups."""
    if hasattr(answer, "groups"):
        return [group.error_code for group in answer.groups]
    return [answer.error_code]


@pytest.mark.parametrize(("api", "request_"), APIS, ids=lambda each: each.key.name if isinstance(each, Api) else "")
async def test_the_feature_is_off(api: Api, request_: Any, tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        w.level = 0
        assert set(codes(await w.answer(api, request_))) == {E.UNSUPPORTED_VERSION}


@pytest.mark.parametrize(("api", "request_"), APIS, ids=lambda each: each.key.name if isinstance(each, Api) else "")
async def test_the_coordinator_is_elsewhere(api: Api, request_: Any, tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        w.groups.groups.resign(0)
        asked = w.ask(api, request_)
        assert set(codes(asked.answer)) == {E.NOT_COORDINATOR}


async def test_a_member(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        joined = await w.answer(share_group_heartbeat.API, heartbeat(0, "t"))
        assert (joined.error_code, joined.member_id) == (E.NONE, "a")
        await trio.sleep(2)
        got = await w.answer(share_group_heartbeat.API, heartbeat(0, "t"))
        assert sum(len(each.partitions) for each in got.assignment.topic_partitions) >= 1
        for epoch, code in ((77, E.FENCED_MEMBER_EPOCH), (-2, E.INVALID_REQUEST)):
            assert codes(await w.answer(share_group_heartbeat.API, heartbeat(epoch))) == [code]
        for request, code in (
            (heartbeat(3, member="b"), E.UNKNOWN_MEMBER_ID),
            (heartbeat(3, group="h"), E.GROUP_ID_NOT_FOUND),
            (heartbeat(0, "t", member=""), E.INVALID_REQUEST),
            (heartbeat(0, "t", group=""), E.INVALID_REQUEST),
            (heartbeat(0, member="b"), E.INVALID_REQUEST),
        ):
            assert codes(await w.answer(share_group_heartbeat.API, request)) == [code]
        request = ShareGroupDescribeRequest(group_ids=["g", "h", "", "g"], include_authorized_operations=True)
        described = await w.answer(share_group_describe.API, request)
        assert [(group.group_id, group.error_code) for group in described.groups] == [
            ("g", E.NONE),
            ("h", E.GROUP_ID_NOT_FOUND),
            ("", E.INVALID_GROUP_ID),
        ]
        group = described.groups[0]
        assert sorted(member.member_id for member in group.members) == ["a", "m"]
        assert group.authorized_operations > 0
        assert described.groups[1].error_message == "Group h not found."
        left = await w.answer(share_group_heartbeat.API, heartbeat(-1))
        assert (left.member_epoch, left.heartbeat_interval_ms) == (-1, 0)


async def leave(w: ShareWorld) -> None:
    """The member that the world begins with."""
    await w.answer(share_group_heartbeat.API, heartbeat(-1, member="m"))


def alteration(*starts: tuple[str, int, int], group: str = "g") -> AlterShareGroupOffsetsRequest:
    topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partition = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            topic(topic_name=name, partitions=[partition(partition_index=index, start_offset=start)])
            for name, index, start in starts
        ],
    )


def by_partition(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic_name, each.partition_index, each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    ]


async def test_offsets_are_altered(tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        api = alter_share_group_offsets.API
        assert codes(await w.answer(api, alteration(("t", 0, 5)))) == [E.NON_EMPTY_GROUP]
        await leave(w)
        answer = await w.answer(api, alteration(("t", 0, 5), ("u", 0, 5), ("t", 3, 5), ("t", -1, 5), ("t", 0, 7)))
        assert answer.error_code == E.NONE
        assert by_partition(answer) == [
            ("t", 0, E.NONE),
            ("u", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 3, E.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 0, E.NONE),
        ]
        assert answer.responses[0].topic_id == w.groups.at.topic_id
        assert await w.groups.start_offset(0) == 7
        assert by_partition(await w.answer(api, alteration(("u", 0, 5)))) == [("u", 0, E.UNKNOWN_TOPIC_OR_PARTITION)]
        assert by_partition(await w.answer(api, alteration(("t", 1, 5), group="new"))) == [("t", 1, E.NONE)]
        assert codes(await w.answer(api, alteration(("t", 0, 5), group=""))) == [E.INVALID_GROUP_ID]


async def test_offsets_are_deleted(tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        api = delete_share_group_offsets.API
        topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic

        def deletion(*names: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
            return DeleteShareGroupOffsetsRequest(group_id=group, topics=[topic(topic_name=name) for name in names])

        assert codes(await w.answer(api, deletion("t"))) == [E.NON_EMPTY_GROUP]
        await leave(w)
        w.groups.at.world.topic("other")
        answer = await w.answer(api, deletion("t", "nowhere", "other"))
        assert [(each.topic_name, each.error_code) for each in answer.responses] == [
            ("t", E.NONE),
            ("nowhere", E.UNKNOWN_TOPIC_OR_PARTITION),
            ("other", E.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert [each.error_message for each in answer.responses[1:]] == [
            "There is no such topic.",
            "There is no offset information to delete.",
        ]
        assert w.groups.groups.shares.initialized_partitions("g") == {}
        assert codes(await w.answer(api, deletion("t", group="h"))) == [E.GROUP_ID_NOT_FOUND]
        assert codes(await w.answer(api, deletion("t", group=""))) == [E.INVALID_GROUP_ID]


async def test_where_groups_stand(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        api = describe_share_group_offsets.API
        group, topic = (
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic,
        )
        everything = DescribeShareGroupOffsetsRequest(groups=[group(group_id="g", topics=None)])

        def rows(answer: Any) -> list[tuple[str, int, int, int, int]]:
            return [
                (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
                for topic in answer.groups[0].topics
                for each in topic.partitions
            ]

        assert rows(await w.told(api, everything)) == [("t", index, -1, -1, 0) for index in range(3)]
        w.parts.produce(2, 3)
        got = w.fetch(0)
        await settle()
        assert not got.waits
        w.fetch(1, (0, 0, 1), (3, 3, 1))
        await settle()
        w.parts.produce(1)
        assert rows(await w.told(api, everything))[0] == ("t", 0, 0, 4, 0)
        assert rows(await w.told(api, everything, 0))[0] == ("t", 0, 0, -1, 0), "version 0 has no lag"
        named = DescribeShareGroupOffsetsRequest(
            groups=[
                group(
                    group_id="g",
                    topics=[topic(topic_name="t", partitions=[0, 9]), topic(topic_name="nowhere", partitions=[0])],
                ),
                group(group_id="h", topics=None),
                group(group_id="", topics=None),
            ]
        )
        answer = await w.told(api, named)
        assert rows(answer) == [("t", 0, 0, 4, 0), ("t", 9, -1, -1, 0), ("nowhere", 0, -1, -1, 0)]
        assert [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups] == [
            ("g", E.NONE, 2),
            ("h", E.NONE, 0),
            ("", E.INVALID_GROUP_ID, 0),
        ]
        w.level = 0
        assert codes(await w.told(api, named)) == [E.UNSUPPORTED_VERSION] * 3


async def test_a_description_of_many_partitions_takes_turns(tmp_path: Path, autojump_clock: MockClock) -> None:
    group, topic = (
        DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic,
    )
    request = DescribeShareGroupOffsetsRequest(
        groups=[group(group_id="g", topics=[topic(topic_name="t", partitions=list(range(5_000)))])]
    )
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await w.told(describe_share_group_offsets.API, request))

    async with share_world(tmp_path) as w, trio.open_nursery() as nursery:
        async with w.svc.turns.mine:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            assert not answers
        await settle()
        assert len(answers[0].groups[0].topics[0].partitions) == 5_000
