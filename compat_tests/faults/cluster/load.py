"""A steady load of idempotent acks=all producers (librdkafka) on one topic, and a reader that looks on.

Every producer sends to every partition at a fixed rate; what it is told goes into `Send` values for the checker. A
partition that owes many answers gets nothing more until it answers, so memory stays small while nobody leads it. The
reader has no group: it reads all partitions from the start, and must never be told that an offset is out of range.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.faults.cluster.checker import Send, Value, silences

TICK_S = 0.02
MOST_OWED = 400
"""Per producer and partition."""

FAST_CLIENT = {
    "log_level": 2,
    "socket.timeout.ms": 6000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "socket.nagle.disable": True,
}

# Different producers: pipelined and not, compressed and not, many small batches and few larger ones.
VARIETY: tuple[Mapping[str, Any], ...] = (
    {"linger.ms": 5, "max.in.flight": 5, "compression.type": "none"},
    {"linger.ms": 0, "max.in.flight": 5, "compression.type": "none"},
    {"linger.ms": 20, "max.in.flight": 1, "compression.type": "lz4"},
)


class Load:
    """Producers and a reader on *topic*; `start()`, then `stop()` waits for every outstanding answer."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        producers: int = 3,
        tick_s: float = TICK_S,
        log: Path | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.sends: list[Send] = []
        self.seen: dict[int, list[tuple[int, Value]]] = defaultdict(list)
        self.errors: list[str] = []
        self.refused: list[str] = []
        self._tick_s = tick_s
        self.log = log
        self._stopping = threading.Event()
        self._reading = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._produce, number), daemon=True)
            for number in range(producers)
        ]
        self._reader = threading.Thread(target=self._guarded, args=(self._read, producers), daemon=True)

    def start(self, timeout: float = 120) -> None:
        """Begin to send and to read; returns when the reader has read of every partition.

        It knows its offsets then. A broker that has just come back is not told of its topics for a moment and answers
        UNKNOWN_TOPIC_OR_PARTITION; a reader that still had to ask for its first offset would give up.
        """
        self._reading.set()
        for thread in (*self._threads, self._reader):
            thread.start()
        deadline = time.monotonic() + timeout
        while len(self.seen) < self.partitions and not self.errors:
            assert time.monotonic() < deadline, f"only read from {sorted(self.seen)} of {self.partitions} partitions"
            time.sleep(TICK_S)

    def stop(self, timeout: float = 150) -> None:
        """Send no more, wait for the answers, end the reader."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout)
        assert not any(thread.is_alive() for thread in self._threads), "a producer does not end"
        self._reading.clear()
        self._reader.join(timeout)
        assert not self._reader.is_alive(), "the reader does not end"

    def acknowledged_since(self, moment: float) -> set[int]:
        """Return the partitions on which something sent after *moment* was acknowledged."""
        found = set()
        # From the end, without copying: the list grows meanwhile, and what is there stays where it is.
        for at in range(len(self.sends) - 1, -1, -1):
            send = self.sends[at]
            # Sends of several threads are in order but for a tick.
            if send.sent_at < moment - 5:
                break
            if send.sent_at >= moment and send.acknowledged:
                found.add(send.partition)
        return found

    def silent(self, begun: float, mark: int) -> dict[int, float]:
        """Return the longest silence of each partition from *begun* (when there were *mark* sends) until now."""
        # What was sent before the mark may be acknowledged after it, as far as it was still owed.
        owed = MOST_OWED * self.partitions * len(self._threads)
        return silences(self.sends[max(0, mark - 2 * owed) :], begun, time.monotonic())

    def wait_acknowledged(self, partitions: set[int], timeout: float) -> float | None:
        """Wait until each has acknowledged something sent from now on; the seconds it took, None when it does not."""
        begun = time.monotonic()
        while not partitions <= self.acknowledged_since(begun):
            if time.monotonic() > begun + timeout or self.errors:
                return None
            time.sleep(0.05)
        return time.monotonic() - begun

    def _guarded(self, run: Any, number: int) -> None:
        try:
            run(number)
        except Exception as error:
            self.errors.append(f"{run.__name__} {number}: {error!r}")

    def _produce(self, number: int) -> None:
        producer = Producer(
            {
                **FAST_CLIENT,
                **VARIETY[number % len(VARIETY)],
                "bootstrap.servers": self.bootstrap,
                "client.id": f"load-{number}",
                "enable.idempotence": True,
                "request.timeout.ms": 5000,
                "message.timeout.ms": 120000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                **({} if self.log is None else logged(f"load-{number}", self.log)),
            }
        )
        owed = [0] * self.partitions
        numbers = itertools.count()
        padding = b"." * (40 * (number + 1))
        due = time.monotonic()
        while not self._stopping.is_set():
            for partition in range(self.partitions):
                if owed[partition] >= MOST_OWED:
                    continue
                send = Send(partition, number, next(numbers), time.monotonic())

                def delivered(error: KafkaError | None, message: Message, send: Send = send) -> None:
                    owed[send.partition] -= 1
                    if error is not None:
                        send.error = error.str()
                    else:
                        offset = message.offset()
                        # Below zero: the broker knew the batch (a retry), but no more at which offset.
                        send.offset = offset if offset is not None and offset >= 0 else None
                    send.done_at = time.monotonic()

                self.sends.append(send)
                owed[partition] += 1
                value = b"%d:%d:%d:%b" % (number, partition, send.number, padding)
                try:
                    producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
                except KafkaException as refused:
                    # A broker has said that the topic does not exist.
                    self.refused.append(f"{time.strftime('%H:%M:%S')} {refused}")
                    send.error, send.done_at = str(refused), time.monotonic()
                    owed[partition] -= 1
            due += self._tick_s
            producer.poll(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1)
        producer.flush(130)

    def _read(self, number: int) -> None:
        consumer = Consumer(
            {
                **FAST_CLIENT,
                "bootstrap.servers": self.bootstrap,
                "client.id": f"load-reader-{number}",
                "group.id": "load-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
                "enable.partition.eof": False,
            }
        )
        consumer.assign([TopicPartition(self.topic, index, OFFSET_BEGINNING) for index in range(self.partitions)])
        quiet_since = time.monotonic()
        while self._reading.is_set() or time.monotonic() < quiet_since + 2:
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    partition, offset, value = decoded(message)
                    self.seen[partition].append((offset, value))
                    quiet_since = time.monotonic()
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
                    self.errors.append(f"the reader of {message.partition()} was told: {error}")
                    self._reading.clear()
                    return
        consumer.close()


def logged(name: str, log: Path) -> dict[str, Any]:
    """Settings with which a client writes about its idempotence into the file, for `renumbering`."""
    logger = logging.Logger(name, logging.DEBUG)
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(name)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    return {"log_level": 7, "debug": "eos", "logger": logger}


def decoded(message: Message) -> tuple[int, int, Value]:
    """Return partition, offset, and the value of a record of the load; checks that it lies in its partition."""
    value, at, offset = message.value(), message.partition(), message.offset()
    assert isinstance(value, bytes)
    assert at is not None
    assert offset is not None
    producer, partition, number, _ = value.split(b":", 3)
    assert int(partition) == at, f"{value!r} is in partition {at}"
    return at, offset, (int(producer), int(number))


def watermarks(consumer: Consumer, place: TopicPartition, timeout: float = 120) -> tuple[int, int]:
    """The log's start offset and the high watermark, of whoever leads: while leadership moves the client asks one who
    does not lead any more, or not yet, and leaves it to its user to ask again.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=30)
        except KafkaException as refused:
            if refused.args[0].code() not in _ASK_AGAIN or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return low, high


_ASK_AGAIN = (
    # Nobody has answered in time.
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    # Leadership moves.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


def read_everything(
    bootstrap: str, topic: str, partitions: int, timeout: float = 240
) -> dict[int, list[tuple[int, Value]]]:
    """Read all partitions from their first offset to their high watermarks: (offset, value) in the order of reading."""
    consumer = Consumer(
        {
            **FAST_CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "read-everything",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
        }
    )
    places = [TopicPartition(topic, index) for index in range(partitions)]
    marks = {place.partition: watermarks(consumer, place) for place in places}
    found: dict[int, list[tuple[int, Value]]] = {index: [] for index in range(partitions)}
    ends = {index: high for index, (_, high) in marks.items() if high > marks[index][0]}
    consumer.assign([TopicPartition(topic, index, marks[index][0]) for index in range(partitions)])
    deadline = time.monotonic() + timeout
    while ends:
        assert time.monotonic() < deadline, f"partitions {sorted(ends)} could not be read to {ends} in {timeout} s"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            assert error is None or not error.fatal(), error
            if error is None:
                index, offset, value = decoded(message)
                found[index].append((offset, value))
                if ends.get(index, -1) <= offset + 1:
                    ends.pop(index, None)
    consumer.close()
    return found
