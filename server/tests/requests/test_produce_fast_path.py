"""The fast path of Produce: what it remembers, and what it must leave to the slow path. Random conversations that
`test_fast_paths.py` holds with it and without.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, decode, uvarint
from barnabas.kproto.frame import parse_request_header, request_frame
from barnabas.kproto.messages import ApiVersionsRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch, check_batch, iter_headers
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.server.requests.fast_paths import produce as fast_path
from barnabas.server.requests.fast_paths.produce import ProduceFastPath
from barnabas.server.requests.fast_paths.produce_frames import PARTS_MAX, beginning_bytes, layout_of
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import NOW_MS, only, read_all, request, topic


def batch(sequence: int, count: int = 3, size: int = 20, *, producer_id: int = 7, transactional: bool = False) -> bytes:
    records = [Record(i, NOW_MS + i, None, bytes(size), []) for i in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=transactional
    )


def spoilt(data: bytes, at: int = -1) -> bytes:
    copy = bytearray(data)
    copy[at] ^= 1
    return bytes(copy)


def frames(version: int, acks: int, names: list[str], ids: list[bytes], rng: Random) -> Iterator[bytes]:
    """Requests like those before and unlike them, good and bad, in every order."""

    def framed(records: bytes | None, number: int = 0, index: int = 0, client_id: str | None = "one") -> bytes:
        named = request(
            records, topic=names[number] if version < 13 else "", topic_id=ids[number], index=index, acks=acks
        )
        return request_frame(version, rng.randrange(-(1 << 31), 1 << 31), client_id, named)

    def two_partitions(records: bytes) -> bytes:
        asked = request(records, topic=names[0] if version < 13 else "", topic_id=ids[0], acks=acks)
        asked.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(index=1, records=batch(0)))
        return request_frame(version, 5, "one", asked)

    sequence = 0
    for turn in range(50):
        good = batch(sequence)
        other = batch(0, producer_id=8 + turn)
        kind = rng.randrange(14) if turn > 1 else 0
        if kind < 5:
            sequence += 3
            yield framed(good)
        elif kind == 5:
            sequence += 40
            yield framed(batch(sequence - 40, 40, rng.choice([1, 60, 1000])))  # lengths of two and three bytes
        elif kind == 6:
            yield framed(batch(max(0, sequence - 3)))  # perhaps sent before
        elif kind == 7:
            yield framed(batch(sequence + 1))
        elif kind == 8:
            yield framed(spoilt(good, rng.choice([-1, 16, 20, 22, 60])))
        elif kind == 9:
            yield framed(rng.choice([None, b"", good + good, good[:-1], batch(sequence, transactional=True)]))
        elif kind == 10:
            yield framed(other, number=rng.randrange(len(names)), index=rng.randrange(-1, 4))
        elif kind == 11:
            yield framed(other, client_id=rng.choice([None, "two", ""]))
        elif kind == 12:
            yield two_partitions(other)
        else:
            # A tagged field that nobody knows, behind the records.
            whole = framed(other)
            yield (len(whole) - 4 + 3).to_bytes(4, "big") + whole[4:-1] + b"\x01\x63\x01x"


async def conversation(version: int, seed: int, acks: int) -> list[bytes]:
    """The answers, and the log."""
    async with embedded_broker(num_partitions="2") as broker, connected(broker) as client:
        names = ["t", "longer", "nothing"]
        ids = [await topic(broker, name) for name in names[:2]]
        answers = []
        for frame in frames(version, acks, names, [*ids, b"\1" * 16], Random(seed)):
            await client.stream.send_all(frame)
            answers.append(await client.receive_frame())
        return [*answers, await read_all(client)]


async def silent_conversation(version: int, seed: int) -> list[bytes]:
    """With acks=0: nothing but a closed connection where something is refused, and the log."""
    rng = Random(seed)
    async with embedded_broker(num_partitions="2") as broker:
        names = ["t", "longer", "nothing"]
        ids = [await topic(broker, name) for name in names[:2]]
        seen = []
        pieces = [[frame] for frame in frames(version, 0, names, [*ids, b"\1" * 16], rng)]
        name = names[0] if version < 13 else ""
        for first in range(0, 60, 12):
            asked = [
                request(batch(first + i, producer_id=9), topic=name, topic_id=ids[0], acks=0) for i in (0, 3, 6, 9)
            ]
            pieces.append([request_frame(version, 0, "one", each) for each in asked])
        while pieces:
            async with connected(broker) as client:
                try:
                    while pieces:
                        await client.stream.send_all(b"".join(pieces.pop(0)))
                        await client.ask(ApiVersionsRequest(), 0)
                        seen.append(b"served")
                except (EOFError, trio.BrokenResourceError):
                    seen.append(b"closed")
        async with connected(broker) as client:
            return [*seen, await read_all(client)]


PARTS = 4


def requests_of_several(
    version: int, acks: int, names: list[str], ids: list[bytes], rng: Random
) -> Iterator[ProduceRequest]:
    """Several partitions each: mostly a good batch for each of some of them, in any order."""
    sequences = [0] * PARTS
    for turn in range(60):
        number = rng.choice([0, 0, 0, 1])
        data = []
        for index in rng.sample(range(PARTS), rng.randrange(1, PARTS + 1)):
            sequence = sequences[index]
            records = batch(sequence, rng.choice([1, 3]), rng.choice([20, 20, 200]), producer_id=100 * number + 7)
            kind = rng.randrange(40) if turn > 2 else 9
            if kind == 0:
                records = spoilt(records)
            elif kind == 1:
                records = batch(sequence + 7)
            elif kind == 2:
                records = batch(max(0, sequence - 3))  # perhaps sent before
            elif kind == 3:
                index = rng.choice([-1, PARTS, 1 << 20])
            elif kind == 4:
                records = batch(0, producer_id=1000 + turn, transactional=True)
            elif kind == 5:
                # More than a round allows, after others perhaps.
                many = [Record(i, NOW_MS, None, b"v", []) for i in range(rng.choice([11_000, 13_000]))]
                records = bytes(
                    build_batch(
                        many, codec=rng.choice([1, 4]), producer_id=2000 + turn, producer_epoch=0, base_sequence=0
                    )
                )
            elif kind == 6:
                records = records + records
            elif number == 0:
                sequences[index] += 1 if len(records) in (len(batch(0, 1, 20)), len(batch(0, 1, 200))) else 3
            else:
                records = batch(0, producer_id=3000 + 10 * turn + index)
            data.append(ProduceRequest.PartitionProduceData(index=index, records=records))
        if rng.randrange(12) == 0:
            data.append(rng.choice(data))  # one twice
        topics = [ProduceRequest.TopicProduceData(partition_data=data)]
        if rng.randrange(12) == 0:
            topics.append(ProduceRequest.TopicProduceData(partition_data=data[:1]))
        for topic_data in topics:
            if version < 13:
                topic_data.name = names[number]
            else:
                topic_data.topic_id = ids[number]
        yield ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


async def several_conversation(version: int, seed: int, acks: int, **settings: str) -> list[bytes]:
    """The answers, and the logs."""
    rng = Random(seed)
    async with embedded_broker(num_partitions=str(PARTS), **settings) as broker, connected(broker) as client:
        names = ["t", "longer"]
        ids = [await topic(broker, name) for name in names]
        answers = []
        for asked in requests_of_several(version, acks, names, ids, rng):
            await client.stream.send_all(request_frame(version, rng.randrange(-(1 << 31), 1 << 31), "one", asked))
            answers.append(await client.receive_frame())
        logs = [await read_all(client, name, index) for name in names for index in range(PARTS)]
        return [*answers, *logs]


async def test_what_is_learnt_is_bounded(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock) -> None:
    made = []
    remember = ProduceFastPath.remember

    def noted(self: ProduceFastPath, *arguments: Any) -> None:
        made.append(self)
        remember(self, *arguments)

    monkeypatch.setattr(ProduceFastPath, "remember", noted)
    async with embedded_broker(num_partitions="30") as broker, connected(broker) as client:
        topic_id = await topic(broker)
        for index in range(30):
            await client.ask(request(batch(0), topic="", topic_id=topic_id, index=index), 13)
        assert len(made) == 1, "partitions of a topic need not be learnt one by one"
        for size in range(1, 10):
            await client.ask(request(batch(0, size=size)), 9)
            await client.ask(request(batch(0), topic="n" * size), 9 if size % 2 else 7)
        assert len(set(made)) == fast_path.PATHS_MAX
        for number in range(30):
            topic_id = await topic(broker, f"t{number}")
            await client.ask(request(batch(0), topic="", topic_id=topic_id), 13)
        for size in range(1, 2 * fast_path.PLACES_MAX):
            await client.ask(request(batch(0, size=size), topic="", topic_id=topic_id), 13)
    assert sum(len(path.known) for path in set(made)) == fast_path.LEARNT_MAX
    assert max(len(path.places) for path in made) <= fast_path.PLACES_MAX


async def test_a_deleted_topic_is_not_remembered(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        codes = []
        for sequence in (0, 3, 6):
            if sequence == 6:
                await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
            answer = await client.ask(request(batch(sequence), topic="", topic_id=topic_id), 13)
            codes.append(answer.responses[0].partition_responses[0].error_code)
        assert codes == [0, 0, 100]


def bursts(version: int, acks: int, topic_id: bytes, rng: Random) -> Iterator[tuple[bytes, int]]:
    """What a busy producer sends, several requests in one piece, with something else now and then; and how many."""
    sequence = 0
    for _ in range(40):
        burst = []
        for _ in range(rng.randrange(1, 9)):
            data = batch(sequence, 5)
            kind = rng.randrange(24)
            if kind == 0:
                data = spoilt(data)
            elif kind == 1:
                data = batch(max(0, sequence - 5), 5)  # sent before
            elif kind in (2, 5):
                data = batch(0, 5, producer_id=8 + sequence)
            elif kind == 3:
                data = batch(sequence, 5, rng.choice([1, 300]))
                sequence += 5
            else:
                sequence += 5
            client_id = "two" if kind == 4 else "one"
            asked = request(data, topic="" if version == 13 else "t", topic_id=topic_id, index=kind == 5, acks=acks)
            burst.append(request_frame(version, rng.randrange(-(1 << 31), 1 << 31), client_id, asked))
        yield b"".join(burst), len(burst)


async def burst_conversation(version: int, seed: int, acks: int, **settings: str) -> list[bytes]:
    """The answers, and the log."""
    async with embedded_broker(num_partitions="2", **settings) as broker, connected(broker) as client:
        topic_id = await topic(broker)
        answers = []
        for piece, count in bursts(version, acks, topic_id, Random(seed)):
            await client.stream.send_all(piece)
            answers += [await client.receive_frame() for _ in range(count)]
        return [*answers, await read_all(client)]


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_run_that_cannot_be_written(acks: int, tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    # The first directory holds the broker's metadata; without the second one it lives on.
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with embedded_broker(disk=disk, log_dirs=directories) as broker, connected(broker) as client:
        await topic(broker, "in-the-first")
        topic_id = await topic(broker)

        async def send(*sequences: int) -> list[int]:
            asked = [request(batch(one, 5), topic="", topic_id=topic_id, acks=acks) for one in sequences]
            await client.stream.send_all(b"".join(request_frame(13, one, "c", each) for one, each in enumerate(asked)))
            answers = [await client.receive(asked[0], 13) for _ in asked]
            return [only(answer).error_code for answer in answers]

        assert await send(0) == await send(5) == await send(10) == [0]
        disk.space = 0
        partition = broker.services.partitions.get("t", 0)
        assert await send(15, 20, 25) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        disk.space = None
        assert (partition.high_watermark, partition.log_end_offset) == (15, 15)


async def test_a_client_that_goes_before_its_run_is_written(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_flush_interval_messages="1") as broker:
        topic_id = await topic(broker)
        async with connected(broker) as client:
            for sequence in (0, 5, 10):
                await client.ask(request(batch(sequence, 5), topic="", topic_id=topic_id), 13)
            asked = [request(batch(one, 5), topic="", topic_id=topic_id) for one in (15, 20)]
            await client.stream.send_all(b"".join(request_frame(13, 0, "c", each) for each in asked))
        async with connected(broker) as client:
            assert len(await read_all(client)) == 5 * len(batch(0, 5))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("version", [8, 9, 13])
def test_what_is_no_request_is_not_taken_apart(version: int, seed: int) -> None:
    """`Layout.parts` finds in any bytes what the decoder finds, or nothing."""
    rng = Random(f"{seed} {version}")
    count = rng.choice([1, 1, 2, 3, PARTS_MAX, PARTS_MAX + 1])
    data = [
        ProduceRequest.PartitionProduceData(index=rng.randrange(-1, 70000), records=bytes(rng.randrange(61, 200)))
        for _ in range(count)
    ]
    named = ProduceRequest.TopicProduceData(name="t" if version < 13 else "", topic_id=b"i" * 16, partition_data=data)
    frame = request_frame(version, 1, "c", ProduceRequest(acks=1, timeout_ms=1, topic_data=[named]))[4:]
    request = decode(ProduceRequest, version, memoryview(frame), parse_request_header(frame).body_offset)
    layout, at = layout_of(version), beginning_bytes(version, memoryview(frame), request)
    assert bool(at) == (count <= PARTS_MAX)
    if not at:
        return
    pristine = layout.parts(memoryview(frame), at)
    assert pristine == [(each.index, each.records) for each in data]
    found = 0
    for _ in range(400):
        other = bytearray(frame)
        kind = rng.randrange(4)
        if kind == 0:
            del other[rng.randrange(at, len(other)) :]
        elif kind == 1:
            other += rng.randbytes(rng.randrange(1, 9))
        else:
            head = rng.randrange(at, min(at + 16, len(other)))
            other[rng.choice([head, rng.randrange(at, len(other))])] = rng.choice([0, 1, 2, 127, 128, 255])
        parts = layout.parts(memoryview(other), at)
        if parts is None:
            continue
        found += 1
        topics = decode(ProduceRequest, version, memoryview(other), parse_request_header(frame).body_offset).topic_data
        assert len(topics) == 1
        assert parts == [(each.index, each.records) for each in topics[0].partition_data]
    assert found


@pytest.mark.parametrize("version", [8, 9])
def test_places_are_those_of_the_encoder(version: int) -> None:
    layout = layout_of(version)
    for size in (*range(1, 300), 16_000, 16_383, 16_384, 16_385, 17_000, 2_097_150, 2_097_152, 2_097_200):
        records = bytes(size)
        frame = request_frame(version, 1, "c", request(records))[4:]
        decoded = decode(ProduceRequest, version, memoryview(frame), parse_request_header(frame).body_offset)
        length_at = frame.index(b"\0\x01t" if version < 9 else b"\x02t") + (3 if version < 9 else 2)
        length_at += len(layout.one) + 4
        place = layout.place(len(frame), length_at)
        if size < 61:
            assert place is None
            continue
        assert place is not None
        position, end, length = place
        assert frame[position:end] == records == bytes(only_batch(decoded))
        assert frame[length_at:position] == length
        assert frame[end:] == layout.tail


def only_batch(asked: ProduceRequest) -> Any:
    ((data,),) = [each.partition_data for each in asked.topic_data]
    return data.records


@pytest.mark.parametrize("version", [8, 9])
async def test_internal_topics_are_refused_again_and_again(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker, "__consumer_offsets")
        for index in ([0], [0], [0, 1], [0, 0], [0]):
            asked = request(batch(0), topic="__consumer_offsets")
            asked.topic_data[0].partition_data = [
                ProduceRequest.PartitionProduceData(index=each, records=batch(0)) for each in index
            ]
            answer = await client.ask(asked, version)
            codes = [each.error_code for each in answer.responses[0].partition_responses]
            assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * len(index)
        frame = request_frame(version, 1, "test", request(batch(0), topic="__consumer_offsets"))
        await client.stream.send_all(frame * 3)
        for _ in range(3):
            assert only(await client.receive(request(None), version)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("acks", [1, -1])
async def test_several_partitions_of_which_one_cannot_be_written(
    acks: int, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    disk = MemoryDisk()
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with (
        embedded_broker(disk=disk, log_dirs=directories, num_partitions="2") as broker,
        connected(broker) as client,
    ):
        topic_id = await topic(broker)

        async def send(sequence: int) -> list[int]:
            asked = request(batch(sequence), topic="", topic_id=topic_id, acks=acks)
            asked.topic_data[0].partition_data.append(
                ProduceRequest.PartitionProduceData(index=1, records=batch(sequence))
            )
            answer = await client.ask(asked, 13)
            return [each.error_code for each in answer.responses[0].partition_responses]

        assert await send(0) == await send(3) == [0, 0]
        disk.space = len(batch(0)) + 10
        assert sorted(await send(6)) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        disk.space = None


def tagged(frame: bytes, size: int) -> bytes:
    """The frame with a tagged field of `size` bytes in its header, behind a client id of three bytes."""
    at = 4 + 8 + 2 + 3
    rest = frame[4:at] + b"\x01\x4d" + uvarint(size) + bytes(size) + frame[at + 1 :]
    return len(rest).to_bytes(4, "big") + rest


@pytest.mark.parametrize(("size", "is_learnt"), [(900, True), (1000, False), (100_000, False)])
async def test_long_beginnings_are_not_kept(size: int, is_learnt: bool, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for sequence in (0, 3, 6):
            await client.stream.send_all(tagged(request_frame(9, 5, "one", request(batch(sequence))), size))
            assert only(await client.receive(request(None), 9)).error_code == 0
        gc.collect()
        (path,) = [made for made in gc.get_objects() if type(made) is ProduceFastPath] or [None]
        assert (path is not None) == is_learnt


@pytest.mark.parametrize("trailing", [bytes(1), bytes(3), bytes(44), bytes(80), b"\xff" * 44])
async def test_bytes_behind_the_message(
    trailing: bytes, caplog: pytest.LogCaptureFixture, autojump_clock: trio.abc.Clock
) -> None:
    """They are ignored, and not taken for the records' end when the next request is looked at. (Such a mistake would
    read the records' length out of a value.)
    """
    records = [Record(i, NOW_MS + i, None, b"\xff" * 100, []) for i in range(3)]
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for turn, more in enumerate((trailing, b"", trailing, b"", trailing)):
            data = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=3 * turn)
            frame = request_frame(12, turn, "one", request(data))[4:] + more
            await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
            answer = only(await client.receive(request(None), 12))
            assert (answer.error_code, answer.base_offset) == (0, 3 * turn)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_length_that_is_none(caplog: pytest.LogCaptureFixture, autojump_clock: trio.abc.Clock) -> None:
    """A request that begins like one before, and has rubbish where the records' length is."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        frame = request_frame(9, 1, "one", request(batch(0)))
        await client.stream.send_all(frame)
        assert only(await client.receive(request(None), 9)).error_code == 0
        at = frame.rindex(batch(0)) - 2  # of two bytes
        await client.stream.send_all(frame[:at] + b"\xff" * 7 + frame[at + 7 :])
        with pytest.raises((trio.BrokenResourceError, EOFError)):
            await client.receive_frame()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_refusals_keep_their_codes_where_the_broker_stamps_its_time(
    kind: str, autojump_clock: trio.abc.Clock
) -> None:
    """A batch that the fast path has refused comes to the slow path as it was sent."""
    async with embedded_broker(log_message_timestamp_type=kind) as broker, connected(broker) as client:
        await topic(broker)

        async def send(sequence: int, epoch: int = 3) -> int:
            data = build_batch(
                [Record(0, NOW_MS, None, b"v", [])], producer_id=7, producer_epoch=epoch, base_sequence=sequence
            )
            return int(only(await client.ask(request(bytes(data)), 9)).error_code)

        assert [await send(0), await send(1)] == [0, 0]
        assert await send(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(2, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await send(1) == 0, "a duplicate"
        assert await send(2) == 0
        stored = await read_all(client)
        assert [header.record_count for _, header in iter_headers(stored)] == [1, 1, 1]
        for position, header in iter_headers(stored):
            check_batch(stored, position)
            assert header.attributes & 0x08 == (8 if kind == "LogAppendTime" else 0)


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("version", [8, 9])
async def test_bytes_behind_a_request_are_ignored(version: int, acks: int, autojump_clock: trio.abc.Clock) -> None:
    """Bytes after the message, within the frame: the request is served as usual, and nothing is learnt of it."""
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        frame = request_frame(version, 1, "c", request(batch(0), acks=acks))
        for number, extra in enumerate((bytes(44), b"\xff" * 44, b"")):
            frame = request_frame(version, number, "c", request(batch(number * 3), acks=acks))
            await client.stream.send_all((len(frame) - 4 + len(extra)).to_bytes(4, "big") + frame[4:] + extra)
            if acks:
                answer = await client.receive(request(None), version)
                assert (only(answer).error_code, only(answer).base_offset) == (0, number * 3)
        await trio.testing.wait_all_tasks_blocked()  # else the last one's round may be the reader's, too
        assert len(list(iter_headers(await read_all(client)))) == 3
