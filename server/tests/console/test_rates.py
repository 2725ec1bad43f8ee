"""Rates by two looks, and what it costs to know since when groups are behind."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey
from barnabas.server.client.client import Client
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.topics import delete_topics
from barnabas.server.console import history as history_of
from barnabas.server.console.desk import Desk
from barnabas.server.console.history import READS, SAMPLE_S, History
from barnabas.server.console.rates import FOLLOWED_MAX, FOLLOWED_MS, KEPT_MAX, WINDOW_MS, Rate, Rates
from barnabas.server.console.web.rendering import bytes_rate, curves, rate
from barnabas.server.tests.console.rig import Browser, checked, console, filled, now_ms
from barnabas.server.tests.console.test_live import send

PLACE, OTHER = ("t", 0), ("t", 1)


def test_a_rate_needs_two_looks_at_each_partition() -> None:
    rates = Rates()
    rates.look(0, {PLACE: 100, OTHER: 0}, {PLACE: 1000})
    assert rates.records(0, [PLACE]) is None
    rates.look(500, {PLACE: 200})
    assert rates.records(500, [PLACE]) is None  # they are too near
    rates.look(10_000, {PLACE: 300}, {PLACE: 6000})
    assert rates.records(10_000, [PLACE]) == Rate(20.0, 10.0)
    assert rates.bytes(10_000, [PLACE]) == Rate(500.0, 10.0)
    assert rates.records(10_000, [PLACE, OTHER]) is None
    rates.look(12_000, {OTHER: 60})
    assert rates.records(12_000, [PLACE, OTHER]) == Rate(25.0, 10.0)
    assert rates.records(12_000, []) is None


def test_a_rate_is_of_the_last_minute() -> None:
    rates = Rates()
    for second in range(0, 300, 10):
        rates.look(second * 1000, {PLACE: 0 if second < 200 else (second - 200) * 5})
    found = rates.records(290_000, [PLACE])
    assert found == Rate(5.0, WINDOW_MS / 1000)
    assert rates.records(290_000 + WINDOW_MS + 1, [PLACE]) is None  # nobody has looked since


def test_looks_in_quick_succession_still_make_a_rate() -> None:
    """Somebody who loads a page again and again."""
    rates = Rates()
    for tenth in range(100):
        rates.look(tenth * 100, {PLACE: tenth})
    assert rates.records(9_900, [PLACE]) == Rate(10.0, 9.9)


def test_a_topic_made_anew_is_another_one() -> None:
    rates = Rates()
    rates.look(0, {PLACE: 100}, {PLACE: 1000})
    rates.look(10_000, {PLACE: 5}, {PLACE: 50})
    assert rates.records(10_000, [PLACE]) is None
    assert rates.bytes(10_000, [PLACE]) is None
    rates.look(20_000, {PLACE: 15}, {PLACE: 40})
    assert rates.records(20_000, [PLACE]) == Rate(1.0, 10.0)
    assert rates.bytes(20_000, [PLACE]) == Rate(-1.0, 10.0)


def test_what_is_kept_is_bounded() -> None:
    rates = Rates()
    many = {("t", index): 0 for index in range(KEPT_MAX + 10)}
    rates.look(0, many, many)
    rates.want(0, many)
    assert (len(rates._ends), len(rates._sizes), len(rates._followed)) == (KEPT_MAX, KEPT_MAX, FOLLOWED_MAX)
    for second in range(1000):
        rates.look(second * 10, {PLACE: second})
    assert len(rates._ends[PLACE]) <= WINDOW_MS / 500 + 2


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(None, "–"), (0.0, "0"), (0.0123, "0.012"), (-0.5, "-0.5"), (1.0, "1.0"), (9.96, "10.0"), (1234.5, "1,234")],
)
def test_rates_are_written(per_s: float | None, text: str) -> None:
    assert rate(per_s) == text


def test_rates_of_bytes_are_written() -> None:
    assert bytes_rate(None) == "–"
    assert bytes_rate(0.2) == bytes_rate(0)
    assert bytes_rate(-2048.0).startswith("−")


def test_lines_end_where_nothing_is_known() -> None:
    samples = [{"time_ms": at, "x": value} for at, value in enumerate([None, 1.0, 2.0, None, None, 4.0, None])]
    lines = curves(samples, "x", 60, 40)
    assert lines == [["10.0,30.0", "20.0,20.0"], ["50.0,0.0", "51.0,0.0"]]
    assert curves(samples[:1], "x", 60, 40) == []


async def test_pages_show_rates(autojump_clock: MockClock) -> None:
    async with console() as (browser, client):
        await filled(client)
        row = (await browser.get("/topics.json")).json["topics"][0]
        assert (row["records_per_s"], row["bytes_per_s"], row["rate_seconds"]) == (None, None, None)
        first = await browser.get("/topics")
        checked(first)
        assert "Rates need a second look" in first.words
        await trio.sleep(10)
        await send(client, *["x"] * 40)
        page = await browser.get("/topics")
        checked(page)
        assert "from two looks 10 s apart" in page.words
        data = (await browser.get("/topics/orders/partitions.json")).json
        assert (data["records_per_s"], data["rate_seconds"]) == (4.0, pytest.approx(10, abs=0.1))
        assert data["bytes_per_s"] > 0
        assert sum(row["records_per_s"] for row in data["partitions"]) == 4.0
        checked(await browser.get("/topics/orders/partitions"))


async def test_what_was_shown_is_followed_for_a_while(autojump_clock: MockClock) -> None:
    async with console() as (browser, client):
        await filled(client)
        await filled(client, "other", 1, 1)
        history = browser.app.history
        await browser.get("/topics/orders/partitions")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(history.run, Desk(client), now_ms)
            await trio.sleep(SAMPLE_S * 2.5)
            await send(client, *["x"] * 20)
            await trio.sleep(SAMPLE_S)
            seen = history.rates.records(now_ms(), [("orders", 0), ("orders", 1)])
            assert seen is not None
            assert seen.per_s * seen.seconds == pytest.approx(20, rel=0.01)
            assert history.rates.records(now_ms(), [("other", 0)]) is None  # nobody wanted it
            await delete_topics(client, ["orders"])
            await trio.sleep(SAMPLE_S * 2)
            assert not history.rates._followed
            await browser.get("/topics/other/partitions")
            await trio.sleep(FOLLOWED_MS / 1000 + SAMPLE_S * 2)
            assert not history.rates._followed
            nursery.cancel_scope.cancel()


async def test_a_record_is_read_once_to_know_its_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as (browser, client):
        await filled(client)
        await commit_offsets(client, "billing", {("orders", 0): 2, ("orders", 1): 1})
        asked = counted_asks(monkeypatch)
        await samples(browser, client, 5)
        assert asked.count(ApiKey.FETCH) == 1
        waited = [each.lag_s for each in browser.app.history.of("billing")]
        assert len(waited) == 5
        assert None not in waited
        await commit_offsets(client, "billing", {("orders", 0): 3})
        await samples(browser, client, 3)
        assert asked.count(ApiKey.FETCH) == 2


async def test_reads_for_times_are_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of partitions with most lag come first; what could not be read yet has no seconds."""
    monkeypatch.setattr(history_of, "READS", 1)
    async with console() as (browser, client):
        await filled(client)
        await commit_offsets(client, "little", {("orders", 0): 4})
        await commit_offsets(client, "much", {("orders", 1): 0})
        history, desk = browser.app.history, Desk(client)
        known = []
        for _ in range(2):
            groups = await desk.groups()
            await history.read_times(client, groups)
            history.add(now_ms(), groups)
            known.append([history.of(name)[-1].lag_s is not None for name in ("much", "little")])
        assert known == [[True, False], [True, True]]
        assert READS > 1


def counted_asks(monkeypatch: pytest.MonkeyPatch) -> list[ApiKey]:
    asked: list[ApiKey] = []
    once = Client._once

    async def counted(self: Client, place: Any, key: ApiKey, *rest: Any) -> Any:
        asked.append(key)
        return await once(self, place, key, *rest)

    monkeypatch.setattr(Client, "_once", counted)
    return asked


async def samples(browser: Browser, client: Client, count: int) -> None:
    history: History = browser.app.history
    with trio.move_on_after(SAMPLE_S * (count - 0.5)):
        await history.run(Desk(client), now_ms)
