"""Transactions with a group's offsets: consume, transform, produce; what is pending, who may commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from compat_tests.cases import Names, case
from compat_tests.cases.groups import settle
from compat_tests.cases.transactions import COMMITTED, FENCED, transactors, values
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
from compat_tests.harness.client import ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, Client, Message, positions

AREA = "transactions with offsets"


@case(AREA, "committed offsets are valid when the transaction is")
def commit(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 2), names("group")
    with transactors(client, names("id")) as [producer]:
        producer.begin()
        producer.send(topic, texts(2))
        producer.send_offsets({(topic, 0): 7, (topic, 1): 3}, group)
        assert client.group_offsets(group) == {}
        producer.commit()
        wait_until(lambda: client.group_offsets(group) == {(topic, 0): 7, (topic, 1): 3}, "the offsets of the group")
        producer.begin()
        producer.send_offsets({(topic, 0): 8}, group)
        producer.send_offsets({(topic, 0): 9}, group)
        assert client.group_offsets(group)[topic, 0] == 7
        producer.commit()
        wait_until(lambda: client.group_offsets(group) == {(topic, 0): 9, (topic, 1): 3}, "offsets without records")


@case(AREA, "aborted offsets are not")
def abort(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with transactors(client, names("id")) as [producer]:
        for offset, ends in ((4, True), (6, False), (8, False)):
            producer.begin()
            producer.send_offsets({(topic, 0): offset}, group)
            if ends:
                producer.commit()
            else:
                producer.abort()
        # The next transaction shows that the marker of the last one is there.
        producer.begin()
        producer.send_offsets({(topic, 0): 9}, names("other"))
        producer.commit()
    assert client.group_offsets(group) == {(topic, 0): 4}


@case(AREA, "offsets of a fenced producer are not")
def fenced(client: Client, names: Names) -> None:
    topic, group, identity = ready_topic(client, names()), names("group"), names("id")
    with transactors(client, identity) as [first]:
        first.begin()
        first.send_offsets({(topic, 0): 5}, group)
        with transactors(client, identity) as [second]:
            with refused(*FENCED):
                first.send_offsets({(topic, 0): 6}, group)
                first.commit()
            second.begin()
            second.send_offsets({(topic, 0): 2}, group)
            second.commit()
    wait_until(lambda: client.group_offsets(group) == {(topic, 0): 2}, "the offset of the second")


@case(AREA, "who reads committed records waits for pending offsets", needs=["stable offsets"])
def stable(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    place = (topic, 0)
    with (
        transactors(client, names("id")) as [producer],
        opened(client.consumer(assign=[place], group=group, isolation=COMMITTED)) as patient,
        opened(client.consumer(assign=[place], group=group)) as hasty,
        ThreadPoolExecutor(1) as pool,
    ):
        hasty.commit({place: 1})
        assert patient.committed(place) == 1
        for offset, ends, found in ((5, True, 5), (9, False, 5)):
            producer.begin()
            producer.send_offsets({place: offset}, group)
            assert hasty.committed(place) in (1, 5)
            asked = pool.submit(patient.committed, place)
            wait_until(lambda: hasty.committed(place) in (1, 5), "the offset that is not pending")
            assert not asked.done()
            if ends:
                producer.commit()
            else:
                producer.abort()
            assert asked.result(60) == found


@case(AREA, "a member of an earlier generation is refused", needs=["membership"])
def earlier_generation(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 2), names("group")
    first = client.consumer(subscribe=[topic], group=group)
    with opened(first), transactors(client, names("id")) as [producer]:
        settle([first], positions(topic, 2))
        before = first.membership()
        with opened(client.consumer(subscribe=[topic], group=group)) as second:
            settle([first, second], positions(topic, 2))
            producer.begin()
            producer.send(topic, texts(2, "zombie"))
            with refused(ILLEGAL_GENERATION):
                producer.send_offsets({(topic, 0): 5}, group, before)
            producer.abort()
            assert client.group_offsets(group) == {}
            left = second.membership()
            producer.begin()
            producer.send(topic, texts(2, "member"))
            producer.send_offsets({(topic, 0): 2}, group, first.membership())
            producer.commit()
            wait_until(lambda: client.group_offsets(group) == {(topic, 0): 2}, "the offset of the member")
        producer.begin()
        with refused(UNKNOWN_MEMBER_ID):
            producer.send_offsets({(topic, 0): 7}, group, left)
        producer.abort()
    assert client.group_offsets(group) == {(topic, 0): 2}
    assert contents(read_topic(client, topic, 2, isolation=COMMITTED)) == sent(texts(2, "member"))


@case(AREA, "consume, transform, produce: every record once, with aborts and restarts")
def exactly_once(client: Client, names: Names) -> None:
    source, target = ready_topic(client, names("source"), 2), ready_topic(client, names("target"))
    group, identity = names("group"), names("id")
    client.produce(source, [Message(f"{n}".encode(), None, n % 2) for n in range(60)])
    for turn in range(3):
        with (
            transactors(client, identity) as [producer],
            opened(client.consumer(subscribe=[source], group=group, isolation=COMMITTED)) as member,
        ):
            found = read(member, 60 - 20 * turn)
            for number in range(2):
                # Ten of each partition would be more than an answer must hold: take from the front of both.
                part = [one for index in (0, 1) for one in [it for it in found if it.partition == index][:10]]
                producer.begin()
                producer.send(target, [Message(b"out " + (one.value or b""), None, 0) for one in part])
                next_offsets = {
                    (source, index): 1 + max(it.offset for it in part if it.partition == index) for index in (0, 1)
                }
                producer.send_offsets(next_offsets, group, member.membership())
                if number == 0:
                    producer.abort()
                else:
                    producer.commit()
    out = values(read_topic(client, target, 60, isolation=COMMITTED))
    assert sorted(map(str, out)) == sorted(str(b"out %d" % n) for n in range(60))
    wait_until(lambda: client.group_offsets(group) == {(source, 0): 30, (source, 1): 30}, "the offsets of the group")
