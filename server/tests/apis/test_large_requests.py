"""Requests of tens of thousands of items: no other client waits for them, and each item is answered as if alone.

The work between two rounds of the loop is counted in calls of the part that does it, not in time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, decoder, encoder
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    AlterPartitionReassignmentsRequest,
    ConsumerGroupDescribeRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from barnabas.server.apis import APIS
from barnabas.server.broker.broker import Broker
from barnabas.server.requests import dispatch, route
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.turns import TURN_UNITS
from barnabas.server.testing import Client, connected, embedded_broker

E = ErrorCode
MANY = 20_000


class Calls:
    """How often something was called between two rounds of the loop, at most; `watch` must be running."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            return function(*args, **kwargs)

        return call

    async def watch(self) -> None:
        while True:
            self.now = 0
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def asking(**settings: str) -> AsyncIterator[tuple[Broker, Client]]:
    async with embedded_broker(**settings) as broker, connected(broker) as client:
        await broker.services.topics.auto_create(["__consumer_offsets", "__transaction_state"])
        for _ in range(50):
            if not (await client.ask(FindCoordinatorRequest(key="g"), 0)).error_code:
                break
            await trio.sleep(0.1)
        yield broker, client


def ids(prefix: str = "id") -> list[str]:
    return [f"{prefix}{number}" for number in range(MANY)]


@pytest.mark.parametrize(
    ("part", "name", "request_", "version", "field"),
    [
        ("groups", "describe", DescribeGroupsRequest(groups=ids() * 2), 5, "groups"),
        ("groups", "consumer_describe", ConsumerGroupDescribeRequest(group_ids=ids() * 2), 0, "groups"),
        ("groups", "place", FindCoordinatorRequest(coordinator_keys=ids() * 2), 4, "coordinators"),
        (
            "transactions",
            "describe",
            DescribeTransactionsRequest(transactional_ids=ids() * 2),
            0,
            "transaction_states",
        ),
        (
            "groups",
            "fetch",
            OffsetFetchRequest(
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=id, topics=None) for id in ids() * 2]
            ),
            8,
            "groups",
        ),
    ],
)
async def test_resources_are_described_once_and_in_turns(
    part: str,
    name: str,
    request_: Any,
    version: int,
    field: str,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asking() as (broker, client), trio.open_nursery() as nursery:
        calls = Calls()
        shards = getattr(broker.services, part)
        monkeypatch.setattr(shards, name, calls.counted(getattr(shards, name)))
        nursery.start_soon(calls.watch)
        response = await client.ask(request_, version)
        assert len(getattr(response, field)) == MANY
        assert 0 < calls.most <= 2 * TURN_UNITS
        nursery.cancel_scope.cancel()


async def test_metadata_of_very_many_names(autojump_clock: trio.testing.MockClock) -> None:
    async with asking(auto_create_topics_enable="false") as (_, client):
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in [*ids(), "__consumer_offsets", *ids()]]
        response = await client.ask(MetadataRequest(topics=names), 9)
        assert len(response.topics) == MANY + 1
        known = next(topic for topic in response.topics if not topic.error_code)
        assert (known.name, len(known.partitions)) == ("__consumer_offsets", 5)


async def test_settings_alike_are_put_together_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    from barnabas.server.apis.configs import describe_configs

    async with asking() as (broker, client):
        await broker.services.topics.auto_create([f"t{number}" for number in range(30)])
        made = Calls()
        monkeypatch.setattr(describe_configs, "topic_entries", made.counted(describe_configs.topic_entries))
        monkeypatch.setattr(describe_configs, "broker_entries", made.counted(describe_configs.broker_entries))
        resource = DescribeConfigsRequest.DescribeConfigsResource
        broker_id = str(broker.services.config.broker_id)
        topics = [resource(resource_type=2, resource_name=f"t{number}") for number in range(30)]
        whole = [resource(resource_type=4, resource_name=broker_id)]
        response = await client.ask(DescribeConfigsRequest(resources=topics * 3 + whole * 500), 4)
        assert made.most == 2
        assert [each.resource_name for each in response.results] == [*(f"t{number}" for number in range(30)), broker_id]
        assert len({len(each.configs) for each in response.results[:30]}) == 1
        some = resource(resource_type=2, resource_name="t1", configuration_keys=["retention.ms"])
        response = await client.ask(DescribeConfigsRequest(resources=[topics[1], some, some]), 4)
        assert [len(each.configs) for each in response.results] == [len(response.results[0].configs), 1]


