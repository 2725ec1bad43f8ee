"""Fills a broker with everything that a log directory can hold, the same for the same seed.

What a broker cannot do is left out by its `Abilities`. Topics: every codec, chosen by the producer and by the topic;
create and append time; idempotent producers; transactions committed, aborted and left open; compacted topics with
tombstones, really cleaned; DeleteRecords; deleted topics; message formats 0 and 1 and logs that changed their format.
Groups: offsets with metadata, committed again and again, static members, deleted ones.

`Filler.held` are producers with an open transaction: they must live as long as it is to stay open. Timestamps are
milliseconds around `Filler.start_ms`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import kafka.errors
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka.admin import KafkaAdminClient

from compat_tests.harness.brokers import wait_for_groups
from compat_tests.subjects.exchange.picture import CLIENT, COMPACTED, OFFSETS

TIMEOUT_S = 120
LEFT_OPEN, PENDING = "third", "pending"
"""The transactional id whose transaction stays open, and the group whose offset hangs on it."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000
LONG_SESSION = {"session.timeout.ms": 1_800_000, "max.poll.interval.ms": 1_800_000}
KEEP = {"retention.ms": "-1"}
# Records are a millisecond apart, so segments of compacted topics hold some dozens. (With index files as small as below
# Apache Kafka's own cleaner fails.)
COMPACT = {
    **KEEP,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": str(DAY_MS),
    "segment.ms": "60",
}
# Both make a new segment after some dozen batches; 4.x takes no segment.bytes below 1 MiB.
SMALL_SEGMENTS = {"segment.bytes": "10000", "index.interval.bytes": "400"}
SMALL_INDEXES = {"segment.index.bytes": "48", "index.interval.bytes": "200"}


@dataclass(frozen=True)
class Abilities:
    """What the broker can do. small: topic settings that make small segments."""

    small: Mapping[str, str] = field(default_factory=lambda: SMALL_SEGMENTS)
    transactions: bool = True
    old_formats: bool = False
    new_groups: bool = False


