"""Delegation tokens: listed, made, renewed, ended; the secret is shown once; where there are none, it is said why."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.delegation_tokens import Holder, Token
from barnabas.server.client.client import open_client
from barnabas.server.client.failures import Unreachable
from barnabas.server.console.doors import ClusterDoor
from barnabas.server.console.pages.access import tokens
from barnabas.server.testing import Client
from barnabas.server.tests.console.rig import Browser, app_over, checked, console
from barnabas.server.tests.network.sasl_rig import PASSWORD, log_in, sasl_broker
from compat_tests.subjects.security.guarded import start

KEY = {"delegation_token_secret_key": "very secret", "delegation_token_expiry_time_ms": "3600000"}


def test_holders() -> None:
    assert Holder.of(" alice ") == Holder.of("User:alice") == Holder("User", "alice")
    assert Holder.of("User:CN=a:b,O=c") == Holder("User", "CN=a:b,O=c")


async def logged_in(client: Any, clients: str, passwords: dict[str, str]) -> list[Browser]:
    door = ClusterDoor([clients], "PLAIN", None, timeout_s=60)
    browsers = []
    for name, password in passwords.items():
        browser = Browser(app_over(client, door=door))
        await browser.get("/login")
        assert (await browser.post("/login", {"name": name, "password": password})).status == 303
        browsers.append(browser)
    return browsers


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool]) -> None:
    """Brokers of Apache Kafka learn of a change when they have read it from the controller's log."""
    with trio.fail_after(60):
        while True:
            if is_so(await ask()):
                return
            await trio.sleep(0.05)


async def life(clients: str, alice: Browser, bob: Browser, caplog: pytest.LogCaptureFixture) -> None:
    """Of a token of alice's, which bob may renew."""
    empty = await alice.get("/tokens")
    checked(empty)
    assert "no delegation token that you may see" in empty.words
    for form, why in (
        ({"lifetime": "soon"}, "a time as 30m, 12h or 7d"),
        ({"lifetime": "0d"}, "a time as 30m, 12h or 7d"),
        ({"renewers": "\n".join(map(str, range(101)))}, "100 at most"),
        ({"renewers": "Group:g"}, "must be users"),
        ({"do": "steal"}, "one of create, renew"),
    ):
        refused = await alice.post("/tokens", {"do": "create", **form} if "do" not in form else form)
        assert (refused.status, why in refused.words) == (422, True), refused.words
        checked(refused)
    with caplog.at_level(logging.DEBUG):
        made = await alice.post("/tokens", {"do": "create", "renewers": "bob\r\n", "lifetime": "2h"})
        assert made.status == 200
    checked(made)
    assert "The token was made." in made.words
    secret = re.findall(r'username="([^"&]+)" password="([^"&]+)"', made.text.replace("&#34;", '"'))
    (token_id, hmac) = secret[0]
    assert f"alice from 127.0.0.1: made delegation token {token_id} of User:alice" in caplog.text
    assert hmac not in caplog.text
    assert len(b64decode(hmac)) == 64
    for browser in (alice, bob):
        await until(lambda browser=browser: browser.get("/tokens"), lambda page: token_id in page.text)
    for path in ("/tokens", "/tokens.json", f"/end-token?id={token_id}", f"/end-token.json?id={token_id}"):
        again = await alice.get(path)
        assert token_id in again.text
        assert hmac not in again.text.replace("&#43;", "+")
    (row,) = (await bob.get("/tokens.json")).json["tokens"]
    assert (row["owner"], row["renewers"], row["may_last"]) == ("User:alice", ["User:bob"], True)
    await until(lambda: broker_log_in(clients, token_id, hmac), lambda code: code == ErrorCode.NONE)
    late = row["expiry"]
    renewed = await bob.post("/tokens.json", {"do": "renew", "id": token_id, "lifetime": "5m"})
    assert renewed.json["expiry"] < late
    nobody = await bob.post("/tokens", {"do": "renew", "id": "none"})
    assert nobody.status == 404
    page = await alice.get(f"/end-token?id={token_id}")
    checked(page)
    wrong = await alice.post("/end-token", {"id": token_id, "confirm": "bob"})
    assert (wrong.status, "was left" in wrong.words) == (422, True)
    checked(wrong)
    ended = await alice.follow(await alice.post("/end-token", {"id": token_id, "confirm": "alice"}))
    assert "The token was ended." in ended.words
    await until(lambda: alice.get(f"/end-token?id={token_id}"), lambda page: "no such token now" in page.words)
    assert (await alice.post("/end-token", {"id": token_id, "confirm": "alice"})).status == 404
    await until(lambda: broker_log_in(clients, token_id, hmac), lambda code: code != ErrorCode.NONE)


