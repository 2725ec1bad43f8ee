"""What several tests of metrics look at."""

from __future__ import annotations

import pytest

from barnabas.kproto.messages import FetchRequest, MetadataRequest
from barnabas.server.metrics import service
from barnabas.server.tests.apis.groups.test_group_apis import Asker
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import Scraped, dialled, measured_broker, scrape


@pytest.fixture
async def seen() -> Scraped:
    """A broker after a group, records read and written, and an error."""
    async with measured_broker() as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t")
        await asker.coordinator()
        asker.session_timeout_ms = 300_000
        member = await asker.member()
        await client.ask(request(batch(b"a", b"b")), 9)
        await client.ask(request(batch(b"a"), topic="nowhere"), 9)
        place = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[place])
        await client.ask(FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[topic]), 12)
        await client.ask(MetadataRequest(topics=[]), 12)
        await asker.commit({0: 1}, member_id=member, generation=1)
        return await scrape(broker)


@pytest.fixture(autouse=True)
def pages_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits until the last page is a second old."""
    monkeypatch.setattr(service, "PAGE_S", 0.0)
