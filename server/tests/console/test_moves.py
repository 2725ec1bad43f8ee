"""Partitions move to other brokers, moves are called off, preferred replicas lead again; or the page says why not."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from html import unescape
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.configs import Resource, ResourceKind, alter_configs
from barnabas.server.client.failures import Failed
from barnabas.server.client.moves import Move, elect_preferred, list_moves
from barnabas.server.client.throttles import (
    REPLICAS,
    Copy,
    Rates,
    Replicas,
    throttle,
    throttled_brokers,
    throttled_topics,
)
from barnabas.server.client.topics import NewTopic, create_topics, describe_topics
from barnabas.server.console.pages.cluster import leaders, moves, throttling
from barnabas.server.console.pages.cluster.throttling import rate_of
from barnabas.server.console.pages.topics import move_topic
from barnabas.server.console.pages.topics.move_topic import planned
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import SAID
from barnabas.server.testing import embedded_cluster
from barnabas.server.tests.client.rig import to_cluster
from barnabas.server.tests.console.rig import Browser, app_over, checked, console, filled
from barnabas.server.tests.console.test_topics import port_of

Place = tuple[Browser, Client, Any]


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    """A cluster of three with a topic of four partitions on brokers 1 and 2."""
    async with (
        embedded_cluster(3) as cluster,
        open_client([f"127.0.0.1:{port_of(cluster)}"], connect=to_cluster(cluster), rng=Random(7)) as client,
    ):
        assignment = {index: [1, 2] if index % 2 else [2, 1] for index in range(4)}
        assert await create_topics(client, [NewTopic("t", assignment=assignment)]) == {"t": 4}
        yield Browser(app_over(client)), client, cluster


async def replicas_of(client: Client, name: str = "t") -> dict[int, tuple[int, ...]]:
    topic: Any = (await describe_topics(client, [name]))[name]
    return {index: tuple(each.replicas) for index, each in topic.partitions.items()}


async def arrived(client: Client) -> None:
    with trio.fail_after(120):
        while await list_moves(client):  # noqa: ASYNC110  # it is asked for, in virtual time
            await trio.sleep(1)


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "chosen", "replicas", "then"),
    [
        ({0: [1, 2], 1: [2, 1]}, [1, 2], 2, {0: (1, 2), 1: (2, 1)}),
        ({0: [1, 2], 1: [2, 3], 2: [3, 1]}, [1, 2], 2, {0: (1, 2), 1: (2, 1), 2: (1, 2)}),
        ({0: [1], 1: [1], 2: [1]}, [2, 3], 1, {0: (2,), 1: (3,), 2: (2,)}),
        ({0: [1], 1: [2]}, [1, 2, 3], 2, {0: (1, 3), 1: (2, 1)}),
        ({0: [1, 2, 3]}, [1, 2, 3], 1, {0: (1,)}),
    ],
)
def test_as_little_moves_as_can_be(
    now: dict[int, list[int]], chosen: list[int], replicas: int, then: dict[int, tuple[int, ...]]
) -> None:
    assert planned(now, chosen, replicas) == then


@pytest.mark.parametrize("seed", range(30))
def test_plans_keep_the_rules(seed: int) -> None:
    rng = Random(seed)
    brokers = range(1, rng.randrange(2, 9))
    now = {index: rng.sample(brokers, rng.randrange(1, len(brokers) + 1)) for index in range(rng.randrange(1, 60))}
    chosen = sorted(rng.sample(brokers, rng.randrange(1, len(brokers) + 1)))
    replicas = rng.randrange(1, len(chosen) + 1)
    for index, to in planned(now, chosen, replicas).items():
        assert len(to) == len(set(to)) == replicas, seed
        assert set(to) <= set(chosen)
        stay = [each for each in now[index] if each in chosen]
        assert list(to[: len(stay)]) == stay[:replicas], seed  # who may stay stays, in his place


# -- moves -------------------------------------------------------------------------------------------------------------


async def test_a_topic_moves(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client, _ = place
    before = await replicas_of(client)
    shown = await browser.get("/topics/t/move?brokers=1&brokers=3&replicas=2")
    checked(shown)
    assert "4 partitions, about" in shown.words
    data = (await browser.get("/topics/t/move.json?brokers=1,3&replicas=2")).json
    row = data["plan"][0]
    assert (row["replicas"], row["new"], row["adding"], row["removing"]) == ([2, 1], [1, 3], [3], [2])
    assert await replicas_of(client) == before
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/topics/t/move", hidden(shown.text, "assignment"))
    assert "began to move 4 partitions of topic t: 0:1,3; 1:1,3; 2:1,3; 3:1,3" in caplog.text
    page = await browser.follow(done)
    checked(page)
    assert SAID["moving"] in page.words
    await arrived(client)
    assert set((await replicas_of(client)).values()) == {(1, 3)}
    again = await browser.get("/topics/t/move?brokers=1&brokers=3&replicas=2")
    checked(again)
    assert "every partition is there already" in again.words
    assert "No partition is on its way" in (await browser.get("/moves")).words


def hidden(text: str, *names: str) -> list[tuple[str, str]]:
    pairs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', text)
    return [(name, unescape(value)) for name, value in pairs if name in names]


async def test_a_move_is_called_off(autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot end: its broker is gone."""
    browser, client, cluster = place
    before = await replicas_of(client)
    await browser.get("/new-topic")
    await cluster.kill(3, session_lasts_s=600)  # nobody knows yet
    assert (await browser.post("/topics/t/move", {"assignment": "0:2,3"})).status == 303
    data = (await browser.get("/moves.json")).json
    assert (await browser.get("/index.json")).json["moves"] == 1
    overview = await browser.get("/")
    checked(overview)
    assert "1 partition on the way to other brokers" in overview.words
    row = data["moves"][0]
    assert (row["topic"], row["partition"], row["target"], row["adding"], row["removing"]) == ("t", 0, [2, 3], [3], [1])
    assert row["in_sync"] == []
    page = await browser.get("/moves")
    checked(page)
    assert "1 partition of this topic on the way already" in (await browser.get("/topics/t/move")).words
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/moves", hidden(page.text, "topic", "partition"))
    assert "called off the move of topic t, partition 0" in caplog.text
    assert SAID["called-off"] in (await browser.follow(done)).words
    assert await list_moves(client) == {}
    assert await replicas_of(client) == before
    late = await browser.post("/moves", {"topic": "t", "partition": "0"})
    assert (late.status, "it may have arrived" in late.words) == (409, True)
    assert (await browser.post("/moves", {"topic": "nothing", "partition": "0"})).status in (404, 409)
    assert (await browser.post("/moves", {"topic": "t", "partition": "x"})).status == 400


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("brokers=7", "there are 1, 2, 3, and no 7"),
        ("brokers=x", "there are 1, 2, 3, and no x"),
        ("brokers=", "there are 1, 2, 3"),
        ("brokers=1&replicas=2", "from 1 to 1"),
        ("brokers=1&replicas=0", "from 1 to 1"),
    ],
)
async def test_what_cannot_be_planned(autojump_clock: MockClock, place: Place, query: str, why: str) -> None:
    answer = await place[0].get(f"/topics/t/move?{query}")
    assert answer.status == 400
    checked(answer)
    assert why in answer.words


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"assignment": "0"}, 400),
        ({"assignment": "0:1,x"}, 400),
        ({"assignment": "0:1,1"}, 422),
        ({"assignment": "0:9"}, 422),
        ({"assignment": "99:1"}, 404),
    ],
)
async def test_what_cannot_be_moved(autojump_clock: MockClock, place: Place, form: dict[str, str], status: int) -> None:
    browser, client, _ = place
    await browser.get("/new-topic")
    answer = await browser.post("/topics/t/move", form)
    assert answer.status == status, answer.words
    checked(answer)
    assert await list_moves(client) == {}
    assert (await browser.post("/topics/nothing/move", {"assignment": "0:1"})).status == 404