def committing(partitions: int, *, times: int = 1) -> OffsetCommitRequest:
    topic, partition = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    asked = [partition(partition_index=index, committed_offset=index) for index in range(partitions)]
    return OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=asked)] * times)


def noted_parts(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many offsets are looked up in one call each."""
    parts: list[int] = []
    fetch = broker.services.groups.fetch

    def noted(group_id: str, partitions: list[tuple[str, int]], *rest: Any, **named: Any) -> Any:
        parts.append(len(partitions))
        return fetch(group_id, partitions, *rest, **named)

    monkeypatch.setattr(broker.services.groups, "fetch", noted)
    return parts


async def test_offsets_of_very_many_partitions(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(num_partitions="2000") as (broker, client):
        await broker.services.topics.auto_create(["t"])
        answer = await client.ask(committing(2001), 8)
        assert [each.error_code for each in answer.topics[0].partitions] == [0] * 2000 + [E.UNKNOWN_TOPIC_OR_PARTITION]
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(2000)))
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=[topic]), 7)
        assert [each.committed_offset for each in fetched.topics[0].partitions] == list(range(2000))

        parts = noted_parts(broker, monkeypatch)
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert [each.committed_offset for each in fetched.topics[0].partitions] == list(range(2000))
        assert parts == [500] * 4

        deleted = [
            OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in range(100, 2000)
        ]
        doomed = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=deleted)
        answer = await client.ask(OffsetDeleteRequest(group_id="g", topics=[doomed]), 0)
        assert (answer.error_code, {each.error_code for each in answer.topics[0].partitions}) == (0, {0})
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert [each.committed_offset for each in fetched.topics[0].partitions] == list(range(100))
        answer = await client.ask(OffsetDeleteRequest(group_id="nobody", topics=[doomed]), 0)
        assert (answer.error_code, answer.topics) == (E.GROUP_ID_NOT_FOUND, [])


async def test_a_topic_named_twice_in_a_commit_is_answered_once(autojump_clock: trio.testing.MockClock) -> None:
    async with asking(num_partitions="2") as (broker, client):
        await broker.services.topics.auto_create(["t"])
        answer = await client.ask(committing(2, times=3), 8)
        assert [topic.name for topic in answer.topics] == ["t"]
        assert [each.partition_index for each in answer.topics[0].partitions] == [0, 1] * 3


async def test_offsets_of_very_many_partitions_in_a_transaction(autojump_clock: trio.testing.MockClock) -> None:
    async with asking(num_partitions="1200", transaction_partition_verification_enable="false") as (broker, client):
        await broker.services.topics.auto_create(["t"])
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        asked = [partition(partition_index=index, committed_offset=7, committed_metadata="") for index in range(1200)]
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=asked)
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=5, producer_epoch=0, topics=[topic]
        )
        answer = await client.ask(request, 3)
        assert [each.error_code for each in answer.topics[0].partitions] == [0] * 1200
        index = broker.services.groups.partition_of("g").index
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=5,
            producer_epoch=0,
            transaction_result=True,
            coordinator_epoch=0,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index]),
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="u", partition_indexes=list(range(2000))),
            ],
        )
        answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        ((told),) = answer.markers
        assert [each.error_code for each in told.topics[0].partitions] == [0]
        assert [each.error_code for each in told.topics[1].partitions] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2000
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert [each.committed_offset for each in fetched.topics[0].partitions] == [7] * 1200


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
async def test_a_transaction_without_producer_id_or_epoch_is_refused(
    producer_id: int, epoch: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with asking(transaction_partition_verification_enable="false") as (broker, client):
        await broker.services.topics.auto_create(["t"])
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_metadata="")
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        commit = TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=producer_id, producer_epoch=epoch, topics=[topic]
        )
        answer = await client.ask(commit, 3)
        assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR
        marked = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id, producer_epoch=epoch, transaction_result=True, topics=[marked], coordinator_epoch=0
        )
        written = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert written.markers[0].topics[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR
        assert broker.services.partitions.get("t", 0).log.log_end_offset == 0


async def test_very_many_members_leave_and_groups_go(autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as (_, client):
        members = [LeaveGroupRequest.MemberIdentity(member_id=f"m{number}") for number in range(3000)]
        answer = await client.ask(LeaveGroupRequest(group_id="g", members=members), 4)
        assert (answer.error_code, len(answer.members)) == (0, 3000)
        assert [each.member_id for each in answer.members] == [f"m{number}" for number in range(3000)]
        answer = await client.ask(LeaveGroupRequest(group_id="", members=members), 4)
        assert answer.error_code == E.INVALID_GROUP_ID
        gone = await client.ask(DeleteGroupsRequest(groups_names=[f"g{number}" for number in range(3000)]), 2)
        assert [each.error_code for each in gone.results] == [E.GROUP_ID_NOT_FOUND] * 3000


async def test_an_epoch_of_very_many_partitions(autojump_clock: trio.testing.MockClock) -> None:
    async with asking() as (_, client):
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        asked = [partition(partition=index, leader_epoch=0) for index in range(MANY)]
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=asked)
        answer = await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 3)
        assert {each.error_code for each in answer.topics[0].partitions} == {E.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(answer.topics[0].partitions) == MANY


async def test_what_is_one_long_call_leaves_the_loop(autojump_clock: trio.testing.MockClock) -> None:
    """Decoding a large frame, encoding a large answer; not those of small ones."""
    called: list[str] = []

    async def noting(function: Callable[..., Any], *args: Any) -> Any:
        name = getattr(function, "__name__", "").split("_")[0]
        if name in ("decode", "encode", "refusal"):  # others leave the loop, too
            called.append(name)
        return await inline(function, *args)

    async with embedded_broker(offload=noting) as broker, connected(broker) as client:
        called.clear()
        await client.ask(DescribeGroupsRequest(groups=["g"]), 5)
        await client.ask(MetadataRequest(topics=None), 9)
        assert called == []
        answer = await client.ask(DescribeGroupsRequest(groups=ids()), 5)
        assert len(answer.groups) == MANY
        assert called == ["decode", "encode"]
        called.clear()
        # The refusal of a large request is as long: ids of topics have no place in this version.
        topic = MetadataRequest.MetadataRequestTopic(topic_id=b"x" * 16, name="t")
        refused = await client.ask(MetadataRequest(topics=[topic] * MANY), 11)
        assert {each.error_code for each in refused.topics} == {E.INVALID_REQUEST}
        assert called == ["decode", "refusal"]


async def test_a_protocol_that_is_not_served_is_refused_off_the_loop(autojump_clock: trio.testing.MockClock) -> None:
    called: list[str] = []

    async def noting(function: Callable[..., Any], *args: Any) -> Any:
        called.append(getattr(function, "__name__", ""))
        return await inline(function, *args)

    settings = {"group_coordinator_rebalance_protocols": "classic"}
    async with embedded_broker(offload=noting, **settings) as broker, connected(broker) as client:
        for names in ids(), ids()[:1500]:
            called.clear()
            refused = await client.ask(ConsumerGroupDescribeRequest(group_ids=names), 0)
            assert [each.error_code for each in refused.groups] == [E.UNSUPPORTED_VERSION] * len(names)
            assert "refusal" in called


async def test_of_many_longer_requests_one_is_decoded_at_a_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 9 kB each, from as many clients at once: others are served in between."""
    calls = Calls()
    async with embedded_broker() as broker, AsyncExitStack() as stack, trio.open_nursery() as nursery:
        clients = [await stack.enter_async_context(connected(broker)) for _ in range(20)]
        monkeypatch.setattr(route, "decoder", lambda *of: calls.counted(decoder(*of)))
        nursery.start_soon(calls.watch)
        async with trio.open_nursery() as asking:
            for client in clients:
                asking.start_soon(client.ask, DescribeGroupsRequest(groups=ids()[:1500]), 5)
        assert 1 <= calls.most <= 2  # one before the watcher in its round, one after it in the last
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("items", [1500, MANY], ids=["longer", "large"])
async def test_however_many_wait_one_is_in_memory(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, items: int
) -> None:
    """As what it says, which takes a hundred times its bytes: from when it is decoded until its answer is encoded."""
    inside: list[int] = []
    now = 0

    def decoding(*of: Any) -> Callable[..., Any]:
        def decode(*args: Any) -> Any:
            nonlocal now
            now += 1
            inside.append(now)
            return decoder(*of)(*args)

        return decode

    def encoding(*of: Any) -> Callable[..., Any]:
        def encode(response: Any) -> Any:
            nonlocal now
            now -= 1
            return encoder(*of)(response)

        return encode

    async with embedded_broker() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(broker)) for _ in range(10)]
        monkeypatch.setattr(route, "decoder", decoding)
        monkeypatch.setattr(route, "encoder", encoding)
        async with trio.open_nursery() as asking:
            for client in clients:
                asking.start_soon(client.ask, DescribeGroupsRequest(groups=ids()[:items]), 5)
    assert inside == [1] * 10


