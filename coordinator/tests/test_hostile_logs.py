"""Logs that can be read and make no sense: writers to the internal topics can put anything into them. Reading
them, serving what came out and letting time pass must raise nothing and come to rest; what is answered can be encoded.

Some by hand, then random records out of extreme values; the seed is the bug report. More seeds: BARNABAS_HOSTILE_SEEDS.
Not covered: what is left of such groups need not be useful, only harmless.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.coordinator.group.consumer.reconcile import MemberState, Standing
from barnabas.coordinator.group.consumer.stored import (
    ClassicClient,
    ConsumerRecord,
    MemberMetadata,
    OldTopicMetadata,
    Pattern,
    Resolved,
    consumer_record,
)
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.machine import Record
from barnabas.coordinator.stored import CommittedOffset, StoredGroup, StoredMember, group_record, offset_record
from barnabas.coordinator.tests.consumer_groups.consumer_kit import (
    AT_ONCE,
    JOIN,
    ConsumerKit,
    assign,
    subscribe,
    topic_id,
)
from barnabas.coordinator.tests.txn.txn_kit import Producer, TxnKit
from barnabas.coordinator.txn import TxnConfig
from barnabas.coordinator.txn.states import STORED
from barnabas.coordinator.txn.stored import txn_record
from barnabas.coordinator.txn.transaction import Txn
from barnabas.kproto import ErrorCode, encode
from barnabas.kproto.messages import ConsumerGroupDescribeResponse, DescribeGroupsResponse, ListGroupsResponse

INT32 = (-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 2, 2**31 - 1)
INT64 = (-(2**63), -1, 0, 1_700_000_000_000, 2**63 - 1)
TIMEOUTS = (-(2**31), -1, 0, 5_000, 2**31 - 1)
GROUPS = ("g", "h")
MEMBERS = ("a", "b", "c")
METADATA = (b"", b"\0", b"\xff\xff", b"\0\1junk", subscribe("t"), subscribe("t", "u", owned={"t": [0, -1, 9]}))
ASSIGNMENTS = (b"", b"\0\1", assign({"t": [0, 1]}), assign({"t": [0], "u": [-1, 7]}, b"own"))
PROTOCOLS = ("range", "rr", "")


class Hostile:
    """Makes records. `tame`: only numbers that a group comes to in a short life, so that it does not end at once."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tame = random.random() < 0.5

    def epoch(self) -> int:
        return self.random.choice((0, 1, 2, 3, 2**31 - 2, 2**31 - 1) if self.tame else INT32)

    def some(self, things: Any, most: int = 2) -> list[Any]:
        return [self.random.choice(things) for _ in range(self.random.randint(0, most))]

    def held(self) -> dict[bytes, dict[int, int]]:
        topics = self.some(("t", "u", "gone"))
        return {topic_id(name): {part: self.epoch() for part in self.some((0, 1, 2, 99, -1), 3)} for name in topics}

    def instance(self) -> str | None:
        return self.random.choice((None, None, "i", ""))

    def classic(self) -> Record:
        random = self.random
        if random.random() < 0.2:
            return group_record(random.choice(GROUPS), None)
        members = tuple(
            StoredMember(
                random.choice(MEMBERS),
                self.instance(),
                "c",
                "/h",
                random.choice(TIMEOUTS),
                random.choice(TIMEOUTS),
                random.choice(METADATA),
                random.choice(ASSIGNMENTS),
            )
            for _ in range(random.randint(0, 3))
        )
        protocol = random.choice((None, *PROTOCOLS))
        leader = random.choice((None, "nobody", *MEMBERS))
        kind = random.choice(("consumer", "consumer", "connect", ""))
        stored = StoredGroup(kind, self.epoch(), protocol, leader, random.choice(INT64), members)
        return group_record(random.choice(GROUPS), stored)

    def metadata(self) -> MemberMetadata:
        random = self.random
        classic = None
        if random.random() < 0.6:
            protocols = tuple((random.choice(PROTOCOLS), random.choice(METADATA)) for _ in range(random.randint(0, 2)))
            classic = ClassicClient(random.choice(TIMEOUTS), protocols)
        names = frozenset(self.some(("t", "u", "gone", "")))
        pattern = random.choice((None, "", "t|u", "["))
        assignor = random.choice((None, "uniform", "range", "unheard-of"))
        timeout_ms = random.choice(TIMEOUTS)
        return MemberMetadata(self.instance(), None, "c", "/h", names, pattern, timeout_ms, assignor, classic)

    def modern(self) -> ConsumerRecord:
        random = self.random
        group_id, member_id = random.choice(GROUPS), random.choice(MEMBERS)
        is_gone = random.random() < 0.1
        kind = random.choice(
            (GroupEpoch, TargetEpoch, OldTopicMetadata, Pattern, *(Member, MemberStanding, TargetMember) * 3)
        )
        if kind is GroupEpoch:
            return GroupEpoch(group_id, None if is_gone else self.epoch(), random.choice((0, -1, 2**63 - 1)))
        if kind is TargetEpoch:
            return TargetEpoch(group_id, None if is_gone else self.epoch(), random.choice(INT64))
        if kind is OldTopicMetadata:
            return OldTopicMetadata(group_id, False)
        if kind is Pattern:
            resolved = Resolved(frozenset(self.some(("t", "gone"))), random.choice(INT32), random.choice(INT64))
            return Pattern(group_id, random.choice(("t|u", "[", "")), None if is_gone else resolved)
        if kind is Member:
            return Member(group_id, member_id, None if is_gone else self.metadata())
        if kind is TargetMember:
            target = {topic: frozenset(parts) for topic, parts in self.held().items()}
            return TargetMember(group_id, member_id, None if is_gone else target)
        standing = Standing(self.epoch(), self.epoch(), random.choice(list(MemberState)), self.held(), self.held())
        return MemberStanding(group_id, member_id, None if is_gone else standing)

    def record(self) -> Record:
        random = self.random
        what = random.random()
        if what < 0.2:
            return self.classic()
        if what < 0.3:
            times = random.choice(INT64), random.choice((-1, *INT64))
            committed = CommittedOffset(random.choice(INT64), random.choice(INT32), "m", *times)
            gone = random.random() < 0.2
            topic, partition = random.choice(("t", "gone")), random.choice((0, -1, 2**31 - 1))
            return offset_record(random.choice(GROUPS), topic, partition, None if gone else committed)
        return consumer_record(self.modern())


