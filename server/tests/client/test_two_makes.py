"""The client with Apache Kafka 4.3.1, and the same with a broker of ours, over TCP.

What a person's commands reach of it `compat_tests/subjects/commands` runs as programs; here is the rest.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.configs import Resource, ResourceKind, Source, alter_configs, describe_configs
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets, delete_offsets
from barnabas.server.client.groups.groups import list_groups
from barnabas.server.client.groups.lag import GroupLag, lags
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import EARLIEST, LATEST, NEWEST_TIME, Span, delete_records, list_offsets, spans
from barnabas.server.client.producer import Placed, Producer
from barnabas.server.client.reader import Reader, first_of_each, newest, read_all
from barnabas.server.client.topics import NewTopic, add_partitions, create_topics, delete_topics, list_topics
from barnabas.server.client.transactions import (
    abort_transaction,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.server.testing import broker_thread
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


def now_ms() -> int:
    return int(time.time() * 1000)


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], object]) -> Any:
    """Brokers of Apache Kafka learn of a change when they have read it from the controller's log."""
    with trio.fail_after(60):
        while True:
            found = await ask()
            if is_so(found):
                return found
            await trio.sleep(0.05)


async def made(client: Client, name: str, partitions: int = 3) -> list[tuple[str, int]]:
    """A new topic, by a name that was not there before: for a moment a deleted one may take records yet."""
    assert await create_topics(client, [NewTopic(name, partitions, 1)]) == {name: partitions}
    return [(name, index) for index in range(partitions)]


@pytest.mark.parametrize("codec", range(5))
async def test_records(bootstrap: str, codec: int) -> None:
    async with open_client([bootstrap], timeout_s=60) as client:
        name = f"records-{codec}"
        places = await made(client, name)
        first_ms = now_ms() - 3000
        sent = [ToSend(name, b"%d" % i, b"k%d" % (i % 11), (("h", None),), timestamp=first_ms + i) for i in range(3000)]
        results = await Producer(client, now_ms, codec=codec).send(sent)
        assert all(isinstance(each, Placed) for each in results)
        found: Any = await spans(client, places)
        assert sum(span.end for span in found.values()) == 3000
        reader = Reader(client, dict.fromkeys(places, 0), {place: span.end for place, span in found.items()})
        records = await read_all(reader)
        assert sorted(int(record.value or b"") for record in records) == list(range(3000))
        search, failed = await newest(client, found, 12)
        assert [int(record.value or b"") for record in search.result()] == list(range(2988, 3000))
        assert failed == {}
        first = await first_of_each(
            client, dict.fromkeys(places, 5), {place: span.end for place, span in found.items()}
        )
        assert all(
            record is not None and not isinstance(record, Failed) and record.offset == 5 for record in first.values()
        )
        assert await delete_records(client, {places[0]: 7}) == {places[0]: 7}
        offsets = await list_offsets(client, {places[0]: EARLIEST, places[1]: LATEST, places[2]: first_ms + 1000})
        assert not any(isinstance(each, Failed) for each in offsets.values())
        assert offsets[places[0]].offset == 7  # type: ignore[union-attr]
        (by_time,) = (await list_offsets(client, {places[1]: NEWEST_TIME})).values()
        assert not isinstance(by_time, Failed)
        assert by_time.timestamp == max(record.timestamp for record in records if record.partition == 1)
        assert await delete_topics(client, [name]) == {name: None}


async def test_settings_and_directories(bootstrap: str) -> None:
    async with open_client([bootstrap], timeout_s=60) as client:
        await made(client, "settings", 1)
        topic = Resource(ResourceKind.TOPIC, "settings")
        (broker_id,) = (await client.refresh([])).brokers
        logger = Resource(ResourceKind.BROKER_LOGGER, str(broker_id))
        broker = Resource(ResourceKind.BROKER, str(broker_id))
        assert await alter_configs(client, {topic: {"retention.ms": "99", "max.message.bytes": "5000"}}) == {
            topic: None
        }
        assert await alter_configs(client, {topic: {"retention.ms": None}}) == {topic: None}

        def are_made(found: Any) -> bool:
            settings = found[topic]
            if isinstance(settings, Failed) or settings["retention.ms"].source is not Source.DEFAULT:
                return False
            return bool(settings["max.message.bytes"].value == "5000")

        found = await until(lambda: describe_configs(client, [topic, broker, logger]), are_made)
        settings = found[topic]
        assert not isinstance(settings, Failed)
        assert (settings["max.message.bytes"].value, settings["max.message.bytes"].source) == ("5000", Source.TOPIC)
        assert settings["retention.ms"].source is Source.DEFAULT
        assert settings["retention.ms"].doc
        assert len(found[broker]) > 100
        assert not isinstance(found[logger], Failed)
        wrong = (await alter_configs(client, {topic: {"retention.ms": "soon"}}))[topic]
        assert isinstance(wrong, Failed)
        (directory,) = (await describe_log_dirs(client, [("settings", 0)]))[broker_id]  # type: ignore[misc]
        assert list(directory.replicas) == [("settings", 0)]
        assert await add_partitions(client, {"settings": 2}) == {"settings": None}
        await until(lambda: list_topics(client), lambda found: len(found["settings"].partitions) == 2)


async def test_offsets_of_groups(bootstrap: str) -> None:
    async with open_client([bootstrap], timeout_s=60) as client:
        places = await made(client, "groups", 2)
        await Producer(client, now_ms).send([ToSend("groups", b"x", partition=i % 2) for i in range(10)])
        names = [f"group {number}" for number in range(30)]
        for name in names:
            assert await commit_offsets(client, name, {places[0]: 1, places[1]: 5}) == dict.fromkeys(places)
        found = await committed_offsets(client, [*names, "nobody"])
        assert len(found) == 31
        listed, failed = await list_groups(client)
        assert set(names) <= set(listed)
        assert failed == {}
        lag = (await lags(client, names))["group 7"]
        assert isinstance(lag, GroupLag)
        assert [each.lag for each in lag.partitions] == [4, 0]
        seconds = lag.lag_s(now_ms())
        assert seconds is not None
        assert 0 <= seconds < 3600
        assert await delete_offsets(client, "group 7", places[:1]) == {places[0]: None}


async def test_a_transaction_is_seen_and_ended(bootstrap: str) -> None:
    async with open_client([bootstrap], timeout_s=60) as client:
        places = await made(client, "transactions", 1)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "x", "transaction.timeout.ms": 600_000}
        )
        await trio.to_thread.run_sync(producer.init_transactions, 60)
        producer.begin_transaction()
        producer.produce("transactions", b"open")
        await trio.to_thread.run_sync(producer.flush, 60)
        listed, failed = await list_transactions(client)
        assert (listed["x"].state, failed) == ("Ongoing", {})
        described = (await describe_transactions(client, ["x"]))["x"]
        assert not isinstance(described, Failed)
        assert described.partitions == (places[0],)
        assert abs(described.start_ms - now_ms()) < 600_000
        active = (await describe_producers(client, places))[places[0]]
        assert not isinstance(active, Failed)
        assert [each.start_offset for each in active] == [0]
        assert (await spans(client, places, committed=True))[places[0]] == Span(0, 0)
        assert await abort_transaction(client, places[0], active[0]) is None
        assert (await spans(client, places, committed=True))[places[0]] == Span(0, 2)
        reader = Reader(client, {places[0]: 0}, {places[0]: 2}, committed=True)
        assert await read_all(reader) == []
