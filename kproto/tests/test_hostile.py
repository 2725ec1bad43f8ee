"""Input from a peer who is broken or malicious: the decoder raises DecodeError, soon, and with little memory."""

import itertools
import random
import struct
import tracemalloc

import pytest

import barnabas.kproto.messages
import barnabas.kproto.primitives
from barnabas import kproto
from barnabas.kproto import DecodeError
from barnabas.kproto.classes import Message, Record
from barnabas.kproto.codec.compile import Decoder
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    FetchRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    ProduceRequest,
)
from barnabas.kproto.tests.randoms import every_message, random_message

EVERY = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in every_message()]


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_every_prefix_fails_cleanly(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version} prefixes")
    for _ in range(2):
        data = kproto.encode(random_message(rng, cls, version, unknown_tags=True), version)
        lengths = range(len(data))
        for length in lengths if len(data) < 300 else rng.sample(lengths, 300):
            with pytest.raises(DecodeError):
                kproto.decode(cls, version, data[:length])


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_garbage_raises_nothing_else(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version} garbage")
    decode = kproto.decoder(cls, version)
    encode = kproto.encoder(cls, version)
    valid = kproto.encode(random_message(rng, cls, version, unknown_tags=True), version)
    for round_ in range(150):
        if round_ % 3 == 0:
            data = bytearray(rng.randbytes(rng.randint(0, 60)))
        else:
            data = bytearray(valid[:2000])
            for _ in range(rng.randint(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            message, end = decode(data, 0)
        except DecodeError:
            continue
        # What was accepted is a message like any other, and lies within the input.
        assert end <= len(data)
        encode(message)


HUGE = [0x7FFFFFFF, 0x7FFFFFF0, 1_000_000_000, 50_000_000]


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize(
    ("cls", "version", "before"),
    [
        pytest.param(MetadataRequest, 1, b"", id="structures"),
        pytest.param(OffsetDeleteRequest, 0, b"\x00\x01g", id="structures-behind-a-string"),
        pytest.param(FetchRequest, 4, struct.pack(">iiiib", -1, 0, 0, 0, 0), id="structures-behind-integers"),
    ],
)
def test_counts_beyond_the_frame_classic(cls: type[Message], version: int, before: bytes, count: int) -> None:
    refused_in_little_memory(cls, version, before + struct.pack(">i", count) + bytes(100))


@pytest.mark.parametrize("count", [*HUGE, 0xFFFFFFFF])
def test_counts_beyond_the_frame_compact(count: int) -> None:
    varint = barnabas.kproto.primitives.uvarint(count)
    refused_in_little_memory(MetadataRequest, 9, varint + bytes(100))
    # Topics of 100 partitions, of which only the count is there.
    refused_in_little_memory(barnabas.kproto.messages.DescribeProducersRequest, 0, b"\x02\x02t" + varint + bytes(100))
    refused_in_little_memory(barnabas.kproto.messages.ConsumerGroupDescribeRequest, 0, varint + bytes(100))
    refused_in_little_memory(barnabas.kproto.messages.DescribeTopicPartitionsRequest, 0, varint + bytes(100))
    # The length of a string, the count of tags, the length of a tag.
    refused_in_little_memory(HeartbeatRequest, 4, varint + bytes(100))
    heartbeat = b"\x02g" + bytes(4) + b"\x02m" + b"\x00"
    assert kproto.decode(HeartbeatRequest, 4, heartbeat + b"\x00").member_id == "m"
    refused_in_little_memory(HeartbeatRequest, 4, heartbeat + varint + bytes(100))
    refused_in_little_memory(HeartbeatRequest, 4, heartbeat + b"\x01\x05" + varint + bytes(100))


@pytest.mark.parametrize("length", [0x7FFFFFFF, 1_000_000_000, 101])
def test_records_beyond_the_frame(length: int) -> None:
    head = struct.pack(">hhii", -1, 1, 0, 1) + b"\x00\x01t" + struct.pack(">ii", 1, 0)
    whole = kproto.decode(ProduceRequest, 3, head + struct.pack(">i", 100) + bytes(100))
    assert len(whole.topic_data[0].partition_data[0].records or b"") == 100
    refused_in_little_memory(ProduceRequest, 3, head + struct.pack(">i", length) + bytes(100))


def refused_in_little_memory(cls: type[Message], version: int, data: bytes) -> None:
    decode = kproto.decoder(cls, version)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "varint",
    [
        pytest.param(b"\x80\x80\x80\x80\x80\x01", id="six-bytes"),
        pytest.param(b"\x80" * 50, id="endless"),
        pytest.param(b"\xff\xff\xff\xff\x1f", id="33-bits"),
        pytest.param(b"\x80", id="cut"),
    ],
)
def test_overlong_varints(varint: bytes) -> None:
    for cls, version in ((ApiVersionsRequest, 3), (MetadataRequest, 9), (HeartbeatRequest, 4)):
        with pytest.raises(DecodeError):
            kproto.decode(cls, version, varint)


def test_an_overlong_but_legal_zero() -> None:
    # Java reads such varints too.
    assert kproto.decode(MetadataRequest, 9, b"\x80\x00" + bytes(4)).topics is None


def test_offsets_outside_the_buffer() -> None:
    data = kproto.encode(HeartbeatRequest(group_id="g"), 0)
    for offset in (len(data), len(data) + 1, 10_000):
        with pytest.raises(DecodeError):
            kproto.decode(HeartbeatRequest, 0, data, offset)
    with pytest.raises(DecodeError):
        kproto.decode(HeartbeatRequest, 0, b"")


def test_the_largest_frame_of_nothing_is_read_in_reasonable_memory() -> None:
    # 1 MB of empty group ids: one string object each, as many as there are bytes.
    count = 1_000_000
    data = barnabas.kproto.primitives.uvarint(count + 1) + b"\x01" * count + b"\x00\x00"
    request = kproto.decode(barnabas.kproto.messages.ConsumerGroupDescribeRequest, 0, data)
    assert len(request.group_ids) == count


# ---- the room for elements


def elements_of(value: object) -> int:
    """Elements of arrays on all levels, and tagged fields that no schema knows."""
    if isinstance(value, list):
        return len(value) + sum(map(elements_of, value))
    if isinstance(value, Record):
        return len(value.unknown_tags or ()) + sum(
            elements_of(getattr(value, name)) for name in value.__fields__ if name != "unknown_tags"
        )
    return 0


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_elements_are_counted(cls: type[Message], version: int) -> None:
    seed = f"{cls.__name__} {version} elements"
    rng = random.Random(seed)
    decode = kproto.decoder(cls, version)
    for _ in range(3):
        data = kproto.encode(random_message(rng, cls, version, unknown_tags=True), version)
        message, end = decode(data, 0)
        # What is above the elements are the known tags of each structure, which count as well.
        room = next(room for room in itertools.count(elements_of(message)) if fits(decode, data, room))
        assert room <= elements_of(message) + 50, f"seed {seed!r}"
        assert decode(data, 0, room) == (message, end)
        if room > 0:
            with pytest.raises(DecodeError, match="more elements"):
                decode(data, 0, room - 1)


def fits(decode: Decoder[Message], data: bytes, room: int) -> bool:
    try:
        decode(data, 0, room)
    except DecodeError:
        return False
    return True


TOPICS = b"\x01\x01\x00"


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(
            ProduceRequest,
            9,
            b"\x00" + struct.pack(">hi", 1, 1000) + kproto.uvarint(3_000_001) + TOPICS * 3_000_000 + b"\x00",
            id="empty-topics",
        ),
        pytest.param(
            FetchRequest,
            4,
            struct.pack(">iiiibih", -1, 0, 0, 0, 0, 1, 0) + struct.pack(">i", 300_000) + bytes(300_000 * 16),
            id="partitions-of-one-topic",
        ),
        pytest.param(
            barnabas.kproto.messages.OffsetFetchRequest,
            1,
            struct.pack(">hih", 0, 1, 0) + struct.pack(">i", 500_000) + bytes(2_000_000),
            id="integers",
        ),
        pytest.param(
            barnabas.kproto.messages.ConsumerGroupDescribeRequest,
            0,
            kproto.uvarint(1_000_001) + b"\x01" * 1_000_000 + b"\x00\x00",
            id="strings",
        ),
        pytest.param(
            HeartbeatRequest,
            4,
            b"\x02g" + bytes(4) + b"\x02m" + b"\x00" + kproto.uvarint(200_000) + b"\x05\x00" * 200_000,
            id="tags",
        ),
    ],
)
def test_more_than_there_is_room_for(cls: type[Message], version: int, data: bytes) -> None:
    """Refused before any element is made."""
    with pytest.raises(DecodeError):
        kproto.decoder(cls, version)(data, 0, 1)  # compiled before memory is counted
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more elements"):
            kproto.decoder(cls, version)(data, 0, 99_999)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [8, 9])
def test_text_in_large_frames_takes_room(version: int) -> None:
    """A Produce frame may be as large as its records ask for. What is not records has no such claim."""
    topic = ProduceRequest.TopicProduceData(name="n" * 32_000, partition_data=[])
    data = kproto.encode(ProduceRequest(topic_data=[topic] * 100), version)
    decode = kproto.decoder(ProduceRequest, version)
    decode(data, 0, 100 + 100 * 31)
    with pytest.raises(DecodeError, match="more elements and bytes"):
        decode(data, 0, 100 + 100 * 31 - 1)


def test_unknown_tags_take_room_by_their_size() -> None:
    decode = kproto.decoder(ApiVersionsRequest, 3)
    data = b"\x01\x01" + b"\x01\x05" + kproto.uvarint(1000 << 10) + bytes(1000 << 10)
    decode(data, 0, 1 + 1000)
    with pytest.raises(DecodeError, match="more elements and bytes"):
        decode(data, 0, 1 + 999)


def test_records_take_no_room() -> None:
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(10_000_000))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    kproto.decoder(ProduceRequest, 9)(kproto.encode(ProduceRequest(topic_data=[topic]), 9), 0, 2)
