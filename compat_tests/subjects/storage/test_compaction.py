"""A compacted topic through a stock client: after a while exactly the last value of each key is there, at its own
offset, deleted keys are gone, and whoever reads or has committed in the middle goes on.

The broker is one of its own, whose cleaner looks every half second; with `--bootstrap` it is that one, at its own pace.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.checks import opened, ready_topic, wait_until
from compat_tests.harness.client import Message, Record, Refused

Names = Callable[..., str]
pytestmark = pytest.mark.campaign

BROKER_SETTINGS = ("log.cleaner.backoff.ms=500", "log.cleaner.threads=2")
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "300",
    "max.compaction.lag.ms": "1000",
}
PATIENCE_S = 90.0
ENOUGH_S = 0.3
"""Longer than a segment grows."""


def case(title: str) -> pytest.MarkDecorator:
    """The place of a case."""
    return pytest.mark.case("compaction", title, ConfluentClient.name)


@pytest.fixture(scope="module")
def cleaning(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose cleaner is quick."""
    given = request.config.getoption("--bootstrap")
    if given:
        started = Broker(given, given)
        wait_until_open(started, 60)
    elif request.config.getoption("--peer") == "kafka":
        started = start_kafka(tmp_path_factory.mktemp("kafka"), BROKER_SETTINGS)
    else:
        started = start_barnabas(tmp_path_factory.mktemp("barnabas"), BROKER_SETTINGS)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def client(cleaning: Broker) -> Iterator[ConfluentClient]:
    """The library under test, on a broker whose group coordinator answers."""
    made = ConfluentClient(cleaning.bootstrap)
    topic = ready_topic(made, f"ready-{secrets.token_hex(4)}")
    wait_until(lambda: answers(made, topic), "the group coordinator", 60)
    yield made
    made.close()


def answers(client: ConfluentClient, topic: str) -> bool:
    """Whether offsets can be asked for: librdkafka gives up on a coordinator that is about to be one."""
    try:
        with opened(client.consumer(assign=[(topic, 0)])) as consumer:
            consumer.committed((topic, 0))
            consumer.poll(0.5)
        return True
    except Refused:
        return False


