"""The listener of metrics: paths, formats, health from the start of a broker to its end; and brokers without it."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
from pathlib import Path

import h11
import pytest
import trio
import trio.testing

from barnabas.server.broker.broker import Broker
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.coordinators.coordinated_shard import ShardState
from barnabas.server.httpd.http_server import Request
from barnabas.server.metrics import service
from barnabas.server.metrics.service import prefers_open_metrics, takes_gzip
from barnabas.server.network.listeners import CannotListen
from barnabas.server.runtime.offload import inline
from barnabas.server.testing import TEST_SETTINGS, embedded_broker
from barnabas.server.tests.metrics.kit import OPEN_METRICS, Scraped, ask, http, measured_broker, scrape


def address(broker: Broker) -> str:
    assert broker.metrics_address is not None
    return broker.metrics_address


async def test_paths() -> None:
    async with measured_broker() as broker:
        at = address(broker)
        live = await http(at, "/health/live")
        assert (live.status, live.body) == (200, b"alive\n")
        ready = await http(at, "/health/ready")
        assert (ready.status, ready.body) == (200, b"ready\n")
        assert (await http(at, "/")).body == b"/metrics\n/health/live\n/health/ready\n"
        for path in ("/metric", "/metrics/", "/../etc/passwd", "/health", "/%2e%2e"):
            assert (await http(at, path)).status == 404
        assert (await http(at, "/metrics", "POST")).status == 405
        head = await http(at, "/metrics", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert int(head.headers["content-length"]) > 10_000


async def test_both_formats_are_valid_and_say_the_same() -> None:
    async with measured_broker() as broker:
        text, opened = await scrape(broker), await scrape(broker, OPEN_METRICS)
        assert text.names == opened.names
        assert opened("kafka_server_kafkaserver_brokerstate") == 3
        documented = [family.documentation for family in opened.families]
        assert all(text.endswith(".") for text in documented), documented


async def test_gzip() -> None:
    async with measured_broker() as broker:
        packed = await http(address(broker), "/metrics", Accept_Encoding="br;q=1.0, gzip;q=0.5")
        plain = await http(address(broker), "/metrics")
        assert packed.headers["content-encoding"] == "gzip"
        assert Scraped(gzip.decompress(packed.body).decode()).names == Scraped(plain.body.decode()).names
        assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (OPEN_METRICS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0.5, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        (";;;,,,q=", False),
    ],
)
def test_which_format(accept: str, is_open: bool) -> None:
    assert prefers_open_metrics(accept) is is_open


@pytest.mark.parametrize(
    ("header", "takes"),
    [("", False), ("gzip", True), ("GZIP;q=0.1", True), ("gzip;q=0", False), ("*", True), ("identity", False)],
)
def test_who_takes_gzip(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes


async def test_who_asks_together_shares_a_page() -> None:
    """The first gets one, and those who come while it is made the next: they must not be told what was before."""
    async with measured_broker() as broker:
        bodies = set()

        async def once() -> None:
            bodies.add((await http(address(broker), "/metrics")).body)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(once)
        assert len(bodies) < 10
        before = set(bodies)
        await once()
        assert bodies != before


async def test_who_asks_too_soon_waits(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAGE_S", 1.0)
    config = BrokerConfig.from_values({"metrics.listener": "http://127.0.0.1:0"})
    metrics = service.MetricsService(lambda: config, inline, "test")
    for number in range(1, 4):
        await metrics._handle(Request("GET", "/metrics", "", {}, b""))
        assert trio.current_time() == (number - 1) * service.PAGE_S
        await trio.sleep(0.1)
    metrics.close()


async def test_health_from_start_to_end(tmp_path: Path) -> None:
    """Alive all the time; ready between."""
    loading, go_on = trio.Event(), trio.Event()

    async def offload(function: object, *args: object) -> object:
        if not loading.is_set():
            loading.set()
            await go_on.wait()
        return function(*args)  # type: ignore[operator]

    settings = {**TEST_SETTINGS, "log.dirs": str(tmp_path), "metrics.listener": "http://127.0.0.1:0"}
    broker = Broker(BrokerConfig.from_values(settings), offload=offload)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nursery.start, broker.run)
        await loading.wait()
        at = address(broker)
        assert (await http(at, "/health/live")).status == 200
        starting = await http(at, "/health/ready")
        assert (starting.status, starting.body) == (503, b"the broker starts\n")
        names = (await http(at, "/metrics")).body
        assert b"process_cpu_seconds_total" in names
        assert b"kafka_" not in names.replace(b"kafka_server_kafkaserver_linux_disk", b"")
        go_on.set()
        while (await http(at, "/health/ready")).status != 200:
            await trio.lowlevel.checkpoint()
        broker._is_open = False
        assert (await http(at, "/health/ready")).body == b"the broker stops\n"
        await broker.stop()
    with pytest.raises(OSError):
        await http(at, "/health/live")


async def test_a_coordinator_that_loads_is_not_ready() -> None:
    async with measured_broker() as broker:
        await broker.services.topics.auto_create(["__consumer_offsets"])
        shards = broker.services.groups.runtime.shards
        assert len(shards) == 5
        assert (await http(address(broker), "/health/ready")).status == 200
        led = shards[3]
        led.suspend()
        assert led.state is ShardState.LOADING
        reply = await http(address(broker), "/health/ready")
        assert (reply.status, reply.body) == (503, b"the coordinator of groups is reading 1 of 5 partitions\n")
        led.activate()


async def test_a_keep_alive_connection_does_not_hold_up_the_stop() -> None:
    async with measured_broker() as broker:
        host, _, port = address(broker).removeprefix("http://").rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await ask(stream, h11.Connection(h11.CLIENT), "/health/live")
    async with stream:
        assert await stream.receive_some() == b""


async def test_a_port_in_use_stops_the_start(tmp_path: Path) -> None:
    async with measured_broker() as broker:
        with pytest.raises(ExceptionGroup) as caught:
            async with embedded_broker(tmp_path, metrics_listener=address(broker)):
                raise AssertionError
        (error,) = caught.value.exceptions
        assert isinstance(error, CannotListen)
        assert str(error).startswith("metrics.listener: cannot listen on http://127.0.0.1:")


async def test_errors_of_the_start_are_as_without_metrics(tmp_path: Path) -> None:
    async with embedded_broker(tmp_path):
        settings = {**TEST_SETTINGS, "log.dirs": str(tmp_path), "metrics.listener": "http://127.0.0.1:0"}
        with pytest.raises(Exception, match="is in use by another broker") as caught:
            await Broker(BrokerConfig.from_values(settings)).run()
        assert not isinstance(caught.value, BaseExceptionGroup)


async def test_a_listener_for_all_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.metrics"):
        async with embedded_broker(metrics_listener="http://0.0.0.0:0") as broker:
            assert (await http(address(broker), "/health/live")).status == 200
    assert "metrics are open to other machines without access control: http://0.0.0.0:0" in caplog.text


async def test_without_a_host_both_loopback_addresses(caplog: pytest.LogCaptureFixture) -> None:
    async with embedded_broker(metrics_listener="http://:0") as broker:
        port = address(broker).rpartition(":")[2]
        assert (await http(f"http://127.0.0.1:{port}", "/health/live")).status == 200
    assert "open to other machines" not in caplog.text


@pytest.mark.parametrize("text", ["9308", "https://h:1", "http://h", "http://h:65536", "http://a b:1", "http://h:1/x"])
def test_bad_listeners_are_refused(text: str) -> None:
    with pytest.raises(SettingsRefused, match=r"metrics\.listener=.*http://host:port"):
        BrokerConfig.from_values({"metrics.listener": text})


async def test_a_broker_without_metrics_has_none() -> None:
    async with embedded_broker() as broker:
        assert broker.metrics_address is None
        assert broker.parts.reactor.meter is None


def test_a_broker_without_metrics_loads_nothing_of_them() -> None:
    script = (
        "import sys, trio\nfrom barnabas.server.testing import embedded_broker\n"
        "async def main():\n    async with embedded_broker(): pass\n"
        "trio.run(main)\nfound = ('metrics', 'h11', 'server.telemetry')\n"
        "print([name for name in sys.modules if any(each in name for each in found)])\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    tables = ["barnabas.server.settings.client_metrics", "barnabas.server.settings.metrics"]
    assert done.stdout == f"{tables}\n"
