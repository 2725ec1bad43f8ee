"""A broker with metrics, clients over TCP, and scrapes that are read as Prometheus reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h11
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from barnabas.server.broker.broker import Broker
from barnabas.server.metrics import service
from barnabas.server.testing import Client, embedded_broker

OPEN_METRICS = "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus sends."""

Labels = dict[str, str]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def http(address: str, path: str, method: str = "GET", **headers: str) -> Reply:
    """One request over a connection of its own."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as stream:
        return await ask(stream, h11.Connection(h11.CLIENT), path, method, **headers)


async def ask(
    stream: trio.abc.Stream, connection: h11.Connection, path: str, method: str = "GET", **headers: str
) -> Reply:
    """One request over an open connection."""
    named = [("Host", "test"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    await stream.send_all(connection.send(h11.Request(method=method, target=path, headers=named)) or b"")
    await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
    return await answer(stream, connection)


async def answer(stream: trio.abc.Stream, connection: h11.Connection) -> Reply:
    """The next answer on a connection."""
    status, found, body = 0, {}, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(1 << 16)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            found = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            assert isinstance(event, h11.EndOfMessage), event
            if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
                connection.start_next_cycle()
            return Reply(status, found, body)


class Scraped:
    """A scrape: the value of each sample by name and labels."""

    def __init__(self, text: str, *, is_open: bool = False) -> None:
        self.text = text
        self.families = list((parse_open_metrics if is_open else parse_text)(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """The value of the one sample with that name and just these labels."""
        (found,) = [one.value for one in self.samples if one.name == name and one.labels == labels]
        return float(found)

    def labelled(self, name: str) -> list[tuple[Labels, float]]:
        """All samples with a name."""
        return [(dict(one.labels), float(one.value)) for one in self.samples if one.name == name]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}


async def scrape(broker: Broker, accept: str = "") -> Scraped:
    """A fresh page."""
    broker._metrics._last = None  # type: ignore[union-attr]
    assert broker.metrics_address is not None
    reply = await http(broker.metrics_address, "/metrics", **({"Accept": accept} if accept else {}))
    assert reply.status == 200
    is_open = accept == OPEN_METRICS
    assert reply.headers["content-type"].startswith("application/openmetrics-text" if is_open else "text/plain")
    return Scraped(reply.body.decode(), is_open=is_open)


@asynccontextmanager
async def measured_broker(directory: Path | None = None, **settings: str) -> AsyncIterator[Broker]:
    async with embedded_broker(directory, metrics_listener="http://127.0.0.1:0", **settings) as broker:
        yield broker


@asynccontextmanager
async def dialled(broker: Broker) -> AsyncIterator[Client]:
    """A client over TCP: requests over memory streams are not counted."""
    host, _, port = broker.bootstrap.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Client(stream)


def of_page(page: Any) -> Scraped:
    """What a page says, without HTTP."""
    return Scraped(b"".join(piece for piece, _ in page.render(service.TEXT)).decode())
