"""One connection's trouble stays with it: taking it up, receiving, what waits for it, its end; and the request that
nobody is left to answer.
"""

from __future__ import annotations

import gc
import logging
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import ApiVersionsRequest, FindCoordinatorRequest
from barnabas.server.network.connection import Connection
from barnabas.server.network.reactor import Reactor
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.route import Route
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch
from barnabas.server.tests.apis.records.test_produce import batch, request, topic
from barnabas.server.tests.network.tcp_rig import dialled, reactor, until
from barnabas.server.tests.whole.test_containment import SILENT
from barnabas.server.tests.whole.test_containment_wire import join


class Echo:
    """A reactor that answers what it is sent with its own bytes, until `trouble` says otherwise for a connection:
    by its number, from 0 on.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.accepted = 0
        self.closed: list[Connection] = []
        self.fails_at: set[tuple[str, int]] = set()
        self.forgetful: set[int] = set()
        self.kept: list[RequestContext] = []
        self.numbers: dict[Connection, int] = {}
        self.reactor = Reactor(self._end_of_round, lambda: self.seconds, self._closed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.reactor.add_listener(self.listener, self._welcome)

    def _end_of_round(self) -> None:
        pass

    def fail(self, what: str, number: int) -> None:
        if (what, number) in self.fails_at:
            raise OSError(28, "No space left on device") if what == "register" else ValueError("by the test")

    def _welcome(self, sock: socket.socket, address: Any) -> Connection:
        number, self.accepted = self.accepted, self.accepted + 1
        self.fail("accept", number)
        connection = Connection(
            self._dispatch, self.reactor, listener="L", client_host=f"host{number}", max_frame_bytes=100
        )
        self.numbers[connection] = number
        if ("register", number) in self.fails_at:
            sock.close()  # what epoll says of it is as good as any
        return connection

    def _closed(self, connection: Connection) -> None:
        self.closed.append(connection)
        self.fail("closed", self.numbers[connection])

    def _dispatch(self, connection: Connection, frame: memoryview) -> RequestContext:
        number = self.numbers[connection]
        self.fail("dispatch", number)
        context = RequestContext(connection, Route(SILENT, 3), 3, 0, f"c{number}")
        if ("let go", number) in self.fails_at:
            context.on_close(lambda: self.fail("let go", number))
            self.kept.append(context)
        elif number not in self.forgetful:
            context.reply_encoded(bytes(frame))
        elif bytes(frame) == b"k":
            self.kept.append(context)
        return context

    def client(self) -> socket.socket:
        made = socket.create_connection(self.listener.getsockname())
        made.settimeout(60)
        return made

    def turn(self) -> None:
        """Look at what there is, until there is nothing."""
        for _ in range(20):
            events = self.reactor._epoll.poll(0.01)
            if not events:
                return
            self.reactor._round(events, 0.0)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.fails_at.clear()
    made.reactor.close()


FRAME = b"\0\0\0\1x"


@pytest.mark.parametrize("place", ["accept", "register", "dispatch", "closed", "let go"])
def test_the_second_is_served(place: str, echo: Echo, trouble: list[logging.LogRecord]) -> None:
    echo.fails_at.add((place, 0))
    first, second = echo.client(), echo.client()
    first.sendall(FRAME)
    second.sendall(FRAME)
    echo.turn()
    assert second.recv(10) == b"x"
    if place in ("closed", "let go"):
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        echo.turn()
    else:
        assert is_closed(first)
    second.sendall(FRAME)
    third = echo.client()
    third.sendall(FRAME)
    echo.turn()
    assert second.recv(10) == third.recv(10) == b"x"
    assert len(trouble) == 1
    if place != "accept":  # nobody was counted then
        assert [echo.numbers[each] for each in echo.closed] == [0]
    for each in (first, second, third):
        each.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(10) == b""
    except ConnectionResetError:
        return True


def test_a_request_that_can_never_be_answered(echo: Echo, trouble: list[logging.LogRecord]) -> None:
    """Only the connection's own slot refers to its context; a context with other references may still be answered."""
    echo.forgetful = {0, 1}
    forgotten, kept = echo.client(), echo.client()
    forgotten.sendall(FRAME)
    kept.sendall(b"\0\0\0\1k")
    echo.turn()
    gc.collect()
    echo.seconds = 600.0
    echo.reactor.sweep(0.0)  # both were active since
    assert len(echo.reactor.connections) == 2
    echo.reactor.sweep(500.0)
    (left,) = echo.reactor.connections
    assert left.client_host == "host1"
    assert forgotten.recv(10) == b""
    (record,) = trouble
    assert record.getMessage() == (
        "closing the connection of host0: no answer can come to HEARTBEAT v3 of client 'c0' at host0"
    )
    echo.kept.pop().reply_encoded(b"late")
    echo.reactor._finish_round()
    assert kept.recv(10) == b"late"
    forgotten.close()
    kept.close()


async def test_requests_that_wait_are_not_closed(trouble: list[logging.LogRecord]) -> None:
    """A long poll, an old one, and a member that waits for the others are not taken for forgotten."""
    async with embedded_broker(group_initial_rebalance_delay_ms="60000") as broker:
        await topic(broker)
        async with dialled(broker) as first, dialled(broker) as second, dialled(broker) as third:
            while (await third.ask(FindCoordinatorRequest(key="g"), 3)).error_code:
                await trio.lowlevel.checkpoint()
            poll = fetch(("t", 0, 0), min_bytes=1, max_wait_ms=60_000)
            await first.send(poll, 11)
            await second.send(poll, 3)
            await third.send(join(), 3)
            made = reactor(broker)
            await until(lambda: sum(each.has_pending for each in made.connections) == 3)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            made.sweep(trio.current_time() + 1)
            assert len(made.connections) == 3
            async with connected(broker) as other:
                await other.ask(request(batch(b"x")), 9)
            for client, version in ((first, 11), (second, 3)):
                assert (await client.receive(poll, version)).responses[0].partitions[0].error_code == 0
    assert not trouble


async def test_a_stream(trouble: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same over a stream: its task does not end the broker's."""
    async with embedded_broker() as broker, connected(broker) as first, connected(broker) as second:
        receive = Connection.receive
        seen: list[Connection] = []

        def fails(self: Connection, view: memoryview) -> None:
            seen.append(self)
            if len(seen) == 1:
                raise ValueError("by the test")
            receive(self, view)

        monkeypatch.setattr(Connection, "receive", fails)
        hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await first.ask(hello, 3)
        assert (await second.ask(hello, 3)).error_code == 0
        assert len(trouble) == 1