async def test_a_request_that_waits_leaves_its_place(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake = trio.Event()

    async def waiting() -> DescribeGroupsResponse:
        await wake.wait()
        return DescribeGroupsResponse()

    class Waiting(route.Route):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            if self.api.key == DescribeGroupsRequest.__description__.api_key:
                self.handle = lambda *_: waiting()

    monkeypatch.setattr(dispatch, "Route", Waiting)
    async with (
        embedded_broker() as broker,
        connected(broker) as first,
        connected(broker) as second,
        trio.open_nursery() as asking,
    ):
        asking.cancel_scope.deadline = trio.current_time() + 60
        asking.start_soon(first.ask, DescribeGroupsRequest(groups=ids()[:1500]), 5)
        await trio.testing.wait_all_tasks_blocked()
        assert len((await second.ask(DeleteGroupsRequest(groups_names=ids()[:1500]), 2)).results) == 1500
        wake.set()
    assert not asking.cancel_scope.cancelled_caught


@pytest.mark.parametrize(
    ("key", "version", "bytes_"),
    [(0, 9, 0x7FFFFFFF), (0, 2, 1 << 13), (1, 12, 1 << 16), (1, 3, 1 << 13), (15, 5, 1 << 13)],
    ids=["Produce", "old Produce", "Fetch", "old Fetch", "another"],
)
def test_what_a_round_takes_up(key: int, version: int, bytes_: int) -> None:
    (api,) = (one for one in APIS if one.key == key)
    assert route.Route(api, version).round_bytes == bytes_


async def test_a_large_frame_that_cannot_be_read_closes_its_connection_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asking() as (broker, client), connected(broker) as other:
        await client.stream.send_all((100_000).to_bytes(4, "big") + b"\0\x0f\0\5\0\0\0\1\0\1x\0" + b"\xff" * 99_988)
        with pytest.raises(EOFError):
            await client.receive_frame()
        assert (await other.ask(DescribeGroupsRequest(groups=["g"]), 0)).groups[0].group_state == "Dead"


async def test_partitions_that_do_not_exist_in_administrators_requests(autojump_clock: trio.testing.MockClock) -> None:
    """Each is answered, in every API that names partitions; named twice, once."""
    unknown = {E.UNKNOWN_TOPIC_OR_PARTITION}
    indexes = list(range(5000)) * 2
    async with asking() as (broker, client):
        here = broker.services.config.broker_id
        elected = await client.ask(
            ElectLeadersRequest(
                topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="q", partitions=indexes)], timeout_ms=60_000
            ),
            2,
        )
        (result,) = elected.replica_election_results
        assert {each.error_code for each in result.partition_result} == unknown
        assert len(result.partition_result) == 5000

        wish = AlterPartitionReassignmentsRequest.ReassignablePartition
        asked = [wish(partition_index=index, replicas=[here]) for index in indexes]
        moved = await client.ask(
            AlterPartitionReassignmentsRequest(
                topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name="q", partitions=asked)],
                timeout_ms=60_000,
            ),
            0,
        )
        assert {each.error_code for each in moved.responses[0].partitions} == unknown
        assert len(moved.responses[0].partitions) == 5000

        doomed = [
            DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(5000)
        ] * 2
        deleted = await client.ask(
            DeleteRecordsRequest(
                topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="q", partitions=doomed)], timeout_ms=60_000
            ),
            2,
        )
        assert {each.error_code for each in deleted.topics[0].partitions} == unknown
        assert len(deleted.topics[0].partitions) == 5000

        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="q", partitions=indexes)]
        offsets = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0])
        added = await client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=1,
                v3_and_below_topics=[*topics, offsets],
            ),
            3,
        )
        first, second = added.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in first.results_by_partition} == unknown
        assert len(first.results_by_partition) == 5000
        assert second.results_by_partition[0].partition_error_code == E.OPERATION_NOT_ATTEMPTED


