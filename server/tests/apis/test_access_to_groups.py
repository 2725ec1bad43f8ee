"""Groups and transactions of whom not everything is allowed."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.kproto import ZERO_UUID
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from barnabas.server.security.acls.model import (
    PermissionType,
)
from barnabas.server.tests.apis.access_world import (
    C,
    E,
    G,
    Op,
    T,
    X,
    world,
)
from barnabas.server.tests.apis.test_access import cluster, group, on_topic, transaction


async def test_offsets(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (broker, rights, alice, root):
        await root.ask(FindCoordinatorRequest(key="g"), 0)
        await trio.sleep(1)
        commit = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
                    ],
                )
                for name in "ab"
            ],
        )

        def codes_of(answer: Any) -> list[tuple[str, int]]:
            return [(each.name, each.partitions[0].error_code) for each in answer.topics]

        assert codes_of(await alice.ask(commit, 7)) == [("a", G), ("b", G)]
        rights.put(group(Op.READ) + on_topic(Op.READ, name="b"))
        assert codes_of(await alice.ask(commit, 7)) == [("a", T), ("b", 0)]
        await root.ask(commit, 7)

        one = OffsetFetchRequest.OffsetFetchRequestTopic
        named = OffsetFetchRequest(group_id="g", topics=[one(name=name, partition_indexes=[0]) for name in "ab"])
        assert codes_of(await alice.ask(named, 5)) == [("a", T), ("b", 0)]
        assert codes_of(await alice.ask(OffsetFetchRequest(group_id="g", topics=None), 5)) == [("b", 0)]

        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        Topics = OffsetFetchRequest.OffsetFetchRequestTopics
        ids = {broker.services.image.topics[name].topic_id: name for name in "ab"}
        for version in (8, 9, 10):
            topics = [
                Topics(
                    name="" if version == 10 else name,
                    topic_id=topic_id if version == 10 else ZERO_UUID,
                    partition_indexes=[0],
                )
                for topic_id, name in ids.items()
            ]
            request = OffsetFetchRequest(
                groups=[
                    Group(group_id="other", topics=topics),
                    Group(group_id="g", topics=topics),
                    Group(group_id="another", topics=None),
                ]
            )
            other, mine, another = (await alice.ask(request, version)).groups
            assert [(each.group_id, each.error_code) for each in (other, mine, another)] == [
                ("other", G),
                ("g", 0),
                ("another", G),
            ]
            found = {each.name or ids[each.topic_id]: each.partitions[0].error_code for each in mine.topics}
            assert found == {"a": T, "b": 0}
            (mine,) = (await alice.ask(OffsetFetchRequest(groups=[Group(group_id="g", topics=None)]), version)).groups
            assert [each.name or ids[each.topic_id] for each in mine.topics] == ["b"]

        rights.put(group(Op.DELETE))
        delete = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in "ab"
            ],
        )
        assert codes_of(await alice.ask(delete, 0)) == [("a", T), ("b", 0)]


async def test_coordinators(autojump_clock: trio.abc.Clock) -> None:
    async with world() as (_, rights, alice, root):
        await root.ask(FindCoordinatorRequest(key="g"), 0)
        await trio.sleep(1)
        rights.put(group(Op.DESCRIBE))
        answer = await alice.ask(FindCoordinatorRequest(coordinator_keys=["x", "g", "y"]), 4)
        assert [(each.key, each.error_code) for each in answer.coordinators] == [("x", G), ("g", 0), ("y", G)]
        assert (await alice.ask(FindCoordinatorRequest(key="x", key_type=1), 3)).error_code == X
        assert (await alice.ask(FindCoordinatorRequest(key="x", key_type=0), 3)).error_code == G


async def test_a_member_of_a_new_group_with_one_forbidden_name_gets_nothing(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, root):
        await root.ask(FindCoordinatorRequest(key="g"), 0)
        await trio.sleep(1)
        rights.put(group(Op.READ) + on_topic(Op.DESCRIBE, name="a"))

        def heartbeat(*names: str) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=list(names),
                topic_partitions=[],
            )

        assert (await alice.ask(heartbeat("a", "b"), 1)).error_code == T
        assert (await alice.ask(heartbeat("a"), 1)).error_code == 0


async def test_an_expression_matches_what_the_member_may_describe(autojump_clock: trio.abc.Clock) -> None:
    async with world("ab", "ac", "ad") as (broker, rights, alice, root):
        await root.ask(FindCoordinatorRequest(key="g"), 0)
        await trio.sleep(1)
        rights.put(group(Op.READ) + on_topic(Op.READ, name="ab") + on_topic(Op.DESCRIBE, name="ad"))
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="a.*",
            topic_partitions=[],
        )
        names = {broker.services.image.topics[name].topic_id: name for name in ("ab", "ac", "ad")}
        answer = await alice.ask(heartbeat, 1)
        assert answer.error_code == 0
        heartbeat.member_epoch = answer.member_epoch
        heartbeat.subscribed_topic_regex = heartbeat.topic_partitions = None
        for _ in range(20):
            await trio.sleep(1)
            answer = await alice.ask(heartbeat, 1)
            heartbeat.member_epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
        assert answer.assignment is not None
        assert {names[each.topic_id] for each in answer.assignment.topic_partitions} == {"ab", "ad"}


async def test_idempotent_producers_may_write_to_any_topic(autojump_clock: trio.abc.Clock) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    async with world() as (_, rights, alice, _):
        denied = await alice.ask(request, 4)
        assert (denied.error_code, denied.producer_id, denied.producer_epoch) == (C, -1, -1)
        rights.put(on_topic(Op.READ, name="a"))
        assert (await alice.ask(request, 4)).error_code == C
        rights.put(on_topic(Op.WRITE, name="a"), prefix=True)
        assert (await alice.ask(request, 4)).error_code == 0
        rights.put(on_topic(Op.WRITE, name="*"), PermissionType.DENY)
        assert (await alice.ask(request, 4)).error_code == C
        rights.put(cluster(Op.IDEMPOTENT_WRITE))
        assert (await alice.ask(request, 4)).error_code == 0


async def test_one_denied_topic_and_nothing_comes_into_the_transaction(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, root):
        rights.put(transaction(Op.WRITE) + on_topic(Op.WRITE, name="a"))
        await root.ask(FindCoordinatorRequest(key="x", key_type=1), 1)
        await trio.sleep(1)
        made = await alice.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 0)
        assert made.error_code == 0

        async def add(*names: str) -> list[tuple[str, int]]:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names
                ],
            )
            answer = await alice.ask(request, 3)
            return [
                (each.name, each.results_by_partition[0].partition_error_code)
                for each in answer.results_by_topic_v3_and_below
            ]

        assert await add("a", "b") == [("a", E.OPERATION_NOT_ATTEMPTED), ("b", T)]
        assert await add("a", "__consumer_offsets") == [("a", E.OPERATION_NOT_ATTEMPTED), ("__consumer_offsets", T)]
        assert await add("a") == [("a", 0)]
