"""Clients of every kind, with the transactions of before 4.0 and since, in one partition and under one id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.cases.transactions import FENCED, finish, read_until, values
from compat_tests.clients.aio.adapter import AioClient
from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.clients.kafka_python.adapter import PythonClient
from compat_tests.harness.checks import ready_topic, wait_until
from compat_tests.harness.client import INVALID_TXN_STATE, Message, Refused, Transactor
from compat_tests.subjects.transactions.java_transactors import JavaTransactors

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
PATIENT_MS = 300_000
"""Of transactions that are open while all the others have their turns: none times out by itself."""


class Everybody:
    """The clients by short names; `python` are those with a whole adapter, the others JVMs."""

    def __init__(self, bootstrap: str, logs: pytest.TempPathFactory) -> None:
        self.python = {
            "librdkafka": ConfluentClient(bootstrap),
            "kafka-python": PythonClient(bootstrap),
            "aiokafka": AioClient(bootstrap),
        }
        with ThreadPoolExecutor(2) as pool:
            directory = logs.mktemp("transactors")
            started = {
                name: pool.submit(JavaTransactors, version, bootstrap, directory / f"{version}.log")
                for name, version in (("Java 4", "4.3.1"), ("Java 3", "3.9.1"))
            }
        self.java = {name: future.result() for name, future in started.items()}
        self.all = {**self.python, **self.java}

    def close(self) -> None:
        """Close all of them."""
        for one in self.all.values():
            one.close()


@pytest.fixture(scope="module")
def everybody(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everybody]:
    """See Everybody."""
    made = Everybody(bootstrap, tmp_path_factory)
    yield made
    made.close()


def messages(*parts: object) -> list[Message]:
    """Two records that say where they are from."""
    return [Message(f"{' '.join(map(str, parts))} {n}".encode(), None, 0) for n in range(2)]


def texts(*parts: object) -> list[bytes | None]:
    """The values of `messages`."""
    return [one.value for one in messages(*parts)]


def everything(everybody: Everybody, topic: str, isolation: str) -> dict[str, list[bytes | None]]:
    """What each client reads, in order."""
    last = b"the end"
    found: dict[str, list[bytes | None]] = {
        name: values(read_until(client, topic, last, isolation=isolation))[:-1]
        for name, client in everybody.python.items()
    }
    return found | {name: [*jvm.values(topic, isolation, last)] for name, jvm in everybody.java.items()}


def test_in_one_partition(everybody: Everybody, unique: Callable[..., str]) -> None:
    """Transactions of all interleave, in each round another one aborts; every client sees the same, and the offsets."""
    plain = everybody.python["librdkafka"]
    topic, group = ready_topic(plain, unique()), unique("group")
    producers: dict[str, Transactor] = {
        name: client.transactor(unique(name.replace(" ", "-")), timeout_ms=PATIENT_MS)
        for name, client in everybody.all.items()
    }
    committed: list[bytes | None] = []
    sent: list[bytes | None] = []
    offsets = {}
    for turn, aborts in enumerate(producers):
        for producer in producers.values():
            producer.begin()
        for part in range(2):
            for name, producer in producers.items():
                producer.send(topic, messages(turn, part, name))
                sent += texts(turn, part, name)
                committed += texts(turn, part, name) if name != aborts else []
        for number, (name, producer) in enumerate(producers.items()):
            producer.send_offsets({(topic, 0): 10 * turn + number}, f"{group}-{number}")
            if name == aborts:
                producer.abort()
            else:
                producer.commit()
                offsets[number] = 10 * turn + number
    for producer in producers.values():
        producer.close()
    finish(plain, topic)
    for name, found in everything(everybody, topic, "read_committed").items():
        assert found == committed, name
    for name, found in everything(everybody, topic, "read_uncommitted").items():
        assert found == sent, name
    expected = {f"{group}-{number}": {(topic, 0): offset} for number, offset in offsets.items()}

    def offsets_are_there() -> bool:
        # The markers of the offsets may come later than those of the records.
        return all(
            {one: client.group_offsets(one) for one in expected} == expected for client in everybody.python.values()
        )

    wait_until(offsets_are_there, "the offsets of all groups")


def test_under_one_id(everybody: Everybody, unique: Callable[..., str]) -> None:
    """An id goes from client to client, from one protocol to the other and back; each leaves a transaction open, which
    the next one ends; afterwards it is fenced.
    """
    plain = everybody.python["librdkafka"]
    topic, identity = ready_topic(plain, unique()), unique("id")
    order = ["Java 4", "librdkafka", "Java 3", "aiokafka", "Java 4", "kafka-python", "Java 3", "Java 4"]
    committed: list[bytes | None] = []
    past: list[Transactor] = []
    for turn, name in enumerate(order):
        producer = everybody.all[name].transactor(identity, timeout_ms=PATIENT_MS)
        for number, ends in enumerate((producer.commit, producer.abort, producer.commit)):
            producer.begin()
            producer.send(topic, messages(turn, name, number))
            ends()
            committed += texts(turn, name, number) if number != 1 else []
        producer.begin()
        producer.send(topic, messages(turn, name, "left open"))
        if past:
            with pytest.raises(Refused) as refusal:
                past[-1].commit()
            assert refusal.value.code in (*FENCED, INVALID_TXN_STATE)
        past.append(producer)
    past[-1].abort()
    for producer in past:
        producer.close()
    finish(plain, topic)
    for name, found in everything(everybody, topic, "read_committed").items():
        assert found == committed, name
