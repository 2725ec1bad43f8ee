"""The HTTP server: what scrapers do, and what it costs when somebody means harm. Virtual time, memory streams."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import pytest
import trio
from trio.testing import MemoryReceiveStream, memory_stream_one_way_pair, memory_stream_pair

from barnabas.server.httpd.http_server import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    IDLE_S,
    REQUEST_S,
    SEND_S,
    Answer,
    HttpServer,
    Request,
)
from barnabas.server.tests.metrics.kit import Reply, ask

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"


log = logging.getLogger("barnabas.metrics")


async def handle(request: Request) -> Answer:
    path, headers = request.path, request.headers
    if path == "/bug":
        raise RuntimeError("a bug of the handler")
    if path == "/large":
        return Answer(200, [bytes(100_000)] * 20)
    return Answer(200, [path.encode(), b" ", headers.get("x-asked", "").encode()])


@asynccontextmanager
async def served(server: HttpServer | None = None) -> AsyncIterator[trio.StapledStream]:
    """The client's end of a connection."""
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon((server or HttpServer(handle, log, "the test")).serve, theirs)
        async with ours:
            yield ours
        nursery.cancel_scope.cancel()


async def rest(stream: trio.StapledStream) -> bytes:
    """Everything until the server closes."""
    found = b""
    try:
        while data := await stream.receive_some():
            found += data
    except trio.BrokenResourceError:
        pass
    return found


async def test_several_requests_over_one_connection(autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        connection = h11.Connection(h11.CLIENT)
        for number in range(3):
            await trio.sleep(60)
            reply = await ask(stream, connection, f"/p{number}?query=1", x_asked="a")
            assert (reply.status, reply.body) == (200, b"/p%d a" % number)
            assert reply.headers["content-length"] == str(len(reply.body))


async def test_head_has_no_body(autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        connection = h11.Connection(h11.CLIENT)
        reply = await ask(stream, connection, "/p", "HEAD")
        assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "3")
        assert (await ask(stream, connection, "/p")).body == b"/p "


async def test_pipelined_requests_are_answered_in_order(autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        await stream.send_all(b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number for number in range(50)))
        await stream.send_all(b"GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        text = await rest(stream)
        assert [text.count(b"/%d " % number) for number in range(50)] == [1] * 50
        assert text.index(b"/49 ") < text.index(b"/end ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods(method: str, autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        reply = await ask(stream, h11.Connection(h11.CLIENT), "/p", method)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_http_1_0(autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        await stream.send_all(b"GET /old HTTP/1.0\r\n\r\n")
        text = await rest(stream)
        assert text.startswith(b"HTTP/1.1 200 OK\r\n")
        assert text.endswith(b"/old ")


async def test_a_bug_of_the_handler_costs_one_answer(
    autojump_clock: trio.abc.Clock, trouble: list[logging.LogRecord]
) -> None:
    async with served() as stream:
        connection = h11.Connection(h11.CLIENT)
        assert (await ask(stream, connection, "/bug")).status == 500
        assert (await ask(stream, connection, "/p")).status == 200
    assert [record.getMessage() for record in trouble] == ["answering '/bug' failed"]
    trouble.clear()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client says hello\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x2a\x00\x12\x00\x03 a Kafka client asks\r\n\r\n", b"400"),
        (b"GET /x HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET /x HTTP/1.1\r\nHost: h\r\nbroken header\r\n\r\n", b"400"),
        (b"GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: nonsense\r\n\r\n", b"400"),
        (b"GET /x HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 2 * HEAD_BYTES_MAX + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n", b"431"),
        (b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n" + bytes(BODY_BYTES_MAX + 5000), b"413"),
        (b"GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + bytes(4096), None),
    ],
)
async def test_bad_requests_are_refused(sent: bytes, status: bytes | None, autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                await stream.send_all(sent)
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(send)
        text = await rest(stream)
        assert text.startswith(b"HTTP/1.1 " + status + b" ") if status else text == b""
        assert b"\r\nConnection: close\r\n" in text or not status


async def test_a_silent_client_is_closed(autojump_clock: trio.abc.Clock) -> None:
    async with served() as stream:
        assert await rest(stream) == b""
        assert trio.current_time() == pytest.approx(IDLE_S)


async def test_a_slow_request_is_closed(autojump_clock: trio.abc.Clock) -> None:
    """A byte now and then does not keep a connection open."""
    async with served() as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                for byte in GET:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(send)
        assert await rest(stream) == b""
        assert trio.current_time() == pytest.approx(REQUEST_S)
        nursery.cancel_scope.cancel()


async def test_a_client_that_does_not_read_is_closed(autojump_clock: trio.abc.Clock) -> None:
    """Its socket takes nothing; the server does not wait for longer than `SEND_S`."""
    sent, received = memory_stream_one_way_pair()
    answers, client = memory_stream_one_way_pair()
    answers.send_all_hook = trio.sleep_forever
    server = HttpServer(handle, log, "the test")
    await sent.send_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
    await server.serve(trio.StapledStream(answers, received))
    assert trio.current_time() == pytest.approx(SEND_S)
    assert server.connection_count == 0
    assert isinstance(client, MemoryReceiveStream)


async def test_half_closed(autojump_clock: trio.abc.Clock) -> None:
    """The client sends no more; the answer comes all the same."""
    async with served() as stream:
        await stream.send_all(GET)
        await stream.send_eof()
        assert (await rest(stream)).endswith(b"/x ")


async def test_of_too_many_connections_the_one_that_waits_longest_is_closed(autojump_clock: trio.abc.Clock) -> None:
    server = HttpServer(handle, log, "the test", connections_max=3)
    clients = []
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            ours, theirs = memory_stream_pair()
            clients.append(ours)
            nursery.start_soon(server.serve, theirs)
            await trio.sleep(1)
        assert server.connection_count == 3
        for closed in clients[:2]:
            assert await rest(closed) == b""
        for served_one in clients[2:]:
            assert (await ask(served_one, h11.Connection(h11.CLIENT), "/p")).status == 200
        nursery.cancel_scope.cancel()


async def test_of_too_many_busy_connections_the_newest_is_closed(autojump_clock: trio.abc.Clock) -> None:
    async def slow(request: Request) -> Answer:
        await trio.sleep(5)
        return Answer(200, [b"late"])

    server = HttpServer(slow, log, "the test", connections_max=2)
    replies: list[Reply] = []
    async with trio.open_nursery() as nursery:

        async def client(delay_s: float) -> None:
            await trio.sleep(delay_s)
            async with served(server) as stream:
                connection = h11.Connection(h11.CLIENT)
                try:
                    replies.append(await ask(stream, connection, "/p"))
                except (trio.BrokenResourceError, h11.RemoteProtocolError):
                    replies.append(Reply(0, {}, b""))

        for delay_s in (0, 1, 2):
            nursery.start_soon(client, delay_s)
    assert sorted(reply.status for reply in replies) == [0, 200, 200]
