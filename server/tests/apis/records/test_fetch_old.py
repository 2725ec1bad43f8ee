"""Fetch 0-3, for clients older than Kafka 0.11: message sets made of batches. Where nothing else is said, Apache Kafka
3.9.1 gave the same messages for the same batches and requests (and filled the answer up, see
`barnabas.server.requests.old_formats`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.kproto.records_legacy import iter_legacy, iter_messages
from barnabas.logdir import AppendOrigin
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.old_formats import RESPONSE_BYTES_MAX
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, produce
from barnabas.server.tests.apis.records.test_produce import NOW_MS, topic

VERSIONS = (0, 1, 2, 3)
HEADERS = (("h", b"1"),)


def magic_of(version: int) -> int:
    return 0 if version < 2 else 1


def seen(data: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, timestamp from NOW_MS on or -1, key, value)."""
    return [
        (r.offset, r.timestamp - NOW_MS if r.timestamp > 0 else r.timestamp, r.key, r.value)
        for r in iter_legacy(bytes(data.records))
    ]


def offsets(data: Any) -> list[int]:
    return [record.offset for record in iter_legacy(bytes(data.records))]


async def three_batches(client: Client, codec: int) -> None:
    """Offsets 0-3, 4-6 with falling times, 7 without a time."""
    first = [
        Record(0, NOW_MS, b"k0", b"a0", HEADERS),
        Record(1, NOW_MS + 1, None, b"a1", HEADERS),
        Record(2, NOW_MS + 2, b"k2", None, HEADERS),
        Record(3, NOW_MS + 3, b"k3", b"a3", HEADERS),
    ]
    second = [Record(i, NOW_MS + 10 - i, b"k", b"b%d" % i) for i in range(3)]
    for records in (first, second, [Record(0, -1, b"k", b"c")]):
        await produce(client, bytes(build_batch(records, codec=codec)))


