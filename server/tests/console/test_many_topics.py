"""10,000 topics, 10,000 groups: pages stay pages. Requests, what they ask about, and bytes are counted, not times."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.desk import GROUPS_MAX, GROUPS_S, TOPICS_S
from barnabas.server.console.pages.common import ROWS
from barnabas.server.console.rates import FOLLOWED_MAX
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.client.rig import Exchange, passed_on, relayed, to_broker
from barnabas.server.tests.console.rig import Browser, app_over, checked, filled, now_ms

MANY = 10_000
PAGE_BYTES = 200_000
REQUESTS = 16
"""To brokers, for a page."""


@pytest.mark.campaign
async def test_ten_thousand_topics(autojump_clock: MockClock) -> None:
    with trio.fail_after(10_000):
        async with (
            embedded_broker(broker_id="0", offsets_topic_num_partitions="1") as broker,
            relayed(to_broker(broker), timeout_s=300) as (client, relay),
        ):
            for at in range(0, MANY, 500):
                await create_topics(client, [NewTopic(f"t{number:05}", 1, 1) for number in range(at, at + 500)])
            for number in range(20):
                await commit_offsets(client, f"g{number}", {(f"t{number:05}", 0): 0})
            browser = Browser(app_over(client))
            asked: list[tuple[ApiKey, Any]] = []

            async def hook(exchange: Exchange) -> bytes | None:
                asked.append((exchange.key, exchange.message))
                return await passed_on(exchange)

            relay.hook = hook
            for path in (
                "/",
                "/topics",
                "/topics?page=200",
                "/topics?q=t0999",
                "/topics?sort=lag",
                "/topics?sort=partitions",
                "/topics/t05000/partitions",
                "/topics/t05000/records",
                "/topics/t05000/groups",
                "/topics/t05000/delete",
                "/topics/t05000/move?brokers=0",
                "/groups",
                "/groups/g7/lag",
                "/transactions",
                "/moves",
                "/leaders",
                "/brokers/0/directories",
            ):
                await trio.sleep(max(TOPICS_S, GROUPS_S) * 2)  # nothing is remembered
                asked.clear()
                answer = await browser.get(path)
                assert answer.status == 200, (path, answer.words[:300])
                checked(answer)
                assert len(answer.body) < PAGE_BYTES, (path, len(answer.body))
                assert len((await browser.get(as_json(path))).body) < PAGE_BYTES, path
                assert len(asked) <= 2 * REQUESTS, (path, [key.name for key, _ in asked])
                offsets = sum(
                    len(topic.partitions)
                    for key, message in asked
                    if key is ApiKey.LIST_OFFSETS
                    for topic in message.topics
                )
                # Twice each, first and last, of a page's rows and of what groups read; for the page and its JSON.
                assert offsets <= 2 * 2 * (ROWS + 20), (path, offsets)
                assert sum(key is ApiKey.METADATA and message.topics is None for key, message in asked) <= 1, path
            last = (await browser.get("/topics.json?page=200")).json
            assert (last["rows"], last["last"], last["topics"][-1]["name"]) == (MANY, 200, f"t{MANY - 1:05}")
            for page in range(1, 60):
                await browser.get(f"/topics.json?page={page}")
            asked.clear()
            rates = browser.app.history.rates
            await rates.follow(client, now_ms)
            followed = [topic for key, message in asked if key is ApiKey.LIST_OFFSETS for topic in message.topics]
            assert len(followed) == FOLLOWED_MAX
            assert len(asked) <= REQUESTS


@pytest.mark.campaign
async def test_ten_thousand_groups(autojump_clock: MockClock) -> None:
    with trio.fail_after(10_000):
        async with (
            embedded_broker(broker_id="0", offsets_topic_num_partitions="1") as broker,
            relayed(to_broker(broker), timeout_s=300) as (client, relay),
        ):
            await filled(client, "t", count=3, partitions=1)
            for number in range(MANY):
                await commit_offsets(client, f"g{number:05}", {("t", 0): 3})
            await commit_offsets(client, f"g{MANY - 1:05}", {("t", 0): 1})  # one of the last is behind
            browser = Browser(app_over(client))
            asked: list[tuple[ApiKey, Any]] = []

            async def hook(exchange: Exchange) -> bytes | None:
                asked.append((exchange.key, exchange.message))
                return await passed_on(exchange)

            relay.hook = hook
            for path in (
                "/",
                "/groups",
                "/groups?page=200",
                "/groups?q=g0999",
                "/groups?sort=name",
                "/topics/t/groups",
            ):
                await trio.sleep(GROUPS_S * 2)  # nothing is remembered
                asked.clear()
                answer = await browser.get(path)
                checked(answer)
                assert answer.status == 200, path
                assert len(answer.body) < PAGE_BYTES, (path, len(answer.body))
                count = sum(len(message.groups) for key, message in asked if key is ApiKey.DESCRIBE_GROUPS)
                assert count <= GROUPS_MAX + ROWS, (path, count)
                assert len(asked) <= REQUESTS + 2 * (GROUPS_MAX + ROWS), (path, len(asked))
            assert "1,000 groups that were looked at" in (await browser.get("/")).words
            last = f"g{MANY - 1:05}"
            found = (await browser.get(f"/groups.json?q={last}")).json["groups"]
            assert [(row["group"], row["lag"], row["topics"]) for row in found] == [(last, 2, ["t"])]
            assert (await browser.get("/groups.json?page=200")).json["groups"][-1]["lag"] is not None


def as_json(path: str) -> str:
    raw, mark, query = path.partition("?")
    return f"{'/index' if raw == '/' else raw}.json{mark}{query}"
