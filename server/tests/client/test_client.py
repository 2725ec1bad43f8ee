"""`Client` under virtual time: against fakes that move leaders, hang, lie and die, and against brokers of ours."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DeleteTopicsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListGroupsResponse,
    ListOffsetsResponse,
    MetadataRequest,
)
from barnabas.replication import Endpoint
from barnabas.server.client import connections
from barnabas.server.client.client import GROUP, Client, open_client, raise_failed
from barnabas.server.client.failures import Failed, Refused, Unanswered, Unreachable, Unsupported
from barnabas.server.client.groups.groups import delete_groups, describe_groups
from barnabas.server.client.offsets import LATEST, NEWEST_TIME, Offset, list_offsets
from barnabas.server.client.topics import NewTopic, create_topics, delete_topics
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.client.rig import Exchange, Fakes, faked

Places = dict[tuple[str, int], int]


def offsets_answer(exchange: Exchange, code: int = 0, offset: int = 42) -> bytes:
    return exchange.framed(
        ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponse.ListOffsetsPartitionResponse(
                            partition_index=row.partition_index,
                            error_code=code,
                            offset=-1 if code else offset + row.partition_index,
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in exchange.message.topics
            ]
        )
    )


async def well(number: int, exchange: Exchange) -> bytes | None:
    return offsets_answer(exchange)


async def ask(client: Client, *partitions: tuple[str, int]) -> dict[tuple[str, int], Any]:
    return await list_offsets(client, dict.fromkeys(partitions, LATEST))


# -- splitting, moving leaders -----------------------------------------------------------------------------------------


async def test_a_request_is_split_by_leader_and_its_answers_put_together(autojump_clock: MockClock) -> None:
    leaders = {("a", 0): 1, ("a", 1): 2, ("b", 0): 2}
    async with faked(3, leaders, well) as (client, fakes):
        found = await ask(client, *leaders)
        assert {place: each.offset for place, each in found.items()} == {("a", 0): 42, ("a", 1): 43, ("b", 0): 42}
        asked = sorted(number for number, key in fakes.seen if key is ApiKey.LIST_OFFSETS)
        assert asked == [1, 2]
        assert [key for _, key in fakes.seen].count(ApiKey.METADATA) == 1


async def test_a_leader_that_has_moved_is_found(autojump_clock: MockClock) -> None:
    moved = False

    async def answer(number: int, exchange: Exchange) -> bytes | None:
        nonlocal moved
        if number == 1 and exchange.key is ApiKey.LIST_OFFSETS:
            moved = True
            fakes.leaders["a", 0] = 2
            return offsets_answer(exchange, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return offsets_answer(exchange)

    async with faked(2, {("a", 0): 1, ("b", 0): 2}, answer) as (client, fakes):
        found = await ask(client, ("a", 0), ("b", 0))
        assert moved
        assert found["a", 0].offset == 42
        assert trio.current_time() < 1


async def test_a_partition_without_a_leader_costs_others_nothing_and_itself_the_time(autojump_clock: MockClock) -> None:
    async with faked(1, {("a", 0): 1, ("b", 0): -1}, well, timeout_s=4) as (client, _):
        began = trio.current_time()
        found = await ask(client, ("a", 0), ("b", 0))
        assert found["a", 0].offset == 42
        assert found["b", 0].code == ErrorCode.LEADER_NOT_AVAILABLE
        assert 3 < trio.current_time() - began <= 4


async def test_what_does_not_exist_is_said_at_once(autojump_clock: MockClock) -> None:
    async with faked(1, {("a", 0): 1}, well) as (client, fakes):
        fakes.missing.add("gone")
        began = trio.current_time()
        found = await ask(client, ("a", 9), ("gone", 0))
        assert {each.code for each in found.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert "topic a has 1 partitions" in str(found["a", 9])
        assert trio.current_time() == began


async def test_a_dead_leader_is_waited_for_and_its_successor_asked(autojump_clock: MockClock) -> None:
    async with faked(2, {("a", 0): 1}, well) as (client, fakes):
        assert (await ask(client, ("a", 0)))["a", 0].offset == 42
        fakes.down.add(1)

        async def elect() -> None:
            await trio.sleep(2)
            fakes.leaders["a", 0] = 2

        fakes.nursery.start_soon(elect)
        assert (await ask(client, ("a", 0)))["a", 0].offset == 42
        assert trio.current_time() < 5


async def test_a_leader_that_is_never_reached_is_named_with_its_address(autojump_clock: MockClock) -> None:
    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        if endpoint.port == 2:
            raise ConnectionRefusedError(111, "connection refused")
        return await fakes(endpoint)

    async with trio.open_nursery() as nursery:
        fakes = Fakes(nursery, 2, {("a", 0): 2}, well)
        async with open_client(["fake:1"], connect=connect, timeout_s=3) as client:
            found = await ask(client, ("a", 0))
            failed = found["a", 0]
            assert isinstance(failed, Failed)
            assert "cannot connect to fake:2: connection refused" in str(failed)
            assert "broker 2 by its advertised.listeners" in str(failed)
            with pytest.raises(Unreachable, match=r"partition a-0: cannot connect"):
                raise_failed("partition a-0", failed)
        nursery.cancel_scope.cancel()


async def test_an_answer_that_leaves_items_out(autojump_clock: MockClock) -> None:
    async def nothing(number: int, exchange: Exchange) -> bytes | None:
        return exchange.framed(ListOffsetsResponse(topics=[]))

    async with faked(1, {("a", 0): 1}, nothing) as (client, _):
        assert "leaves it out" in str((await ask(client, ("a", 0)))["a", 0])


# -- the first contact, and any broker ---------------------------------------------------------------------------------


async def test_nobody_there_is_said_at_once(autojump_clock: MockClock) -> None:
    async with faked(2, {}, well) as (client, fakes):
        fakes.down |= {1, 2}
        with pytest.raises(Unreachable, match=r"^cannot connect to fake:2: connection refused \(`barnabas serve` "):
            await client.refresh()
        assert trio.current_time() == 0


async def test_the_second_address_is_asked_when_the_first_is_dead(autojump_clock: MockClock) -> None:
    async with faked(2, {}, well) as (client, fakes):
        fakes.down.add(1)
        assert list((await client.refresh()).brokers) == [2]


async def test_a_broker_that_hangs_leaves_time_for_another(autojump_clock: MockClock) -> None:
    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        if endpoint.port == 1:
            await trio.sleep_forever()
        return await fakes(endpoint)

    async with trio.open_nursery() as nursery:
        fakes = Fakes(nursery, 2, {}, well)
        async with open_client(["fake:1", "fake:2"], connect=connect, timeout_s=8) as client:
            assert (await client.refresh()).controller_id == 1
            assert trio.current_time() == 4
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("text", ["", "h:x", "h:99999"])
async def test_addresses_that_cannot_be_one(autojump_clock: MockClock, text: str) -> None:
    with pytest.raises(Unreachable, match=re.escape(f"{text!r} is not HOST:PORT")):
        async with open_client([text]):
            raise AssertionError


async def test_any_broker_is_asked_again_when_known_ones_are_away_for_a_moment(autojump_clock: MockClock) -> None:
    async with faked(1, {}, well) as (client, fakes):
        await client.refresh([])
        fakes.down.add(1)

        async def come_back() -> None:
            await trio.sleep(3)
            fakes.down.clear()

        fakes.nursery.start_soon(come_back)
        await client._pool.keep_only([])
        assert (await client.refresh([])).brokers
        assert 3 <= trio.current_time() < 5


async def test_a_client_that_was_closed_does_not_come_back(autojump_clock: MockClock) -> None:
    async with faked(1, {}, well) as (client, fakes):
        await client.refresh([])
        await client.aclose()
        seen = len(fakes.seen)
        with pytest.raises(Unreachable, match="were closed"):
            await client.refresh([])
        with pytest.raises(Unreachable, match="were closed"):
            await delete_topics(client, ["a"])
        assert (len(fakes.seen), trio.current_time()) == (seen, 0)


# -- the controller and coordinators -----------------------------------------------------------------------------------


async def test_a_change_goes_to_the_controller_that_is_one_now(autojump_clock: MockClock) -> None:
    async def answer(number: int, exchange: Exchange) -> bytes | None:
        assert exchange.key is ApiKey.DELETE_TOPICS
        code = 0 if number == 2 else ErrorCode.NOT_CONTROLLER
        fakes.controller = 2
        row = DeleteTopicsResponse.DeletableTopicResult(name="a", error_code=code)
        return exchange.framed(DeleteTopicsResponse(responses=[row]))

    async with faked(2, {("a", 0): 1}, answer) as (client, fakes):
        assert await delete_topics(client, ["a"]) == {"a": None}
        asked = [number for number, key in fakes.seen if key is ApiKey.DELETE_TOPICS]
        assert asked == [1, 2]


async def test_a_change_is_not_made_twice(autojump_clock: MockClock) -> None:
    async def hang_up(number: int, exchange: Exchange) -> bytes | None:
        return None

    async with faked(1, {}, hang_up) as (client, fakes):
        failed = (await create_topics(client, [NewTopic("a", 1, 1)]))["a"]
        assert "whether it was done is not known" in str(failed)
        assert [key for _, key in fakes.seen].count(ApiKey.CREATE_TOPICS) == 1
        with pytest.raises(Unanswered):
            raise_failed("topic a", failed, sent=True)


async def test_a_coordinator_that_moves_is_found_again(autojump_clock: MockClock) -> None:
    coordinator = 1

    async def answer(number: int, exchange: Exchange) -> bytes | None:
        nonlocal coordinator
        if exchange.key is ApiKey.FIND_COORDINATOR:
            rows = [
                FindCoordinatorResponse.Coordinator(key=name, node_id=coordinator, host="fake", port=coordinator)
                for name in exchange.message.coordinator_keys
            ]
            return exchange.framed(FindCoordinatorResponse(coordinators=rows))
        code = ErrorCode.NOT_COORDINATOR if number == 1 else 0
        coordinator = 2
        rows = [
            DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=code)
            for name in exchange.message.groups_names
        ]
        return exchange.framed(DeleteGroupsResponse(results=rows))

    async with faked(2, {}, answer) as (client, _):
        assert await delete_groups(client, ["g", "h"]) == {"g": None, "h": None}
        assert client.coordinator_of(GROUP, "g") == 2


async def test_a_group_that_may_not_be_seen_and_one_without_a_coordinator(
    autojump_clock: MockClock,
) -> None:
    async def answer(number: int, exchange: Exchange) -> bytes | None:
        codes = {"secret": ErrorCode.GROUP_AUTHORIZATION_FAILED, "lost": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        rows = [
            FindCoordinatorResponse.Coordinator(key=name, node_id=-1, error_code=codes[name])
            for name in exchange.message.coordinator_keys
        ]
        return exchange.framed(FindCoordinatorResponse(coordinators=rows))

    async with faked(1, {}, answer, timeout_s=3) as (client, _):
        found = await delete_groups(client, ["secret"])
        assert trio.current_time() == 0
        assert isinstance(found["secret"], Failed)
        assert found["secret"].code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        found = await delete_groups(client, ["lost"])
        assert 2 < trio.current_time() <= 3
        assert isinstance(found["lost"], Failed)


async def test_groups_of_kinds_that_are_not_described(autojump_clock: MockClock) -> None:
    async def answer(number: int, exchange: Exchange) -> bytes | None:
        request = exchange.message
        if exchange.key is ApiKey.FIND_COORDINATOR:
            rows = [
                FindCoordinatorResponse.Coordinator(key=name, node_id=1, host="fake", port=1)
                for name in request.coordinator_keys
            ]
            return exchange.framed(FindCoordinatorResponse(coordinators=rows))
        if exchange.key is ApiKey.LIST_GROUPS:
            listed = ListGroupsResponse.ListedGroup(group_id="s", protocol_type="flock", group_type="flock")
            return exchange.framed(ListGroupsResponse(groups=[listed]))
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        if exchange.key is ApiKey.CONSUMER_GROUP_DESCRIBE:
            modern = [
                ConsumerGroupDescribeResponse.DescribedGroup(group_id=name, error_code=missing)
                for name in request.group_ids
            ]
            return exchange.framed(ConsumerGroupDescribeResponse(groups=modern))
        classic = [DescribeGroupsResponse.DescribedGroup(group_id=name, error_code=missing) for name in request.groups]
        return exchange.framed(DescribeGroupsResponse(groups=classic))

    async with faked(1, {}, answer) as (client, _):
        found = await describe_groups(client, ["s", "none"])
        assert "it is a group of the kind flock, which is not described here" in str(found["s"])
        assert "there is no such group" in str(found["none"])


# -- hostile and broken peers ------------------------------------------------------------------------------------------


def junk(head: bytes) -> Any:
    """ASKD stands for the correlation id that was asked for."""

    async def answer(number: int, exchange: Exchange) -> bytes | None:
        return head.replace(b"ASKD", exchange.correlation_id.to_bytes(4, "big"))

    return answer


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x7f\xff\xff\xffASKD", "frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xffASKD", "frame of -1 bytes"),
        (b"\0\0\0\1ASKD", "frame of 1 bytes"),
        (b"\0\0\0\x08\0\0\0\x63aaaa", "answer to request 99"),
        (b"\0\0\0\x05ASKD\xff", "header ends within"),
        (b"\0\0\0\x09ASKD\0\0\0\0\xff", "unreadable answer"),
        (b"\0\0\0\x04ASKD" + b"extra", "bytes more than the answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is HTTP"),
    ],
)
async def test_answers_that_are_none(autojump_clock: MockClock, sent: bytes, said: str) -> None:
    """Each costs its connection, is tried again, and is said when the time is over. Nothing is kept for a length."""
    async with faked(1, {("a", 0): 1}, junk(sent), timeout_s=2) as (client, _):
        failed = (await ask(client, ("a", 0)))["a", 0]
        assert isinstance(failed, Failed)
        assert said in str(failed), str(failed)
        assert trio.current_time() <= 2


async def test_an_answer_of_nothing_but_elements(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements take a hundred times more in memory than on the wire: they are counted before they are made."""
    monkeypatch.setattr(connections, "ANSWER_ELEMENTS_MAX", 1000)

    async def many(number: int, exchange: Exchange) -> bytes | None:
        row = ListOffsetsResponse.ListOffsetsPartitionResponse()
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="a", partitions=[row] * 2000)
        return exchange.framed(ListOffsetsResponse(topics=[topic]))

    async with faked(1, {("a", 0): 1}, many, timeout_s=2) as (client, _):
        assert "more elements than are allowed" in str((await ask(client, ("a", 0)))["a", 0])


