"""Transactions: what is committed is seen, what is aborted is not, what is open holds back who reads committed records.

A commit is answered when it is decided; its markers may take a moment more. The cases of offsets are in
`transactions_offsets`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from compat_tests.cases import Names, case
from compat_tests.harness.checks import (
    contents,
    opened,
    read,
    read_topic,
    ready_topic,
    refused,
    sent,
    texts,
    wait_until,
)
from compat_tests.harness.client import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TRANSACTION_TIMEOUT,
    MESSAGE_TOO_LARGE,
    PRODUCER_FENCED,
    Client,
    Message,
    Record,
    Refused,
    Transactor,
)

AREA = "transactions"
READING = "transactions, reading"
FENCING = "transactions, fencing and time-outs"
COMMITTED = "read_committed"
FENCED = (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)
READ_S = 60.0


@contextmanager
def transactors(client: Client, *identities: str, **options: object) -> Iterator[Sequence[Transactor]]:
    """Open transactional producers, and close them at the end."""
    made: list[Transactor] = []
    try:
        for identity in identities:
            made.append(client.transactor(identity, **options))  # type: ignore[arg-type]
        yield made
    finally:
        for one in made:
            one.close()


def transaction(producer: Transactor, topic: str, messages: Sequence[Message], *, commit: bool = True) -> list[int]:
    """Send in a transaction of its own; the offsets of the records."""
    producer.begin()
    offsets = [one.offset for one in producer.send(topic, messages)]
    if commit:
        producer.commit()
    else:
        producer.abort()
    return offsets


def read_until(client: Client, topic: str, last: bytes, **options: object) -> list[Record]:
    """Read partition 0 from its beginning until a record of this value, by then everything before must have come."""
    found: list[Record] = []
    deadline = time.monotonic() + READ_S
    with opened(client.consumer(assign=[(topic, 0)], **options)) as consumer:  # type: ignore[arg-type]
        while not found or found[-1].value != last:
            assert time.monotonic() < deadline, f"{len(found)} records, none of them {last!r}"
            found += consumer.poll(0.2)
    return found


def left_open(client: Client, identity: str, timeout_ms: int, work: Callable[[Transactor], object]) -> Transactor:
    """Begin a transaction that is to time out, and do *work* in it. Where the machine stood still for so long that it
    timed out meanwhile, another one is begun.
    """
    while True:
        producer = client.transactor(identity, timeout_ms=timeout_ms)
        began = time.monotonic()
        try:
            producer.begin()
            work(producer)
            return producer
        except Exception:
            producer.close()
            if time.monotonic() - began < timeout_ms / 1000:
                raise


def finish(client: Client, topic: str, partition: int = 0) -> bytes:
    """Append an ordinary record that ends the reading; its value."""
    client.produce(topic, [Message(b"the end", None, partition)])
    return b"the end"


def values(records: Sequence[Record]) -> list[bytes | None]:
    """Return the values in order."""
    return [one.value for one in records]


@case(AREA, "commit: all is seen, the marker takes an offset")
def commit(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    messages = texts(20)
    with transactors(client, names("id")) as [producer]:
        assert transaction(producer, topic, messages) == list(range(20))
        assert transaction(producer, topic, messages) == list(range(21, 41))
    records = read_topic(client, topic, 40, isolation=COMMITTED)
    assert contents(records) == sent(messages) * 2
    assert [one.offset for one in records] == [*range(20), *range(21, 41)]


@case(AREA, "abort: nothing is seen by read_committed")
def abort(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    dropped, kept = texts(20, "dropped"), texts(5, "kept")
    with transactors(client, names("id")) as [producer]:
        transaction(producer, topic, dropped, commit=False)
        assert transaction(producer, topic, kept) == list(range(21, 26))
    assert contents(read_topic(client, topic, 5, isolation=COMMITTED)) == sent(kept)
    assert contents(read_topic(client, topic, 25)) == sent(dropped) + sent(kept)


@case(AREA, "empty transactions leave nothing behind")
def empty(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with transactors(client, names("id")) as [producer]:
        for ends in (True, False, True):
            transaction(producer, topic, [], commit=ends)
        assert transaction(producer, topic, texts(3)) == [0, 1, 2]
        transaction(producer, topic, [], commit=False)
        assert transaction(producer, topic, texts(2)) == [4, 5]
    assert [one.offset for one in read_topic(client, topic, 5, isolation=COMMITTED)] == [0, 1, 2, 4, 5]


@case(AREA, "several topics and partitions at once")
def several(client: Client, names: Names) -> None:
    first, second = (ready_topic(client, names(stem), 3) for stem in ("a", "b"))
    with transactors(client, names("id")) as [producer]:
        for stem, ends in (("kept", True), ("dropped", False), ("also", True)):
            producer.begin()
            for topic in (first, second):
                producer.send(topic, [Message(f"{stem}-{n}".encode(), None, n % 3) for n in range(12)])
            if ends:
                producer.commit()
            else:
                producer.abort()
    for topic in (first, second):
        records = read_topic(client, topic, 24, 3, isolation=COMMITTED)
        for index in range(3):
            wanted = [f"{stem}-{n}".encode() for stem in ("kept", "also") for n in range(index, 12, 3)]
            assert values([one for one in records if one.partition == index]) == wanted


@case(AREA, "many batches in a transaction, codec {}", over=("none", "gzip", "snappy", "lz4", "zstd"))
def many_batches(client: Client, names: Names, codec: str) -> None:
    topic = ready_topic(client, names(), 2, {"segment.bytes": "1048576"})
    made = {
        stem: [Message(f"{stem}-{n} ".encode() * 40, f"{n}".encode(), n % 2) for n in range(300)]
        for stem in ("kept", "dropped", "also")
    }
    options = {"codec": None if codec == "none" else codec, "batch_bytes": 4000, "linger_ms": 0}
    with transactors(client, names("id"), **options) as [producer]:
        for stem, messages in made.items():
            transaction(producer, topic, messages, commit=stem != "dropped")
    records = read_topic(client, topic, 600, 2, isolation=COMMITTED)
    for index in range(2):
        wanted = [one for stem in ("kept", "also") for one in made[stem] if one.partition == index]
        assert contents([one for one in records if one.partition == index]) == sent(wanted)


@case(AREA, "one after the other, every third aborted")
def alternating(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with transactors(client, names("id")) as [producer]:
        for turn in range(12):
            transaction(producer, topic, texts(3, f"turn-{turn}"), commit=turn % 3 != 1)
    kept = [one for turn in range(12) if turn % 3 != 1 for one in texts(3, f"turn-{turn}")]
    assert contents(read_topic(client, topic, 24, isolation=COMMITTED)) == sent(kept)


@case(AREA, "a refused batch: after the abort the next producer goes on")
def refused_batch(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names(), config={"max.message.bytes": "3000"}), names("id")
    with transactors(client, identity) as [producer]:
        transaction(producer, topic, texts(3, "before"))
        producer.begin()
        producer.send(topic, texts(2, "beside"))
        with refused(MESSAGE_TOO_LARGE):
            producer.send(topic, [Message(b"x" * 5000, None, 0)])
        producer.abort()
    # These libraries leave a gap in the sequence numbers: the same producer's next batch would be out of order.
    with transactors(client, identity) as [producer]:
        transaction(producer, topic, texts(4, "after"))
    assert contents(read_topic(client, topic, 7, isolation=COMMITTED)) == sent(texts(3, "before") + texts(4, "after"))


@case(AREA, "an idempotent producer goes on after a refused batch", needs=["idempotence after a refusal"])
def idempotent_goes_on(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"max.message.bytes": "3000"})
    for turn in range(3):
        client.produce(topic, texts(4, f"turn-{turn}"), idempotent=True)
        with refused(MESSAGE_TOO_LARGE):
            client.produce(topic, [Message(b"x" * 5000, None, 0)], idempotent=True)
    records = read_topic(client, topic, 12)
    assert contents(records) == [pair for turn in range(3) for pair in sent(texts(4, f"turn-{turn}"))]
    assert [one.offset for one in records] == list(range(12))


@case(AREA, "a transactional id is used by one producer after the other")
def again(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names()), names("id")
    for turn in range(4):
        with transactors(client, identity) as [producer]:
            transaction(producer, topic, texts(3, f"turn-{turn}"), commit=turn != 2)
    kept = [one for turn in (0, 1, 3) for one in texts(3, f"turn-{turn}")]
    assert contents(read_topic(client, topic, 9, isolation=COMMITTED)) == sent(kept)


@case(AREA, "transactions of three producers interleave in a partition, one aborts")
def interleaved(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    stems = ("a", "b", "c")
    with transactors(client, *(names(stem) for stem in stems)) as producers:
        for turn in range(3):
            for producer in producers:
                producer.begin()
            for part in range(3):
                client.produce(topic, texts(1, f"plain-{turn}-{part}"))
                for stem, producer in zip(stems, producers, strict=True):
                    producer.send(topic, texts(2, f"{stem}-{turn}-{part}"))
            for index, producer in enumerate(producers):
                if index == turn:
                    producer.abort()
                else:
                    producer.commit()
    seen = read_until(client, topic, finish(client, topic), isolation=COMMITTED)[:-1]
    wanted = [
        message.value
        for turn in range(3)
        for part in range(3)
        for stem, count in (("plain", 1), *((stem, 2) for index, stem in enumerate(stems) if index != turn))
        for message in texts(count, f"{stem}-{turn}-{part}")
    ]
    assert values(seen) == wanted
    assert len(read_topic(client, topic, 3 * 3 * 7 + 1)) == 64


@case(READING, "an open transaction holds back what comes after it")
def holds_back(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(3, "before"))
    with (
        transactors(client, names("id")) as [producer],
        opened(client.consumer(assign=[(topic, 0)], isolation=COMMITTED)) as consumer,
    ):
        producer.begin()
        producer.send(topic, texts(2, "open"))
        client.produce(topic, texts(4, "later"))
        assert contents(read(consumer, 3)) == sent(texts(3, "before"))
        assert consumer.poll(0.4) == []
        assert len(read_topic(client, topic, 9)) == 9
        producer.commit()
        assert contents(read(consumer, 6)) == sent(texts(2, "open")) + sent(texts(4, "later"))


@case(READING, "the first of two open transactions decides")
def first_open(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with (
        transactors(client, names("a"), names("b")) as [first, second],
        opened(client.consumer(assign=[(topic, 0)], isolation=COMMITTED)) as consumer,
    ):
        first.begin()
        second.begin()
        first.send(topic, texts(2, "first"))
        second.send(topic, texts(2, "second"))
        second.commit()
        assert consumer.poll(0.4) == []
        second.begin()
        second.send(topic, texts(2, "third"))
        first.abort()
        assert contents(read(consumer, 2)) == sent(texts(2, "second"))
        assert consumer.poll(0.3) == []
        second.commit()
        assert contents(read(consumer, 2)) == sent(texts(2, "third"))


@case(READING, "end offset and position stop at the open transaction")
def end_offsets(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    place = (topic, 0)
    client.produce(topic, texts(5, "before"))
    with (
        transactors(client, names("id")) as [producer],
        opened(client.consumer(assign=[place], isolation=COMMITTED)) as committed,
        opened(client.consumer(assign=[place])) as all_of_it,
    ):
        producer.begin()
        producer.send(topic, texts(3, "open"))
        client.produce(topic, texts(2, "later"))
        assert committed.watermarks(place) == (0, 5)
        assert all_of_it.watermarks(place) == (0, 10)
        read(committed, 5)
        assert committed.position(place) == 5
        producer.abort()
        wait_until(lambda: committed.watermarks(place)[1] == 11, "the end behind the marker")
        assert all_of_it.watermarks(place) == (0, 11)
        assert [one.offset for one in read(committed, 2)] == [8, 9]


@case(READING, "seeks into the middle of aborted records")
def seeks(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with transactors(client, names("id"), batch_bytes=300) as [producer]:
        for stem, ends in (("dropped", False), ("kept", True), ("dropped too", False), ("also", True)):
            transaction(producer, topic, texts(20, stem), commit=ends)
    with opened(client.consumer(assign=[(topic, 0)], isolation=COMMITTED)) as consumer:
        for start in (7, 0, 20, 21, 30, 41, 42, 50, 55, 62, 63, 70, 82):
            consumer.seek((topic, 0), start)
            wanted = [offset for offset in (*range(21, 41), *range(63, 83)) if offset >= start]
            assert [one.offset for one in read(consumer, len(wanted))] == wanted


@case(READING, "a consumer that starts at the end sees nothing of an open transaction's beginning")
def latest(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    everything: list[Message] = []
    found: list[Record] = []
    with transactors(client, names("id")) as [producer]:

        def send(stem: str) -> None:
            messages = texts(2, f"{stem}-{len(everything)}")
            producer.send(topic, messages)
            everything.extend(messages)

        transaction(producer, topic, texts(4))
        producer.begin()
        send("open")
        with opened(client.consumer(assign=[(topic, 0)], isolation=COMMITTED, reset="latest")) as consumer:
            assert consumer.poll(1.0) == []

            def seen_one() -> bool:
                # When the client has found the end is its own affair: there are transactions until it sees one.
                if len(everything) % 4 == 0:
                    producer.begin()
                    send("open")
                send("more")
                producer.commit()
                found.extend(consumer.poll(1.0))
                return bool(found)

            wait_until(seen_one, "a transaction that was open, or begun, since", READ_S)
            # The last stable offset is the end for who reads committed records only: whenever that is, it is where a
            # transaction begins.
            first = sent(everything).index(contents(found)[0])
            assert first % 4 == 0
            found += read(consumer, len(everything) - first - len(found))
    assert contents(found) == sent(everything)[first:]


@case(FENCING, "a second producer of the same id fences the first")
def fencing(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names()), names("id")
    with transactors(client, identity) as [first]:
        transaction(first, topic, texts(3, "before"))
        first.begin()
        first.send(topic, texts(3, "open"))
        with transactors(client, identity) as [second]:
            with refused(*FENCED):
                first.commit()
            transaction(second, topic, texts(3, "after"))
    seen = read_until(client, topic, finish(client, topic), isolation=COMMITTED)[:-1]
    assert contents(seen) == sent(texts(3, "before")) + sent(texts(3, "after"))


@case(FENCING, "a zombie's records are refused", needs=["quiet zombies"])
def zombie(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names()), names("id")
    with transactors(client, identity) as [first]:
        first.begin()
        first.send(topic, texts(3, "open"))
        with transactors(client, identity) as [second]:
            second.begin()
            second.send(topic, texts(2, "newer"))
            for _ in range(2):  # who was told stays fenced, and says so again
                with refused(*FENCED):
                    first.send(topic, texts(3, "zombie"))
                    first.commit()
            second.commit()
    everything = read_until(client, topic, finish(client, topic))
    assert values(everything[:-1]) == values_of(texts(3, "open"), texts(2, "newer"))
    assert contents(read_until(client, topic, b"the end", isolation=COMMITTED)[:-1]) == sent(texts(2, "newer"))


def values_of(*groups: Sequence[Message]) -> list[bytes | None]:
    """Return the values of messages in order."""
    return [one.value for group in groups for one in group]


@case(FENCING, "a transaction that takes too long is aborted, its producer learns of it")
def timed_out(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names()), names("id")
    with closing(left_open(client, identity, 1500, lambda made: made.send(topic, texts(2, "late")))) as producer:
        client.produce(topic, texts(3, "behind it"))
        # Apache Kafka looks for such transactions every ten seconds, unless it is set up otherwise.
        with opened(client.consumer(assign=[(topic, 0)], isolation=COMMITTED)) as consumer:
            assert contents(read(consumer, 3, timeout=READ_S)) == sent(texts(3, "behind it"))
        with refused(*FENCED, 48, 120):
            producer.commit()
    with transactors(client, identity) as [producer]:
        transaction(producer, topic, texts(2, "next"))
    seen = read_until(client, topic, finish(client, topic), isolation=COMMITTED)[:-1]
    assert contents(seen) == sent(texts(3, "behind it")) + sent(texts(2, "next"))


@case(FENCING, "a time-out above the broker's maximum is refused")
def too_patient(client: Client, names: Names) -> None:
    with refused(INVALID_TRANSACTION_TIMEOUT):
        client.transactor(names("id"), timeout_ms=900_001).close()
    client.transactor(names("id"), timeout_ms=900_000).close()


@case(FENCING, "producers of one id at once: only who committed is seen")
def race(client: Client, names: Names) -> None:
    topic, identity = ready_topic(client, names()), names("id")

    def run(number: int) -> bool:
        """Return whether the transaction was committed; it was not if another one came in between."""
        try:
            with transactors(client, identity) as [producer]:
                transaction(producer, topic, texts(2, f"{number}"))
        except Refused as refusal:
            if refusal.code not in FENCED:
                raise
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        finished = [number for number, done in enumerate(pool.map(run, range(4))) if done]
    assert finished
    seen = values(read_until(client, topic, finish(client, topic), isolation=COMMITTED)[:-1])
    assert sorted(map(str, seen)) == sorted(map(str, values_of(*(texts(2, f"{number}") for number in finished))))