async def test_topics_in_order_however_many(autojump_clock: trio.testing.MockClock) -> None:
    names = [f"q{number}" for number in range(5000)]
    async with asking() as (_, client):
        topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in reversed(names)]
        told = await client.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=10), 0)
        assert [topic.name for topic in told.topics] == sorted(names)


async def test_very_many_topics_are_refused_each(autojump_clock: trio.testing.MockClock) -> None:
    names = [f"q{number}" for number in range(10_001)]
    async with asking() as (_, client):
        new = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = await client.ask(CreateTopicsRequest(topics=new, timeout_ms=60_000), 5)
        assert {each.error_code for each in made.topics} == {E.POLICY_VIOLATION}
        assert len(made.topics) == len(names)
        grown = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
        more = await client.ask(CreatePartitionsRequest(topics=grown, timeout_ms=60_000), 2)
        assert [each.error_code for each in more.results] == [E.UNKNOWN_TOPIC_OR_PARTITION] * len(names)
        gone = await client.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5)
        assert [each.error_code for each in gone.responses] == [E.UNKNOWN_TOPIC_OR_PARTITION] * len(names)


@pytest.mark.parametrize(
    ("request_", "version", "message", "code"),
    [
        (ConsumerGroupDescribeRequest(group_ids=["x" * 32_767]), 0, "groups", E.GROUP_ID_NOT_FOUND),
        (DescribeGroupsRequest(groups=["x" * 32_767]), 6, "groups", E.GROUP_ID_NOT_FOUND),
        (
            UpdateFeaturesRequest(
                feature_updates=[
                    UpdateFeaturesRequest.FeatureUpdateKey(feature="x" * 32_767, max_version_level=1, upgrade_type=1)
                ]
            ),
            1,
            "",
            None,
        ),
    ],
)
async def test_a_long_name_comes_back_short_in_the_message(
    request_: Any, version: int, message: str, code: ErrorCode | None, autojump_clock: trio.testing.MockClock
) -> None:
    async with asking() as (_, client):
        response = await client.ask(request_, version)
        told = getattr(response, message)[0] if message else response
        assert told.error_code not in (E.UNKNOWN_SERVER_ERROR, E.NONE)
        assert code in (None, told.error_code)
        assert 900 < len(told.error_message) < 1200