def let_time_pass(kit: ConsumerKit | TxnKit, seconds: float) -> None:
    """As `advance`; but what is due must end in a few steps at each moment: a driver would do nothing else any more."""
    end = kit.seconds + seconds
    steps, since = 0, kit.seconds
    while (due := kit.shard.deadline()) is not None and due <= end:
        kit.seconds = max(kit.seconds, due)
        kit.run(kit.shard.expire(kit.now))
        steps, since = (steps + 1, since) if kit.seconds < since + 0.5 else (0, kit.seconds)
        assert steps < 100, "the timers do not come to rest"
    kit.seconds = end


def look_at_all(kit: ConsumerKit) -> None:
    """The requests of administrators can be answered."""
    shard = kit.shard
    encode(ListGroupsResponse(groups=list(shard.listed((), ()))), 5)
    for group_id in GROUPS:
        encode(DescribeGroupsResponse(groups=[shard.describe(group_id, 6)]), 6)
        encode(ConsumerGroupDescribeResponse(groups=[shard.consumer_describe(group_id)]), 1)
        kit.fetch(group=group_id)


def ask(kit: ConsumerKit, random: Random) -> None:
    """A client turns to such a group, with what it may have had or out of nowhere."""
    group, member_id = random.choice(GROUPS), random.choice((*MEMBERS, "new"))
    known = kit.shard.groups.get(group)
    standing = getattr(known.members.get(member_id), "standing", None) if known is not None else None
    epoch = (
        standing.epoch if standing is not None else random.choice((0, 1, 2**31 - 1, getattr(known, "generation", 1)))
    )
    instance = random.choice((None, None, "i"))
    what = random.choice(("beat", "enter", "enter", "leave", "join", "join", "sync", "heartbeat", "commit", "delete"))
    if what == "beat":
        kit.beat(member_id, max(epoch, 1), group=group, owned={"t": [0]}, instance_id=instance)
    elif what == "enter":
        how = random.choice(({"subscribed_topic_names": ["t", "u"]}, {"subscribed_topic_regex": "t|u"}))
        kit.beat(member_id, 0, group=group, instance_id=instance, **JOIN, **how)
    elif what == "leave":
        kit.beat(member_id, random.choice((-1, -2)), group=group, instance_id="i")
        kit.leave(member_id, ("", "i"), group=group)
    elif what == "join":
        some = tuple((name, subscribe("t")) for name in random.sample(PROTOCOLS, 2))
        kit.join(random.choice((member_id, "")), group=group, instance=instance, session_ms=6_000, protocols=some)
    elif what == "sync":
        everything = {each: random.choice(ASSIGNMENTS) for each in MEMBERS}
        kit.sync(member_id, epoch, everything, group=group, instance=instance, protocol_name=None)
    elif what == "heartbeat":
        kit.heartbeat(member_id, epoch, group=group, instance=instance)
    elif what == "commit":
        kit.commit_offsets({("t", 0): 1}, group=group, member_id=member_id, generation=epoch)
    elif random.random() < 0.2:
        kit.delete_group(group)