async def test_an_answer_drop_by_drop_ends_with_the_time(autojump_clock: MockClock) -> None:
    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        stream = await fakes(endpoint)
        return Dripping(stream)

    async with trio.open_nursery() as nursery:
        fakes = Fakes(nursery, 1, {("a", 0): 1}, well)
        async with open_client(["fake:1"], connect=connect, timeout_s=6) as client:
            with pytest.raises(Unreachable, match=r"no answer to API_VERSIONS within 3 s"):
                await client.refresh()
            assert trio.current_time() == 3
        nursery.cancel_scope.cancel()


class Dripping(trio.abc.Stream):
    """A byte a second."""

    def __init__(self, below: trio.abc.Stream) -> None:
        self.below = below

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.below.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.below.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        await trio.sleep(1)
        return await self.below.receive_some(1)

    async def aclose(self) -> None:
        await self.below.aclose()


async def test_a_cancelled_request_closes_its_connection_and_the_next_one_works(autojump_clock: MockClock) -> None:
    slow = True

    async def answer(number: int, exchange: Exchange) -> bytes | None:
        if slow:
            await trio.sleep(1)
        return offsets_answer(exchange, offset=1 if slow else 2)

    async with faked(1, {("a", 0): 1}, answer) as (client, _):
        with trio.move_on_after(0.5):
            await ask(client, ("a", 0))
        slow = False
        assert (await ask(client, ("a", 0)))["a", 0] == Offset(2)


