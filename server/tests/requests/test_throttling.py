"""Clients with quotas, over the wire and in virtual time: their rate, the delays in their answers, and that no other
client is delayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode, encode
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.broker.broker import Broker
from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey, text_of
from barnabas.server.security.quotas.rates import Rate, Window
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.test_every_version import (
    PAIRS,
    REQUESTS,
    SHARE_STATE,
    build,
    prepare,
    settings_for,
    topic,
)

RATE = 10_000.0
VALUE_BYTES = 4_000
PRODUCE_V, FETCH_V = 9, 12
COUNTED_BYTES = 67
"""Of an answer beside its records."""


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with embedded_broker(num_partitions="1") as running, connected(running) as client:
        made = CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)],
            timeout_ms=1000,
        )
        await client.ask(made, 7)
        yield running


async def limit(broker: Broker, value: float, key: QuotaKey, client_id: str = "test") -> None:
    await broker.services.quotas.alter(QuotaEntity(client_id=client_id), {key: text_of(key, value)})


def produce(acks: int = 1, value_bytes: int = VALUE_BYTES, topic_name: str = "t") -> ProduceRequest:
    records = build_batch([Record(0, 1_750_000_000_000, None, bytes(value_bytes), [])])
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic_name, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
            )
        ],
    )


def frame_bytes(request: ProduceRequest, client_id: str = "test") -> int:
    """Of a flexible version: key, version, correlation id, client id, tags, the message."""
    return 2 + 2 + 4 + 2 + len(client_id) + 1 + len(encode(request, PRODUCE_V))


def fetch(offset: int, session_id: int = 0, epoch: int = -1, **more: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=more.get("max_bytes", 1 << 20),
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )


async def test_a_producer_gets_its_rate_and_the_formulas_delays(
    broker: Broker, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(broker, RATE, QuotaKey.PRODUCE)
    recorded: list[tuple[float, float]] = []
    quota = broker.services.quotas.produce
    record = quota.record

    def recording(user: str, client_id: str, value: float, now: float) -> int:
        recorded.append((value, now))
        return record(user, client_id, value, now)

    monkeypatch.setattr(quota, "record", recording)
    request = produce()
    model: Rate | None = None
    size = frame_bytes(request)
    sent, begun_at = 0, 0.0
    async with connected(broker) as client:
        begin = trio.current_time()
        while trio.current_time() < begin + 90:
            response = await client.ask(request, PRODUCE_V)
            assert response.responses[0].partition_responses[0].error_code == 0
            ((value, now),) = recorded
            recorded.clear()
            assert value == size
            model = model or Rate(Window(), now)
            model.record(size, now)
            assert response.throttle_time_ms == model.delay_ms(RATE, now)
            if not begun_at and now >= begin + 30:
                begun_at = now
            elif begun_at:
                sent += size
        assert sent / (trio.current_time() - begun_at) == pytest.approx(RATE, rel=0.05)


async def test_a_consumer_gets_its_rate(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    async with connected(broker) as client:
        for _ in range(300):
            await client.ask(produce(), PRODUCE_V)
        await limit(broker, RATE, QuotaKey.FETCH)
        got, begun_at, offset = 0, 0.0, 0
        begin = trio.current_time()
        while trio.current_time() < begin + 90:
            response = await client.ask(fetch(offset, max_bytes=VALUE_BYTES), FETCH_V)
            now = trio.current_time()
            if response.throttle_time_ms:
                assert response.error_code == 0
                assert response.responses == []
                continue
            assert len(response.responses) == 1
            offset += 1
            if not begun_at and now >= begin + 30:
                begun_at = now
            elif begun_at:
                got += COUNTED_BYTES + len(response.responses[0].partitions[0].records)
        assert got / (trio.current_time() - begun_at) == pytest.approx(RATE, rel=0.05)


async def test_a_throttled_connection_is_not_read_and_others_are(
    broker: Broker, autojump_clock: trio.abc.Clock
) -> None:
    await limit(broker, RATE, QuotaKey.PRODUCE)
    large = produce(value_bytes=200_000)
    async with connected(broker) as client, connected(broker) as other:
        begin = trio.current_time()
        delay_ms = (await client.ask(large, PRODUCE_V)).throttle_time_ms
        assert trio.current_time() < begin + 1  # what it is told does not wait
        assert delay_ms == pytest.approx(10_000, rel=0.02)
        for _ in range(3):
            await client.send(ApiVersionsRequest(), 0)
        for request, version in ((produce(), PRODUCE_V), (MetadataRequest(topics=None), 9)):
            response = await other.ask(request, version, client_id="other")
            assert response.throttle_time_ms == 0
        assert trio.current_time() < begin + 1
        for _ in range(3):
            await client.receive(ApiVersionsRequest(), 0)
            assert begin + 9 < trio.current_time() < begin + 11


async def test_without_an_answer_the_connection_is_muted_all_the_same(
    broker: Broker, autojump_clock: trio.abc.Clock
) -> None:
    await limit(broker, RATE, QuotaKey.PRODUCE)
    async with connected(broker) as client:
        begin = trio.current_time()
        await client.send(produce(acks=0, value_bytes=200_000), PRODUCE_V)
        await client.ask(ApiVersionsRequest(), 0)
        assert trio.current_time() - begin == pytest.approx(10, rel=0.02)


async def test_which_clients_share_a_limit(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    """A default limit of client ids is a bucket for each; connections of one id share it."""
    await broker.services.quotas.alter(QuotaEntity(client_id=""), {QuotaKey.PRODUCE: "10000"})
    async with connected(broker) as one, connected(broker) as two:
        assert (await one.ask(produce(value_bytes=99_000), PRODUCE_V, client_id="a")).throttle_time_ms == 0
        assert (await two.ask(produce(), PRODUCE_V, client_id="b")).throttle_time_ms == 0
        assert (await two.ask(produce(), PRODUCE_V, client_id="a")).throttle_time_ms > 0


async def test_what_is_refused_counts_too(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    await limit(broker, RATE, QuotaKey.PRODUCE)
    async with connected(broker) as client:
        response = await client.ask(produce(value_bytes=200_000, topic_name="nobody's"), PRODUCE_V)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.throttle_time_ms > 0


async def test_a_withheld_fetch_leaves_the_session_as_it_was(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    async with connected(broker) as client:
        for _ in range(10):
            await client.ask(produce(value_bytes=50_000), PRODUCE_V)
        session_id = (await client.ask(fetch(0, max_bytes=1, epoch=0), FETCH_V)).session_id
        assert session_id
        await limit(broker, RATE, QuotaKey.FETCH)
        epoch, empty, got = 0, 0, 0
        while got < 4:
            epoch += 1
            response = await client.ask(fetch(got, session_id, epoch, max_bytes=1), FETCH_V)
            assert (response.error_code, response.session_id) == (0, session_id)
            if response.throttle_time_ms:
                assert response.responses == []
                empty += 1
            else:
                assert len(response.responses[0].partitions[0].records) > 50_000
                got += 1
        assert empty


async def test_a_withheld_fetch_opens_no_session(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    async with connected(broker) as client:
        await client.ask(produce(value_bytes=200_000), PRODUCE_V)
        await limit(broker, RATE, QuotaKey.FETCH)
        response = await client.ask(fetch(0, epoch=0), FETCH_V)
        assert response.throttle_time_ms > 0
        assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
        assert not len(broker.services.fetch_sessions)


async def test_a_fetch_is_cut_to_what_may_pass(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    async with connected(broker) as client:
        for _ in range(60):
            await client.ask(produce(), PRODUCE_V)
        await limit(broker, RATE, QuotaKey.FETCH)
        response = await client.ask(fetch(0), FETCH_V)
        while response.throttle_time_ms:  # a little more than the records counts
            assert response.throttle_time_ms < 100
            response = await client.ask(fetch(0), FETCH_V)
        assert 90_000 < len(response.responses[0].partitions[0].records) <= 100_000


@pytest.mark.parametrize("version", [2, 3, 4, 11, 16])
async def test_fetches_of_every_age_are_limited(broker: Broker, autojump_clock: trio.abc.Clock, version: int) -> None:
    request = fetch(0)
    if version >= 13:
        request.topics[0].topic_id = broker.services.image.topics["t"].topic_id
    async with connected(broker) as client:
        await client.ask(produce(value_bytes=200_000), PRODUCE_V)
        await limit(broker, RATE, QuotaKey.FETCH)
        response = await client.ask(request, version)
        assert response.throttle_time_ms > 0
        assert sum(len(each.records or b"") for found in response.responses for each in found.partitions) == 0


async def test_without_limits_the_fast_paths_serve_and_with_them_not(
    broker: Broker, autojump_clock: trio.abc.Clock
) -> None:
    async with connected(broker) as client, connected(broker) as other:
        for _ in range(3):
            await client.ask(produce(), PRODUCE_V)
        await limit(broker, RATE, QuotaKey.PRODUCE)
        assert (await client.ask(produce(value_bytes=200_000), PRODUCE_V)).throttle_time_ms > 0
        assert (await other.ask(produce(), PRODUCE_V)).throttle_time_ms > 0
        gone = QuotaEntity(client_id="test")
        await broker.services.quotas.alter(gone, {QuotaKey.PRODUCE: None})
        assert (await other.ask(produce(), PRODUCE_V)).throttle_time_ms == 0


NEWEST = dict(PAIRS)
NEVER_TOLD = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
WITHOUT_THE_FIELD = {ApiKey.DESCRIBE_QUORUM, ApiKey.WRITE_TXN_MARKERS, *SHARE_STATE}


@pytest.mark.parametrize("key", [key for key in NEWEST if key not in NEVER_TOLD], ids=lambda key: key.name)
async def test_time_is_limited_for_every_api(key: ApiKey, autojump_clock: trio.abc.Clock) -> None:
    version = NEWEST[key]
    async with embedded_broker(**settings_for(key)) as broker, connected(broker) as client:
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        await limit(broker, 1e-6, QuotaKey.REQUEST)
        request = build(key, REQUESTS[key](world, version))
        begin = trio.current_time()
        response = await client.ask(request, version)
        if not hasattr(response, "throttle_time_ms"):
            assert key in WITHOUT_THE_FIELD
            return
        assert response.throttle_time_ms == 1000  # no more than a window
        told_at = trio.current_time()
        await client.ask(ApiVersionsRequest(), 0)
        assert trio.current_time() - told_at <= 1.001
        assert trio.current_time() - begin >= 1


@pytest.mark.parametrize(("key", "version"), [pair for pair in PAIRS if pair[0] in (ApiKey.PRODUCE, ApiKey.METADATA)])
async def test_versions_without_the_field_are_answered(
    key: ApiKey, version: int, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        await limit(broker, 1e-6, QuotaKey.REQUEST)
        await client.ask(build(key, REQUESTS[key](world, version)), version)


def create(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=f"{name}{number}", num_partitions=partitions, replication_factor=1)
            for number in range(2)
        ],
        timeout_ms=1000,
    )


def delete(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names], timeout_ms=1000
    )


def extend(name: str, count: int) -> CreatePartitionsRequest:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)


async def test_changes_beyond_the_limit_are_refused_until_it_is_time(
    broker: Broker, autojump_clock: trio.abc.Clock
) -> None:
    """Eleven tokens are there at first; what is asked while there are some is done."""
    await limit(broker, 1, QuotaKey.MUTATIONS)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    async with connected(broker) as client:
        response = await client.ask(create("a", 15), 6)
        assert [found.error_code for found in response.topics] == [0, refused]
        assert response.throttle_time_ms == pytest.approx(4000, rel=0.05)  # 11 tokens, less 15
        told_at = trio.current_time()
        response = await client.ask(create("b", 1), 7)
        assert trio.current_time() - told_at == pytest.approx(4, rel=0.05)
        assert [found.error_code for found in response.topics] == [0, refused]
        for request, version, results in (
            (delete(5, "a0"), 5, "responses"),
            (delete(6, "a0"), 6, "responses"),
            (extend("t", 3), 3, "results"),
        ):
            await broker.services.quotas.alter(QuotaEntity(client_id="test"), {QuotaKey.MUTATIONS: None})
            await limit(broker, 1, QuotaKey.MUTATIONS)
            async with connected(broker) as another:
                response = await another.ask(request, version)
                assert [found.error_code for found in getattr(response, results)] == [refused]
                assert response.throttle_time_ms > 0


async def test_older_versions_are_served_and_wait(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    await limit(broker, 1, QuotaKey.MUTATIONS)
    async with connected(broker) as client:
        response = await client.ask(create("a", 15), 5)
        assert [found.error_code for found in response.topics] == [0, 0]
        assert response.throttle_time_ms == pytest.approx(19_000, rel=0.05)
        for request, version, results in ((extend("t", 3), 2, "results"), (delete(4, "a0"), 4, "responses")):
            async with connected(broker) as another:
                response = await another.ask(request, version)
                assert [found.error_code for found in getattr(response, results)] == [0]
                assert response.throttle_time_ms > 0


async def test_what_cannot_be_done_is_not_charged(broker: Broker, autojump_clock: trio.abc.Clock) -> None:
    await limit(broker, 1, QuotaKey.MUTATIONS)
    async with connected(broker) as client:
        for request, version in ((create("bad/", 1000), 7), (delete(6, "nobody's"), 6), (extend("t", 1), 3)):
            response = await client.ask(request, version)
            assert response.throttle_time_ms == 0
        assert [found.error_code for found in (await client.ask(create("a", 5), 7)).topics] == [0, 0]
