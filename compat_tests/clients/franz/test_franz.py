"""franz-go: producers, members of classic and of KIP-848 groups, transactions, and exactly once from topic to topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from compat_tests.clients.confluent.adapter import TIMEOUT_S, ConfluentClient
from compat_tests.clients.franz.clients import Consumer, Copier, Producer
from compat_tests.clients.franz.conftest import Make
from compat_tests.clients.franz.program import NAME, SOURCES
from compat_tests.harness.checks import ready_topic, wait_until
from compat_tests.harness.client import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, Refused, positions
from compat_tests.harness.processes import run
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.readers import whole
from compat_tests.subjects.modern_groups.watch import arrived, kind_of, numbers, settle

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.go]
PARTITIONS = 6


def values(restartable: Restartable, topic: str, partitions: int = 1) -> list[list[str]]:
    """All that a reader with read_committed finds, by partition."""
    found = whole(restartable.bootstrap, topic, partitions)
    return [[(one.value or b"").decode() for one in partition] for partition in found]


def case(title: str) -> pytest.MarkDecorator:
    """The place of a case."""
    return pytest.mark.case("franz-go", title, NAME)


def over(name: str, *values: str, title: str) -> pytest.MarkDecorator:
    """A test for each of the values, which stand in their titles."""
    return pytest.mark.parametrize(
        name, [pytest.param(value, id=value or "none", marks=case(title.format(value or "none"))) for value in values]
    )


@over("codec", "", "gzip", "snappy", "lz4", "zstd", title="idempotent producer, codec {}")
def test_produce(codec: str, client: ConfluentClient, make: Make, unique: Names, restartable: Restartable) -> None:
    topic = ready_topic(client, unique(), 2)
    producer = make(Producer, codec=codec)
    produced = [f"compressible value {number} " * 5 for number in range(1000)]
    for partition in range(2):
        assert producer.produce(topic, partition, produced) == list(range(1000))
    assert values(restartable, topic, 2) == [produced, produced]


@over("protocol", "classic", "consumer", title="group, protocol {}: members come and go, each record once")
def test_group(protocol: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), PARTITIONS), unique("group")
    everything = positions(topic, PARTITIONS)
    all_there_were: list[Consumer] = []

    def joined() -> Consumer:
        all_there_were.append(make(Consumer, group=group, topics=topic, protocol=protocol))
        return all_there_were[-1]

    def work(first: int) -> None:
        client.produce(topic, numbers(first, 60, PARTITIONS))
        seen = arrived(all_there_were, first + 60)
        assert sorted(int(one.value) for one in seen) == list(range(first + 60))
        for member in present:
            member.commit()
        assert client.group_offsets(group) == dict.fromkeys(everything, (first + 60) // PARTITIONS)

    present = [joined()]
    settle(present, everything)
    work(0)
    present.append(joined())
    settle(present, everything)
    work(60)
    present.append(joined())
    settle(present, everything)
    work(120)
    present.pop(0).close()
    settle(present, everything)
    assert kind_of(client, group) == protocol
    work(180)
    assert [member.failure() for member in present] == ["", ""]


@over("assignor", "range", "cooperative-sticky", title="classic group, assignor {}: disjoint and complete")
def test_assignors(assignor: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), PARTITIONS), unique("group")
    members = []
    for _ in range(3):
        members.append(make(Consumer, group=group, topics=topic, assignor=assignor))
        settle(members, positions(topic, PARTITIONS))
    members.pop().close()
    settle(members, positions(topic, PARTITIONS))


def set_session(client: ConfluentClient, group: str, milliseconds: int) -> None:
    """How long the members of a group with KIP-848 may be silent."""
    entry = ConfigEntry("consumer.session.timeout.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    for done in client.admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


@over("protocol", "classic", "consumer", title="group, protocol {}: a static member comes back")
def test_static(protocol: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), PARTITIONS), unique("group")
    settings = {"group": group, "topics": topic, "protocol": protocol}
    if protocol == "consumer":
        set_session(client, group, 6000)
    one, other = (make(Consumer, instance=name, **settings) for name in ("one", "other"))
    mine, others = settle([one, other], positions(topic, PARTITIONS))
    other.close()
    assert one.assignment() == mine
    again = make(Consumer, instance="other", **settings)
    shared = settle([one, again], positions(topic, PARTITIONS))
    if protocol == "classic":
        assert shared == [mine, others]
    # With KIP-848 franz-go 1.22 comes back after the session's time-out only, to Apache Kafka, too. Who asks first then
    # decides about the halves: the one that stayed may have had all for a moment.


@over("protocol", "classic", "consumer", title="group, protocol {}: topics by pattern, also later ones")
def test_regex(protocol: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    stem, group = unique(), unique("group")
    first = ready_topic(client, f"{stem}-a")
    ready_topic(client, f"{stem}-B")
    member = make(Consumer, group=group, regex=f"^{stem}-[a-z]+$", protocol=protocol)
    wait_until(lambda: member.assignment() == {(first, 0)}, "the topic that matches")
    second = ready_topic(client, f"{stem}-b")
    wait_until(lambda: member.assignment() == {(first, 0), (second, 0)}, "the later topic")


@case("transactions: committed ones are seen, aborted ones are not")
def test_transactions(client: ConfluentClient, make: Make, unique: Names, restartable: Restartable) -> None:
    topics = [ready_topic(client, unique(which), 2) for which in ("a", "b")]
    producer = make(Producer, id=unique("id"))
    for number in range(6):
        producer.begin()
        for topic in topics:
            for partition in range(2):
                producer.produce(topic, partition, [f"{number}-{one}" for one in range(10)])
        producer.end(commit=number % 3 != 1)
    expected = [f"{number}-{one}" for number in (0, 2, 3, 5) for one in range(10)]
    for topic in topics:
        assert values(restartable, topic, 2) == [expected, expected]


@case("transactions: a second producer of the same id fences the first")
def test_fencing(client: ConfluentClient, make: Make, unique: Names, restartable: Restartable) -> None:
    topic, identity = ready_topic(client, unique()), unique("id")
    first = make(Producer, id=identity)
    first.begin()
    first.produce(topic, 0, ["a zombie's"])
    second = make(Producer, id=identity)
    second.begin()
    second.produce(topic, 0, ["committed"])
    second.end(commit=True)
    with pytest.raises(Refused) as refusal:
        first.end(commit=True)
    assert refusal.value.code in (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)
    assert values(restartable, topic) == [["committed"]]


@over(
    "protocol", "classic", "consumer", title="exactly once from topic to topic, protocol {}, while members come and go"
)
def test_exactly_once(
    protocol: str, client: ConfluentClient, make: Make, unique: Names, restartable: Restartable
) -> None:
    source, target = ready_topic(client, unique("from"), 4), ready_topic(client, unique("to"), 4)
    group = unique("group")

    def copier(which: str) -> Copier:
        settings = {"group": group, "topics": source, "protocol": protocol, "to": target}
        made: Copier = make(Copier, id=unique(which), **settings)
        return made

    copied, wanted = 0, 0
    copiers = [copier("one")]

    def copy(count: int) -> None:
        """So many records more."""
        nonlocal copied, wanted
        client.produce(source, numbers(wanted, count, 4))
        wanted += count
        rounds = 0

        def is_copied() -> bool:
            nonlocal copied, rounds
            rounds += 1
            copied += sum(one.copy(commit=rounds % 3 != 0) for one in copiers)
            return copied >= wanted

        wait_until(is_copied, f"{wanted} records")

    copy(40)
    copiers.append(copier("two"))
    copy(40)
    copiers.pop(0).close()
    copy(40)
    seen = [int(one) for partition in values(restartable, target, 4) for one in partition]
    assert sorted(seen) == list(range(120))
    assert client.group_offsets(group) == dict.fromkeys(positions(source, 4), wanted // 4)


def test_the_program_is_formatted() -> None:
    assert run(["gofmt", "-l", str(SOURCES)]).stdout == b""