def run(seed: int) -> None:
    random = Random(seed)
    policy = random.choice(("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled"))
    config = replace(
        AT_ONCE, consumer_migration_policy=policy, group_initial_rebalance_delay_ms=random.choice((0, 3_000))
    )
    kit = ConsumerKit(config, t=2, u=3)
    hostile = Hostile(random)
    kit.log = [hostile.record() for _ in range(random.randint(1, 40))]
    kit.committed_to = len(kit.log)
    kit.restart()
    asks = random.random() < 0.7
    for _ in range(40):
        kit.refuse = random.choice((None, None, None, ErrorCode.NOT_ENOUGH_REPLICAS))
        if asks:
            ask(kit, random)
        let_time_pass(kit, random.choice((0.1, 1, 20, 400)))
        kit.look_up()
        if random.random() < 0.2:
            kit.set_topics(t=random.randint(1, 4))
        look_at_all(kit)
        kit.check_tokens()
        if random.random() < 0.1:
            kit.run_all(kit.shard.expire_offsets(kit.now))
        if random.random() < 0.1:
            kit.restart()
    kit.refuse = None
    let_time_pass(kit, 5_000)
    look_at_all(kit)


def read(*records: Record) -> ConsumerKit:
    """A coordinator that has read such a log."""
    kit = ConsumerKit(t=2)
    kit.log = list(records)
    kit.committed_to = len(kit.log)
    kit.restart()
    return kit


