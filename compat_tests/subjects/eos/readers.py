"""What readers see of a topic: one that looks on while things are killed, and whole reads at the end. By librdkafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

READ_TIMEOUT_S = 180
ANSWER_TIMEOUT_S = 60


@dataclass(frozen=True)
class Seen:
    """A record as a reader saw it."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass
class Watcher:
    """Reads a topic with read_committed from its beginning, in a thread of its own, until it is stopped.

    `seen[partition]` grows. *check* is called with the partition, all that was seen of it before, and the new record;
    what it raises ends the thread and is raised again by `fail_if_wrong`.
    """

    bootstrap: str
    topic: str
    partitions: int
    check: Callable[[int, Sequence[Seen], Seen], None]
    seen: list[list[Seen]] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.seen = [[] for _ in range(self.partitions)]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watcher of {self.topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = reader(self.bootstrap)
        try:
            consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
            while not self._stopped.is_set():
                for found in consumer.consume(500, 0.1):
                    if found.error() is not None:
                        # The broker is away, or has just come back.
                        assert not found.error().fatal(), found.error()
                        assert found.error().code() != KafkaError._AUTO_OFFSET_RESET, found.error()
                        continue
                    record = Seen(found.offset(), found.key(), found.value())
                    before = self.seen[found.partition()]
                    assert not before or before[-1].offset < record.offset, f"{before[-1]} came before {record}"
                    self.check(found.partition(), before, record)
                    before.append(record)
        except BaseException as failure:
            self.failure = failure
        finally:
            consumer.close()

    def total(self) -> int:
        """How many records it has seen. Raises what went wrong in the thread."""
        self.fail_if_wrong()
        return sum(map(len, self.seen))

    def fail_if_wrong(self) -> None:
        """Raise what went wrong in the thread, if anything."""
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(READ_TIMEOUT_S)


def reader(bootstrap: str, isolation: str = "read_committed", *, partition_eof: bool = False) -> Consumer:
    """A consumer that belongs to no group and goes nowhere by itself."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": partition_eof,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )


def administrator(bootstrap: str) -> AdminClient:
    """An admin client that does not comment on a broker that is away."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def starts(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The start offset of each partition."""
    return _offsets(bootstrap, topic, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)


def ends(bootstrap: str, topic: str, partitions: int, isolation: IsolationLevel) -> list[int]:
    """The end offset of each partition: the high watermark, or for READ_COMMITTED the last stable offset."""
    return _offsets(bootstrap, topic, partitions, OffsetSpec.latest(), isolation)


def _offsets(bootstrap: str, topic: str, partitions: int, spec: OffsetSpec, isolation: IsolationLevel) -> list[int]:
    asked = {TopicPartition(topic, partition): spec for partition in range(partitions)}
    admin = administrator(bootstrap)
    found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=ANSWER_TIMEOUT_S)
    return [found[place].result(ANSWER_TIMEOUT_S).offset for place in asked]


def nothing_open(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether no transaction is open in the topic: its last stable offsets are its high watermarks."""
    levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    stable, high = (ends(bootstrap, topic, partitions, level) for level in levels)
    return stable == high


def whole(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[list[Seen]]:
    """Read a topic in which no transaction is open to its end."""
    limits = dict(enumerate(ends(bootstrap, topic, partitions, IsolationLevel.READ_UNCOMMITTED)))
    consumer = reader(bootstrap, isolation, partition_eof=True)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in limits])
    seen: list[list[Seen]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while limits:
            assert time.monotonic() < deadline, f"the ends {limits} are not reached after {READ_TIMEOUT_S} s"
            for found in consumer.consume(1000, 0.1):
                if found.error() is None:
                    seen[found.partition()].append(Seen(found.offset(), found.key(), found.value()))
                    continue
                # Control records at the end are no messages: only this tells that they were passed.
                assert found.error().code() == KafkaError._PARTITION_EOF, found.error()
                if found.offset() >= limits.get(found.partition(), 0):
                    limits.pop(found.partition(), None)
    finally:
        consumer.close()
    return seen


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """The offsets that a group has committed."""
    admin = administrator(bootstrap)
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    asked = ConsumerGroupTopicPartitions(group, places)
    (found,) = admin.list_consumer_group_offsets(
        [asked], require_stable=True, request_timeout=ANSWER_TIMEOUT_S
    ).values()
    offsets = {place.partition: place.offset for place in found.result(ANSWER_TIMEOUT_S).topic_partitions}
    return [offsets[partition] for partition in range(partitions)]
