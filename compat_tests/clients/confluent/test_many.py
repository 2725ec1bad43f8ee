"""Numbers: many partitions, many connections, many groups, with librdkafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from compat_tests.cases.groups import settle
from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.harness.checks import opened, read, ready_topic, texts
from compat_tests.harness.client import Message, positions

Names = Callable[..., str]
pytestmark = pytest.mark.slow


def case(title: str) -> pytest.MarkDecorator:
    """The place of a case."""
    return pytest.mark.case("numbers", title, ConfluentClient.name)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[ConfluentClient]:
    """The library under test."""
    made = ConfluentClient(bootstrap)
    yield made
    made.close()


@case("500 partitions, some records in each")
def test_many_partitions(client: ConfluentClient, unique: Names) -> None:
    topic = ready_topic(client, unique(), 500)
    client.produce(topic, [Message(f"{n}".encode(), None, n % 500) for n in range(1500)], linger_ms=50)
    with opened(client.consumer(assign=positions(topic, 500))) as consumer:
        records = read(consumer, 1500, timeout=60)
    assert {(one.partition, one.value) for one in records} == {(n % 500, f"{n}".encode()) for n in range(1500)}
    client.delete_topic(topic)


@case("60 consumers wait on one topic, each gets every record")
def test_many_consumers(client: ConfluentClient, unique: Names) -> None:
    topic = ready_topic(client, unique())
    consumers = [client.consumer(assign=[(topic, 0)], max_wait_ms=2000) for _ in range(60)]
    with opened(*consumers):
        messages = texts(20)
        client.produce(topic, messages)
        for consumer in consumers:
            assert [one.value for one in read(consumer, 20)] == [one.value for one in messages]


@case("100 groups commit at once")
def test_many_groups(client: ConfluentClient, unique: Names) -> None:
    topic, stem = ready_topic(client, unique()), unique("group")
    client.produce(topic, texts(100))
    failures: list[BaseException] = []

    def commit(number: int) -> None:
        try:
            with opened(client.consumer(assign=[(topic, 0)], group=f"{stem}-{number}")) as consumer:
                consumer.commit({(topic, 0): number})
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {f"{stem}-{n}" for n in range(100)} <= client.groups()
    assert [client.group_offsets(f"{stem}-{n}")[(topic, 0)] for n in range(0, 100, 10)] == list(range(0, 100, 10))


@case("a group of 12 members on 24 partitions settles")
def test_many_members(client: ConfluentClient, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 24), unique("group")
    members = [client.consumer(subscribe=[topic], group=group, assignor="roundrobin") for _ in range(12)]
    with opened(*members):
        settle(members, positions(topic, 24), timeout=60)
        assert [len(member.assignment()) for member in members] == [2] * 12