def test_where_a_move_leads() -> None:
    assert Move((1, 2, 3), (3,), (1,)).target == (2, 3)


# -- leaders -----------------------------------------------------------------------------------------------------------


async def test_preferred_replicas_lead_again(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    browser, client, cluster = place
    fine = await browser.get("/leaders")
    checked(fine)
    assert "Every partition that has a leader is led by its preferred replica." in fine.words
    assert "preferred" not in (await browser.get("/")).words
    await cluster.kill(2)
    await trio.sleep(60)
    await cluster.start(2)
    await trio.sleep(20)
    assert "not led by the preferred replica" in (await browser.get("/")).words
    page = await browser.get("/leaders")
    checked(page)
    data = (await browser.get("/leaders.json")).json
    assert (await browser.get("/index.json")).json["not_preferred_count"] == len(data["partitions"]) >= 2
    rows = [row for row in data["partitions"] if row["topic"] == "t"]
    assert [(row["partition"], row["leader"], row["preferred"], row["can"]) for row in rows] == [
        (0, 1, 2, True),
        (2, 1, 2, True),
    ]
    leads = {each["id"]: (each["leads"], each["then"]) for each in data["brokers"]}
    assert leads[2][1] - leads[2][0] == leads[1][0] - leads[1][1] == 2
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        done = await browser.post("/leaders", hidden(page.text, "topic", "partitions"))
    assert "had preferred replicas lead 2 partitions: t-0, t-2" in caplog.text
    assert SAID["elected"] in (await browser.follow(done)).words
    topic: Any = (await describe_topics(client, ["t"]))["t"]
    assert topic.partitions[0].leader == topic.partitions[2].leader == 2
    again = await browser.post("/leaders", {"topic": "t", "partitions": "0:0"})
    assert again.status == 303  # it leads already, which is what was wanted
    found: Any = await elect_preferred(client, [("t", 0), ("t", 77)])
    assert found["t", 0].code == ErrorCode.ELECTION_NOT_NEEDED
    assert found["t", 77].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for form, status in (
        ({}, 400),
        ({"topic": "t"}, 400),
        ({"topic": "t", "partitions": "x"}, 400),
        ({"topic": "t", "partitions": "77:0"}, 404),
        ({"topic": "t", "partitions": ",".join(f"{index}:0" for index in range(leaders.AT_ONCE + 1))}, 400),
    ):
        refused = await browser.post("/leaders", form)
        assert refused.status == status, refused.words
        checked(refused)


async def test_a_preferred_replica_that_is_out_of_sync_cannot_lead(autojump_clock: MockClock, place: Place) -> None:
    browser, _, cluster = place
    await cluster.kill(2)
    await trio.sleep(60)
    data = (await browser.get("/leaders.json")).json
    rows = [row for row in data["partitions"] if row["topic"] == "t"]
    assert [(row["partition"], row["leader"], row["preferred"], row["can"]) for row in rows] == [
        (0, 1, 2, False),
        (2, 1, 2, False),
    ]
    page = await browser.get("/leaders")
    checked(page)
    assert "cannot lead now: not in sync" in page.words
    refused = await browser.post("/leaders", {"topic": "t", "partitions": "0:0"})
    assert (refused.status, "PREFERRED_LEADER_NOT_AVAILABLE" in refused.words) == (409, True), refused.words


# -- brokers that cannot -----------------------------------------------------------------------------------------------


async def test_where_brokers_do_not_offer_it_the_page_says_so(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.server.client import versions

    missing = {ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
    offered = versions.is_offered
    monkeypatch.setattr(
        versions, "is_offered", lambda given, key, *rest: key not in missing and offered(given, key, *rest)
    )
    monkeypatch.setattr(versions, "SPOKEN", {**versions.SPOKEN, **dict.fromkeys(missing, (90, 91))})
    async with console() as (browser, client):
        await filled(client)
        for path, said in (
            ("/moves", "These brokers do not tell of moves"),
            ("/leaders", "Leaders cannot be elected here"),
            ("/topics/orders/move?brokers=0", "Partitions cannot be moved here"),
        ):
            page = await browser.get(path)
            assert (page.status, said in page.words) == (200, True), page.words
            assert "Apache Kafka serves it from 2." in page.words
            checked(page)
        await browser.get("/new-topic")
        assert (await browser.post("/topics/orders/move", {"assignment": "0:0"})).status == 502
        assert (await browser.post("/moves", {"topic": "orders", "partition": "0"})).status == 502
        assert (await browser.post("/leaders", {"topic": "orders", "partitions": "0:0"})).status == 502


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
async def test_what_fails_is_counted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async with console() as (browser, client):
        await filled(client)

        async def failing(client: Client, wanted: Any) -> dict[Any, Failed | None]:
            return {place: Failed(code) if place[1] else None for place in wanted}

        monkeypatch.setattr(move_topic, "move", failing)
        monkeypatch.setattr(leaders, "elect_preferred", failing)
        monkeypatch.setattr(moves, "move", failing)
        await browser.get("/new-topic")
        two = [("assignment", "0:0"), ("assignment", "1:0")]
        status = 403 if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else 502
        for path, form in (
            ("/topics/orders/move", two),
            ("/leaders", [("topic", "orders"), ("partitions", "0:0,1:0")]),
        ):
            answer = await browser.post(path, form)
            assert (answer.status, "1 partition of 2 not" in answer.words) == (status, True), answer.words
        assert (await browser.post("/moves", {"topic": "orders", "partition": "1"})).status == status


# -- throttles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1", 1),
        ("10 MB", 10**7),
        ("1.5mb/s", 1_500_000),
        ("2,000", 2000),
        (" 3 GB ", 3 * 10**9),
        ("1,000.5 kB", 1_000_500),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "1 TB", "9" * 20, "<b>", "1,5 MB", "1,0000"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(Unclear, match="bytes a second are expected"):
        rate_of(text)


async def test_a_throttle_from_its_beginning_to_what_is_left(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, client, _ = place
    nothing = await browser.get("/moves")
    checked(nothing)
    assert "None: partitions move as fast as brokers can." in nothing.words
    assert 'value="throttle"' not in nothing.text
    await browser.get("/moves.json")
    assert (await browser.post("/moves", {"do": "throttle", "rate": "1 MB"})).status == 409
    await browser.get("/topics/t/move?brokers=1&brokers=3&replicas=2")
    wrong = await browser.post("/topics/t/move", {"assignment": "0:1,3", "rate": "fast"})
    assert (wrong.status, "bytes a second" in wrong.words) == (400, True)
    assert await list_moves(client) == {}
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        begun = await browser.post("/topics/t/move", {"assignment": "0:1,3", "rate": "1 MB"})
    assert begun.status == 303, begun.words
    assert "of topic t, 1,000,000 bytes a second: 0:1,3" in caplog.text
    assert await throttled_brokers(client, [1, 2, 3]) == {each: Rates(10**6, 10**6) for each in (1, 2, 3)}
    assert await throttled_topics(client, ["t"]) == {"t": Replicas("0:2,0:1", "0:3")}
    await arrived(client)
    left = await browser.get("/moves")
    checked(left)
    assert "A throttle was left behind" in left.words
    assert "1.0 MB" in left.words
    told = (await browser.get("/moves.json")).json["throttle"]
    assert (told["is_left"], told["is_all"], told["not_told"]) == (True, True, None)
    assert told["topics"] == [{"topic": "t", "leader": "0:2,0:1", "follower": "0:3", "is_cut": False, "is_left": True}]
    cleared = await browser.post("/moves", {"do": "clear"})
    assert cleared.status == 303
    assert await throttled_brokers(client, [1, 2, 3]) == {}
    assert await throttled_topics(client, ["t"]) == {}
    assert (await browser.get("/moves.json")).json["throttle"]["is_left"] is False

    async def under_way(client: Client) -> dict[tuple[str, int], Move]:
        await trio.lowlevel.checkpoint()
        return {("t", 1): Move((1, 2, 3), (3,), (2,))}

    for module in (moves, move_topic):
        monkeypatch.setattr(module, "list_moves", under_way)
    page = await browser.get("/moves")
    checked(page)
    refused = await browser.post("/moves", {"do": "throttle", "rate": "slow"})
    assert refused.status == 422
    checked(refused)
    assert (await browser.post("/moves", {"do": "throttle", "rate": "2 MB"})).status == 303
    assert await throttled_topics(client, ["t"]) == {"t": Replicas("1:1,1:2", "1:3")}
    told = (await browser.get("/moves.json")).json["throttle"]
    assert (told["is_left"], [each["broker"] for each in told["brokers"]]) == (False, [1, 2, 3])
    assert (await browser.post("/moves", {"do": "hurry"})).status == 400


async def test_partitions_of_the_same_topic_that_move_already_stay_throttled(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, client, _ = place

    async def under_way(client: Client) -> dict[tuple[str, int], Move]:
        await trio.lowlevel.checkpoint()
        return {("other", 0): Move((1, 2, 3), (3,), (2,)), ("t", 1): Move((1, 2, 3), (3,), (2,))}

    monkeypatch.setattr(move_topic, "list_moves", under_way)
    await browser.get("/topics/t/move?brokers=1&brokers=3&replicas=2")
    begun = await browser.post("/topics/t/move", {"assignment": "0:1,3", "rate": "1 MB"})
    assert begun.status == 303, begun.words
    assert await throttled_topics(client, ["t"]) == {"t": Replicas("0:2,0:1,1:1,1:2", "0:3,1:3")}


async def test_a_throttle_whose_move_failed_is_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser, client, _ = place
    await browser.get("/topics/t/move?brokers=1&brokers=3&replicas=2")
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        failed = await browser.post("/topics/t/move", {"assignment": "0:1,1", "rate": "1 MB"})
    assert (failed.status, "the throttle was set, see the page Moves" in failed.words) == (422, True), failed.words
    assert "the throttle was set" in caplog.text
    assert await throttled_brokers(client, [1, 2, 3]) == {each: Rates(10**6, 10**6) for each in (1, 2)}


async def test_a_throttle_is_cleared_of_all_topics(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, client, _ = place
    for name in ("a", "z"):
        assert await create_topics(client, [NewTopic(name, assignment={0: [1, 2]})]) == {name: 1}
    copies = {(name, 0): Copy([1, 2], [3]) for name in ("a", "t", "z")}
    assert set((await throttle(client, 1000, copies, {})).values()) == {None}
    monkeypatch.setattr(throttling, "TOPICS_MAX", 1)
    told = (await browser.get("/moves.json")).json["throttle"]
    assert (told["is_all"], len(told["topics"])) == (False, 1)
    cleared = await browser.post("/moves.json", {"do": "clear"})
    assert (cleared.json["brokers"], sorted(cleared.json["topics"])) == ([1, 2, 3], ["a", "t", "z"])
    assert await throttled_topics(client, ["a", "t", "z"]) == {}


async def test_a_topic_whose_every_replica_is_throttled_stays_so(place: Place) -> None:
    _, client, _ = place
    topic = Resource(ResourceKind.TOPIC, "t")
    assert await alter_configs(client, {topic: {REPLICAS[0]: "*"}}) == {topic: None}
    before = await throttled_topics(client, ["t"])
    assert before == {"t": Replicas("*", "")}
    results = await throttle(client, 1000, {("t", 0): Copy([2, 1], [3])}, before)
    assert set(results.values()) == {None}
    assert await throttled_topics(client, ["t"]) == {"t": Replicas("*", "0:3")}
