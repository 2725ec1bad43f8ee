"""Produce requests that take long: others are served meanwhile, order stays, and the answers are those of any other."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.compression import compress
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import MetadataRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch, iter_headers
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.produce import held as held_produce
from barnabas.server.requests.produce import pending
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import NOW_MS, read_all, request, topic
from barnabas.server.tests.apis.records.test_produce_in_transactions import transactions
from barnabas.server.tests.apis.transactions.raw_transactions import NEW
from barnabas.server.tests.apis.transactions.raw_transactions import produce as transactional
from barnabas.server.tests.whole.faulty_disk import FaultyDisk

LONG = 13_000
"""So many records are too much for any round."""


def batch(sequence: int, count: int, codec: int = 4, value: bytes = b"v") -> bytes:
    records = [Record(i, NOW_MS, None, value, []) for i in range(count)]
    return bytes(build_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence))


def told(response: Any) -> list[tuple[int, int]]:
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


def to_partitions(batches: Iterable[bytes], acks: int = -1, name: str = "t") -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index=i, records=each) for i, each in enumerate(batches)]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=data)]
    )


class Thread:
    """Stands for the thread: what is given to it waits until `go`."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = trio.Event()
        self.waits = trio.Event()
        self.before: Callable[[], None] = lambda: None

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        self.waits.set()
        await self.go.wait()
        result = function(*arguments)
        self.before()
        return result


def with_thread(broker: Broker) -> Thread:
    thread = Thread()
    broker.services.held._offload = thread
    return thread


@pytest.mark.parametrize("acks", [1, -1])
async def test_others_are_served_and_order_stays(acks: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client, connected(broker) as other:
        await topic(broker)
        thread = with_thread(broker)
        counts = [3, LONG, 5, LONG, 2]
        sequence = 0
        # All at once: what comes behind a long one must not overtake it.
        data = b""
        for number, count in enumerate(counts):
            data += request_frame(9, number, "test", request(batch(sequence, count), acks=acks))
            sequence += count
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, data)
            await thread.waits.wait()
            assert [broker.node_id for broker in (await other.ask(MetadataRequest(topics=[]), 12)).brokers] == [1]
            records = bytes(build_batch([Record(0, NOW_MS, None, b"other", [])]))
            assert told(await other.ask(request(records, acks=acks), 9)) == [(0, 3)]
            thread.go.set()
        answers = [told(await client.receive(request(None), 9)) for _ in counts]
        assert answers == [[(0, 0)], [(0, 4)], [(0, 4 + LONG)], [(0, 9 + LONG)], [(0, 9 + 2 * LONG)]]
        assert thread.calls == 2
        headers = [header for _, header in iter_headers(await read_all(client))]
        assert [header.record_count for header in headers] == [3, 1, LONG, 5, LONG, 2]


