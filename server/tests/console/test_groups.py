"""Groups: listed, looked into, reset, deleted; of both kinds, with members and without."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest
from barnabas.server.client.client import Client
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets
from barnabas.server.client.groups.lag import GroupLag, PartitionLag
from barnabas.server.client.groups.values import Committed, Group, Member
from barnabas.server.client.offsets import Span
from barnabas.server.console.pages.groups.group import findings
from barnabas.server.console.web.view import SAID
from barnabas.server.testing import connected
from barnabas.server.tests.console.rig import Answer, Browser, Place, checked, console, filled


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    async with console() as (browser, client):
        await filled(client)
        await commit_offsets(client, "billing", {("orders", 0): 2, ("orders", 1): 1})
        yield browser, client


async def test_groups_are_listed(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await commit_offsets(client, "audit", {("orders", 0): 5, ("orders", 1): 5})
    rows = (await browser.get("/groups.json")).json["groups"]
    assert [(row["group"], row["lag"], row["state"], row["members"]) for row in rows] == [
        ("billing", 7, "Empty", 0),
        ("audit", 0, "Empty", 0),
    ]
    assert rows[0]["topics"] == ["orders"]
    assert [row["group"] for row in (await browser.get("/groups.json?sort=name")).json["groups"]] == [
        "audit",
        "billing",
    ]
    assert [row["group"] for row in (await browser.get("/groups.json?q=BILL")).json["groups"]] == ["billing"]
    assert len((await browser.get("/groups.json?q=orders")).json["groups"]) == 2  # by what they read
    assert (await browser.get("/groups.json?state=Stable")).json["groups"] == []
    for sort in ("members", "state"):
        checked(await browser.get(f"/groups?sort={sort}"))
    none = await browser.get("/groups?q=nobody")
    checked(none)
    assert "No group is like that." in none.words


async def test_a_group_is_behind(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    data = (await browser.get("/groups/billing/lag.json")).json
    assert (data["lag"], data["state"], data["kind"], data["members"]) == (7, "Empty", "classic", [])
    row = data["partitions"][0]
    assert (row["partition"], row["committed"], row["end"], row["lag"]) == (1, 1, 5, 4)
    # The first record that is not read is number 2 or 3, written 2 or 3 s into virtual time's past or so.
    assert data["lag_seconds"] == max(row["lag_seconds"] for row in data["partitions"])
    page = await browser.get("/groups/billing/lag")
    checked(page)
    assert "/topics/orders/records?from=group&amp;at=billing&amp;partition=1" in page.text
    for sort in ("topic", "member"):
        checked(await browser.get(f"/groups/billing/lag?sort={sort}"))


async def test_members_are_shown(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    async with connected(browser.broker) as raw:  # type: ignore[attr-defined]
        request = ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="m-1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            server_assignor="range",
            topic_partitions=[],
        )
        answer = await raw.ask(request, 0, client_id="<client>")
        assert answer.error_code == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="modern", member_id=answer.member_id, member_epoch=answer.member_epoch
        )
        await raw.ask(request, 0, client_id="<client>")
        data = (await browser.get("/groups/modern/lag.json")).json
        assert (data["kind"], data["assignor"], len(data["members"])) == ("consumer", "range", 1)
        assert data["members"][0]["client_id"] == "<client>"
        assert data["members"][0]["partitions"] == 2
        assert [row["member_id"] for row in data["partitions"]] == [answer.member_id] * 2
        page = await browser.get("/groups/modern/lag")
        checked(page)
        assert "&lt;client&gt;" in page.text
        assert "1 member" in (await browser.get("/groups/modern/delete")).words
        refused = await browser.post("/groups/modern/delete", {"confirm": "modern"})
        assert refused.status == 409
        reset = await browser.get("/groups/modern/reset?to=earliest&topic=orders")
        checked(reset)
        assert " disabled>Set these offsets" in reset.text
        tried = await browser.post("/groups/modern/reset", {"topic": "orders", "positions": "0:0"})
        assert tried.status == 409
        assert "stop them first" in tried.words


async def test_a_share_group_is_shown_and_set(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    async with connected(browser.broker) as raw:  # type: ignore[attr-defined]
        with trio.fail_after(60):
            for member_id in ("m-1", "m-2"):
                joining = ShareGroupHeartbeatRequest(
                    group_id="pool", member_id=member_id, member_epoch=0, subscribed_topic_names=["orders"]
                )
                assigned = False
                while not assigned:
                    answer = await raw.ask(joining, 1, client_id="<client>")
                    assert answer.error_code == 0
                    assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
                    await trio.sleep(0.5)
        data = (await browser.get("/groups/pool/lag.json")).json
        assert (data["kind"], data["assignor"], len(data["members"])) == ("share", "simple", 2)
        assert sum(row["readers"] for row in data["partitions"]) == sum(each["partitions"] for each in data["members"])
        page = await browser.get("/groups/pool/lag")
        checked(page)
        assert "Share group (KIP-932)" in page.words
        for member_id in ("m-1", "m-2"):
            leaving = ShareGroupHeartbeatRequest(group_id="pool", member_id=member_id, member_epoch=-1)
            assert (await raw.ask(leaving, 1)).error_code == 0
        done = await browser.post("/groups/pool/reset", {"topic": "orders", "positions": "0:0,1:2"})
        assert done.status == 303
        data = (await browser.get("/groups/pool/lag.json")).json
        assert {row["partition"]: row["committed"] for row in data["partitions"]} == {0: 0, 1: 2}
        checked(await browser.get("/groups"))


# -- reset -------------------------------------------------------------------------------------------------------------


def plan(answer: Answer) -> dict[int, tuple[Any, Any]]:
    return {row["partition"]: (row["committed"], row["new"]) for row in answer.json["plan"]}


async def offsets_of(client: Client, name: str) -> dict[int, int]:
    found: Any = (await committed_offsets(client, [name]))[name]
    return {index: each.offset for (_, index), each in found.items() if isinstance(each, Committed)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("to=earliest", {0: (2, 0), 1: (1, 0)}),
        ("to=latest", {0: (2, 5), 1: (1, 5)}),
        ("to=offset&at=3", {0: (2, 3), 1: (1, 3)}),
        ("to=offset&at=1,000", {0: (2, 5), 1: (1, 5)}),
        ("to=shift&at=-1", {0: (2, 1), 1: (1, 0)}),
        ("to=shift&at=%2B2", {0: (2, 4), 1: (1, 3)}),
        ("to=time&at=2025-06-15T15:06:46Z", {0: (2, 3), 1: (1, 3)}),
        ("to=earliest&topic=orders&partition=1", {1: (1, 0)}),
    ],
)
async def test_a_reset_is_shown_before_it_is_done(
    autojump_clock: MockClock, place: Place, query: str, expected: dict[int, tuple[int, int]]
) -> None:
    browser, client = place
    assert plan(await browser.get(f"/groups/billing/reset.json?{query}")) == expected
    assert await offsets_of(client, "billing") == {0: 2, 1: 1}
    page = await browser.get(f"/groups/billing/reset?{query}")
    checked(page)
    done = await browser.post("/groups/billing/reset", hidden(page.text))
    assert SAID["reset"] in (await browser.follow(done)).words
    assert await offsets_of(client, "billing") == {0: 2, 1: 1} | {index: new for index, (_, new) in expected.items()}


def hidden(text: str) -> list[tuple[str, str]]:
    """The hidden fields of the form that does it."""
    pairs = re.findall(r'<input type="hidden" name="(topic|positions)" value="([^"]*)">', text)
    return [(name, unescape(value)) for name, value in pairs]


async def test_what_was_shown_is_what_is_set(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Although the end moves in between."""
    browser, client = place
    page = await browser.get("/groups/billing/reset?to=latest")
    await filled_more(browser)
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        await browser.post("/groups/billing/reset", hidden(page.text))
    assert await offsets_of(client, "billing") == {0: 5, 1: 5}
    assert "set 2 offsets of group billing: orders 0:5,1:5" in caplog.text


