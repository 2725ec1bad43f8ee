"""ACLs, credentials and quotas are deleted: first what goes with them is shown, then it is done."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.acls import create_acl
from barnabas.server.client.access.quotas import Entity, Quota, alter_quota, describe_quotas
from barnabas.server.client.access.scram_users import describe_users, put_user
from barnabas.server.client.failures import Failed
from barnabas.server.console.pages.access import delete_quota, delete_user
from barnabas.server.console.pages.access.delete_acl import effects
from barnabas.server.console.web.view import SAID
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.sasl.scram_credentials import ScramMechanism
from barnabas.server.tests.console.rig import Place, checked, console
from barnabas.server.tests.console.test_cluster import AUTHORIZED


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    async with console(settings=AUTHORIZED) as (browser, client):
        yield browser, client


def acl(
    text: str, principal: str = "User:a", operation: AclOperation = AclOperation.READ, host: str = "*"
) -> AclBinding:
    """`+orders`: allowed; `-ord*`: denied with that prefix; `+*`: all topics."""
    name = text[1:]
    is_prefix = len(name) > 1 and name.endswith("*")
    return AclBinding(
        ResourcePattern(
            ResourceType.TOPIC,
            name[:-1] if is_prefix else name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        ),
        AccessControlEntry(principal, host, operation, PermissionType.ALLOW if text[0] == "+" else PermissionType.DENY),
    )


# -- ACLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "others", "said"),
    [
        (acl("+t"), [], ["can no longer do this", "the last ACL for Topic t"]),
        (acl("+t"), [acl("+u")], ["can no longer do this", "the last ACL for Topic t"]),
        (acl("+t"), [acl("+t", "User:b")], ["can no longer do this"]),
        (acl("+t"), [acl("+t", "User:*")], ["stays allowed, by 1 other ACL"]),
        (acl("+t"), [acl("+*"), acl("+x*")], ["stays allowed, by 1 other ACL"]),
        (acl("+tea"), [acl("+*"), acl("+t*"), acl("+x*")], ["stays allowed, by 2 other ACLs"]),
        (acl("+t"), [acl("+t", operation=AclOperation.ALL)], ["stays allowed"]),
        (acl("+t"), [acl("+t", host="10.0.0.1")], ["can no longer do this"]),
        (acl("+t*"), [acl("+t")], ["can no longer do this", "the last ACL for Topic t"]),
        (acl("+t"), [acl("-t", "User:*"), acl("+*")], ["allows nothing now"]),
        (acl("-t"), [acl("+*")], ["is allowed afterwards"]),
        (acl("-t"), [acl("+*"), acl("-*")], ["stays denied, by 1 other ACL"]),
        (acl("-t"), [acl("+t", "User:b")], ["stays forbidden"]),
        (acl("-t"), [], ["stays forbidden", "the last ACL"]),
    ],
)
def test_what_counts_without_an_acl(gone: AclBinding, others: list[AclBinding], said: list[str]) -> None:
    found = list(effects(gone, others))
    assert len(found) == len(said), found
    for text, expected in zip(found, said, strict=True):
        assert expected in text


async def test_an_acl_is_deleted(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client = place
    for each in (acl("+orders", "User:<a&b>"), acl("+*", "User:<a&b>"), acl("+other", "User:<a&b>")):
        assert await create_acl(client, each) is None
    page = checked(await browser.get("/acls?q=orders"))
    links = [link for link in page.links if link.startswith("/delete-acl")]
    assert len(links) == 1
    shown = await browser.get(links[0])
    checked(shown)
    assert "It stays allowed, by 1 other ACL" in shown.words
    data = (await browser.get(links[0].replace("/delete-acl", "/delete-acl.json"))).json
    assert (data["found"], data["acl"]["name"], [each["name"] for each in data["left"]]) == (True, "orders", ["*"])
    assert len((await browser.get("/acls.json")).json["acls"]) == 3  # nothing has happened yet
    form = fields(shown.text, "delete-acl")
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/delete-acl", form)
    assert SAID["acl-deleted"] in (await browser.follow(done)).words
    assert "deleted the ACL: Allow User:<a&b> Read from *, Topic:LITERAL:orders" in caplog.text
    assert len((await browser.get("/acls.json")).json["acls"]) == 2
    assert (await browser.post("/delete-acl", form)).status == 404
    again = await browser.get(links[0])
    checked(again)
    assert "it may be gone already" in again.words
    assert (await browser.post("/delete-acl", {"principal": "a"})).status == 400
    assert (await browser.get("/delete-acl?principal=a")).status == 400
    checked(await browser.get("/delete-acl"))


async def test_without_an_authorizer_no_acl_can_be_deleted(autojump_clock: MockClock) -> None:
    async with console() as (browser, _):
        query = "principal=User:a&resource=Topic&name=t&operation=Read&permission=Allow"
        assert not (await browser.get(f"/delete-acl.json?{query}")).json["found"]
        await browser.get("/acls")
        form = {"principal": "User:a", "resource": "Topic", "name": "t", "operation": "Read"}
        assert (await browser.post("/delete-acl", form)).status == 409


def fields(text: str, action: str) -> list[tuple[str, str]]:
    """The hidden fields of a page's form, but for the token."""
    form = text[text.index(f'action="/{action}"') :]
    pairs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return [(name, unescape(value)) for name, value in pairs if name != "token"]


