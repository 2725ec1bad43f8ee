"""Producing: what is acknowledged is there, once, unchanged, in order; what is refused gets Kafka's error."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from compat_tests.cases import Names, case
from compat_tests.harness.checks import contents, read_topic, ready_topic, refused, sent, texts, wait_until
from compat_tests.harness.client import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TOPIC,
    MESSAGE_TOO_LARGE,
    Client,
    Delivered,
    Message,
    now_ms,
)

AREA = "produce"


@case(AREA, "acks={}", over=(0, 1, -1))
def acks(client: Client, names: Names, level: int) -> None:
    topic = ready_topic(client, names())
    messages = texts(50)
    delivered = client.produce(topic, messages, acks=level)  # type: ignore[arg-type]
    records = read_topic(client, topic, 50)
    assert contents(records) == sent(messages)
    assert [one.offset for one in records] == list(range(50))
    if level != 0:
        assert delivered == [Delivered(0, n) for n in range(50)]


@case(AREA, "idempotent, many batches in flight")
def idempotent(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 2)
    messages = [Message(f"value-{n}".encode() * 20, f"{n}".encode(), n % 2) for n in range(2000)]
    delivered = client.produce(topic, messages, idempotent=True, batch_bytes=2000, linger_ms=0)
    records = read_topic(client, topic, 2000, 2)
    for index in (0, 1):
        assert contents([one for one in records if one.partition == index]) == sent(messages[index::2])
        assert [one.offset for one in delivered if one.partition == index] == list(range(1000))


@case(AREA, "codec {}", over=("none", "gzip", "snappy", "lz4", "zstd"))
def codec(client: Client, names: Names, name: str) -> None:
    topic = ready_topic(client, names())
    messages = [Message(f"value-{n}-".encode() * 50, None if n % 3 else f"{n}".encode(), 0) for n in range(500)]
    client.produce(topic, messages, codec=None if name == "none" else name, batch_bytes=100_000, linger_ms=20)
    assert contents(read_topic(client, topic, 500)) == sent(messages)


@case(AREA, "idempotent with codec {}", over=("gzip", "snappy", "lz4", "zstd"))
def idempotent_codec(client: Client, names: Names, name: str) -> None:
    topic = ready_topic(client, names())
    messages = texts(300)
    client.produce(topic, messages, codec=name, idempotent=True, batch_bytes=3000)
    assert contents(read_topic(client, topic, 300)) == sent(messages)


@case(AREA, "incompressible records with codec {}", over=("gzip", "snappy", "lz4", "zstd"))
def incompressible(client: Client, names: Names, name: str) -> None:
    topic = ready_topic(client, names())
    noise = random.Random(7)
    messages = [Message(noise.randbytes(10_000), None, 0) for _ in range(20)]
    client.produce(topic, messages, codec=name, batch_bytes=300_000, linger_ms=20)
    assert contents(read_topic(client, topic, 20)) == sent(messages)


@case(AREA, "headers: repeated, empty, not ASCII")
def headers(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    given = (("a", b"1"), ("a", b"2"), ("", b""), ("größe", b"\x00\xff"))
    client.produce(topic, [Message(b"v", b"k", 0, headers=given), Message(b"w", None, 0)])
    first, second = read_topic(client, topic, 2)
    assert first.headers == given
    assert second.headers == ()


@case(AREA, "headers without a value", needs=["null headers"])
def null_headers(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    given = (("nothing", None), ("something", b"x"))
    client.produce(topic, [Message(b"v", b"k", 0, headers=given)])
    assert read_topic(client, topic, 1)[0].headers == given


@case(AREA, "null and empty keys and values")
def nulls(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    messages = [Message(None, b"k", 0), Message(b"v", None, 0), Message(b"", b"", 0)]
    client.produce(topic, messages)
    assert contents(read_topic(client, topic, 3)) == sent(messages)


@case(AREA, "neither key nor value", needs=["empty records"])
def nothing_at_all(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, [Message(None, None, 0)])
    assert contents(read_topic(client, topic, 1)) == [(None, None)]


@case(AREA, "the producer's timestamps are kept")
def create_time(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    stamps = [now_ms() - 10_000 + n for n in (5, 3, 900, 0, 12)]
    client.produce(topic, [Message(b"v", None, 0, stamp) for stamp in stamps])
    assert [one.timestamp_ms for one in read_topic(client, topic, 5)] == stamps


@case(AREA, "LogAppendTime: the broker's clock is stamped")
def log_append_time(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    client.produce(topic, [Message(b"v", None, 0, 1_000_000) for _ in range(3)], codec="gzip")
    stamps = [one.timestamp_ms for one in read_topic(client, topic, 3)]
    assert all(before - 1000 <= stamp <= now_ms() + 1000 for stamp in stamps), stamps


@case(AREA, "records too old for the topic are refused", needs=["error 32"])
def too_old(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"message.timestamp.before.max.ms": "60000"})
    with refused(INVALID_TIMESTAMP):
        client.produce(topic, [Message(b"old", None, 0, now_ms() - 3_600_000)])
    client.produce(topic, [Message(b"new", None, 0, now_ms() - 1000)])
    assert [one.value for one in read_topic(client, topic, 1)] == [b"new"]


@case(AREA, "the topic's compression.type is applied: {}", over=("zstd", "gzip", "uncompressed"))
def recompressed(client: Client, names: Names, name: str) -> None:
    topic = ready_topic(client, names(), config={"compression.type": name})
    plain, packed = texts(50, "plain"), texts(50, "packed")
    client.produce(topic, plain)
    client.produce(topic, packed, codec="lz4")
    records = read_topic(client, topic, 100)
    assert contents(records) == sent([*plain, *packed])
    assert [one.offset for one in records] == list(range(100))


@case(AREA, "one batch of 900 KB")
def large_batch(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    messages = [Message(bytes([n % 251]) * 900, None, 0) for n in range(950)]
    client.produce(topic, messages, batch_bytes=900_000, linger_ms=200)
    assert contents(read_topic(client, topic, 950)) == sent(messages)


@case(AREA, "a record of 1 MB")
def large_record(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    value = random.Random(1).randbytes(1_000_000)
    client.produce(topic, [Message(b"small", None, 0), Message(value, None, 0), Message(b"small", None, 0)])
    assert [one.value for one in read_topic(client, topic, 3)] == [b"small", value, b"small"]


@case(AREA, "a record above message.max.bytes is refused")
def too_large(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with refused(MESSAGE_TOO_LARGE):
        client.produce(topic, [Message(bytes(1_200_000), None, 0)])
    client.produce(topic, [Message(b"fits", None, 0)])
    assert [one.value for one in read_topic(client, topic, 1)] == [b"fits"]


@case(AREA, "a record above the topic's max.message.bytes is refused")
def too_large_for_topic(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"max.message.bytes": "2000"})
    with refused(MESSAGE_TOO_LARGE):
        client.produce(topic, [Message(bytes(3000), None, 0)])
    client.produce(topic, [Message(bytes(1000), None, 0)])
    assert len(read_topic(client, topic, 1)) == 1


@case(AREA, "a compacted topic refuses records without a key", needs=["error 87"])
def compacted_needs_key(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"cleanup.policy": "compact"})
    with refused(INVALID_RECORD):
        client.produce(topic, [Message(b"v", None, 0)])
    client.produce(topic, [Message(b"v", b"k", 0)])
    assert contents(read_topic(client, topic, 1)) == [(b"k", b"v")]


@case(AREA, "equal keys land in one partition")
def keys_to_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 6)
    messages = [Message(f"{n}".encode(), f"key-{n % 10}".encode()) for n in range(200)]
    client.produce(topic, messages)
    records = read_topic(client, topic, 200, 6)
    places: dict[bytes | None, set[int]] = {}
    for one in records:
        places.setdefault(one.key, set()).add(one.partition)
    assert len(places) == 10
    assert all(len(found) == 1 for found in places.values())


@case(AREA, "one request for many partitions")
def many_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 30)
    messages = [Message(f"{n}".encode(), None, n % 30) for n in range(300)]
    client.produce(topic, messages, linger_ms=50)
    records = read_topic(client, topic, 300, 30)
    for index in range(30):
        assert contents([one for one in records if one.partition == index]) == sent(messages[index::30])


@case(AREA, "four producers at once on one partition")
def concurrent(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    batches = [texts(100, f"producer{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        delivered = list(pool.map(lambda messages: client.produce(topic, messages, batch_bytes=500), batches))
    offsets = [place.offset for places in delivered for place in places]
    assert sorted(offsets) == list(range(400))
    records = read_topic(client, topic, 400)
    for n, messages in enumerate(batches):
        mine = [one for one in records if one.value is not None and one.value.startswith(f"producer{n}-".encode())]
        assert contents(mine) == sent(messages)


@case(AREA, "an unknown topic is created by producing")
def auto_create(client: Client, names: Names) -> None:
    topic = names()
    client.produce(topic, [Message(b"first", None)])
    assert [one.value for one in read_topic(client, topic, 1, len(client.describe_topic(topic)))] == [b"first"]
    wait_until(lambda: topic in client.topics(), "the topic in the list")


@case(AREA, "an invalid topic name is refused", needs=["invalid topic names"])
def invalid_name(client: Client, names: Names) -> None:
    with refused(INVALID_TOPIC):
        client.produce("no spaces allowed", [Message(b"v", None)])
