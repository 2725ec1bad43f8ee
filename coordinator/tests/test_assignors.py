"""Server-side assignors: the same results as Apache Kafka's, and what must hold for any group."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignment,
    Members,
    TopicId,
    assign_range,
    assign_uniform,
)

KAFKAS = Path(__file__).parent / "data" / "assignors_kafka.txt"


def topic(number: int) -> TopicId:
    return bytes(8) + number.to_bytes(8, "big")


A, B, C = topic(1), topic(2), topic(3)


def parsed(text: str) -> Assignment:
    """`topic:partition.partition/topic:…`"""
    pairs = (each.split(":") for each in text.split("/") if each)
    return {topic(int(number)): frozenset(map(int, partitions.split("."))) for number, partitions in pairs}


def test_results_are_apache_kafkas() -> None:
    """Random groups, and what 4.3.1 made of them when asked for members and topics in our order. A line: assignor,
    partition counts, members (id; instance id; subscription; present target), targets.
    """
    lines = KAFKAS.read_text().splitlines()
    assert len(lines) == 240
    for number, line in enumerate(lines, 1):
        name, counts, members, targets = line.split("|")
        asked = {}
        for member in members.split(" "):
            member_id, instance_id, topics, assigned = member.split(";")
            subscribed = frozenset(topic(int(each)) for each in topics.split(",") if each)
            asked[member_id] = AssignedMember(subscribed, parsed(assigned), None if instance_id == "-" else instance_id)
        pairs = (each.split(":") for each in counts.split(","))
        target = ASSIGNORS[name](asked, {topic(int(key)): int(count) for key, count in pairs})
        told = (each.split(";") for each in targets.split(" "))
        assert target == {member_id: parsed(text) for member_id, text in told}, f"line {number}"


def test_range_gives_the_same_run_of_topics_that_have_equally_many() -> None:
    members = {member_id: AssignedMember(frozenset({A, B})) for member_id in ("m", "n", "o")}
    target = assign_range(members, {A: 5, B: 5})
    assert target["m"] == {A: {0, 1}, B: {0, 1}}
    assert target["n"] == {A: {2, 3}, B: {2, 3}}
    assert target["o"] == {A: {4}, B: {4}}


def test_range_keeps_the_place_of_static_members() -> None:
    def members(second: str) -> Members:
        return {
            "z": AssignedMember(frozenset({A}), instance_id="1"),
            second: AssignedMember(frozenset({A}), instance_id="2"),
            "b": AssignedMember(frozenset({A})),
        }

    before, after = assign_range(members("a"), {A: 3}), assign_range(members("y"), {A: 3})
    assert (before["z"], before["a"], before["b"]) == ({A: {0}}, {A: {1}}, {A: {2}})
    assert after["y"] == before["a"]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_groups_without_anything_to_give(name: str) -> None:
    assign = ASSIGNORS[name]
    assert assign({}, {}) == {}
    assert assign({"m": AssignedMember(frozenset(), {A: frozenset({0})})}, {A: 1}) == {"m": {}}
    assert assign({"m": AssignedMember(frozenset({A}))}, {A: 0}) == {"m": {}}
    with pytest.raises(KeyError):
        assign({"m": AssignedMember(frozenset({A}))}, {})
    with pytest.raises(KeyError):
        assign({"m": AssignedMember(frozenset({A})), "n": AssignedMember(frozenset())}, {})


def test_what_no_longer_exists_is_dropped() -> None:
    """Topics were deleted, or created anew with fewer partitions."""
    kept = AssignedMember(frozenset({A}), {A: frozenset({0, 7}), C: frozenset({1})})
    for other in (AssignedMember(frozenset({A})), AssignedMember(frozenset({A, B}))):
        target = assign_uniform({"m": kept, "n": other}, {A: 2, B: 2})
        assert 0 in target["m"][A]
        assert C not in target["m"]
        assert all(partition < 2 for given in target.values() for each in given.values() for partition in each)


class Group:
    """A random group that changes step by step; each target is the next one's present."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.same = rng.random() < 0.5
        self.counts = {topic(i): rng.choice((1, 3, 8, 20)) for i in range(1, rng.randint(2, 6))}
        self.subscriptions: dict[str, frozenset[TopicId]] = {}
        self.target: dict[str, Assignment] = {}
        for _ in range(rng.randint(1, 6)):
            self.join()

    def join(self) -> None:
        everything = frozenset(self.counts)
        some = frozenset(each for each in sorted(everything) if self.rng.random() < 0.6)
        self.subscriptions[f"m{self.rng.randrange(10**6)}"] = everything if self.same else some

    def change(self) -> None:
        kind = self.rng.randrange(4)
        if kind == 0 and len(self.subscriptions) > 1:
            del self.subscriptions[self.rng.choice(sorted(self.subscriptions))]
        elif kind == 1:
            self.counts[self.rng.choice(sorted(self.counts))] += self.rng.randint(1, 5)
        elif kind == 2 and not self.same:
            changed = self.rng.choice(sorted(self.subscriptions))
            self.subscriptions[changed] = frozenset(each for each in sorted(self.counts) if self.rng.random() < 0.6)
        else:
            self.join()

    def members(self) -> Members:
        return {
            member_id: AssignedMember(topics, self.target.get(member_id, {}))
            for member_id, topics in self.subscriptions.items()
        }


