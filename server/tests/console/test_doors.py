"""Visitors who log in as users of the cluster: each sees and does what the cluster lets him."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from barnabas.server.client.access.acls import create_acl
from barnabas.server.client.client import open_client
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.doors import ClusterDoor
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.tests.console.rig import Browser, app_over, checked
from barnabas.server.tests.network.sasl_rig import PASSWORD, sasl_broker

AUTHORIZED = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"}


async def logged_in(browser: Browser, name: str, password: str) -> int:
    checked(await browser.get("/login"))
    return (await browser.post("/login", {"name": name, "password": password})).status


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_access_is_the_clusters(tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanism: str) -> None:
    with trio.fail_after(60):
        async with sasl_broker(tmp_path, **AUTHORIZED) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]]) as client:
                await create_topics(client, [NewTopic("orders", 1, 1), NewTopic("secret", 1, 1)])
                pattern = ResourcePattern(ResourceType.TOPIC, "orders")
                entry = AccessControlEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
                assert await create_acl(client, AclBinding(pattern, entry)) is None
                door = ClusterDoor([places["CLIENTS"]], mechanism, None, timeout_s=10)
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
    with trio.fail_after(60):
        async with open_client(["localhost:1"]) as client:
            door = ClusterDoor(["localhost:1"], "PLAIN", None, timeout_s=1)
            browser = Browser(app_over(client, door=door))
            await browser.get("/login")
            answer = await browser.post("/login", {"name": "alice", "password": PASSWORD})
            assert answer.status == 403
            assert "localhost:1" in answer.words
            assert 'value="alice"' in answer.text
            assert PASSWORD not in answer.text