# -- users -------------------------------------------------------------------------------------------------------------


async def test_credentials_are_deleted(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    browser, client = place
    for each in ScramMechanism:
        assert await put_user(client, "<eve>", each, "secret", 4096, os.urandom) is None
    assert await create_acl(client, acl("+t", "User:<eve>")) is None
    assert await alter_quota(client, (("user", "<eve>"),), {"producer_byte_rate": 5.0}) is None
    links = [link for link in checked(await browser.get("/users")).links if link.startswith("/delete-user")]
    assert len(links) == 2
    shown = await browser.get(links[0])
    checked(shown)
    assert "1 ACL and 1 quota" in shown.words
    data = (await browser.get(links[0].replace("-user", "-user.json"))).json
    assert (data["acls"], data["quotas"]) == (1, 1)
    assert [(each["mechanism"], each["chosen"]) for each in data["credentials"]] == [
        ("SCRAM-SHA-256", True),
        ("SCRAM-SHA-512", False),
    ]
    form = {"user": "<eve>", "mechanism": "SCRAM-SHA-256", "confirm": "<eve>"}
    for other, why in (
        ({**form, "confirm": "eve"}, "nothing was deleted"),
        ({**form, "mechanism": ""}, "some of SCRAM-SHA-256"),
        ({**form, "mechanism": "PLAIN"}, "some of SCRAM-SHA-256"),
        ({**form, "user": "", "confirm": ""}, "nothing was deleted"),
    ):
        refused = await browser.post("/delete-user", other)
        assert (refused.status, why in refused.words) == (422, True), refused.words
        checked(refused)
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/delete-user", form)
    assert "deleted the credentials SCRAM-SHA-256 of user <eve>" in caplog.text
    assert SAID["user-deleted"] in (await browser.follow(done)).words
    users: Any = await describe_users(client)
    assert [each.mechanism for each in users["<eve>"]] == ["SCRAM-SHA-512"]
    assert (await browser.post("/delete-user", form)).status == 404
    both = [("user", "<eve>"), ("confirm", "<eve>"), ("mechanism", "SCRAM-SHA-512"), ("mechanism", "SCRAM-SHA-256")]
    half = await browser.post("/delete-user", both)
    assert (half.status, "SCRAM-SHA-512 was deleted before" in half.words) == (404, True)
    gone = await browser.get(links[0])
    checked(gone)
    assert "they may be gone already" in gone.words


async def test_what_cannot_be_asked_is_said(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as (browser, client):  # without an authorizer
        assert await put_user(client, "eve", ScramMechanism.SHA_256, "secret", 4096, os.urandom) is None
        page = await browser.get("/delete-user?user=eve")
        checked(page)
        assert "ACLs cannot be asked for here." in page.words

        async def denied(client: Any) -> Any:
            return {"eve": Failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}

        monkeypatch.setattr(delete_user, "describe_users", denied)
        assert (await browser.get("/delete-user?user=eve")).status == 403


# -- quotas ------------------------------------------------------------------------------------------------------------

RATE = "producer_byte_rate"


def quota(**kinds: str | None) -> Quota:
    entity: Entity = tuple(sorted((kind.replace("_", "-"), name) for kind, name in kinds.items()))
    return Quota(entity, {RATE: 1.0})


EVERY = [
    quota(client_id=None),
    quota(client_id="c"),
    quota(client_id="d"),
    quota(user=None),
    quota(user=None, client_id=None),
    quota(user=None, client_id="c"),
    quota(user="u"),
    quota(user="u", client_id=None),
    quota(user="u", client_id="c"),
    quota(user="v"),
    quota(ip=None),
    quota(ip="10.0.0.1"),
]


@pytest.mark.parametrize(
    ("gone", "then"),
    [
        (8, [7, 6, 5, 4, 3, 1, 0]),
        (6, [5, 4, 3, 1, 2, 0]),
        (5, [4, 3, 1, 0]),
        (3, [1, 2, 0]),
        (1, [0]),
        (0, []),
        (11, [10]),
        (10, []),
    ],
)
def test_what_counts_without_a_limit(gone: int, then: list[int]) -> None:
    found = delete_quota.falls_back(EVERY[gone].entity, RATE, EVERY)
    assert [EVERY.index(each) for each in found] == then
    assert delete_quota.falls_back(EVERY[gone].entity, "other", EVERY) == []


async def test_limits_are_taken_away(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client = place
    entity = (("client-id", "<c>&"), ("user", None))
    assert await alter_quota(client, entity, {RATE: 1000.0, "consumer_byte_rate": 7.0}) is None
    assert await alter_quota(client, (("user", None),), {RATE: 50.0}) is None
    links = [link for link in checked(await browser.get("/quotas")).links if link.startswith("/delete-quota")]
    assert len(links) == 3
    link = next(link for link in links if "consumer" in link)
    shown = await browser.get(link)
    checked(shown)
    assert "producer_byte_rate 1,000 Without it counts 50, the limit of user default" in shown.words
    assert "consumer_byte_rate 7 Without it there is no limit." in shown.words
    data = (await browser.get(link.replace("-quota", "-quota.json"))).json
    assert [(each["limit"], each["chosen"]) for each in data["limits"]] == [
        ("consumer_byte_rate", True),
        (RATE, False),
    ]
    form = fields(shown.text, "delete-quota")
    assert sorted(form) == [("client-id", "<c>&"), ("user-default", "1")]
    nothing = await browser.post("/delete-quota", form)
    assert (nothing.status, "nothing was changed" in nothing.words) == (422, True)
    checked(nothing)
    nobody = await browser.post("/delete-quota", {"limit": RATE})
    assert nobody.status == 422
    checked(nobody)
    for name in ("colour", "request_percentage"):
        assert (await browser.post("/delete-quota", [*form, ("limit", name)])).status == 404
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/delete-quota", [*form, ("limit", RATE), ("limit", "consumer_byte_rate")])
    assert SAID["quota-deleted"] in (await browser.follow(done)).words
    assert "took producer_byte_rate, consumer_byte_rate away from user (default), client-id <c>&" in caplog.text
    assert [each.entity for each in await describe_quotas(client)] == [(("user", None),)]
    gone = await browser.get(link)
    checked(gone)
    assert "they may be gone already" in gone.words
    assert (await browser.post("/delete-quota", [*form, ("limit", RATE)])).status == 404


@pytest.mark.parametrize(
    ("code", "status"), [(ErrorCode.INVALID_REQUEST, 422), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 403)]
)
async def test_a_limit_that_cannot_be_taken_away(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, status: int
) -> None:
    browser, client = place
    assert await alter_quota(client, (("user", "u"),), {RATE: 50.0}) is None

    async def refused(*_: Any) -> Failed:
        return Failed(code)

    monkeypatch.setattr(delete_quota, "alter_quota", refused)
    await browser.get("/quotas")
    answer = await browser.post("/delete-quota", {"user": "u", "limit": RATE})
    assert answer.status == status
    checked(answer)
