"""Clients over real loopback sockets for a broker in the same process, and what its tests ask of both ends."""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    ApiVersionsRequest,
    MetadataRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.network.reactor import Reactor
from barnabas.server.testing import Client
from barnabas.server.tests.apis.records.test_produce import batch, only, request

MIB = 1 << 20
SECONDS = 120
HEADERS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SMALL = 32 * 1024
SMALL_BUFFERS = {"socket_send_buffer_bytes": str(SMALL)}
"""A slow reader must not hide behind the megabytes that the kernel would keep for it."""


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    """No peer can do what deserves an error in our log."""
    with caplog.at_level(logging.INFO, "barnabas"):
        yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture(autouse=True, params=["epoll", "poll"])
def sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the reactor learns which sockets are ready, and sends: as on Linux, or as where there is no epoll."""
    monkeypatch.setattr("barnabas.server.network.reactor.PORTABLE", request.param == "poll")


@asynccontextmanager
async def dialled(broker: Broker, *, receive_buffer_bytes: int = 0) -> AsyncIterator[Client]:
    """A client over TCP."""
    sock = trio.socket.socket()
    if receive_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    host, _, port = broker.bootstrap.rpartition(":")
    await sock.connect((host, int(port)))
    async with trio.SocketStream(sock) as stream:
        yield Client(stream)


def reactor(broker: Broker) -> Reactor:
    return broker.parts.reactor


async def until(condition: Callable[[], object]) -> None:
    """Let the broker work until `condition` holds."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def closed_by_broker(client: Client) -> bool:
    """True when the broker ends the connection without another byte."""
    try:
        return await client.stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True


async def fine(client: Client) -> None:
    """The witness gets a right answer."""
    response = await client.ask(MetadataRequest(topics=[]), 12)
    assert [broker.node_id for broker in response.brokers] == [1]


def reset(client: Client) -> None:
    """Close with a RST, as a crashing peer or a firewall does."""
    sock = client.stream.socket  # type: ignore[attr-defined]
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@asynccontextmanager
async def moved_by_hand(clock: MockClock) -> AsyncIterator[None]:
    """Virtual time that stands still by itself: it would run away while bytes are between two sockets. At the end it
    runs, for the broker has to stop.
    """
    try:
        yield
    finally:
        clock.autojump_threshold = 0


async def fill(client: Client, count: int, size: int = 900_000) -> list[bytes]:
    """Produce `count` records of `size` bytes, one batch each, into t-0; their values."""
    rng = random.Random(7)
    sent = [rng.randbytes(size) for _ in range(count)]
    for value in sent:
        assert only(await client.ask(request(batch(value)), 9)).error_code == 0
    return sent
