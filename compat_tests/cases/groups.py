"""Consumer groups: who gets what, what survives a restart, and what the coordinator refuses."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from compat_tests.cases import Names, case
from compat_tests.harness.checks import (
    contents,
    opened,
    read,
    ready_topic,
    refused,
    sent,
    texts,
    wait_until,
)
from compat_tests.harness.client import INVALID_SESSION_TIMEOUT, Client, Consumer, Message, Partition, Record, positions

AREA = "groups"
SETTLE_S = 60.0


def settle(members: Sequence[Consumer], wanted: Sequence[Partition], timeout: float = SETTLE_S) -> list[Record]:
    """Poll all members at once until they share *wanted* without overlap, none idle; return what they read."""
    records: list[Record] = []
    with ThreadPoolExecutor(len(members)) as pool:

        def settled() -> bool:
            for found in pool.map(lambda member: member.poll(0.05), members):
                records.extend(found)
            held = [member.assignment() for member in members]
            return all(held) and sum(map(len, held)) == len(wanted) and set().union(*held) == set(wanted)

        wait_until(settled, f"{len(members)} members share {len(wanted)} partitions", timeout, every=0)
    return records


@case(AREA, "one member gets everything and reads it")
def one_member(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 3), names("group")
    messages = [Message(f"{n}".encode(), None, n % 3) for n in range(60)]
    client.produce(topic, messages)
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        records = read(member, 60)
        assert member.assignment() == set(positions(topic, 3))
        assert sorted(int(one.value or b"") for one in records) == list(range(60))


@case(AREA, "commit, restart, resume")
def resume(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    messages = texts(40)
    client.produce(topic, messages[:25])
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        assert contents(read(member, 25)) == sent(messages[:25])
        member.commit()
        assert member.committed((topic, 0)) == 25
    client.produce(topic, messages[25:])
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        assert contents(read(member, 15)) == sent(messages[25:])


@case(AREA, "without a commit a restart reads again")
def no_commit(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    client.produce(topic, texts(10))
    for _ in range(2):
        with opened(client.consumer(subscribe=[topic], group=group)) as member:
            assert len(read(member, 10)) == 10
            assert member.committed((topic, 0)) is None


@case(AREA, "explicit offsets are committed and kept")
def explicit_commit(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 2), names("group")
    client.produce(topic, texts(20) + texts(20, partition=1))
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        read(member, 40)
        member.commit({(topic, 0): 7, (topic, 1): 13})
        member.commit({(topic, 1): 3})
        assert (member.committed((topic, 0)), member.committed((topic, 1))) == (7, 3)
    assert client.group_offsets(group) == {(topic, 0): 7, (topic, 1): 3}
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        records = read(member, 30)
        assert min(one.offset for one in records if one.partition == 0) == 7
        assert min(one.offset for one in records if one.partition == 1) == 3


@case(AREA, "commits without membership, by assignment")
def standalone(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 2), names("group")
    client.produce(topic, texts(8))
    with opened(client.consumer(assign=[(topic, 0)], group=group)) as consumer:
        read(consumer, 8)
        consumer.commit({(topic, 0): 5})
    with opened(client.consumer(assign=[(topic, 0)], group=group)) as consumer:
        assert consumer.committed((topic, 0)) == 5
        assert consumer.committed((topic, 1)) is None
        assert [one.offset for one in read(consumer, 3)] == [5, 6, 7]


@case(AREA, "two join, a third joins, one leaves: disjoint and complete ({})", over=("range", "roundrobin"))
def rebalance(client: Client, names: Names, assignor: str) -> None:
    topic, group = ready_topic(client, names(), 6), names("group")
    everything = positions(topic, 6)
    members = [client.consumer(subscribe=[topic], group=group, assignor=assignor) for _ in range(2)]
    with opened(*members):
        settle(members, everything)
        assert [len(member.assignment()) for member in members] == [3, 3]
        third = client.consumer(subscribe=[topic], group=group, assignor=assignor)
        with opened(third):
            settle([*members, third], everything)
            assert [len(member.assignment()) for member in (*members, third)] == [2, 2, 2]
        settle(members, everything)
        assert [len(member.assignment()) for member in members] == [3, 3]


@case(AREA, "cooperative-sticky: members keep what they have", needs=["cooperative-sticky"])
def cooperative(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 6), names("group")
    everything = positions(topic, 6)
    first = client.consumer(subscribe=[topic], group=group, assignor="cooperative-sticky")
    with opened(first):
        settle([first], everything)
        second = client.consumer(subscribe=[topic], group=group, assignor="cooperative-sticky")
        with opened(second):
            settle([first, second], everything)
            kept = first.assignment()
            assert len(kept) == 3
        settle([first], everything)
        assert kept < first.assignment()


@case(AREA, "every record once while members come and go")
def nothing_lost(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 4), names("group")
    client.produce(topic, [Message(f"{n}".encode(), None, n % 4) for n in range(200)])
    seen: list[Record] = []
    first = client.consumer(subscribe=[topic], group=group)
    with opened(first):
        seen += read(first, 200)
        first.commit()
        second = client.consumer(subscribe=[topic], group=group)
        with opened(second):
            seen += settle([first, second], positions(topic, 4))
            client.produce(topic, [Message(f"{n}".encode(), None, n % 4) for n in range(200, 400)])
            later: list[Record] = []

            def arrived() -> bool:
                later.extend(first.poll(0.05))
                later.extend(second.poll(0.05))
                return len(later) >= 200

            wait_until(arrived, "200 more records at the two members", every=0)
            first.commit()
            second.commit()
    seen += later
    assert sorted(int(one.value or b"") for one in seen) == list(range(400))
    assert client.group_offsets(group) == dict.fromkeys(positions(topic, 4), 100)


@case(AREA, "a static member restarts without a rebalance", needs=["static members"])
def static_member(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 4), names("group")
    everything = positions(topic, 4)

    def member(instance: str) -> Consumer:
        return client.consumer(subscribe=[topic], group=group, instance=instance, session_timeout_ms=60_000)

    first, second = member("one"), member("two")
    with opened(first, second):
        settle([first, second], everything)
        mine, theirs = first.assignment(), second.assignment()
        second.close()
        # A static member does not leave when it closes: nothing moves within the session timeout.
        for _ in range(3):
            first.poll(0.2)
        assert first.assignment() == mine
        again = member("two")
        with opened(again):
            settle([first, again], everything)
            assert (first.assignment(), again.assignment()) == (mine, theirs)


@case(AREA, "subscription by pattern finds topics, also later ones")
def pattern(client: Client, names: Names) -> None:
    stem = names()
    first = ready_topic(client, f"{stem}-a")
    client.produce(first, texts(3, "a"))
    with opened(client.consumer(pattern=f"^{stem}-.*", group=names("group"))) as member:
        assert len(read(member, 3)) == 3
        member.commit()
        second = ready_topic(client, f"{stem}-b")
        client.produce(second, texts(4, "b"))
        assert {one.value for one in read(member, 4)} == {f"b-{n}".encode() for n in range(4)}
        assert member.assignment() == {(first, 0), (second, 0)}


@case(AREA, "new partitions of a subscribed topic are handed out")
def more_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 1)
    with opened(client.consumer(subscribe=[topic], group=names("group"))) as member:
        settle([member], positions(topic, 1))
        client.create_partitions(topic, 3)
        settle([member], positions(topic, 3))


@case(AREA, "a session timeout below the broker's minimum is refused")
def session_too_short(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())

    def join() -> None:
        with opened(client.consumer(subscribe=[topic], group=names("group"), session_timeout_ms=1000)) as member:
            wait_until(lambda: member.poll(0.1) and False, "the refusal of the join")

    with refused(INVALID_SESSION_TIMEOUT):
        join()
