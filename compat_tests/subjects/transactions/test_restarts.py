"""Transactions over kill -9 of the broker: what was committed stays, what is open goes on or is ended by who has to.

`--peer kafka` lets Apache Kafka 4.3.1 be killed; `--bootstrap` is not for these.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from compat_tests.cases.transactions import COMMITTED, FENCED, finish, left_open, read_until, transaction, values
from compat_tests.clients.aio.adapter import AioClient
from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.clients.kafka_python.adapter import PythonClient
from compat_tests.harness.brokers import QUICK
from compat_tests.harness.checks import ready_topic, refused, texts, wait_until
from compat_tests.harness.client import INVALID_TXN_STATE, Client, Message, Transactor
from compat_tests.harness.processes import pause
from compat_tests.harness.restartable import Restartable, start_restartable

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]

SETTINGS = [
    *QUICK,
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
]


PATIENT_MS = 300_000
"""Of transactions that outlast the kill."""


@pytest.fixture(scope="module")
def restartable(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    """A broker of these tests' own."""
    made = start_restartable(pytestconfig, tmp_path_factory.mktemp("transactions"), SETTINGS)
    yield made
    made.stop()


@pytest.mark.parametrize("kind", [ConfluentClient, PythonClient, AioClient])
def test_killed_amid_transactions(
    kind: Callable[[str], Client], restartable: Restartable, unique: Callable[..., str]
) -> None:
    """One transaction goes on after the kill, one is ended by the next producer of its id, one by its time-out; offsets
    follow their transactions.
    """
    client = kind(restartable.bootstrap)
    topic, group = ready_topic(client, unique()), unique("group")
    left_id = unique("left")
    goes_on = client.transactor(unique("goes-on"), timeout_ms=PATIENT_MS)
    left = client.transactor(left_id, timeout_ms=PATIENT_MS)
    transaction(goes_on, topic, texts(3, "committed"))
    transaction(goes_on, topic, texts(3, "aborted"), commit=False)

    def send(producer: Transactor, number: int) -> None:
        producer.send(topic, texts(2, f"open {number}"))
        producer.send_offsets({(topic, 0): number}, f"{group}-{number}")

    for number, producer in enumerate((goes_on, left)):
        producer.begin()
        send(producer, number)
    slow = left_open(client, unique("slow"), 8000, lambda producer: send(producer, 2))
    left.close()
    restartable.kill()
    restartable.start()
    goes_on.send(topic, texts(2, "after the kill"))
    goes_on.commit()
    next_one = client.transactor(left_id)
    transaction(next_one, topic, texts(2, "next"))
    finish(client, topic)
    seen = values(read_until(client, topic, b"the end", isolation=COMMITTED))
    expected = (texts(3, "committed"), texts(2, "open 0"), texts(2, "after the kill"), texts(2, "next"))
    assert seen == [*(one.value for part in expected for one in part), b"the end"]
    with refused(*FENCED, INVALID_TXN_STATE):
        slow.commit()
    wait_until(lambda: client.group_offsets(f"{group}-0") == {(topic, 0): 0}, "the offset of the committed")
    assert client.group_offsets(f"{group}-1") == client.group_offsets(f"{group}-2") == {}
    for producer in (goes_on, next_one, slow):
        producer.close()
    client.close()


def test_killed_after_the_answer(
    restartable: Restartable, unique: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    """A commit that was answered holds, and an abort too, even if the broker dies before it has written the markers."""
    if request.config.getoption("--peer") == "kafka":
        # It passes at times; else the ends are not read in 20 s. Under `eos_faults --place kafka-alone` a transaction
        # that timed out while 4.3.1 was starting was CompleteAbort in `kafka-transactions list` and hanging in
        # `find-hanging`; that this is the same was not looked into.
        request.applymarker(
            pytest.mark.xfail(reason="after a kill, Apache Kafka 4.3.1 as one node leaves some hanging")
        )
    client = ConfluentClient(restartable.bootstrap)
    topic = ready_topic(client, unique(), 3)
    producers = [client.transactor(unique(f"{n}"), timeout_ms=PATIENT_MS) for n in range(3)]
    for turn in range(2):
        for number, producer in enumerate(producers):
            producer.begin()
            producer.send(topic, [Message(f"{turn} {number}".encode(), None, index) for index in range(3)])
        for number, producer in enumerate(producers):
            if number == turn:
                producer.abort()
            else:
                producer.commit()
        restartable.kill()
        restartable.start()
    expected = sorted(f"{turn} {number}".encode() for turn in range(2) for number in range(3) if number != turn)
    for index in range(3):
        finish(client, topic, index)
    reader = client.consumer(assign=[(topic, index) for index in range(3)], isolation=COMMITTED)
    found: list[list[bytes | None]] = [[], [], []]

    def ended() -> bool:
        for one in reader.poll(0.2):
            found[one.partition].append(one.value)
        return all(part and part[-1] == b"the end" for part in found)

    wait_until(ended, "the ends of all partitions")
    assert [sorted(map(bytes, part[:-1])) for part in found] == [expected] * 3  # type: ignore[arg-type]
    reader.close()
    for producer in producers:
        producer.close()
    client.close()


def test_idempotent_over_a_time_out(restartable: Restartable, unique: Callable[..., str]) -> None:
    """librdkafka gives up records that a frozen broker does not acknowledge, asks for a new epoch, and goes on: what
    comes after is there once and in order.
    """
    client = ConfluentClient(restartable.bootstrap)
    topic = ready_topic(client, unique())
    config = {"enable.idempotence": True, "message.timeout.ms": 1200, "socket.timeout.ms": 1000, "linger.ms": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": restartable.bootstrap, **config})
    taken: list[bytes] = []
    given_up: list[bytes] = []

    def delivered(error: confluent_kafka.KafkaError | None, one: confluent_kafka.Message) -> None:
        (taken if error is None else given_up).append(one.value())

    def send(stem: str, count: int) -> list[bytes]:
        sent = [f"{stem} {n}".encode() for n in range(count)]
        for value in sent:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        return sent

    send("before", 5)
    assert restartable.broker.process is not None
    pid = restartable.broker.process.pid
    try:
        pause(pid)
        frozen = send("frozen", 5)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert set(frozen) <= set(given_up)
    deadline = time.monotonic() + 60
    for turn in range(5):
        # Each attempt has values of its own: what is given up may be there all the same.
        for attempt in itertools.count():
            before = len(given_up)
            send(f"after {turn} {attempt}", 3)
            if len(given_up) == before:
                break
            assert time.monotonic() < deadline, "nothing is taken any more"
    finish(client, topic)
    seen = values(read_until(client, topic, b"the end"))[:-1]
    assert [one for one in seen if one in taken] == taken
    assert len(seen) == len(set(seen))
    client.close()
