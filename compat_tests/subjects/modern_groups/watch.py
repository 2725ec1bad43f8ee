"""What the tests wait for: a group's members have what they are to have, its records have arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from confluent_kafka import ConsumerGroupType

from compat_tests.clients.confluent.adapter import TIMEOUT_S, ConfluentClient
from compat_tests.harness.checks import wait_until
from compat_tests.harness.client import Message, Partition
from compat_tests.subjects.modern_groups.members import Member, Seen

WAITS_S = 60.0


def settle(
    members: Sequence[Member], wanted: Sequence[Partition], timeout: float = WAITS_S, every: float = 0.05
) -> list[set[Partition]]:
    """Wait until the members share *wanted* without overlap, as evenly as can be; return what each has."""
    held: list[set[Partition]] = []

    def settled() -> bool:
        held[:] = [member.assignment() for member in members]
        sizes = [len(one) for one in held]
        complete = sum(sizes) == len(wanted) and set().union(*held) == set(wanted)
        return complete and max(sizes) - min(sizes) <= 1

    try:
        wait_until(settled, f"{len(members)} members share {len(wanted)} partitions", timeout, every)
    except AssertionError as problem:
        raise AssertionError(f"{problem}; they have {held}; {[one.failure() for one in members]}") from None
    return held


def numbers(first: int, count: int, partitions: int) -> list[Message]:
    """Messages whose values are consecutive numbers, spread over the partitions."""
    return [Message(f"{n}".encode(), None, n % partitions) for n in range(first, first + count)]


def arrived(members: Sequence[Member], count: int, timeout: float = WAITS_S) -> list[Seen]:
    """Wait until the members, together and since their beginning, have got *count* records, not one twice."""
    found: list[Seen] = []

    def there() -> bool:
        found[:] = [one for member in members for one in member.records()]
        return len(found) >= count

    try:
        wait_until(there, f"{count} records", timeout, every=0.05)
    except AssertionError as problem:
        raise AssertionError(f"{problem}; {len(found)} are there; {[one.failure() for one in members]}") from None
    twice = [one for one, times in Counter(found).items() if times > 1]
    who = {one: [place for place, member in enumerate(members) if one in member.records()] for one in sorted(twice)}
    assert not twice, f"records that came twice, and to which of the members: {who}"
    assert len(found) == count
    return found


def kind_of(client: ConfluentClient, group: str) -> str:
    """`consumer` or `classic`, as ListGroups says it."""
    listed = client.admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
    (found,) = [one for one in listed.valid if one.group_id == group]
    return {ConsumerGroupType.CONSUMER: "consumer", ConsumerGroupType.CLASSIC: "classic"}[found.type]
