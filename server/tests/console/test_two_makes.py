"""Every page with Apache Kafka 4.3.1, and with a broker of ours, over TCP; ACLs, users and quotas by the client."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("starlette")

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.quotas import alter_quota, describe_quotas
from barnabas.server.client.access.scram_users import Credential, delete_credential, describe_users, put_user
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.moves import elect_preferred, list_moves, move
from barnabas.server.client.throttles import Copy, Rates, Replicas, throttle, throttled_brokers, throttled_topics
from barnabas.server.client.topics import delete_topics, list_topics
from barnabas.server.console.app import Console, Options
from barnabas.server.console.desk import Desk
from barnabas.server.console.web.visitors import Visitors
from barnabas.server.security.sasl.scram_credentials import ScramMechanism
from barnabas.server.testing import broker_thread
from barnabas.server.tests.console.rig import Browser, Place, checked, filled, paths
from compat_tests.harness.brokers import start_kafka


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=[pytest.mark.campaign, pytest.mark.jvm])])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "ours":
        with broker_thread() as address:
            yield address
        return
    kafka = start_kafka(Path(tmp_path_factory.mktemp("kafka")))
    yield kafka.bootstrap
    kafka.stop()


@pytest.fixture
async def place(bootstrap: str) -> AsyncIterator[Place]:
    async with open_client([bootstrap], timeout_s=60) as client:
        visitors = Visitors(os.urandom, time.monotonic, "c")
        app = Console(Desk(client), visitors, Options(bootstrap, "1"), lambda: int(time.time() * 1000))
        yield Browser(app), client


async def test_every_page(place: Place) -> None:
    browser, client = place
    await delete_topics(client, ["orders"])
    await filled(client)
    await commit_offsets(client, "billing", {("orders", 0): 2, ("orders", 1): 1})
    broker = min(client.view.brokers)
    for page, path in paths(broker=str(broker)):
        if page.name == "topics.events":
            continue
        answer = await browser.get(path + ("?offset=1" if page.name == "topics.record" else ""))
        assert answer.status == 200, (path, answer.words[:500])
        if page.is_json_too:
            checked(answer)
    records = (await browser.get("/topics/orders/records.json?json=%24.user.id+%3D%3D+1")).json["records"]
    assert [each["key"]["text"] for each in records] == ["k7", "k4", "k1"]
    lag = (await browser.get("/groups/billing/lag.json")).json
    assert lag["lag"] == 7
    settings = (await browser.get("/topics/orders/settings.json?q=retention.ms")).json["settings"]
    assert "retention.ms" in [each["name"] for each in settings]


async def test_changes(place: Place) -> None:
    browser, client = place
    await delete_topics(client, ["made"])
    await browser.get("/new-topic")
    would = await browser.post("/new-topic", {"name": "made", "partitions": "2", "replicas": "1", "check": "1"})
    assert "would create" in would.words
    made = await browser.post("/new-topic", {"name": "made", "partitions": "2", "replicas": "1"})
    assert made.status == 303, made.words
    for path, form in (
        ("/topics/made/partitions", {"partitions": "3"}),
        ("/topics/made/settings", {"name": "retention.ms", "value": "100000"}),
        ("/topics/made/settings", {"name": "retention.ms", "default": "1"}),
        ("/topics/made/produce", {"key_as": "null", "value": "v", "partition": "2"}),
    ):
        answer = await browser.post(path, form)
        assert answer.status == 303, (path, answer.words[:500])
        await until(list_topics, client, lambda topics: len(topics["made"].partitions) == 3)
    assert (await browser.get("/topics/made/records.json")).json["records"][0]["value"]["text"] == "v"
    await commit_offsets(client, "made-by-console", {("made", 2): 1})
    reset = await browser.post("/groups/made-by-console/reset", {"topic": "made", "positions": "2:0"})
    assert reset.status == 303, reset.words
    assert (await browser.get("/groups/made-by-console/lag.json")).json["lag"] == 1
    wrong = await browser.post("/topics/made/settings", {"name": "retention.ms", "value": "soon"})
    assert wrong.status == 422, wrong.words[:500]
    assert (await browser.post("/groups/made-by-console/delete", {"confirm": "made-by-console"})).status == 303
    emptied = await browser.post("/topics/made/delete", {"confirm": "made", "what": "records"})
    assert emptied.status == 303, emptied.words[:500]
    assert (await browser.post("/topics/made/delete", {"confirm": "made"})).status == 303


async def test_users_and_quotas(place: Place) -> None:
    _, client = place
    mechanism = ScramMechanism.SHA_256
    assert await put_user(client, "eve", mechanism, "secret", 4096, os.urandom) is None
    found: Any = await until(describe_users, client, lambda users: "eve" in users)
    assert found["eve"] == [Credential("SCRAM-SHA-256", 4096)]
    assert await delete_credential(client, "eve", mechanism) is None
    await until(describe_users, client, lambda users: "eve" not in users)
    failed = await delete_credential(client, "eve", mechanism)
    assert failed is not None
    entity = (("client-id", "c"), ("user", None))
    assert await alter_quota(client, entity, {"producer_byte_rate": 1000.0}) is None
    quotas: Any = await until(describe_quotas, client, lambda quotas: bool(quotas))
    assert [(quota.entity, dict(quota.limits)) for quota in quotas] == [(entity, {"producer_byte_rate": 1000.0})]
    assert await alter_quota(client, entity, {"producer_byte_rate": None}) is None
    await until(describe_quotas, client, lambda quotas: not quotas)
    assert await alter_quota(client, entity, {"no_such_rate": 1.0}) is not None


async def test_a_throttle(place: Place) -> None:
    browser, client = place
    await delete_topics(client, ["placed"])
    await filled(client, "placed", 2, 2)
    broker = min(client.view.brokers)
    copies = {("placed", index): Copy([broker], [broker + 7]) for index in range(2)}
    done = await throttle(client, 10**6, {place: copy._replace(targets=[]) for place, copy in copies.items()}, {})
    assert set(done.values()) == {None}
    rates: Any = await until(lambda client: throttled_brokers(client, [broker]), client, bool)
    assert rates == {broker: Rates(10**6, 10**6)}
    lists: Any = await until(lambda client: throttled_topics(client, ["placed"]), client, bool)
    assert lists == {"placed": Replicas(f"0:{broker},1:{broker}", "")}
    page = await browser.get("/moves")
    checked(page)
    assert "A throttle was left behind" in page.words
    assert (await browser.post("/moves", {"do": "clear"})).status == 303
    await until(lambda client: throttled_brokers(client, [broker]), client, lambda found: not found)
    await until(lambda client: throttled_topics(client, ["placed"]), client, lambda found: not found)
    assert "None: partitions move as fast as brokers can." in (await browser.get("/moves")).words


async def test_moves_and_leaders(place: Place) -> None:
    _, client = place
    await delete_topics(client, ["moved"])
    await filled(client, "moved", 2, 2)
    broker = min(client.view.brokers)
    assert await list_moves(client) == {}
    done = await move(client, {("moved", 0): [broker], ("moved", 1): [broker + 7], ("moved", 9): [broker]})
    codes = {index: None if failed is None else failed.code for (_, index), failed in done.items()}
    assert codes == {
        0: None,
        1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    off: Any = await move(client, {("moved", 0): None})
    assert off["moved", 0].code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    found: Any = await elect_preferred(client, [("moved", 0), ("moved", 9)])
    assert found["moved", 0].code == ErrorCode.ELECTION_NOT_NEEDED
    assert found["moved", 9].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nothing: Any = await move(client, {("nothing", 0): None})
    assert nothing["nothing", 0].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def until(ask: Any, client: Client, is_so: Any) -> Any:
    """Brokers learn of a change when they have read it from the controller's log."""
    with trio.fail_after(60):
        while True:
            found = await ask(client)
            if is_so(found):
                return found
            await trio.sleep(0.05)