class Filler:
    """See the module. `data` is the broker's log directory: the cleaner's progress stands there."""

    def __init__(self, bootstrap: str, data: Path, abilities: Abilities, seed: int = 1) -> None:
        self.bootstrap = bootstrap
        self.data = data
        self.abilities = abilities
        self.seed = seed
        self.random = random.Random(seed)
        self.start_ms = 1_760_000_000_000
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
        self.held: list[Producer] = []
        self._number = 0

    def fill(self) -> None:
        """Everything there is; returns when the cleaner has done its part."""
        self.codecs()
        self.times()
        self.idempotent()
        if self.abilities.transactions:
            self.transactions()
        if self.abilities.old_formats:
            self.old_formats()
        self.compacted()
        self.deleted()
        self.groups()
        self.await_cleaner()

    # -- topics ------------------------------------------------------------------------------------------------------

    def codecs(self) -> None:
        """Producers' codecs one after the other in the same partitions; topics that choose the codec themselves."""
        many = self.topic("codecs", 3, KEEP, self.abilities.small)
        for codec in CODECS:
            producer = self.producer(codec)
            for index in range(3):
                self.send(producer, many, index, self.some_records(40), size=7)
        large = self.topic("large", 1, KEEP)
        self.send(self.producer("none"), large, 0, [(b"large", self.random.randbytes(60_000), [])])
        self.send(self.producer("zstd"), large, 0, [(b"large", b"abc" * 100_000, [])])
        self.topic("empty", 2, KEEP)
        for codec in ("uncompressed", *CODECS[1:]):
            by_topic = self.topic(f"by-topic-{codec}", 1, KEEP, {"compression.type": codec})
            self.send(self.producer("none"), by_topic, 0, self.some_records(30), size=9)
            self.send(self.producer("gzip"), by_topic, 0, self.some_records(10), size=9)

    def times(self) -> None:
        """The broker's time, and timestamps that go back and forth."""
        appended = self.topic("append-time", 1, KEEP, {"message.timestamp.type": "LogAppendTime"}, self.abilities.small)
        for codec in CODECS:
            self.send(self.producer(codec), appended, 0, self.some_records(20), size=6)
        disorder = self.topic("disorder", 1, KEEP, self.abilities.small)
        producer = self.producer("lz4")
        for at in (5, 3, 9, 1, 9, 2, 8):
            self.send(producer, disorder, 0, self.some_records(8), size=4, start_ms=self.start_ms + at * 10_000)

    def idempotent(self) -> None:
        """Two producers with sequence numbers, and one without, into the same partitions."""
        name = self.topic("idempotent", 2, KEEP, self.abilities.small)
        producers = [
            self.producer("lz4", idempotence=True),
            self.producer("none", idempotence=True),
            self.producer("none"),
        ]
        for turn in range(9):
            self.send(producers[turn % 3], name, turn % 2, self.some_records(10), size=5)

    def transactions(self) -> None:
        """Committed and aborted ones between ordinary records, with a group's offsets, and one that stays open with its
        offsets.
        """
        name = self.topic("transactions", 2, KEEP, self.abilities.small)
        plain, first, second = self.producer("gzip"), self.transactional("first"), self.transactional("second")
        groups = ((first, "in-transactions"), (second, "in-transactions-2"))
        # librdkafka's producer asks for a group's coordinator only so often; then it waits until a connection ends, ten
        # minutes if need be. So its first answer must not be that the topic of the offsets is being made.
        for group in (*(group for _, group in groups), PENDING):
            wait_for_groups(self.bootstrap, group, TIMEOUT_S)
        for turn in range(6):
            for producer in (first, second):
                producer.begin_transaction()
            self.send(first, name, 0, self.some_records(12), size=5)
            self.send(plain, name, 0, self.some_records(3))
            self.send(second, name, turn % 2, self.some_records(12), size=5)
            for producer, group in groups:
                offsets = [TopicPartition(name, 0, turn * 5 + 1, f"turn {turn}")]
                reader = self.consumer(group)
                producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), TIMEOUT_S)
                reader.close()
            first.commit_transaction(TIMEOUT_S)
            if turn % 2:
                second.commit_transaction(TIMEOUT_S)
            else:
                second.abort_transaction(TIMEOUT_S)
        left_open = self.topic("left-open", 1, KEEP)
        self.send(plain, left_open, 0, self.some_records(5))
        reader = self.consumer(PENDING)
        reader.commit(offsets=[TopicPartition(left_open, 0, 1)], asynchronous=False)
        third = self.transactional(LEFT_OPEN)
        third.begin_transaction()
        self.send(third, left_open, 0, self.some_records(6))
        third.send_offsets_to_transaction(
            [TopicPartition(left_open, 0, 4)], reader.consumer_group_metadata(), TIMEOUT_S
        )
        reader.close()
        self.send(plain, left_open, 0, self.some_records(5))
        self.held.append(third)

    def old_formats(self) -> None:
        """Message formats 0 and 1, plain and compressed, as Apache Kafka before 0.11 kept them; then format 2."""
        for name, version in (("format-0", "0.9.0"), ("format-1", "0.10.2")):
            for stays in (True, False):
                format_config = {"message.format.version": version, **self.abilities.small, **KEEP}
                topic = self.topic(name if stays else f"{name}-then-2", 2, format_config)
                for codec in CODECS[:-1]:
                    producer = self.producer(codec)
                    for index in range(2):
                        self.send(producer, topic, index, self.some_records(20, headers=False), size=6)
                if not stays:
                    self.set_config(topic, "message.format.version", "2.8")
                    until(lambda name=topic: self._takes_headers(name), f"{topic} did not change its format")
                    for codec in CODECS:
                        producer = self.producer(codec)
                        for index in range(2):
                            self.send(producer, topic, index, self.some_records(12), size=5)
        stamped = {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime", **KEEP}
        topic = self.topic("format-1-append-time", 1, stamped)
        for codec in CODECS[:-1]:
            self.send(self.producer(codec), topic, 0, self.some_records(12, headers=False), size=5)

    def _takes_headers(self, topic: str) -> bool:
        """Only format 2 has headers; the broker refuses them, and appends nothing, until it has heard of the change."""
        try:
            for index in range(2):
                self.send(self.producer("none"), topic, index, [(b"first", None, [("of", b"format 2")])])
        except AssertionError:
            return False
        return True

    def compacted(self) -> None:
        """Keys written again and again, tombstones that stay and tombstones that go, and a policy of both kinds."""
        topics = {
            self.topic("compacted", 2, COMPACT): 2,
            self.topic("no-tombstones", 1, COMPACT, {"delete.retention.ms": "0"}): 1,
            self.topic("compacted-and-deleted", 1, COMPACT, {"cleanup.policy": "compact,delete"}): 1,
        }
        if self.abilities.old_formats:
            # A log of format 1 is compacted in its own format.
            old = {"message.format.version": "0.10.2"}
            topics[self.topic("compacted-format-1", 1, COMPACT, old)] = 1
        for turn, codec in enumerate(("none", "lz4", "gzip")):
            for name, count in topics.items():
                with_headers = "format-1" not in name
                for index in range(count):
                    producer = self.producer(codec, idempotence=with_headers and codec == "lz4")
                    self.send(producer, name, index, self.keyed(turn, with_headers), size=8)
        if self.abilities.transactions:
            name = self.topic("compacted-transactions", 1, COMPACT)
            topics[name] = 1
            producer = self.transactional("compacting")
            for turn in range(4):
                producer.begin_transaction()
                self.send(producer, name, 0, self.keyed(turn), size=12)
                if turn % 2:
                    producer.abort_transaction(TIMEOUT_S)
                else:
                    producer.commit_transaction(TIMEOUT_S)
        self.await_cleaner()
        # A tombstone goes in a pass after the one that has seen it.
        for name, count in topics.items():
            for index in range(count):
                self.send(self.producer("none"), name, index, self.keyed(9, headers=False), size=8)

    def deleted(self) -> None:
        """Records deleted in the middle of a segment, and all; a topic deleted."""
        name = self.topic("records-deleted", 3, KEEP, self.abilities.small)
        producer = self.producer("snappy")
        for index in range(3):
            self.send(producer, name, index, self.some_records(60), size=5)
        futures = self.admin.delete_records([TopicPartition(name, 0, 33), TopicPartition(name, 1, -1)])
        for future in futures.values():
            future.result(TIMEOUT_S)
        gone = self.topic("gone", 2)
        self.send(producer, gone, 1, self.some_records(5))
        self.admin.delete_topics([gone])[gone].result(TIMEOUT_S)
        until(lambda: gone not in self.admin.list_topics(timeout=TIMEOUT_S).topics, f"{gone} was not deleted")
        # A kill may take back what was deleted since the last checkpoint.
        checkpoint = self.data / "log-start-offset-checkpoint"
        until(
            lambda: checkpoint.exists() and f"{name} 0 33" in checkpoint.read_text(),
            "the checkpoint of log starts was not written",
        )

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> None:
        """Offsets with metadata, many commits, a deleted group, a static member; a KIP-848 group where there are."""
        name = self.topic("for-groups", 2, KEEP)
        self.send(self.producer("none"), name, 0, self.some_records(20))
        for group in ("plain", "again", "partly", "deleted"):
            consumer = self.consumer(group)
            for offset in range(1, 60 if group == "again" else 4):
                where = [TopicPartition(name, index, offset, metadata=f"é {offset}") for index in range(2)]
                consumer.commit(offsets=where, asynchronous=False)
            consumer.close()
        self.admin.delete_consumer_groups(["deleted"])["deleted"].result(TIMEOUT_S)
        old_admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        [outcome] = old_admin.delete_group_offsets("partly", [kafka.TopicPartition(name, 1)]).values()
        assert outcome is kafka.errors.NoError, outcome
        old_admin.close()
        altered = ConsumerGroupTopicPartitions("altered", [TopicPartition(name, 0, 7)])
        [future] = self.admin.alter_consumer_group_offsets([altered]).values()
        future.result(TIMEOUT_S)
        self.member(name, "static", {"group.instance.id": "instance-1", **LONG_SESSION})
        self.member(name, "left")
        if self.abilities.new_groups:
            self.member(name, "new", {"group.protocol": "consumer"})

    def member(self, topic: str, group: str, config: Mapping[str, object] | None = None) -> None:
        """A member that joins, reads, commits and ends; a static one does not say goodbye."""
        consumer = self.consumer(group, config)
        consumer.subscribe([topic])
        read = 0
        deadline = time.monotonic() + TIMEOUT_S
        while read < 20:
            assert time.monotonic() < deadline, f"{group}: {read} of 20 records came"
            read += sum(message.error() is None for message in consumer.consume(20, 0.2))
        consumer.commit(asynchronous=False)
        consumer.close()

    # -- going on ----------------------------------------------------------------------------------------------------

    def more(self) -> None:
        """On a broker that another one's directory was handed to: append to its logs, go on in its groups."""
        there = self.admin.list_topics(timeout=TIMEOUT_S).topics
        for codec in CODECS:
            for topic in ("codecs", "append-time", "records-deleted", *there.keys() & {"transactions"}):
                self.send(self.producer(codec), topic, 0, self.some_records(6), size=3)
        # A producer id that somebody had before would come with sequence numbers that do not fit.
        self.send(self.producer("lz4", idempotence=True), "idempotent", 0, self.some_records(10), size=5)
        self.send(self.producer("none", idempotence=True), "idempotent", 1, self.some_records(10), size=5)
        for topic in ("compacted", "no-tombstones"):
            self.send(self.producer("gzip"), topic, 0, self.keyed(5), size=8)
        if self.abilities.old_formats:
            for topic in ("format-0-then-2", "format-1-then-2"):
                self.send(self.producer("zstd"), topic, 1, self.some_records(10), size=5)
            for topic in ("format-0", "format-1"):
                self.send(self.producer("lz4"), topic, 1, self.some_records(10, headers=False), size=5)
        name = "for-groups"
        for group, offset in (("plain", 3), ("again", 59)):
            consumer = self.consumer(group)
            [known] = consumer.committed([TopicPartition(name, 0)], TIMEOUT_S)
            assert known.offset >= offset
            consumer.commit(offsets=[TopicPartition(name, 0, known.offset + 1, metadata="more")], asynchronous=False)
            consumer.close()
        if "left-open" in there:
            self.next_transaction()
        self.send(self.producer("none"), name, 0, self.some_records(20))
        self.member(name, "left")
        self.member(name, f"new of seed {self.seed}")
        self.await_cleaner()

    def next_transaction(self) -> None:
        """Under the id that left one open: that one is aborted, and its offset was never valid."""
        producer = self.transactional(LEFT_OPEN)
        reader = self.consumer(PENDING)
        place = TopicPartition("left-open", 0)
        [known] = reader.committed([place], TIMEOUT_S)
        assert 1 <= known.offset < 4, f"{PENDING} has {known.offset}"
        producer.begin_transaction()
        self.send(producer, place.topic, 0, self.some_records(3))
        next_offset = TopicPartition(place.topic, 0, known.offset + 1)
        producer.send_offsets_to_transaction([next_offset], reader.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        until(
            lambda: reader.committed([place], TIMEOUT_S)[0].offset == known.offset + 1,
            f"the transaction of {LEFT_OPEN} did not end",
        )
        reader.close()

    # -- pieces ------------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int, *configs: Mapping[str, str]) -> str:
        """Make a topic with the configs merged; its name."""
        config = {key: value for each in configs for key, value in each.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT_S)
        return name

    def set_config(self, topic: str, key: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        [future] = self.admin.incremental_alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    def producer(self, codec: str, *, idempotence: bool = False, **config: object) -> Producer:
        """A producer that sends what `send` gives it as it is."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                **CLIENT,
                "compression.type": codec,
                "enable.idempotence": idempotence,
                "linger.ms": 5,
                "message.timeout.ms": TIMEOUT_S * 1000,
                **config,
            }
        )

    def transactional(self, name: str) -> Producer:
        """A transactional producer, whose transactions stay open for an hour."""
        # Its requests need a `socket.timeout.ms`, as in CLIENT: without one they have the transaction's time, and an
        # hour is more than librdkafka counts to: what is under way when it looks, once a second, is given up with the
        # connection, and asked again.
        config = {"transactional.id": name, "transaction.timeout.ms": 3_600_000}
        producer = self.producer("lz4", idempotence=True, **config)
        producer.init_transactions(TIMEOUT_S)
        return producer

    def consumer(self, group: str, config: Mapping[str, object] | None = None) -> Consumer:
        """A member of a group that commits by hand."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                **CLIENT,
                "group.id": group,
                "client.id": f"client of {group}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **(config or {}),
            }
        )

    def send(
        self,
        producer: Producer,
        topic: str,
        index: int,
        records: Sequence[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
        *,
        size: int = 1000,
        start_ms: int | None = None,
    ) -> None:
        """Send records, at most `size` in a batch. Raises AssertionError when one was not taken."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for start in range(0, len(records), size):
            for key, value, headers in records[start : start + size]:
                self._number += 1
                timestamp = (self.start_ms if start_ms is None else start_ms) + self._number
                options = {"headers": headers} if headers else {}
                producer.produce(topic, value, key, index, on_delivery=delivered, timestamp=timestamp, **options)
            assert producer.flush(TIMEOUT_S) == 0, f"{topic}-{index}: not everything was taken in time"
        assert not failed, f"{topic}-{index}: {failed[0]}"

    def some_records(
        self, count: int, *, headers: bool = True
    ) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """Records with and without keys, values and headers, from nothing to some kilobytes."""
        made = []
        for _ in range(count):
            key = None if self.random.random() < 0.2 else self.random.randbytes(self.random.choice((0, 1, 8, 30)))
            size = self.random.choice((0, 1, 20, 100, 100, 400, 1000))
            kind = self.random.random()
            value = (
                None if kind < 0.1 else self.random.randbytes(size) if kind < 0.5 else b"compressible " * (size // 13)
            )
            some: list[tuple[str, bytes | None]] = []
            if headers and self.random.random() < 0.4:
                some = [("h", b"1"), ("h", None), ("größe", b"")][: self.random.randint(1, 3)]
            made.append((key, value, some))
        return made

    def keyed(
        self, turn: int, headers: bool = True
    ) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """Records of 25 keys, twice each; in later turns a fifth are tombstones."""
        made = []
        for number in range(50):
            key = b"key %d" % self.random.randrange(25)
            tombstone = turn > 0 and number % 5 == 0
            value = None if tombstone else b"turn %d " % turn + self.random.randbytes(self.random.choice((5, 100, 300)))
            made.append((key, value, [("turn", b"%d" % turn)] if headers and number % 7 == 0 else []))
        return made

    def await_cleaner(self) -> None:
        """Wait until the compacted logs are clean up to their last segment, as the cleaner's checkpoint says."""
        until(lambda: not self._to_clean(), lambda: f"the cleaner was not done with {self._to_clean()}", 300)

    def _to_clean(self) -> list[str]:
        """Partitions' directories that the cleaner has not done with."""
        try:
            lines = (self.data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        except FileNotFoundError:
            lines = []
        cleaned = {f"{topic}-{index}": int(offset) for topic, index, offset in map(str.split, lines)}
        dirty = []
        for topic in (*COMPACTED, OFFSETS):
            for directory in self.data.glob(f"{topic}-[0-9]"):
                last = max((path.name for path in directory.glob("*.log")), default="0.log")
                if cleaned.get(directory.name, 0) < int(last.partition(".")[0]):
                    dirty.append(directory.name)
        return dirty


def until(ready: Callable[[], bool], what: str | Callable[[], str], timeout: float = TIMEOUT_S) -> None:
    """Wait for a condition outside. Raises AssertionError with `what`."""
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline, f"{what if isinstance(what, str) else what()} in {timeout} s"
        time.sleep(0.05)


def formats(data: Path, topic: str, index: int = 0) -> set[int]:
    """The message formats (magic bytes) of all that a partition's log holds."""
    found = set()
    for path in (data / f"{topic}-{index}").glob("*.log"):
        log = path.read_bytes()
        position = 0
        while position + 17 <= len(log):
            found.add(log[position + 16])
            position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return found


__all__ = ["SMALL_INDEXES", "SMALL_SEGMENTS", "Abilities", "Filler", "formats", "until"]
