"""Random members of both protocols against a random coordinator, under virtual time; the seed is the bug report.

Consumers of the next generation and classic ones join, leave, crash, fall silent, change what they subscribe to, come
back with the other protocol or under the id they had, lose answers, are refused; topics come, grow and go; the
coordinator loses its partition at any point and is loaded again, its log refuses writes, commits them late or never.
After each step:

- what a consumer believes to have it has, and no partition is with two members;
- an offset that was committed is told, whatever becomes of the group;
- epochs only rise while a group lives: the member's to the target's, the target's to the group's;
- the machine's own books balance, and replaying the log gives the same hard state as having lived it;
- every request gets one answer (the kit counts), and who has none yet is known to the machine.

In the end the faults stop, and the group must come to rest with everybody who is still there and with every partition
that somebody subscribes to. More seeds: BARNABAS_GROUP_SEEDS.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.states import State
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.reconcile import MemberState
from barnabas.coordinator.group.member_counts import MemberCounts
from barnabas.coordinator.group.subscriptions import subscribed_topics
from barnabas.coordinator.tests.consumer_groups.consumer_kit import (
    AT_ONCE,
    ConsumerKit,
    Parts,
    assign,
    assigned,
    subscribe,
    topic_id,
)
from barnabas.coordinator.tests.test_random_behaviour import check_books as check_classic_books
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ConsumerGroupHeartbeatResponse, JoinGroupResponse, SyncGroupResponse

E = ErrorCode
NAMES = ("a", "b", "c", "d")
PATTERNS = ("a|b", "[b-d]", "z.*", "[")
"""The last one is refused."""
LOG_ERRORS = (E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.MESSAGE_TOO_LARGE)
REJOIN = (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)
COMMITTED = {("a", 0): 7, ("b", 3): 0}
POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
Owned = set[tuple[str, int]]


class Consumer:
    """As stock clients behave. `owned`: what it believes to have; `offered`: an assignment that it has not taken up."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.random = random
        self.lives = 0
        self.instance = name if random.random() < 0.4 else None
        self.topics = self.pick()
        self.start()

    def pick(self) -> tuple[str, ...]:
        return tuple(self.random.sample(NAMES, self.random.randint(1, 3)))

    def start(self, is_modern: bool | None = None) -> None:
        """The process begins anew."""
        self.lives += 1
        self.is_modern = self.random.random() < 0.7 if is_modern is None else is_modern
        self.pattern: str | None = "[" if self.is_modern and self.random.random() < 0.2 else None
        self.is_up = True
        self.silent_until = 0.0
        self.token: int | None = None
        self.member_id = f"{self.name}{self.lives}" if self.is_modern else ""
        self.forget()

    def forget(self) -> None:
        """Fenced: it has nothing, and joins anew."""
        self.epoch = 0
        self.owned: Owned = set()
        self.offered: Owned | None = None
        self.must_tell_all = True
        self.leads: dict[str, frozenset[str]] | None = None
        self.step = "join"
        if not self.is_modern:
            self.member_id = ""

    def subscription(self) -> dict[str, Any]:
        names: dict[str, Any] = {"subscribed_topic_names": list(self.topics) if self.pattern is None else []}
        return {**names, "subscribed_topic_regex": self.pattern or ""}

    def parts(self) -> Parts:
        parts: Parts = {}
        for topic, partition in sorted(self.owned):
            parts.setdefault(topic, []).append(partition)
        return parts

    def wants(self, existing: set[str]) -> set[str]:
        return {
            name for name in existing if (re.fullmatch(self.pattern, name) if self.pattern else name in self.topics)
        }


