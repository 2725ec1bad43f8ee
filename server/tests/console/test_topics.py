"""Overview, topics, a topic, its settings: what is shown, and each change to its last error."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey
from barnabas.server.client.client import open_client
from barnabas.server.client.configs import Resource, ResourceKind, describe_configs
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.web.view import SAID
from barnabas.server.testing import embedded_broker, embedded_cluster
from barnabas.server.tests.client.rig import Exchange, passed_on, relayed, to_broker, to_cluster
from barnabas.server.tests.console.rig import Browser, Place, app_over, checked, console, filled


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    async with console() as (browser, client):
        yield browser, client


async def test_an_empty_cluster(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    overview = await browser.get("/")
    checked(overview)
    assert "All partitions have a leader and all their replicas." in overview.words
    assert "No group is behind." in overview.words
    assert "There are no topics yet." in (await browser.get("/topics")).words
    assert "There are no groups yet." in (await browser.get("/groups")).words
    data = (await browser.get("/index.json")).json
    assert (data["topics"], data["partitions"], data["groups"], data["offline_count"]) == (0, 0, 0, 0)
    assert len(data["brokers"]) == 1
    assert data["brokers"][0]["is_controller"]
    assert data["brokers"][0]["total"] > data["brokers"][0]["usable"] > 0


async def test_the_overview_says_who_is_behind(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, count=10)
    await commit_offsets(client, "slow", {("orders", 0): 0, ("orders", 1): 1})
    await commit_offsets(client, "quick", {("orders", 0): 5, ("orders", 1): 5})
    data = (await browser.get("/index.json")).json
    assert data["lagging"] == [{"group": "slow", "state": "Empty", "lag": 9, "members": 0}]
    assert (data["lagging_count"], data["groups"], data["group_states"]) == (1, 2, {"Empty": 2})
    assert (data["topics"], data["internal_topics"]) == (1, 1)
    page = await browser.get("/")
    checked(page)
    assert "/groups/slow/lag" in page.text


async def test_topics_are_listed_with_what_they_hold(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, "orders", 10)
    await filled(client, "bills", 4, 1)
    await commit_offsets(client, "g", {("orders", 0): 1})
    data = (await browser.get("/topics.json")).json
    assert [each["name"] for each in data["topics"]] == ["bills", "orders"]
    row = data["topics"][1]
    assert (row["partitions"], row["replicas"], row["records"], row["lag"]) == (2, 1, 10, 4)
    assert row["bytes"] > 0
    assert row["groups"] == [{"group": "g", "lag": 4}]
    assert (data["rows"], data["hidden"]) == (2, 1)
    assert [each["name"] for each in (await browser.get("/topics.json?q=ORD")).json["topics"]] == ["orders"]
    every = (await browser.get("/topics.json?internal=1")).json["topics"]
    assert [each["name"] for each in every] == ["__consumer_offsets", "bills", "orders"]
    for sort in ("partitions", "size", "lag"):
        assert (await browser.get(f"/topics.json?sort={sort}")).json["topics"][0]["name"] == "orders"
    page = await browser.get("/topics?q=nothing")
    checked(page)
    assert "No topic has “nothing” in its name." in page.words


async def test_many_topics_are_paged(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await create_topics(client, [NewTopic(f"t{number:03}", 1, 1) for number in range(120)])
    first = await browser.get("/topics")
    assert "Page 1 of 3" in checked_words(first)
    last = (await browser.get("/topics.json?page=9")).json
    assert (last["page"], len(last["topics"]), last["topics"][-1]["name"]) == (3, 20, "t119")
    assert 'rel="prev"' not in first.text
    assert 'rel="next" href="/topics?page=2"' in first.text
    assert "q=t0&amp;page=2" in (await browser.get("/topics?q=t0")).text


def checked_words(answer: Any) -> str:
    checked(answer)
    return str(answer.words)


async def test_a_topic_is_created(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client = place
    await browser.get("/new-topic")
    form = {"name": " orders ", "partitions": "3", "replicas": "1", "settings": "retention.ms=5000\r\n\r\n# no\r\n"}
    would = await browser.post("/new-topic", {**form, "check": "1"})
    assert (would.status, "The brokers would create this topic." in checked_words(would)) == (200, True)
    assert "retention.ms=5000" in would.text
    assert (await browser.get("/topics.json")).json["topics"] == []
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        made = await browser.post("/new-topic", form)
    assert caplog.records[-1].getMessage().endswith("anonymous from 127.0.0.1: created topic orders, 3 partitions")
    assert made.header("location") == "/topics/orders/partitions?said=created"
    page = await browser.follow(made)
    assert SAID["created"] in checked_words(page)
    resource = Resource(ResourceKind.TOPIC, "orders")
    found: Any = (await describe_configs(client, [resource]))[resource]
    assert found["retention.ms"].value == "5000"
    assert [each["name"] for each in (await browser.get("/topics.json")).json["topics"]] == ["orders"]  # not forgotten


@pytest.mark.parametrize(
    ("form", "status", "why"),
    [
        ({"name": ""}, 422, "the topic needs one"),
        ({"name": "no way"}, 422, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "orders"}, 409, "TOPIC_ALREADY_EXISTS"),
        ({"name": "x", "partitions": "no"}, 422, "partitions: a number"),
        ({"name": "x", "partitions": "0"}, 422, "partitions: a number"),
        ({"name": "x", "replicas": "9"}, 422, "INVALID_REPLICATION_FACTOR"),
        ({"name": "x", "settings": "what"}, 422, "lines of key=value"),
        ({"name": "x", "settings": "no.such.key=1"}, 422, "INVALID_CONFIG"),
        ({"name": "x", "settings": "retention.ms=soon"}, 422, "INVALID_CONFIG"),
    ],
)
async def test_a_topic_is_not_created(
    autojump_clock: MockClock, place: Place, form: dict[str, str], status: int, why: str
) -> None:
    browser, client = place
    await filled(client)
    await browser.get("/new-topic")
    answer = await browser.post("/new-topic", form)
    assert answer.status == status, answer.words
    assert why in checked_words(answer)
    data = await browser.post("/new-topic.json", form)
    assert data.status == status
    assert any(why in text for text in data.json["problems"])


async def test_a_topics_partitions(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, count=10)
    data = (await browser.get("/topics/orders/partitions.json")).json
    assert data["partitions"][0] == {
        "partition": 0,
        "leader": 0,
        "epoch": 0,
        "replicas": [0],
        "in_sync": [0],
        "out_of_sync": [],
        "start": 0,
        "end": 5,
        "records": 5,
        "bytes": data["partitions"][0]["bytes"],
        "trouble": None,
        "records_per_s": None,
        "bytes_per_s": None,
        "rate_seconds": None,
    }
    assert data["partitions"][0]["bytes"] > 0
    grown = await browser.post("/topics/orders/partitions", {"partitions": "4"})
    assert SAID["grown"] in checked_words(await browser.follow(grown))
    assert len((await browser.get("/topics/orders/partitions.json")).json["partitions"]) == 4
    for count, status in (("4", 422), ("1", 422), ("x", 400), ("", 422)):
        answer = await browser.post("/topics/orders/partitions", {"partitions": count})
        assert answer.status == status, (count, answer.words)
        checked(answer)
    assert (await browser.post("/topics/nothing/partitions", {"partitions": "4"})).status == 404


async def test_a_topics_groups(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client)
    assert "No group has read this topic." in checked_words(await browser.get("/topics/orders/groups"))
    await commit_offsets(client, "a/b", {("orders", 0): 1})
    await trio.sleep(5)
    page = await browser.get("/topics/orders/groups")
    checked(page)
    assert "/groups/a~2Fb/lag" in page.text
    assert "from=group&amp;at=a%2Fb" in page.text


async def test_settings_are_shown_and_changed(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    browser, client = place
    await filled(client)
    data = (await browser.get("/topics/orders/settings.json")).json
    rows = {each["name"]: each for each in data["settings"]}
    assert rows["retention.ms"]["source"] == "default"
    assert "retention" in (rows["retention.ms"]["doc"] or "").lower() + "retention"
    assert data["set"] == 0
    found = (await browser.get("/topics/orders/settings.json?q=Retention.MS")).json["settings"]
    assert "retention.ms" in [each["name"] for each in found]
    edit = await browser.get("/topics/orders/settings?edit=retention.ms")
    checked(edit)
    assert 'name="value" value="604800000"' in edit.text
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        changed = await browser.post("/topics/orders/settings", {"name": "retention.ms", "value": "5000"})
    assert "topic orders: set retention.ms" in caplog.text
    assert SAID["set"] in checked_words(await browser.follow(changed))
    now = (await browser.get("/topics/orders/settings.json?set=1")).json["settings"]
    assert [(each["name"], each["value"], each["source"]) for each in now] == [("retention.ms", "5000", "topic")]
    assert "Back to the default" in checked_words(await browser.get("/topics/orders/settings?edit=retention.ms"))
    back = await browser.post("/topics/orders/settings", {"name": "retention.ms", "default": "1"})
    assert SAID["unset"] in checked_words(await browser.follow(back))
    assert (await browser.get("/topics/orders/settings.json?set=1")).json["settings"] == []
    assert "No setting is like that." in checked_words(await browser.get("/topics/orders/settings?set=1"))
    for form, status in (
        ({"name": "retention.ms", "value": "<soon>"}, 422),
        ({"name": "no.such", "value": "1"}, 422),
        ({"name": ""}, 422),
    ):
        answer = await browser.post("/topics/orders/settings", form)
        assert answer.status == status, answer.words
        checked(answer)
    again = await browser.post("/topics/orders/settings", {"name": "retention.ms", "value": "<soon>"})
    assert 'name="value" value="&lt;soon&gt;"' in again.text
    assert (await browser.post("/topics/nothing/settings", {"name": "retention.ms", "value": "1"})).status == 404


async def test_a_topic_is_deleted_after_a_look(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await filled(client, count=10)
    await commit_offsets(client, "g", {("orders", 0): 1})
    data = (await browser.get("/topics/orders/delete.json")).json
    assert (data["partitions"], data["records"], data["groups"]) == (2, 10, [{"group": "g", "lag": 4}])
    checked(await browser.get("/topics/orders/delete"))
    wrong = await browser.post("/topics/orders/delete", {"confirm": "order"})
    assert (wrong.status, "nothing was deleted" in checked_words(wrong)) == (422, True)
    records = await browser.post(
        "/topics/orders/delete", {"confirm": "orders", "what": "records", "before": "2", "partition": "1"}
    )
    assert SAID["emptied"] in checked_words(await browser.follow(records))
    rows = (await browser.get("/topics/orders/partitions.json")).json["partitions"]
    assert [(row["start"], row["end"]) for row in rows] == [(0, 5), (2, 5)]
    beyond = await browser.post("/topics/orders/delete", {"confirm": "orders", "what": "records", "before": "99"})
    assert beyond.status == 502
    assert "OFFSET_OUT_OF_RANGE" in checked_words(beyond)
    await browser.post("/topics/orders/delete", {"confirm": "orders", "what": "records"})
    rows = (await browser.get("/topics/orders/partitions.json")).json["partitions"]
    assert [(row["start"], row["end"]) for row in rows] == [(5, 5), (5, 5)]
    gone = await browser.post("/topics/orders/delete", {"confirm": "orders"})
    assert SAID["deleted"] in checked_words(await browser.follow(gone))
    assert (await browser.get("/topics/orders/partitions")).status == 404
    assert (await browser.post("/topics/orders/delete", {"confirm": "orders"})).status == 404


async def test_trouble_comes_first(autojump_clock: MockClock) -> None:
    """A cluster of three of which one, then two are gone."""
    async with (
        embedded_cluster(3) as cluster,
        open_client([f"127.0.0.1:{port_of(cluster)}"], connect=to_cluster(cluster)) as client,
    ):
        wanted = [NewTopic("t", assignment={0: [1, 2], 1: [2, 1]}), NewTopic("u", assignment={0: [2], 1: [3]})]
        assert await create_topics(client, wanted) == {"t": 2, "u": 2}
        browser = Browser(app_over(client))
        assert "All partitions have a leader" in checked_words(await browser.get("/"))
        await cluster.kill(2)
        await trio.sleep(60)
        data = (await browser.get("/index.json")).json
        assert data["offline"] == [{"topic": "u", "partition": 0}]
        assert {(each["topic"], each["partition"]) for each in data["under_replicated"]} >= {("t", 0), ("t", 1)}
        page = checked_words(await browser.get("/"))
        assert "1 partition without a leader" in page
        topic = checked_words(await browser.get("/topics/t/partitions"))
        assert "2 out of sync" in topic
        listed = (await browser.get("/topics.json")).json["topics"][1]
        assert (listed["offline"], listed["records"]) == (1, None)
        assert "1 without leader" in checked_words(await browser.get("/topics"))
        for page in ("partitions", "delete", "records", "transactions"):
            checked(await browser.get(f"/topics/u/{page}"))


def port_of(cluster: Any) -> int:
    member = next(iter(cluster.members.values()))
    return int(member.broker.endpoints[0].port)


async def test_a_page_asks_for_what_it_shows(autojump_clock: MockClock) -> None:
    """However many topics there are."""
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, relay):
        await create_topics(client, [NewTopic(f"t{number:03}", 2, 1) for number in range(300)])
        browser = Browser(app_over(client))
        await browser.get("/topics")
        asked: list[tuple[ApiKey, Any]] = []

        async def hook(exchange: Exchange) -> bytes | None:
            asked.append((exchange.key, exchange.message))
            return await passed_on(exchange)

        relay.hook = hook
        page = (await browser.get("/topics.json?page=2")).json
        assert [each["name"] for each in page["topics"]] == [f"t{number:03}" for number in range(50, 100)]
        counts: dict[ApiKey, int] = {}
        for key, message in asked:
            if key in (ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_LOG_DIRS):
                counts[key] = counts.get(key, 0) + sum(len(topic.partitions) for topic in message.topics)
            if key is ApiKey.METADATA:
                assert message.topics == []  # all topics were asked for a moment ago
        assert counts == {ApiKey.LIST_OFFSETS: 2 * 100, ApiKey.DESCRIBE_LOG_DIRS: 100}
        asked.clear()
        await browser.get("/topics/t000/partitions")
        assert sum(len(message.topics or ()) for key, message in asked if key is ApiKey.METADATA) == 1
        await trio.sleep(10)
        asked.clear()
        await browser.get("/topics?page=2")
        assert [message.topics for key, message in asked if key is ApiKey.METADATA].count(None) == 1


async def test_many_visitors_ask_once(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, relayed(to_broker(broker)) as (client, relay):
        await create_topics(client, [NewTopic("t", 1, 1)])
        app = app_over(client)
        relay.seen.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(Browser(app).get, "/topics")
        assert [key for key, _ in relay.seen].count(ApiKey.LIST_GROUPS) == 1
