"""A broker whose clock is advanced: all that waits for time to pass happens at once, and in order."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from barnabas.kproto import ErrorCode as E
from barnabas.kproto.messages import ApiVersionsRequest, FetchRequest, InitProducerIdRequest
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets
from barnabas.server.client.groups.groups import describe_groups
from barnabas.server.client.groups.values import Group
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.runtime.virtual_clock import VirtualClock
from barnabas.server.testing import Client as RawClient
from barnabas.server.testing import connected
from barnabas.server.tests.broker.lives_kit import Transactional, ask, client_of, join, living, produce

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0


@pytest.fixture
def clock() -> VirtualClock:
    """Of the test's loop."""
    return VirtualClock()


async def test_retention(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1), NewTopic("kept", 1, settings={"retention.ms": "-1"})])
        for topic in ("a", "kept"):
            await produce(lives, topic, [b"x", b"y"])
        log, kept = (lives.services.partitions.get(topic, 0).log for topic in ("a", "kept"))
        await lives.advance(6 * DAY_S)
        assert log.log_start_offset == 0
        await produce(lives, "kept", [b"z"])
        await lives.advance(DAY_S + 10 * MINUTE_S)
        assert (log.log_start_offset, kept.log_start_offset) == (2, 0)
        # And what follows from that, a minute later: the files are unlinked.
        assert [path.name for path in Path(log.directory).iterdir() if path.name.endswith(".deleted")] == []
        assert not (Path(log.directory) / f"{0:020}.log").exists()


async def test_sessions_of_members(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await join(lives, "g", session_timeout_ms=300_000)  # real time passes too, more of it on a busy machine

        async def state() -> str:
            found = (await describe_groups(client, ["g"]))["g"]
            assert isinstance(found, Group)
            return found.state

        await lives.advance(150)
        assert await state() == "Stable"
        await lives.advance(151)
        assert await state() == "Empty"


async def test_transactions(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        producer = Transactional(lives, "t", timeout_ms=600_000)
        await producer.begin()
        await producer.write("a", 0, [b"x"])
        partition = lives.services.partitions.get("a", 0)
        await lives.advance(400)
        assert partition.log.last_stable_offset(partition.high_watermark) == 0
        await lives.advance(300)
        assert partition.log.last_stable_offset(partition.high_watermark) == 2
        assert await producer.end(commit=True) == E.PRODUCER_FENCED


async def test_committed_offsets(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1, settings={"retention.ms": "-1"})])
        await produce(lives, "a", [b"x"])
        await commit_offsets(client, "g", {("a", 0): 1})
        await lives.advance(6 * DAY_S)
        assert list((await committed_offsets(client, ["g"]))["g"]) == [("a", 0)]
        await lives.advance(DAY_S + 20 * MINUTE_S)
        assert (await committed_offsets(client, ["g"]))["g"] == {}


async def test_producers(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1, settings={"retention.ms": "-1"})])
        answer = await ask(lives, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        numbers = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch, "base_sequence": 0}
        await produce(lives, "a", [b"x"], **numbers)
        log = lives.services.partitions.get("a", 0).log
        await lives.advance(23 * HOUR_S)
        assert log.producer_count == 1
        await lives.advance(2 * HOUR_S)
        assert log.producer_count == 0


async def test_compaction_and_its_lag(clock: VirtualClock, tmp_path: Path) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "1000",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "7200000",
    }
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1, settings=settings)])
        for _ in range(20):
            await produce(lives, "a", [b"x" * 100], keyed=True)
        log = lives.services.partitions.get("a", 0).log
        before = log.size
        await lives.advance(HOUR_S)
        assert log.size == before
        await lives.advance(2 * HOUR_S)
        assert log.size < before / 2


async def test_requests_that_wait(clock: VirtualClock, tmp_path: Path) -> None:
    request = FetchRequest(
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchRequest.FetchTopic(
                topic="a",
                partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        async with connected(lives.broker) as raw:
            await raw.send(request, 11)
            await lives.advance(3400)
            with trio.move_on_after(0.05) as limit:
                await raw.receive(request, 11)
            assert limit.cancelled_caught
            await lives.advance(201)
            assert (await raw.receive(request, 11)).error_code == E.NONE


async def test_connections_are_not_idle_for_that(clock: VirtualClock, tmp_path: Path) -> None:
    """`connections.max.idle.ms` is 10 minutes."""
    async with living(tmp_path, clock) as lives:
        host, _, port = lives.bootstrap.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            raw = RawClient(stream)
            await raw.ask(ApiVersionsRequest(), 0)
            await lives.advance(30 * DAY_S)
            assert (await raw.ask(ApiVersionsRequest(), 0)).error_code == E.NONE


async def test_two_at_once_take_turns(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives:
        before_ms = lives.now_ms()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lives.advance, DAY_S)
            nursery.start_soon(lives.advance, DAY_S)
            nursery.start_soon(lives.snapshot)
        assert 0 <= lives.now_ms() - before_ms - 2 * DAY_S * 1000 < 600_000