class Book:
    """What was written to one partition, and what must be left of it."""

    def __init__(self, client: ConfluentClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._turn = 0
        self.written: dict[int, tuple[bytes, bytes | None]] = {}

    def write(self, *messages: tuple[bytes, bytes | None], codec: str | None = None, idempotent: bool = False) -> None:
        """Send the messages in one go and note where they landed."""
        sent = [Message(value, key, 0) for key, value in messages]
        found = self._client.produce(self._topic, sent, codec=codec, idempotent=idempotent)
        for delivered, (key, value) in zip(found, messages, strict=True):
            self.written[delivered.offset] = key, value

    def roll(self) -> None:
        """Let a new segment begin: the active one is never compacted."""
        time.sleep(ENOUGH_S)
        self._turn += 1
        self.write((b"roll", b"%d" % self._turn))

    @property
    def last(self) -> dict[bytes, int]:
        """Each key's last offset; deleted keys have none."""
        ends = {key: offset for offset, (key, _) in sorted(self.written.items())}
        return {key: offset for key, offset in ends.items() if self.written[offset][1] is not None}

    def read(self) -> list[Record]:
        """Read all there is, from the beginning."""
        end = max(self.written)
        records: list[Record] = []
        with opened(self._client.consumer(assign=[(self._topic, 0)])) as consumer:
            deadline = time.monotonic() + 60
            while not records or records[-1].offset < end:
                assert time.monotonic() < deadline, f"offset {end} did not come"
                records += consumer.poll(0.2)
        for one in records:
            assert (one.key, one.value) == self.written[one.offset]
        assert [one.offset for one in records] == sorted(one.offset for one in records)
        return records

    def wait_compacted(self) -> list[Record]:
        """Until nothing superfluous is left, but for the key that rolls segments."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            records = [one for one in self.read() if one.key != b"roll"]
            wanted = {key: offset for key, offset in self.last.items() if key != b"roll"}
            assert wanted.items() <= {one.key: one.offset for one in records}.items()
            if len(records) == len(wanted):
                return records
            assert time.monotonic() < deadline, f"{len(records)} records, {len(wanted)} keys"
            self.roll()


@case("the last value of each key stays, deleted keys go")
def test_last_values_stay(client: ConfluentClient, unique: Names) -> None:
    topic = ready_topic(client, unique(), 1, TOPIC_SETTINGS)
    book = Book(client, topic)
    keys = [b"key %d" % number for number in range(40)]
    for turn, codec in enumerate([None, "lz4", None, "zstd", "gzip", None]):
        book.write(*((key, b"%d of %s" % (turn, key)) for key in keys), codec=codec, idempotent=turn % 2 == 1)
        book.roll()
    book.write(*((key, None) for key in keys[::4]))
    book.roll()
    records = book.wait_compacted()
    assert {one.key for one in records} == set(keys) - set(keys[::4])
    assert all(one.value is not None and one.value.startswith(b"5 of ") for one in records)
    # It goes on as ever: a deleted key may come back.
    book.write((keys[0], b"again"))
    assert book.read()[-1].value == b"again"
    client.delete_topic(topic)


@case("a group and a reader in the middle of what is compacted go on")
def test_readers_go_on(client: ConfluentClient, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 1, TOPIC_SETTINGS), unique("group")
    book = Book(client, topic)
    for turn in range(5):
        book.write(*((b"key %d" % number, b"%d" % turn) for number in range(20)))
        book.roll()
    with opened(client.consumer(subscribe=[topic], group=group, session_timeout_ms=45_000)) as consumer:
        read_some(consumer, 1)
        middle = 25  # of a key that is overwritten
        consumer.commit({(topic, 0): middle})
    book.wait_compacted()
    survivors = [one.offset for one in book.read() if one.offset >= middle and one.key != b"roll"]
    assert survivors[0] > middle, "nothing was compacted behind the committed offset"
    went_on: list[Record] = []
    with opened(client.consumer(subscribe=[topic], group=group, session_timeout_ms=45_000)) as consumer:
        assert consumer.committed((topic, 0)) == middle
        while not went_on or went_on[-1].offset < max(book.written):
            went_on += read_some(consumer, 1)
    assert went_on[0].offset > middle
    # Of those that roll segments, some may have gone meanwhile.
    assert [one.offset for one in went_on if one.key != b"roll"] == survivors
    with opened(client.consumer(assign=[(topic, 0)])) as consumer:
        assert consumer.watermarks((topic, 0)) == (0, max(book.written) + 1)
    client.delete_topic(topic)


def read_some(consumer: object, count: int) -> list[Record]:
    """At least so many records."""
    records: list[Record] = []
    deadline = time.monotonic() + 60
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} records came"
        records += consumer.poll(0.2)  # type: ignore[attr-defined]
    return records


@case("compact,delete gives up old records as well")
def test_compact_and_delete(client: ConfluentClient, unique: Names) -> None:
    settings = {**TOPIC_SETTINGS, "cleanup.policy": "compact,delete", "retention.ms": "3000"}
    topic = ready_topic(client, unique(), 1, settings)
    book = Book(client, topic)
    for turn in range(3):
        book.write(*((b"key %d" % number, b"%d" % turn) for number in range(20)))
        book.roll()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with opened(client.consumer(assign=[(topic, 0)])) as consumer:
            start, end = consumer.watermarks((topic, 0))
        if start > max(offset for offset, (key, _) in book.written.items() if key != b"roll"):
            break
        assert time.monotonic() < deadline, f"the log still starts at {start}"
        time.sleep(0.5)  # a younger record would keep the segment it is compacted into
    assert end == max(book.written) + 1
    client.delete_topic(topic)
