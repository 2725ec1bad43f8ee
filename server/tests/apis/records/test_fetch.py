"""Fetch against a real broker in memory: reading, waiting under virtual time, limits, epochs, sessions."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.kproto.records import iter_headers, iter_records
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, request, topic

MIB = 1 << 20


def fetch(*partitions: tuple[str | bytes, int, int], **fields: Any) -> FetchRequest:
    """`partitions`: (topic name or id, index, offset)."""
    limit = fields.pop("partition_max_bytes", MIB)
    epoch = fields.pop("current_leader_epoch", -1)
    last_epoch = fields.pop("last_fetched_epoch", -1)
    topics = []
    for name, index, offset in partitions:
        asked = FetchRequest.FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=limit,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        if isinstance(name, bytes):
            topics.append(FetchRequest.FetchTopic(topic_id=name, partitions=[asked]))
        else:
            topics.append(FetchRequest.FetchTopic(topic=name, partitions=[asked]))
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "topics": topics, **fields})


def flat(response: FetchResponse) -> dict[int, Any]:
    return {data.partition_index: data for each in response.responses for data in each.partitions}


def values(data: Any) -> list[bytes]:
    raw = bytes(data.records)
    return [bytes(record.value) for position, _ in iter_headers(raw) for record in iter_records(raw, position)]


async def produce(client: Client, *batches: bytes, index: int = 0) -> None:
    for each in batches:
        response = await client.ask(request(each, index=index), 9)
        assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        await produce(client, batch(b"a", b"b"), batch(b"c"))
        name: str | bytes = topic_id if version >= 13 else "t"
        response = await client.ask(fetch((name, 0, 0)), version)
        data = flat(response)[0]
        assert (data.error_code, data.high_watermark, values(data)) == (0, 3, [b"a", b"b", b"c"])
        # From the batch that holds the offset; the client skips what comes before.
        assert values(flat(await client.ask(fetch((name, 0, 1)), version))[0]) == [b"a", b"b", b"c"]
        assert values(flat(await client.ask(fetch((name, 0, 2)), version))[0]) == [b"c"]
        assert values(flat(await client.ask(fetch((name, 0, 3)), version))[0]) == []
        for outside in (-1, 4):
            code = flat(await client.ask(fetch((name, 0, outside)), version))[0].error_code
            assert code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_it_waits_until_the_time_is_over(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        start = trio.current_time()
        response = await client.ask(fetch(("t", 0, 0), max_wait_ms=500), 12)
        assert values(flat(response)[0]) == []
        assert trio.current_time() - start == pytest.approx(0.5, abs=0.001)


async def test_an_append_wakes_it(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as reader, connected(broker) as writer:
        await topic(broker)
        start = trio.current_time()
        await reader.send(fetch(("t", 0, 0), max_wait_ms=30_000), 12)
        await trio.sleep(2)
        await produce(writer, batch(b"news"))
        assert values(flat(await reader.receive(fetch(), 12))[0]) == [b"news"]
        assert trio.current_time() - start == pytest.approx(2, abs=0.001)


async def test_min_bytes_are_waited_for(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as reader, connected(broker) as writer:
        await topic(broker)
        await reader.send(fetch(("t", 0, 0), max_wait_ms=30_000, min_bytes=1000), 12)
        for _ in range(9):
            await produce(writer, batch(b"x" * 100))
            await trio.sleep(1)
        data = flat(await reader.receive(fetch(), 12))[0]
        assert 1000 <= len(data.records) < 1400


async def test_errors_and_zero_waits_answer_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        start = trio.current_time()
        response = await client.ask(fetch(("t", 0, 0), ("nothing", 0, 0), max_wait_ms=9000), 12)
        assert [data.error_code for each in response.responses for data in each.partitions] == [0, 3]
        await client.ask(fetch(max_wait_ms=9000), 12)
        assert trio.current_time() == start


async def test_a_deleted_topic_ends_the_wait(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 12)
        await trio.sleep(1)
        await broker.services.topics.delete_topics(["t"], timeout_ms=60_000)
        assert flat(await client.receive(fetch(), 12))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_lost_client_leaves_no_waiter(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker:
        await topic(broker)
        async with connected(broker) as client:
            await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 12)
            await trio.sleep(1)
            assert len(broker.services.partitions.get("t", 0)._waiters) == 1
        await trio.sleep(1)
        assert len(broker.services.partitions.get("t", 0)._waiters) == 0


async def test_limits_are_soft_for_the_first_batch_only(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client:
        await topic(broker)
        big = batch(b"x" * 5000)
        for index in (1, 2):
            await produce(client, big, big, index=index)
        everything = [("t", index, 0) for index in (0, 1, 2)]
        sizes = [len(d.records) for d in flat(await client.ask(fetch(*everything, max_bytes=10), 12)).values()]
        assert sizes == [0, len(big), 0]
        answer = flat(await client.ask(fetch(*everything, partition_max_bytes=len(big) + 10), 12))
        # A later partition, and the tail of one, may hold part of a batch: clients drop it.
        assert [len(d.records) for d in answer.values()] == [0, len(big) + 10, len(big) + 10]


async def test_leader_epochs_fence(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        partition = broker.services.partitions.get("t", 0)
        now = partition.leader_epoch
        codes = [
            flat(await client.ask(fetch(("t", 0, 0), current_leader_epoch=epoch), 12))[0].error_code
            for epoch in (now, now + 1, -1)
        ]
        assert codes == [0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]
        partition.leader_epoch = now + 1
        answer = flat(await client.ask(fetch(("t", 0, 0), current_leader_epoch=now), 12))[0]
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_diverging_epoch_is_answered_without_records(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await produce(client, batch(b"a", b"b"))
        partition = broker.services.partitions.get("t", 0)
        first = partition.leader_epoch
        partition.log.assign_leader_epoch(first + 5)
        partition.leader_epoch = first + 5
        await produce(client, batch(b"c"))
        data = flat(await client.ask(fetch(("t", 0, 3), last_fetched_epoch=first + 2), 12))[0]
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (first, 2)
        assert values(data) == []
        data = flat(await client.ask(fetch(("t", 0, 3), last_fetched_epoch=first + 5), 12))[0]
        assert data.diverging_epoch.epoch == -1


async def test_a_session_continued_by_an_older_version(autojump_clock: trio.abc.Clock) -> None:
    """Version 11 has no field for a diverging epoch, which version 12 has brought into the session."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await produce(client, batch(b"a", b"b"))
        partition = broker.services.partitions.get("t", 0)
        first = partition.leader_epoch
        partition.log.assign_leader_epoch(first + 5)
        partition.leader_epoch = first + 5
        await produce(client, batch(b"c"))
        session = Session(client)
        assert (await session.ask(("t", 0, 2), last_fetched_epoch=first + 2))[0].diverging_epoch.epoch == first
        session.version = 11
        assert values((await session.ask())[0]) == [b"c"]


