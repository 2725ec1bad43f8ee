"""Behind a proxy: who visits, and cookies for encrypted ways only; and nobody else may say so."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from barnabas.server.cli import main as cli
from barnabas.server.console.web.proxies import Proxies
from barnabas.server.tests.console.rig import console
from barnabas.server.tests.runtime.test_logs import restored  # noqa: F401  # the log set-up is undone after each test

PROXIES = Proxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("headers", "visitor"),
    [
        ([], "127.0.0.1"),
        (["192.0.2.7"], "192.0.2.7"),
        (["198.51.100.1, 192.0.2.7"], "192.0.2.7"),  # the first one is what the visitor wrote
        (["198.51.100.1", "192.0.2.7, 10.1.2.3"], "192.0.2.7"),
        (["10.9.9.9, 10.1.2.3"], "10.9.9.9"),
        (["192.0.2.7:4711"], "192.0.2.7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["192.0.2.7, nonsense"], "127.0.0.1"),
        (["192.0.2.7, unknown, 10.1.2.3"], "10.1.2.3"),
        (["[::1"], "127.0.0.1"),
        ([","], "127.0.0.1"),
        (["\r\nx: y"], "127.0.0.1"),
    ],
)
def test_whose_request_it_is(headers: Iterable[str], visitor: str) -> None:
    assert PROXIES.visitor("127.0.0.1", headers) == visitor


@pytest.mark.parametrize(
    ("address", "are"),
    [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("10.200.0.1", True), ("11.0.0.1", False), ("fd12::1", True)],
)
def test_who_is_trusted(address: str, are: bool) -> None:
    assert PROXIES.are_trusted(address) is are
    assert not PROXIES.are_trusted("?")
    assert not Proxies().are_trusted(address)


FORWARDED = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}


async def test_the_visitor_behind_a_proxy(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with console(proxies=PROXIES, password="open sesame") as (browser, _):
        page = await browser.get("/login", FORWARDED)
        assert (page.header("set-cookie") or "").endswith("; HttpOnly; SameSite=Strict; Secure")
        assert "Secure" not in ((await browser.get("/", {"cookie": ""})).header("set-cookie") or "")
        await browser.get("/login", FORWARDED)
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            for _ in range(7):
                await browser.post("/login", {"password": "guess"}, FORWARDED)
            assert "somebody from 192.0.2.7: login" in caplog.text
            assert (await browser.post("/login", {"password": "open sesame"}, FORWARDED)).status == 429
            # Others behind the same proxy need not wait for him.
            other = {**FORWARDED, "x-forwarded-for": "192.0.2.7, 192.0.2.8"}
            inside = await browser.post("/login", {"password": "open sesame"}, other)
        assert inside.status == 303
        assert (inside.header("set-cookie") or "").endswith("; Secure")


async def test_nobody_else_says_who_visits(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """Or guessing would be free: a new address each time."""
    for options in ({}, {"proxies": Proxies(["10.0.0.1"])}):
        async with console(password="open sesame", **options) as (browser, _):
            page = await browser.get("/login", FORWARDED)
            assert "Secure" not in (page.header("set-cookie") or "")
            statuses = [
                (await browser.post("/login", {"password": "x"}, {"x-forwarded-for": f"192.0.2.{each}"})).status
                for each in range(7)
            ]
            assert statuses[-1] == 429
            await trio.lowlevel.checkpoint()
    assert "192.0.2." not in caplog.text


def test_a_proxy_must_be_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hypercorn")
    assert cli.main(["console", "--log-level", "off", "--proxy", "proxy.example"], {}) == 2
    assert "a network as 10.0.0.0/8" in capsys.readouterr().err
