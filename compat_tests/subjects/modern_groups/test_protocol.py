"""The protocol as its clients see it: who gets what, who keeps what, and what comes back after a failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from compat_tests.clients.confluent.adapter import TIMEOUT_S, ConfluentClient
from compat_tests.harness.brokers import PROJECT_ROOT
from compat_tests.harness.checks import ready_topic, refused, wait_until
from compat_tests.harness.client import NON_EMPTY_GROUP, positions
from compat_tests.harness.processes import Background
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.modern_groups.conftest import Make
from compat_tests.subjects.modern_groups.watch import arrived, kind_of, numbers, settle

Names = Callable[..., str]
KINDS = ("Java 4.3.1", "librdkafka")
COLUMN = {"Java 4.3.1": "Java 4.3.1", "librdkafka": ConfluentClient.name}
pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
KILLED_SESSION_MS = 8_000
UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION = 111, 128


def case(title: str, *kinds: str) -> pytest.MarkDecorator:
    """One test for each client, with its place."""
    places = [
        pytest.param(kind, id=kind.replace(" ", "-"), marks=pytest.mark.case("KIP-848 groups", title, COLUMN[kind]))
        for kind in kinds or KINDS
    ]
    return pytest.mark.parametrize("kind", places)


@case("members come and go: disjoint and complete, and who stays keeps what it may (uniform)")
def test_growth_and_shrinkage(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 6), unique("group")
    everything = positions(topic, 6)
    client.produce(topic, numbers(0, 60, 6))
    first = make(kind, group, topic)
    settle([first], everything)
    arrived([first], 60)
    first.commit()
    second = make(kind, group, topic)
    kept, gained = settle([first, second], everything)
    third = make(kind, group, topic)
    shares = settle([first, second, third], everything)
    assert shares[0] < kept
    assert shares[1] < gained
    client.produce(topic, numbers(60, 60, 6))
    seen = arrived([first, second, third], 120)
    assert sorted(int(one.value) for one in seen) == list(range(120))
    third.close()
    again = settle([first, second], everything)
    assert shares[0] < again[0]
    assert shares[1] < again[1]
    assert kind_of(client, group) == "consumer"


@case("assignor range: neighbouring partitions, the same of every topic")
def test_range(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topics, group = [ready_topic(client, unique(which), 4) for which in ("a", "b")], unique("group")
    members = [make(kind, group, *topics, assignor="range") for _ in range(2)]
    shares = settle(members, [place for topic in topics for place in positions(topic, 4)])
    runs = sorted(sorted(index for topic, index in share if topic == topics[0]) for share in shares)
    assert runs == [[0, 1], [2, 3]]
    for share in shares:
        assert len({frozenset(index for topic, index in share if topic == one) for one in topics}) == 1


@case("commit, seek, position, and what was committed is gone on with")
def test_offsets(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 2), unique("group")
    client.produce(topic, numbers(0, 40, 2))
    member = make(kind, group, topic)
    arrived([member], 40)
    assert member.committed((topic, 0)) is None
    member.commit()
    assert [member.committed((topic, index)) for index in range(2)] == [20, 20]
    member.seek((topic, 0), 15)
    wait_until(lambda: len(member.records()) == 45, "five records again")
    assert member.position((topic, 0)) == 20
    member.commit({(topic, 0): 11, (topic, 1): 18})
    member.close()
    assert client.group_offsets(group) == {(topic, 0): 11, (topic, 1): 18}
    other = make(kind, group, topic)
    seen = arrived([other], 11)
    assert min(one.offset for one in seen if one.partition == 0) == 11


@case("a static member comes back to what it had; a second one of its instance is refused")
def test_static(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 4), unique("group")
    first, second = (make(kind, group, topic, instance=name) for name in ("one", "two"))
    mine, theirs = settle([first, second], positions(topic, 4))
    twin = make(kind, group, topic, instance="one")
    wait_until(lambda: twin.failure().startswith(f"{UNRELEASED_INSTANCE_ID} "), "the refusal of the twin")
    second.close()
    time.sleep(0.5)
    assert first.assignment() == mine
    again = make(kind, group, topic, instance="two")
    assert settle([first, again], positions(topic, 4)) == [mine, theirs]


@case("a regular expression is matched by the broker, also with later topics; a wrong one is refused")
def test_regex(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    stem = unique()
    first = ready_topic(client, f"{stem}-a")
    ready_topic(client, f"{stem}-B")
    member = make(kind, unique("group"), regex=f"{stem}-[a-z]+")
    wait_until(lambda: member.assignment() == {(first, 0)}, "the topic that matches")
    second = ready_topic(client, f"{stem}-b")
    # A broker looks again at most every ten seconds.
    wait_until(lambda: member.assignment() == {(first, 0), (second, 0)}, "the later topic")
    # RE2 has no back references, librdkafka's own check lets them pass.
    wrong = make(kind, unique("group"), regex=f"{stem}-(a)\\1")
    wait_until(lambda: wrong.failure().startswith(f"{INVALID_REGULAR_EXPRESSION} "), "the refusal")


@case("new partitions are handed out, a deleted topic's vanish")
def test_topics_change(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, other, group = ready_topic(client, unique("a"), 1), ready_topic(client, unique("b"), 2), unique("group")
    members = [make(kind, group, topic, other) for _ in range(2)]
    settle(members, [(topic, 0), *positions(other, 2)])
    client.create_partitions(topic, 4)
    settle(members, [*positions(topic, 4), *positions(other, 2)])
    client.delete_topic(other)
    settle(members, positions(topic, 4))


@case("a killed member's partitions move after the session time-out", "librdkafka")
def test_kill(kind: str, client: ConfluentClient, make: Make, unique: Names, restartable: Restartable) -> None:
    topic, group = ready_topic(client, unique(), 4), unique("group")
    setting = ConfigEntry(
        "consumer.session.timeout.ms", str(KILLED_SESSION_MS), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[setting])
    for done in client.admin.incremental_alter_configs([resource]).values():
        done.result(60)
    command = [sys.executable, "-m", "compat_tests.subjects.modern_groups.child", restartable.bootstrap, group, topic]
    with Background(command, {"PYTHONPATH": str(PROJECT_ROOT)}) as victim:
        victim.wait_for("assigned 4")
        member = make(kind, group, topic)
        victim.wait_for("assigned 2")
        wait_until(lambda: len(member.assignment()) == 2, "half of the partitions")
        killed = time.monotonic()
        victim.stop(kill=True)
        settle([member], positions(topic, 4))
        # From its last heartbeat on; on a busy machine that may have been some seconds before.
        assert time.monotonic() - killed > KILLED_SESSION_MS / 2000


@case("described and listed with type, state and both assignments; nothing of a live group is deleted", "librdkafka")
def test_from_outside(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    topic, group = ready_topic(client, unique(), 3), unique("group")
    members = [make(kind, group, topic, client_id=f"member-{n}") for n in range(2)]
    held = settle(members, positions(topic, 3))

    def described() -> object:
        return client.admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()

    wait_until(lambda: described().state is ConsumerGroupState.STABLE, "state Stable")  # type: ignore[attr-defined]
    found = described()
    assert found.type is ConsumerGroupType.CONSUMER  # type: ignore[attr-defined]
    told = {
        one.client_id: {(place.topic, place.partition) for place in one.assignment.topic_partitions}
        for one in found.members  # type: ignore[attr-defined]
    }
    assert told == {f"member-{n}": share for n, share in enumerate(held)}
    targets = [one.target_assignment.topic_partitions for one in found.members]  # type: ignore[attr-defined]
    assert sum(map(len, targets)) == 3
    for types, states, expected in (
        ({ConsumerGroupType.CONSUMER}, {ConsumerGroupState.STABLE}, True),
        ({ConsumerGroupType.CLASSIC}, set(), False),
        (set(), {ConsumerGroupState.EMPTY}, False),
    ):
        listed = client.admin.list_consumer_groups(states=states, types=types, request_timeout=TIMEOUT_S).result()
        assert (group in {one.group_id for one in listed.valid}) is expected
    members[0].commit({(topic, 0): 1} if (topic, 0) in held[0] else {next(iter(held[0])): 1})
    with refused(NON_EMPTY_GROUP):
        client.delete_group(group)
    for member in members:
        member.close()
    wait_until(lambda: client.describe_group(group).state == "Empty", "state Empty")
    assert kind_of(client, group) == "consumer"
    client.set_group_offsets(group, {(topic, 2): 0})
    client.delete_group(group)
    assert client.group_offsets(group) == {}


@case("forty members settle", "librdkafka")
def test_many(kind: str, client: ConfluentClient, make: Make, unique: Names) -> None:
    topic, group = ready_topic(client, unique(), 40), unique("group")
    calm = {"fetch_wait_max_ms": "5000", "topic_metadata_refresh_interval_ms": "60000"}
    members = [make(kind, group, topic, **calm) for _ in range(40)]
    settle(members, positions(topic, 40), 120, every=0.5)


@case("the broker is killed: members go on with their epochs and partitions", "Java 4.3.1")
def test_broker_killed(kind: str, client: ConfluentClient, make: Make, unique: Names, restartable: Restartable) -> None:
    topic, group = ready_topic(client, unique(), 4), unique("group")
    members = [make(kind, group, topic) for _ in range(3)]
    held = settle(members, positions(topic, 4))
    client.produce(topic, numbers(0, 40, 4))
    arrived(members, 40)
    for member in members:
        member.commit()
    before = [member.identity() for member in members]
    restartable.kill()
    restartable.start()
    client.produce(topic, numbers(40, 40, 4))
    arrived(members, 80)
    assert settle(members, positions(topic, 4)) == held
    assert [member.identity() for member in members] == before
    for member in members:
        member.commit()
    assert client.group_offsets(group) == dict.fromkeys(positions(topic, 4), 20)