async def test_an_idle_connection_is_opened_anew(autojump_clock: MockClock) -> None:
    async with faked(1, {("a", 0): 1}, well) as (client, _):
        await ask(client, ("a", 0))
        (kept,) = [kept for (place, _), kept in client._pool._open.items() if place.port == 1]
        before = kept.connection._stream
        await ask(client, ("a", 0))
        assert kept.connection._stream is before
        await trio.sleep(300)
        await ask(client, ("a", 0))
        assert kept.connection._stream is not before


async def test_connections_to_brokers_that_left_are_closed(autojump_clock: MockClock) -> None:
    async with faked(3, {("a", 0): 1, ("a", 1): 3}, well, bootstrap=["fake:1"]) as (client, fakes):
        await ask(client, ("a", 0), ("a", 1))
        assert {place.port for place, _ in client._pool._open} == {1, 3}
        fakes.brokers = 2
        await client.refresh([])
        assert {place.port for place, _ in client._pool._open} == {1}


async def test_a_version_that_is_not_there(autojump_clock: MockClock) -> None:
    async with faked(1, {("a", 0): 1}, well) as (client, _):
        client._pool._open.clear()
        from barnabas.server.client import versions

        offered = {**versions.SPOKEN, ApiKey.LIST_OFFSETS: (0, 5)}
        endpoint = client._endpoint("fake", 1)
        await client.refresh([])
        client._pool._open[endpoint, "main"].connection._versions = dict(offered)
        with pytest.raises(Unsupported, match=r"from 3\.0 on"):
            await list_offsets(client, {("a", 0): NEWEST_TIME})


