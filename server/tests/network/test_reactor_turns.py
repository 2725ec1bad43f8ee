"""Clients that send thousands of requests at once: the others are served in between, and each request is served."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.server.network.acceptor import Secure
from barnabas.server.network.arenas import RECV_BYTES
from barnabas.server.network.connection import REQUESTS_PER_TURN, Connection
from barnabas.server.network.reactor import EVENTS_MAX, ROUNDS_MAX, Reactor
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.route import Route
from barnabas.server.tests.network.tcp_rig import no_error_is_logged, sockets, until  # noqa: F401  # around each test
from barnabas.server.tests.whole.test_containment import SILENT

SECONDS = 120
GREEDY = 5


class Office:
    """A reactor that answers each request with its own bytes, those that begin with `-` never, closes the connection of
    one that begins with `!`, and remembers in which order the connections were served.
    """

    def __init__(self, secure: Secure | None = None, *, max_frame_bytes: int = 100, **options: int) -> None:
        """secure: as for `Reactor.add_listener`. options: of the listening socket, by name."""
        self.served: list[int] = []
        self.connections: list[Connection] = []
        self.served_by_round: list[int] = []
        self.reactor = Reactor(self._end_of_round, trio.current_time, lambda connection: None)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        for name, value in options.items():
            listener.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        self.address = listener.getsockname()
        self._max_frame_bytes = max_frame_bytes
        self.reactor.add_listener(listener, self._accept, secure)

    def _end_of_round(self) -> None:
        self.served_by_round.append(len(self.served))

    def _accept(self, sock: socket.socket, address: Any) -> Connection:
        made = Connection(
            self._dispatch, self.reactor, listener="L", client_host="client", max_frame_bytes=self._max_frame_bytes
        )
        self.connections.append(made)
        return made

    def _dispatch(self, connection: Connection, frame: memoryview) -> RequestContext:
        self.served.append(self.connections.index(connection))
        context = RequestContext(connection, Route(SILENT, 3), 3, 0, "client")
        if frame[:1] in b"-!":
            context.no_reply()
            if frame[:1] == b"!":
                connection.abort()
        else:
            context.reply_encoded(bytes(frame))
        return context

    def client(self) -> socket.socket:
        made = socket.create_connection(self.address)
        made.setblocking(False)
        return made

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.reactor.run)
                nursery.start_soon(self.reactor.run_tail)
                yield
                nursery.cancel_scope.cancel()


def frames(count: int, prefix: bytes = b"") -> bytes:
    return b"".join(struct.pack(">i", 8) + prefix + b"%0*d" % (8 - len(prefix), at) for at in range(count))


def answers(count: int) -> bytes:
    return b"".join(b"%08d" % at for at in range(count))


async def read(client: socket.socket, expected: bytes) -> None:
    received = b""
    while len(received) < len(expected):
        await trio.lowlevel.wait_readable(client)
        piece = client.recv(65536)
        assert piece, "the broker has closed the connection"
        received += piece
    assert received == expected


async def test_a_single_request_waits_for_one_turn_of_each() -> None:
    office = Office()
    greedy = [office.client() for _ in range(GREEDY)]
    for each in greedy:
        each.sendall(frames(2000))
    modest = office.client()
    modest.sendall(frames(1))
    async with office.open():
        await read(modest, answers(1))
        # Each round takes a turn at receiving and one after sending; the modest one may miss the first round.
        assert office.served.index(GREEDY) <= 2 * 2 * GREEDY * REQUESTS_PER_TURN
        for each in greedy:
            await read(each, answers(2000))
    assert len(office.served) == GREEDY * 2000 + 1
    for each in [*greedy, modest]:
        each.close()


async def test_a_round_serves_so_many_connections() -> None:
    """What comes from hundreds at once, such as a rebalance, is answered in portions, and others are in between."""
    office = Office()
    clients = [office.client() for _ in range(EVENTS_MAX + 20)]  # fewer than wait to be accepted
    for each in clients:
        each.sendall(frames(1))
    async with office.open():
        for each in clients:
            await read(each, answers(1))
    assert len(office.served) == len(clients)
    assert max(after - before for before, after in pairwise([0, *office.served_by_round])) <= EVENTS_MAX
    for each in clients:
        each.close()


async def test_a_newcomer_is_served_in_between() -> None:
    office = Office()
    greedy = [office.client() for _ in range(GREEDY)]
    for each in greedy:
        each.sendall(frames(2000))
    a_pass = ROUNDS_MAX * 2 * GREEDY * REQUESTS_PER_TURN
    async with office.open():
        await until(lambda: office.served)
        before = len(office.served)
        assert before <= a_pass
        newcomer = office.client()
        newcomer.sendall(frames(1))
        await read(newcomer, answers(1))
        assert office.served.index(GREEDY) - before <= 2 * a_pass, "accepted in one pass, served in the next at latest"
    for each in [*greedy, newcomer]:
        each.close()


async def test_the_turns_of_the_greedy_are_alike() -> None:
    office = Office()
    greedy = [office.client() for _ in range(GREEDY)]
    for each in greedy:
        each.sendall(frames(1000))
    async with office.open():
        for each in greedy:
            await read(each, answers(1000))
    ends = [len(office.served) - office.served[::-1].index(number) for number in range(GREEDY)]
    assert max(ends) - min(ends) <= 4 * GREEDY * REQUESTS_PER_TURN
    for each in greedy:
        each.close()


async def test_requests_without_answer_are_all_served() -> None:
    """Nothing arrives any more, and nothing is sent: their turns come all the same."""
    office = Office()
    client = office.client()
    client.sendall(frames(2000, b"-"))
    async with office.open():
        await until(lambda: len(office.served) == 2000)
    client.close()


async def test_one_that_has_sent_all_and_half_closed_gets_every_answer() -> None:
    office = Office()
    client = office.client()
    client.sendall(frames(2000))
    client.shutdown(socket.SHUT_WR)
    async with office.open():
        await read(client, answers(2000))
        await trio.lowlevel.wait_readable(client)
        assert client.recv(1) == b""
    client.close()


async def test_the_buffer_of_a_client_that_never_pauses_is_bounded() -> None:
    office = Office()
    client = office.client()
    backlogs: list[int] = []

    def all_served(count: int) -> Callable[[], bool]:
        def look() -> bool:
            backlogs.extend(each.backlog_bytes for each in office.connections)
            return len(office.served) >= count

        return look

    async with office.open():
        data, sent = memoryview(frames(20_000, b"-")), 0
        while sent < len(data):
            try:
                sent += client.send(data[sent:])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(client)
            backlogs.extend(each.backlog_bytes for each in office.connections)
        await until(all_served(20_000))
    assert 0 < max(backlogs) <= RECV_BYTES
    client.close()


@pytest.mark.parametrize("tasks", [1, 10])
async def test_other_tasks_have_their_turn_too(tasks: int) -> None:
    """A timer of trio's does not wait for thousands of requests."""
    office = Office()
    client = office.client()
    client.sendall(frames(4000, b"-"))
    seen: list[int] = []

    async def look() -> None:
        while len(office.served) < 4000:
            seen.append(len(office.served))
            await trio.lowlevel.checkpoint()

    async with office.open(), trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(look)
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert max(steps) <= ROUNDS_MAX * 2 * REQUESTS_PER_TURN
    client.close()


async def test_a_connection_of_a_removed_listener_ends_when_all_its_requests_are_answered() -> None:
    office = Office()
    idle, greedy = office.client(), office.client()
    greedy.sendall(frames(2000))
    async with office.open():
        await until(lambda: office.served)
        assert len(office.served) < 2000
        assert office.reactor.end_connections("another") == []
        assert office.reactor.end_connections("L") == [office.connections[1]]
        greedy.sendall(frames(1))  # too late: nothing more is received
        await read(greedy, answers(2000))
        for each in (idle, greedy):
            await trio.lowlevel.wait_readable(each)
            assert each.recv(1) == b""
    assert len(office.served) == 2000
    for each in (idle, greedy):
        each.close()
