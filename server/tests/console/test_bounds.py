"""Attacks by much and by slowness: connections, requests under way, forms, who does not read; in virtual time."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("hypercorn")

from barnabas.server.console import app as console_app
from barnabas.server.console.front import BUSY, PIECE, Bounds, Front
from barnabas.server.console.serving import KEEP_ALIVE_S, _config
from barnabas.server.console.web import admission
from barnabas.server.console.web.admission import LONG_MAX, REQUESTS_MAX, WAIT_S, WAITING_MAX, Admission
from barnabas.server.console.web.view import View
from barnabas.server.tests.console.rig import Browser, app_over, checked, console

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIMIT_S = 2_000


@pytest.fixture
def clock() -> MockClock:
    """Kernel and loop take turns: time passes when neither has had anything to do for a while."""
    return MockClock(autojump_threshold=0.02)


class App:
    """Answers `size` bytes; with `gate`, when that opens."""

    def __init__(self, size: int = 2, gate: trio.Event | None = None) -> None:
        self.size = size
        self.gate = gate
        self.under_way = 0
        self.most = 0
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if scope["path"] == "/bug":
                raise ZeroDivisionError("a bug")
            if self.gate is not None:
                await self.gate.wait()
            headers = [(b"content-length", b"%d" % self.size)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"x" * self.size})
        finally:
            self.under_way -= 1


@asynccontextmanager
async def served(app: Any, bounds: Bounds, trusted: tuple[str, ...] = ()) -> AsyncIterator[tuple[int, Front]]:
    """The port, and the front."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    front, ended = Front(app, _config(), bounds, trusted.__contains__), trio.Event()
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(front.serve, [listening], ended, 2.0))
            yield listening.getsockname()[1], front
            ended.set()
    assert front.connections == 0
    assert not front._by_address


