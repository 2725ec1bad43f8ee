"""Produce against a real broker in memory: answers, errors, pipelining, and what a failing disk does."""

from __future__ import annotations

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FetchRequest, ProduceRequest, ProduceResponse
from barnabas.kproto.records import Record, build_batch
from barnabas.replication import PartitionImage
from barnabas.server.broker.broker import Broker, BrokerFailed
from barnabas.server.testing import Client, connected, embedded_broker

NOW_MS = 1_750_000_000_000


def batch(*values: bytes, codec: int = 0, transactional: bool = False) -> bytes:
    records = [Record(i, NOW_MS, None, value, []) for i, value in enumerate(values)]
    if transactional:
        return build_batch(records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    return build_batch(records, codec=codec)


def request(
    records: bytes | None, *, topic: str = "t", topic_id: bytes = bytes(16), index: int = 0, acks: int = 1
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def only(response: ProduceResponse) -> ProduceResponse.PartitionProduceResponse:
    ((partition,),) = [topic.partition_responses for topic in response.responses]
    return partition


async def read_all(client: Client, topic: str = "t", index: int = 0) -> bytes:
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    response = await client.ask(fetch, 12)
    return bytes(response.responses[0].partitions[0].records)


async def topic(broker: Broker, name: str = "t") -> bytes:
    await broker.services.topics.auto_create([name])
    return broker.services.image.topics[name].topic_id


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_appends_in_order(version: int, acks: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        for expected in (0, 2, 4):
            named = request(batch(b"a", b"b"), topic="t" if version < 13 else "", topic_id=topic_id, acks=acks)
            answer = only(await client.ask(named, version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)


@pytest.mark.parametrize(
    ("change", "version", "code"),
    [
        ({"acks": 2}, 9, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": "nothing"}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 7}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": -1}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": b"\1" * 16}, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"records": None}, 9, ErrorCode.INVALID_RECORD),
        ({"records": b""}, 9, ErrorCode.INVALID_RECORD),
        ({"records": batch(b"a") + batch(b"b")}, 9, ErrorCode.INVALID_RECORD),
        ({"records": batch(b"a", codec=4)}, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"records": batch(b"a", transactional=True)}, 9, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"records": batch(b"a")[:-1]}, 9, ErrorCode.CORRUPT_MESSAGE),
        ({"topic": "__consumer_offsets"}, 9, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_an_error_of_one_partition_is_in_its_answer(
    change: dict[str, object], version: int, code: ErrorCode, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await topic(broker, "__consumer_offsets")
        answer = only(await client.ask(request(**{"records": batch(b"a"), **change}), version))  # type: ignore[arg-type]
        assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
        assert await read_all(client) == b""


async def test_good_and_bad_partitions_in_one_request(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="2") as broker, connected(broker) as client:
        await topic(broker)
        both = request(batch(b"a"))
        both.topic_data[0].partition_data.append(
            ProduceRequest.PartitionProduceData(index=1, records=batch(b"b")[:-2] + b"xx")
        )
        response = await client.ask(both, 9)
        codes = [partition.error_code for partition in response.responses[0].partition_responses]
        assert codes == [0, ErrorCode.CORRUPT_MESSAGE]


async def test_no_acks_is_silence_and_an_error_closes(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker:
        await topic(broker)
        async with connected(broker) as client:
            await client.send(request(batch(b"a"), acks=0), 9)
            assert only(await client.ask(request(batch(b"b")), 9)).base_offset == 1
            await client.send(request(batch(b"a"), acks=0, topic="nothing"), 9)
            with pytest.raises(EOFError):
                await client.receive_frame()


async def test_pipelined_requests_are_answered_in_order(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for _ in range(300):
            await client.send(request(batch(b"x"), acks=-1), 9)
        offsets = [only(await client.receive(request(None), 9)).base_offset for _ in range(300)]
        assert offsets == list(range(300))


async def test_too_few_in_sync_replicas_refuse_acks_all_only(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(min_insync_replicas="2") as broker, connected(broker) as client:
        await topic(broker)
        # More than there are replicas cannot be asked for.
        assert only(await client.ask(request(batch(b"a"), acks=-1), 9)).error_code == 0
        broker.services.partitions.get("t", 0).replicas = (1, 2)
        assert only(await client.ask(request(batch(b"a"), acks=-1), 9)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert only(await client.ask(request(batch(b"a"), acks=1), 9)).error_code == 0


async def test_log_append_time_is_the_brokers(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_message_timestamp_type="LogAppendTime") as broker, connected(broker) as client:
        await topic(broker)
        answer = only(await client.ask(request(batch(b"a")), 9))
        assert answer.log_append_time_ms == broker.services.wall_ms()


async def test_acks_all_waits_for_the_high_watermark_or_the_timeout(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        partition = broker.services.partitions.get("t", 0)
        me = partition.leader_id
        # A second replica that never catches up; no other part knows of it.
        partition.lead(PartitionImage(0, me, 1, 1, (me, 99), (me, 99)))
        start = trio.current_time()
        answer = only(await client.ask(request(batch(b"a"), acks=-1), 9))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() - start == pytest.approx(60.0, abs=0.01)
        await client.send(request(batch(b"b"), acks=-1), 9)
        await trio.sleep(0.5)
        partition.lead(PartitionImage(0, me, 2, 2, (me, 99), (me,)))
        assert only(await client.receive(request(None), 9)).base_offset == 1
        await client.send(request(batch(b"c"), acks=-1), 9)
        await trio.sleep(0.1)
        assert only(await client.receive(request(None), 9)).error_code == ErrorCode.NONE
        partition.lead(PartitionImage(0, me, 3, 3, (me, 99), (me, 99)))
        await client.send(request(batch(b"d"), acks=-1), 9)
        await trio.sleep(0.1)
        partition.follow(PartitionImage(0, 99, 4, 4, (me, 99), (99,)))
        assert only(await client.receive(request(None), 9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_failed_write_is_answered_and_ends_the_broker(autojump_clock: trio.abc.Clock) -> None:
    failed = False
    try:
        async with embedded_broker() as broker, connected(broker) as client:
            await topic(broker)
            assert only(await client.ask(request(batch(b"a")), 9)).error_code == 0
            log = broker.services.partitions.get("t", 0).log

            def full(*_: object) -> int:
                raise OSError(28, "No space left on device")

            log.writer.pwritev = full
            answer = only(await client.ask(request(batch(b"b")), 9))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            await broker.stopped()
    except* BrokerFailed as group:
        failed = "No space left" in str(group.exceptions[0])
    assert failed
