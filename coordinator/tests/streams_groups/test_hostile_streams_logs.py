"""Logs that no coordinator has written: records of streams groups in any order, with any numbers. What can be read is
replayed, requests are answered, and what is answered can be sent. More seeds: BARNABAS_HOSTILE_SEEDS.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

from barnabas.coordinator.group.epochs.records import Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.group.streams.group import HeartbeatAnswer
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.stored import (
    Endpoint,
    GroupFacts,
    StoredTopology,
    StreamsEpoch,
    StreamsMetadata,
    StreamsRecord,
    streams_record,
)
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks
from barnabas.coordinator.group.streams.topology import Topology, topology_of
from barnabas.coordinator.machine import Result
from barnabas.coordinator.tests.streams_groups.streams_group_kit import StreamsKit, shown, subtopology, topology
from barnabas.kproto import ErrorCode, encode
from barnabas.kproto.messages import StreamsGroupDescribeResponse

SEEDS = int(os.environ.get("BARNABAS_HOSTILE_SEEDS", "40"))
INT32 = (-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 1)
INT64 = (-(2**63), -1, 0, 1, 2**63 - 1)
TOPOLOGIES = (
    topology(subtopology(changelogs=["cl"])),
    topology(subtopology("0", writes=["r"]), subtopology("x", (), reads=["r"]), epoch=1),
    topology(subtopology("0", (), reads=["r"], writes=["r"])),
    topology(subtopology("0", ())),
)


class Hostile:
    def __init__(self, random: Random) -> None:
        self.random = random

    def numbers(self) -> Sequence[int]:
        return self.random.sample((0, 1, 2, 7, -1, 2**31 - 1), self.random.randint(1, 4))

    def names(self) -> list[str]:
        return self.random.sample(("0", "1", "", "x"), self.random.randint(0, 3))

    def tasks(self) -> dict[str, frozenset[int]]:
        return {name: frozenset(self.numbers()) for name in self.names()}

    def held(self) -> HeldTasks:
        active = {name: {number: self.random.choice(INT32) for number in self.numbers()} for name in self.names()}
        return HeldTasks(active, self.tasks(), self.tasks())

    def topology(self) -> Topology:
        return topology_of(self.random.choice(TOPOLOGIES))

    def record(self) -> StreamsRecord:
        random = self.random
        group_id, member_id = random.choice("gh"), random.choice("abc")
        is_gone = random.random() < 0.1
        kind = random.randrange(6)
        if kind == 0:
            configs = random.choice(((), (("num.standby.replicas", "x"),), (("", ""), ("", ""))))
            numbers = random.choice(INT32), random.choice(INT64), random.choice(INT32)
            return StreamsEpoch(group_id, None if is_gone else GroupFacts(*numbers, configs))
        if kind == 1:
            endpoint = random.choice((None, Endpoint("", 0)))
            ids = random.choice(INT32), random.choice(INT32), random.choice(("", "p", "q"))
            metadata = StreamsMetadata("i", None, "c", "/h", *ids, endpoint, (("a", "b"), ("a", "c")))
            return Member(group_id, member_id, None if is_gone else metadata)
        if kind == 2:
            return TargetEpoch(group_id, None if is_gone else random.choice(INT32), random.choice(INT64))
        if kind == 3:
            part = Tasks(self.tasks(), self.tasks(), self.tasks())
            return TargetMember(group_id, member_id, None if is_gone else part)
        if kind == 4:
            state = random.choice(list(MemberState))
            standing = Standing(random.choice(INT32), random.choice(INT32), state, self.held(), self.held())
            return MemberStanding(group_id, member_id, None if is_gone else standing)
        return StoredTopology(group_id, None if is_gone else self.topology())


def test_a_member_at_the_last_epoch() -> None:
    """It comes to its target like any other; only the group cannot change any more."""
    last = 2**31 - 1
    kit = StreamsKit(**{"in": 3})
    kit.enter("a")
    kit.rest("a")
    kit.run(Result([
        streams_record(StreamsEpoch("g", GroupFacts(last, *_facts(kit)))),
        streams_record(TargetEpoch("g", last, 0)),
        streams_record(TargetMember("g", "a", Tasks({"0": frozenset((0,))}))),
        streams_record(MemberStanding("g", "a", Standing(
            last, 1, MemberState.UNREVOKED, HeldTasks({"0": {0: 1, 1: 1}}), HeldTasks({"0": {2: 1}})
        ))),
    ]))  # fmt: skip
    asked = kit.again("a", owned="0_0 0_1")
    assert (asked.error_code, asked.member_epoch, shown(asked.active_tasks)) == (0, last, "0_0")
    assert kit.known("a").standing.state is MemberState.UNREVOKED
    assert kit.again("a", owned="0_0").member_epoch == last
    assert kit.known("a").standing == Standing(last, last, MemberState.STABLE, HeldTasks({"0": {0: 1}}))
    assert kit.enter("b").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert kit.code("a", -1) == ErrorCode.NONE
    assert not kit.streams_group().members


def _facts(kit: StreamsKit) -> tuple[int, int, tuple[tuple[str, str], ...]]:
    group = kit.streams_group()
    return group.metadata_hash, group.validated_epoch, group.assignment_configs


def groups_of(seed: int) -> None:
    random = Random(seed)
    hostile = Hostile(random)
    kit = StreamsKit(**{"in": 2, "r": random.randint(1, 3)})
    kit.log = [streams_record(hostile.record()) for _ in range(random.randint(1, 30))]
    kit.committed_to = len(kit.log)
    kit.restart()
    for _ in range(30):
        name, group_id = random.choice("abcd"), random.choice("gh")
        dice = random.random()
        if dice < 0.6:
            beat(kit, random, name, group_id)
        elif dice < 0.7:
            kit.advance(random.choice((1.0, 50.0)))
        elif dice < 0.8:
            topic = random.choice(("in", "r", "cl"))
            is_gone = topic in kit.topics.by_name and random.random() < 0.3
            kit.set_topics(**{topic: None if is_gone else 3})
        elif dice < 0.9:
            kit.delete_group(group_id)
        else:
            kit.run_all(kit.shard.expire_offsets(kit.now))
        described = [kit.streams.describe(each) for each in "gh"]
        encode(StreamsGroupDescribeResponse(groups=described), 0)
        list(kit.shard.listed((), ()))
    kit.advance(3_000_000)
    assert not kit.open


def beat(kit: StreamsKit, random: Random, name: str, group_id: str) -> None:
    group: Any = kit.shard.groups.get(group_id)
    member = None if group is None else group.members.get(name)
    epoch = random.choice((0, 0 if member is None else member.standing.epoch))
    fields: dict[str, Any] = {"endpoint_information_epoch": -1}
    if epoch == 0:
        fields |= {"topology": random.choice(TOPOLOGIES), "rebalance_timeout_ms": random.choice(INT32), "owned": ""}
    elif member is not None and random.random() < 0.5:
        fields["owned"] = [shown(tasks) for tasks in member.standing.assigned.tasks]
    answer = kit.answer(kit.send(name, epoch, group=group_id, **fields))
    assert isinstance(answer, HeartbeatAnswer)
    encode(answer.response, 0)


def test_groups() -> None:
    for seed in range(SEEDS):
        try:
            groups_of(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
