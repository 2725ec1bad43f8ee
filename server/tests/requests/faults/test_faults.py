"""Faults on a broker, over the wire: what fails and what does not, what closes, what waits, and that all is as before
when they are over.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
from barnabas.server.requests.faults import injector
from barnabas.server.requests.faults.rules import KIT_CLIENT_ID, Act
from barnabas.server.testing import connected
from barnabas.server.tests.apis.groups.test_group_apis import Asker
from barnabas.server.tests.requests.faults.kit import World, failing_broker

E = ErrorCode
ALL = [("t", 0), ("t", 1), ("u", 0), ("u", 1)]


def errors(answers: dict[tuple[str, int], Any]) -> dict[tuple[str, int], ErrorCode]:
    return {place: ErrorCode(answer.error_code) for place, answer in answers.items()}


async def end_offset(world: World, name: str, index: int) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])
    answer = await world.client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5, client_id=KIT_CLIENT_ID)
    return int(answer.topics[0].partitions[0].offset)


# -- Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_fails_where_it_is_said_and_nowhere_else(
    version: int, acks: int, autojump_clock: trio.abc.Clock
) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, topic="t", partition=1, times=1)
        answers = await world.produce(*ALL, version=version, acks=acks)
        assert errors(answers) == dict.fromkeys(ALL, E.NONE) | {("t", 1): E.NOT_LEADER_OR_FOLLOWER}
        assert [await end_offset(world, *place) for place in ALL] == [1, 0, 1, 1]
        assert answers["t", 1].base_offset == -1
        again = await world.produce(*ALL, version=version, acks=acks)
        assert errors(again) == dict.fromkeys(ALL, E.NONE)
        assert [again[place].base_offset for place in ALL] == [1, 0, 1, 1]


async def test_nothing_of_a_produce_that_fails_is_written(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        rule = world.fails(ApiKey.PRODUCE, E.KAFKA_STORAGE_ERROR)
        assert set(errors(await world.produce(*ALL)).values()) == {E.KAFKA_STORAGE_ERROR}
        assert [await end_offset(world, *place) for place in ALL] == [0, 0, 0, 0]
        assert rule.hits == 1


async def test_two_errors_in_one_produce(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, topic="t", partition=1)
        world.fails(ApiKey.PRODUCE, E.MESSAGE_TOO_LARGE, topic="u")
        assert errors(await world.produce(*ALL)) == {
            ("t", 0): E.NONE,
            ("t", 1): E.NOT_LEADER_OR_FOLLOWER,
            ("u", 0): E.MESSAGE_TOO_LARGE,
            ("u", 1): E.MESSAGE_TOO_LARGE,
        }


async def test_without_acks_an_error_closes_and_the_rest_is_written(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, topic="t", times=2)
        for places in (ALL, ALL[:2]):
            async with connected(world.broker) as client:
                await client.send(world.produce_request(*places, acks=0), 9)
                with pytest.raises(EOFError):
                    await client.receive_frame()
        assert [await end_offset(world, *place) for place in ALL] == [0, 0, 1, 1]


async def test_pipelined_requests_keep_their_order(autojump_clock: trio.abc.Clock) -> None:
    """Also when one in the middle waits, and one fails."""
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, E.NOT_ENOUGH_REPLICAS, topic="t", nth=20, times=1)
        world.fails(ApiKey.PRODUCE, topic="t", nth=10, times=1, delay_ms=5000)
        one = world.produce_request(("t", 0), acks=-1)
        for _ in range(30):
            await world.client.send(one, 9)
        found = []
        for _ in range(30):
            (answer,) = world.places(await world.client.receive(one, 9)).values()
            found.append((ErrorCode(answer.error_code), answer.base_offset))
        assert found == [
            *((E.NONE, offset) for offset in range(19)),
            (E.NOT_ENOUGH_REPLICAS, -1),
            *((E.NONE, offset) for offset in range(19, 29)),
        ]
        assert 5 <= trio.current_time() < 6


async def test_other_connections_do_not_wait(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world, connected(world.broker) as other:
        world.fails(ApiKey.PRODUCE, client_id="slow", delay_ms=60_000)
        one = world.produce_request(("t", 0))
        await world.client.send(one, 9, client_id="slow")
        await other.ask(one, 9)
        assert trio.current_time() < 1
        (answer,) = world.places(await world.client.receive(one, 9)).values()
        assert (answer.base_offset, round(trio.current_time())) == (1, 60)


async def test_fast_paths_are_left_and_taken_again(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        one = world.produce_request(("t", 0))
        for _ in range(5):
            await world.client.ask(one, 9)
        (connection,) = world.broker.parts.faults._connections  # type: ignore[union-attr]
        assert connection.fast_paths
        world.fails(ApiKey.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, times=1)
        assert not connection.fast_paths
        assert errors(await world.produce(("t", 0))) == {("t", 0): E.NOT_LEADER_OR_FOLLOWER}
        for offset in range(5, 10):
            assert (await world.produce(("t", 0)))["t", 0].base_offset == offset
        assert connection.fast_paths


# -- Fetch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(19))
async def test_fetch_fails_where_it_is_said_and_at_once(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        await world.produce(*ALL)
        world.fails(ApiKey.FETCH, E.NOT_LEADER_OR_FOLLOWER, topic="t", partition=0, times=1)
        began = trio.current_time()
        found = world.fetched(await world.fetch(*ALL, version=version, max_wait_ms=10_000))
        assert found[("t", 0)] == (E.NOT_LEADER_OR_FOLLOWER, 0)
        assert all(code is E.NONE and size > 0 for place, (code, size) in found.items() if place != ("t", 0))
        assert len(found) == 4
        # Of nothing but the partition that fails it does not wait either.
        world.fails(ApiKey.FETCH, E.OFFSET_OUT_OF_RANGE, topic="t", times=1)
        found = world.fetched(await world.fetch(("t", 1), version=version, max_wait_ms=10_000))
        assert found == {("t", 1): (E.OFFSET_OUT_OF_RANGE, 0)}
        assert trio.current_time() - began < 1
        found = world.fetched(await world.fetch(*ALL, version=version))
        assert {code for code, _ in found.values()} == {E.NONE}


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_a_partition_of_a_session_fails_though_the_request_does_not_name_it(
    version: int, autojump_clock: trio.abc.Clock
) -> None:
    async with failing_broker() as world:
        await world.produce(*ALL)
        opened = await world.fetch(*ALL, version=version, session=(0, 0))
        assert len(world.fetched(opened)) == 4
        session = opened.session_id
        world.fails(ApiKey.FETCH, E.UNKNOWN_LEADER_EPOCH, topic="u", partition=1, times=1)
        failed = await world.fetch(version=version, session=(session, 1), max_wait_ms=10_000)
        assert world.fetched(failed)[("u", 1)] == (E.UNKNOWN_LEADER_EPOCH, 0)
        assert failed.session_id == session
        # Read again when it is over, with its offsets, also if there is no other news of it.
        after = world.fetched(await world.fetch(version=version, session=(session, 2)))
        assert after[("u", 1)][0] is E.NONE


async def test_an_error_of_the_session_is_that_of_the_whole_answer(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.FETCH, E.FETCH_SESSION_ID_NOT_FOUND, topic="t")
        answer = await world.fetch(("t", 0), version=12)
        assert (answer.error_code, answer.responses) == (E.FETCH_SESSION_ID_NOT_FOUND, [])


# -- Metadata --------------------------------------------------------------------------------------------------------


async def metadata(world: World, *names: str, version: int = 9) -> dict[str, Any]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] if names else None
    creates = {"allow_auto_topic_creation": False} if version >= 4 else {}
    answer = await world.client.ask(MetadataRequest(topics=topics, **creates), version)
    return {topic.name: topic for topic in answer.topics}


@pytest.mark.parametrize("version", range(1, 14))
@pytest.mark.parametrize("names", [(), ("t", "u")])
async def test_metadata_fails_at_the_topic_or_in_partitions(
    version: int, names: tuple[str, ...], autojump_clock: trio.abc.Clock
) -> None:
    async with failing_broker() as world:
        before = await metadata(world, *names, version=version)
        world.fails(ApiKey.METADATA, E.TOPIC_AUTHORIZATION_FAILED, topic="t", times=1)
        failed = await metadata(world, *names, version=version)
        assert (failed["t"].error_code, failed["t"].partitions) == (E.TOPIC_AUTHORIZATION_FAILED, [])
        assert failed["u"] == before["u"]
        world.fails(ApiKey.METADATA, E.LEADER_NOT_AVAILABLE, topic="t", partition=1, times=1)
        failed = await metadata(world, *names, version=version)
        assert failed["t"].error_code == 0
        found = {each.partition_index: (each.error_code, each.leader_id) for each in failed["t"].partitions}
        broker_id = world.broker.config.broker_id
        assert found == {0: (0, broker_id), 1: (E.LEADER_NOT_AVAILABLE, -1)}
        assert await metadata(world, *names, version=version) == before


async def test_stale_metadata(autojump_clock: trio.abc.Clock) -> None:
    """As it was when the fault began: of everything, or of one topic."""
    async with failing_broker() as world:
        asker = Asker(world.broker, world.client)
        everything = world.fails(ApiKey.METADATA, act=Act.STALE)
        await asker.topic("new")
        assert (await metadata(world, "new"))["new"].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert set(await metadata(world)) == {"t", "u"}
        world.broker.faults.remove(everything.number)
        assert set(await metadata(world)) == {"t", "u", "new"}
        world.fails(ApiKey.METADATA, act=Act.STALE, topic="t")
        await world.client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000), 6
        )
        await asker.topic("newer")
        found = await metadata(world, "t", "newer")
        assert len(found["t"].partitions) == 2
        assert len(found["newer"].partitions) == 2
        world.broker.faults.clear()
        assert (await metadata(world, "t"))["t"].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


# -- groups, transactions, administration ----------------------------------------------------------------------------


async def test_the_coordinator_of_one_group_has_moved(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        asker = Asker(world.broker, world.client)
        await asker.coordinator()
        member = await asker.member()
        for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.HEARTBEAT):
            world.fails(api, E.NOT_COORDINATOR, group="g")
        assert await asker.commit({0: 5, 1: 6}, member_id=member, generation=1) == [E.NOT_COORDINATOR] * 2
        assert await asker.commit({0: 5}, group="other") == [E.NONE]
        described = await asker.ask(DescribeGroupsRequest(groups=["g", "other"]), 5)
        assert {each.group_id: each.error_code for each in described.groups} == {"g": E.NOT_COORDINATOR, "other": 0}
        world.broker.faults.clear()
        assert await asker.commit({0: 5, 1: 6}, member_id=member, generation=1) == [E.NONE] * 2


@pytest.mark.parametrize("version", range(1, 10))
async def test_offset_fetch_fails_for_groups_and_in_partitions(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        asker = Asker(world.broker, world.client)
        await asker.coordinator()
        assert await asker.commit({0: 5, 1: 6}, group="g") == [E.NONE] * 2

        def request() -> OffsetFetchRequest:
            if version < 8:
                topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
                return OffsetFetchRequest(group_id="g", topics=[topic])
            topics = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topics])
            return OffsetFetchRequest(groups=[group])

        async def fetched() -> tuple[int, list[tuple[int, int]]]:
            answer = await asker.ask(request(), version)
            group = answer.groups[0] if version >= 8 else answer
            rows = [(each.error_code, each.committed_offset) for topic in group.topics for each in topic.partitions]
            return group.error_code if version >= 2 else 0, rows

        world.fails(ApiKey.OFFSET_FETCH, E.NOT_COORDINATOR, group="g", times=1)
        at_partitions = [(E.NOT_COORDINATOR, -1)] * 2 if version < 2 else []
        assert await fetched() == (E.NOT_COORDINATOR if version >= 2 else 0, at_partitions)
        world.fails(ApiKey.OFFSET_FETCH, E.UNSTABLE_OFFSET_COMMIT, topic="t", partition=1, times=1)
        assert await fetched() == (0, [(0, 5), (E.UNSTABLE_OFFSET_COMMIT, -1)])
        assert await fetched() == (0, [(0, 5), (0, 6)])


async def test_one_of_several_entries(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.CREATE_TOPICS, E.POLICY_VIOLATION, topic="b")
        new = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "abc"]
        created = await world.client.ask(CreateTopicsRequest(topics=new, timeout_ms=1000), 7)
        assert {each.name: each.error_code for each in created.topics} == {"a": 0, "b": E.POLICY_VIOLATION, "c": 0}
        assert set(world.broker.services.image.topics) >= {"a", "c"}
        assert "b" not in world.broker.services.image.topics
        world.fails(ApiKey.FIND_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, group="y")
        await Asker(world.broker, world.client).coordinator(group="x")
        answer = await world.client.ask(FindCoordinatorRequest(coordinator_keys=["x", "y"]), 4)
        assert {each.key: each.error_code for each in answer.coordinators} == {"x": 0, "y": E.COORDINATOR_NOT_AVAILABLE}
        world.fails(ApiKey.FIND_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, transactional_id="x")
        old = await world.client.ask(FindCoordinatorRequest(key="x", key_type=1), 3)
        assert old.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await world.client.ask(FindCoordinatorRequest(key="x", key_type=0), 3)).error_code == 0


async def test_partitions_of_a_transaction_are_added_together_or_not_at_all(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.ADD_PARTITIONS_TO_TXN, E.CONCURRENT_TRANSACTIONS, topic="u")
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", "u")]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        answer = await world.client.ask(request, 3)
        found = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        assert found == {"t": E.OPERATION_NOT_ATTEMPTED, "u": E.CONCURRENT_TRANSACTIONS}


# -- connections -----------------------------------------------------------------------------------------------------


async def test_dropped_requests_are_not_handled_and_dropped_answers_are(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        for act, written in ((Act.DROP, 0), (Act.DROP_ANSWER, 1)):
            world.fails(ApiKey.PRODUCE, act=act, topic="t", times=1)
            async with connected(world.broker) as client:
                await client.send(world.produce_request(("t", 0), acks=-1), 9)
                with pytest.raises(EOFError):
                    await client.receive_frame()
            assert await end_offset(world, "t", 0) == written


async def test_answers_before_a_drop_arrive_and_nothing_behind_it_is_handled(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, act=Act.DROP, nth=4, times=1)
        one = world.produce_request(("t", 0), acks=-1)
        async with connected(world.broker) as client:
            for _ in range(6):
                await client.send(one, 9)
            for offset in range(3):
                (answer,) = world.places(await client.receive(one, 9)).values()
                assert answer.base_offset == offset
            with pytest.raises(EOFError):
                await client.receive_frame()
        assert await end_offset(world, "t", 0) == 3


@pytest.mark.parametrize("acks", [1, -1])
async def test_half_an_answer(acks: int, autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        one = world.produce_request(("t", 0), acks=acks)
        await world.client.send(one, 9)
        whole = len(await world.client.receive_frame()) + 4
        world.fails(ApiKey.PRODUCE, act=Act.HALF, times=1)
        async with connected(world.broker) as client:
            await client.send(one, 9)
            found = b""
            while data := await client.stream.receive_some(1 << 16):
                found += data
        assert len(found) == whole // 2
        assert int.from_bytes(found[:4], "big") == whole - 4
        assert await end_offset(world, "t", 0) == 2


async def test_half_of_records(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        await world.produce(*ALL)
        world.fails(ApiKey.FETCH, act=Act.HALF)
        with pytest.raises(EOFError):
            await world.fetch(*ALL)


async def test_a_silent_produce_ends_the_connection_when_its_answer_would_be_lost(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, act=Act.HALF)
        async with connected(world.broker) as client:
            await client.send(world.produce_request(("t", 0), acks=0), 9)
            with pytest.raises(EOFError):
                await client.receive_frame()
        assert await end_offset(world, "t", 0) == 1


async def test_a_client_that_leaves_during_a_delay(autojump_clock: trio.abc.Clock) -> None:
    """What it asked for is done all the same, as by a slow broker."""
    async with failing_broker() as world:
        world.fails(ApiKey.PRODUCE, delay_ms=1000)
        async with connected(world.broker) as client:
            await client.send(world.produce_request(("t", 0)), 9)
            await trio.sleep(0.1)
        await trio.sleep(2)
        assert await end_offset(world, "t", 0) == 1


# -- all of it -------------------------------------------------------------------------------------------------------


async def test_everything_can_fail_but_what_the_kit_asks(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(None, E.REQUEST_TIMED_OUT)
        assert (await world.client.ask(ApiVersionsRequest(), 0)).error_code == E.REQUEST_TIMED_OUT
        assert set(errors(await world.produce(*ALL)).values()) == {E.REQUEST_TIMED_OUT}
        assert await end_offset(world, "t", 0) == 0
        kits = await world.client.ask(ApiVersionsRequest(), 0, client_id=KIT_CLIENT_ID)
        assert kits.error_code == 0


async def test_with_access_control(autojump_clock: trio.abc.Clock) -> None:
    """Denials and faults of one request stand in one answer."""
    async with failing_broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
    ) as world:
        world.fails(ApiKey.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, topic="t", partition=1)
        answers = errors(await world.produce(*ALL))
        assert answers == dict.fromkeys(ALL, E.NONE) | {("t", 1): E.NOT_LEADER_OR_FOLLOWER}


async def test_a_bug_in_a_fault_costs_one_connection(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord]
) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(injector, "_placed", broken)
    async with failing_broker() as world, connected(world.broker) as other:
        world.fails(ApiKey.PRODUCE, E.REQUEST_TIMED_OUT, topic="t", times=1)
        with pytest.raises(EOFError):
            await world.produce(("t", 0))
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0
    (record,) = trouble
    assert record.getMessage().startswith("a fault of PRODUCE v9 of client 'test' at 127.0.0.1 failed: ")
    trouble.clear()


async def test_garbage_is_no_concern_of_faults(autojump_clock: trio.abc.Clock) -> None:
    async with failing_broker() as world:
        world.fails(None, E.REQUEST_TIMED_OUT)
        for frame in (b"\0\0", b"\x7f\xff\0\0\0\0\0\1\xff\xff", b"\0\0\0\x09\0\0\0\1\xff\xff\0broken"):
            async with connected(world.broker) as client:
                await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
                with pytest.raises(EOFError):
                    await client.receive_frame()
