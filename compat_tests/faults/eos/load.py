"""A transactional load of librdkafka clients, in threads: writers, copiers, one that abandons, one that looks on.

A *writer* has a transactional id and writes transactions of a few records over the partitions of `ORIGINALS`; some it
aborts on purpose. Now and then it becomes its own zombie: with a transaction open, a new producer with the same id
starts, and then the old one writes on and wants to commit. A *copier* carries `ORIGINALS` (read_committed) to the same
partitions of `COPIES`, a batch per transaction together with its group's offsets; some it aborts and does again, and
now and then it stands still and another takes its id. The *abandoner* opens transactions on all partitions
and stands still, each time with an id nobody uses again: only their time-out can end them. (Who stands still is kept:
a librdkafka client that is thrown away unclosed corrupted the heap of this process.) The *onlooker* reads both topics
read_committed. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.faults.cluster.load import FAST_CLIENT as FAST
from compat_tests.faults.eos.checker import Fate, Txn, Value

ORIGINALS, COPIES = "eos-originals", "eos-copies"
GROUP = "eos-copiers"
TIMEOUT_S = 8
"""transaction.timeout.ms of writers and copiers."""
ABANDONED_TIMEOUT_S = 3
ABANDONER = "abandoner"
CALL_S = 10
"""How long one call of a client waits before it is made again."""
GIVE_UP_S = 150
"""A client that could not go on for so long has found a bug."""


# librdkafka 2.11 and later waits for a group coordinator that it has itself "decommissioned", without a time limit
# (its issues 5511 and 5456). A broker alone is not decommissioned without a new bootstrap; among several, the state of
# some other connection must change before it looks again.
FAST_CLIENT = {**FAST, "metadata.recovery.strategy": "none", "connections.max.idle.ms": 4000}


class Dead(Exception):
    """The producer cannot go on; another takes its id."""


class Stuck(Exception):
    """Nothing went on for `GIVE_UP_S`."""


class Load:
    """See the module. `start()`, `stop()`, `finish()`; then `txns`, `seen`, `errors` are complete."""

    def __init__(self, bootstrap: str, partitions: int, *, seed: int, writers: int = 4, copiers: int = 2) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.txns: list[Txn] = []
        self.seen: dict[str, dict[int, list[tuple[int, Value]]]] = {
            ORIGINALS: defaultdict(list),
            COPIES: defaultdict(list),
        }
        self.errors: list[str] = []
        self.counts: Counter[str] = Counter()
        self.committed_at: dict[str, float] = {}
        """When each transactional id last committed."""
        self.writer_ids = [f"writer-{number}" for number in range(writers)]
        self.copier_ids = [f"copier-{number}" for number in range(copiers)]
        self._seed = seed
        self._vanished: list[object] = []
        self._stopping, self._finishing = threading.Event(), threading.Event()
        self._writing = [self._thread(self._write, name) for name in self.writer_ids]
        self._writing.append(self._thread(self._abandon, ABANDONER))
        self._copying = [self._thread(self._copy, name) for name in self.copier_ids]
        self._looking = [self._thread(self._look, "onlooker")]

    def start(self) -> None:
        """Begin."""
        for thread in (*self._writing, *self._copying, *self._looking):
            thread.start()

    def stop(self, timeout: float = GIVE_UP_S + 60) -> None:
        """Begin no more transactions of writers; return when they have ended theirs."""
        self._stopping.set()
        self._join(self._writing, timeout)

    def finish(self, timeout: float = 240) -> None:
        """After `stop`: return when everything committed has been copied and seen, or after *timeout*."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not self.errors:
            counts = [sum(len(records) for records in self.seen[topic].values()) for topic in (ORIGINALS, COPIES)]
            if counts[0] == counts[1] and time.monotonic() > self._quiet_since() + 2:
                break
            time.sleep(0.2)
        self._finishing.set()
        self._join([*self._copying, *self._looking], GIVE_UP_S + 60)

    def wait_commits(self, timeout: float) -> float | None:
        """Wait until every writer and one copier has committed from now on; the seconds it took, None: they did not."""
        begun = time.monotonic()
        while self.silent_since(begun):
            if self.errors or time.monotonic() > begun + timeout:
                return None
            time.sleep(0.05)
        return time.monotonic() - begun

    def silent_since(self, moment: float) -> list[str]:
        """Who has committed nothing since then."""
        at = self.committed_at
        silent = [name for name in self.writer_ids if at.get(name, 0) < moment]
        if all(at.get(name, 0) < moment for name in self.copier_ids):
            silent += self.copier_ids
        return silent

    def _quiet_since(self) -> float:
        return max(self.committed_at.values(), default=0)

    def _thread(self, run: Callable[[str, random.Random], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                run(name, random.Random(f"{self._seed} {name}"))
            except Exception as error:
                self.errors.append(f"{name}: {error!r}")

        return threading.Thread(target=guarded, name=name, daemon=True)

    def _join(self, threads: list[threading.Thread], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                self.errors.append(f"{thread.name} does not end")

    # Producers

    def _producer(self, transactional_id: str, timeout_s: int = TIMEOUT_S) -> Producer:
        producer = Producer(
            {
                **FAST_CLIENT,
                "bootstrap.servers": self.bootstrap,
                "client.id": transactional_id,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_s * 1000,
                "message.timeout.ms": timeout_s * 1000,
                # Not longer than the transaction lasts.
                "socket.timeout.ms": min(6, timeout_s) * 1000,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
            }
        )
        patiently(lambda: producer.init_transactions(CALL_S))
        self.counts["producers"] += 1
        return producer

    def _commit(self, producer: Producer, transactional_id: str) -> Fate:
        """Commit, or abort if that is what has to be done; what became of the transaction. Raises Dead: unknown."""
        try:
            patiently(lambda: producer.commit_transaction(CALL_S))
        except KafkaException as refused:
            if not refused.args[0].txn_requires_abort():
                raise Dead(str(refused)) from refused
            self.counts["commits that had to be aborted"] += 1
            self._abort(producer)
            return Fate.ABORTED
        self.committed_at[transactional_id] = time.monotonic()
        return Fate.COMMITTED

    def _abort(self, producer: Producer) -> None:
        """Raises Dead: the outcome is known all the same, for nobody asked for a commit.

        INVALID_TXN_STATE is usual, with Apache Kafka as well: librdkafka cannot know whether an AddPartitionsToTxn
        arrived when its connection broke, so it asks to abort also what has never begun.
        """
        try:
            patiently(lambda: producer.abort_transaction(CALL_S))
        except KafkaException as refused:
            raise Dead(str(refused)) from refused

    # Writers

    def _write(self, name: str, rng: random.Random) -> None:
        producer = self._producer(name)
        number = 0
        while not self._stopping.is_set():
            txn = self._begin(name, number)
            number += 1
            intended = Fate.ABORTED if rng.random() < 0.15 else Fate.COMMITTED
            try:
                producer.begin_transaction()
                self._fill(producer, txn, rng)
                if rng.random() < 0.02:
                    producer = self._as_zombie(producer, txn, rng)
                elif intended is Fate.ABORTED:
                    txn.end(Fate.ABORTED, time.monotonic())
                    self.counts["aborted on purpose"] += 1
                    self._abort(producer)
                else:
                    txn.end(self._commit(producer, name), time.monotonic())
            except (Dead, KafkaException) as dead:
                self.counts[f"producers given up: {_short(dead)}"] += 1
                if isinstance(dead, KafkaException) and txn.fate is Fate.UNKNOWN:
                    # It ended while records were given to it; nobody asked for a commit.
                    txn.end(Fate.ABORTED, time.monotonic())
                self._vanished.append(producer)
                producer = self._producer(name)
            time.sleep(rng.uniform(0, 0.05))

    def _begin(self, name: str, number: int) -> Txn:
        txn = Txn(name, number, time.monotonic())
        self.txns.append(txn)
        return txn

    def _fill(self, producer: Producer, txn: Txn, rng: random.Random) -> None:
        """Give it some records. Raises KafkaException when it is dead; what needs an abort is told by the commit."""
        for _ in range(rng.choice((1, 2, 3, 5, 20))):
            partition = rng.randrange(self.partitions)
            txn.partitions.append(partition)
            value = encoded((txn.transactional_id, txn.number, len(txn.partitions) - 1))
            try:
                producer.produce(ORIGINALS, value, partition=partition)
            except KafkaException as refused:
                txn.partitions.pop()
                if refused.args[0].fatal():
                    raise
                return
        producer.poll(0)

    def _as_zombie(self, old: Producer, txn: Txn, rng: random.Random) -> Producer:
        """A new instance starts while *old* has a transaction open; *old* goes on, and must not succeed."""
        old.flush(1)
        txn.end(Fate.ABORTED, time.monotonic())
        # As long as its `init_transactions` takes, the old one may still end what it has begun; it does not try.
        new = self._producer(txn.transactional_id)
        self.counts["zombies"] += 1
        try:
            self._fill(old, txn, rng)
            fate = self._commit(old, f"zombie of {txn.transactional_id}")
        except (Dead, KafkaException):
            return new
        finally:
            self._vanished.append(old)
        if fate is Fate.COMMITTED:
            self.errors.append(f"a zombie of {txn.transactional_id} was told that {txn.number} is committed")
        return new

    def _abandon(self, name: str, rng: random.Random) -> None:
        number = 0
        while not self._stopping.is_set():
            txn = self._begin(f"{name}-{number}", 0)
            txn.end(Fate.ABORTED, time.monotonic())
            producer = self._producer(txn.transactional_id, ABANDONED_TIMEOUT_S)
            producer.begin_transaction()
            try:
                for partition in range(self.partitions):
                    txn.partitions.append(partition)
                    producer.produce(ORIGINALS, encoded((*_name(txn), partition)), partition=partition)
                producer.flush(1)
            except KafkaException as refused:
                self.counts[f"abandoner: {_short(refused)}"] += 1
            self._vanished.append(producer)
            self.counts["abandoned"] += 1
            number += 1
            self._stopping.wait(rng.uniform(6, 12))

    # Copiers

    def _copy(self, name: str, rng: random.Random) -> None:
        while not self._finishing.is_set():
            consumer = self._consumer(name, GROUP, **{"max.poll.interval.ms": 6000})
            producer = self._producer(name)
            try:
                self._copy_with(producer, consumer, name, rng)
            except (Dead, KafkaException) as dead:
                self.counts[f"copiers given up: {_short(dead)}"] += 1
                self._vanished.append(producer)
                consumer.close()
                continue
            if self._finishing.is_set():
                consumer.close()
            else:
                self._vanished.append((producer, consumer))

    def _copy_with(self, producer: Producer, consumer: Consumer, name: str, rng: random.Random) -> None:
        """Copy until the load ends or the copier vanishes."""
        moved = threading.Event()
        consumer.subscribe([ORIGINALS], on_revoke=lambda *_: moved.set(), on_lost=lambda *_: moved.set())
        while not self._finishing.is_set():
            moved.clear()
            batch = [message for message in consumer.consume(200, 0.2) if _is_record(message)]
            if moved.is_set():
                # Some of the batch may be of partitions that are another's now.
                rewind(consumer)
                continue
            if not batch:
                continue
            producer.begin_transaction()
            ends = {}
            for message in batch:
                partition, offset, value = decoded(message)
                ends[partition] = offset + 1
                producer.produce(COPIES, encoded(value), partition=partition)
            last = rng.random()
            if last < 0.005:
                producer.flush(1)
                self.counts["copiers vanished"] += 1
                return
            if last < 0.1:
                self._abort(producer)
                rewind(consumer)
            elif not self._give_offsets(producer, consumer, ends) or self._commit(producer, name) is Fate.ABORTED:
                rewind(consumer)

    def _give_offsets(self, producer: Producer, consumer: Consumer, ends: dict[int, int]) -> bool:
        """Make offsets part of the transaction; False: it had to be aborted."""
        offsets = [TopicPartition(ORIGINALS, partition, end) for partition, end in ends.items()]
        try:
            metadata = consumer.consumer_group_metadata()
            patiently(lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_S))
        except KafkaException as refused:
            if not refused.args[0].txn_requires_abort():
                raise
            self.counts["offsets refused"] += 1
            self._abort(producer)
            return False
        return True

    def _consumer(self, name: str, group: str, **settings: Any) -> Consumer:
        return Consumer(
            {
                **FAST_CLIENT,
                "bootstrap.servers": self.bootstrap,
                "client.id": name,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                **settings,
            }
        )

    def _look(self, name: str, _: random.Random) -> None:
        consumer = self._consumer(name, name, **{"auto.offset.reset": "error"})
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in self._places()])
        while not self._finishing.is_set():
            given_up: list[TopicPartition] = []
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    partition, offset, value = decoded(message)
                    self.seen[str(message.topic())][partition].append((offset, value))
                elif error.code() == KafkaError._AUTO_OFFSET_RESET and not self._saw(message):
                    # Its leader has not heard of the new topic yet, and librdkafka has given the partition up: it
                    # would refuse to seek there, with "erroneous state".
                    place = TopicPartition(str(message.topic()), message.partition() or 0, OFFSET_BEGINNING)
                    given_up += [place] if place not in given_up else []
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
                    raise KafkaException(error)
            if given_up:
                begin_again(consumer, given_up)
        consumer.close()

    def _places(self) -> list[tuple[str, int]]:
        """All partitions."""
        return [(topic, index) for topic in self.seen for index in range(self.partitions)]

    def _saw(self, message: Message) -> bool:
        """Something of its partition was seen."""
        return bool(self.seen[str(message.topic())][message.partition() or 0])


