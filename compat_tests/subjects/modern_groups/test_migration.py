"""A live group changes its protocol, classic to consumer and back, member by member, and loses and doubles nothing.

Each step: records are produced, read and committed; then one member comes or goes, and the group settles. So every
record must arrive exactly once over all members there ever were, and the committed offsets stand through all of it.

There is a committed offset for each partition from the beginning, and whoever nevertheless finds none says so instead
of beginning anew: so a record that came twice was not read again because an offset was lost. It also keeps librdkafka
(2.16) from looking for a partition's beginning while members come. If the partition is taken away from it meanwhile,
the late answer ("outdated offset response" in its log) makes it fetch the partition as if it still had it, from offset
0 on. Those records wait in a queue, which it joins to the application's when the partition comes back, just before it
declares them outdated.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.harness.checks import ready_topic, wait_until
from compat_tests.harness.client import Refused, positions
from compat_tests.subjects.modern_groups.conftest import Make
from compat_tests.subjects.modern_groups.members import Member
from compat_tests.subjects.modern_groups.watch import arrived, kind_of, numbers, settle

Names = Callable[..., str]
PARTITIONS, BATCH = 6, 30
CLASSIC = ("Java 3.9.1", "kafka-python", "librdkafka")
NO_COORDINATOR = (14, 15, 16)
MODERN = ("Java 4.3.1", "librdkafka", "Java 4.3.1")
pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


class Migration:
    """A group whose members come and go, and the records that its present and former members got."""

    def __init__(self, client: ConfluentClient, make: Make, unique: Names) -> None:
        self.client = client
        self.make = make
        self.topic, self.group = ready_topic(client, unique(), PARTITIONS), unique("group")
        wait_until(self._begin, "the group's coordinator")
        self.members: list[Member] = []
        self.all: list[Member] = []
        self.sent = 0

    def _begin(self) -> bool:
        try:
            self.client.set_group_offsets(self.group, dict.fromkeys(positions(self.topic, PARTITIONS), 0))
        except Refused as refusal:
            if refusal.code not in NO_COORDINATOR:
                raise
            return False
        return True

    def come(self, *kinds: str, protocol: str, **options: str) -> None:
        """Members join, and the group settles."""
        for kind in kinds:
            options = {"auto_offset_reset": "none", **options}
            member = self.make(kind, self.group, self.topic, protocol=protocol, **options)
            self.members.append(member)
            self.all.append(member)
        self.settle()

    def go(self, place: int) -> None:
        """A member leaves, and the group settles."""
        self.members.pop(place).close()
        self.settle()

    def settle(self) -> None:
        settle(self.members, positions(self.topic, PARTITIONS))
        # All may have the right partitions by chance, while a step is still to come.
        wait_until(lambda: self.client.describe_group(self.group).state == "Stable", "state Stable", 60, every=0.1)
        settle(self.members, positions(self.topic, PARTITIONS))

    def work(self) -> None:
        """Records are read and committed, each once."""
        self.client.produce(self.topic, numbers(self.sent, BATCH, PARTITIONS))
        self.sent += BATCH
        seen = arrived(self.all, self.sent)
        assert sorted(int(one.value) for one in seen) == list(range(self.sent))
        for member in self.members:
            member.commit()
        each = self.sent // PARTITIONS
        assert self.client.group_offsets(self.group) == dict.fromkeys(positions(self.topic, PARTITIONS), each)

    def kind(self) -> str:
        return kind_of(self.client, self.group)


@pytest.mark.parametrize(
    "assignor",
    [
        pytest.param(name, marks=pytest.mark.case("KIP-848 groups, migration", f"there and back ({name})", "together"))
        for name in ("range", "cooperative-sticky")
    ],
)
def test_there_and_back(assignor: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    migration = Migration(client, make, unique)
    # kafka-python knows the eager assignors only. librdkafka's sticky one keeps data of its own in the assignments:
    # Apache Kafka refuses to take such a group over, and so do we.
    classic = CLASSIC if assignor == "range" else ("Java 3.9.1", "Java 3.9.1")
    options = {"assignor": assignor}
    migration.come(*classic, protocol="classic", **options)
    migration.work()
    assert migration.kind() == "classic"
    for kind in MODERN[: len(classic)]:
        migration.come(kind, protocol="consumer")
        assert migration.kind() == "consumer"
        migration.work()
        migration.go(0)
        migration.work()
    for kind in classic:
        migration.come(kind, protocol="classic", **options)
        migration.work()
        migration.go(0)
        migration.work()
    wait_until(lambda: migration.kind() == "classic", "the classic protocol")
    migration.work()


@pytest.mark.case("KIP-848 groups, migration", "an empty group changes its protocol and keeps its offsets", "together")
def test_empty(client: ConfluentClient, make: Make, unique: Names) -> None:
    migration = Migration(client, make, unique)
    for protocol in ("classic", "consumer", "classic", "consumer"):
        migration.come("librdkafka", protocol=protocol)
        assert migration.kind() == protocol
        migration.work()
        migration.members.pop().close()
        wait_until(lambda: client.describe_group(migration.group).state == "Empty", "state Empty")
