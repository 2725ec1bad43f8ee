"""Consuming: from where one asks, exactly what is there, and without waiting longer than needed."""

from __future__ import annotations

import threading
import time

from compat_tests.cases import Names, case
from compat_tests.harness.checks import contents, opened, read, read_topic, ready_topic, sent, texts, wait_until
from compat_tests.harness.client import Client, Message, Record, now_ms, positions

AREA = "consume"
OFFSETS = "offsets"


@case(AREA, "from the beginning, exact content of 10,000 records in 3 partitions")
def exact(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 3)
    messages = [Message(f"value-{n}".encode() * (n % 7), f"{n}".encode(), n % 3) for n in range(10_000)]
    client.produce(topic, messages, batch_bytes=50_000)
    records = read_topic(client, topic, 10_000, 3)
    for index in range(3):
        mine = [one for one in records if one.partition == index]
        assert contents(mine) == sent(messages[index::3])
        assert [one.offset for one in mine] == list(range(len(mine)))


@case(AREA, "from the end: later records only")
def from_end(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(20, "old"))
    with opened(client.consumer(assign=[(topic, 0)], reset="latest")) as consumer:
        seen: list[Record] = []
        count = 0

        def seen_one() -> bool:
            # When the client has found the end is its own affair: send until something arrives.
            nonlocal count
            client.produce(topic, [Message(f"new-{count}".encode(), None, 0)])
            count += 1
            seen.extend(consumer.poll(0.3))
            return bool(seen)

        wait_until(seen_one, "a record sent after the start")
        seen += read(consumer, 20 + count - 1 - seen[-1].offset)
    first = seen[0].offset
    assert first >= 20
    assert [(one.offset, one.value) for one in seen] == [
        (n, f"new-{n - 20}".encode()) for n in range(first, 20 + count)
    ]


@case(AREA, "from an offset")
def from_offset(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    messages = texts(100)
    # Several batches: the offset asked for lies inside one.
    client.produce(topic, messages, batch_bytes=600)
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        consumer.seek((topic, 0), 37)
        records = read(consumer, 63)
        assert [one.offset for one in records] == list(range(37, 100))
        assert contents(records) == sent(messages[37:])
        consumer.seek((topic, 0), 99)
        assert [one.offset for one in read(consumer, 1)] == [99]


@case(AREA, "from an offset inside a compressed batch")
def from_offset_compressed(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(100), codec="lz4", linger_ms=100)
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        consumer.seek((topic, 0), 61)
        assert [one.offset for one in read(consumer, 39)] == list(range(61, 100))


@case(AREA, "from a timestamp")
def from_timestamp(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    start = now_ms() - 100_000
    client.produce(topic, [Message(f"{n}".encode(), None, 0, start + n * 100) for n in range(100)], batch_bytes=500)
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        offset = consumer.offset_for_time((topic, 0), start + 4950)
        assert offset == 50
        consumer.seek((topic, 0), offset)
        assert [one.offset for one in read(consumer, 50)] == list(range(50, 100))


@case(AREA, "an offset beyond the end falls back to the reset rule")
def out_of_range(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(10))
    with opened(client.consumer(assign=[(topic, 0)], reset="earliest")) as consumer:
        consumer.seek((topic, 0), 5000)
        assert [one.offset for one in read(consumer, 10)] == list(range(10))


@case(AREA, "fetch limits smaller than a record still make progress")
def small_limits(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 2)
    messages = [Message(bytes([n]) * 5000, None, n % 2) for n in range(40)]
    client.produce(topic, messages, batch_bytes=6000, linger_ms=0)
    records = read_topic(client, topic, 40, 2, fetch_max_bytes=1500, partition_max_bytes=1000)
    for index in (0, 1):
        assert contents([one for one in records if one.partition == index]) == sent(messages[index::2])


@case(AREA, "a waiting fetch returns when a record arrives")
def long_poll(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(1))
    with opened(client.consumer(assign=[(topic, 0)], max_wait_ms=25_000)) as consumer:
        read(consumer, 1)
        consumer.poll(0.3)
        written: list[float] = []

        def send() -> None:
            client.produce(topic, texts(1, "late"))
            written.append(time.monotonic())

        sender = threading.Timer(0.3, send)
        sender.start()
        records = read(consumer, 1)
        received = time.monotonic()
        sender.join()
    assert records[0].value == b"late-0"
    # Not at once, where the machine stands still; but before the wait is over.
    assert received - written[0] < 22, f"{received - written[0]:.1f} s although the fetch may wait for 25 s"


@case(AREA, "many partitions at once")
def many_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 40)
    client.produce(topic, [Message(f"{n}".encode(), None, n % 40) for n in range(400)])
    records = read_topic(client, topic, 400, 40)
    assert {(one.partition, one.value) for one in records} == {(n % 40, f"{n}".encode()) for n in range(400)}


@case(AREA, "read_committed sees plain records")
def read_committed(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    messages = texts(30)
    client.produce(topic, messages)
    assert contents(read_topic(client, topic, 30, isolation="read_committed")) == sent(messages)


@case(AREA, "a topic bigger than one answer, small and large batches mixed")
def mixed_sizes(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"segment.bytes": "1048576"})
    sizes = [10, 900_000, 100, 400_000, 3, 700_000, 50_000] * 2
    messages = [Message(bytes([n]) * size, None, 0) for n, size in enumerate(sizes)]
    client.produce(topic, messages, batch_bytes=100, linger_ms=0)
    assert contents(read_topic(client, topic, len(messages))) == sent(messages)


@case(OFFSETS, "watermarks: empty, filled, after deleting records")
def watermarks(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 2)
    with opened(client.consumer(assign=positions(topic, 2))) as consumer:
        assert consumer.watermarks((topic, 0)) == (0, 0)
        client.produce(topic, texts(25))
        assert consumer.watermarks((topic, 0)) == (0, 25)
        assert consumer.watermarks((topic, 1)) == (0, 0)
        assert client.delete_records((topic, 0), 10) == 10
        assert consumer.watermarks((topic, 0)) == (10, 25)


@case(OFFSETS, "offsets for times: before, at, between, after")
def for_times(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    start = now_ms() - 1_000_000
    client.produce(topic, [Message(b"v", None, 0, start + n * 1000) for n in range(20)], batch_bytes=200)
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        asked = {start - 5000: 0, start: 0, start + 1: 1, start + 7000: 7, start + 18_500: 19, start + 19_001: None}
        found = {stamp - start: consumer.offset_for_time((topic, 0), stamp) for stamp in asked}
    assert found == {stamp - start: offset for stamp, offset in asked.items()}


@case(OFFSETS, "offsets for times when timestamps go backwards")
def for_times_disordered(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    start = now_ms() - 1_000_000
    stamps = [start + n for n in (5000, 1000, 9000, 2000, 8000)]
    for stamp in stamps:
        client.produce(topic, [Message(b"v", None, 0, stamp)])
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        assert consumer.offset_for_time((topic, 0), start + 500) == 0
        assert consumer.offset_for_time((topic, 0), start + 5001) == 2
        assert consumer.offset_for_time((topic, 0), start + 9001) is None


@case(OFFSETS, "the offset of the largest timestamp", needs=["max_timestamp_offset"])
def largest_timestamp(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    start = now_ms() - 100_000
    for stamp in (3000, 9000, 4000):
        client.produce(topic, [Message(b"v", None, 0, start + stamp)])
    assert client.max_timestamp_offset((topic, 0)) == 1


@case(OFFSETS, "the position follows reading")
def position(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(12))
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        read(consumer, 12)
        assert consumer.position((topic, 0)) == 12
