"""While a frame comes in over TLS, the socket becomes readable only when a good part of the rest is there. Nothing may
stay unnoticed because of that: neither the end of a frame, nor of the connection.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trustme

from barnabas.server.network.connection import REQUESTS_PER_TURN, Connection
from barnabas.server.network.tls_carrier import AWAITED_BYTES, TlsCarrier
from barnabas.server.security.tls.channel import TlsChannel
from barnabas.server.tests.network.tcp_rig import no_error_is_logged, sockets, until  # noqa: F401  # around each test
from barnabas.server.tests.network.test_reactor_turns import GREEDY, Office, frames

AUTHORITY = trustme.CA()
SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
AUTHORITY.issue_cert("localhost").configure_cert(SERVER)
SERVER.num_tickets = 0
CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
AUTHORITY.configure_trust(CLIENT)
NEVER = 1e9
FRAME_BYTES_MAX = 1 << 20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told how much to await")


def _anybody(connection: Connection, channel: TlsChannel) -> None:
    pass


def _office(**options: int) -> Office:
    return Office(
        lambda: TlsCarrier(TlsChannel(SERVER), _anybody, trio.current_time()),
        max_frame_bytes=FRAME_BYTES_MAX,
        **options,
    )


class Client:
    """The other end, which sends what it is given in the pieces that it is given."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.sock = office.client()
        self.channel = TlsChannel(CLIENT, server_name="localhost")

    async def shake_hands(self) -> None:
        channel = self.channel
        channel.shake_hands()
        while True:
            if channel.outgoing_bytes:
                self.sock.sendall(channel.outgoing())
            if channel.is_open:
                break
            await trio.lowlevel.wait_readable(self.sock)
            channel.feed(self.sock.recv(65536))
        number = len(self.office.connections)
        await self.send(frame(1))
        await until(lambda: len(self.office.served) >= number)  # its end of the handshake is over, too

    def seal(self, plaintext: bytes | memoryview) -> bytes:
        self.channel.write(plaintext)
        return self.channel.outgoing()

    async def send(self, plaintext: bytes | memoryview) -> None:
        await self.send_sealed(self.seal(plaintext))

    async def send_sealed(self, ciphertext: bytes | memoryview) -> None:
        left = memoryview(ciphertext)
        while left:
            try:
                left = left[self.sock.send(left) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.sock)


@asynccontextmanager
async def _connected(office: Office) -> AsyncIterator[Client]:
    async with office.open():
        client = Client(office)
        await client.shake_hands()
        yield client
        client.sock.close()


def frame(size: int) -> bytes:
    """A request of that many bytes, to which there is no answer."""
    return struct.pack(">i", size) + b"-" * size


def awaited(office: Office) -> int:
    """How many bytes make the broker's socket readable."""
    (link,) = office.reactor._links.values()
    return link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


async def some_rounds() -> None:
    for _ in range(20):
        await trio.lowlevel.checkpoint()


async def test_a_frame_in_any_pieces_is_taken_up_without_anything_behind_it() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    office = _office()
    async with _connected(office) as client:
        for _ in range(40):
            served = len(office.served)
            data = memoryview(frame(rng.choice((rng.randrange(1, 200), rng.randrange(1, 40_000), 300_000))))
            sealed = b""
            while data:
                size = rng.choice((1, 100, rng.randrange(1, 20_000), len(data)))
                sealed += client.seal(data[:size])
                data = data[size:]
            left = memoryview(sealed)
            while left:
                size = rng.choice((rng.randrange(1, 10), rng.randrange(1, 30_000), len(left)))
                await client.send_sealed(left[:size])
                left = left[size:]
                for _ in range(rng.randrange(4)):
                    await trio.lowlevel.checkpoint()
            await until(partial(lambda served: len(office.served) > served, served))


@on_linux
async def test_a_request_in_three_records_is_noticed_twice() -> None:
    """So the Java client sends it: its beginning, the batch, its end."""
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        data = frame(15_700)
        await client.send(data[:100])
        await until(lambda: connection.missing_bytes)
        assert connection.missing_bytes == len(data) - 100
        assert awaited(office) > len(data) - 100
        await client.send(data[100:-3])
        await some_rounds()
        assert connection.missing_bytes == len(data) - 100
        await client.send(data[-3:])
        await until(lambda: len(office.served) == 2)
        assert awaited(office) == 1


