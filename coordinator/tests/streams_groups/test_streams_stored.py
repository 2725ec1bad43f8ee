"""Records of streams groups: whatever is in them, and what cannot be read. Apache Kafka's bytes are in
`barnabas.kproto.tests.test_golden_streams`.
"""

from __future__ import annotations

import random

import pytest

from barnabas.coordinator.group.epochs.records import Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.stored import (
    Endpoint,
    GroupFacts,
    StoredTopology,
    StreamsEpoch,
    StreamsMetadata,
    StreamsRecord,
    parse_streams_group,
    streams_record,
)
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks
from barnabas.coordinator.group.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from barnabas.kproto import DecodeError
from barnabas.kproto.stored import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    encode_versioned,
)


def tasks(rng: random.Random) -> dict[str, frozenset[int]]:
    return {str(i): frozenset(rng.sample(range(9), rng.randint(1, 4))) for i in range(rng.randrange(3))}


def held(rng: random.Random) -> HeldTasks:
    active = {key: {number: rng.randrange(9) for number in sorted(numbers)} for key, numbers in tasks(rng).items()}
    return HeldTasks(active, tasks(rng), tasks(rng))


def topology(rng: random.Random) -> Topology:
    topics = (TopicInfo("x", 3, -1, (("a", "b"),)), TopicInfo("y"))
    changelogs = (TopicInfo("v", 0, 2, (("a", "b"),)), TopicInfo("w"))
    found = {}
    for name in rng.sample("0123", rng.randint(0, 4)):
        group = CopartitionGroup((0,), (), (0, 1))
        found[name] = Subtopology(name, ("s", "r"), (), changelogs[: rng.randrange(3)], ("w",), topics, (group,))
    return Topology(rng.randrange(9), found)


def test_whatever_is_in_them() -> None:
    rng = random.Random(7)
    for _ in range(200):
        endpoint = rng.choice((None, Endpoint("h", 65_535)))
        metadata = StreamsMetadata(None, "r", "c", "/h", 5, 0, "p", endpoint, (("k", "v"), ("l", "")))
        standing = Standing(4, 3, rng.choice(list(MemberState)), held(rng), held(rng))
        records: list[StreamsRecord] = [
            StreamsEpoch("g", rng.choice((None, GroupFacts(5, -7), GroupFacts(5, 7, 0, (("a", "b"),))))),
            Member("g", "m", rng.choice((None, metadata, StreamsMetadata()))),
            TargetEpoch("g", rng.choice((None, 4)), 0),
            TargetMember("g", "m", rng.choice((None, Tasks(tasks(rng), tasks(rng), tasks(rng))))),
            MemberStanding("g", "m", rng.choice((None, standing))),
            StoredTopology("g", rng.choice((None, topology(rng)))),
        ]
        for what in records:
            assert parse_streams_group(*streams_record(what)[:2]) == what


def test_the_order_of_subtopologies_stays() -> None:
    rng = random.Random(1)
    for _ in range(20):
        what = StoredTopology("g", topology(rng))
        read = parse_streams_group(*streams_record(what)[:2])
        assert isinstance(read, StoredTopology)
        assert read.topology is not None
        assert what.topology is not None
        assert list(read.topology.subtopologies) == list(what.topology.subtopologies)


def test_tasks_without_epochs_are_held_since_the_present_one() -> None:
    value = StreamsGroupCurrentMemberAssignmentValue
    told = value(member_epoch=7, state=9, active_tasks=[value.TaskIds(subtopology_id="0", partitions=[1])])
    key = encode_versioned(StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 22)
    read = parse_streams_group(key, encode_versioned(told, 0))
    assert isinstance(read, MemberStanding)
    assert read.standing is not None
    assert (read.standing.assigned.active, read.standing.state) == ({"0": {1: 7}}, MemberState.UNKNOWN)


def test_configs_that_are_null_are_none() -> None:
    key = encode_versioned(StreamsGroupMetadataKey(group_id="g"), 17)
    value = encode_versioned(StreamsGroupMetadataValue(epoch=3, last_assignment_configs=None), 0)
    assert parse_streams_group(key, value) == StreamsEpoch("g", GroupFacts(3))


def test_what_is_not_ours_or_cannot_be_read() -> None:
    for kind in (0, 2, 8, 11, 16, 18, 24, 99):
        assert parse_streams_group(kind.to_bytes(2, "big") + b"whatever", b"\0\0") is None
    twice = [StreamsGroupTopologyValue.Subtopology(subtopology_id="0")] * 2
    bad = encode_versioned(StreamsGroupTopologyValue(subtopologies=twice), 0)
    key = encode_versioned(StreamsGroupTopologyKey(group_id="g"), 23)
    for key_, value in ((b"", b""), (b"\0\x11", None), (b"\0\x11\0\1g", b""), (b"\0\x11\0\1g", b"\0\1"), (key, bad)):
        with pytest.raises(DecodeError):
            parse_streams_group(key_, value)
