"""Groups that go over from the classic protocol to the next generation and back while their members go on (KIP-848), as
Apache Kafka 4.3.1 does it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.consumer.stored import OldTopicMetadata, parse_consumer_group
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetEpoch, TargetMember
from barnabas.coordinator.stored import GroupRecord, parse
from barnabas.coordinator.tests.consumer_groups.consumer_kit import (
    AT_ONCE,
    JOIN,
    ConsumerKit,
    assign,
    assigned,
    subscribe,
)
from barnabas.kproto import ErrorCode

E = ErrorCode
CLASSIC: dict[str, Any] = {"protocols": (("range", subscribe("t")),), "session_ms": 30_000, "rebalance_ms": 40_000}
JOINING: dict[str, Any] = {**JOIN, "subscribed_topic_names": ["t"]}


def classic_group(kit: ConsumerKit, count: int = 1, user_data: bytes | None = None, **join: Any) -> list[str]:
    """A stable classic group; its first member has all of topic t."""
    join = {**CLASSIC, **join}
    ids = [kit.member(**join) for _ in range(count)]
    tokens = [kit.join(member_id, **join) for member_id in ids]
    if count > 1 and not kit.waits(tokens[0]):
        kit.answer(tokens[0])
        tokens[0] = kit.join(ids[0], **join)
    generation = {kit.joined(token).generation_id for token in tokens}.pop()
    everything = assign({"t": range(kit.topics.by_name["t"].partition_count)}, user_data)
    tokens = [kit.sync(member_id, generation) for member_id in ids[1:]]
    tokens.append(kit.sync(ids[0], generation, {ids[0]: everything, **dict.fromkeys(ids[1:], assign({}))}))
    assert all(kit.answer(token).error_code == E.NONE for token in tokens)
    return ids


def rejoin(kit: ConsumerKit, member_id: str, owned: dict[str, list[int]] | None = None, **join: Any) -> int:
    """JoinGroup of a classic member in a next-generation group: its epoch."""
    metadata = subscribe("t", owned=owned)
    return kit.joined(kit.join(member_id, **{**CLASSIC, "protocols": (("range", metadata),), **join})).generation_id


def test_up() -> None:
    kit = ConsumerKit(t=4)
    (old,) = classic_group(kit)
    kit.commit_offsets({("t", 0): 7}, generation=1, member_id=old)
    start = len(kit.log)
    answer = kit.enter("new", "t")
    assert (answer.member_epoch, kit.parts(answer)) == (2, {})
    removal, *rest = kit.log[start:]
    assert parse(removal.key, removal.value) == GroupRecord("g", None)
    kinds = [type(parse_consumer_group(record.key, record.value)) for record in rest]
    assert kinds == [
        *(Member, GroupEpoch, TargetMember, TargetEpoch, MemberStanding),
        *(Member, GroupEpoch, TargetMember, TargetMember, TargetEpoch, MemberStanding),
    ]
    assert {member.member_id: member.member_type for member in kit.view().members} == {old: 0, "new": 1}
    assert kit.committed() == {("t", 0): 7}
    # The classic member is told to join again, gives up half, and joins once more.
    assert kit.heartbeat(old, 1) == E.REBALANCE_IN_PROGRESS
    assert rejoin(kit, old, {"t": [0, 1, 2, 3]}) == 1, "it has to give up something first"
    assert assigned(kit.assignment(kit.sync(old, 1))) == {"t": [0, 1]}
    assert kit.heartbeat(old, 1) == E.REBALANCE_IN_PROGRESS
    assert rejoin(kit, old, {"t": [0, 1]}) == 2
    assert assigned(kit.assignment(kit.sync(old, 2))) == {"t": [0, 1]}
    assert kit.heartbeat(old, 2) == E.NONE
    assert kit.parts(kit.beat("new", 2)) == {"t": [2, 3]}
    assert kit.view().group_state == "Stable"
    kit.restart()
    assert kit.heartbeat(old, 2) == E.NONE
    # Its session ends like that of any classic member.
    kit.advance(31)
    assert kit.members() == {"new": 2}


def test_members_that_wait_are_sent_to_the_new_group() -> None:
    kit = ConsumerKit(t=2)
    first, second = classic_group(kit, 2)
    waiting = kit.join(first, **CLASSIC)
    assert kit.waits(waiting)
    kit.enter("new", "t")
    assert kit.error(waiting) == E.REBALANCE_IN_PROGRESS
    assert not kit.open
    assert sorted(kit.members()) == sorted([first, second, "new"])


@pytest.mark.parametrize(
    ("config", "new", "code"),
    [
        ({}, {"subscribed_topic_names": [], "subscribed_topic_regex": "["}, E.INVALID_REGULAR_EXPRESSION),
        ({"consumer_max_size": 2}, {}, E.GROUP_MAX_SIZE_REACHED),
    ],
)
@pytest.mark.parametrize("parked", ["join", "sync"])
def test_waiting_members_continue_if_the_joining_one_is_refused(
    config: dict[str, Any], new: dict[str, Any], code: ErrorCode, parked: str
) -> None:
    kit = ConsumerKit(replace(AT_ONCE, **config), t=2)
    first, second = classic_group(kit, 2)
    waiting = kit.join(first, **CLASSIC)
    if parked == "sync":
        generation = kit.joined(kit.join(second, **CLASSIC)).generation_id
        kit.joined(waiting)
        waiting = kit.sync(second, generation)
    assert kit.waits(waiting)
    before = len(kit.log), kit.state()
    assert kit.code("new", 0, **{**JOINING, **new}) == code
    assert (len(kit.log), kit.state()) == before
    kit.check_tokens()
    assert kit.waits(waiting)
    if parked == "join":
        generation = kit.joined(kit.join(second, **CLASSIC)).generation_id
        kit.joined(waiting)
        waiting = kit.sync(second, generation)
    kit.sync(first, generation, {first: assign({"t": [0]}), second: assign({"t": [1]})})
    assert assigned(kit.assignment(waiting)) == {"t": [1]}
    kit.advance(29)
    assert kit.heartbeat(first, generation) == kit.heartbeat(second, generation) == E.NONE


def test_members_that_waited_are_missed_if_the_change_cannot_be_written() -> None:
    kit = ConsumerKit(t=2)
    first, second = classic_group(kit, 2, session_ms=6_000)
    waiting = kit.join(first, **{**CLASSIC, "session_ms": 6_000})
    for _ in range(3):
        # Longer than a session: who waits cannot send heartbeats.
        kit.advance(3)
        assert kit.heartbeat(second, kit.generation()) == E.REBALANCE_IN_PROGRESS
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.code("new", 0, **JOINING) == E.COORDINATOR_NOT_AVAILABLE
    assert kit.error(waiting) == E.REBALANCE_IN_PROGRESS
    kit.refuse = None
    group = kit.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    for here in (True, True, False):
        assert (first in group.members) == here
        kit.advance(3.1)
        kit.heartbeat(second, kit.generation())


def test_unassigned_partitions_are_assigned_with_any_join() -> None:
    kit = ConsumerKit(t=2)
    (old,) = classic_group(kit)
    kit.set_topics(t=3)
    # It subscribes to nothing that there is, so nothing has to move for it.
    kit.beat("new", 0, **JOIN, subscribed_topic_regex="z.*")
    kit.look_up()
    assert kit.heartbeat(old, 1) == E.REBALANCE_IN_PROGRESS
    epoch = rejoin(kit, old, {"t": [0, 1]})
    assert assigned(kit.assignment(kit.sync(old, epoch))) == {"t": [0, 1, 2]}


def test_a_group_goes_over_before_its_first_generation_is_assigned() -> None:
    kit = ConsumerKit(t=2)
    member_id = kit.member(**CLASSIC)
    kit.joined(kit.join(member_id, **CLASSIC))
    late = kit.member(**CLASSIC)
    waiting = kit.join(late, **{**CLASSIC, "protocols": (("rr", subscribe("t")), ("range", subscribe("t")))})
    kit.enter("new", "t")
    assert kit.error(waiting) == E.REBALANCE_IN_PROGRESS
    assert sorted(kit.members()) == sorted([member_id, late, "new"])


@pytest.mark.parametrize(
    ("config", "join", "user_data"),
    [
        ({"consumer_migration_policy": "downgrade"}, {}, None),
        ({"consumer_migration_policy": "disabled"}, {}, None),
        ({"consumer_max_size": 0}, {}, None),
        ({}, {"protocol_type": "connect"}, None),
        ({}, {"protocols": (("range", b"\0\1garbage"),)}, None),
        ({}, {}, b"of its own"),
    ],
)
def test_what_stays_classic(config: dict[str, Any], join: dict[str, Any], user_data: bytes | None) -> None:
    kit = ConsumerKit(replace(AT_ONCE, **config), t=2)
    arguments = {**CLASSIC, **join}
    member_id = kit.member(**arguments)
    generation = kit.joined(kit.join(member_id, **arguments)).generation_id
    protocol_type = join.get("protocol_type", "consumer")
    kit.assignment(
        kit.sync(member_id, generation, {member_id: assign({"t": [0]}, user_data)}, protocol_type=protocol_type)
    )
    before = len(kit.log)
    assert kit.code("new", 0, **JOINING) == E.GROUP_ID_NOT_FOUND
    assert (kit.state(), len(kit.log)) == ("Stable", before)
    assert kit.heartbeat(member_id, generation) == E.NONE


def test_an_empty_group_becomes_whatever_joins() -> None:
    kit = ConsumerKit(replace(AT_ONCE, consumer_migration_policy="disabled"), t=1)
    (old,) = classic_group(kit)
    kit.commit_offsets({("t", 0): 7}, generation=1, member_id=old)
    kit.leave(old)
    assert kit.enter("new", "t").member_epoch == 2
    kit.beat("new", -1)
    token = kit.join("", **CLASSIC)
    member_id = kit.answer(token).member_id
    assert kit.shard.describe("g", 6).group_state == "Empty"
    assert kit.joined(kit.join(member_id, **CLASSIC)).generation_id == 1
    assert kit.committed() == {("t", 0): 7}
    kit.restart()
    assert kit.committed() == {("t", 0): 7}


def test_an_empty_group_stays_what_it_was_if_the_change_cannot_be_written() -> None:
    kit = ConsumerKit(replace(AT_ONCE, group_initial_rebalance_delay_ms=3_000), t=1)
    kit.enter("new", "t")
    kit.beat("new", -1)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    kit.answer(kit.join("", **CLASSIC))
    token = kit.join("", instance="i", **CLASSIC)
    assert kit.error(token) == E.NOT_COORDINATOR, "it looks for the coordinator, and joins again"
    assert (kit.view().group_state, kit.shard.store.context.next_classic) == ("Empty", {})


def mixed(kit: ConsumerKit, **new: Any) -> str:
    """A group of one classic member, who has half of everything, and `new`, who has the rest."""
    (old,) = classic_group(kit)
    kit.enter("new", "t", **new)
    rejoin(kit, old, {"t": [0, 1]})
    rejoin(kit, old, {"t": [0]})
    kit.assignment(kit.sync(old, 2))
    kit.beat("new", 2, instance_id=new.get("instance_id"))
    return old


@pytest.mark.parametrize("how", ["leaves", "is taken out", "times out", "does not give up"])
def test_down(how: str) -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    start = len(kit.log)
    if how == "leaves":
        kit.beat("new", -1)
    elif how == "is taken out":
        kit.leave("new")
    else:
        kit.advance(20)
        assert kit.heartbeat(old, 2) == E.NONE
        kit.advance(26)
    *records, last = kit.log[start:]
    parsed = [parse_consumer_group(record.key, record.value) for record in records]
    kinds = [type(record) for record in parsed]
    assert kinds == [
        *(MemberStanding, MemberStanding, TargetMember, TargetMember),
        *(TargetEpoch, Member, Member, OldTopicMetadata, GroupEpoch),
    ]
    stored = parse(last.key, last.value)
    assert isinstance(stored, GroupRecord)
    assert stored.stored is not None
    assert (stored.stored.generation, stored.stored.protocol, stored.stored.leader) == (2, "range", old)
    assert [assigned(member.assignment) for member in stored.stored.members] == [{"t": [0]}]
    assert kit.view().error_code == E.GROUP_ID_NOT_FOUND
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    answer = kit.joined(kit.join(old, **CLASSIC))
    assert (answer.generation_id, answer.leader) == (3, old)
    kit.assignment(kit.sync(old, 3, {old: assign({"t": [0, 1]})}))
    kit.restart()
    assert (kit.state(), kit.generation()) == ("Stable", 3)


def two_classic(kit: ConsumerKit, *second: tuple[str, bytes]) -> tuple[str, str]:
    """A group of `new` and two classic members, of which the second supports what is told."""
    kit.enter("new", "t")
    ids = []
    for protocols in ((("range", subscribe("t")),), second):
        arguments = {**CLASSIC, "protocols": protocols}
        ids.append(kit.member(**arguments))
        generation = kit.joined(kit.join(ids[-1], **arguments)).generation_id
        kit.answer(kit.sync(ids[-1], generation, protocol_name=protocols[0][0]))
    return ids[0], ids[1]


@pytest.mark.parametrize("how", ["leaves", "times out"])
def test_a_group_that_cannot_go_down_goes_on_as_it_is(how: str) -> None:
    kit = ConsumerKit(t=2)
    # Only what it tells of its first protocol is looked at when it joins, and the other is the one that all have.
    first, second = two_classic(kit, ("rr", subscribe("t")), ("range", b"\xff"))
    if how == "leaves":
        assert kit.code("new", -1) == E.NONE
    else:
        for _ in range(3):
            kit.advance(15.5)
            for member_id in (first, second):
                kit.heartbeat(member_id, kit.members()[member_id])
    assert set(kit.members()) == {first, second}
    assert kit.heartbeat(first, kit.members()[first]) == E.REBALANCE_IN_PROGRESS
    kit.advance(300)
    assert not kit.members()


def test_a_protocol_counts_once_however_often_a_member_names_it() -> None:
    kit = ConsumerKit(t=2)
    two_classic(kit, ("rr", subscribe("t")), ("rr", subscribe("t")), ("range", subscribe("t")))
    assert kit.code("new", -1) == E.NONE
    group = kit.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.protocol == "range"


def test_down_is_loaded_as_a_stable_generation() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    kit.beat("new", -1)
    kit.restart()
    assert (kit.state(), kit.heartbeat(old, 2)) == ("Stable", E.NONE)


def test_down_that_cannot_be_written_did_not_happen() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    kit.refuse = E.NOT_ENOUGH_REPLICAS
    assert kit.code("new", -1) == E.COORDINATOR_NOT_AVAILABLE
    kit.refuse = None
    assert kit.members() == {old: 2, "new": 2}
    assert (kit.heartbeat(old, 2), kit.code("new", 2)) == (E.NONE, E.NONE)
    assert kit.code("new", -1) == E.NONE
    assert kit.view().error_code == E.GROUP_ID_NOT_FOUND


def test_without_the_way_down_the_group_stays_and_its_members_share_what_is_left() -> None:
    kit = ConsumerKit(replace(AT_ONCE, consumer_migration_policy="upgrade"), t=2)
    old = mixed(kit)
    kit.beat("new", -1)
    assert kit.members() == {old: 2}
    assert kit.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    assert rejoin(kit, old, {"t": [0]}) == 3
    assert assigned(kit.assignment(kit.sync(old, 3))) == {"t": [0, 1]}


def test_a_static_member_changes_its_protocol_both_ways() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit, instance_id="i")
    # Back to classic: nothing has to move, so the group is classic and stable at once.
    token = kit.join("", instance="i", **CLASSIC)
    answer = kit.joined(token)
    assert (answer.generation_id, answer.protocol_name) == (2, "range")
    assert kit.state() == "Stable"
    assert assigned(kit.assignment(kit.sync(answer.member_id, 2, instance="i"))) == {"t": [1]}
    assert kit.heartbeat(old, 2) == E.NONE
    kit.restart()
    assert kit.state() == "Stable"
    # And to the next generation again, with what it had.
    joined = kit.beat("newer", 0, instance_id="i", **JOINING)
    assert (joined.member_epoch, kit.parts(joined)) == (2, {"t": [1]})
    assert kit.heartbeat(old, 2) == E.NONE
    assert kit.heartbeat(answer.member_id, 2, instance="i") == E.FENCED_INSTANCE_ID


def test_what_classic_members_are_answered() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    assert kit.heartbeat("x", 2) == E.UNKNOWN_MEMBER_ID
    assert kit.heartbeat("new", 2) == E.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert kit.heartbeat(old, 1) == E.ILLEGAL_GENERATION
    assert kit.error(kit.sync("x", 2)) == E.UNKNOWN_MEMBER_ID
    assert kit.error(kit.sync(old, 1)) == E.ILLEGAL_GENERATION
    assert kit.error(kit.sync(old, 2, protocol_name="rr")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.sync(old, 2, protocol_type="connect")) == E.INCONSISTENT_GROUP_PROTOCOL
    for join in ({"protocol_type": "connect"}, {"protocols": (("rr", subscribe("t")),)}):
        assert kit.error(kit.join("", **{**CLASSIC, **join})) == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.error(kit.join("y", **{**CLASSIC, "protocols": (("range", b"\0"),)})) == E.UNKNOWN_SERVER_ERROR
    answer = kit.leave("x", ("", "i"), ("new", "i"))
    assert [member.error_code for member in answer.members] == [E.UNKNOWN_MEMBER_ID] * 3
    for partition, generation, code in ((0, 1, E.NONE), (1, 1, E.ILLEGAL_GENERATION), (1, 3, E.ILLEGAL_GENERATION)):
        token = kit.commit_offsets({("t", partition): 1}, generation=generation, member_id=old)
        assert kit.answer(token) == [code]
    assert kit.shard.check_fetch("g", old, 1) == E.ILLEGAL_GENERATION
    assert (kit.shard.describe("g", 5).group_state, kit.shard.describe("g", 5).error_code) == ("Dead", E.NONE)
    assert [(each.group_type, each.group_state) for each in kit.shard.listed((), ("Consumer",))] == [
        ("consumer", "Stable")
    ]
    assert not list(kit.shard.listed((), ("classic",)))


def test_a_classic_member_that_does_not_come_back_is_gone() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    kit.enter("third", "t")
    assert kit.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    for _ in range(3):
        kit.advance(13)
        kit.heartbeat(old, 2)
        kit.beat("new", 2, owned={"t": [1]})
        kit.beat("third", 3)
    assert old in kit.members()
    kit.advance(2)
    assert old not in kit.members(), "it had its rebalance time-out to join again"


def test_a_classic_member_that_does_not_sync_is_gone() -> None:
    kit = ConsumerKit(t=2)
    old = mixed(kit)
    rejoin(kit, old, {"t": [0]})
    kit.advance(20)
    kit.heartbeat(old, 2)
    kit.beat("new", 2)
    kit.advance(19)
    assert old in kit.members()
    kit.heartbeat(old, 2)
    kit.advance(2)
    assert old not in kit.members()


def test_under_disabled_no_classic_member_joins_a_living_group() -> None:
    kit = ConsumerKit(replace(AT_ONCE, consumer_migration_policy="disabled"), t=2)
    kit.enter("new", "t")
    assert kit.error(kit.join("", **CLASSIC)) == E.INCONSISTENT_GROUP_PROTOCOL