async def test_no_answer_is_sent_where_none_is_wanted(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await client.send(request(batch(0, LONG), acks=0), 9)
        await client.send(request(batch(LONG, 1), acks=0), 9)
        assert told(await client.ask(request(batch(LONG + 1, 1), acks=1), 9)) == [(0, LONG + 1)]
        await client.send(request(batch(7, LONG), acks=0), 9)  # out of order
        with pytest.raises((trio.BrokenResourceError, EOFError)):
            await client.receive_frame()


async def test_a_long_one_among_others_of_a_request(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="5") as broker, connected(broker) as client:
        await topic(broker)
        bad = bytearray(batch(0, LONG))
        bad[-1] ^= 1
        refused = bytes(build_batch([Record(0, NOW_MS, None, b"v", [])], codec=4)) * 2
        asked = to_partitions([batch(0, 1), batch(0, LONG), bytes(bad), refused, batch(0, 2), b""])
        asked.topic_data[0].partition_data[5].index = 9
        assert told(await client.ask(asked, 9)) == [
            (0, 0),
            (0, 0),
            (ErrorCode.CORRUPT_MESSAGE, -1),
            (ErrorCode.INVALID_RECORD, -1),
            (0, 0),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]


async def test_many_medium_ones_take_several_turns(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Each fits into a round, all of them do not. Nothing needs the thread."""
    turns = 0
    one_turn = held_produce.HeldProduces._one_turn

    def counted(self: held_produce.HeldProduces, *arguments: Any) -> tuple[int, bool]:
        nonlocal turns
        turns += 1
        return one_turn(self, *arguments)

    monkeypatch.setattr(held_produce.HeldProduces, "_one_turn", counted)
    async with embedded_broker(num_partitions="10") as broker, connected(broker) as client:
        await topic(broker)
        thread = with_thread(broker)
        asked = to_partitions([batch(0, 9000)] * 10)
        assert told(await client.ask(asked, 9)) == [(0, 0)] * 10
        assert (turns, thread.calls) == (4, 0)  # behind that of the round


async def test_many_batches_take_several_turns(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock) -> None:
    monkeypatch.setattr(held_produce, "BATCHES_PER_TURN", 10)
    monkeypatch.setattr(pending, "BATCHES_PER_TURN", 10)
    async with embedded_broker(num_partitions="30") as broker, connected(broker) as client:
        await topic(broker)
        asked = to_partitions([batch(0, 1, codec=0)] * 35)
        expected = [(0, 0)] * 30 + [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 5
        assert told(await client.ask(asked, 9)) == expected
        # What follows is taken up by the fast path, as usual.
        for sequence in (1, 2, 3):
            assert told(await client.ask(request(batch(sequence, 1)), 9)) == [(0, sequence)]


async def test_the_settings_change_meanwhile(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        thread = with_thread(broker)
        partition_log = broker.services.partitions.get("t", 0).log

        def change() -> None:
            if thread.calls == 1:
                partition_log.config = replace(partition_log.config, compression_type="gzip")

        thread.before = change
        thread.go.set()
        assert told(await client.ask(request(batch(0, LONG)), 9)) == [(0, 0)]
        assert thread.calls == 2
        ((_, header),) = iter_headers(await read_all(client))
        assert (header.codec, header.record_count) == (1, LONG)


async def test_zstd_for_a_client_that_does_not_know_it(autojump_clock: trio.abc.Clock) -> None:
    """The topic's codec is its own business."""
    async with embedded_broker(compression_type="zstd") as broker, connected(broker) as client:
        await topic(broker)
        assert told(await client.ask(request(batch(0, LONG, codec=1)), 5)) == [(0, 0)]
        assert told(await client.ask(request(batch(LONG, LONG, codec=4)), 5)) == [
            (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
        ]
        ((_, header),) = iter_headers(await read_all(client))
        assert header.codec == 4


async def test_an_old_client(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        # A batch of today in a request of before: such clients exist.
        assert told(await client.ask(request(batch(0, LONG, codec=1)), 2)) == [(0, 0)]
        assert told(await client.ask(request(batch(LONG, 1, codec=1)), 2)) == [(0, LONG)]


async def test_a_client_that_disconnects_is_dropped(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as witness:
        await topic(broker)
        thread = with_thread(broker)
        records = bytes(build_batch([Record(i, NOW_MS, None, b"v", []) for i in range(LONG)], codec=4))
        clients: list[Client] = []
        async with connected(broker) as first, connected(broker) as second:
            clients += [first, second]
            await first.send(request(records), 9)
            await thread.waits.wait()
            await second.send(request(records), 9)
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        thread.go.set()
        await trio.testing.wait_all_tasks_blocked()
        # The first was on its way; of the second nothing was begun.
        assert thread.calls == 1
        assert told(await witness.ask(request(records), 9)) == [(0, LONG)]


async def test_in_a_transaction(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        records = [Record(i, NOW_MS, None, b"v", []) for i in range(LONG)]
        long = bytes(
            build_batch(
                records,
                codec=4,
                producer_id=who[0],
                producer_epoch=who[1],
                base_sequence=0,
                transactional=True,
            )
        )
        asked = transactional(("t", 0, long))
        assert await t.write(asked, NEW) == [0]
        await t.end(who)
        assert len(await t.read()) == LONG


async def test_trouble_in_the_thread_costs_one_connection(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.abc.Clock
) -> None:
    async def broken(function: Callable[..., Any], *arguments: Any) -> Any:
        raise MemoryError

    async with embedded_broker() as broker, connected(broker) as client, connected(broker) as witness:
        await topic(broker)
        broker.services.held._offload = broken
        await client.send(request(batch(0, LONG)), 9)
        with pytest.raises((trio.BrokenResourceError, EOFError)):
            await client.receive_frame()
        assert told(await witness.ask(request(batch(0, 1)), 9)) == [(0, 0)]
    assert [record.getMessage() for record in caplog.records if "continuing with PRODUCE" in record.getMessage()]


@pytest.mark.parametrize("long", [0, 1])
async def test_a_lost_write_is_answered_with_an_error(
    tmp_path: Path, long: int, autojump_clock: trio.abc.Clock
) -> None:
    """Though another batch has its offset by the time when all of its request is done."""
    disk = FaultyDisk()
    batches = [batch(0, LONG if index == long else 1) for index in (0, 1)]
    other = bytes(build_batch([Record(0, NOW_MS, None, b"other", [])] * (LONG // 2)))
    async with (
        embedded_broker(tmp_path, num_partitions="3", disk=disk) as broker,
        connected(broker) as client,
        connected(broker) as witness,
    ):
        await topic(broker)
        thread = with_thread(broker)

        def fail() -> None:
            disk.break_below(tmp_path / "t-0", errno.EMFILE)
            thread.before = lambda: None
            thread.go = trio.Event()

        if long:
            fail()
        else:
            thread.before = fail
        await client.send(to_partitions([*batches, batch(0, LONG)]), 9)
        await thread.waits.wait()
        if not long:
            # It is lost when it is appended. The last batch of the request keeps it from being answered yet.
            thread.go.set()
            while thread.calls < 2:
                await trio.lowlevel.checkpoint()
        disk.heal()
        for offset in (0, LONG // 2):
            assert told(await witness.ask(to_partitions([other]), 9)) == [(0, offset)]
        thread.go.set()
        answers = told(await client.receive(request(None), 9))
        assert answers == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0), (0, 0)]


async def test_messages_of_old_clients_are_compressed_elsewhere(autojump_clock: trio.abc.Clock) -> None:
    """Compressing is one long step, at the level that the topic asks for."""
    inner = b"".join(message_entry(offset, 0, b"value %d" % offset) for offset in range(50))
    wrapper = message_entry(0, 1, compress(1, inner))
    async with embedded_broker(compression_type="zstd") as broker, connected(broker) as client:
        await topic(broker)
        thread = with_thread(broker)
        thread.go.set()
        assert told(await client.ask(request(wrapper), 2)) == [(0, 0)]
        assert thread.calls == 1
        ((_, header),) = iter_headers(await read_all(client))
        assert (header.codec, header.record_count) == (4, 50)


def message_entry(offset: int, codec: int, value: bytes) -> bytes:
    """A message of format 1."""
    body = struct.pack(">bbqii", 1, codec, NOW_MS, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
