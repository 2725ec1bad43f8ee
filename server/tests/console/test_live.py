"""What moves: the live tail, the lag over time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client
from barnabas.server.client.failures import Unreachable
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.producer import Producer
from barnabas.server.console.desk import TAILS, Desk
from barnabas.server.console.history import SAMPLE_S, SAMPLES, History, Sample, trend
from barnabas.server.tests.console.rig import Place, checked, console, filled, now_ms


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    async with console() as (browser, client):
        await filled(client)
        yield browser, client


class Stream:
    """A browser's EventSource: what it was sent, and when it leaves."""

    def __init__(self, app: Any, path: str, last: str = "", cookie: str = "") -> None:
        self._app = app
        self._path = path
        self._last = last
        self._cookie = cookie
        self.status = 0
        self.text = ""
        self._leaves = trio.Event()

    async def run(self) -> None:
        raw, _, query = self._path.partition("?")
        headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
        if self._last:
            headers.append((b"last-event-id", self._last.encode()))
        if self._cookie:
            headers.append((b"cookie", self._cookie.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": None,
        }
        first = True

        async def receive() -> Any:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await self._leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                self.status = message["status"]
            self.text += message.get("body", b"").decode()

        await self._app(scope, receive, send)

    def leave(self) -> None:
        self._leaves.set()

    @property
    def events(self) -> list[tuple[str, Any, str]]:
        """(kind, data, id) of each."""
        found = []
        for block in self.text.split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in block.split("\n") if not line.startswith(":"))
            if "event" in fields:
                found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
        return found

    @property
    def values(self) -> list[str]:
        return [
            record["value"]["text"] for kind, data, _ in self.events if kind == "records" for record in data["records"]
        ]


async def send(client: Client, *values: str, partition: int = 0) -> None:
    await Producer(client, now_ms).send([ToSend("orders", value.encode(), partition=partition) for value in values])