def patiently(call: Callable[[], object]) -> None:
    """Make a call of the transactional API again while the client says that it may be. Raises KafkaException, Stuck."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        try:
            call()
            return
        except KafkaException as refused:
            error = refused.args[0]
            if not error.retriable() or error.fatal():
                raise
            if time.monotonic() > deadline:
                raise Stuck(f"{error} for {GIVE_UP_S} s") from refused
            time.sleep(0.05)


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed, in all partitions that are assigned."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        try:
            assigned = consumer.assignment()
            if assigned:
                for place in consumer.committed(assigned, timeout=CALL_S):
                    if place.error is not None:
                        raise KafkaException(place.error)
                    offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                    consumer.seek(TopicPartition(place.topic, place.partition, offset))
            return
        except KafkaException as refused:
            if time.monotonic() > deadline:
                raise Stuck(f"{refused} for {GIVE_UP_S} s") from refused
            time.sleep(0.1)


def begin_again(consumer: Consumer, given_up: list[TopicPartition]) -> None:
    """Have partitions read from their beginning, and these alone: an assignment of all would have the others' fetches
    begin again each time.
    """
    time.sleep(0.2)
    consumer.incremental_unassign(given_up)
    consumer.incremental_assign(given_up)


def encoded(value: Value) -> bytes:
    """A value as a record's."""
    return "{}|{}|{}".format(*value).encode()