async def test_unknown_topic_ids(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        assert flat(await client.ask(fetch((b"\7" * 16, 0, 0)), 13))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert flat(await client.ask(fetch((topic_id, 9, 0)), 13))[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_broker_that_is_no_replica_is_refused(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for version in (4, 8, 12):
            answer = flat(await client.ask(fetch(("t", 0, 0), replica_id=5), version))[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        named = fetch(("t", 0, 0), replica_id=5)
        named.topics[0].partitions[0].current_leader_epoch = 0
        assert flat(await client.ask(named, 9))[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        answer = await client.ask(fetch(("t", 0, 0), replica_id=5), 3)
        assert flat(answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class Session:
    """A client's side of a fetch session."""

    def __init__(self, client: Client, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.session_id = 0
        self.epoch = 0

    async def ask(self, *partitions: tuple[str | bytes, int, int], **fields: Any) -> dict[int, Any]:
        named = fetch(*partitions, session_id=self.session_id, session_epoch=self.epoch, **fields)
        response = await self.client.ask(named, self.version)
        assert response.error_code == 0
        self.session_id = response.session_id
        self.epoch += 1
        return flat(response)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_sessions_answer_what_is_new(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client, connected(broker) as writer:
        topic_id = await topic(broker)
        name: str | bytes = topic_id if version >= 13 else "t"
        session = Session(client, version)
        assert sorted(await session.ask(*[(name, index, 0) for index in range(3)])) == [0, 1, 2]
        assert session.session_id > 0
        assert await session.ask() == {}
        await produce(writer, batch(b"one"), index=1)
        answer = await session.ask()
        assert {index: values(data) for index, data in answer.items()} == {1: [b"one"]}
        # Not moved on: it gets the same again. Moved on: only the news.
        assert values((await session.ask())[1]) == [b"one"]
        assert await session.ask((name, 1, 1)) == {}
        forgotten = FetchRequest.ForgottenTopic(
            topic="" if version >= 13 else "t", topic_id=topic_id if version >= 13 else bytes(16), partitions=[1]
        )
        await session.ask(forgotten_topics_data=[forgotten])
        await produce(writer, batch(b"two"), index=1)
        assert await session.ask() == {}


async def test_a_session_waits_and_is_woken(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client, connected(broker) as writer:
        await topic(broker)
        session = Session(client)
        await session.ask(*[("t", index, 0) for index in range(3)])
        await client.send(
            fetch(session_id=session.session_id, session_epoch=session.epoch, max_wait_ms=60_000), session.version
        )
        await trio.sleep(3)
        await produce(writer, batch(b"news"), index=2)
        answer = flat(await client.receive(fetch(), session.version))
        assert {index: values(data) for index, data in answer.items()} == {2: [b"news"]}


async def test_session_errors(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        session = Session(client)
        await session.ask(("t", 0, 0))
        for session_id, epoch, version, expected in [
            (12345, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (session.session_id, 7, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (session.session_id, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ]:
            name: tuple[str | bytes, int, int] = (topic_id, 0, 0) if version == 13 else ("t", 0, 0)
            answer = await client.ask(fetch(name, session_id=session_id, session_epoch=epoch), version)
            assert answer.error_code == expected
        # The final epoch closes the session.
        answer = await client.ask(fetch(("t", 0, 0), session_id=session.session_id, session_epoch=-1), 12)
        assert answer.session_id == 0
        answer = await client.ask(fetch(session_id=session.session_id, session_epoch=1), 12)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_served_partitions_queue_up_behind_the_others(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client, connected(broker) as writer:
        await topic(broker)
        session = Session(client)
        await session.ask(*[("t", index, 0) for index in range(3)])
        big = batch(b"x" * 1000)
        for index in range(3):
            await produce(writer, big, index=index)
        served = []
        for _ in range(3):
            answer = await session.ask(max_bytes=10)
            served += [index for index, data in answer.items() if len(data.records)]
        assert served == [0, 1, 2]


async def test_without_slots_there_are_no_sessions(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(max_incremental_fetch_session_cache_slots="0") as broker, connected(broker) as client:
        await topic(broker)
        answer = await client.ask(fetch(("t", 0, 0), session_id=0, session_epoch=0), 12)
        assert (answer.error_code, answer.session_id) == (0, 0)
