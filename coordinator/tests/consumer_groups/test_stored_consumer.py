"""Records of the next-generation groups: Apache Kafka's bytes, whatever is in them, and what cannot be read."""

from __future__ import annotations

import random

import pytest

from barnabas.coordinator.group.consumer.reconcile import MemberState, Standing
from barnabas.coordinator.group.consumer.stored import (
    ClassicClient,
    ConsumerRecord,
    MemberMetadata,
    Pattern,
    Resolved,
    consumer_record,
    parse_consumer_group,
)
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.machine import Record
from barnabas.kproto import DecodeError
from barnabas.kproto.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    encode_versioned,
)

T = bytes.fromhex("21ebc90bafad48c4a4138e3fee8a491e")
U = bytes.fromhex("12de6ed0411e413f87d599bc25bbcbd8")

# Written by Apache Kafka 4.3.1 for a group "g" of three members, the third with a regular expression.
GOLDEN: list[tuple[str, str | None, ConsumerRecord]] = [
    ("0003000167", "000000000002010008744c157daad81938", GroupEpoch("g", 2, 8380096636111034680)),
    ("0003000167", "00000000000700", GroupEpoch("g", 7)),
    (
        "000500016700086d656d6265722d61",
        "00000003723102680b2f3132372e302e302e31030274027501000075300001000100",
        Member(
            "g",
            "member-a",
            MemberMetadata(None, "r1", "h", "/127.0.0.1", frozenset({"t", "u"}), "", 30_000, None),
        ),
    ),
    (
        "000500016700086d656d6265722d62",
        "0000097374617469632d620002680b2f3132372e302e302e310302740275010000753008756e69666f726d01000100",
        Member(
            "g",
            "member-b",
            MemberMetadata("static-b", None, "h", "/127.0.0.1", frozenset({"t", "u"}), "", 30_000, "uniform"),
        ),
    ),
    ("000500016700086d656d6265722d63", None, Member("g", "member-c", None)),
    ("0006000167", "000000000003010008000001a200d1da5b", TargetEpoch("g", 3, 1795310082651)),
    (
        "000700016700086d656d6265722d62",
        "00000212de6ed0411e413f87d599bc25bbcbd80300000000000000010000",
        TargetMember("g", "member-b", {U: frozenset({0, 1})}),
    ),
    (
        "000800016700086d656d6265722d61",
        "00000000000200000002010221ebc90bafad48c4a4138e3fee8a491e0400000000000000010000000201000d0400000002000000020000"
        "00020212de6ed0411e413f87d599bc25bbcbd803000000000000000101000903000000020000000200",
        MemberStanding(
            "g",
            "member-a",
            Standing(2, 2, MemberState.UNREVOKED, {T: {0: 2, 1: 2, 2: 2}}, {U: {0: 2, 1: 2}}),
        ),
    ),
    ("000800016700086d656d6265722d61", None, MemberStanding("g", "member-a", None)),
    (
        "00100001670003742e2a",
        "0000020274000000000000010b000001a200d1de1500",
        Pattern("g", "t.*", Resolved(frozenset({"t"}), 267, 1795310083605)),
    ),
]


@pytest.mark.parametrize(("key", "value", "what"), GOLDEN)
def test_records_are_apache_kafkas(key: str, value: str | None, what: ConsumerRecord) -> None:
    record = Record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert parse_consumer_group(*record[:2]) == what
    assert consumer_record(what) == record


def test_whatever_is_in_them() -> None:
    rng = random.Random(5)
    for _ in range(100):
        held = {
            rng.randbytes(16): {partition: rng.randrange(9) for partition in range(rng.randint(1, 5))}
            for _ in range(rng.randrange(3))
        }
        wanted = {topic: frozenset(partitions) for topic, partitions in held.items()}
        classic = rng.choice((None, ClassicClient(45_000, (("range", b"\0"), ("cooperative-sticky", b"")))))
        metadata = MemberMetadata(None, None, "", "", frozenset(), None, -1, None, classic)
        records: list[ConsumerRecord] = [
            GroupEpoch("g", rng.choice((None, 5)), 0),
            Member("g", "m", rng.choice((None, metadata))),
            TargetEpoch("g", None),
            TargetMember("g", "m", rng.choice((None, wanted))),
            MemberStanding("g", "m", Standing(4, 3, rng.choice(list(MemberState)), held, held)),
            Pattern("g", "", rng.choice((None, Resolved(frozenset({"a", "b"}), 1, 2)))),
        ]
        for what in records:
            assert parse_consumer_group(*consumer_record(what)[:2]) == what


@pytest.mark.parametrize("epochs", [None, [1]])
def test_partitions_without_epochs_are_held_since_the_present_one(epochs: list[int] | None) -> None:
    """Releases before 4.3 wrote none."""
    value = ConsumerGroupCurrentMemberAssignmentValue
    told = value(
        member_epoch=7,
        assigned_partitions=[value.TopicPartitions(topic_id=T, partitions=[3, 4], assignment_epochs=epochs)],
    )
    key = encode_versioned(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 8)
    read = parse_consumer_group(key, encode_versioned(told, 0))
    assert isinstance(read, MemberStanding)
    assert read.standing is not None
    assert read.standing.assigned == {T: {3: 7, 4: 7}}


def test_what_is_not_ours_or_cannot_be_read() -> None:
    for kind in (0, 1, 2, 9, 15, 17, 99):
        assert parse_consumer_group(kind.to_bytes(2, "big") + b"whatever", b"\0\0") is None
    for key, value in ((b"", b""), (b"\0\3", None), (b"\0\3\0\1g", b""), (b"\0\3\0\1g", b"\0\1\0\0\0\0\0")):
        with pytest.raises(DecodeError):
            parse_consumer_group(key, value)
