"""TLS over the reactor, with a whole broker behind it and real sockets: what OpenSSL's other end makes of it.

`witness` connects without TLS to the same broker, and must not notice anything.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from barnabas.kproto.frame import request_frame
from barnabas.logdir import FileSlice
from barnabas.server.broker.broker import Broker
from barnabas.server.network.connection import Connection
from barnabas.server.network.reactor import HANDSHAKES_PER_ROUND
from barnabas.server.network.tls_carrier import HANDSHAKE_S, Opened, TlsCarrier
from barnabas.server.security.tls.channel import WRITE_BYTES_MAX, TlsChannel, TlsError
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import topic
from barnabas.server.tests.network.tcp_rig import (
    HEADERS,
    MIB,
    SECONDS,
    SMALL,
    SMALL_BUFFERS,
    closed_by_broker,
    dialled,
    fill,
    fine,
    moved_by_hand,
    no_error_is_logged,  # noqa: F401  # around each test
    reactor,
    sockets,  # noqa: F401
    until,
)
from barnabas.server.tests.network.test_sending import fine_elsewhere, log_file

AUTHORITY = trustme.CA()


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    return context


SERVER = _server_context()


def _anybody(connection: Connection, channel: TlsChannel) -> None:
    pass


def _secured(broker: Broker, opened: Opened = _anybody) -> int:
    """Have the broker listen with TLS, too; on this port."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    reactor(broker).add_listener(
        listening,
        broker.parts.admission.accept("SECURE"),
        lambda: TlsCarrier(TlsChannel(SERVER), opened, trio.current_time()),
    )
    port: int = listening.getsockname()[1]
    return port


@asynccontextmanager
async def _over_tls(port: int, *, receive_buffer_bytes: int = 0) -> AsyncIterator[Client]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    async with _over_tcp(port, receive_buffer_bytes=receive_buffer_bytes) as stream:
        secured = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
        await secured.do_handshake()
        yield Client(secured)


@asynccontextmanager
async def _over_tcp(port: int, *, receive_buffer_bytes: int = 0) -> AsyncIterator[trio.SocketStream]:
    sock = trio.socket.socket()
    if receive_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    await sock.connect(("127.0.0.1", port))
    async with trio.SocketStream(sock) as stream:
        yield stream


async def test_large_batches_and_answers_arrive_whole() -> None:
    async with embedded_broker() as broker, _over_tls(_secured(broker)) as client:
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(client, 5)
            response = await client.ask(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            assert values(flat(response)[0]) == sent


async def test_a_file_that_was_cut_closes_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = log_file(tmp_path / "log", bytes(999))
    async with embedded_broker() as broker, _over_tls(_secured(broker)):
        with trio.fail_after(SECONDS):
            (connection,) = reactor(broker).connections
            connection._queue([b"head", FileSlice(file, 0, 1000)])
            connection.wake()
            await until(lambda: connection.closed)
            (record,) = (each for each in caplog.records if each.levelno >= logging.ERROR)
            assert "shorter than the slice" in record.getMessage()
            assert record.exc_info is None
            caplog.clear()
            await fine_elsewhere(broker)


async def test_many_requests_in_one_record_are_answered_in_order() -> None:
    async with embedded_broker() as broker, _over_tls(_secured(broker)) as client:
        frames = [request_frame(3, number, "test", HEADERS) for number in range(200)]
        with trio.fail_after(SECONDS):
            await client.stream.send_all(b"".join(frames))
            for number in range(200):
                assert int.from_bytes((await client.receive_frame())[:4], "big") == number


async def test_a_slow_reader_has_one_piece_encrypted_at_a_time() -> None:
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        _over_tls(_secured(broker), receive_buffer_bytes=SMALL) as slow,
    ):
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(witness, 5)
            await slow.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            connection = reactor(broker).connections[-1]
            await until(lambda: connection.out_bytes > MIB)
            stalled_at = 0
            while connection.out_bytes != stalled_at:
                stalled_at = connection.out_bytes
                for _ in range(5):
                    await fine(witness)
            (carrier,) = [link.tls for link in reactor(broker)._links.values() if link.tls is not None]
            assert 0 < len(carrier._unsent) <= WRITE_BYTES_MAX + 1024
            assert not carrier._channel.outgoing_bytes
            response = await slow.receive(fetch(("t", 0, 0)), 12)
            assert values(flat(response)[0]) == sent


