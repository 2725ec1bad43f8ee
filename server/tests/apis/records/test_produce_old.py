"""Produce 0-2, for clients older than Kafka 0.11: message sets become batches. What each set becomes or is refused for
is in `kproto/tests/records/test_old_producers.py`; here is what the broker makes of it. Expectations come from Apache
Kafka 3.9.1, which was sent the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import MetadataRequest, ProduceRequest
from barnabas.kproto.records import Record, iter_headers, iter_records
from barnabas.kproto.records_legacy import build_message_set
from barnabas.server.apis.records import produce
from barnabas.server.requests.old_formats import up_converted
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import NOW_MS, batch, only, read_all, request, topic

VERSIONS = (0, 1, 2)


def messages(*values: bytes | None, magic: int = 0, codec: int = 0, key: bytes | None = b"k") -> bytes:
    return build_message_set([Record(i, NOW_MS + i, key, v) for i, v in enumerate(values)], magic=magic, codec=codec)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


async def stored(client: Client) -> list[tuple[int, list[tuple[int, int, bytes | None]]]]:
    """(codec, [(offset, timestamp, value)]) of every batch."""
    data = await read_all(client)
    return [
        (header.codec, [(r.offset, r.timestamp, r.value) for r in iter_records(data, position)])
        for position, header in iter_headers(data)
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(4))
async def test_sets_become_batches(version: int, magic: int, codec: int, autojump_clock: trio.abc.Clock) -> None:
    """Either format may come in any version."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for expected in (0, 3):
            sent = request(messages(b"a", None, b"c", magic=magic, codec=codec), acks=-1)
            answer = only(await client.ask(sent, version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
        times = [NOW_MS + i if magic else -1 for i in range(3)]
        values = (b"a", None, b"c")
        assert await stored(client) == [(codec, [(base + i, times[i], values[i]) for i in range(3)]) for base in (0, 3)]


@pytest.mark.parametrize(
    ("records", "settings", "code"),
    [
        (damaged(messages(b"a")), {}, ErrorCode.CORRUPT_MESSAGE),
        (messages(b"a") + messages(b"b", magic=1), {}, ErrorCode.INVALID_RECORD),
        (messages(b"a", codec=1) + messages(b"b", codec=1), {}, ErrorCode.INVALID_RECORD),
        (messages(b"a" * 300), {"message_max_bytes": "200"}, ErrorCode.MESSAGE_TOO_LARGE),
        (messages(b"a" * 80, b"b" * 80, b"c" * 80), {"message_max_bytes": "200"}, ErrorCode.MESSAGE_TOO_LARGE),
        (messages(b"a", key=None), {"log_cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
        (messages(b"a", magic=1), {"log_message_timestamp_before_max_ms": "1000"}, ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a") + batch(b"b"), {}, ErrorCode.INVALID_RECORD),
        (batch(b"a") + messages(b"b"), {}, ErrorCode.INVALID_RECORD),
        (damaged(batch(b"a")), {}, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["crc", "mixed", "wrappers", "large", "large set", "no key", "old", "batches", "batch and set", "batch crc"],
)
async def test_refusals(
    records: bytes, settings: dict[str, Any], code: ErrorCode, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker(**settings) as broker, connected(broker) as client:
        await topic(broker)
        await trio.sleep(60)
        answer = only(await client.ask(request(records), 2))
        assert (ErrorCode(answer.error_code), answer.base_offset, answer.log_append_time_ms) == (code, -1, -1)
        assert await read_all(client) == b""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"records": None}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_the_other_versions_refuse(
    change: dict[str, Any], code: ErrorCode, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await topic(broker, "__consumer_offsets")
        assert only(await client.ask(request(**{"records": messages(b"a"), **change}), 0)).error_code == code


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [b"", messages(b"a")[:-1], batch(b"a")[:-1], b"12345"], ids=len)
async def test_nothing_whole_is_a_success_without_an_append(
    version: int, records: bytes, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        answer = only(await client.ask(request(records, acks=-1), version))
        assert (answer.error_code, answer.base_offset) == (0, -1)
        assert await read_all(client) == b""


async def test_good_bad_and_unknown_in_one_request(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client:
        await topic(broker)
        sent = request(messages(b"a"))
        for index, records in ((1, damaged(messages(b"b"))), (2, messages(b"c", magic=1)), (9, messages(b"d"))):
            sent.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(index=index, records=records))
        response = await client.ask(sent, 1)
        answers = [(p.index, p.error_code, p.base_offset) for p in response.responses[0].partition_responses]
        assert answers == [(0, 0, 0), (1, 2, -1), (2, 0, 0), (9, 3, -1)]


async def test_log_append_time_is_answered_from_version_2_on(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_message_timestamp_type="LogAppendTime") as broker, connected(broker) as client:
        await topic(broker)
        now = broker.services.wall_ms()
        times = [only(await client.ask(request(messages(b"a")), v)).log_append_time_ms for v in VERSIONS]
        assert times == [-1, -1, now]
        assert [records[0][1] for _, records in await stored(client)] == [now] * 3


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("zstd", 4), ("uncompressed", 0)])
async def test_the_topics_codec_counts(name: str, codec: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(compression_type=name) as broker, connected(broker) as client:
        await topic(broker)
        for sent in (messages(b"a", b"b"), messages(b"c", codec=2)):
            assert only(await client.ask(request(sent), 0)).error_code == 0
        assert [codec for codec, _ in await stored(client)] == [codec, codec]


async def test_batches_in_old_requests_are_appended_as_they_are(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for sent, expected in ((batch(b"a", b"b", codec=1), 0), (batch(b"c") + batch(b"d")[:-1], 2)):
            assert only(await client.ask(request(sent), 0)).base_offset == expected
        assert [(codec, [v for _, _, v in records]) for codec, records in await stored(client)] == [
            (1, [b"a", b"b"]),
            (0, [b"c"]),
        ]


@pytest.mark.parametrize("sent", [batch(b"a"), messages(b"a")], ids=["batch", "set"])
async def test_a_topic_that_is_made_while_others_are_converted(
    sent: bytes,
    autojump_clock: trio.abc.Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it was converted, so nothing of it is taken."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)

        async def convert_and_make_the_other(*args: Any) -> Any:
            while broker.services.partitions.find("late", 0) is None:
                await broker.services.topics.auto_create(["late"])
            return await up_converted(*args)

        monkeypatch.setattr(produce, "up_converted", convert_and_make_the_other)
        ask = request(sent, topic="late", acks=-1)
        ask.topic_data += request(messages(b"x")).topic_data
        answer = await client.ask(ask, 2)
        codes = {one.name: one.partition_responses[0].error_code for one in answer.responses}
        assert codes == {"late": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t": ErrorCode.NONE}
        assert broker.services.partitions.find("late", 0) is not None
    assert "ERROR" not in caplog.text


async def test_no_acks(autojump_clock: trio.abc.Clock) -> None:
    """Silence; an error closes the connection; to have sent nothing is no error."""
    ask = MetadataRequest(topics=[])
    async with embedded_broker() as broker:
        await topic(broker)
        async with connected(broker) as client:
            await client.send(request(messages(b"a"), acks=0), 0)
            await client.send(request(b"", acks=0), 0)
            assert only(await client.ask(request(messages(b"b")), 0)).base_offset == 1
            await client.send(request(damaged(messages(b"c")), acks=0), 0)
            with pytest.raises(EOFError):
                await client.ask(ask, 0)
        async with connected(broker) as client:
            await client.send(request(messages(b"d"), acks=0), 1)
        await trio.testing.wait_all_tasks_blocked()
        async with connected(broker) as client:
            assert [records[0][2] for _, records in await stored(client)] == [b"a", b"b", b"d"]


async def test_old_and_new_requests_of_one_connection_keep_their_order(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        versions = [9, 0, 0, 9, 2, 9, 9, 1] * 10
        for number, version in enumerate(versions):
            value = b"%d" % number
            await client.send(request(batch(value) if version == 9 else messages(value, codec=1), acks=-1), version)
        offsets = [only(await client.receive(request(None), version)).base_offset for version in versions]
        assert offsets == list(range(len(versions)))
        assert [r[0][2] for _, r in await stored(client)] == [b"%d" % number for number in range(len(versions))]


async def test_a_big_conversion_lets_others_run(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        turns = 0
        done = trio.Event()

        async def others() -> None:
            nonlocal turns
            while not done.is_set():
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            sent = request(messages(*[b"some value"] * 20_000, codec=1))
            await client.send(sent, 0)
            nursery.start_soon(others)
            assert only(await client.receive(sent, 0)).error_code == 0
            done.set()
        assert turns > 20_000 / 256
