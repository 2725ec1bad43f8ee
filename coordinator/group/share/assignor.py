"""The assignor of share groups, `simple`: partitions are spread evenly over members; where there are more members than
partitions, several share one.

Each partition gets `share` = ceil(members / partitions) members. What a member is to have differs by one at most. Even
comes before sticky, but nothing moves that need not. Members are taken by id, topics by id, so the same input gives the
same target; Apache Kafka takes both as its hash maps have them. If subscriptions differ, each topic is spread over
its subscribers on its own. Racks are not looked at. Source: `SimpleAssignor` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from barnabas.coordinator.group.consumer.assignors import AssignedMember, Assignment, TopicId

NAME: Final = "simple"
Place = tuple[TopicId, int]


def assign_simple(
    members: Mapping[str, AssignedMember], partitions: Mapping[TopicId, Collection[int]]
) -> dict[str, Assignment]:
    """The next target of every member. partitions: those that may be assigned, by topic."""
    places: dict[str, set[Place]] = {member_id: set() for member_id in members}
    if len({member.topics for member in members.values()}) <= 1:
        topics = next(iter(members.values())).topics if members else frozenset()
        wanted = [(topic, number) for topic in sorted(topics) for number in sorted(partitions.get(topic, ()))]
        _spread(sorted(members), wanted, members, places)
    else:
        subscribers: dict[TopicId, list[str]] = {}
        for member_id in sorted(members):
            for topic in members[member_id].topics:
                subscribers.setdefault(topic, []).append(member_id)
        for topic in sorted(subscribers):
            wanted = [(topic, number) for number in sorted(partitions.get(topic, ()))]
            _spread(subscribers[topic], wanted, members, places)
    target: dict[str, Assignment] = {}
    for member_id, found in places.items():
        by_topic: dict[TopicId, set[int]] = {}
        for topic, number in sorted(found):
            by_topic.setdefault(topic, set()).add(number)
        target[member_id] = {topic: frozenset(numbers) for topic, numbers in by_topic.items()}
    return target


def _spread(
    member_ids: Sequence[str],
    wanted: Sequence[Place],
    members: Mapping[str, AssignedMember],
    places: Mapping[str, set[Place]],
) -> None:
    """Give each of `wanted` to so many of the members, and add them to `places`."""
    if not wanted or not member_ids:
        return
    share = -(-len(member_ids) // len(wanted))
    total = share * len(wanted)
    least, more = divmod(total, len(member_ids))
    there = set(wanted)
    had = {
        member_id: [
            place
            for topic, numbers in sorted(members[member_id].assigned.items())
            for place in ((topic, number) for number in sorted(numbers))
            if place in there
        ]
        for member_id in member_ids
    }
    # Those who have most keep most.
    order = sorted(member_ids, key=lambda member_id: (-len(had[member_id]), member_id))
    limits = {member_id: least + (position < more) for position, member_id in enumerate(order)}
    holders: dict[Place, set[str]] = {place: set() for place in wanted}
    given: dict[str, set[Place]] = {member_id: set() for member_id in member_ids}
    for member_id in order:
        for place in had[member_id]:
            if len(given[member_id]) < limits[member_id] and len(holders[place]) < share:
                given[member_id].add(place)
                holders[place].add(member_id)
    unfilled = deque(member_id for member_id in member_ids if len(given[member_id]) < limits[member_id])
    for place in wanted:
        for _ in range(len(unfilled)):
            if len(holders[place]) == share:
                break
            member_id = unfilled.popleft()
            if member_id not in holders[place]:
                given[member_id].add(place)
                holders[place].add(member_id)
            if len(given[member_id]) < limits[member_id]:
                unfilled.append(member_id)
    _swap(wanted, share, holders, given, limits)
    for member_id, found in given.items():
        places[member_id].update(found)


def _swap(
    wanted: Sequence[Place],
    share: int,
    holders: Mapping[Place, set[str]],
    given: Mapping[str, set[Place]],
    limits: Mapping[str, int],
) -> None:
    """Who has room left has all that is left over: he takes something else, from one who takes that instead."""

    def has_room(member_id: str) -> bool:
        return len(given[member_id]) < limits[member_id]

    def give(member_id: str, place: Place) -> None:
        given[member_id].add(place)
        holders[place].add(member_id)

    for place in wanted:
        while len(holders[place]) < share:
            others = [member_id for member_id in given if member_id not in holders[place]]
            free = next(filter(has_room, others), None)
            if free is not None:
                give(free, place)
                continue
            taker = next(filter(has_room, given))
            giver, other = next(
                (member_id, other)
                for member_id in others
                for other in sorted(given[member_id])
                if other not in given[taker]
            )
            given[giver].remove(other)
            holders[other].remove(giver)
            give(giver, place)
            give(taker, other)
