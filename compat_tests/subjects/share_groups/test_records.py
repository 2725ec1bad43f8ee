"""What becomes of records: acknowledged in every way, delivered again, and not too often."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.harness.checks import DEADLINE_S, ready_topic, texts, wait_until
from compat_tests.harness.client import Message
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.share_groups.conftest import Make
from compat_tests.subjects.share_groups.groups import LONG_LOCK, SHORT_LOCK, SHORT_LOCK_S, configure
from compat_tests.subjects.share_groups.members import (
    ACCEPT,
    FRANZ,
    JAVA,
    LIBRDKAFKA,
    REJECT,
    RELEASE,
    RENEW,
    Got,
    gets_nothing,
    next_poll,
    offsets,
    poll_until,
)

Names = Callable[..., str]
Groups = Callable[..., str]
COLUMN = {JAVA: JAVA, LIBRDKAFKA: ConfluentClient.name, FRANZ: FRANZ}
INVALID_RECORD_STATE = 121
NEEDS = {JAVA: [pytest.mark.jvm], LIBRDKAFKA: [], FRANZ: [pytest.mark.go]}
pytestmark = pytest.mark.slow


def case(title: str, *kinds: str) -> pytest.MarkDecorator:
    """One test for each client, with its place."""
    places = [
        pytest.param(
            kind,
            id=kind.replace(" ", "-"),
            marks=[pytest.mark.case("share groups", title, COLUMN[kind]), *NEEDS[kind]],
        )
        for kind in kinds or (JAVA, LIBRDKAFKA, FRANZ)
    ]
    return pytest.mark.parametrize("kind", places)


def one_batch(client: ConfluentClient, topic: str, count: int, stem: str = "r") -> None:
    """So many records in one batch: its end is a flush, which does not linger."""
    client.produce(topic, texts(count, stem), linger_ms=15_000)


@case("implicit acknowledgement: what was polled is accepted by the next poll, and never comes again")
def test_implicit(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique(), 2), share_group()
    client.produce(topic, [Message(f"{n}".encode(), None, n % 2) for n in range(40)])
    member = make(kind, group, topic)
    found = poll_until(member, 40)
    assert sorted(int(one.value) for one in found) == list(range(40))
    assert {one.count for one in found} <= {1, -1}
    gets_nothing(member, 1)
    member.close()
    other = make(kind, group, topic)
    client.produce(topic, texts(5, "later"))
    assert sorted(one.value for one in poll_until(other, 5)) == [f"later-{n}" for n in range(5)]


@case("explicit acknowledgement within a batch: accepted, released and rejected records")
def test_explicit(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group()
    one_batch(client, topic, 12)
    member = make(kind, group, topic, explicit=True)
    found = next_poll(member)
    assert offsets(found) == list(range(12))
    member.say(ACCEPT, found[0::3])
    member.say(RELEASE, found[1::3])
    member.say(REJECT, found[2::3])
    assert member.commit() == {0}
    again = next_poll(member)
    assert offsets(again) == [1, 4, 7, 10]
    assert {one.count for one in again} <= {2, -1}
    member.say(ACCEPT, again)
    assert member.commit() == {0}
    gets_nothing(member)


@case("two members of one partition: each record for one of them, and what one leaves the other gets")
def test_two_members(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group()
    first = make(kind, group, topic, explicit=True, max_poll_records="10")
    second = make(kind, group, topic, explicit=True, max_poll_records="10")
    gets_nothing(first, 2)
    gets_nothing(second, 2)
    for n in range(40):
        client.produce(topic, texts(1, f"r{n}"))
    held, others = next_poll(first), next_poll(second)
    assert not set(offsets(held)) & set(offsets(others))
    second.say(ACCEPT, others)
    second.commit()
    first.close()
    settled = set(offsets(others))

    def all_are_settled() -> bool:
        found = second.poll()
        assert not set(offsets(found)) & settled
        if found:
            second.say(ACCEPT, found)
            assert second.commit() == {0}
            settled.update(offsets(found))
        return len(settled) == 40

    wait_until(all_are_settled, "all records, those that the other gave back, too")


@case("a poisonous record is delivered as often as the limit says, its neighbours are accepted")
def test_poison(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group(share_delivery_count_limit="3")
    one_batch(client, topic, 5)
    member = make(kind, group, topic, explicit=True)
    seen: list[Got] = []

    def is_poison_alone() -> bool:
        found = member.poll()
        seen.extend(found)
        member.say(RELEASE, [one for one in found if one.offset == 2])
        member.say(ACCEPT, [one for one in found if one.offset != 2])
        if found:
            assert member.commit() == {0}
        return offsets(seen).count(2) == 3

    wait_until(is_poison_alone, "three deliveries")
    assert sorted(offsets(seen)) == [0, 1, 2, 2, 2, 3, 4]
    assert [one.count for one in seen if one.offset == 2] in ([1, 2, 3], [-1, -1, -1])
    gets_nothing(member)
    one_batch(client, topic, 1, "later")
    assert offsets(next_poll(member)) == [5]


@case("a batch that is released again and again comes in ever smaller parts")
def test_throttled_delivery(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group()
    one_batch(client, topic, 16)
    member = make(kind, group, topic, explicit=True)
    sizes = []
    for _ in range(5):
        found = next_poll(member)
        sizes.append(len(found))
        member.say(RELEASE, found)
        assert member.commit() == {0}
    assert sizes == [16, 16, 16, 8, 1]


@pytest.mark.campaign
@case("a lock that runs out: another member gets the record, and who comes late is told so")
def test_lock_expires(
    kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups, restartable: Restartable
) -> None:
    topic, group = ready_topic(client, unique()), share_group(**SHORT_LOCK)
    first, second = (make(kind, group, topic, explicit=True) for _ in range(2))
    began = time.monotonic()  # before there is anything to lock: a client may fetch before it is polled
    one_batch(client, topic, 3)
    late = next_poll(first)
    configure(restartable.bootstrap, group, **LONG_LOCK)  # the second lock shall not run out
    again = next_poll(second)
    assert time.monotonic() - began > SHORT_LOCK_S - 0.1
    assert offsets(late) == offsets(again) == [0, 1, 2]
    assert {one.count for one in again} <= {late[0].count + 1, -1}
    first.say(ACCEPT, late)
    assert first.commit() == {INVALID_RECORD_STATE}
    second.say(ACCEPT, again)
    assert second.commit() == {0}
    gets_nothing(first)


@pytest.mark.campaign
@case("a lock that is renewed outlasts its time", JAVA)
def test_renewed(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    def outlasts() -> bool:
        """Whether it does; False where the machine stood still for as long as a lock, which so ran out."""
        topic, group = ready_topic(client, unique()), share_group(**SHORT_LOCK)
        first, second = (make(kind, group, topic, explicit=True) for _ in range(2))
        locked = time.monotonic()  # or later
        one_batch(client, topic, 2)
        held = next_poll(first)
        assert first.lock_ms() == round(SHORT_LOCK_S * 1000)
        until = time.monotonic() + 2 * SHORT_LOCK_S
        while time.monotonic() < until:
            asked = time.monotonic()
            first.say(RENEW, held)
            if first.commit() != {0} or second.poll():
                assert time.monotonic() - locked > SHORT_LOCK_S - 0.1
                return False
            locked = asked
            held = next_poll(first)  # the client hands out again what it has renewed
            assert offsets(held) == [0, 1]
        first.say(ACCEPT, held)
        if first.commit() != {0}:
            assert time.monotonic() - locked > SHORT_LOCK_S - 0.1
            return False
        gets_nothing(second)
        assert set(first.acknowledged().values()) == {0}
        return True

    wait_until(outlasts, "a renewed lock", timeout=300)


@case("share.renew.acknowledge.enable=false: a renewal is refused", JAVA, FRANZ)
def test_renewal_is_refused(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group(share_renew_acknowledge_enable="false")
    member = make(kind, group, topic, explicit=True)
    one_batch(client, topic, 1)
    member.say(RENEW, next_poll(member))
    assert member.commit() == {INVALID_RECORD_STATE}


@case("share.acquire.mode=record_limit: no more than max.poll.records, also out of one batch", JAVA, FRANZ)
def test_record_limit(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group()
    one_batch(client, topic, 20)
    first = make(kind, group, topic, explicit=True, share_acquire_mode="record_limit", max_poll_records="6")
    found = next_poll(first)
    assert offsets(found) == list(range(6))
    second = make(kind, group, topic, explicit=True)
    others = next_poll(second)
    # franz-go fetches ahead: the first member may have six more already.
    begin = 12 if kind == FRANZ and others[0].offset == 12 else 6
    assert offsets(others) == list(range(begin, 20))
    for member, records in ((first, found), (second, others)):
        member.say(ACCEPT, records)
        assert member.commit() == {0}


@case("share.isolation.level=read_committed: nothing of open and aborted transactions")
def test_read_committed(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    topic, group = ready_topic(client, unique()), share_group(share_isolation_level="read_committed")
    uncommitted = share_group()
    member, other = make(kind, group, topic), make(kind, uncommitted, topic)
    with closing(client.transactor(unique("txn"), timeout_ms=300_000)) as producer:
        for what, end in (("committed", producer.commit), ("aborted", producer.abort)):
            producer.begin()
            producer.send(topic, texts(3, what))
            end()
        producer.begin()
        producer.send(topic, texts(3, "open"))
        assert [one.value for one in poll_until(member, 3)] == [f"committed-{n}" for n in range(3)]
        gets_nothing(member)
        assert len(poll_until(other, 9)) == 9
        producer.commit()
    assert [one.value for one in poll_until(member, 3)] == [f"open-{n}" for n in range(3)]


@case("share.auto.offset.reset: a new group begins at the end, at the start, or so long ago")
def test_where_groups_begin(kind: str, client: ConfluentClient, make: Make, unique: Names, share_group: Groups) -> None:
    old_ms = round(time.time() * 1000) - 3_600_000
    for how, wanted in (("earliest", ["old", "new"]), ("by_duration:PT10M", ["new"]), ("latest", [])):
        topic = ready_topic(client, unique())
        client.produce(topic, [Message(b"old", None, 0, timestamp_ms=old_ms)])
        client.produce(topic, [Message(b"new", None, 0)])
        member = make(kind, share_group(share_auto_offset_reset=how), topic)
        found: list[Got] = []
        until = time.monotonic() + 4
        while len(found) < len(wanted) or time.monotonic() < until:
            found += member.poll()
            assert time.monotonic() < until + DEADLINE_S
        # A group that begins at the end begins at what is the end when it comes to its partition.
        while "later" not in [one.value for one in found]:
            client.produce(topic, [Message(b"later", None, 0)])
            found += member.poll()
            assert time.monotonic() < until + 2 * DEADLINE_S
        assert [one.value for one in found if one.value != "later"] == wanted
        member.close()
