"""Records to partitions and back: the producer and the reader, with brokers of ours, old ones, and lossy ways."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.compression import GZIP
from barnabas.kproto.messages import FetchResponse, ProduceResponse
from barnabas.kproto.records import Record, build_batch
from barnabas.server.client.batching import BATCH_BYTES_MAX, ToSend, placed
from barnabas.server.client.client import Client
from barnabas.server.client.failures import Failed, Unreachable
from barnabas.server.client.offsets import EARLIEST, LATEST, Span, delete_records, list_offsets, spans
from barnabas.server.client.partitioner import partition_of
from barnabas.server.client.producer import AFTER, Placed, Producer
from barnabas.server.client.reader import Reader, first_of_each, newest, read_all
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.testing import embedded_broker, embedded_cluster
from barnabas.server.tests.client.rig import (
    KAFKA_0_11,
    Exchange,
    faked,
    old,
    passed_on,
    relayed,
    to_broker,
    to_cluster,
    transactional,
)


def producer(client: Client, **options: Any) -> Producer:
    return Producer(client, lambda: 1_750_000_000_000, **options)


async def filled(client: Client, count: int = 30, partitions: int = 3) -> list[Placed]:
    assert await create_topics(client, [NewTopic("t", partitions, 1)]) in ({"t": partitions}, {"t": -1})
    records = [ToSend("t", b"v%d" % i, b"k%d" % (i % 7), (("n", b"%d" % i),)) for i in range(count)]
    results = await producer(client, codec=GZIP).send(records)
    assert all(isinstance(each, Placed) for each in results)
    return results  # type: ignore[return-value]


async def everything(client: Client, topic: str = "t", *, partitions: int = 3, committed: bool = False) -> list[bytes]:
    found = await spans(client, [(topic, index) for index in range(partitions)], committed=committed)
    there = {place: span for place, span in found.items() if isinstance(span, Span)}
    starts = {place: span.start for place, span in there.items()}
    reader = Reader(client, starts, {place: span.end for place, span in there.items()}, committed=committed)
    records = await read_all(reader)
    assert not reader.failed
    return [record.value or b"" for record in records]


@pytest.mark.parametrize("versions", [None, KAFKA_0_11])
async def test_what_was_sent_is_read(autojump_clock: MockClock, versions: Any) -> None:
    async with embedded_broker() as broker:
        hook = None if versions is None else old(versions)
        async with relayed(to_broker(broker), hook) as (client, relay):
            results = await filled(client)
            assert {each.partition for each in results} == {0, 1, 2}
            assert sorted(await everything(client)) == sorted(b"v%d" % i for i in range(30))
            used = dict(relay.seen)
            if versions is not None:
                assert used[ApiKey.FETCH] == 5
                assert used[ApiKey.PRODUCE] == 3
            by_place = {(each.partition, each.offset): i for i, each in enumerate(results)}
            reader = Reader(client, {("t", 1): 2}, {("t", 1): 4})
            for record in await read_all(reader):
                i = by_place[1, record.offset]
                assert (record.value, record.key, record.headers) == (b"v%d" % i, b"k%d" % (i % 7), (("n", b"%d" % i),))
                assert record.batch.codec == "gzip"


async def test_records_over_three_brokers_and_a_leader_that_dies(autojump_clock: MockClock) -> None:
    async with embedded_cluster(3) as cluster, relayed(to_cluster(cluster)) as (client, _):
        client._bootstrap = [client._endpoint(each.host, each.port) for each in cluster[1].endpoints]
        assert await create_topics(client, [NewTopic("t", 3, 3)]) == {"t": 3}
        for index in range(3):
            await cluster.leader("t", index)
        work = producer(client)
        await work.send([ToSend("t", b"a%d" % i, partition=i % 3) for i in range(9)])
        victim = await cluster.leader("t", 0)
        await cluster.kill(victim)
        sent = await work.send([ToSend("t", b"b%d" % i, partition=i % 3) for i in range(9)])
        assert all(isinstance(each, Placed) for each in sent), sent
        assert sorted(await everything(client)) == [b"%s%d" % (kind, i) for kind in (b"a", b"b") for i in range(9)]


async def test_an_answer_that_is_lost_makes_no_second_record(autojump_clock: MockClock) -> None:
    lost = 0

    async def hook(exchange: Exchange) -> bytes | None:
        nonlocal lost
        if exchange.key is ApiKey.PRODUCE and lost < 3:
            lost += 1
            await exchange.forward()
            return None
        return await passed_on(exchange)

    async with embedded_broker() as broker, relayed(to_broker(broker), hook) as (client, _):
        await create_topics(client, [NewTopic("t", 3, 1)])
        sent = await producer(client).send([ToSend("t", b"%d" % i, partition=i % 3) for i in range(6)])
        assert lost == 3
        assert sorted(await everything(client)) == [b"%d" % i for i in range(6)]
        assert all(isinstance(each, Placed) for each in sent)


async def test_without_numbers_a_lost_answer_is_said_and_nothing_repeated(autojump_clock: MockClock) -> None:
    async def hook(exchange: Exchange) -> bytes | None:
        if exchange.key is ApiKey.PRODUCE:
            await exchange.forward()
            return None
        return await passed_on(exchange)

    async with embedded_broker() as broker, relayed(to_broker(broker), hook) as (client, relay):
        await create_topics(client, [NewTopic("t", 3, 1)])
        (sent,) = await producer(client, idempotent=False).send([ToSend("t", b"a", partition=0)])
        assert "whether it was done is not known" in str(sent)
        assert await everything(client) == [b"a"]
        assert [key for key, _ in relay.seen].count(ApiKey.INIT_PRODUCER_ID) == 0


async def test_a_batch_that_failed_leaves_no_gap_in_the_numbers(autojump_clock: MockClock) -> None:
    refuse = True

    async def hook(exchange: Exchange) -> bytes | None:
        if exchange.key is ApiKey.PRODUCE and refuse:
            topics = [
                ProduceResponse.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        ProduceResponse.PartitionProduceResponse(
                            index=row.index, error_code=ErrorCode.MESSAGE_TOO_LARGE, error_message="too large"
                        )
                        for row in topic.partition_data
                    ],
                )
                for topic in exchange.message.topic_data
            ]
            return exchange.framed(ProduceResponse(responses=topics))
        return await passed_on(exchange)

    async with embedded_broker() as broker, relayed(to_broker(broker), hook) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        work = producer(client)
        (failed,) = await work.send([ToSend("t", b"a")])
        assert failed == Failed(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        refuse = False
        assert await work.send([ToSend("t", b"b"), ToSend("t", b"c")]) == [Placed("t", 0, 0), Placed("t", 0, 1)]
        assert await everything(client, partitions=1) == [b"b", b"c"]


async def test_what_follows_a_record_that_failed_does_not_overtake_it(autojump_clock: MockClock) -> None:
    """A batch fails; those of its partition that wait behind it are not sent, those of others are."""
    big = BATCH_BYTES_MAX - 100
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 2, 1, {"max.message.bytes": "600000"})])
        rows = [(0, b"a" * big), (1, b"a" * big), (0, b"b" * 2 * big), (0, b"c" * big), (1, b"c" * big)]
        records = [ToSend("t", value, partition=index) for index, value in [*rows, (0, b"d"), (1, b"d")]]
        results = await producer(client).send(records)
        bad = [each for each in results if isinstance(each, Failed)]
        assert [isinstance(each, Failed) for each in results] == [False, False, True, True, False, True, False]
        assert [each.code for each in bad] == [ErrorCode.MESSAGE_TOO_LARGE] * 3
        assert [each.message == AFTER for each in bad] == [False, True, True]
        assert [value[:1] for value in await everything(client, partitions=2)] == [b"a", b"a", b"c", b"d"]


async def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(autojump_clock: MockClock) -> None:
    """What fails is the record that is too large by itself; the limit is learned once."""
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, relay):
        await create_topics(client, [NewTopic("t", 1, 1, {"max.message.bytes": "1000"})])
        work = producer(client)
        values = [b"%d" % i for i in range(300)]
        results = await work.send([ToSend("t", value) for value in [*values, b"x" * 2000, b"after"]])
        assert all(isinstance(each, Placed) for each in results[:300])
        huge, after = results[300:]
        assert isinstance(huge, Failed)
        assert (huge.code, huge.message == AFTER) == (ErrorCode.MESSAGE_TOO_LARGE, False)
        assert after == Failed(ErrorCode.MESSAGE_TOO_LARGE, AFTER)
        assert await everything(client, partitions=1) == values
        before = len(relay.seen)
        assert all(isinstance(each, Placed) for each in await work.send([ToSend("t", value) for value in values]))
        keys = [key for key, _ in relay.seen[before:]]
        assert keys.count(ApiKey.INIT_PRODUCER_ID) == 1, "after the failure above, and for no other"


async def test_which_record_of_a_batch_is_at_fault(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1, {"cleanup.policy": "compact"})])
        good, bad = await producer(client).send([ToSend("t", b"a", b"key"), ToSend("t", b"b")])
        assert isinstance(good, Failed)
        assert isinstance(bad, Failed)
        assert good == Failed(ErrorCode.INVALID_RECORD, "another record of its batch was refused")
        assert bad.code == ErrorCode.INVALID_RECORD
        assert "without key" in str(bad)


async def test_a_topic_that_does_not_exist(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        results = await producer(client).send([ToSend("no", b"a"), ToSend("t", b"b"), ToSend("t", b"c", partition=9)])
        assert [isinstance(each, Failed) for each in results] == [True, False, True]
        assert "there is no such topic" in str(results[0])
        assert "topic t has 1 partitions" in str(results[2])


async def test_what_was_deleted_is_skipped_and_said(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        await producer(client).send([ToSend("t", b"%d" % i) for i in range(5)])
        assert await delete_records(client, {("t", 0): 3, ("t", 7): 1}) == {
            ("t", 0): 3,
            ("t", 7): Failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t has 1 partitions, from 0 on"),
        }
        reader = Reader(client, {("t", 0): 1}, {("t", 0): 5})
        assert [record.value for record in await read_all(reader)] == [b"3", b"4"]
        assert reader.skipped == {("t", 0): (1, 3)}
        behind = Reader(client, {("t", 0): 99})
        assert await behind.read() == []
        assert "offset 99 is behind the end of the log" in str(behind.failed["t", 0])


async def test_a_reader_that_follows_gets_what_comes(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 2, 1)])
        reader = Reader(client, {("t", 0): 0, ("t", 1): 0})
        began = trio.current_time()
        assert await reader.read() == []
        assert 0.4 < trio.current_time() - began < 1
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def later() -> None:
                await trio.sleep(0.2)
                await producer(client).send([ToSend("t", b"x", partition=1)])

            assert [record.value for record in await reader.read()] == [b"x"]
        assert reader.positions == {("t", 0): 0, ("t", 1): 1}


async def test_a_topic_that_is_deleted_while_it_is_read(autojump_clock: MockClock) -> None:
    from barnabas.server.client.topics import delete_topics

    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        reader = Reader(client, {("t", 0): 0})
        await reader.read()
        await delete_topics(client, ["t"])
        with trio.fail_after(20):
            while not reader.is_done:
                await reader.read()
        assert reader.failed["t", 0].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_patient_reader_waits_for_a_leader(autojump_clock: MockClock) -> None:
    """And not for a topic that is gone for good."""
    leaders = {("t", 0): -1}

    async def answer(broker: int, exchange: Exchange) -> bytes | None:
        await trio.sleep(0.5)
        code = 0 if leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = [FetchResponse.PartitionData(partition_index=0, error_code=code, high_watermark=7, records=b"")]
        topics = [FetchResponse.FetchableTopicResponse(topic="t", partitions=rows)]
        return exchange.framed(FetchResponse(responses=topics))

    async with faked(1, leaders, answer) as (client, fakes):
        hasty, patient = Reader(client, {("t", 0): 7}), Reader(client, {("t", 0): 7}, patient=True)
        while not hasty.is_done:
            await hasty.read()
        assert hasty.failed["t", 0].code == ErrorCode.LEADER_NOT_AVAILABLE
        for _ in range(100):
            await patient.read()
        assert patient.troubled["t", 0].code == ErrorCode.LEADER_NOT_AVAILABLE
        leaders["t", 0] = 1
        await patient.read()
        assert (patient.troubled, patient.failed, patient.positions) == ({}, {}, {("t", 0): 7})
        leaders.clear()
        fakes.down.add(1)
        with pytest.raises(Unreachable):
            await patient.read()
        fakes.down.clear()
        began = trio.current_time()
        while not patient.is_done:
            await patient.read()
        assert trio.current_time() - began >= client.timeout_s, "a broker that has just begun may not know it yet"
        assert (patient.failed["t", 0].code, patient.troubled) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})


async def test_what_was_read_is_not_lost_with_the_broker(autojump_clock: MockClock) -> None:
    """One partition has a record, of another the offset is out of range; then nobody answers any more."""

    async def answer(broker: int, exchange: Exchange) -> bytes | None:
        batch = bytes(build_batch([Record(0, 1, None, b"x")]))
        rows = [
            FetchResponse.PartitionData(partition_index=0, high_watermark=1, records=batch),
            FetchResponse.PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        ]
        topics = [FetchResponse.FetchableTopicResponse(topic="t", partitions=rows)]
        fakes.down.add(1)
        return exchange.framed(FetchResponse(responses=topics))

    async with faked(1, {("t", 0): 1, ("t", 1): 1}, answer) as (client, fakes):
        reader = Reader(client, {("t", 0): 0, ("t", 1): 0}, patient=True)
        assert [record.value for record in await reader.read()] == [b"x"]
        with pytest.raises(Unreachable):
            await reader.read()
        assert reader.positions == {("t", 0): 1, ("t", 1): 0}


async def test_the_newest_of_all_partitions(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 3, 1)])
        records = [ToSend("t", b"%d" % i, partition=i % 3, timestamp=1000 + i) for i in range(50)]
        await producer(client).send(records)
        there: Any = await spans(client, [("t", i) for i in range(3)])
        search, failed = await newest(client, there, 5)
        assert [record.value for record in search.result()] == [b"%d" % i for i in range(45, 50)]
        search, failed = await newest(client, there, 2, wanted=lambda each: each.value in (b"3", b"20", b"7"))
        assert [record.value for record in search.result()] == [b"7", b"20"]
        assert failed == {}


async def test_the_first_unread_record_of_each_partition(autojump_clock: MockClock) -> None:
    """Also of those whose batches are larger than a partition's share of an answer."""
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 4, 1)])
        rng = Random(5)
        big = [ToSend("t", rng.randbytes(100_000), partition=i, timestamp=100 + i) for i in (0, 1, 2)]
        await producer(client).send([*big, *big])
        places = [("t", index) for index in range(4)]
        found = await first_of_each(client, dict.fromkeys(places, 1), dict.fromkeys(places, 2) | {("t", 3): 0})
        assert [getattr(found[place], "timestamp", None) for place in places] == [100, 101, 102, None]