def test_a_member_that_is_there_twice_counts_once() -> None:
    """Else no protocol had the votes of all, and no generation could be formed."""
    told = StoredMember("a", None, "c", "/h", 30_000, 6_000, subscribe("t"), b"")
    kit = read(group_record("g", StoredGroup("consumer", 3, "range", "a", -1, (told, told))))
    assert kit.joined(kit.join("a", protocols=(("range", subscribe("t")),))).protocol_name == "range"
    assert kit.error(kit.join(protocols=(("rr", subscribe("t")),))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def came_over(member_id: str, *protocols: tuple[str, bytes]) -> list[Record]:
    """A member with the classic protocol in a group of the next generation."""
    metadata = MemberMetadata(
        None, None, "c", "/h", frozenset({"t"}), None, 30_000, None, ClassicClient(30_000, protocols)
    )
    return [
        consumer_record(record)
        for record in (
            Member("g", member_id, metadata),
            TargetMember("g", member_id, {}),
            MemberStanding("g", member_id, Standing(1, 1, MemberState.STABLE, {}, {})),
        )
    ]


EPOCH = [consumer_record(GroupEpoch("g", 1)), consumer_record(TargetEpoch("g", 1, 0))]


def test_a_member_without_protocols_gets_an_error() -> None:
    kit = read(*EPOCH, *came_over("a"), *came_over("b", ("range", subscribe("t"))))
    assert kit.error(kit.sync("a", 1, version=4, protocol_name=None)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert kit.assignment(kit.sync("b", 1)) == assign({})
    let_time_pass(kit, 1_000)
    assert not kit.shard.groups["g"].members


def test_members_without_a_common_protocol_stay_in_the_next_generation() -> None:
    both = came_over("a", ("range", subscribe("t"))), came_over("b", ("rr", subscribe("t")))
    kit = read(*EPOCH, *both[0], *both[1])
    kit.enter("new", "t")
    assert kit.code("new", -1) == ErrorCode.NONE
    assert set(kit.members()) == {"a", "b"}
    let_time_pass(kit, 1_000)
    assert not kit.shard.groups["g"].members


@pytest.mark.parametrize(
    "first", [0, 20, 40, *(pytest.param(first, marks=pytest.mark.campaign) for first in range(60, 200, 20))]
)
def test_groups(first: int) -> None:
    for seed in range(first, first + 20):
        run_seed(run, seed)


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_transactions(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(run_transactions, seed)


@pytest.mark.campaign
def test_for_long() -> None:
    for seed in range(10_000, 10_000 + int(os.environ.get("BARNABAS_HOSTILE_SEEDS", "500"))):
        run_seed(run, seed)
        run_seed(run_transactions, seed)


def run_seed(run: Any, seed: int) -> None:
    try:
        run(seed)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def run_transactions(seed: int) -> None:
    random = Random(seed)
    kit = TxnKit(TxnConfig(transaction_version=random.choice((0, 1, 2))))
    ids = ("x", "y", "")
    epochs = (-(2**15), -1, 0, 1, 2**15 - 3, 2**15 - 2, 2**15 - 1)
    producers = (-(2**63), -1, 0, 7, 2**63 - 1)
    for _ in range(random.randint(1, 12)):
        txn = None
        if random.random() < 0.85:
            txn = Txn(
                random.choice(producers),
                random.choice(epochs),
                random.choice(TIMEOUTS),
                random.choice(list(STORED)),
                frozenset(random.sample((("t", 0), ("t", -1), ("gone", 2**31 - 1)), random.randint(0, 3))),
                random.choice(INT64),
                random.choice(INT64),
                previous_producer_id=random.choice(producers),
                next_producer_id=random.choice(producers),
                client_version=random.choice((-1, 0, 1, 2, 9)),
            )
        kit.log.append(txn_record(random.choice(ids), txn, random.choice((0, 1))))
    kit.committed_to = len(kit.log)
    kit.restart()
    for _ in range(30):
        kit.refuse = random.choice((None, None, None, ErrorCode.NOT_ENOUGH_REPLICAS))
        name, version = random.choice(("x", "y")), random.choice((4, 5))
        entry = kit.shard.ids.get(name)
        txn = None if entry is None else entry.txn
        if txn is not None and random.random() < 0.5:
            producer = Producer(txn.producer_id, txn.producer_epoch)
            kit.end(producer, random.random() < 0.5, name=name, version=version)
        elif random.random() < 0.3:
            kit.init(name)
        for name in ids:
            kit.shard.describe(name)
        let_time_pass(kit, random.choice((0.1, 1, 400)))
        if random.random() < 0.1:
            for result in kit.shard.remove_expired(kit.now):
                kit.run(result)
