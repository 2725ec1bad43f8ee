"""Brokers, transactions, ACLs, users and quotas."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from trio.testing import MockClock

from barnabas.server.client.access.quotas import describe_quotas
from barnabas.server.client.access.scram_users import describe_users
from barnabas.server.client.offsets import Span, spans
from barnabas.server.console.web.view import SAID
from barnabas.server.tests.client.rig import transactional
from barnabas.server.tests.console.rig import Place, checked, console, filled

AUTHORIZED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "allow_everyone_if_no_acl_found": "true",
}


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    async with console() as (browser, client):
        await filled(client)
        yield browser, client


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_a_brokers_directories(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    data = (await browser.get("/brokers/0/directories.json")).json
    assert len(data["directories"]) == 1
    assert data["directories"][0]["replicas"] == 2
    assert {(row["topic"], row["partition"]) for row in data["replicas"]} == {("orders", 0), ("orders", 1)}
    assert data["replicas"][0]["bytes"] >= data["replicas"][1]["bytes"] > 0
    checked(await browser.get("/brokers/0/directories"))
    for number in ("7", "x", "-1", "9" * 30):
        assert (await browser.get(f"/brokers/{number}/directories")).status == 404
        assert (await browser.get(f"/brokers/{number}/settings")).status == 404


async def test_a_brokers_settings(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, _ = place
    rows = {each["name"]: each for each in (await browser.get("/brokers/0/settings.json")).json["settings"]}
    assert rows["broker.id"]["is_read_only"]
    assert len(rows) > 100
    page = await browser.get("/brokers/0/settings?edit=log.retention.ms")
    checked(page)
    assert len(page.body) < 200_000
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/brokers/0/settings", {"name": "log.retention.ms", "value": "777777"})
    assert "broker 0: set log.retention.ms" in caplog.text
    assert "777777" not in caplog.text  # values may be secrets
    assert SAID["set"] in (await browser.follow(done)).words
    now = (await browser.get("/brokers/0/settings.json?set=1")).json["settings"]
    assert [(each["name"], each["value"]) for each in now] == [("log.retention.ms", "777777")]
    back = await browser.post("/brokers/0/settings", {"name": "log.retention.ms", "default": "1"})
    assert back.status == 303
    refused = await browser.post("/brokers/0/settings", {"name": "broker.id", "value": "3"})
    assert refused.status == 422
    checked(refused)
    assert 'type="password"' not in page.text


async def test_a_brokers_log_levels(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    rows = (await browser.get("/brokers/0/loggers.json")).json["settings"]
    name = next(row["name"] for row in rows if row["name"] != "root")
    checked(await browser.get(f"/brokers/0/loggers?edit={name}"))
    done = await browser.post("/brokers/0/loggers", {"name": name, "value": "ERROR"})
    assert SAID["set"] in (await browser.follow(done)).words
    found = (await browser.get(f"/brokers/0/loggers.json?q={name}")).json["settings"]
    assert [row["value"] for row in found if row["name"] == name] == ["ERROR"]
    wrong = await browser.post("/brokers/0/loggers", {"name": name, "value": "LOUD"})
    assert wrong.status == 422
    checked(wrong)
    assert (await browser.post("/brokers/0/loggers", {"name": name, "default": "1"})).status == 303


# -- transactions ------------------------------------------------------------------------------------------------------


async def test_transactions(autojump_clock: MockClock, place: Place) -> None:
    browser, _client = place
    assert "No producer has a transactional id yet." in (await browser.get("/transactions")).words
    broker = browser.broker  # type: ignore[attr-defined]
    async with transactional(broker, "<tx>") as writer:
        idle = (await browser.get("/transactions.json")).json
        assert (idle["all"], idle["open"]) == (1, 0)
        await writer.write("orders", b"1")
        data = (await browser.get("/transactions.json")).json
        row = data["transactions"][0]
        assert (row["transactional_id"], row["state"], row["topics"]) == ("<tx>", "Ongoing", ["orders"])
        assert (row["timeout_ms"], row["producer_id"]) == (60_000, writer.producer_id)
        assert row["open_seconds"] >= 0
        checked(await browser.get("/transactions"))
        assert (await browser.get("/transactions.json?q=other")).json["transactions"] == []
        assert (await browser.get("/transactions.json?state=Empty")).json["transactions"] == []
        topic = (await browser.get("/topics/orders/transactions.json")).json
        first = topic["partitions"][0]
        assert (topic["held"], first["stable"], first["end"], first["held"]) == (1, 5, 6, 1)
        open_ = first["open"][0]
        assert (open_["transactional_id"], open_["start_offset"], open_["is_hanging"]) == ("<tx>", 5, False)
        page = await browser.get("/topics/orders/transactions")
        checked(page)
        assert "only part of it is committed" in page.words
        await writer.end(commit=True)
        after = await browser.get("/topics/orders/transactions")
        assert "No open transaction holds back readers" in after.words


async def test_a_transaction_is_aborted(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    browser, client = place
    broker = browser.broker  # type: ignore[attr-defined]
    async with transactional(broker, "tx") as writer:
        await writer.write("orders", b"1")
        await browser.get("/topics/orders/transactions")
        form = {"partition": "0", "producer_id": str(writer.producer_id), "start_offset": "5"}
        for other, status in (
            ({**form, "start_offset": "4"}, 409),
            ({**form, "producer_id": "999"}, 409),
            ({**form, "partition": "9"}, 404),
            ({**form, "partition": "x"}, 400),
            ({}, 409),
        ):
            answer = await browser.post("/topics/orders/transactions", other)
            assert answer.status == status, answer.words
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            done = await browser.post("/topics/orders/transactions", form)
        assert "aborted the transaction of producer" in caplog.text
        assert SAID["aborted"] in (await browser.follow(done)).words
        assert (await spans(client, [("orders", 0)], committed=True))["orders", 0] == Span(0, 7)
        assert (await browser.post("/topics/orders/transactions", form)).status == 409


# -- access ------------------------------------------------------------------------------------------------------------


async def test_without_an_authorizer_there_are_no_acls(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    page = await browser.get("/acls")
    checked(page)
    assert "These brokers have no authorizer" in page.words
    await browser.get("/users")
    form = {"principal": "User:a", "name": "t", "resource": "Topic", "operation": "Read"}
    assert (await browser.post("/acls", form)).status == 409


async def test_acls(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with console(settings=AUTHORIZED) as (browser, _):
        page = await browser.get("/acls")
        checked(page)
        assert "There are no ACLs" in page.words
        form = {
            "principal": "User:<alice>",
            "host": "",
            "permission": "Allow",
            "operation": "DescribeConfigs",
            "resource": "Topic",
            "name": "orders",
            "pattern": "Prefixed",
        }
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            done = await browser.post("/acls", form)
            assert SAID["acl-created"] in (await browser.follow(done)).words
        assert "created the ACL: Allow User:<alice> DescribeConfigs from *, Topic:PREFIXED:orders" in caplog.text
        rows = (await browser.get("/acls.json")).json["acls"]
        assert rows == [{**form, "host": "*"}]
        await browser.post("/acls", {**form, "principal": "User:bob", "resource": "Cluster", "name": "", "pattern": ""})
        assert (await browser.get("/acls.json?q=BOB")).json["acls"][0]["name"] == "kafka-cluster"
        checked(await browser.get("/acls"))
        for other, why in (
            ({**form, "principal": "alice"}, "User:name is expected"),
            ({**form, "name": ""}, "of the resource"),
            ({**form, "operation": "Dance"}, "one of Read"),
            ({**form, "resource": "Any"}, "one of Topic"),
            ({**form, "resource": "Cluster", "pattern": "Literal"}, "INVALID_REQUEST"),
        ):
            answer = await browser.post("/acls", other)
            assert answer.status == 422, answer.words
            checked(answer)
            assert why in answer.words


async def test_users(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client = place
    page = await browser.get("/users")
    checked(page)
    assert "Nobody has a SCRAM credential." in page.words
    form = {"user": "<eve>", "mechanism": "SCRAM-SHA-512", "password": "a secret"}
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/users", form)
        assert SAID["user-put"] in (await browser.follow(done)).words
    assert "gave user <eve> a SCRAM-SHA-512 password" in caplog.text
    assert "a secret" not in caplog.text
    users: Any = await describe_users(client)
    assert [(one.mechanism, one.iterations) for one in users["<eve>"]] == [("SCRAM-SHA-512", 8192)]
    shown = await browser.get("/users")
    checked(shown)
    assert "&lt;eve&gt;" in shown.text
    for other, why in (
        ({**form, "user": ""}, "a name is expected"),
        ({**form, "password": ""}, "must not be empty"),
        ({**form, "mechanism": "PLAIN"}, "one of SCRAM-SHA-256"),
    ):
        answer = await browser.post("/users", other)
        assert answer.status == 422
        checked(answer)
        assert why in answer.words
        assert "a secret" not in answer.text


async def test_quotas(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client = place
    page = await browser.get("/quotas")
    checked(page)
    assert "There are no quotas" in page.words
    form = {"client-id": "<c>", "user-default": "1", "limit": "producer_byte_rate", "value": "1,000"}
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/quotas", form)
        assert SAID["quota-set"] in (await browser.follow(done)).words
    assert "set producer_byte_rate=1000 for user (default), client-id <c>" in caplog.text
    rows = (await browser.get("/quotas.json")).json["quotas"]
    assert rows == [
        {
            "entity": [{"kind": "client-id", "name": "<c>"}, {"kind": "user", "name": None}],
            "limits": {"producer_byte_rate": 1000.0},
        }
    ]
    checked(await browser.get("/quotas"))
    assert len(await describe_quotas(client)) == 1
    for other, why in (
        ({**form, "client-id": "", "user-default": ""}, ""),
        ({"limit": "producer_byte_rate", "value": "1"}, "a user, a client id or an address"),
        ({**form, "value": "0"}, "above 0"),
        ({**form, "value": "-1"}, "above 0"),
        ({**form, "value": "nan"}, "above 0"),
        ({**form, "limit": "colour"}, "one of producer_byte_rate"),
        ({**form, "ip": "127.0.0.1"}, "INVALID_REQUEST"),
    ):
        answer = await browser.post("/quotas", other)
        if not why:  # a box that is ticked counts, whatever its value
            assert answer.status == 303
            continue
        assert answer.status == 422, answer.words
        checked(answer)
        assert why in answer.words
