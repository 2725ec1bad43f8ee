"""Random members and administrators of share groups, over a log that refuses, lags, loses what was not committed, share
coordinators that refuse, are slow, lose answers and hear late of those that are gone, topics that come, grow and go;
the seed is the bug report.

After each step:

- member epoch ≤ target epoch ≤ group epoch, and none of them falls while the member or the group lives;
- no partition is initializing and initialized, and none of a topic that is to be forgotten is either;
- what a member has it subscribes to, and the share coordinator knew it when it was assigned;
- what is in memory is what replaying the log gives; each request gets one answer.

In the end the faults stop: within two heartbeats of each member past the interval the group is at rest, all at the
target's epoch, each partition of a subscribed topic with somebody. More seeds: BARNABAS_SHARE_SEEDS.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.tests.share_groups.share_group_kit import ShareGroupKit, topic_id
from barnabas.kproto import ErrorCode

E = ErrorCode
SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40"))
NAMES = ("t", "u", "v")
LOG_ERRORS = (E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.MESSAGE_TOO_LARGE)
STORE_ERRORS = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.UNKNOWN_TOPIC_OR_PARTITION)


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        config = ShareGroupConfig(assignment_interval_ms=rng.choice((0, 1_000)), max_size=4)
        self.kit = ShareGroupKit(config, t=2)
        self.epochs: dict[str, int] = {}
        self.group_epochs: tuple[int, int] = (0, 0)
        self.joined = 0
        self.loads = 0

    def step(self) -> None:
        rng, kit = self.rng, self.kit
        dice = rng.random()
        if dice < 0.5:
            self.beat(rng.choice("abcde"))
        elif dice < 0.6:
            kit.advance(rng.choice((0.3, 1.0, 5.0, 20.0, 50.0)))
        elif dice < 0.7:
            self.move_topics()
        elif dice < 0.76:
            self.administrate()
        elif dice < 0.82:
            kit.store_waits = rng.random() < 0.5
            kit.store_error = rng.choice(STORE_ERRORS) if rng.random() < 0.3 else E.NONE
            while kit.asked and not kit.store_waits:
                kit.store_now()
        elif dice < 0.86 and kit.asked:
            kit.store_now(is_lost=rng.random() < 0.3)
        elif dice < 0.86 and kit.late:
            kit.store_late()
        elif dice < 0.9:
            kit.refuse = rng.choice(LOG_ERRORS) if rng.random() < 0.5 else None
        elif dice < 0.94:
            kit.commit_lag = rng.random() < 0.4
            if not kit.commit_lag:
                kit.commit()
        elif dice < 0.96:
            kit.time_out_commits()
        elif dice < 0.99:
            is_lost = rng.random() < 0.5
            kit.restart(lose_uncommitted=is_lost)
            self.loads += 1
            # Epochs that were not committed may come again.
            self.epochs.clear()
            self.group_epochs = (0, 0)
        self.check()

    def beat(self, name: str) -> None:
        rng, kit = self.rng, self.kit
        group = kit.groups.groups.get("g")
        member = None if group is None else group.members.get(name)
        if member is None or rng.random() < 0.1:
            kit.send(name, 0, *rng.sample(NAMES, rng.randint(1, 3)))
            self.epochs.pop(name, None)
            self.joined += 1
            return
        dice = rng.random()
        if dice < 0.1:
            kit.send(name, -1)
        elif dice < 0.2:
            kit.send(name, member.standing.epoch, *rng.sample(NAMES, rng.randint(1, 3)))
        elif dice < 0.25:
            kit.send(name, rng.choice((member.standing.previous_epoch, member.standing.epoch + 1)))
        else:
            kit.send(name, member.standing.epoch)

    def move_topics(self) -> None:
        rng, kit = self.rng, self.kit
        name = rng.choice(NAMES)
        topic = kit.topics.by_name.get(name)
        if topic is None:
            kit.set_topics(**{name: rng.randint(1, 3)})
        elif rng.random() < 0.4:
            kit.set_topics(**{name: topic.partition_count + 1})
        else:
            kit.set_topics(**{name: None})

    def administrate(self) -> None:
        rng, kit = self.rng, self.kit
        token, dice = kit.token(), rng.random()
        if dice < 0.4:
            places = [
                (topic.topic_id, number)
                for topic in kit.topics.by_name.values()
                for number in range(topic.partition_count)
            ]
            some = rng.sample(places, rng.randint(0, len(places)))
            kit.run(kit.groups.alter_offsets("g", {place: rng.randrange(99) for place in some}, token, kit.now))
        elif dice < 0.8:
            kit.run(kit.groups.delete_offsets("g", {kit.topic_id(rng.choice(NAMES))}, token))
        else:
            kit.run(kit.groups.delete_group("g", token))

    # -- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        kit = self.kit
        group = kit.groups.groups.get("g")
        if group is None:
            self.epochs.clear()
            self.group_epochs = (0, 0)
            assert kit.context.deadlines.next() is None
            return
        assert group.target_epoch <= group.epoch
        assert self.group_epochs <= (group.epoch, group.target_epoch)
        assert self.group_epochs[1] <= group.target_epoch
        self.group_epochs = (group.epoch, group.target_epoch)
        self.epochs = {name: epoch for name, epoch in self.epochs.items() if name in group.members}
        names = Counter(name for member in group.members.values() for name in member.metadata.topic_names)
        assert group.counts.names == names
        for name, member in group.members.items():
            standing = member.standing
            assert self.epochs.get(name, 0) <= standing.epoch <= group.target_epoch
            self.epochs[name] = standing.epoch
            subscribed = {topic_id(each)[:15] for each in member.metadata.topic_names}
            assert {topic[:15] for topic in standing.assigned} <= subscribed, "of this topic, or one of that name"
            assert (group.group_id, Due.SHARE_HEARTBEAT, name) in kit.context.deadlines
        assert len(kit.context.deadlines) == len(group.members)
        known = group.partitions
        for topic, named in known.initializing.items():
            assert named.partitions
            assert topic not in known.initialized or not named.partitions & known.initialized[topic].partitions
        for topic in known.deleting:
            assert topic not in known.initialized
            assert topic not in known.initializing

    def check_replay(self) -> None:
        kit = self.kit
        kit.refuse = None
        before = kit.hard()
        kit.restart()
        assert kit.hard() == before
        assert not kit.open

    def heal(self) -> None:
        kit = self.kit
        self.check_replay()
        kit.refuse, kit.commit_lag, kit.store_waits, kit.store_error = None, False, False, E.NONE
        kit.commit()
        while kit.asked:
            kit.store_now()
        while kit.late:
            kit.store_late()
        if "t" not in kit.topics.by_name:
            kit.set_topics(t=3)
        for name in ("a", "b"):
            members = kit.group().members if "g" in kit.groups.groups else {}
            if name not in members and len(members) < 4:
                kit.beat(name, 0, "t")
        group = kit.group()
        kit.settle(*group.members, rounds=4)
        assert group.epoch == group.target_epoch
        assert group.is_all_assigned()
        subscribed = {kit.topic_id(name) for name in group.counts.names}
        assert not subscribed & group.partitions.initializing.keys()
        holders: Counter[tuple[bytes, int]] = Counter()
        for member in group.members.values():
            assert member.standing.epoch == group.target_epoch
            holders.update((topic, each) for topic, numbers in member.standing.assigned.items() for each in numbers)
        for name in group.counts.names:
            topic = kit.topics.by_name.get(name)
            for number in range(topic.partition_count if topic is not None else 0):
                assert holders[kit.topic_id(name), number] >= 1
                assert ("g", kit.topic_id(name), number) in kit.store
        length = len(kit.log)
        kit.settle(*group.members, rounds=2)
        assert len(kit.log) == length, "at rest nothing is written"


def run(seed: int, steps: int = 150) -> Run:
    found = Run(seed)
    try:
        for _ in range(steps):
            found.step()
        found.heal()
        found.check_replay()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return found


def test_random_members() -> None:
    runs = [run(seed) for seed in range(SEEDS)]
    assert sum(each.joined for each in runs) > 5 * SEEDS
    assert sum(each.loads for each in runs) > SEEDS // 2


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(10_000, 14_000, 1_000))
def test_more_random_members(first: int) -> None:
    for seed in range(first, first + 1_000):
        run(seed)