class World:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        policy = random.choice(POLICIES)
        interval_ms = random.choice((0, 1_000))
        self.kit = ConsumerKit(
            replace(
                AT_ONCE,
                consumer_migration_policy=policy,
                consumer_assignment_interval_ms=interval_ms,
                consumer_max_size=random.choice((2, 1_000)),
                group_initial_rebalance_delay_ms=random.choice((0, 3_000)),
            ),
            **{name: random.randint(1, 4) for name in NAMES[:3]},
        )
        self.consumers = [Consumer(name, random) for name in "mnopq"[: random.randint(2, 5)]]
        self.kit.answer(self.kit.commit_offsets(COMMITTED))
        self.faulty = True
        self.rising: tuple[object, int] = (None, 0)

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        return self.kit.shard.groups.get("g")

    # -- faults -----------------------------------------------------------------------------------

    def step(self) -> str:
        kit, random = self.kit, self.random
        if random.random() < 0.12:
            return self.mishap()
        consumer = random.choice(self.consumers)
        self.act(consumer)
        kit.advance(random.choice((0, 0.01, 0.5, 2, 5)))
        if random.random() < 0.5:
            kit.look_up()
        return f"{consumer.name} {'modern' if consumer.is_modern else 'classic'} {consumer.step} {consumer.epoch}"

    def mishap(self) -> str:
        kit, random = self.kit, self.random
        what = random.choice(
            ("refuse", "lag", "commit", "late", "restart", "topic", "topic", *["person"] * 4, "stranger", "wait")
        )
        consumer = random.choice(self.consumers)
        if what == "refuse":
            kit.refuse = random.choice((None, random.choice(LOG_ERRORS)))
        elif what == "lag":
            kit.commit_lag = True
        elif what == "commit":
            kit.commit_lag = False
            kit.commit()
        elif what == "late":
            kit.time_out_commits()
        elif what == "restart":
            kit.effects.clear()
            kit.restart(lose_uncommitted=random.random() < 0.7)
        elif what == "topic":
            name = random.choice(NAMES)
            there = kit.topics.by_name.get(name)
            if there is None:
                kit.set_topics(**{name: random.randint(1, 4)})
            elif random.random() < 0.5:
                kit.set_topics(**{name: there.partition_count + 1})
            elif len(kit.topics.by_name) > 1:
                kit.set_topics(**{name: None})
        elif what == "stranger":
            refused = kit.beat("stranger", 0, rebalance_timeout_ms=20_000, owned={}, subscribed_topic_regex="[")
            assert refused.error_code != E.NONE
        elif what == "wait":
            kit.advance(random.choice((11, 50)))
        else:
            what += f" {consumer.name} {self.trouble(consumer)}"
        return what

    def trouble(self, consumer: Consumer) -> str:
        random = self.random
        what = random.choice(("subscribe", "subscribe", "silent", "crash", "leave", "leave", "leave", "switch"))
        if what == "subscribe":
            consumer.topics = consumer.pick()
            consumer.pattern = random.choice((None, None, *PATTERNS)) if consumer.is_modern else None
            consumer.must_tell_all = True
            if not consumer.is_modern:
                consumer.step = "join"
        elif what == "silent":
            consumer.silent_until = self.kit.seconds + random.choice((3, 20, 60))
        elif what == "leave":
            self.leave(consumer)
        elif consumer.is_up:
            consumer.start(None if what == "crash" else not consumer.is_modern)
        else:
            consumer.start()
        return what

    def leave(self, consumer: Consumer) -> None:
        kept_id = None
        if consumer.token is None and consumer.member_id:
            if not consumer.is_modern:
                self.kit.leave_later(consumer.member_id)
            else:
                epoch = -2 if consumer.instance is not None and self.random.random() < 0.7 else -1
                self.kit.send(consumer.member_id, epoch, instance_id=consumer.instance)
                if epoch == -2 and self.random.random() < 0.5:
                    kept_id = consumer.member_id
        consumer.start(is_modern=None if kept_id is None else True)
        consumer.member_id = kept_id or consumer.member_id
        consumer.is_up = not self.faulty or self.random.random() < 0.7

    # -- consumers --------------------------------------------------------------------------------

    def act(self, consumer: Consumer) -> None:
        if not consumer.is_up or self.kit.seconds < consumer.silent_until:
            return
        if consumer.token is not None:
            if self.kit.waits(consumer.token):
                return
            token, consumer.token = consumer.token, None
            answer = self.kit.answer(token)
            if self.faulty and self.random.random() < 0.06:
                consumer.must_tell_all = True  # the answer got lost
                return
            self.answered(consumer, answer)
            return
        if consumer.offered is not None and (not self.faulty or self.random.random() < 0.7):
            consumer.owned, consumer.offered = consumer.offered, None
        if consumer.is_modern:
            self.beat(consumer)
        else:
            self.act_classic(consumer)

    def beat(self, consumer: Consumer) -> None:
        fields: dict[str, Any] = {"instance_id": consumer.instance}
        if consumer.epoch == 0:
            consumer.owned, consumer.offered = set(), None
        if consumer.offered is not None:
            # It says that it has not taken it up, so somebody else may get it: it asks what is its own by now.
            consumer.offered = None
            consumer.must_tell_all = True
        if consumer.must_tell_all or consumer.epoch == 0:
            fields |= {"rebalance_timeout_ms": 20_000, **consumer.subscription()}
            consumer.must_tell_all = False
        if "rebalance_timeout_ms" in fields or self.random.random() < 0.8:
            fields["owned"] = consumer.parts()
        consumer.token = self.kit.send(consumer.member_id, consumer.epoch, **fields)

    def act_classic(self, consumer: Consumer) -> None:
        kit = self.kit
        if consumer.step == "join":
            consumer.owned, consumer.offered = set(), None  # eagerly
            consumer.token = kit.join(
                consumer.member_id,
                instance=consumer.instance,
                session_ms=30_000,
                rebalance_ms=20_000,
                protocols=(("range", subscribe(*consumer.topics)),),
            )
        elif consumer.step == "sync":
            consumer.token = kit.sync(
                consumer.member_id, consumer.epoch, self.assign_all(consumer), instance=consumer.instance
            )
        else:
            self.told(consumer, kit.heartbeat(consumer.member_id, consumer.epoch, instance=consumer.instance))

    def assign_all(self, leader: Consumer) -> dict[str, bytes]:
        leads = leader.leads or {}
        by_member: dict[str, Parts] = {member_id: {} for member_id in leads}
        for topic in self.kit.topics.by_name.values():
            ids = [member_id for member_id, names in leads.items() if topic.name in names]
            for partition in range(topic.partition_count if ids else 0):
                by_member[ids[partition % len(ids)]].setdefault(topic.name, []).append(partition)
        return {member_id: assign(parts) for member_id, parts in by_member.items()}

    def answered(self, consumer: Consumer, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code != E.NONE:
            if code == E.MEMBER_ID_REQUIRED:
                consumer.member_id = answer.member_id
            self.told(consumer, code)
        elif isinstance(answer, ConsumerGroupHeartbeatResponse):
            assert answer.member_epoch >= consumer.epoch or consumer.epoch == 0
            consumer.epoch = answer.member_epoch
            if answer.assignment is not None:
                by_id = {topic_id(name): name for name in NAMES}
                parts = answer.assignment.topic_partitions
                consumer.offered = {(by_id[each.topic_id], i) for each in parts for i in each.partitions}
        elif isinstance(answer, JoinGroupResponse):
            consumer.member_id, consumer.epoch, consumer.step = answer.member_id, answer.generation_id, "sync"
            consumer.leads = {
                member.member_id: subscribed_topics([bytes(member.metadata)]) or frozenset()
                for member in answer.members
            }
        elif isinstance(answer, SyncGroupResponse):
            consumer.step = "beat"
            parts = assigned(answer.assignment) if answer.assignment else {}
            consumer.owned = {(name, i) for name, partitions in parts.items() for i in partitions}

    def told(self, consumer: Consumer, code: ErrorCode) -> None:
        """Do what clients do on an error."""
        consumer.must_tell_all = True
        if code in (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.FENCED_INSTANCE_ID, E.GROUP_ID_NOT_FOUND):
            consumer.forget()
        elif code == E.UNRELEASED_INSTANCE_ID:
            consumer.forget()
            consumer.silent_until = self.kit.seconds + 1
        elif code == E.INVALID_REGULAR_EXPRESSION:
            consumer.pattern = None
        elif code == E.GROUP_MAX_SIZE_REACHED:
            consumer.is_up = False
        elif code == E.INCONSISTENT_GROUP_PROTOCOL:
            consumer.start(is_modern=True)
        elif not consumer.is_modern and code != E.NONE and (consumer.step == "sync" or code in REJOIN):
            consumer.step = "join"

    # -- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        self.kit.check_tokens()
        assert self.kit.committed() == COMMITTED
        group = self.group
        if isinstance(group, ClassicGroup):
            check_classic_books(group)
        if not isinstance(group, ConsumerGroup):
            return
        check_books(group)
        assert self.rising[0] is not group or group.epoch >= self.rising[1], "the group's epoch fell"
        self.rising = (group, group.epoch)
        for consumer in self.consumers:
            member = group.members.get(consumer.member_id)
            if member is None or not consumer.is_modern or not consumer.epoch or not consumer.is_up:
                continue
            held: Owned = set()
            for part in (member.standing.assigned, member.standing.revoking):
                for name in NAMES:
                    held |= {(name, i) for i in part.get(topic_id(name), ())}
            if consumer.epoch in (member.standing.epoch, member.standing.previous_epoch) and consumer.epoch > 0:
                assert consumer.owned <= held, f"{consumer.name} believes to have {consumer.owned - held}"

    def check_replay(self) -> None:
        """A coordinator that reads the log knows what this one knows."""
        kit = self.kit
        fresh = kit.new_shard()
        for i, record in enumerate(kit.log):
            fresh.replay(record.key, record.value, i, len(kit.log))
        lived, read = self.group, fresh.groups.get("g")
        if isinstance(lived, ConsumerGroup):
            assert isinstance(read, ConsumerGroup)
            assert hard_state(read) == hard_state(lived)
        else:
            assert not isinstance(read, ConsumerGroup)
            assert (None if read is None else read.stored) == (None if lived is None else lived.stored)
        assert {
            (each.topic, each.partition): each.offset
            for each in fresh.fetch("g", fresh.with_offsets("g"), False, len(kit.log))
        } == (COMMITTED)

    def settle(self) -> None:
        """No more faults: all live members must have their share, and nothing is left over."""
        kit = self.kit
        self.faulty = kit.commit_lag = False
        kit.refuse = None
        kit.commit()
        for consumer in self.consumers:
            consumer.silent_until = min(consumer.silent_until, kit.seconds)
        for turn in range(120):
            for consumer in self.consumers:
                self.act(consumer)
                if turn % 8 == 0:
                    self.check()
            kit.look_up()
            kit.advance(0.7)
        up = [consumer for consumer in self.consumers if consumer.is_up]
        group = self.group
        if not up:
            return
        assert group is not None
        have = [one for consumer in up for one in consumer.owned]
        assert len(have) == len(set(have)), "two consumers have the same partition"
        topics = kit.topics.by_name
        if isinstance(group, ClassicGroup):
            assert group.state is State.STABLE
            # Who speaks the new protocol stays outside if classic groups may not go over.
            has_room = len(group.members) <= kit.config.consumer_max_size
            assert not (kit.config.may_upgrade and has_room) or not any(consumer.is_modern for consumer in up)
            inside = {consumer.member_id for consumer in up if not consumer.is_modern}
            assert {member.member_id for member in group.members} == inside
            return
        assert group.state_name == "Stable", [vars(consumer) for consumer in up]
        assert set(group.members) == {consumer.member_id for consumer in up}
        wanted = {name for consumer in up for name in consumer.wants(set(topics))}
        assert set(have) == {(name, i) for name in wanted for i in range(topics[name].partition_count)}


def hard_state(group: ConsumerGroup) -> tuple[Any, ...]:
    return (
        group.epoch,
        group.metadata_hash,
        group.members,
        group.target_epoch,
        group.assigned_at_ms,
        group.target,
        group.patterns,
    )


def check_books(group: ConsumerGroup) -> None:
    """What must hold inside the machine whenever it rests."""
    counts = MemberCounts()
    owners: dict[bytes, dict[int, int]] = {}
    for member in group.members.values():
        counts.add(member.metadata)
        standing = member.standing
        assert standing.epoch <= max(group.target_epoch, 1) <= max(group.epoch, 1)
        assert standing.previous_epoch <= max(standing.epoch, 0) or standing.epoch == -2
        assert (standing.state is MemberState.UNREVOKED) >= bool(standing.revoking)
        for part in (standing.assigned, standing.revoking):
            for topic, held in part.items():
                for partition in held:
                    assert partition not in owners.setdefault(topic, {}), "two members have a partition"
                    owners[topic][partition] = standing.epoch
        assert (group.group_id, "HEARTBEAT", member.member_id) in {
            (group_id, due.name, member_id) for group_id, due, member_id in group.context.deadlines._due
        }, "a member that never expires"
    for resolved in group.patterns.values():
        counts.add_topics(resolved.topics)
    assert vars(counts) == vars(group.counts)
    assert owners == group._epochs
    targets = [(topic, i) for parts in group.target.values() for topic, some in parts.items() for i in some]
    assert len(targets) == len(set(targets)), "a target gives a partition to two members"
    assert set(group.target) <= set(group.members)
    for instance_id, member_id in group._static.items():
        assert group.members[member_id].instance_id == instance_id


def run(seed: int, steps: int) -> None:
    world = World(seed)
    trace: list[str] = []
    try:
        for i in range(steps):
            trace.append(world.step())
            world.check()
            if i % 40 == 0:
                world.check_replay()
        world.settle()
        world.check_replay()
        world.kit.restart()
        assert not world.kit.open
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {len(trace)}, after {trace[-8:]}: {error}") from error


@pytest.mark.parametrize("seed", range(12))
def test_random_members(seed: int) -> None:
    run(seed, 80)


@pytest.mark.campaign
def test_random_members_for_long() -> None:
    for seed in range(1000, 1000 + int(os.environ.get("BARNABAS_GROUP_SEEDS", "30"))):
        run(seed, 400)