async def test_a_handshake_byte_by_byte() -> None:
    class Dribbling(trio.abc.HalfCloseableStream):
        """Sends a byte at a time."""

        def __init__(self, stream: trio.SocketStream) -> None:
            self._stream = stream

        async def send_all(self, data: Any) -> None:
            for at in range(len(data)):
                await self._stream.send_all(data[at : at + 1])

        async def wait_send_all_might_not_block(self) -> None:
            await self._stream.wait_send_all_might_not_block()

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return bytes(await self._stream.receive_some(max_bytes))

        async def send_eof(self) -> None:
            await self._stream.send_eof()

        async def aclose(self) -> None:
            await self._stream.aclose()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    async with embedded_broker() as broker, dialled(broker) as witness, _over_tcp(_secured(broker)) as stream:
        with trio.fail_after(SECONDS):
            client = Client(trio.SSLStream(Dribbling(stream), context, server_hostname="localhost"))
            assert (await client.ask(HEADERS, 3)).error_code == 0
            await fine(witness)


async def test_a_storm_of_handshakes_takes_turns_with_the_others() -> None:
    async with embedded_broker() as broker, dialled(broker) as witness:
        port = _secured(broker)
        done = 0

        async def connect() -> None:
            nonlocal done
            async with _over_tls(port) as client:
                assert (await client.ask(HEADERS, 3)).error_code == 0
            done += 1

        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(10 * HANDSHAKES_PER_ROUND):
                    nursery.start_soon(connect)
                while done < 10 * HANDSHAKES_PER_ROUND:
                    await fine(witness)


async def test_a_rejected_peer_gets_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def nobody(connection: Connection, channel: TlsChannel) -> None:
        asked.append((connection.listener, channel.peer_certificate))
        raise TlsError("nobody may come in")

    async with embedded_broker() as broker, dialled(broker) as witness:
        port = _secured(broker, nobody)
        with trio.fail_after(SECONDS):
            async with _over_tls(port) as client:
                assert await closed_by_broker(client)
            await fine(witness)
    assert asked == [("SECURE", None)]
    assert "closing the connection of 127.0.0.1: TLS on listener SECURE: nobody may come in" in caplog.text


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP request on listener SECURE"),
        (request_frame(3, 1, "test", HEADERS), "client without TLS on listener SECURE"),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "TLS on listener SECURE: "),
        (b"\x16" + bytes(100), "TLS on listener SECURE: "),
    ],
)
async def test_what_is_no_handshake_is_named_and_closed(
    start: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker() as broker, dialled(broker) as witness, _over_tcp(_secured(broker)) as stream:
        with trio.fail_after(SECONDS):
            await stream.send_all(bytes(start))
            while True:
                try:
                    if not await stream.receive_some():
                        break
                except trio.BrokenResourceError:
                    break
            await fine(witness)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert named in warning


async def test_a_handshake_has_a_time_limit(mock_clock: MockClock) -> None:
    async with (
        embedded_broker() as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as witness,
        _over_tcp(_secured(broker)) as stream,
    ):
        await stream.send_all(b"\x16\x03\x01")
        await until(lambda: len(reactor(broker).connections) == 2)
        mock_clock.jump(HANDSHAKE_S - 1)
        await fine(witness)
        assert len(reactor(broker).connections) == 2
        await stream.send_all(b"\x02")  # to be active does not help
        mock_clock.jump(3)
        await until(lambda: len(reactor(broker).connections) == 1)
        await fine(witness)


async def test_the_end_of_a_connection_is_said_by_either_side() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    async with embedded_broker() as broker:
        port = _secured(broker)
        with trio.fail_after(SECONDS):
            async with _over_tcp(port) as stream:
                # Without https_compatible the stream sends close_notify, and insists on one.
                secured = trio.SSLStream(stream, context, server_hostname="localhost")
                client = Client(secured)
                assert (await client.ask(HEADERS, 3)).error_code == 0
                await secured.aclose()
            await until(lambda: not reactor(broker).connections)
            async with _over_tcp(port) as stream:
                secured = trio.SSLStream(stream, context, server_hostname="localhost")
                client = Client(secured)
                assert (await client.ask(HEADERS, 3)).error_code == 0
                reactor(broker).drop_idle()
                assert await secured.receive_some(1) == b""


async def test_requests_before_the_end_of_stream_are_answered() -> None:
    async with embedded_broker() as broker, _over_tls(_secured(broker)) as client:
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(client, 2)
            await client.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            await client.stream.transport_stream.send_eof()  # type: ignore[attr-defined]
            assert values(flat(await client.receive(fetch(("t", 0, 0)), 12))[0]) == sent
            await until(lambda: not reactor(broker).connections)