async def filled_more(browser: Browser) -> None:
    await browser.get("/topics/orders/produce")
    form = {"value": "a\nb\nc", "lines": "1", "key_as": "null", "partition": "0"}
    assert (await browser.post("/topics/orders/produce", form)).status == 303
    await browser.get("/groups/billing/reset")


async def test_a_group_that_has_read_nothing_of_a_topic(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, "bills", 3, 1)
    assert plan(await browser.get("/groups/billing/reset.json?to=latest&topic=bills")) == {0: (None, 3)}
    page = await browser.get("/groups/billing/reset?to=latest&topic=bills")
    await browser.post("/groups/billing/reset", hidden(page.text))
    found: Any = (await committed_offsets(client, ["billing"]))["billing"]
    assert found["bills", 0].offset == 3


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("to=colour", "one of earliest"),
        ("to=offset", "an offset is expected"),
        ("to=offset&at=-1", "a number"),
        ("to=shift", "how many records"),
        ("to=shift&at=x", "a number"),
        ("to=time", "no place"),
        ("to=time&at=17", "is no time"),
        ("to=earliest&topic=nothing", "no such topic"),
        ("to=earliest&topic=orders&partition=9", "has 2, from 0 on"),
        ("to=earliest&partition=0", "of which topic?"),
    ],
)
async def test_what_cannot_be_planned(autojump_clock: MockClock, place: Place, query: str, why: str) -> None:
    browser, _ = place
    answer = await browser.get(f"/groups/billing/reset?{query}")
    assert answer.status == 400, answer.words
    checked(answer)
    assert why in answer.words


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"topic": "orders"}, 400),
        ({"topic": "orders", "positions": "x"}, 400),
        ({"topic": "nothing", "positions": "0:1"}, 404),
    ],
)
async def test_what_cannot_be_set(autojump_clock: MockClock, place: Place, form: dict[str, str], status: int) -> None:
    browser, client = place
    await browser.get("/groups/billing/delete")
    answer = await browser.post("/groups/billing/reset", form)
    assert answer.status == status, answer.words
    checked(answer)
    assert await offsets_of(client, "billing") == {0: 2, 1: 1}
    assert (await browser.post("/groups/nobody/reset", {"topic": "orders", "positions": "0:1"})).status == 404


