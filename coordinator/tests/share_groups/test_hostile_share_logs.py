"""Logs of share groups and of share coordinators that can be read and make no sense: reading them, serving what came
out and letting time pass must raise nothing and come to rest; what is answered can be encoded.

Random records out of extreme values; the seed is the bug report. More seeds: BARNABAS_HOSTILE_SEEDS. Not covered: what
is left of such groups need not be useful, only harmless.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from barnabas.coordinator.group.consumer.state import NOTHING_KNOWN
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.stored import (
    InitializedPartitions,
    NamedPartitions,
    ShareRecord,
    ShareStanding,
    StatePartitions,
    share_record,
)
from barnabas.coordinator.share import (
    LogBatch,
    PartitionState,
    ShareKey,
    SharePartition,
    ShareSettings,
    ShareState,
    StateBatch,
    StateConfig,
    Wanted,
)
from barnabas.coordinator.share.state_stored import ShareChange, snapshot_record, update_record
from barnabas.coordinator.share.states import AcquireMode
from barnabas.coordinator.tests.share.state_kit import KEY, TOPIC_ID, StateKit
from barnabas.coordinator.tests.share_groups.share_group_kit import ShareGroupKit, topic_id
from barnabas.kproto import ErrorCode, encode
from barnabas.kproto.messages import ShareGroupDescribeResponse

SEEDS = int(os.environ.get("BARNABAS_HOSTILE_SEEDS", "60"))
INT16 = (-(2**15), -1, 0, 1, 2, 4, 3, 2**15 - 1)
INT32 = (-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 2, 2**31 - 1)
INT64 = (-(2**63), -2, -1, 0, 3, 5, 9, 2**62, 2**63 - 1)
NAMES = ("t", "u", "gone")


class Hostile:
    def __init__(self, random: Random) -> None:
        self.random = random

    def some(self, things: Any, most: int = 3) -> list[Any]:
        return [self.random.choice(things) for _ in range(self.random.randint(0, most))]

    def numbers(self) -> frozenset[int]:
        return frozenset(self.some((0, 1, 2, 99, -1, 2**31 - 1)))

    def by_topic(self) -> dict[bytes, frozenset[int]]:
        return {topic_id(name): self.numbers() for name in self.some(NAMES)}

    def named(self) -> dict[bytes, NamedPartitions]:
        return {topic_id(name): NamedPartitions(self.random.choice(NAMES), self.numbers()) for name in self.some(NAMES)}

    def group(self) -> ShareRecord:
        random = self.random
        group_id, member_id = random.choice("gh"), random.choice("abc")
        is_gone = random.random() < 0.1
        kind = random.randrange(6)
        if kind == 0:
            return GroupEpoch(group_id, None if is_gone else random.choice(INT32), random.choice(INT64))
        if kind == 1:
            names = frozenset(self.some((*NAMES, "")))
            return Member(group_id, member_id, None if is_gone else NOTHING_KNOWN._replace(topic_names=names))
        if kind == 2:
            return TargetEpoch(group_id, None if is_gone else random.choice(INT32), random.choice(INT64))
        if kind == 3:
            return TargetMember(group_id, member_id, None if is_gone else self.by_topic())
        if kind == 4:
            standing = ShareStanding(random.choice(INT32), random.choice(INT32), self.by_topic())
            return MemberStanding(group_id, member_id, None if is_gone else standing)
        deleting = {topic_id(name): random.choice(NAMES) for name in self.some(NAMES)}
        known = InitializedPartitions(self.named(), self.named(), deleting)
        return StatePartitions(group_id, None if is_gone else known)

    def batches(self) -> tuple[StateBatch, ...]:
        random = self.random
        return tuple(
            StateBatch(
                random.choice(INT64), random.choice(INT64), random.choice((0, 1, 2, 3, 4, -1)), random.choice(INT16)
            )
            for _ in range(random.randint(0, 4))
        )

    def state(self, key: ShareKey) -> Any:
        random = self.random
        dice = random.random()
        if dice < 0.1:
            return snapshot_record(key, None)
        if dice < 0.5:
            change = ShareChange(
                *(random.choice(each) for each in (INT32, INT32, INT64, INT32)), batches=self.batches()
            )
            return update_record(key, change)
        state = ShareState(
            *(random.choice(each) for each in (INT32, INT32, INT32, INT64, INT32, INT64, INT64)), batches=self.batches()
        )
        return snapshot_record(key, state)


def groups_of(seed: int) -> None:
    random = Random(seed)
    hostile = Hostile(random)
    kit = ShareGroupKit(ShareGroupConfig(assignment_interval_ms=random.choice((0, 1_000))), t=2, u=1)
    kit.log = [share_record(hostile.group()) for _ in range(random.randint(1, 30))]
    kit.restart()
    for step in range(30):
        name, group_id = random.choice("abcd"), random.choice("gh")
        dice = random.random()
        if dice < 0.6:
            group = kit.groups.groups.get(group_id)
            member = None if group is None else group.members.get(name)
            epoch = random.choice((0, 0 if member is None else member.standing.epoch))
            answer = kit.beat(name, epoch, *hostile.some(NAMES), group=group_id)
            encode(answer, 1)
        elif dice < 0.7:
            kit.advance(random.choice((1.0, 50.0)))
        elif dice < 0.8:
            topic = random.choice(NAMES)
            kit.set_topics(**{topic: None if topic in kit.topics.by_name and random.random() < 0.3 else 3})
        else:
            token = kit.token()
            if dice < 0.9:
                kit.run(kit.groups.delete_group(group_id, token))
            else:
                kit.run(kit.groups.delete_offsets(group_id, {topic_id("t")}, token))
        described = [kit.groups.describe(each) for each in "gh"]
        encode(ShareGroupDescribeResponse(groups=described), 1)
        list(kit.groups.looked_through((), ()))
        assert len(kit.log) < 2_000, step
    kit.advance(1_000)
    assert kit.context.deadlines.next() is None
    assert not kit.open


def states_of(seed: int) -> None:
    random = Random(seed)
    hostile = Hostile(random)
    kit = StateKit(StateConfig(snapshot_update_records_per_snapshot=random.choice((0, 2, 500))))
    keys = [KEY, KEY._replace(partition=1), ShareKey("", TOPIC_ID, -1)]
    kit.log = [hostile.state(random.choice(keys)) for _ in range(random.randint(1, 20))]
    kit.restart()
    for _ in range(20):
        key = random.choice(keys)
        dice = random.random()
        if dice < 0.2:
            kit.initialize(key, random.choice(INT32), random.choice(INT64))
        elif dice < 0.4:
            found = kit.read(key, random.choice(INT32))
            if found.code == ErrorCode.NONE:
                load(found.start_offset, found.batches)
        elif dice < 0.8:
            kit.write(
                *hostile.batches(),
                key=key,
                start_offset=random.choice(INT64),
                state_epoch=random.choice(INT32),
                leader_epoch=random.choice(INT32),
                complete=random.choice(INT32),
            )
        elif dice < 0.9:
            kit.delete(key)
        else:
            kit.seconds += 400
            for result in kit.shard.snapshot_old(kit.now):
                kit.run(result)
            kit.prune()
        kit.summary(key)
    # A snapshot that is behind its own fence, as none writes it, takes the fence along when the log is cut off.
    before = {key: found.state._replace(leader_epoch=0) for key, found in kit.shard.store.partitions.items()}
    kit.restart()
    after = {key: found.state._replace(leader_epoch=0) for key, found in kit.shard.store.partitions.items()}
    assert after == before
    assert not kit.open


def load(start_offset: int, batches: Any) -> None:
    """Whatever a store says, the partition is served or is not."""
    kit = StateKit()
    partition = SharePartition(1, ShareSettings)
    partition.load()
    partition.loaded(ErrorCode.NONE, 1, start_offset, batches)
    partition.resolved(0)
    assert partition.state in (PartitionState.ACTIVE, PartitionState.ENDED)
    if partition.state is PartitionState.ACTIVE:
        offset = partition.next_fetch_offset
        wanted = Wanted("a", AcquireMode.BATCH_OPTIMIZED, 1, 1)
        partition.acquire(wanted, offset, [LogBatch(offset, offset + 3)], (), kit.now)


def test_groups() -> None:
    for seed in range(SEEDS):
        try:
            groups_of(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_states() -> None:
    for seed in range(SEEDS):
        try:
            states_of(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
