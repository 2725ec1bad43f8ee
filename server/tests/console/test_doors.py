"""Visitors who log in as users of the cluster: each sees and does what the cluster lets him."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from barnabas.server.client.access.acls import create_acl
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.desk import Desk
from barnabas.server.console.doors import ClusterDoor, Entrance
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.tests.client.rig import to_broker
from barnabas.server.tests.console.rig import Browser, app_over, checked, console, filled
from barnabas.server.tests.console.test_live import Stream, send
from barnabas.server.tests.network.sasl_rig import PASSWORD, sasl_broker

AUTHORIZED = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"}


async def logged_in(browser: Browser, name: str, password: str) -> int:
    checked(await browser.get("/login"))
    return (await browser.post("/login", {"name": name, "password": password})).status


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_access_is_the_clusters(tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanism: str) -> None:
    with trio.fail_after(240):
        async with sasl_broker(tmp_path, **AUTHORIZED) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]], timeout_s=60) as client:
                await create_topics(client, [NewTopic("orders", 1, 1), NewTopic("secret", 1, 1)])
                pattern = ResourcePattern(ResourceType.TOPIC, "orders")
                entry = AccessControlEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
                assert await create_acl(client, AclBinding(pattern, entry)) is None
                door = ClusterDoor([places["CLIENTS"]], mechanism, None, timeout_s=60)
                app = app_over(client, door=door)
                alice = Browser(app)
                assert (await alice.get("/topics")).status == 303
                with caplog.at_level(logging.INFO, "barnabas.console.audit"):
                    for name, password in (("alice", "wrong"), ("nobody", PASSWORD)):
                        assert await logged_in(alice, name, password) == 403
                    assert await logged_in(alice, "alice", PASSWORD) == 303
                    assert PASSWORD not in caplog.text
                    assert caplog.records[-1].getMessage().endswith("alice from 127.0.0.1: logged in")
                    listed = (await alice.get("/topics.json")).json["topics"]
                    assert [each["name"] for each in listed] == ["orders"]
                    checked(await alice.get("/topics/orders/records"))
                    assert (await alice.get("/topics/secret/records")).status in (403, 404)
                    await alice.get("/topics/orders/delete")
                    denied = await alice.post("/topics/orders/delete", {"confirm": "orders"})
                    assert (denied.status, "TOPIC_AUTHORIZATION_FAILED" in denied.words) == (403, True)
                    assert "alice from 127.0.0.1: topics.delete" in caplog.records[-1].getMessage()
                if mechanism == "PLAIN":
                    bob = Browser(app)
                    assert await logged_in(bob, "bob", "secret-2") == 303
                    assert (await bob.get("/topics.json")).json["topics"] == []  # not what alice was told
                    assert [each["name"] for each in (await alice.get("/topics.json")).json["topics"]] == ["orders"]
                await alice.get("/topics")
                assert (await alice.post("/logout")).status == 303
                assert (await alice.get("/topics")).status == 303


async def test_a_cluster_that_is_away_lets_nobody_in(tmp_path: Path) -> None:
    with trio.fail_after(240):
        async with open_client(["localhost:1"]) as client:
            door = ClusterDoor(["localhost:1"], "PLAIN", None, timeout_s=1)
            browser = Browser(app_over(client, door=door))
            await browser.get("/login")
            answer = await browser.post("/login", {"name": "alice", "password": PASSWORD})
            assert answer.status == 403
            assert "localhost:1" in answer.words
            assert 'value="alice"' in answer.text
            assert PASSWORD not in answer.text


class OpenDoor:
    """Lets everybody in for half a minute, each with `client`."""

    asks_name = True
    asks_token = False

    def __init__(self) -> None:
        self.client: Client | None = None

    async def enter(self, name: str, password: str) -> Entrance:
        await trio.lowlevel.checkpoint()
        assert self.client is not None
        return Entrance(name, Desk(self.client), 30.0)


@pytest.mark.parametrize("logs_out", [True, False])
async def test_a_live_tail_ends_with_its_log_in(autojump_clock: MockClock, *, logs_out: bool) -> None:
    door = OpenDoor()
    async with console(door=door) as (browser, client), trio.open_nursery() as nursery:
        connect = to_broker(browser.broker)  # type: ignore[attr-defined]
        async with open_client(["any:1"], connect=connect, rng=Random(8)) as own:
            await filled(client)
            door.client = own
            await browser.get("/login")
            assert (await browser.post("/login", {"name": "ada", "password": "x"})).status == 303
            nursery.start_soon(browser.app.end_log_ins)
            cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
            stream = Stream(browser.app, "/topics/orders/live-events", cookie=cookie)
            nursery.start_soon(stream.run)
            await trio.sleep(10)
            await send(client, "a")
            await trio.sleep(5)
            assert stream.values == ["a"]
            if logs_out:
                await browser.get("/topics")
                assert (await browser.post("/logout")).status == 303
            else:
                await trio.sleep(30)  # and nobody visits
            await trio.sleep(5)
            assert [(kind, data["partition"]) for kind, data, _ in stream.events[1:]] == [("failed", None)]
            await send(client, "b")
            await trio.sleep(5)
            assert stream.values == ["a"]
            nursery.cancel_scope.cancel()
