"""One member's way to its target: the same steps as Apache Kafka's, and what a whole group comes to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from barnabas.coordinator.group.consumer.assignors import AssignedMember, TopicId, assign_uniform
from barnabas.coordinator.group.consumer.reconcile import Held, MemberState, Standing, Target, reconcile

KAFKAS = Path(__file__).parent / "data" / "reconcile_kafka.txt"
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def topic(number: int) -> TopicId:
    return bytes(8) + number.to_bytes(8, "big")


A, B = topic(1), topic(2)


def held(text: str) -> dict[TopicId, dict[int, int]]:
    """`topic:partition@epoch.partition@epoch/topic:…`; without epochs: 0."""
    found: dict[TopicId, dict[int, int]] = {}
    for each in filter(None, text.split("/")):
        number, partitions = each.split(":")
        pairs = (partition.partition("@") for partition in partitions.split("."))
        found[topic(int(number))] = {int(partition): int(epoch or 0) for partition, _, epoch in pairs}
    return found


def test_steps_are_apache_kafkas() -> None:
    """Random members, and where 4.3.1 took them. A line: epoch, previous epoch, state, assigned, revoking; epoch and
    partitions of the target; subscription, whether it changed, what the member owns (`-`: did not say), what somebody
    has; then the first five again, or "fenced".
    """
    lines = KAFKAS.read_text().splitlines()
    assert len(lines) == 300
    for number, line in enumerate(lines, 1):
        before, rest, after = line.split("|")[:5], line.split("|")[5:11], line.split("|")[11:]
        target_epoch, wanted, subscribed, changed, owned, busy = rest
        taken = held(busy)
        found = reconcile(
            standing(before),
            Target(int(target_epoch), held(wanted)),
            {topic(int(each)) for each in subscribed.split(",") if each},
            changed == "1",
            None if owned == "-" else held(owned),
            lambda each, partition, taken=taken: partition not in taken.get(each, ()),
        )
        assert found == (None if after == ["fenced"] else standing(after)), f"line {number}"


def standing(fields: list[str]) -> Standing:
    epoch, previous_epoch, state, assigned, revoking = fields
    return Standing(int(epoch), int(previous_epoch), MemberState.stored(int(state)), held(assigned), held(revoking))


def step(
    before: Standing,
    target: Target,
    owned: Mapping[TopicId, Mapping[int, int]] | None = None,
    *,
    busy: Held | None = None,
    subscribed: tuple[TopicId, ...] = (A, B),
    changed: bool = False,
) -> Standing:
    taken = busy or {}
    found = reconcile(
        before, target, subscribed, changed, owned, lambda each, partition: partition not in taken.get(each, ())
    )
    assert found is not None
    return found


def test_a_new_member_gets_what_is_free_and_waits_for_the_rest() -> None:
    new = Standing(0, -1, STABLE, {}, {})
    target = Target(3, {A: {0, 1}})
    waiting = step(new, target, {}, busy={A: {1: 2}})
    assert waiting == Standing(3, 0, UNRELEASED, {A: {0: 3}}, {})
    assert step(waiting, target, busy={A: {0: 3, 1: 2}}) == waiting._replace(previous_epoch=3)
    assert step(waiting, target, busy={A: {0: 3}}) == Standing(3, 3, STABLE, {A: {0: 3, 1: 3}}, {})


def test_a_member_keeps_its_epoch_until_it_gave_up_what_it_must() -> None:
    before = Standing(3, 2, STABLE, {A: {0: 1, 1: 3}}, {})
    target = Target(4, {A: {0}, B: {0}})
    revoking = step(before, target)
    assert revoking == Standing(3, 3, UNREVOKED, {A: {0: 1}}, {A: {1: 3}})
    assert step(revoking, target) is revoking
    assert step(revoking, target, {A: {0: 0, 1: 0}}) is revoking
    assert step(revoking, target, {A: {0: 0}}) == Standing(4, 3, STABLE, {A: {0: 1}, B: {0: 4}}, {})


def test_nothing_to_do() -> None:
    settled = Standing(4, 3, STABLE, {A: {0: 1}}, {})
    assert step(settled, Target(4, {A: {0}})) is settled
    assert step(settled, Target(4, {A: {0}}), changed=True) is settled


def test_a_topic_that_is_no_longer_subscribed_to_is_given_up_at_once() -> None:
    before = Standing(4, 3, STABLE, {A: {0: 1}, B: {0: 2}}, {})
    target = Target(4, {A: {0}, B: {0}})
    revoking = step(before, target, subscribed=(B,), changed=True)
    assert revoking == Standing(4, 4, UNREVOKED, {B: {0: 2}}, {A: {0: 1}})
    assert step(before, target, {B: {0: 0}}, subscribed=(B,), changed=True).state is STABLE


def test_a_state_of_a_newer_release_fences_members_with_partitions() -> None:
    unknown = Standing(4, 3, MemberState.stored(42), {}, {})
    assert unknown.state is MemberState.UNKNOWN
    ask = (Target(5, {A: {0}}), (A,), False)
    assert reconcile(unknown, *ask, None, lambda *_: True) is None
    assert reconcile(unknown, *ask, {A: [0]}, lambda *_: True) is None
    assert step(unknown, Target(5, {A: {0}}), {}) == Standing(5, 4, STABLE, {A: {0: 5}}, {})


class Group:
    """Members that heartbeat in any order, and give things up when they please; targets come from the assignor."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.counts = {topic(i): rng.choice((2, 5, 9)) for i in (1, 2)}
        self.epoch = 0
        self.members: dict[str, Standing] = {}
        self.clients: dict[str, dict[TopicId, set[int]]] = {}
        self.targets: dict[str, dict[TopicId, frozenset[int]]] = {}

    def change(self) -> None:
        if self.rng.random() < 0.6 or len(self.members) < 2:
            name = f"m{self.rng.randrange(10**6)}"
            self.members[name] = Standing(0, -1, STABLE, {}, {})
            self.clients[name] = {}
        else:
            gone = self.rng.choice(sorted(self.members))
            del self.members[gone], self.clients[gone]
        everything = frozenset(self.counts)
        asked = {name: AssignedMember(everything, self.targets.get(name, {})) for name in self.members}
        self.targets = assign_uniform(asked, self.counts)
        self.epoch += 1

    def heartbeat(self, name: str) -> None:
        before, client = self.members[name], self.clients[name]
        tells = self.rng.random() < 0.7
        owned = {each: sorted(partitions) for each, partitions in client.items()} if tells else None
        target = Target(self.epoch, self.targets[name])
        after = reconcile(before, target, self.counts, False, owned, self.is_free)
        assert after is not None
        assert after.epoch >= before.epoch
        self.members[name] = after
        # The client gives up at once, but fetches from what it got only now.
        self.clients[name] = {each: set(partitions) for each, partitions in after.assigned.items()}
        if after.revoking and self.rng.random() < 0.5:
            for each, partitions in after.revoking.items():
                self.clients[name].setdefault(each, set()).update(partitions)

    def is_free(self, each: TopicId, partition: int) -> bool:
        return not any(
            partition in place.get(each, ())
            for member in self.members.values()
            for place in (member.assigned, member.revoking)
        )

    def nobody_shares(self) -> None:
        seen: set[tuple[TopicId, int]] = set()
        for client in self.clients.values():
            for each, partitions in client.items():
                for partition in partitions:
                    assert (each, partition) not in seen
                    seen.add((each, partition))


def test_no_partition_is_with_two_members_and_all_reach_their_target() -> None:
    for seed in range(60):
        group = Group(seed)
        for _ in range(60):
            if not group.members or group.rng.random() < 0.15:
                group.change()
            group.heartbeat(group.rng.choice(sorted(group.members)))
            group.nobody_shares()
        for _ in range(12):
            for name in sorted(group.members):
                group.heartbeat(name)
                group.nobody_shares()
        for _ in range(40):
            for name in sorted(group.members):
                group.heartbeat(name)
        for name, member in group.members.items():
            has = {each: frozenset(partitions) for each, partitions in member.assigned.items()}
            assert (member.epoch, member.state, has) == (group.epoch, STABLE, group.targets[name]), f"seed {seed}"
