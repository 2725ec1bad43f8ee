"""Fetches of very many partitions: in turns with all other work, with the same answers as small ones."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.partitions.registry import Partitions
from barnabas.server.testing import connected
from barnabas.server.tests.apis.records.test_fetch import produce
from barnabas.server.tests.apis.records.test_produce import batch
from barnabas.server.tests.apis.test_large_requests import Calls, asking

MANY = 5000


def fetch(
    topics: dict[str, int], *, session_id: int = 0, epoch: int = -1, wait_ms: int = 0, version: int = 12
) -> FetchRequest:
    asked = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[
                FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                for index in range(count)
            ],
        )
        for name, count in topics.items()
    ]
    limits = {"max_bytes": 100_000} if version >= 3 else {}
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=asked, **limits
    )


def found(response: FetchResponse) -> dict[str, int]:
    return {topic.topic: len(topic.partitions) for topic in response.responses}


def codes(response: FetchResponse) -> set[int]:
    return {each.error_code for topic in response.responses for each in topic.partitions}


async def test_a_session_of_very_many_unknown_partitions(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with asking() as (broker, client), trio.open_nursery() as nursery:
        calls = Calls()
        monkeypatch.setattr(Partitions, "get", calls.counted(Partitions.get))
        nursery.start_soon(calls.watch)
        first = await client.ask(fetch({"nowhere": MANY, "elsewhere": MANY}, epoch=0), 12)
        assert first.session_id
        assert found(first) == {"nowhere": MANY, "elsewhere": MANY}
        again = await client.ask(fetch({}, session_id=first.session_id, epoch=1), 12)
        assert codes(again) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert found(again) == {"nowhere": MANY, "elsewhere": MANY}
        more = await client.ask(fetch({"third": MANY}, session_id=first.session_id, epoch=2), 12)
        assert found(more) == {"nowhere": MANY, "elsewhere": MANY, "third": MANY}
        assert broker.services.fetch_sessions.size == 3 * MANY
        assert 0 < calls.most <= 1500
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [3, 12])
async def test_a_large_fetch_waits_for_what_is_produced(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with asking(num_partitions="2100") as (broker, client), connected(broker) as producer:
        await broker.services.topics.auto_create(["t"])
        await client.send(fetch({"t": 2100}, wait_ms=60_000, version=version), version)
        await trio.sleep(1)
        began = trio.current_time()
        await produce(producer, batch(b"a"))
        response = await client.receive(FetchRequest(), version)
        assert trio.current_time() - began < 1
        assert found(response) == {"t": 2100}
        assert [len(each.records) > 0 for each in response.responses[0].partitions] == [True] + [False] * 2099
        assert not any(broker.services.partitions.get("t", index)._waiters for index in range(2100))


async def test_a_large_fetch_ends_with_its_time_or_its_client(autojump_clock: trio.testing.MockClock) -> None:
    async with asking(num_partitions="2100") as (broker, client), connected(broker) as other:
        await broker.services.topics.auto_create(["t"])
        began = trio.current_time()
        response = await client.ask(fetch({"t": 2100}, wait_ms=5000), 12)
        assert 5 <= trio.current_time() - began < 6
        assert codes(response) == {0}
        await other.send(fetch({"t": 2100}, wait_ms=1_000_000), 12)
        await trio.sleep(1)
        waiting: Any = broker.services.partitions.get("t", 7)._waiters
        assert len(waiting) == 1
        await other.stream.aclose()
        await trio.sleep(1)
        assert not waiting