def owners(target: dict[str, Assignment]) -> dict[tuple[TopicId, int], str]:
    """The member of each partition; no two have the same."""
    found: dict[tuple[TopicId, int], str] = {}
    for member_id, given in target.items():
        for each, partitions in given.items():
            assert partitions
            for partition in partitions:
                assert (each, partition) not in found
                found[each, partition] = member_id
    return found


@pytest.mark.parametrize("name", ASSIGNORS)
def test_any_group(name: str) -> None:
    for seed in range(60):
        group = Group(seed)
        for _ in range(6):
            check(name, group, f"seed {seed}")
            group.change()


def check(name: str, group: Group, where: str) -> None:
    assign, counts, members = ASSIGNORS[name], group.counts, group.members()
    target = assign(members, counts)
    found = owners(target)
    assert target.keys() == members.keys(), where
    assert all(each in members[member_id].topics for (each, _), member_id in found.items()), where
    subscribed = {each for member in members.values() for each in member.topics}
    assert found.keys() == {(each, i) for each in subscribed for i in range(counts[each])}, where
    # The order in which members are told does not matter, and what is settled stays.
    assert assign(dict(reversed(list(members.items()))), counts) == target, where
    before = owners(group.target)
    group.target = target
    assert assign(group.members(), counts) == target, where
    sizes = {member_id: sum(map(len, given.values())) for member_id, given in target.items()}
    if name == "range":
        for each in subscribed:
            lengths = {
                len(target[member_id].get(each, ())) for member_id in members if each in members[member_id].topics
            }
            assert max(lengths) - min(lengths) <= 1, where
    elif group.same:
        assert max(sizes.values()) - min(sizes.values()) <= 1, where
        is_sticky(before, found, members, sizes, where)
    else:
        # Nobody could take a partition over from somebody who has two more.
        for (each, _), member_id in found.items():
            for other, member in members.items():
                assert each not in member.topics or sizes[member_id] - sizes[other] <= 1, where


def is_sticky(
    before: dict[tuple[TopicId, int], str],
    found: dict[tuple[TopicId, int], str],
    members: Members,
    sizes: dict[str, int],
    where: str,
) -> None:
    """No member lost a partition, but to be no larger than allowed."""
    smallest = min(sizes.values())
    for partition, member_id in before.items():
        if member_id in members and partition in found and found[partition] != member_id:
            assert sizes[member_id] >= smallest, where
            had = sum(1 for each, owner in before.items() if owner == member_id and each in found)
            assert had > sizes[member_id] - 1, where
            kept = sum(1 for each, owner in before.items() if owner == member_id == found.get(each))
            assert kept == sizes[member_id], f"{where}: {member_id} was given others instead"
