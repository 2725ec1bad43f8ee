"""A share partition, step by step: what is acquired, acknowledged, released, stored."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.machine import Now
from barnabas.coordinator.share import (
    AcknowledgeType,
    AcquireMode,
    LogBatch,
    PartitionState,
    ReadBatch,
    SharePartition,
    ShareSettings,
    StateBatch,
    WriteState,
    aborted_ranges,
)
from barnabas.coordinator.share.partition import persister_error
from barnabas.coordinator.tests.share.share_kit import PartitionKit
from barnabas.kproto import ErrorCode

E = ErrorCode
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
HARD = AcquireMode.RECORD_LIMIT


def kit(*sizes: int, **settings: Any) -> PartitionKit:
    made = PartitionKit(settings=ShareSettings(**settings))
    made.produce(*sizes)
    return made


# -- acquiring ------------------------------------------------------------------------------------


def test_whole_batches() -> None:
    k = kit(10, 10, 10)
    assert k.acquire(max_records=15) == [(0, 19, 1)], "the batch in which the limit falls comes whole"
    assert k.partition.next_fetch_offset == 20
    assert k.acquire("b", max_records=15) == [(20, 29, 1)]
    assert k.acquire("b") == []
    assert k.states() == "q" * 30


def test_ranges_are_cut_at_ends_of_batches() -> None:
    k = kit(5, 5, 5, 5)
    assert k.acquire(max_records=100, batch_size=8) == [(0, 9, 1), (10, 19, 1)]
    k = kit(5, 5, 5)
    assert k.acquire(max_records=100, batch_size=1) == [(0, 4, 1), (5, 9, 1), (10, 14, 1)]


def test_hard_limit() -> None:
    k = kit(10, 10)
    assert k.acquire(max_records=3, mode=HARD) == [(0, 2, 1)]
    assert k.acquire("b", max_records=12, mode=HARD, batch_size=1) == [(3, 14, 1)], "one range"
    k.run(k.partition.release("b"))
    assert k.acquire("c", max_records=5, mode=HARD) == [(3, 7, 2)]
    assert k.states() == "q" * 8 + "v" * 7
    assert k.acquire("d", max_records=9, mode=HARD) == [(8, 14, 2), (15, 16, 1)]


def test_only_as_far_as_was_read() -> None:
    k = kit(10, 10)
    assert k.acquire(batch_count=1) == [(0, 9, 1)]
    k.run(k.partition.release("a"))
    k.log[0:1] = [LogBatch(0, 4), LogBatch(5, 9)]
    assert k.acquire("b", batch_count=1) == [(0, 4, 2)], "a piece in flight that reaches behind what was read"
    assert k.partition.next_fetch_offset == 5


def test_available_comes_before_new() -> None:
    k = kit(4, 4, 4)
    k.acquire(max_records=4)
    k.acquire("b", max_records=4)
    k.run(k.partition.release("a"))
    assert k.partition.next_fetch_offset == 0
    assert k.acquire("c") == [(0, 3, 2), (8, 11, 1)]


def test_the_window_has_a_width() -> None:
    k = kit(60, 60, 60, max_record_locks=100)
    assert k.acquire() == [(0, 119, 1)], "to the end of the batch in which it falls"
    assert not k.partition.can_acquire
    assert k.acquire() == []
    assert k.said("a", (60, 119, ACCEPT)) == E.NONE
    assert not k.partition.can_acquire, "what is settled counts, until it leaves at the front"
    assert k.said("a", (0, 4, RELEASE)) == E.NONE
    assert k.partition.can_acquire
    assert k.acquire("b") == [(0, 4, 2)]
    assert k.said("a", (5, 59, ACCEPT)) == E.NONE
    assert k.said("b", (0, 4, ACCEPT)) == E.NONE
    assert (k.partition.start_offset, k.partition.end_offset) == (120, 120)
    assert k.acquire() == [(120, 179, 1)]


def test_the_window_with_a_hard_limit() -> None:
    k = kit(60, 60, 60, max_record_locks=100)
    assert k.acquire(mode=HARD) == [(0, 99, 1)]
    assert k.acquire(mode=HARD) == []


def test_what_the_log_does_not_have_is_skipped() -> None:
    k = kit(5, 5, 5, 5)
    k.acquire(max_records=10)
    k.run(k.partition.release("a"))
    del k.log[0]
    assert k.acquire("b", max_records=5) == [(5, 9, 2)]
    assert k.partition.start_offset == 5
    del k.log[1]
    assert k.acquire("b") == [(15, 19, 1)]
    assert k.states() == "qqqqqxxxxxqqqqq"
    assert [write.batches for write in k.store.writes] == [(StateBatch(0, 9, 0, 1),)], "which nobody needs to know"
    k = kit(5, 5)
    del k.log[0]
    assert k.acquire() == [(5, 9, 1)]
    assert k.partition.start_offset == 5


def test_holes_inside_are_acquired() -> None:
    k = kit(5, 5, 5)
    del k.log[1]
    assert k.acquire() == [(0, 14, 1)]
    assert k.said("a", (0, 14, [ACCEPT] * 5 + [GAP] * 5 + [ACCEPT] * 5)) == E.NONE
    assert k.partition.start_offset == 15


@pytest.mark.parametrize("limit", [2, 3, 5, 10])
def test_bad_records_are_isolated(limit: int) -> None:
    """16 records of which one is bad: whoever gets it, gives all back."""
    k = kit(16, delivery_count_limit=limit)
    deliveries: list[list[tuple[int, int, int]]] = []
    while found := k.acquire("a"):
        deliveries.append(found)
        k.run(k.partition.release("a"))
        assert len(deliveries) < 1_000
    whole = [found for found in deliveries if found[0][:2] == (0, 15)]
    if limit == 2:
        assert [count for ((_, _, count),) in whole] == [1, 2]
        assert len(deliveries) == 2
    if limit == 5:
        assert [count for ((_, _, count),) in whole] == [1, 2, 3]
        assert deliveries[3] == [(0, 7, 4)]
        assert deliveries[4:12] == [[(offset, offset, 5)] for offset in range(8)]
        assert deliveries[12] == [(8, 15, 4)]
    if limit > 2:
        last = [found for found in deliveries if found[0][2] == limit]
        assert sorted(found[0][0] for found in last) == list(range(16)), "each has its last delivery"
        assert all(len(found) == 1 and found[0][0] == found[0][1] for found in last), "alone"
    assert k.partition.start_offset == 16


def test_aborted_transactions() -> None:
    k = kit(3, 3, 1, 3)
    k.aborted = [(3, 5)]
    assert k.acquire() == [(0, 2, 1), (6, 9, 1)]
    assert k.states() == "qqqxxxqqqq"
    assert k.said("a", (0, 2, ACCEPT)) == E.NONE
    assert k.partition.start_offset == 6
    k.load()
    assert k.acquire() == [(6, 9, 1)], "whose loss costs a delivery nobody counted"
    k = kit(3, 3)
    k.aborted = [(0, 5)]
    assert k.acquire() == []
    assert k.partition.start_offset == 6


def test_which_offsets_were_aborted() -> None:
    def batch(base: int, last: int, producer: int, kind: str) -> ReadBatch:
        return ReadBatch(base, last, producer, kind != "plain", kind in ("abort", "commit"), kind == "abort")

    read = [
        batch(0, 4, 7, "data"),
        batch(5, 5, 7, "commit"),
        batch(6, 9, -1, "plain"),
        batch(10, 12, 7, "data"),
        batch(13, 14, 7, "data"),
        batch(15, 17, 8, "data"),
        batch(18, 18, 7, "abort"),
        batch(19, 20, 7, "data"),
        batch(21, 21, 8, "abort"),
    ]
    assert aborted_ranges(read, [(7, 10), (8, 15)]) == [(10, 17)]
    assert aborted_ranges(read, [(7, 10)]) == [(10, 14)]
    assert aborted_ranges(read[4:], [(7, 10)]) == [(13, 14)], "a read that begins in the middle"
    assert aborted_ranges(read, []) == []


# -- acknowledging --------------------------------------------------------------------------------


def test_types() -> None:
    k = kit(5)
    k.acquire()
    assert k.said("a", (0, 4, [RELEASE, ACCEPT, REJECT, GAP, RENEW]), is_renew=True) == E.NONE
    assert k.states() == "vkxxq"
    assert k.partition.delivery_complete_count == 3
    assert k.store.batches() == [
        StateBatch(0, 0, 0, 1), StateBatch(1, 1, 2, 1), StateBatch(2, 2, 4, 1), StateBatch(3, 3, 4, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(3, 2, ACCEPT)], E.INVALID_REQUEST),
        ([(4, 6, ACCEPT), (2, 3, ACCEPT)], E.INVALID_REQUEST),
        ([(0, 2, [])], E.INVALID_REQUEST),
        ([(0, 2, [ACCEPT, ACCEPT])], E.INVALID_REQUEST),
        ([(0, 2, 5)], E.INVALID_REQUEST),
        ([(0, 2, -1)], E.INVALID_REQUEST),
        ([(0, 2, RENEW)], E.INVALID_REQUEST),
        ([(0, 10, ACCEPT)], E.INVALID_REQUEST),
        ([(10, 10, ACCEPT)], E.INVALID_RECORD_STATE),
        ([(8, 9, ACCEPT)], E.INVALID_RECORD_STATE),
        ([(3, 6, ACCEPT)], E.INVALID_RECORD_STATE),
        ([(0, 3, ACCEPT), (3, 3, REJECT)], E.INVALID_RECORD_STATE),
        ([(0, 1, ACCEPT), (5, 5, ACCEPT)], E.INVALID_RECORD_STATE),
        ([], E.NONE),
    ],
)
def test_what_is_refused(batches: list[Any], code: ErrorCode) -> None:
    """Member a has 0 to 4, b 5 to 7; 8 and 9 are available."""
    k = kit(10)
    k.acquire("a", 5, mode=HARD)
    k.acquire("b", 3, mode=HARD)
    k.acquire("c", 2, mode=HARD)
    k.run(k.partition.release("c"))
    before, writes = k.states(), len(k.store.writes)
    assert before == "qqqqqqqqvv"
    assert k.said("a", *batches) == code
    assert k.states() == before, "one error refuses all"
    assert len(k.store.writes) == writes


def test_below_the_start_is_ignored() -> None:
    k = kit(10)
    k.acquire()
    assert k.said("a", (0, 4, ACCEPT)) == E.NONE
    assert k.said("a", (0, 3, REJECT)) == E.NONE
    assert k.said("a", (2, 6, [REJECT, REJECT, REJECT, ACCEPT, RELEASE])) == E.NONE
    assert k.states() == "vqqq"
    assert k.partition.start_offset == 6


def test_a_group_may_not_renew() -> None:
    k = kit(2, may_renew=False)
    k.acquire()
    assert k.said("a", (0, 1, [ACCEPT, RENEW]), is_renew=True) == E.INVALID_RECORD_STATE
    assert k.states() == "qq"


def test_the_last_delivery() -> None:
    k = kit(1, delivery_count_limit=2)
    for count in (1, 2):
        assert k.acquire() == [(0, 0, count)]
        assert k.said("a", (0, 0, RELEASE)) == E.NONE
    assert k.acquire() == []
    assert k.partition.start_offset == 1
    assert k.store.offsets == {0: (2, 4)}


# -- storing --------------------------------------------------------------------------------------


def test_nothing_moves_until_it_is_stored() -> None:
    k = kit(4)
    k.acquire()
    k.store_waits = True
    token = k.acknowledge("a", (0, 1, ACCEPT), (2, 2, RELEASE))
    assert k.states() == "KKVq"
    assert token not in k.answers
    assert k.acquire("b") == [], "nobody gets what may not be stored"
    assert k.said("a", (0, 0, ACCEPT)) == E.INVALID_RECORD_STATE
    assert k.partition.start_offset == 0
    k.store_now()
    assert k.answers[token] == E.NONE
    assert k.states() == "vq"
    assert k.acquire("b") == [(2, 2, 2)]


def test_writes_follow_each_other() -> None:
    k = kit(9)
    k.acquire()
    k.store_waits = True
    tokens = [k.acknowledge("a", (offset, offset, ACCEPT)) for offset in (1, 0, 2, 5)]
    assert len(k.waiting) == 1
    k.store_now()
    assert [token in k.answers for token in tokens] == [True, False, False, False]
    (write,) = k.waiting
    assert write == WriteState(3, 1, 0, 4, (StateBatch(0, 0, 2, 1), StateBatch(2, 2, 2, 1), StateBatch(5, 5, 2, 1)))
    k.store_now()
    assert all(k.answers[token] == E.NONE for token in tokens)
    assert k.partition.start_offset == 3
    assert k.partition.delivery_complete_count == 1


def test_the_start_is_that_of_before() -> None:
    k = kit(6)
    k.acquire()
    k.said("a", (0, 2, ACCEPT))
    assert (k.store.start_offset, k.store.delivery_complete_count) == (0, 3)
    k.said("a", (3, 3, RELEASE))
    assert (k.store.start_offset, k.store.delivery_complete_count) == (3, 0)


def test_what_cannot_be_stored_is_undone() -> None:
    k = kit(4)
    k.acquire()
    k.refuse = E.COORDINATOR_LOAD_IN_PROGRESS
    assert k.said("a", (0, 1, ACCEPT)) == E.COORDINATOR_NOT_AVAILABLE
    assert k.states() == "qqqq"
    k.refuse = E.NONE
    assert k.said("a", (0, 1, REJECT)) == E.NONE


def test_a_lock_that_expires_while_it_is_stored() -> None:
    k = kit(4)
    k.acquire()
    k.store_waits = True
    lost, kept = k.acknowledge("a", (0, 0, ACCEPT)), k.acknowledge("a", (1, 1, ACCEPT))
    k.advance(31)
    assert k.states() == "KKvv"
    k.refuse = E.NOT_COORDINATOR
    k.store_now()
    assert k.answers[lost] == E.COORDINATOR_NOT_AVAILABLE
    assert k.states() == "vKvv", "what could not be stored is as if nothing had been said"
    k.refuse = E.NONE
    while k.waiting:
        k.store_now()
    assert k.answers[kept] == E.NONE
    assert k.states() == "vkvv"
    assert k.store.batches() == [
        StateBatch(0, 0, 0, 1), StateBatch(1, 1, 2, 1), StateBatch(2, 2, 0, 1), StateBatch(3, 3, 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "told", "is_end"),
    [
        (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE, False),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, False),
        (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, False),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION, True),
        (E.GROUP_ID_NOT_FOUND, E.GROUP_ID_NOT_FOUND, True),
        (E.FENCED_LEADER_EPOCH, E.NOT_LEADER_OR_FOLLOWER, True),
        (E.FENCED_STATE_EPOCH, E.NOT_LEADER_OR_FOLLOWER, True),
        (E.REQUEST_TIMED_OUT, E.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_errors_of_the_store(stored: ErrorCode, told: ErrorCode, is_end: bool) -> None:
    k = kit(4)
    k.acquire()
    k.store_waits = True
    first, second = k.acknowledge("a", (0, 0, ACCEPT)), k.acknowledge("a", (1, 1, ACCEPT))
    k.refuse = stored
    k.store_now()
    assert k.answers[first] == told == persister_error(stored)
    assert (second in k.answers) == is_end
    assert (k.partition.state is PartitionState.ENDED) == is_end
    if is_end:
        assert not k.waiting, "the next leader's state is not to be touched"
        assert k.said("a", (2, 2, ACCEPT)) == told
        assert k.acquire() == []
        assert k.partition.deadline() is None


def test_a_store_that_has_forgotten_it() -> None:
    """The group was deleted, or its offsets: what members say is refused as in Apache Kafka, and it is loaded again."""
    k = kit(4)
    k.acquire()
    k.store_waits = True
    said = [k.acknowledge("a", (0, 0, ACCEPT)), k.acknowledge("a", (1, 1, ACCEPT))]
    k.refuse = E.INVALID_REQUEST
    k.store_now()
    assert [k.answers[token] for token in said] == [E.UNKNOWN_SERVER_ERROR] * 2
    assert (k.partition.state, k.partition.error) == (PartitionState.ENDED, E.COORDINATOR_NOT_AVAILABLE)
    assert k.said("a", (2, 2, ACCEPT)) == E.COORDINATOR_NOT_AVAILABLE
    assert k.partition.deadline() is None


# -- locks ----------------------------------------------------------------------------------------


def test_locks_expire_together() -> None:
    k = kit(6)
    k.acquire("a", 2, mode=HARD)
    k.advance(10)
    k.acquire("b", 4, mode=HARD)
    assert k.said("b", (3, 3, ACCEPT)) == E.NONE
    woken = k.woken
    k.advance(20)
    assert k.states() == "vvqkqq"
    assert k.woken > woken
    assert k.said("a", (0, 0, ACCEPT)) == E.INVALID_RECORD_STATE
    k.advance(10)
    assert k.states() == "vvvkvv"
    assert k.partition.deadline() is None
    assert k.acquire("c") == [(0, 1, 2), (2, 2, 2), (4, 5, 2)]


def test_expiry_is_stored_if_it_can_be() -> None:
    k = kit(2, delivery_count_limit=2)
    k.acquire()
    k.advance(30)
    assert k.store.batches() == [StateBatch(0, 0, 0, 1), StateBatch(1, 1, 0, 1)]
    k.refuse = E.COORDINATOR_NOT_AVAILABLE
    k.acquire()
    k.advance(30)
    assert k.partition.start_offset == 2, "and happens anyway"
    assert k.store.batches() == [StateBatch(0, 0, 0, 1), StateBatch(1, 1, 0, 1)]


def test_renewing() -> None:
    k = kit(2)
    k.acquire()
    k.advance(20)
    assert k.said("a", (1, 1, RENEW), is_renew=True) == E.NONE
    assert not k.store.writes, "of which nobody needs to know"
    k.advance(10)
    assert k.states() == "vq"
    k.advance(20)
    assert k.states() == "vv"


def test_settings_hold_from_the_next_use_on() -> None:
    k = kit(2)
    k.acquire("a", 1, mode=HARD)
    k.settings = ShareSettings(record_lock_duration_ms=1_000, delivery_count_limit=1)
    k.acquire("b", 1, mode=HARD)
    k.advance(1)
    assert k.states() == "qx"


# -- sessions, the log's start, the end -----------------------------------------------------------


def test_a_session_ends() -> None:
    k = kit(4)
    k.acquire("a", 2, mode=HARD)
    k.acquire("b", 2, mode=HARD)
    k.asked += 1
    k.run(k.partition.release("a", k.asked))
    assert k.answers[k.asked] == E.NONE
    assert k.states() == "vvqq"
    assert k.store.batches() == [StateBatch(0, 0, 0, 1), StateBatch(1, 1, 0, 1)], "with the count"
    k.run(k.partition.release("nobody", 99))
    assert k.answers[99] == E.NONE


def test_the_log_loses_its_beginning() -> None:
    k = kit(4, 4)
    k.acquire("a", 4)
    k.acquire("b", 4)
    k.run(k.partition.release("b"))
    k.run(k.partition.log_start_moved(6))
    assert k.states() == "vv"
    assert k.partition.deadline() is None
    assert k.said("a", (0, 3, ACCEPT)) == E.NONE
    k.run(k.partition.log_start_moved(100))
    assert (k.partition.start_offset, k.partition.end_offset) == (100, 100)
    k.run(k.partition.log_start_moved(50))
    assert k.partition.start_offset == 100


def test_who_waits_is_told_of_the_end() -> None:
    k = kit(4)
    k.acquire()
    k.store_waits = True
    tokens = [k.acknowledge("a", (offset, offset, ACCEPT)) for offset in (0, 1)]
    k.run(k.partition.end(E.NOT_LEADER_OR_FOLLOWER))
    assert [k.answers[token] for token in tokens] == [E.NOT_LEADER_OR_FOLLOWER] * 2
    k.store_now()
    assert k.store.offsets == {0: (1, 2)}, "it may have been stored"
    assert k.partition.state is PartitionState.ENDED


# -- loading --------------------------------------------------------------------------------------


def test_a_reload_knows_what_was_stored() -> None:
    k = kit(10)
    k.acquire()
    k.said("a", (0, 2, ACCEPT))
    k.said("a", (5, 6, RELEASE))
    k.said("a", (8, 8, REJECT))
    k.load()
    assert k.partition.start_offset == 3
    assert k.states() == "--vv-x", "what was with somebody is a gap"
    assert k.partition.next_fetch_offset == 3
    assert k.acquire("b") == [(3, 4, 1), (5, 5, 2), (6, 6, 2), (7, 7, 1), (9, 9, 1)]


def test_nobody_has_read_yet() -> None:
    made = PartitionKit(start_offset=-1)
    assert made.partition.state is PartitionState.ACTIVE
    assert made.partition.start_offset == 0
    assert made.store.start_offset == -1, "it is stored with the first write"
    made.produce(3)
    made.acquire()
    assert made.said("a", (0, 0, ACCEPT)) == E.NONE
    assert made.store.start_offset == 0


def test_a_start_below_the_log() -> None:
    """Administrators may name any, and are told that it is so: it is the log's start."""
    made = PartitionKit(start_offset=-5)
    assert (made.partition.state, made.partition.start_offset) == (PartitionState.ACTIVE, 0)
    made.produce(3)
    made.acquire()
    assert made.said("a", (0, 0, ACCEPT)) == E.NONE


