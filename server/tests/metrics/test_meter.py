"""Requests are counted exactly, whatever way they take, and timed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from random import Random

import pytest
import trio

from barnabas.kproto import ApiKey
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.metrics import meter as meter_module
from barnabas.server.metrics.meter import Meter, name_of
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import Scraped, dialled, measured_broker, scrape


@pytest.fixture(params=[True, False], ids=["every round is timed", "few rounds are timed"], autouse=True)
def timed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(meter_module, "TIMED_EVERY_NS", 0)
    return bool(request.param)


def count(page: Scraped, api: str, version: int) -> float:
    return page("kafka_network_requestmetrics_requests_total", request=api, version=str(version))


def timings(page: Scraped, api: str) -> dict[str, float]:
    """How many requests the histograms of an API have, by phase."""
    return {
        labels["phase"]: value
        for labels, value in page.labelled("barnabas_request_duration_seconds_count")
        if labels["request"] == api
    }


def fetch(offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    place = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[place])],
    )


async def topic(broker: Broker) -> None:
    await broker.services.topics.auto_create(["t"])


async def test_each_request_counts_once(timed: bool) -> None:
    rng = Random(3)
    async with measured_broker() as broker, dialled(broker) as one, dialled(broker) as two:
        await topic(broker)
        sent = {"Produce": 0, "Metadata": 0, "FetchConsumer": 0}
        for _ in range(120):
            client = rng.choice([one, two])
            kind = rng.choice(["Produce", "Produce", "Metadata", "FetchConsumer"])
            if kind == "Produce":
                burst = rng.choice([1, 1, 5, 40])
                for _ in range(burst):
                    await client.send(request(batch(b"x" * rng.randrange(200)), acks=rng.choice([1, -1])), 9)
                for _ in range(burst):
                    await client.receive(ProduceRequest(), 9)
                sent[kind] += burst
            elif kind == "Metadata":
                await client.ask(MetadataRequest(topics=[]), 12)
                sent[kind] += 1
            else:
                await client.ask(fetch(0), 12)
                sent[kind] += 1
        page = await scrape(broker)
        assert count(page, "Produce", 9) == sent["Produce"]
        assert count(page, "Metadata", 12) == sent["Metadata"]
        assert count(page, "FetchConsumer", 12) == sent["FetchConsumer"]
        assert set(timings(page, "Metadata").values()) == {sent["Metadata"]}
        if timed:
            assert set(timings(page, "Produce").values()) == {sent["Produce"]}
            assert set(timings(page, "FetchConsumer").values()) == {sent["FetchConsumer"]}
        else:
            assert 0 < timings(page, "Produce")["total"] <= sent["Produce"]
        topic_only = page("kafka_server_brokertopicmetrics_totalproducerequests_total", topic="t")
        assert topic_only == sent["Produce"]
        assert page("barnabas_client_requests_total", client_id="test") == sum(sent.values())


async def test_requests_without_an_answer_and_several_versions() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await topic(broker)
        for _ in range(3):
            await client.send(request(batch(b"a"), acks=0), 8)
        await client.ask(request(batch(b"a")), 7)
        await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        page = await scrape(broker)
        assert count(page, "Produce", 8) == 3
        assert count(page, "Produce", 7) == 1
        assert count(page, "ApiVersions", 3) == 1


async def test_bytes_by_client_are_those_on_the_wire() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await topic(broker)
        asked = request(batch(b"x" * 5000))
        size = 3 * len(request_frame(9, 1, "sizes", asked))
        answered = 0
        for _ in range(3):
            await client.send(asked, 9, client_id="sizes")
            answered += 4 + len(await client.receive_frame())
        page = await scrape(broker)
        assert page("barnabas_client_bytes_in_total", client_id="sizes") == size
        assert page("barnabas_client_bytes_out_total", client_id="sizes") == answered
        assert page("barnabas_client_requests_total", client_id="sizes") == 3


async def test_clients_beyond_the_limit_count_together() -> None:
    async with measured_broker(metrics_clients_max="2") as broker:
        for name in ("a", "b", "c", "d", "a"):
            async with dialled(broker) as client:
                await client.ask(MetadataRequest(topics=[]), 12, client_id=name)
        page = await scrape(broker)
        found = {labels["client_id"]: value for labels, value in page.labelled("barnabas_client_requests_total")}
        assert found == {"a": 2, "b": 1, "other": 2}
        # What was counted stays: counters do not fall when connections end.
        assert (await scrape(broker))("barnabas_client_requests_total", client_id="other") == 2


async def test_a_client_that_changes_its_name() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        for name in ("a", "b", "a", None):
            await client.ask(MetadataRequest(topics=[]), 12, client_id=name)
        page = await scrape(broker)
        found = {labels["client_id"]: value for labels, value in page.labelled("barnabas_client_requests_total")}
        assert sum(found.values()) == 4
        assert set(found) >= {"a", "b"}


async def test_a_fetch_that_waits_is_timed_as_waiting(timed: bool) -> None:
    async with measured_broker() as broker, dialled(broker) as waiting, dialled(broker) as producer:
        await topic(broker)
        meter = broker.parts.reactor.meter
        assert isinstance(meter, Meter)
        meter._timed_again_ns = 0
        await waiting.send(fetch(0, max_wait_ms=10_000), 12)
        while not broker.services.partitions.get("t", 0).waiters:
            await trio.lowlevel.checkpoint()
        real = meter.clock
        meter.clock = lambda: real() + 50_000_000  # later
        await producer.ask(request(batch(b"a")), 9)
        await waiting.receive(FetchRequest(), 12)
        page = await scrape(broker)
        seconds = {
            labels["phase"]: value
            for labels, value in page.labelled("barnabas_request_duration_seconds_sum")
            if labels["request"] == "FetchConsumer"
        }
        assert timings(page, "FetchConsumer")["total"] == 1
        assert seconds["waiting"] >= 0.05
        assert seconds["total"] == pytest.approx(sum(seconds[phase] for phase in seconds if phase != "total"))
        quantile = page("kafka_network_requestmetrics_remotetimems", request="FetchConsumer", quantile="0.99")
        assert quantile >= 45


async def test_errors_by_api() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await topic(broker)
        await client.ask(request(batch(b"a"), topic="nowhere"), 9)
        await client.ask(request(batch(b"a"), index=77), 9)
        await client.ask(fetch(999), 12)
        page = await scrape(broker)
        errors = {
            (labels["request"], labels["error"]): value
            for labels, value in page.labelled("kafka_network_requestmetrics_errors_total")
        }
        assert errors == {("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2, ("Fetch", "OFFSET_OUT_OF_RANGE"): 1}


async def test_a_client_that_does_not_read(timed: bool) -> None:
    """Its answers are being sent until its socket has taken them."""
    async with measured_broker(socket_send_buffer_bytes="65536") as broker, dialled(broker) as client:
        await topic(broker)
        meter = broker.parts.reactor.meter
        assert isinstance(meter, Meter)
        for _ in range(20):
            await client.ask(request(batch(bytes(500_000))), 9)
        meter._timed_again_ns = 0
        asked = fetch(0)
        asked.max_bytes = 50 << 20
        asked.topics[0].partitions[0].partition_max_bytes = 50 << 20
        await client.send(asked, 12)
        while not meter._late:
            await trio.lowlevel.checkpoint()
        assert "FetchConsumer" not in {
            labels["request"]
            for labels, value in (await scrape(broker)).labelled("barnabas_request_duration_seconds_count")
            if value
        }
        await client.receive(FetchRequest(), 12)
        while meter._late:
            await client.ask(MetadataRequest(topics=[]), 12)
        assert timings(await scrape(broker), "FetchConsumer")["sending"] == 1
        # One that leaves without reading is forgotten.
        meter._timed_again_ns = 0
        await client.send(asked, 12)
        while not meter._late:
            await trio.lowlevel.checkpoint()


async def test_a_connection_that_ends_while_it_waits() -> None:
    async with measured_broker() as broker, dialled(broker) as other:
        await topic(broker)
        async with dialled(broker) as client:
            await client.send(fetch(0, max_wait_ms=60_000), 12)
            while not broker.services.partitions.get("t", 0).waiters:
                await trio.lowlevel.checkpoint()
            assert isinstance(client.stream, trio.SocketStream)
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        while broker.services.partitions.get("t", 0).waiters:
            await trio.lowlevel.checkpoint()
        await other.ask(MetadataRequest(topics=[]), 12)
        page = await scrape(broker)
        assert count(page, "FetchConsumer", 12) == 1


def test_names_are_apache_kafkas() -> None:
    assert [name_of(key) for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.LEADER_AND_ISR, ApiKey.END_TXN)] == [
        "InitProducerId",
        "LeaderAndIsr",
        "EndTxn",
    ]


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT])
def test_each_of_many_stands_for_its_share(key: ApiKey, timed: bool) -> None:
    """Without a broker: a round in which most are not timed. Of an API that is not frequent fast paths are."""
    meter = Meter(lambda: 0.0, lambda: 10, clock=_ticking())

    class Route:
        api = type("Api", (), {"key": key})
        version = 9
        name = key.name
        taken = 0

        @staticmethod
        def encode(response: object) -> list[bytes]:
            return []

        @staticmethod
        def handle(*_: object) -> None: ...

    route = Route()
    meter.watch(route)  # type: ignore[arg-type]

    class Connection:
        out: tuple[()] = ()
        closed = False
        client_id = "c"

    class Slot:
        measured = None
        request_count = 1
        client_id = "c"
        parts = (b"",)

        def __init__(self) -> None:
            self.route = route

    connection = Connection()
    slow = 0
    for _ in range(7):
        meter.round_begins()
        for _ in range(100):
            route.taken += 1
            if meter.note is not None:
                begun = meter.clock()
                meter.note((connection, Slot(), begun, meter.clock()))  # type: ignore[arg-type]
        if key is ApiKey.OFFSET_COMMIT:
            slow += 1
            route.taken += 1
            context = Slot()
            context.connection, context.measured = connection, None  # type: ignore[attr-defined]
            route.handle(None, context, None)
        meter.round_written()
        meter.round_ends()
    usage = meter.apis[name_of(key)]
    timed_count = usage.phases[0].count
    assert timed_count == usage.accounted
    assert timed_count == (700 if timed else 100) + slow


def _ticking() -> Callable[[], int]:
    now = 1 << 60

    def clock() -> int:
        nonlocal now
        now += 1000
        return now

    return clock