async def test_the_life_of_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trio.fail_after(240):
        async with sasl_broker(tmp_path, **KEY) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]], timeout_s=60) as client:
                clients = places["CLIENTS"]
                alice, bob = await logged_in(client, clients, {"alice": PASSWORD, "bob": "secret-2"})
                await life(clients, alice, bob, caplog)
                made_json = await alice.post("/tokens.json", {"do": "create"})
                assert b64decode(made_json.json["hmac"])
                for_bob = await alice.post("/tokens.json", {"do": "create", "owner": "bob"})
                assert (for_bob.status, for_bob.json["owner"], for_bob.json["requester"]) == (
                    200,
                    "User:bob",
                    "User:alice",
                )
                listed = (await alice.get("/tokens.json?q=bob")).json
                assert ([each["owner"] for each in listed["tokens"]], listed["all"]) == (["User:bob"], 2)


@pytest.mark.campaign
@pytest.mark.jvm
async def test_the_life_of_a_token_on_apache_kafka(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trio.fail_after(550):
        guarded = await trio.to_thread.run_sync(partial(start, tmp_path / "kafka", peer=True))
        try:
            async with open_client([guarded.plaintext], timeout_s=60) as client:
                names = {name: f"{name}-secret" for name in ("alice", "bob")}
                alice, bob = await logged_in(client, guarded.clients, names)
                await life(guarded.clients, alice, bob, caplog)
                denied = await alice.post("/tokens", {"do": "create", "owner": "bob"})
                assert (denied.status, "access to tokens of this owner is denied" in denied.words) == (403, True)
                nobody = Browser(app_over(client))
                assert "to who has logged in" in (await nobody.get("/tokens")).words
        finally:
            await trio.to_thread.run_sync(guarded.broker.stop)


async def test_the_secret_is_shown_though_no_others_can_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(client: Any) -> list[Token]:
        await trio.lowlevel.checkpoint()
        raise Unreachable("the broker is away")

    with trio.fail_after(240):
        async with sasl_broker(tmp_path, **KEY) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]], timeout_s=60) as client:
                (alice,) = await logged_in(client, places["CLIENTS"], {"alice": PASSWORD})
                await alice.get("/tokens")
                monkeypatch.setattr(tokens, "describe_tokens", away)
                made = await alice.post("/tokens", {"do": "create"})
                checked(made)
                assert (made.status, "Secret (HMAC)" in made.words) == (200, True), made.words
                assert "Tokens cannot be listed now: the broker is away." in made.words
                assert (await alice.get("/tokens")).status == 502


async def broker_log_in(place: str, token_id: str, hmac: str) -> ErrorCode:
    host, _, port = place.partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        answer = await log_in(Client(stream), "SCRAM-SHA-256", token_id, hmac, by_token=True)
        return ErrorCode.of(answer.error_code)


async def test_where_there_are_none_it_is_said(autojump_clock: MockClock) -> None:
    async with console() as (browser, _):
        for path in ("/tokens", "/end-token?id=x"):
            page = await browser.get(path)
            checked(page)
            assert "to who has logged in" in page.words
        await browser.get("/tokens.json")
        answer = await browser.post("/tokens.json", {"do": "create"})
        assert (answer.status, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in json.dumps(answer.json)) == (403, True)


async def test_where_they_are_not_enabled_it_is_said(tmp_path: Path) -> None:
    with trio.fail_after(240):
        async with sasl_broker(tmp_path) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]], timeout_s=60) as client:
                (browser,) = await logged_in(client, places["CLIENTS"], {"alice": PASSWORD})
                page = await browser.get("/tokens")
                checked(page)
                assert "Delegation tokens are not enabled here: the brokers have no delegation" in page.words
                assert "Make a token" not in page.words
                answer = await browser.post("/tokens", {"do": "create"})
                assert (answer.status, "not enabled" in answer.words) == (409, True)
