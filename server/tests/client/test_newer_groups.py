"""Share and streams groups as our client sees them, with brokers of ours under virtual time."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.server.client.client import Client
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.groups.groups import delete_groups, describe_groups, list_groups
from barnabas.server.client.groups.lag import GroupLag, lags
from barnabas.server.client.groups.newer import share_offsets
from barnabas.server.client.groups.resets import Reset, To, plan_reset, reset
from barnabas.server.client.groups.values import SHARE, STREAMS, Committed, Group
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.testing import connected
from barnabas.server.tests.client.test_administration import one, sent

_Topology = StreamsGroupHeartbeatRequest.Topology
_Subtopology = StreamsGroupHeartbeatRequest.Subtopology


async def share(raw: Any, member_id: str, epoch: int = 0) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id="s", member_id=member_id, member_epoch=epoch, subscribed_topic_names=["t"] if epoch == 0 else None
    )
    answer = await raw.ask(request, 1)
    while answer.error_code and epoch == 0:
        await trio.sleep(0.1)
        answer = await raw.ask(request, 1)
    assert isinstance(answer, ShareGroupHeartbeatResponse)
    assert not answer.error_code
    return answer


async def shared_by_two(client: Client, raw: Any) -> None:
    """Two members have partitions of `t`."""
    await describe_groups(client, ["s"])  # makes the internal topic
    with trio.fail_after(60):
        for member_id in ("m1", "m2"):
            assigned = 0
            while not assigned:
                parts = (await share(raw, member_id)).assignment
                assigned = sum(len(each.partitions) for each in parts.topic_partitions) if parts is not None else 0
                await trio.sleep(0.5)


async def test_a_share_group(autojump_clock: MockClock) -> None:
    async with one() as (client, broker), connected(broker) as raw:
        await create_topics(client, [NewTopic("t", 2, 1)])
        await shared_by_two(client, raw)
        await sent(client, "a", "b", "c")
        groups, _ = await list_groups(client)
        assert groups["s"].kind == SHARE
        found = (await describe_groups(client, ["s"]))["s"]
        assert isinstance(found, Group)
        assert (found.kind, found.assignor, len(found.members)) == (SHARE, "simple", 2)
        assert found.members[0].topics == ("t",)
        assert {place for member in found.members for place in member.partitions} == {("t", 0), ("t", 1)}
        lag = (await lags(client, ["s"]))["s"]
        assert isinstance(lag, GroupLag)
        assert [each.partition for each in lag.partitions] == [0, 1]
        assert lag.partitions[0].readers == sum(("t", 0) in member.partitions for member in found.members)
        refused = await reset(client, "s", {("t", 0): Reset(None, 1)}, SHARE)
        assert isinstance(refused["t", 0], Failed)
        assert refused["t", 0].code.name == "NON_EMPTY_GROUP"
        for member_id in ("m1", "m2"):
            await share(raw, member_id, -1)
        plan = await plan_reset(client, "s", [("t", 0), ("t", 1)], To(offset=1), SHARE)
        assert not isinstance(plan, Failed)
        assert {place: each.after for place, each in plan.items()} == {("t", 0): 1, ("t", 1): 0}
        assert await reset(client, "s", plan, SHARE) == {("t", 0): None, ("t", 1): None}
        stands = (await share_offsets(client, ["s"]))["s"]
        assert not isinstance(stands, Failed)
        held = stands["t", 0]
        assert isinstance(held, Committed)
        assert (held.offset, held.lag) == (1, 2)
        again = (await lags(client, ["s"]))["s"]
        assert isinstance(again, GroupLag)
        assert (again.lag, again.partitions[0].lag, again.partitions[0].member) == (2, 2, None)
        assert again.partitions[0].unread_ms is not None
        assert await delete_groups(client, ["s"]) == {"s": None}


async def test_a_streams_group(autojump_clock: MockClock) -> None:
    async with one() as (client, broker), connected(broker) as raw:
        await create_topics(client, [NewTopic("t", 2, 1), NewTopic("u", 1, 1)])
        await describe_groups(client, ["app"])  # makes the internal topic
        joining = StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id="m",
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=10_000,
            topology=_Topology(subtopologies=[_Subtopology(subtopology_id="0", source_topics=["t", "u"])]),
            process_id="p",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            client_tags=[],
        )
        answer = await raw.ask(joining, 0)
        with trio.fail_after(60):
            while answer.error_code:
                await trio.sleep(0.1)
                answer = await raw.ask(joining, 0)
            while not answer.active_tasks:
                await trio.sleep(0.5)
                beat = StreamsGroupHeartbeatRequest(group_id="app", member_id="m", member_epoch=answer.member_epoch)
                answer = await raw.ask(beat, 0)
                assert isinstance(answer, StreamsGroupHeartbeatResponse)
                assert not answer.error_code
        groups, _ = await list_groups(client)
        assert groups["app"].kind == STREAMS
        found = (await describe_groups(client, ["app", "nobody"]))["app"]
        assert isinstance(found, Group)
        assert (found.kind, found.assignor, len(found.members)) == (STREAMS, "", 1)
        # Task 1 has no partition of `u`.
        assert sorted(found.members[0].partitions) == [("t", 0), ("t", 1), ("u", 0)]
        await sent(client, "a", "b")
        leaving = StreamsGroupHeartbeatRequest(group_id="app", member_id="m", member_epoch=-1)
        assert not (await raw.ask(leaving, 0)).error_code
        assert await commit_offsets(client, "app", {("t", 0): 1}) == {("t", 0): None}
        lag = (await lags(client, ["app"]))["app"]
        assert isinstance(lag, GroupLag)
        assert (lag.group.kind, lag.lag) == (STREAMS, 1)