@on_linux
async def test_much_of_a_large_frame_is_awaited_but_not_all() -> None:
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        data = frame(300_000)
        await client.send(data[:1000])
        await until(lambda: connection.missing_bytes)
        assert awaited(office) == AWAITED_BYTES
        await client.send(data[1000:150_000])
        await until(lambda: connection.missing_bytes < 200_000)
        await client.send(data[150_000:] + frame(1))
        await until(lambda: len(office.served) == 3)
        assert awaited(office) == 1


async def test_a_receive_buffer_that_is_smaller_than_what_would_be_awaited() -> None:
    office = _office(SO_RCVBUF=4096)
    async with _connected(office) as client:
        await client.send(frame(300_000))
        await until(lambda: len(office.served) == 2)


@pytest.mark.parametrize("only_half", [False, True])
async def test_a_peer_that_leaves_in_the_middle_of_a_frame(only_half: bool) -> None:
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        await client.send(frame(300_000)[:1000])
        await until(lambda: connection.missing_bytes)
        if only_half:
            client.sock.shutdown(socket.SHUT_WR)
        else:
            client.sock.close()
        await until(lambda: connection.closed)


@pytest.mark.parametrize("behind_it", [0, 1, 1000])
@pytest.mark.parametrize("awaited_before", [False, True])
async def test_a_request_that_closes_its_connection(behind_it: int, awaited_before: bool) -> None:
    """Nothing is awaited of its socket any more, and nothing that came behind it is kept."""
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        last = struct.pack(">i", 100_000) + b"!" * 100_000
        if awaited_before:
            await client.send(last[:1000])
            await until(lambda: connection.missing_bytes)
            last = last[1000:]
        await client.send(last + frame(300_000)[:behind_it])
        await until(lambda: connection.closed)
        await some_rounds()
        assert (connection.backlog_bytes, connection.missing_bytes) == (0, 0)


async def test_a_slow_peer_is_not_idle() -> None:
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        data = frame(300_000)
        await client.send(data[:1000])
        await until(lambda: connection.missing_bytes)
        missing = connection.missing_bytes
        await client.send(data[1000:1100])
        await some_rounds()
        office.reactor.sweep(NEVER)
        assert not connection.closed or sys.platform != "linux"
        await until(lambda: connection.missing_bytes == missing - 100)
        office.reactor.sweep(NEVER)
        office.reactor.sweep(NEVER)
        assert connection.closed, "nothing had come between the two"


@on_linux
async def test_the_end_of_tls_alone_is_noticed_when_the_connection_is_idle() -> None:
    """Clients close the socket, too."""
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        await client.send(frame(300_000)[:1000])
        await until(lambda: connection.missing_bytes)
        client.channel.close()
        await client.send_sealed(client.channel.outgoing())
        await some_rounds()
        assert not connection.closed
        office.reactor.sweep(NEVER)
        assert not connection.closed
        await until(lambda: connection.closed)


async def test_a_connection_that_is_muted_in_the_middle_of_a_frame_goes_on_later() -> None:
    office = _office()
    async with _connected(office) as client:
        (connection,) = office.connections
        data = frame(300_000)
        await client.send(data[:1000])
        await until(lambda: connection.missing_bytes)
        connection.mute(NEVER)
        await client.send(data[1000:100_000])
        await some_rounds()
        assert connection.missing_bytes == len(data) - 1000
        connection.unmute(NEVER)
        await client.send(data[100_000:])
        await until(lambda: len(office.served) == 2)


async def test_what_one_receive_brings_is_one_turn() -> None:
    office = _office()
    async with office.open():
        clients = []
        for _ in range(GREEDY + 1):
            clients.append(Client(office))
            await clients[-1].shake_hands()
        *greedy, modest = clients
        before = len(office.served)
        for each in greedy:
            for _ in range(8):  # records, and more of them than are decrypted at once
                each.sock.sendall(each.seal(frames(1000, b"-")))
        modest.sock.sendall(modest.seal(frame(1)))
        await until(lambda: len(office.served) == before + 8 * 1000 * GREEDY + 1)
        # Each round takes a turn at receiving and one after sending; the modest one may miss the first round.
        assert office.served.index(GREEDY, before) - before <= 2 * 2 * GREEDY * REQUESTS_PER_TURN
        for each in clients:
            each.sock.close()