async def test_transactions_that_were_aborted_are_not_read(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        async with transactional(broker, "x") as writer:
            await writer.write("t", b"abort")
            await writer.end(commit=False)
            await writer.write("t", b"commit")
            await writer.end(commit=True)
            await trio.sleep(1)
            assert await everything(client, partitions=1, committed=True) == [b"commit"]
            assert await everything(client, partitions=1) == [b"abort", b"commit"]
            await writer.write("t", b"open")
            assert await everything(client, partitions=1, committed=True) == [b"commit"], "up to the last stable offset"
            assert await everything(client, partitions=1) == [b"abort", b"commit", b"open"]


async def test_a_reader_of_an_answer_without_end(autojump_clock: MockClock) -> None:
    """A broker that answers with batches that it was not asked for: each round is bounded."""

    async def hook(exchange: Exchange) -> bytes | None:
        if exchange.key is not ApiKey.FETCH:
            return await passed_on(exchange)
        answer: FetchResponse = await exchange.answer()
        for topic in answer.responses:
            for row in topic.partitions:
                row.records = bytes(row.records or b"") * 1000
        return exchange.framed(answer)

    async with embedded_broker() as broker, relayed(to_broker(broker), hook) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        await producer(client).send([ToSend("t", b"x" * 100)] * 10)
        reader = Reader(client, {("t", 0): 0}, {("t", 0): 10})
        assert len(await reader.read(records_max=4)) == 4
        assert len(await read_all(reader)) == 6


async def test_offsets_by_time(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, _):
        await create_topics(client, [NewTopic("t", 1, 1)])
        await producer(client).send([ToSend("t", b"", timestamp=1000 * i) for i in (1, 2, 3)])
        place = ("t", 0)
        for asked, offset in ((EARLIEST, 0), (LATEST, 3), (1500, 1), (9000, -1)):
            found = (await list_offsets(client, {place: asked}))[place]
            assert not isinstance(found, Failed)
            assert found.offset == offset


def test_records_without_a_key_go_where_a_leader_is() -> None:
    records = [ToSend("t", b"a"), ToSend("t", b"b", b"key")]
    for seed in range(20):
        found = placed(records, {"t": [0, 1, 2, 3]}, Random(seed), {"t": [2]})
        assert found["t", 2][0].indexes[0] == 0
        assert {place[1] for place in found} == {2, partition_of(b"key", 4)}, "a key counts by all partitions"


def test_batches_are_cut_and_keep_the_order() -> None:
    records = [ToSend("t", b"x" * 1000, b"k%d" % (i % 5)) for i in range(2000)]
    found = placed(records, {"t": list(range(4))}, Random(1))
    sizes = [sum(records[i].size for i in batch.indexes) for queue in found.values() for batch in queue]
    assert max(sizes) <= BATCH_BYTES_MAX
    assert len(sizes) >= 4
    for queue in found.values():
        indexes = [index for batch in queue for index in batch.indexes]
        assert indexes == sorted(indexes)
    (huge,) = placed([ToSend("t", b"x" * 3 * BATCH_BYTES_MAX)], {"t": [0]}, Random(1)).values()
    assert len(huge) == 1
