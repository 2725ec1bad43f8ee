"""The classic group protocol: sessions and rebalances that take too long."""

from __future__ import annotations

import pytest

from barnabas.coordinator import GroupConfig
from barnabas.coordinator.tests.kit import Kit
from barnabas.kproto import ErrorCode

E = ErrorCode


def test_a_member_that_is_not_heard_of_is_taken_out_after_its_session() -> None:
    kit = Kit()
    ids = kit.stable(2)
    for _ in range(5):
        kit.advance(5)
        assert kit.heartbeat(ids[0], 2) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    # The other one is gone since second 10; the first is told to join again, and is the only one now.
    assert kit.joined(kit.join(ids[0])).generation_id == 3
    assert kit.heartbeat(ids[1], 3) == E.UNKNOWN_MEMBER_ID


def test_a_group_without_heartbeats_becomes_empty() -> None:
    kit = Kit()
    kit.stable(3)
    kit.advance(60)
    assert kit.state() == "Empty"


def test_commits_count_as_a_sign_of_life() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1)
    for _ in range(5):
        kit.advance(6)
        kit.answer(kit.commit_offsets({("t", 0): 1}, generation=1, member_id=member_id))
    assert kit.state() == "Stable"


def test_members_that_wait_do_not_expire() -> None:
    kit = Kit()
    ids = kit.stable(3)
    waiting = kit.join(ids[0])
    for _ in range(10):
        kit.advance(5)
        assert kit.heartbeat(ids[1], 2) == E.REBALANCE_IN_PROGRESS
        assert kit.heartbeat(ids[2], 2) == E.REBALANCE_IN_PROGRESS
    assert kit.waits(waiting)
    kit.advance(10)
    assert kit.joined(waiting).generation_id == 3  # the others' sessions ended


def test_the_rebalance_time_out_drops_members_that_have_not_joined() -> None:
    kit = Kit()
    ids = kit.stable(3, rebalance_ms=30_000)
    waiting = kit.join(ids[0], rebalance_ms=30_000)
    for _ in range(6):
        kit.advance(4.9)
        kit.heartbeat(ids[1], 2)
        kit.heartbeat(ids[2], 2)
    assert kit.waits(waiting)
    kit.advance(1)
    assert kit.joined(waiting).generation_id == 3
    assert kit.error(kit.join(ids[1])) == E.UNKNOWN_MEMBER_ID


def test_the_rebalance_waits_for_the_longest_time_out() -> None:
    kit = Kit()
    ids = kit.stable(2, session_ms=1_000_000)
    patient = kit.join(ids[1], protocols=[("range", b"new")], rebalance_ms=100_000, session_ms=1_000_000)
    kit.joined(kit.join(ids[0], rebalance_ms=20_000, session_ms=1_000_000))
    kit.joined(patient)
    waiting = kit.join(ids[0], protocols=[("range", b"new")], rebalance_ms=20_000, session_ms=1_000_000)
    kit.advance(99)
    assert kit.waits(waiting)
    kit.advance(2)
    assert kit.joined(waiting).generation_id == 4


def test_a_member_that_does_not_sync_within_the_rebalance_time_out_is_removed() -> None:
    kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=0))
    ids = kit.stable(2, rebalance_ms=20_000, session_ms=600_000)
    tokens = [kit.join(member_id, rebalance_ms=20_000, session_ms=600_000) for member_id in ids]
    for token in tokens:
        kit.joined(token)
    follower = kit.sync(ids[1], 3)
    kit.advance(21)
    # The leader never brought the assignment: it is out, the other must join again and leads.
    assert kit.error(follower) == E.REBALANCE_IN_PROGRESS
    assert kit.joined(kit.join(ids[1])).leader == ids[1]
    assert kit.error(kit.join(ids[0])) == E.UNKNOWN_MEMBER_ID


def test_a_follower_that_does_not_sync_is_taken_out_of_a_stable_group() -> None:
    kit = Kit()
    ids = kit.stable(2, rebalance_ms=20_000, session_ms=600_000)
    for member_id in ids:
        kit.join(member_id, rebalance_ms=20_000, session_ms=600_000)
    kit.assignment(kit.sync(ids[0], 3, dict.fromkeys(ids, b"x")))
    assert kit.state() == "Stable"
    kit.advance(19)
    assert kit.state() == "Stable"
    kit.advance(2)
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(ids[1], 3) == E.UNKNOWN_MEMBER_ID


def test_the_parked_join_of_an_unknown_newcomer_ends_after_five_minutes() -> None:
    kit = Kit()
    ids = kit.stable(1, rebalance_ms=1_000_000, session_ms=1_000_000)
    newcomer = kit.join(version=3, session_ms=10_000)
    kit.advance(299)
    assert kit.waits(newcomer)
    kit.advance(2)
    assert kit.error(newcomer) == E.UNKNOWN_MEMBER_ID
    assert kit.heartbeat(ids[0], 1) == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("rebalance_ms", [-1, 0])
def test_absurd_rebalance_time_outs_end_at_once_and_for_all(rebalance_ms: int) -> None:
    kit = Kit()
    ids = [kit.member() for _ in range(3)]
    for member_id in ids:
        kit.join(member_id, rebalance_ms=rebalance_ms)
    kit.join(instance="i", rebalance_ms=rebalance_ms)
    kit.advance(100)
    assert kit.state() == "Empty"


def test_old_clients_use_the_session_for_the_rebalance() -> None:
    kit = Kit()
    kit.join(version=0, session_ms=7000, rebalance_ms=-1)
    assert kit.shard.groups["g"].members.rebalance_timeout_ms == 7000