TIMES = [0, 1, 2, 3, 10, 9, 8, -1]
KEYS = [b"k0", None, b"k2", b"k3", b"k", b"k", b"k", b"k"]
VALUES = [b"a0", b"a1", None, b"a3", b"b0", b"b1", b"b2", b"c"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", range(4))
async def test_from_every_offset(version: int, codec: int, autojump_clock: trio.abc.Clock) -> None:
    """Plain messages from the offset on; wrappers whole, from the one that holds it."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await three_batches(client, codec)
        for offset in range(9):
            data = flat(await client.ask(fetch(("t", 0, offset)), version))[0]
            start = offset if not codec or offset == 8 else (0, 0, 0, 0, 4, 4, 4, 7)[offset]
            times = TIMES if version >= 2 else [-1] * 8
            assert (data.error_code, data.high_watermark) == (0, 8)
            assert seen(data) == [(i, times[i], KEYS[i], VALUES[i]) for i in range(start, 8)]
            shapes = {(m.magic, m.attributes) for m in iter_messages(bytes(data.records))}
            assert shapes == ({(magic_of(version), codec)} if offset < 8 else set())
        for offset in (9, -1):
            data = flat(await client.ask(fetch(("t", 0, offset)), version))[0]
            assert (data.error_code, data.high_watermark, bytes(data.records)) == (1, -1, b"")


@pytest.mark.parametrize("version", VERSIONS)
async def test_limits_of_a_partition(version: int, autojump_clock: trio.abc.Clock) -> None:
    """It holds for the batches as stored (117, 91, 70 bytes), but for the first, and for what is made of them."""
    sizes = [30, 28, 28, 30, 29, 29, 29, 28]
    if version >= 2:
        sizes = [size + 8 for size in sizes]
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await three_batches(client, 0)
        for limit in (0, 1, 11, 29, 38, 70, 100, 117, 150, 207, 208, 277, 278, 1000):
            data = flat(await client.ask(fetch(("t", 0, 0), partition_max_bytes=limit), version))[0]
            whole = 4 if limit < 208 else 7 if limit < 278 else 8
            fit = [i for i in range(whole) if sum(sizes[: i + 1]) <= limit]
            if version == 3 and not fit:
                assert offsets(data) == [0]  # one message at least
            elif not fit:
                # Ours: the beginning of the first message, which tells the client to ask for more.
                assert (offsets(data), len(data.records)) == ([], limit)
            else:
                assert (offsets(data), len(data.records)) == (fit, sum(sizes[: len(fit)]))


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("codec", [1, 2, 3])
async def test_a_wrapper_that_grew_still_fits(version: int, codec: int, autojump_clock: trio.abc.Clock) -> None:
    """A client that asks for as much as was stored can go on."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        batch = bytes(build_batch([Record(0, NOW_MS, None, b"%d" % i) for i in range(200)], codec=codec))
        await produce(client, batch)
        data = flat(await client.ask(fetch(("t", 0, 0), partition_max_bytes=len(batch)), version))[0]
        assert offsets(data) == list(range(200))
        assert len(data.records) > len(batch)
        data = flat(await client.ask(fetch(("t", 0, 0), partition_max_bytes=len(batch) - 1), version))[0]
        assert (offsets(data), len(data.records)) == ([], len(batch) - 1)


async def test_version_3_limits_the_whole_answer(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="3") as broker, connected(broker) as client:
        await topic(broker)
        batch = bytes(build_batch([Record(0, NOW_MS, b"k", b"x" * 51), Record(1, NOW_MS, b"k", b"y" * 50)]))
        for index in range(3):
            await produce(client, batch, batch, index=index)
        everything = [("t", index, 0) for index in range(3)]
        for limit, expected in (
            (10, [[0], [], []]),
            (2 * len(batch), [[0, 1, 2, 3], [], []]),
            (3 * len(batch), [[0, 1, 2, 3], [0, 1], []]),
            (9999, [[0, 1, 2, 3]] * 3),
        ):
            answer = flat(await client.ask(fetch(*everything, max_bytes=limit), 3))
            assert [offsets(answer[index]) for index in range(3)] == expected
        answer = flat(await client.ask(fetch(*everything, partition_max_bytes=1), 3))
        assert [offsets(answer[index]) for index in range(3)] == [[0], [], []]


@pytest.mark.parametrize("version", VERSIONS)
async def test_zstd(version: int, autojump_clock: trio.abc.Clock) -> None:
    """What comes before it is given, then the error."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for codec in (0, 4, 0):
            await produce(client, bytes(build_batch([Record(0, NOW_MS, b"k", b"v")], codec=codec)))
        for offset, expected in ((0, (0, 3, [0])), (1, (76, -1, [])), (2, (0, 3, [2]))):
            data = flat(await client.ask(fetch(("t", 0, offset)), version))[0]
            assert (data.error_code, data.high_watermark, offsets(data)) == expected


@pytest.mark.parametrize("version", range(13))
async def test_topics_of_zstd_need_version_10(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(compression_type="zstd") as broker, connected(broker) as client:
        await topic(broker)
        await produce(client, bytes(build_batch([Record(0, NOW_MS, b"k", b"v")])))
        for offset in (0, 1):
            data = flat(await client.ask(fetch(("t", 0, offset)), version))[0]
            assert (data.error_code, data.high_watermark) == ((76, -1) if version < 10 else (0, 1))


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_conversion_can_be_switched_off(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_message_downconversion_enable="false") as broker, connected(broker) as client:
        await topic(broker)
        await produce(client, bytes(build_batch([Record(0, NOW_MS, b"k", b"v")])))
        data = flat(await client.ask(fetch(("t", 0, 0)), version))[0]
        assert (data.error_code, data.high_watermark) == ((35, -1) if version < 4 else (0, 1))


@pytest.mark.parametrize("version", VERSIONS)
async def test_log_append_time(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_message_timestamp_type="LogAppendTime") as broker, connected(broker) as client:
        await topic(broker)
        now = broker.services.wall_ms()
        for codec in (0, 1):
            await produce(client, bytes(build_batch([Record(0, 5, b"k", b"a"), Record(1, 6, b"k", b"b")], codec=codec)))
        data = flat(await client.ask(fetch(("t", 0, 0)), version))[0]
        found = [(m.offset, m.timestamp, m.attributes) for m in iter_messages(bytes(data.records))]
        time, bit = (now, 8) if version >= 2 else (-1, 0)
        assert found == [(0, time, bit), (1, time, bit), (3, time, bit | 1)]
        assert [record.timestamp for record in iter_legacy(bytes(data.records))] == [time] * 4


def end_transaction(broker: Broker) -> None:
    partition = broker.services.partitions.get("t", 0)
    marker = build_control_batch(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW_MS)
    partition.append(marker, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)
    partition.write()


@pytest.mark.parametrize("version", VERSIONS)
async def test_control_batches_are_left_out(version: int, autojump_clock: trio.abc.Clock) -> None:
    """Ours: they do not hide what follows, however small the limit, and alone they are nothing; Apache Kafka says a
    message is too large.
    """
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        plain = bytes(build_batch([Record(0, NOW_MS, b"k", b"v")]))
        await produce(client, plain)
        for _ in range(5):
            end_transaction(broker)
        await produce(client, plain)
        end_transaction(broker)
        for offset, expected in ((0, [0, 6]), (1, [6]), (4, [6]), (6, [6]), (7, []), (8, [])):
            data = flat(await client.ask(fetch(("t", 0, offset)), version))[0]
            assert (data.error_code, data.high_watermark, offsets(data)) == (0, 8, expected)
        data = flat(await client.ask(fetch(("t", 0, 1), partition_max_bytes=80), version))[0]
        assert offsets(data) == [6]


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_waits_and_is_woken(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client, connected(broker) as writer:
        await topic(broker)
        start = trio.current_time()
        data = flat(await client.ask(fetch(("t", 0, 0), max_wait_ms=500, min_bytes=1), version))[0]
        assert trio.current_time() - start == pytest.approx(0.5)
        assert offsets(data) == []
        asked = fetch(("t", 0, 0), max_wait_ms=60_000, min_bytes=1)
        await client.send(asked, version)
        await trio.sleep(3)
        await produce(writer, bytes(build_batch([Record(0, NOW_MS, b"k", b"news")])))
        assert [value for *_, value in seen(flat(await client.receive(asked, version))[0])] == [b"news"]
        assert trio.current_time() - start == pytest.approx(3.5)


async def test_a_lost_client_leaves_nothing_behind(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker:
        await topic(broker)
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with connected(broker) as client:
            await client.send(fetch(("t", 0, 0), max_wait_ms=3_600_000, min_bytes=1), 0)
            await trio.sleep(1)
            assert len(broker.services.partitions.get("t", 0)._waiters) == 1
        await trio.sleep(1)
        assert len(broker.services.partitions.get("t", 0)._waiters) == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks


@pytest.mark.parametrize("version", VERSIONS)
async def test_errors_are_the_partitions(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        response = await client.ask(fetch(("nothing", 0, 0), ("t", 7, 0), ("t", 0, 0), max_wait_ms=9000), version)
        found = [
            (each.topic, p.partition_index, p.error_code, p.high_watermark)
            for each in response.responses
            for p in each.partitions
        ]
        assert found == [("nothing", 0, 3, -1), ("t", 7, 3, -1), ("t", 0, 0, 0)]
        assert (await client.ask(fetch(max_wait_ms=9000), version)).responses == []
        answer = flat(await client.ask(fetch(("t", 0, 0), replica_id=5), version))[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("version", "code"), [(0, 6), (3, 6), (5, 6), (6, 56)])
async def test_older_clients_do_not_know_storage_errors(
    version: int, code: int, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        monkeypatch.setattr(Partition, "read", failing)
        assert flat(await client.ask(fetch(("t", 0, 0)), version))[0].error_code == code


def damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff" * 20)


async def test_a_damaged_batch_is_an_error_of_its_partition(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(num_partitions="2") as broker, connected(broker) as client:
        await topic(broker)
        batch = build_batch([Record(0, NOW_MS, b"k", b"v" * 100)] * 10, codec=1)
        for index in (0, 1):
            await produce(client, bytes(batch), index=index)
        path = broker.services.partitions.get("t", 0).log.directory
        damage(f"{path}/{0:020}.log")
        answer = flat(await client.ask(fetch(("t", 0, 0), ("t", 1, 0)), 0))
        assert (answer[0].error_code, bytes(answer[0].records)) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert offsets(answer[1]) == list(range(10))


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_is_bounded_and_no_partition_starves(version: int, autojump_clock: trio.abc.Clock) -> None:
    """4 partitions with more than an answer takes each: in some requests all of them have had their turn. Before
    version 3 the broker sees to that, from then on the client, which moves what it got to the end.
    """
    async with embedded_broker(num_partitions="4") as broker, connected(broker) as client:
        await topic(broker)
        batch = bytes(build_batch([Record(0, NOW_MS, None, b"x" * 1000)] * 900))
        for index in range(4):
            await produce(client, batch, batch, batch, index=index)
        everything = [("t", index, 0) for index in range(4)]
        served = set()
        for _ in range(20):
            answer = await client.ask(fetch(*everything, partition_max_bytes=1 << 30, max_bytes=1 << 30), version)
            sizes = {index: len(data.records) for index, data in flat(answer).items()}
            assert sum(sizes.values()) <= RESPONSE_BYTES_MAX
            got = [index for index, size in sizes.items() if size]
            served.update(got)
            if version == 3:
                assert got == [everything[0][1]]
                everything.append(everything.pop(0))
        assert served == {0, 1, 2, 3}


@pytest.mark.parametrize("codec", [0, 1])
async def test_a_big_conversion_lets_others_run(codec: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await produce(client, bytes(build_batch([Record(0, NOW_MS, None, b"some value")] * 20_000, codec=codec)))
        turns = 0
        done = trio.Event()

        async def others() -> None:
            nonlocal turns
            while not done.is_set():
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            asked = fetch(("t", 0, 0))
            await client.send(asked, 0)
            nursery.start_soon(others)
            assert len(offsets(flat(await client.receive(asked, 0))[0])) == 20_000
            done.set()
        assert turns > 20_000 / 256


async def test_a_whole_log_can_be_read(autojump_clock: trio.abc.Clock) -> None:
    """As a client of that time does it: from the offset behind the last message, whatever the sizes."""
    async with embedded_broker(log_segment_bytes="20000") as broker, connected(broker) as client:
        await topic(broker)
        expected = []
        for number in range(60):
            values = [b"%d-%d" % (number, i) + b"." * (number * 7 % 200) for i in range(number % 13 + 1)]
            expected += values
            await produce(client, bytes(build_batch([Record(0, NOW_MS, None, v) for v in values], codec=number % 4)))
        for version in VERSIONS:
            for limit in (600, 2000, 1 << 20):
                read: list[bytes | None] = []
                size = limit
                while len(read) < len(expected):
                    data = flat(await client.ask(fetch(("t", 0, len(read)), partition_max_bytes=size), version))[0]
                    found = [r.value for r in iter_legacy(bytes(data.records)) if r.offset >= len(read)]
                    assert found or len(data.records) == size  # something whole, or the sign to ask for more
                    size = limit if found else 2 * size
                    read += found
                assert read == expected
