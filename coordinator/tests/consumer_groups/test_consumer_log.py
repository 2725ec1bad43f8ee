"""What a log may hold: every record of a next-generation group and its tombstone in any order, records of older
releases, groups of other kinds.
"""

from __future__ import annotations

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.reconcile import MemberState, Standing
from barnabas.coordinator.group.consumer.stored import (
    ConsumerRecord,
    MemberMetadata,
    OldTopicMetadata,
    Pattern,
    Resolved,
    consumer_record,
)
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.machine import Record
from barnabas.coordinator.stored import StoredGroup, group_record
from barnabas.coordinator.tests.consumer_groups.consumer_kit import JOIN, ConsumerKit, topic_id
from barnabas.kproto import ErrorCode

E = ErrorCode
T: TopicId = topic_id("t")
METADATA = MemberMetadata("i", "r", "c", "/h", frozenset({"t"}), "t.*", 1000, "range")
ALL: list[ConsumerRecord] = [
    Member("g", "a", METADATA),
    GroupEpoch("g", 7, 99),
    TargetMember("g", "a", {T: frozenset({0})}),
    TargetEpoch("g", 7, 123),
    MemberStanding("g", "a", Standing(7, 6, MemberState.STABLE, {T: {0: 5}}, {})),
    Pattern("g", "t.*", Resolved(frozenset({"t"}), 3, 44)),
]
GONE: list[ConsumerRecord] = [
    MemberStanding("g", "a", None),
    TargetMember("g", "a", None),
    Member("g", "a", None),
    Pattern("g", "t.*", None),
    TargetEpoch("g", None),
    GroupEpoch("g", None),
]
KEY_4 = b"\0\4\0\1g"
SHARE, STREAMS = b"\0\x0b\0\1g", b"\0\x11\0\1g"


def replay(kit: ConsumerKit, *records: ConsumerRecord | Record) -> None:
    for record in records:
        kit.log.append(record if isinstance(record, Record) else consumer_record(record))
    kit.commit()
    kit.restart()


def test_every_record_comes_back() -> None:
    kit = ConsumerKit(t=1)
    replay(kit, *reversed(ALL))
    group = kit.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    view = kit.view()
    assert (view.group_epoch, view.assignment_epoch, view.assignor_name, view.group_state) == (7, 7, "range", "Stable")
    (member,) = view.members
    assert (member.instance_id, member.rack_id, member.member_epoch) == ("i", "r", 7)
    assert (group.metadata_hash, group.assigned_at_ms, group.patterns["t.*"].version) == (99, 123, 3)
    replay(kit, *GONE)
    assert not kit.shard.groups


def test_tombstones_of_nothing_are_nothing() -> None:
    kit = ConsumerKit()
    replay(kit, *GONE, group_record("g", None))
    assert not kit.shard.groups


def test_the_topics_that_old_releases_kept_are_removed() -> None:
    kit = ConsumerKit(t=1)
    replay(kit, *ALL[:-1], Record(KEY_4, b"\0\0\1\0"))
    assert kit.code("a", 7, instance_id="i", owned={"t": [0]}) == E.NONE
    assert kit.records()[-4:].count(OldTopicMetadata("g", False)) == 1
    kit.restart()
    assert not kit.shard.groups["g"].has_old_metadata


def test_the_kind_of_group_that_was_written_last_is_what_it_is() -> None:
    kit = ConsumerKit(t=1)
    classic = group_record("g", StoredGroup("consumer", 3, None, None, 5, ()))
    replay(kit, *ALL, classic)
    assert kit.shard.describe("g", 6).group_state == "Empty"
    replay(kit, *ALL)
    assert kit.view().group_epoch == 7


def test_a_state_of_a_later_release_is_fenced_unless_the_member_has_nothing() -> None:
    kit = ConsumerKit(t=1)
    replay(kit, *ALL[:-2], MemberStanding("g", "a", Standing(6, 6, MemberState.UNKNOWN, {T: {0: 5}}, {})))
    assert kit.code("a", 6, instance_id="i", owned={"t": [0]}) == E.FENCED_MEMBER_EPOCH
    assert kit.code("a", 6, instance_id="i", owned={}) == E.NONE


def test_groups_of_other_kinds_are_left_alone() -> None:
    for key in (SHARE, STREAMS):
        kit = ConsumerKit(t=1)
        replay(kit, Record(key, b"\0\0\0\0\0\1\0"))
        assert kit.code("a", 0, **JOIN, subscribed_topic_names=["t"]) == E.GROUP_ID_NOT_FOUND
        assert kit.error(kit.join()) == E.INCONSISTENT_GROUP_PROTOCOL
        assert kit.heartbeat("a", 1) == E.UNKNOWN_MEMBER_ID
        assert kit.leave("a").members[0].error_code == E.UNKNOWN_MEMBER_ID
        assert kit.delete_group() == E.GROUP_ID_NOT_FOUND
        assert kit.shard.describe("g", 6).error_code == kit.view().error_code == E.GROUP_ID_NOT_FOUND
        assert kit.answer(kit.commit_offsets({("t", 0): 1}, generation=1, member_id="a")) == [E.UNKNOWN_MEMBER_ID]
        kit.commit_offsets({("t", 0): 1})
        kit.seconds += 30 * 24 * 3600
        kit.run_all(kit.shard.expire_offsets(kit.now))
        assert kit.committed() == {("t", 0): 1}
        assert not list(kit.shard.listed((), ()))
        replay(kit, Record(key, None))
        assert not kit.shard.store.foreign
        kit.enter("a", "t")
