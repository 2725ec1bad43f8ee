"""The reactor with a whole broker behind it: idle connections, the stop, how many connections there may be, strangers.

Nothing here sleeps, as in test_reactor.py; virtual time moves where the clock is what is tested.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.frame import request_frame
from barnabas.server.network.connection import Connection
from barnabas.server.network.reactor import Reactor
from barnabas.server.requests.context import RequestContext
from barnabas.server.runtime.log_throttle import LOG_INTERVAL_S
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic
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
    reset,
    sockets,  # noqa: F401
    until,
)


async def test_idle_connections_are_closed(mock_clock: MockClock) -> None:
    """By the virtual clock, over real sockets. A client that waits for an answer stays, unless its socket is closed."""
    async with (
        embedded_broker(connections_max_idle_ms="60000") as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as idle,
        dialled(broker) as busy,
        dialled(broker) as waits,
        dialled(broker) as half,
    ):
        await topic(broker)
        waiters = broker.services.partitions.get("t", 0)._waiters
        for client in (idle, busy, waits, half):
            await fine(client)
        for client in (waits, half):
            await client.send(fetch(("t", 0, 0), max_wait_ms=10_000_000), 12)
        await until(lambda: len(waiters) == 2)
        await half.stream.send_eof()  # type: ignore[attr-defined]
        await until(lambda: any(link.half_closed for link in reactor(broker)._links.values()))
        for _ in range(4):
            mock_clock.jump(20)
            await fine(busy)
        assert await closed_by_broker(idle)
        assert await closed_by_broker(half)
        await until(lambda: len(waiters) == 1)
        assert len(reactor(broker).connections) == 2
        await fine(busy)
        assert only(await busy.ask(request(batch(b"a")), 9)).error_code == 0
        assert values(flat(await waits.receive(fetch(("t", 0, 0)), 12))[0]) == [b"a"]


async def test_a_client_that_reads_nothing_is_idle_too(mock_clock: MockClock) -> None:
    async with (
        embedded_broker(connections_max_idle_ms="60000", **SMALL_BUFFERS) as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as stuck,
    ):
        await topic(broker)
        await fill(witness, 5)
        await stuck.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
        await until(lambda: any(each.out_bytes > MIB for each in reactor(broker).connections))
        for _ in range(30):  # the system's buffers may take a little more now and then, which counts as reading
            mock_clock.jump(20)
            await fine(witness)
            if len(reactor(broker).connections) == 1:
                break
        await until(lambda: len(reactor(broker).connections) == 1)


async def test_negative_means_that_idle_connections_stay(mock_clock: MockClock) -> None:
    async with (
        embedded_broker(connections_max_idle_ms="-1") as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as client,
    ):
        await fine(client)
        for _ in range(5):
            mock_clock.jump(1_000_000)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
        await fine(client)


async def test_a_stop_answers_pending_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.broker.broker.STOP_S", float(SECONDS))
    async with embedded_broker() as broker, dialled(broker) as waits, dialled(broker) as idle:
        await topic(broker)
        await fine(idle)
        with trio.fail_after(SECONDS):
            await waits.send(fetch(("t", 0, 0), max_wait_ms=300), 12)
            await until(lambda: broker.services.partitions.get("t", 0)._waiters)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.stop)
                assert flat(await waits.receive(fetch(("t", 0, 0)), 12))[0].error_code == 0
                assert await closed_by_broker(idle)
                assert await closed_by_broker(waits)


# -- how many ---------------------------------------------------------------------------------------------------------


async def test_many_connections() -> None:
    count = 300
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        answers, all_are_there = 0, trio.Event()

        async def client(number: int) -> None:
            nonlocal answers
            async with dialled(broker) as client:
                for at in range(3):
                    assert only(await client.ask(request(batch(b"%d %d" % (number, at))), 9)).error_code == 0
                    answers += 1
                if answers == 3 * count:
                    all_are_there.set()
                await all_are_there.wait()

        with trio.fail_after(SECONDS):
            await topic(broker)
            async with trio.open_nursery() as clients:
                for number in range(count):
                    clients.start_soon(client, number)
            await until(lambda: not reactor(broker).connections)
        assert broker.services.partitions.get("t", 0).log_end_offset == 3 * count
        assert not len(broker.parts.reactor._limits)
        nursery.cancel_scope.cancel()


async def test_max_connections_lets_others_wait() -> None:
    async with embedded_broker(max_connections="2") as broker:
        with trio.fail_after(SECONDS):
            async with dialled(broker) as first, dialled(broker) as second:
                await fine(first)
                await fine(second)
                async with dialled(broker) as third, dialled(broker) as fourth:
                    for client in (third, fourth):
                        await client.send(HEADERS, 3)
                    for _ in range(20):
                        await fine(first)
                    assert len(reactor(broker).connections) == 2
                    await second.stream.aclose()
                    assert (await third.receive(HEADERS, 3)).error_code == 0
                    assert len(reactor(broker).connections) == 2
                    reset(first)
                    assert (await fourth.receive(HEADERS, 3)).error_code == 0


async def test_max_connections_per_ip_closes_the_next() -> None:
    async with embedded_broker(max_connections_per_ip="2") as broker:
        with trio.fail_after(SECONDS):
            async with dialled(broker) as first, dialled(broker) as second:
                await fine(first)
                await fine(second)
                async with dialled(broker) as third:
                    assert await closed_by_broker(third)
                await fine(first)
                await second.stream.aclose()
                await until(lambda: len(reactor(broker).connections) == 1)
                async with dialled(broker) as fourth:
                    await fine(fourth)


async def test_an_address_may_have_a_limit_of_its_own() -> None:
    settings = {"max_connections_per_ip": "1", "max_connections_per_ip_overrides": "127.0.0.1:2"}
    async with embedded_broker(**settings) as broker, dialled(broker) as first, dialled(broker) as second:
        with trio.fail_after(SECONDS):
            await fine(first)
            await fine(second)
            async with dialled(broker) as third:
                assert await closed_by_broker(third)


class Starved(socket.socket):
    """A listening socket of a process that has no descriptors left, for the first `refusals` calls."""

    refusals = 2
    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.calls <= self.refusals:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_out_of_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    """The connection waits in the backlog until the next sweep; the reactor neither fails nor spins meanwhile."""
    welcomed: list[object] = []
    reactor = Reactor(lambda: None, trio.current_time, lambda connection: None)

    def accept(sock: socket.socket, address: object) -> Connection:
        welcomed.append(address)
        return Connection(pytest.fail, reactor, listener="L", client_host="127.0.0.1", max_frame_bytes=10)

    with Starved() as listener, trio.fail_after(SECONDS):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        reactor.add_listener(listener, accept)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reactor.run)
            stream = await trio.open_tcp_stream(*listener.getsockname())
            for expected in (1, 2):
                await until(lambda: listener.calls == expected)  # noqa: B023
                for _ in range(50):
                    await trio.lowlevel.checkpoint()
                assert listener.calls == expected
                assert not welcomed
                reactor.sweep(float("-inf"))
            await until(lambda: welcomed)
            assert len(reactor.connections) == 1
            await stream.aclose()
            await until(lambda: not reactor.connections)
            nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["pausing accept: too many open files"] * 2
    caplog.clear()


async def test_a_bug_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with embedded_broker() as broker, dialled(broker) as witness, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            await fine(witness)
            await fine(client)
            connection = reactor(broker).connections[-1]

            def broken(*_: object) -> RequestContext:
                raise ZeroDivisionError

            connection._dispatch = broken  # type: ignore[assignment]
            await client.stream.send_all(request_frame(3, 1, None, HEADERS))
            assert await closed_by_broker(client)
            await fine(witness)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "could not be processed" in record.getMessage()
    caplog.clear()


# -- strangers --------------------------------------------------------------------------------------------------------

HTTP = b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"
TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)


async def test_http_and_tls_clients_are_named_and_not_for_each_try(
    caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    async with embedded_broker() as broker, moved_by_hand(mock_clock):
        for data in (HTTP, HTTP, TLS, HTTP, TLS):
            async with dialled(broker) as client:
                await client.stream.send_all(data)
                assert await closed_by_broker(client)
        mock_clock.jump(LOG_INTERVAL_S)
        async with dialled(broker) as client:
            await client.stream.send_all(HTTP)
            assert await closed_by_broker(client)
    closing = "closing the connection of 127.0.0.1: "
    http = closing + "HTTP request on listener PLAINTEXT, which speaks Kafka's protocol only"
    tls = closing + "TLS client on listener PLAINTEXT, which is not encrypted (security.protocol=PLAINTEXT)"
    assert [text for text in caplog.messages if text.startswith(closing)] == [
        http,
        tls,
        http + " (2 more since the last message)",
    ]


@pytest.mark.parametrize("max_bytes", [1000, 2**31 - 1])
@pytest.mark.parametrize("data", [HTTP, TLS, b"POST /", b"HEAD / ", b"PRI * HTTP/2.0\r\n"])
async def test_a_foreign_protocol_is_logged_for_any_max_request_size(
    data: bytes, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker(socket_request_max_bytes=str(max_bytes)) as broker, dialled(broker) as client:
        await client.stream.send_all(data)
        assert await closed_by_broker(client)
    assert any("client on listener" in text or "request on listener" in text for text in caplog.messages)