# -- delete ------------------------------------------------------------------------------------------------------------


async def test_a_group_is_deleted(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, "bills", 3, 1)
    await commit_offsets(client, "billing", {("bills", 0): 1})
    data = (await browser.get("/groups/billing/delete.json")).json
    assert data["topics"] == [{"topic": "bills", "offsets": 1}, {"topic": "orders", "offsets": 2}]
    checked(await browser.get("/groups/billing/delete"))
    wrong = await browser.post("/groups/billing/delete", {"confirm": "bill"})
    assert (wrong.status, "nothing was deleted" in wrong.words) == (422, True)
    nothing = await browser.post("/groups/billing/delete", {"confirm": "billing", "topic": "nothing"})
    assert nothing.status == 422
    some = await browser.post("/groups/billing/delete", {"confirm": "billing", "topic": "orders"})
    assert SAID["forgotten"] in (await browser.follow(some)).words
    found: Any = (await committed_offsets(client, ["billing"]))["billing"]
    assert list(found) == [("bills", 0)]
    gone = await browser.post("/groups/billing/delete", {"confirm": "billing"})
    assert SAID["group-deleted"] in (await browser.follow(gone)).words
    assert (await browser.get("/groups.json")).json["groups"] == []
    assert (await browser.get("/groups/billing/lag")).status == 404


@pytest.mark.parametrize("name", ["a/b", "..", ".", "~", "x y", "ü", "a%2Fb", "a?b#c", "lag", "%"])
async def test_any_name_has_its_page(autojump_clock: MockClock, place: Place, name: str) -> None:
    browser, client = place
    await commit_offsets(client, name, {("orders", 0): 1})
    await trio.sleep(5)
    page = checked(await browser.get("/groups"))
    links = [link for link in page.links if link.startswith("/groups/") and "billing" not in link]
    assert len(links) == 1
    answer = await browser.get(f"{links[0]}.json")
    assert (answer.status, answer.json.get("group")) == (200, name)
    await browser.get(links[0].removesuffix("lag") + "delete")
    gone = await browser.post(links[0].removesuffix("lag") + "delete", {"confirm": name})
    assert gone.status == 303, gone.words


# -- why ---------------------------------------------------------------------------------------------------------------


def lag_of(lags: list[int], readers: list[int | None], state: str = "Stable", idle: int = 0) -> GroupLag:
    """lags: of partitions 0, 1, …; readers: the number of the member that reads each; None: nobody."""
    numbers = sorted({number for number in readers if number is not None})
    members = {number: Member(f"m{number}", None, f"c{number}", "h", (("t", 0),), ("t",)) for number in numbers}
    others = [Member(f"i{number}", None, "idle", "h", (), ("t",)) for number in range(idle)]
    group = Group("g", "classic", state, "consumer", "range", -1, (*members.values(), *others), 0)
    rows = [
        PartitionLag("t", index, Committed(0, -1, ""), Span(0, lag), None, None if who is None else members[who])
        for index, (lag, who) in enumerate(zip(lags, readers, strict=True))
    ]
    return GroupLag(group, tuple(rows))


@pytest.mark.parametrize(
    ("lag", "growth", "texts"),
    [
        (lag_of([0, 0], [None, None], "Empty"), None, []),
        (lag_of([5, 5], [None, None], "Empty"), 3.0, ["Nobody reads: the group has no members."]),
        (lag_of([9, 0], [0, 0]), -1.0, ["All of the lag is in t, partition 0, which c0 at h reads."]),
        (lag_of([90, 10], [0, 1]), 0.0, ["90% of the lag is in t, partition 0, which c0 at h reads."]),
        (lag_of([5, 5], [0, 1]), 1.0, ["More is written than its members read."]),
        (
            lag_of([5], [0], idle=1),
            None,
            ["1 of 2 members have no partition: more members than partitions are no use."],
        ),
        (
            lag_of([5, 5], [0, 1], "PreparingRebalance"),
            1.0,
            [
                "The group is in the state PreparingRebalance: its members do not read while partitions are assigned "
                "anew."
            ],
        ),
    ],
)
def test_why_a_group_is_behind(lag: GroupLag, growth: float | None, texts: list[str]) -> None:
    assert list(findings(lag, growth)) == texts
