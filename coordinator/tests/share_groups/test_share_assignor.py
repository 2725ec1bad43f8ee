"""The assignor of share groups: spread evenly, as few moves as that allows."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

from barnabas.coordinator.group.consumer.assignors import AssignedMember
from barnabas.coordinator.group.share.assignor import assign_simple

SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40"))
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def members(
    has: dict[str, dict[bytes, set[int]]], topics: frozenset[bytes] = frozenset({A})
) -> dict[str, AssignedMember]:
    return {
        name: AssignedMember(topics, {topic: frozenset(each) for topic, each in assigned.items()})
        for name, assigned in has.items()
    }


def test_nothing_to_give() -> None:
    assert assign_simple({}, {A: {0}}) == {}
    assert assign_simple(members({"a": {A: {0}}}), {}) == {"a": {}}
    assert assign_simple(members({"a": {}}), {B: {0}}) == {"a": {}}


def test_one_member_has_all() -> None:
    assert assign_simple(members({"a": {}}), {A: {0, 1, 2}}) == {"a": {A: {0, 1, 2}}}


def test_more_members_than_partitions() -> None:
    target = assign_simple(members({"a": {}, "b": {}, "c": {}}), {A: {0, 1}})
    holders = Counter(number for assigned in target.values() for number in assigned[A])
    assert holders == {0: 2, 1: 2}
    assert sorted(len(assigned[A]) for assigned in target.values()) == [1, 1, 2]


def test_members_keep_what_they_have() -> None:
    before = {"a": {A: {0, 1, 2, 3}}, "b": {}}
    target = assign_simple(members(before), {A: {0, 1, 2, 3}})
    assert target == {"a": {A: {0, 1}}, "b": {A: {2, 3}}}
    again = assign_simple(members(target), {A: {0, 1, 2, 3}})  # type: ignore[arg-type]
    assert again == target


def test_partitions_that_are_gone() -> None:
    assert assign_simple(members({"a": {A: {0, 7}, B: {1}}}), {A: {0, 1}}) == {"a": {A: {0, 1}}}


def test_topics_apart() -> None:
    different = {
        "a": AssignedMember(frozenset({A, B})),
        "b": AssignedMember(frozenset({A})),
        "c": AssignedMember(frozenset({C})),
    }
    target = assign_simple(different, {A: {0, 1}, B: {0}})
    assert target == {"a": {A: {0}, B: {0}}, "b": {A: {1}}, "c": {}}


def check(found: dict[str, AssignedMember], parts: dict[bytes, set[int]], target: dict[str, dict]) -> None:  # type: ignore[type-arg]
    is_equal = len({member.topics for member in found.values()}) <= 1
    assert target.keys() == found.keys()
    for name, assigned in target.items():
        assert assigned.keys() <= found[name].topics
        assert all(assigned.values())
        assert all(numbers <= parts[topic] for topic, numbers in assigned.items())
    for topic in parts:
        subscribers = [name for name, member in found.items() if topic in member.topics]
        holders = Counter(dict.fromkeys(parts[topic], 0))
        for assigned in target.values():
            holders.update(assigned.get(topic, ()))
        if subscribers and parts[topic]:
            assert min(holders.values()) >= 1, "each is with somebody"
            assert max(holders.values()) - min(holders.values()) == 0 or is_equal
    if is_equal and found:
        sizes = [sum(map(len, assigned.values())) for assigned in target.values()]
        assert max(sizes) - min(sizes) <= 1
        everyone = Counter((topic, number) for each in target.values() for topic in each for number in each[topic])
        assert len(set(everyone.values())) <= 1


def test_random_groups() -> None:
    for seed in range(SEEDS):
        rng = Random(seed)
        parts = {topic: set(range(rng.randrange(6))) for topic in (A, B, C)}
        found: dict[str, AssignedMember] = {}
        is_equal = rng.random() < 0.6
        for step in range(30):
            dice = rng.random()
            if dice < 0.45:
                topics = frozenset(parts) if is_equal else frozenset(rng.sample(sorted(parts), rng.randint(1, 3)))
                found[f"m{step}"] = AssignedMember(topics)
            elif dice < 0.75 and found:
                del found[rng.choice(sorted(found))]
            else:
                parts[rng.choice(sorted(parts))] = set(range(rng.randrange(9)))
            target = assign_simple(found, parts)
            try:
                check(found, parts, target)
                found = {name: member._replace(assigned=target[name]) for name, member in found.items()}
                again = assign_simple(found, parts)
                assert again == target, "nothing moves that need not"
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {step}")
                raise