def decoded(message: Message) -> tuple[int, int, Value]:
    """Partition, offset and value of a record."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert isinstance(value, bytes)
    assert partition is not None
    assert offset is not None
    name, number, index = value.decode().split("|")
    return partition, offset, (name, int(number), int(index))


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is not None and error.fatal():
        raise KafkaException(error)
    return error is None


def _name(txn: Txn) -> tuple[str, int]:
    return txn.transactional_id, txn.number


def _short(error: Exception) -> str:
    return str(error)[:100]


def read_committed(
    bootstrap: str, topic: str, partitions: int, timeout: float = 240
) -> tuple[dict[int, list[tuple[int, Value]]], list[str]]:
    """Everything that a read_committed consumer finds, per partition; and what keeps it from reading to the end.

    The end of a partition is told by the client (`_PARTITION_EOF`), which knows the last stable offset.
    """
    consumer = Consumer(
        {
            **FAST_CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "read-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[tuple[int, Value]]] = {index: [] for index in range(partitions)}
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in found])
    reading = set(found)
    deadline = time.monotonic() + timeout
    while reading and time.monotonic() < deadline:
        given_up: list[TopicPartition] = []
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                partition, offset, value = decoded(message)
                found[partition].append((offset, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET and not found[message.partition() or 0]:
                # Its leader has just come back, and has not heard of the topic yet.
                place = TopicPartition(topic, message.partition() or 0, OFFSET_BEGINNING)
                given_up += [place] if place not in given_up else []
            elif error.fatal():
                raise KafkaException(error)
        if given_up:
            begin_again(consumer, given_up)
    consumer.close()
    return found, [f"{topic}-{index} could not be read to its end in {timeout:.0f} s" for index in sorted(reading)]
