"""Topics, settings, directories, groups, lag, resets and transactions, with brokers of ours under virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from barnabas.kproto.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_versioned,
)
from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client
from barnabas.server.client.configs import Resource, ResourceKind, Source, alter_configs, describe_configs
from barnabas.server.client.failures import Failed, Unsupported
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets, delete_offsets
from barnabas.server.client.groups.groups import delete_groups, describe_groups, list_groups
from barnabas.server.client.groups.lag import GroupLag, lags
from barnabas.server.client.groups.resets import Reset, To, plan_reset, reset
from barnabas.server.client.groups.values import Committed, Group
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import EARLIEST, LATEST, Span, spans
from barnabas.server.client.producer import Producer
from barnabas.server.client.topics import (
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from barnabas.server.client.transactions import (
    abort_transaction,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.server.client.view import TopicView
from barnabas.server.testing import START_OF_VIRTUAL_TIME, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.client.rig import KAFKA_0_11, old, relayed, to_broker, to_cluster, transactional

TOPIC = Resource(ResourceKind.TOPIC, "t")


@asynccontextmanager
async def one(**settings: Any) -> AsyncIterator[tuple[Client, Any]]:
    async with embedded_broker(**settings) as broker, relayed(to_broker(broker)) as (client, _):
        yield client, broker


def now_ms() -> int:
    return int((START_OF_VIRTUAL_TIME + trio.current_time()) * 1000)


async def sent(client: Client, *values: str, partition: int = 0) -> None:
    await Producer(client, now_ms).send([ToSend("t", value.encode(), partition=partition) for value in values])


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_the_life_of_a_topic(autojump_clock: MockClock) -> None:
    async with one() as (client, _):
        made = await create_topics(
            client,
            [NewTopic("t", 2, 1, {"retention.ms": "5000"}), NewTopic("u"), NewTopic("no way"), NewTopic("v", 1, 9)],
        )
        assert (made["t"], made["u"]) == (2, 1)
        assert [each.code.name for each in made.values() if isinstance(each, Failed)] == [
            "INVALID_TOPIC_EXCEPTION",
            "INVALID_REPLICATION_FACTOR",
        ]
        again = (await create_topics(client, [NewTopic("t", 1, 1)]))["t"]
        assert isinstance(again, Failed)
        assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert list(await list_topics(client)) == ["t", "u"]
        described = await describe_topics(client, ["t", "nothing"])
        assert isinstance(described["t"], TopicView)
        assert [each.leader for each in described["t"].partitions.values()] == [1, 1]
        assert "there is no such topic" in str(described["nothing"])
        assert await add_partitions(client, {"t": 3}) == {"t": None}
        fewer = (await add_partitions(client, {"t": 2}))["t"]
        assert isinstance(fewer, Failed)
        assert fewer.code == ErrorCode.INVALID_PARTITIONS
        assert await delete_topics(client, ["t"]) == {"t": None}
        assert list(await list_topics(client)) == ["u"]


async def test_only_a_check(autojump_clock: MockClock) -> None:
    async with one() as (client, _):
        assert await create_topics(client, [NewTopic("t", 2, 1)], only_check=True) == {"t": 2}
        assert await list_topics(client) == {}


async def test_replicas_where_they_are_wanted(autojump_clock: MockClock) -> None:
    async with embedded_cluster(3) as cluster, relayed(to_cluster(cluster)) as (client, _):
        client._bootstrap = [client._endpoint(each.host, each.port) for each in cluster[2].endpoints]
        assert (await create_topics(client, [NewTopic("t", assignment={0: [3, 1], 1: [2, 3]})]))["t"] == 2
        described = (await describe_topics(client, ["t"]))["t"]
        assert isinstance(described, TopicView)
        assert [each.replicas for each in described.partitions.values()] == [(3, 1), (2, 3)]
        dirs = await describe_log_dirs(client, [("t", 0)])
        holders = [broker_id for broker_id, each in dirs.items() if not isinstance(each, Failed) and each[0].replicas]
        assert holders == [1, 3]


async def test_brokers_from_before_there_were_defaults(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker), old(KAFKA_0_11)) as (client, _):
        with pytest.raises(Unsupported, match=r"before Apache Kafka 2\.4 must be told how many"):
            await create_topics(client, [NewTopic("t")])
        assert not isinstance((await create_topics(client, [NewTopic("t", 2, 1)]))["t"], Failed)
        settings = (await describe_configs(client, [TOPIC]))[TOPIC]
        assert not isinstance(settings, Failed)
        assert settings["retention.ms"].source is Source.DEFAULT
        with pytest.raises(Unsupported, match=r"does not offer IncrementalAlterConfigs; .* from 2\.3 on"):
            await alter_configs(client, {TOPIC: {"retention.ms": "1"}})
        with pytest.raises(Unsupported, match=r"from 1\.0 on"):
            await describe_log_dirs(client)
        assert await commit_offsets(client, "g", {("t", 0): 1, ("t", 1): 0}) == {("t", 0): None, ("t", 1): None}
        assert (await committed_offsets(client, ["g", "h"]))["g"] == {
            ("t", 0): Committed(1, -1, ""),
            ("t", 1): Committed(0, -1, ""),
        }
        groups, failed = await list_groups(client)
        assert (groups["g"].kind, groups["g"].state, failed) == ("classic", "", {})
        described = (await describe_groups(client, ["g"]))["g"]
        assert isinstance(described, Group)
        assert described.state == "Empty"
        assert await delete_topics(client, ["t"]) == {"t": None}


# -- settings, directories ---------------------------------------------------------------------------------------------


async def test_settings_with_where_they_come_from(autojump_clock: MockClock) -> None:
    async with one(log_retention_hours="7") as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1, {"retention.ms": "5000"})])
        everybody = Resource(ResourceKind.BROKER, "")
        broker = Resource(ResourceKind.BROKER, "1")
        missing = Resource(ResourceKind.TOPIC, "gone")
        found = await describe_configs(client, [TOPIC, broker, everybody, missing, Resource(ResourceKind.BROKER, "8")])
        topic = found[TOPIC]
        assert not isinstance(topic, Failed)
        assert (topic["retention.ms"].value, topic["retention.ms"].source) == ("5000", Source.TOPIC)
        assert topic["retention.ms"].is_set
        assert topic["retention.ms"].doc
        assert not topic["cleanup.policy"].is_set
        own = found[broker]
        assert not isinstance(own, Failed)
        assert own["log.retention.hours"].source is Source.STATIC_BROKER
        assert isinstance(found[missing], Failed)
        eighth = found[Resource(ResourceKind.BROKER, "8")]
        assert isinstance(eighth, Failed)
        assert "there is no broker 8; there are 1" in str(eighth)
        assert not isinstance(found[everybody], Failed)


async def test_settings_are_set_and_taken_back(autojump_clock: MockClock) -> None:
    async with one() as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        changes = {"retention.ms": "77", "cleanup.policy": "compact"}
        assert await alter_configs(client, {TOPIC: changes}) == {TOPIC: None}
        await alter_configs(client, {TOPIC: {"cleanup.policy": None}})
        found = (await describe_configs(client, [TOPIC], ["retention.ms", "cleanup.policy"]))[TOPIC]
        assert not isinstance(found, Failed)
        assert {name: each.value for name, each in found.items()} == {"retention.ms": "77", "cleanup.policy": "delete"}
        wrong = (await alter_configs(client, {TOPIC: {"retention.ms": "soon"}}))[TOPIC]
        assert isinstance(wrong, Failed)
        assert wrong.code == ErrorCode.INVALID_CONFIG
        checked = await alter_configs(client, {TOPIC: {"retention.ms": "1"}}, only_check=True)
        assert checked == {TOPIC: None}
        logger = Resource(ResourceKind.BROKER_LOGGER, "1")
        assert isinstance((await alter_configs(client, {logger: {"no.such": "INFO"}}))[logger], Failed)


async def test_sizes(autojump_clock: MockClock) -> None:
    async with one() as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        await sent(client, "a" * 1000)
        (directory,) = (await describe_log_dirs(client))[1]  # type: ignore[misc]
        assert directory.failed is None
        assert directory.replicas["t", 0].size > 1000
        assert directory.total_bytes > directory.usable_bytes > 0
        assert isinstance((await describe_log_dirs(client, brokers=[5]))[5], Failed)


# -- groups ------------------------------------------------------------------------------------------------------------


async def join_classic(raw: Any, group: str, topics: list[str], assigned: list[int]) -> str:
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=topics), 1)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)
    member_id = ""
    for _ in range(2):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = await raw.ask(request, 5)
        member_id = joined.member_id
        if not joined.error_code:
            break
    row = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=assigned)
    assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[row]), 0)
    synced = await raw.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
        ),
        3,
    )
    assert not synced.error_code
    return str(member_id)


async def test_groups_of_both_kinds(autojump_clock: MockClock) -> None:
    async with one() as (client, broker):
        await create_topics(client, [NewTopic("t", 2, 1)])
        await commit_offsets(client, "empty", {("t", 0): 0})
        async with connected(broker) as raw, connected(broker) as other:
            member = await join_classic(raw, "classic", ["t"], [0, 1])
            beat = ConsumerGroupHeartbeatRequest(
                group_id="modern",
                member_id="m" * 22,
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            answer = await other.ask(beat, 1)
            while answer.error_code:
                await trio.sleep(0.1)
                answer = await other.ask(beat, 1)
            groups, failed = await list_groups(client)
            assert failed == {}
            assert {name: (each.kind, each.state) for name, each in groups.items()} == {
                "classic": ("classic", "Stable"),
                "empty": ("classic", "Empty"),
                "modern": ("consumer", "Stable"),
            }
            found = await describe_groups(client, ["modern", "classic", "empty", "nobody"])
            classic, modern = found["classic"], found["modern"]
            assert isinstance(classic, Group)
            assert isinstance(modern, Group)
            assert (classic.kind, classic.state, classic.assignor, classic.coordinator) == (
                "classic",
                "Stable",
                "range",
                1,
            )
            (one_member,) = classic.members
            assert one_member.member_id == member
            assert one_member.partitions == (("t", 0), ("t", 1))
            assert one_member.topics == ("t",)
            assert classic.holders["t", 1] is one_member
            assert (modern.kind, modern.state, modern.assignor) == ("consumer", "Stable", "uniform")
            assert modern.members[0].partitions == (("t", 0), ("t", 1))
            assert "there is no such group" in str(found["nobody"])
            busy = await delete_groups(client, ["classic", "empty", "nobody"])
            assert [each.code.name for each in busy.values() if isinstance(each, Failed)] == [
                "NON_EMPTY_GROUP",
                "GROUP_ID_NOT_FOUND",
            ]
            kept = await commit_offsets(client, "classic", {("t", 0): 1})
            assert isinstance(kept["t", 0], Failed)


async def test_members_that_speak_nonsense_to_each_other(autojump_clock: MockClock) -> None:
    async with one() as (client, broker), connected(broker) as raw:
        await describe_groups(client, ["odd"])  # makes the internal topic
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01\xff\xff\xff")
        request = JoinGroupRequest(
            group_id="odd", session_timeout_ms=30_000, member_id="", protocol_type="consumer", protocols=[protocol]
        )
        joined = await raw.ask(request, 0)
        while joined.error_code:
            await trio.sleep(0.1)
            joined = await raw.ask(request, 0)
        sync = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\x7f\xff\xff")
        await raw.ask(
            SyncGroupRequest(
                group_id="odd", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[sync]
            ),
            0,
        )
        found = (await describe_groups(client, ["odd"]))["odd"]
        assert isinstance(found, Group)
        assert (found.members[0].partitions, found.members[0].topics) == ((), ())


async def test_lag_in_records_and_seconds(autojump_clock: MockClock) -> None:
    async with one() as (client, broker), connected(broker) as raw:
        await create_topics(client, [NewTopic("t", 3, 1)])
        await sent(client, "a", "b", partition=0)
        await trio.sleep(100)
        first_unread_ms = now_ms()
        await sent(client, "c", partition=0)
        await sent(client, "d", partition=1)
        await trio.sleep(50)
        await commit_offsets(client, "g", {("t", 0): 2, ("t", 1): 1})
        await commit_offsets(client, "h", {("t", 0): 0})
        await join_classic(raw, "j", ["t"], [2])
        found = await lags(client, ["g", "h", "j", "none"])
        group, other, joined = found["g"], found["h"], found["j"]
        assert isinstance(group, GroupLag)
        assert isinstance(other, GroupLag)
        assert isinstance(joined, GroupLag)
        assert [(each.lag, each.lag_s(now_ms())) for each in group.partitions] == [
            (1, pytest.approx((now_ms() - first_unread_ms) / 1000, abs=1)),
            (0, 0.0),
        ]
        assert (group.lag, other.lag) == (1, 3)
        assert other.lag_s(now_ms()) == pytest.approx(150, abs=2)
        (unread,) = joined.partitions
        assert (unread.committed, unread.lag, unread.lag_s(now_ms())) == (None, None, None)
        assert unread.member is not None
        assert "there is no such group" in str(found["none"])
        quick = (await lags(client, ["h"], times=False))["h"]
        assert isinstance(quick, GroupLag)
        assert quick.partitions[0].unread_ms is None


async def test_lag_of_a_group_that_lost_records(autojump_clock: MockClock) -> None:
    from barnabas.server.client.offsets import delete_records

    async with one() as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        await sent(client, *"abcde")
        await commit_offsets(client, "g", {("t", 0): 1})
        await delete_records(client, {("t", 0): 3})
        group = (await lags(client, ["g"]))["g"]
        assert isinstance(group, GroupLag)
        (row,) = group.partitions
        assert (row.lag, row.lost, row.span) == (4, 2, Span(3, 5))
        assert row.unread_ms is not None


async def test_offsets_are_planned_and_set(autojump_clock: MockClock) -> None:
    async with one() as (client, _):
        await create_topics(client, [NewTopic("t", 2, 1)])
        await sent(client, *"abcd", partition=0)
        await trio.sleep(10)
        middle_ms = now_ms()
        await sent(client, *"ef", partition=0)
        await commit_offsets(client, "g", {("t", 0): 3})
        a = ("t", 0)
        for to, after in (
            (To(time_ms=EARLIEST), Reset(3, 0)),
            (To(time_ms=LATEST), Reset(3, 6)),
            (To(time_ms=middle_ms), Reset(3, 4)),
            (To(time_ms=middle_ms + 99_000), Reset(3, 6)),
            (To(offset=2), Reset(3, 2)),
            (To(offset=6), Reset(3, 6)),
            (To(offset=99), Reset(3, 6, Span(0, 6))),
            (To(shift=-2), Reset(3, 1)),
            (To(shift=-9), Reset(3, 0, Span(0, 6))),
        ):
            assert await plan_reset(client, "g", None, to) == {a: after}, to
        plan = await plan_reset(client, "g", [a, ("t", 1), ("t", 5)], To(time_ms=EARLIEST))
        assert not isinstance(plan, Failed)
        assert (plan[a], plan["t", 1]) == (Reset(3, 0), Reset(None, 0))
        assert isinstance(plan["t", 5].after, Failed)
        assert await reset(client, "g", plan) == {a: None, ("t", 1): None}
        start = Committed(0, -1, "")
        assert (await committed_offsets(client, ["g"]))["g"] == {a: start, ("t", 1): start}
        assert await delete_offsets(client, "g", [("t", 1)]) == {("t", 1): None}
        assert (await committed_offsets(client, ["g"]))["g"] == {a: Committed(0, -1, "")}


# -- transactions ------------------------------------------------------------------------------------------------------


async def test_transactions_and_who_has_them(autojump_clock: MockClock) -> None:
    async with one() as (client, broker):
        await create_topics(client, [NewTopic("t", 1, 1)])
        async with transactional(broker, "x") as writer:
            await writer.write("t", b"open")
            listed, failed = await list_transactions(client)
            assert failed == {}
            assert (listed["x"].state, listed["x"].producer_id) == ("Ongoing", writer.producer_id)
            assert (await list_transactions(client, states=["Empty"]))[0] == {}
            described = await describe_transactions(client, ["x", "y"])
            found = described["x"]
            assert not isinstance(found, Failed)
            assert (found.partitions, found.timeout_ms) == ((("t", 0),), 60_000)
            assert "TRANSACTIONAL_ID_NOT_FOUND" in str(described["y"])
            producers = (await describe_producers(client, [("t", 0), ("t", 3)]))["t", 0]
            assert not isinstance(producers, Failed)
            (active,) = producers
            assert (active.producer_id, active.start_offset) == (writer.producer_id, 0)
            assert (await spans(client, [("t", 0)], committed=True))["t", 0] == Span(0, 0)
            assert await abort_transaction(client, ("t", 0), active) is None
            assert (await spans(client, [("t", 0)], committed=True))["t", 0] == Span(0, 2)
