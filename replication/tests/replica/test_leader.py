"""The leader's side of replication: followers' progress, the high watermark, the in-sync set."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import ErrorCode
from barnabas.replication import LeaderState, PartitionImage, Proposal, Refusal
from barnabas.replication.replica.leader import JOIN_S

LAG = 10.0


def image(
    isr: tuple[int, ...] = (0, 1, 2), epoch: int = 5, partition_epoch: int = 7, replicas: tuple[int, ...] = (0, 1, 2)
) -> PartitionImage:
    return PartitionImage(0, isr[0], epoch, partition_epoch, replicas, isr)


class Rig:
    """A leader, broker 0, whose log ends at `end`."""

    def __init__(self, isr: tuple[int, ...] = (0, 1, 2), end: int = 0, **fields: Any) -> None:
        self.now = 100.0
        self.end = end
        self.high_watermark = 0
        self.alive = {0, 1, 2}
        self.min_insync_replicas = 1
        self.leader = LeaderState(0, image(isr, **fields), end, self.now)

    def fetch(self, replica: int, offset: int, start: int = 0) -> None:
        follower = self.leader.followers[replica]
        self.leader.fetched(follower, 9, offset, start, self.end, self.now)

    def expand(self, replica: int) -> Proposal | None:
        return self.leader.expand(self.leader.followers[replica], self.high_watermark, self.is_alive)

    def shrink(self) -> Proposal | None:
        return self.leader.shrink(self.end, LAG, self.now)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.alive

    def advance(self) -> int:
        self.high_watermark = self.leader.high_watermark(
            self.high_watermark,
            self.end,
            min_insync_replicas=self.min_insync_replicas,
            lag_s=LAG,
            is_alive=self.is_alive,
            now=self.now,
        )
        return self.high_watermark


# -- high watermark --------------------------------------------------------------------------------------------------


def test_the_high_watermark_is_the_least_end_in_sync() -> None:
    r = Rig(end=10)
    assert r.advance() == 0  # nobody has fetched yet
    r.fetch(1, 8)
    assert r.advance() == 0
    r.fetch(2, 5)
    assert r.advance() == 5
    r.fetch(2, 9)
    assert r.advance() == 8
    r.fetch(1, 3)  # a follower that lost its disk: what is committed stays so
    assert r.advance() == 8


def test_alone_in_sync_everything_is_committed() -> None:
    r = Rig(isr=(0,), end=10)
    assert r.advance() == 10


def test_it_waits_for_a_replica_about_to_join() -> None:
    """Out of sync but nearly there: without waiting for it, it would chase the high watermark for ever."""
    r = Rig(isr=(0,), end=10)
    r.fetch(1, 10)
    r.end = 14
    assert r.advance() == 10
    r.alive.remove(1)
    assert r.advance() == 14


@pytest.mark.parametrize(("late", "reached"), [(0.9, 10), (JOIN_S, 10), (1.001, 14), (LAG, 14)])
def test_it_waits_for_them_as_long_as_they_fetch(late: float, reached: int) -> None:
    r = Rig(isr=(0,), end=10)
    r.fetch(1, 10)
    r.end = 14
    r.now += late
    assert r.advance() == reached


@pytest.mark.parametrize(
    ("isr", "needed", "moves"),
    [
        ((0,), 1, True),
        ((0,), 2, False),
        ((0, 1), 2, True),
        ((0, 1), 3, False),
        ((0, 1, 2), 3, True),
        ((0, 1, 2), 9, True),  # nobody can have more replicas in sync than there are
        ((0, 1), 9, False),
    ],
)
def test_it_rests_below_min_insync_replicas(isr: tuple[int, ...], needed: int, moves: bool) -> None:
    r = Rig(isr=isr, end=10)
    r.min_insync_replicas = needed
    for replica in (1, 2):
        r.fetch(replica, 10)
    assert r.advance() == (10 if moves else 0)
    assert r.leader.has_enough(needed) == moves


def test_added_replicas_count_immediately_and_removed_ones_until_accepted() -> None:
    r = Rig(isr=(0, 2), end=10)
    r.fetch(1, 10)
    r.fetch(2, 10)
    assert r.advance() == 10
    proposal = r.expand(1)
    assert proposal is not None
    assert proposal.isr == (0, 2, 1)
    assert proposal.added == (1,)
    r.end = 20
    r.now += 60  # long out of date, but proposed
    r.fetch(2, 20)
    r.leader.followers[1].caught_up_at = 0
    assert r.advance() == 10
    assert r.leader.accepted(proposal, (0, 2, 1), 5, 8)
    leaving = r.shrink()
    assert leaving is not None
    assert leaving.isr == (0, 2)
    assert leaving.removed == (1,)
    assert r.advance() == 10
    assert r.leader.accepted(leaving, (0, 2), 5, 9)
    assert r.advance() == 20


# -- caught up -------------------------------------------------------------------------------------------------------


def test_a_fetch_up_to_the_end_is_caught_up_now() -> None:
    r = Rig(end=10)
    r.now += 5
    r.fetch(1, 10)
    assert r.leader.followers[1].caught_up_at == r.now


def test_a_fetch_up_to_the_end_of_the_last_one_was_caught_up_then() -> None:
    """Small appends all the time: the follower is never at the end, and never far from it."""
    r = Rig(end=10)
    r.fetch(1, 5)
    for _ in range(50):
        r.now += 1
        before, r.end = r.end, r.end + 3
        r.fetch(1, before)
        assert r.leader.followers[1].caught_up_at == r.now - 1
    proposal = r.shrink()
    assert proposal is not None
    assert proposal.removed == (2,)


def test_a_slow_follower_is_not_caught_up_however_often_it_fetches() -> None:
    r = Rig(end=10)
    for _ in range(12):
        r.fetch(1, 3)
        r.fetch(2, 10)
        r.now += 1
    proposal = r.shrink()
    assert proposal is not None
    assert proposal.removed == (1,)


def test_a_replica_with_everything_never_lags() -> None:
    r = Rig(end=10)
    r.fetch(1, 10)
    r.fetch(2, 10)
    r.now += 10_000
    assert r.shrink() is None


def test_a_follower_that_never_fetches_lags_from_the_leaders_start_on() -> None:
    r = Rig(end=10)
    r.now += LAG
    assert r.shrink() is None
    r.now += 0.001
    proposal = r.shrink()
    assert proposal is not None
    assert proposal.isr == (0,)
    assert proposal.removed == (1, 2)
    assert r.shrink() is None  # one at a time


# -- joining ---------------------------------------------------------------------------------------------------------


def test_joining_needs_everything_committed_and_everything_from_before_this_leader() -> None:
    r = Rig(isr=(0,), end=10)
    r.advance()
    r.end = 12
    r.advance()
    r.fetch(1, 9)
    assert r.expand(1) is None
    r.fetch(1, 11)
    assert r.expand(1) is None  # 12 are committed
    r.fetch(1, 12)
    r.alive.remove(1)
    assert r.expand(1) is None
    r.alive.add(1)
    assert r.expand(1) is not None
    r.fetch(2, 12)
    assert r.expand(2) is None  # one at a time


def test_a_new_leader_admits_no_replica_that_lacks_its_first_records() -> None:
    """Its high watermark may lag behind what its predecessor had committed."""
    r = Rig(isr=(0, 2), end=10)
    r.high_watermark = 4
    r.fetch(1, 6)
    assert r.expand(1) is None
    r.fetch(1, 10)
    assert r.expand(1) is not None


def test_members_are_not_proposed() -> None:
    r = Rig(end=10)
    r.fetch(1, 10)
    assert r.expand(1) is None


# -- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_of_another_time_is_ignored() -> None:
    r = Rig(isr=(0,), end=10)
    r.fetch(1, 10)
    first = r.expand(1)
    assert first is not None
    assert not r.leader.accepted(first, (0, 1), 6, 8)  # another leader epoch
    assert not r.leader.accepted(first, (0, 1), 5, 6)  # older than what we know
    assert r.leader.pending is first
    r.leader.lead(image((0,), epoch=6, partition_epoch=9), r.end, r.now)
    assert r.leader.pending is None
    assert not r.leader.accepted(first, (0, 1), 6, 10)
    assert r.leader.refused(first, ErrorCode.INELIGIBLE_REPLICA) is Refusal.STALE
    assert r.leader.isr == (0,)


def test_what_the_controller_says_counts_not_what_was_asked() -> None:
    r = Rig(isr=(0,), end=10)
    r.fetch(1, 10)
    proposal = r.expand(1)
    assert proposal is not None
    assert r.leader.accepted(proposal, (0, 1, 2), 5, 12)
    assert (r.leader.isr, r.leader.maximal_isr, r.leader.partition_epoch) == ((0, 1, 2), frozenset((0, 1, 2)), 12)


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, Refusal.REVERTED),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Refusal.REVERTED),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Refusal.AWAIT),
        (ErrorCode.UNKNOWN_TOPIC_ID, Refusal.AWAIT),
        (ErrorCode.FENCED_LEADER_EPOCH, Refusal.AWAIT),
        (ErrorCode.INVALID_UPDATE_VERSION, Refusal.AWAIT),
        (ErrorCode.INVALID_REQUEST, Refusal.AWAIT),
        (ErrorCode.NEW_LEADER_ELECTED, Refusal.AWAIT),
        (ErrorCode.NOT_CONTROLLER, Refusal.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Refusal.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, Refusal.RETRY),
    ],
)
def test_refusals(code: ErrorCode, becomes: Refusal) -> None:
    r = Rig(isr=(0,), end=10)
    r.fetch(1, 10)
    proposal = r.expand(1)
    assert proposal is not None
    assert r.leader.refused(proposal, code) is becomes
    if becomes is Refusal.REVERTED:
        assert (r.leader.pending, r.leader.maximal_isr) == (None, frozenset((0,)))
        assert r.expand(1) is not None
    else:
        # It may have been applied: until that is known the stricter of the two counts.
        assert (r.leader.pending, r.leader.maximal_isr) == (proposal, frozenset((0, 1)))


# -- new epochs, new assignments -------------------------------------------------------------------------------------


def test_led_again_followers_keep_their_ends_but_not_their_merits() -> None:
    r = Rig(isr=(0, 1), end=10)
    r.fetch(1, 10)
    r.fetch(2, 9)
    r.now += 1
    r.end = 20
    r.leader.lead(image((0, 1), epoch=6, partition_epoch=9), r.end, r.now)
    one, two = r.leader.followers[1], r.leader.followers[2]
    assert (one.log_end_offset, one.caught_up_at, two.log_end_offset, two.caught_up_at) == (10, 101.0, 9, float("-inf"))
    assert r.leader.epoch_start_offset == 20
    r.fetch(2, 15)
    assert r.expand(2) is None


def test_replicas_come_and_go() -> None:
    r = Rig(end=10)
    r.fetch(1, 7)
    r.leader.lead(image((0, 1), epoch=6, partition_epoch=9, replicas=(0, 1, 3)), r.end, r.now)
    assert sorted(r.leader.followers) == [1, 3]
    assert r.leader.followers[1].log_end_offset == 7
    assert r.leader.followers[3].log_end_offset == -1


def test_the_low_watermark_is_that_of_the_living() -> None:
    r = Rig(end=10)
    r.fetch(1, 10, start=3)
    r.fetch(2, 10, start=1)
    assert r.leader.low_watermark(5, r.is_alive) == 1
    r.alive.remove(2)
    assert r.leader.low_watermark(5, r.is_alive) == 3
    assert r.leader.low_watermark(2, r.is_alive) == 2