async def opened(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    """Until the other side closes."""
    data = b""
    try:
        while piece := await stream.receive_some():
            data += piece
    except trio.BrokenResourceError:
        pass
    return data


async def answered(stream: trio.SocketStream, request: bytes = GET) -> bytes:
    await stream.send_all(request)
    data = b""
    while not data.endswith(b"x"):
        data += await stream.receive_some()
    return data


# -- connections -------------------------------------------------------------------------------------------------------


async def test_one_connection_too_many_is_told_so(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with served(App(), Bounds(connections=3, each=3)) as (port, front):
        held = [await opened(port) for _ in range(3)]
        assert b" 200 " in await answered(held[0])
        for _ in range(3):
            assert await everything(await opened(port)) == BUSY
        assert BUSY.partition(b"\r\n\r\n")[2].__len__() == 50
        assert front.connections == 3
        assert b" 200 " in await answered(held[2])  # who is here is served
        assert caplog.text.count("that is too many") == 1
        await held[1].aclose()
        await trio.sleep(0.1)
        assert b" 200 " in await answered(await opened(port))
        for each in held:
            await each.aclose()


async def test_the_quietest_goes_for_a_new_one(clock: MockClock) -> None:
    """Connections that do nothing keep nobody away."""
    async with served(App(), Bounds(connections=3, each=3, spare_s=15)) as (port, front):
        quiet = await opened(port)
        busy = [await opened(port) for _ in range(2)]
        await trio.sleep(10)
        for each in busy:
            assert b" 200 " in await answered(each)
        await trio.sleep(6)
        new = await opened(port)
        assert b" 200 " in await answered(new)
        assert await everything(quiet) == b""
        assert front.connections == 3
        for each in busy:
            assert b" 200 " in await answered(each)


async def test_one_address_does_not_take_all(clock: MockClock) -> None:
    async with served(App(), Bounds(connections=10, each=2)) as (port, _):
        held = [await opened(port) for _ in range(2)]
        assert await everything(await opened(port)) == BUSY
        other = trio.socket.socket()
        await other.bind(("127.0.0.2", 0))
        await other.connect(("127.0.0.1", port))
        assert b" 200 " in await answered(trio.SocketStream(other))
        assert len(held) == 2
    async with served(App(), Bounds(connections=10, each=2), ("127.0.0.1",)) as (port, _):
        held = [await opened(port) for _ in range(10)]
        for each in held:
            assert b" 200 " in await answered(each)
        assert await everything(await opened(port)) == BUSY


async def test_heads_that_never_end(clock: MockClock) -> None:
    """A byte now and then does not keep a connection."""
    async with served(App(), Bounds()) as (port, front):
        stream = await opened(port)
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):  # noqa: PT012
            for byte in GET[:-2] + b"a: " + b"b" * 1000:
                await stream.send_all(bytes([byte]))
                await trio.sleep(5)
        assert trio.current_time() - began < KEEP_ALIVE_S + 15
        assert front.connections == 0


async def test_who_does_not_read_is_gone(clock: MockClock) -> None:
    app = App(64 * 1024 * 1024)
    async with served(app, Bounds(send_s=30)) as (port, front):
        stream = await opened(port)
        await stream.send_all(GET)
        await trio.sleep(25)
        assert front.connections == 1
        await trio.sleep(40)
        assert front.connections == 0
        assert app.under_way == 0
        slow = await opened(port)
        await slow.send_all(GET)
        got = 0
        for _ in range(60):  # so slow it may be
            got += len(await slow.receive_some(PIECE))
            await trio.sleep(2)
        assert got > 5 * PIECE
        assert front.connections == 1
        await slow.aclose()


async def test_a_bug_ends_no_other_connection(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with served(App(), Bounds()) as (port, _):
        other = await opened(port)
        assert b" 200 " in await answered(other)
        stream = await opened(port)
        await stream.send_all(GET.replace(b"/ ", b"/bug "))
        assert b" 500 " in await stream.receive_some()
        for garbage in (b"\x00" * 300, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 400, b"\x16\x03\x01\x02\x00"):
            bad = await opened(port)
            await bad.send_all(garbage)
            await bad.aclose()
        await trio.sleep(1)
        assert b" 200 " in await answered(other)


async def test_it_ends_although_somebody_waits(clock: MockClock) -> None:
    gate = trio.Event()
    async with served(App(gate=gate), Bounds()) as (port, _):
        stream = await opened(port)
        await stream.send_all(GET)
        await trio.sleep(1)
        began = trio.current_time()
    assert trio.current_time() - began < 5
    assert await everything(stream) == b""


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_requests_wait_for_their_turn(autojump_clock: MockClock) -> None:
    gate = trio.Event()
    app = App(gate=gate)
    browser = Browser(Admission(app))
    statuses: list[int] = []

    async def visit(path: str) -> None:
        statuses.append((await browser.get(path)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(REQUESTS_MAX + 10):
            nursery.start_soon(visit, "/")
        await trio.sleep(1)
        assert (app.under_way, statuses) == (REQUESTS_MAX, [])
        gate.set()
    assert statuses == [200] * (REQUESTS_MAX + 10)
    assert app.most == REQUESTS_MAX


async def test_who_waits_too_long_is_told_so(autojump_clock: MockClock) -> None:
    gate = trio.Event()
    app = App(gate=gate)
    browser = Browser(Admission(app))
    statuses: list[int] = []

    async def visit(path: str) -> None:
        statuses.append((await browser.get(path)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(REQUESTS_MAX + WAITING_MAX):
            nursery.start_soon(visit, "/")
        await trio.sleep(1)
        refused = await browser.get("/")  # nobody more may wait
        assert (refused.status, refused.header("retry-after")) == (503, "5")
        assert int(refused.header("content-length") or 0) == len(refused.body)
        await trio.sleep(WAIT_S)
        assert statuses == [503] * WAITING_MAX
        gate.set()
    assert app.most == REQUESTS_MAX
    assert (await browser.get("/")).status == 200
    assert browser.app._requests.value == REQUESTS_MAX


async def test_tails_keep_no_page_away(autojump_clock: MockClock) -> None:
    gate = trio.Event()
    tails = App(gate=gate)
    browser = Browser(Admission(tails))
    async with trio.open_nursery() as nursery:
        for path in ["/topics/t/live-events", "/topics/t/export"] * REQUESTS_MAX:
            nursery.start_soon(browser.get, path)
        await trio.sleep(1)
        assert tails.under_way == LONG_MAX
        nursery.start_soon(browser.get, "/topics")
        await trio.sleep(1)
        assert tails.paths[-1] == "/topics"
        nursery.cancel_scope.cancel()
    assert (browser.app._long.value, browser.app._requests.value) == (LONG_MAX, REQUESTS_MAX)
    assert admission.LONG_MAX < REQUESTS_MAX


async def test_a_page_that_takes_too_long(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(*_: Any) -> View:
        await trio.sleep_forever()
        raise AssertionError

    async with console() as (browser, _):
        await browser.get("/new-topic")
        pages = {page.name: page for page in console_app.PAGES}
        slow = (pages["topics.new"]._replace(show=never), pages["access.quotas"]._replace(change=never))
        monkeypatch.setattr(console_app, "PAGES", slow)
        other = Browser(app_over(browser.app._desk.client))
        answer = await other.get("/new-topic")
        assert (answer.status, "longer than 60 s" in answer.words) == (504, True)
        checked(answer)
        await other.get("/quotas")
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            changed = await other.post("/quotas", {"user": "u"})
        assert (changed.status, "whether it was done is not known" in changed.words) == (504, True)
        assert "was refused (504)" in caplog.text
        with caplog.at_level(logging.INFO, "barnabas.console.audit"), trio.move_on_after(1) as left:
            await other.post("/quotas", {"user": "u"})
        assert left.cancelled_caught
        assert "was refused (499): it was cut off: whether it was done is not known" in caplog.text


# -- forms -------------------------------------------------------------------------------------------------------------


async def posted(browser: Browser, path: str, pieces: list[bytes], pause_s: float, size: int = 0) -> int:
    """The status of a form that is sent in pieces, with pauses; it never ends."""
    sent: list[Any] = []
    left = list(pieces)

    async def receive() -> Any:
        await trio.sleep(pause_s)
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": True}
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    kinds = {"host": browser.host, "cookie": cookie, "content-type": "application/x-www-form-urlencoded"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in kinds.items()],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8080),
    }
    await browser.app(scope, receive, send)
    return int(sent[0]["status"])


async def test_a_form_that_trickles(autojump_clock: MockClock) -> None:
    async with console() as (browser, _):
        await browser.get("/new-topic")
        began = trio.current_time()
        assert await posted(browser, "/new-topic", [b"a"] * 1000, 1.0) == 408
        assert trio.current_time() - began < console_app.FORM_S + 1
        assert browser.app._form_bytes == 0


async def test_forms_are_bounded_together(autojump_clock: MockClock) -> None:
    piece = b"a" * 1024 * 1024
    statuses: list[int] = []
    async with console() as (browser, _):
        await browser.get("/new-topic")

        async def send_much() -> None:
            statuses.append(await posted(browser, "/new-topic", [piece] * 15, 0.1))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(send_much)
        assert sorted(set(statuses)) == [408, 503]
        assert browser.app._form_bytes == 0
        assert (await browser.post("/new-topic", {"name": "t", "partitions": "1"})).status == 303


async def test_who_is_not_in_cannot_send_much(autojump_clock: MockClock) -> None:
    async with console(password="open sesame") as (browser, _):
        await browser.get("/login")
        for path in ("/login", "/logout"):
            form = {"password": "x" * console_app.LOGIN_BYTES_MAX}
            assert (await browser.post(path, form)).status == 413
        assert (await browser.post("/login", {"password": "open sesame"})).status == 303