async def test_ask_patiently_repeats_what_passes_and_raises_what_does_not(autojump_clock: MockClock) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]

    async def answer(number: int, exchange: Exchange) -> bytes | None:
        return exchange.framed(InitProducerIdResponse(error_code=codes.pop(0), producer_id=5))

    def make(version: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)

    async with faked(1, {}, answer) as (client, _):
        got = await client.ask_patiently(ApiKey.INIT_PRODUCER_ID, make, lambda answer: answer.error_code)
        assert got.producer_id == 5
        with pytest.raises(Refused, match=r"access to the cluster is denied") as refused:
            await client.ask_patiently(ApiKey.INIT_PRODUCER_ID, make, lambda answer: answer.error_code)
        assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# -- over real sockets -------------------------------------------------------------------------------------------------


async def test_a_broker_over_tcp() -> None:
    async with embedded_broker() as broker, open_client([broker.bootstrap], timeout_s=60) as client:
        view = await client.refresh()
        assert str(view.brokers[view.controller_id]) == broker.bootstrap
        answer = await client.ask_broker(1, ApiKey.METADATA, lambda version: MetadataRequest(topics=[]))
        assert answer.cluster_id == view.cluster_id
        with pytest.raises(Unreachable, match=r"there is no broker 9; there are 1"):
            await client.ask_broker(9, ApiKey.METADATA, lambda version: MetadataRequest(topics=[]))