@pytest.mark.parametrize(
    ("start_offset", "batches"),
    [
        (-2, [StateBatch(-1, 6, 0, 1)]),
        (5, [StateBatch(4, 6, 0, 1)]),
        (0, [StateBatch(4, 6, 0, 1), StateBatch(6, 7, 0, 1)]),
        (0, [StateBatch(4, 6, 1, 1)]),
        (0, [StateBatch(4, 6, 3, 1)]),
    ],
)
def test_a_state_that_cannot_be(start_offset: int, batches: list[StateBatch]) -> None:
    partition = SharePartition(1, ShareSettings)
    partition.load()
    partition.loaded(E.NONE, 3, start_offset, batches)
    assert (partition.state, partition.error) == (PartitionState.ENDED, E.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (E.INVALID_REQUEST, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        (E.FENCED_LEADER_EPOCH, E.NOT_LEADER_OR_FOLLOWER),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION),
        (E.CORRUPT_MESSAGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read(code: ErrorCode, told: ErrorCode) -> None:
    partition = SharePartition(1, ShareSettings)
    assert partition.acknowledge("a", [], False, 7, Now(0.0, 0)).replies == ((7, E.COORDINATOR_NOT_AVAILABLE),)
    partition.load()
    assert partition.load().effects == (), "once"
    assert not partition.can_acquire
    partition.loaded(code, 0, 0, [])
    assert (partition.state, partition.error) == (PartitionState.ENDED, told)


def test_a_start_that_cannot_be_resolved() -> None:
    partition = SharePartition(1, ShareSettings)
    partition.load()
    partition.loaded(E.NONE, 1, -1, [])
    partition.resolved(E.NOT_LEADER_OR_FOLLOWER)
    assert (partition.state, partition.error) == (PartitionState.ENDED, E.NOT_LEADER_OR_FOLLOWER)


def test_who_comes_too_late_changes_nothing() -> None:
    partition = SharePartition(1, ShareSettings)
    partition.load()
    partition.end(E.NOT_LEADER_OR_FOLLOWER)
    assert partition.loaded(E.NONE, 1, 0, []).effects == ()
    assert partition.resolved(5).effects == ()
    assert partition.end(E.UNKNOWN_SERVER_ERROR).effects == ()
    assert partition.error == E.NOT_LEADER_OR_FOLLOWER


def test_a_window_of_huge_ranges_is_small() -> None:
    partition = SharePartition(1, ShareSettings)
    partition.load()
    partition.loaded(E.NONE, 1, 0, [StateBatch(0, 2**62, 2, 1), StateBatch(2**62 + 1, 2**62 + 9, 0, 1)])
    assert (partition.start_offset, partition.end_offset) == (2**62 + 1, 2**62 + 10)


def test_a_hole_that_is_wider_than_can_be_counted() -> None:
    k = kit(4)
    k.acquire()
    k.log.append(LogBatch(2**40, 2**40 + 3))
    k.high_watermark = 2**40 + 4
    assert k.acquire() == [(2**40, 2**40 + 3, 1)]
    assert k.said("a", (1, 1, ACCEPT)) == E.NONE
    assert k.store.delivery_complete_count == 2**31 - 1
    assert not k.partition.can_acquire
    assert k.said("a", (0, 3, ACCEPT)) == E.INVALID_RECORD_STATE
    assert k.said("a", (0, 0, ACCEPT), (2, 3, ACCEPT)) == E.NONE
    assert k.partition.start_offset == 2**40