async def test_what_comes_is_sent(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    page = (await browser.get("/topics/orders/live.json")).json
    assert page["from"] == "0:5,1:5"
    assert len(page["records"]) == 10
    checked(await browser.get("/topics/orders/live"))
    async with trio.open_nursery() as nursery:
        stream = Stream(browser.app, "/topics/orders/live-events")
        nursery.start_soon(stream.run)
        await trio.sleep(2)
        await send(client, "a", "b")
        await send(client, "c", partition=1)
        await trio.sleep(3)
        assert stream.status == 200
        assert sorted(stream.values) == ["a", "b", "c"]
        assert stream.events[-1][2] == "0:7,1:6"
        await trio.sleep(60)
        assert ": still here\n\n" in stream.text
        stream.leave()
    await send(client, "d")
    async with trio.open_nursery() as nursery:  # and is taken up where it was lost
        again = Stream(browser.app, "/topics/orders/live-events?from=0:0", "0:7,1:6")
        nursery.start_soon(again.run)
        await trio.sleep(3)
        assert again.values == ["d"]
        again.leave()


async def test_only_what_is_wanted(autojump_clock: MockClock, place: Place) -> None:
    browser, _client = place
    async with trio.open_nursery() as nursery:
        query = "from=0:0,1:0&partition=1&json=%24.user.id+%3D%3D+1"
        stream = Stream(browser.app, f"/topics/orders/live-events?{query}")
        nursery.start_soon(stream.run)
        await trio.sleep(3)
        assert [json.loads(value)["n"] for value in stream.values] == [1, 7]
        stream.leave()
    for bad in ("json=%24%5B", "partition=9", "from=x"):
        answer = await browser.get(f"/topics/orders/live-events?{bad}")
        assert answer.status == 400, bad
    shown = await browser.get("/topics/orders/live?json=%24%5B")
    checked(shown)
    assert shown.status == 400


async def test_what_is_too_much_is_left_out_and_counted(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, client = place
    monkeypatch.setattr("barnabas.server.console.pages.records.live_events.EACH_MAX", 3)
    monkeypatch.setattr("barnabas.server.console.pages.records.live_events.MANY", 20)
    async with trio.open_nursery() as nursery:
        stream = Stream(browser.app, "/topics/orders/live-events")
        nursery.start_soon(stream.run)
        await trio.sleep(2)
        await send(client, *(str(number) for number in range(10)))
        await trio.sleep(3)
        assert stream.values == ["7", "8", "9"]
        assert sum(data["left_out"] for _, data, _ in stream.events) == 7
        await send(client, *(str(number) for number in range(30)))
        await trio.sleep(3)
        await send(client, "last")
        await trio.sleep(3)
        assert stream.values[-1] == "last"
        assert len(stream.values) + sum(data["left_out"] for _, data, _ in stream.events) == 41
        stream.leave()


async def test_tails_are_bounded_and_given_back(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            streams = [Stream(browser.app, "/topics/orders/live-events") for _ in range(TAILS)]
            for stream in streams:
                nursery.start_soon(stream.run)
            await trio.sleep(3)
            assert {stream.status for stream in streams} == {200}
            refused = await browser.get("/topics/orders/live-events")
            assert refused.status == 503
            for stream in streams:
                stream.leave()
    async with trio.open_nursery() as nursery:  # one that breaks off gives its tail back, too
        for _ in range(TAILS + 2):
            scope = trio.CancelScope()
            stream = Stream(browser.app, "/topics/orders/live-events")
            nursery.start_soon(within, scope, stream)
            await trio.sleep(2)
            assert stream.status == 200
            scope.cancel()
            await trio.sleep(0.1)


async def within(scope: trio.CancelScope, stream: Stream) -> None:
    with scope:
        await stream.run()


# -- lag over time -----------------------------------------------------------------------------------------------------


async def test_the_lag_is_followed(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await commit_offsets(client, "billing", {("orders", 0): 5, ("orders", 1): 5})
    history = browser.app.history
    async with trio.open_nursery() as nursery:
        nursery.start_soon(history.run, Desk(client), now_ms)
        await trio.sleep(1)
        assert '<svg viewBox="-4' not in (await browser.get("/groups/billing/lag")).text
        await trio.sleep(SAMPLE_S * 3)
        await send(client, "a", "b", "c")
        await trio.sleep(SAMPLE_S * 6)
        data = (await browser.get("/groups/billing/lag.json")).json
        assert [each["lag"] for each in data["history"]][:4] == [0, 0, 0, 0]
        assert data["history"][-1]["lag"] == 3
        # The first record that is not read has waited since it was written, whatever was written behind it.
        waited = [each["lag_seconds"] for each in data["history"]]
        assert waited[:4] == [0.0] * 4
        assert [round(each - SAMPLE_S, 3) for each in waited[5:]] == [round(each, 3) for each in waited[4:-1]]
        assert data["lag_seconds"] == pytest.approx(waited[-1] + 1, abs=SAMPLE_S)
        assert data["trend"] == 3.0
        page = await browser.get("/groups/billing/lag")
        checked(page)
        assert "Falling behind by 3.0 records a minute" in page.words
        assert page.text.count("<polyline points=") == 2
        await browser.post("/groups/billing/delete", {"confirm": "billing"})
        await trio.sleep(SAMPLE_S * 2)
        assert history.of("billing") == []
        nursery.cancel_scope.cancel()


def test_trends() -> None:
    assert trend([]) is None
    for samples, expected in (
        ([(0, 5)], None),
        ([(0, 5), (10_000, 6)], None),
        ([(0, 5), (30_000, 6)], 2.0),
        ([(0, 100), (60_000, 40)], -60.0),
        ([(0, 1000), (1_000_000, 0), (1_060_000, 0)], 0.0),
    ):
        assert trend([Sample(*each) for each in samples]) == expected


async def test_a_gap_ends_nothing(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    class Away(Desk):
        def __init__(self) -> None:
            self.asked = 0

        async def groups(self) -> Any:
            self.asked += 1
            await trio.lowlevel.checkpoint()
            raise Unreachable("nobody is there")

    history, desk = History(), Away()
    with trio.move_on_after(SAMPLE_S * 5.5):
        await history.run(desk, now_ms)
    assert desk.asked == 6
    assert caplog.text.count("nobody is there") == 1
    assert SAMPLES * SAMPLE_S == 3600
