"""AddPartitionsToTxn, AddOffsetsToTxn, verification, EndTxn: permissions and answers, by state and version."""

from __future__ import annotations

import pytest

from barnabas.coordinator.tests.txn.txn_kit import OFFSETS, TV2, A, B, C, Marker, Producer, TxnKit
from barnabas.coordinator.txn import TxnConfig, verification_error
from barnabas.coordinator.txn.ending import verdict_bumping, verdict_strict
from barnabas.coordinator.txn.states import STORED, Event, State
from barnabas.coordinator.txn.transaction import Txn
from barnabas.kproto import ErrorCode

NONE, BUSY, WRONG = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING

# -- adding partitions ----------------------------------------------------------------------------


def test_partitions_gather_until_the_end() -> None:
    kit = TxnKit()
    producer = kit.producer()
    assert kit.add(producer, A) == NONE
    assert kit.last().txn.start_ms == kit.now.wall_ms
    kit.advance(2)
    assert kit.add(producer, A, B) == NONE
    assert kit.last().txn.start_ms == kit.now.wall_ms - 2000
    assert kit.add_offsets(producer) == NONE
    records = len(kit.log)
    assert kit.add(producer, B, A) == NONE
    assert len(kit.log) == records
    assert kit.entry().txn.partitions == {A, B, OFFSETS}
    assert kit.error(kit.end(producer)) == NONE
    assert sorted(kit.partitions) == sorted([A, B, OFFSETS])
    kit.advance(1)
    assert kit.add(producer, C) == NONE
    assert kit.last().txn.partitions == {C}
    assert kit.last().txn.start_ms == kit.now.wall_ms
    kit.check()


@pytest.mark.parametrize(
    ("producer", "name", "code"),
    [
        (Producer(1001, 0), "x", NONE),
        (Producer(1001, 1), "x", FENCED),
        (Producer(1002, 0), "x", UNMAPPED),
        (Producer(1001, 0), "unknown", UNMAPPED),
        (Producer(1001, 0), "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_which_producers_may_add(producer: Producer, name: str, code: ErrorCode) -> None:
    kit = TxnKit()
    kit.producer()
    assert kit.verify(producer, A, name=name) == [ErrorCode.TRANSACTION_ABORTABLE if code == NONE else code]
    assert kit.add(producer, A, name=name) == code
    assert kit.add_offsets(producer, name=name) == code
    assert kit.error(kit.end(producer, name=name)) == code


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90), (4, 90)])
def test_fencing_has_its_own_error_from_version_2_on(version: int, code: int) -> None:
    kit = TxnKit()
    first = kit.producer()
    kit.producer()
    assert kit.add(first, A, version=version) == code
    assert kit.add_offsets(first, version=version) == code
    assert kit.error(kit.end(first, version=version)) == code
    assert kit.verify(first, A) == [FENCED]


@pytest.mark.parametrize(("version", "client"), [(3, 0), (4, 2), (5, 2)])
def test_the_record_says_what_the_client_knows(version: int, client: int) -> None:
    kit = TxnKit(TV2)
    producer = kit.producer()
    kit.add(producer, A, version=version)
    assert kit.last().txn.client_version == client
    kit.add_offsets(producer)
    assert kit.last().txn.client_version == 0


def test_an_unconfirmed_partition_is_not_verified() -> None:
    """Else a producer could write to a partition that will get no marker."""
    kit = TxnKit(TV2)
    producer = kit.producer()
    kit.commit_lag = True
    kit.add(producer, A, version=5)
    assert kit.verify(producer, A) == [ErrorCode.TRANSACTION_ABORTABLE]
    kit.restart()
    assert kit.verify(producer, A) == [ErrorCode.TRANSACTION_ABORTABLE]
    kit.add(producer, A, version=5)
    kit.commit()
    assert kit.verify(producer, A, B) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]


def test_verification_by_state() -> None:
    kit = TxnKit()
    producer = kit.open_transaction(A)
    assert kit.verify(producer, A) == [NONE]
    kit.markers_wait = True
    kit.end(producer)
    assert kit.verify(producer, A, B) == [BUSY, BUSY]
    kit.deliver()
    assert kit.verify(producer, A) == [ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        (NONE, NONE, NONE),
        (FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, WRONG, ErrorCode.TRANSACTION_ABORTABLE),
        (BUSY, BUSY, BUSY),
    ],
)
def test_which_error_a_producer_gets_of_a_verification(code: ErrorCode, old: ErrorCode, new: ErrorCode) -> None:
    assert (verification_error(code, False), verification_error(code, True)) == (old, new)


# -- the end --------------------------------------------------------------------------------------

# What Apache Kafka's `endTransactionWithTV1` does, by state: (abort, commit).
TV1 = {
    State.EMPTY: (WRONG, WRONG),
    State.ONGOING: (Event.ABORT, Event.COMMIT),
    State.PREPARE_COMMIT: (WRONG, BUSY),
    State.PREPARE_ABORT: (BUSY, WRONG),
    State.COMPLETE_COMMIT: (WRONG, NONE),
    State.COMPLETE_ABORT: (NONE, WRONG),
}
# The same of `endTransaction`: (abort repeated, abort, commit repeated, commit).
TV2_TABLE = {
    State.EMPTY: (FENCED, Event.ABORT_NOTHING, FENCED, WRONG),
    State.ONGOING: (FENCED, Event.ABORT, FENCED, Event.COMMIT),
    State.PREPARE_COMMIT: (WRONG, FENCED, BUSY, FENCED),
    State.PREPARE_ABORT: (BUSY, FENCED, WRONG, FENCED),
    State.COMPLETE_COMMIT: (WRONG, Event.ABORT_NOTHING, NONE, WRONG),
    State.COMPLETE_ABORT: (NONE, Event.ABORT_NOTHING, WRONG, WRONG),
}


@pytest.mark.parametrize("state", STORED)
def test_verdicts(state: State) -> None:
    txn = Txn(7, 5, 1000, state, client_version=2)
    old = txn._replace(client_version=0)
    for commit in (False, True):
        assert verdict_strict(txn, False, 7, 5, commit) == TV1[state][commit]
        assert verdict_strict(txn, True, 7, 5, commit) == BUSY
        for epoch in (4, 6):
            assert verdict_strict(txn, True, 7, epoch, commit) == FENCED
        assert verdict_strict(txn, True, 8, 5, commit) == UNMAPPED

        repeated, present = TV2_TABLE[state][2 * commit : 2 * commit + 2]
        assert verdict_bumping(txn, False, 7, 4, commit) == repeated
        assert verdict_bumping(txn, False, 7, 5, commit) == present
        assert verdict_bumping(old, False, 7, 4, commit) == FENCED
        assert verdict_bumping(old, False, 7, 5, commit) == present
        for epoch in (3, 6, 32766):
            assert verdict_bumping(txn, False, 7, epoch, commit) == FENCED
        assert verdict_bumping(txn, False, 8, 5, commit) == UNMAPPED
        for producer_id, epoch in ((7, 4), (7, 5), (8, 5), (7, 9)):
            assert verdict_bumping(txn, True, producer_id, epoch, commit) == BUSY

        overflowed = Txn(8, 0, 1000, state, previous_producer_id=7, client_version=2)
        told = repeated if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) else FENCED
        assert verdict_bumping(overflowed, False, 7, 32766, commit) == told
        assert verdict_bumping(overflowed, False, 7, 32765, commit) == UNMAPPED


@pytest.mark.parametrize("commit", [False, True])
def test_the_outcome_reaches_every_partition(commit: bool) -> None:
    kit = TxnKit()
    producer = kit.open_transaction(A, B, C)
    assert kit.error(kit.end(producer, commit)) == NONE
    assert kit.partitions == {each: [Marker(*producer, commit, 0)] for each in (A, B, C)}
    assert kit.error(kit.end(producer, commit)) == NONE
    assert kit.error(kit.end(producer, not commit)) == WRONG
    assert kit.add(producer, A) == NONE
    kit.check()


def test_version_2_bumps_the_epoch_at_every_end() -> None:
    kit = TxnKit(TV2)
    producer = kit.producer()
    for commit in (True, False, True):
        assert kit.add(producer, A, version=5) == NONE
        token = kit.end(producer, commit, version=5)
        after = kit.ended(token)
        assert after == (producer.producer_id, producer.epoch + 1)
        assert kit.partitions[A][-1] == Marker(*after, commit, 0)
        assert kit.markers_asked[-1].transaction_version == 2
        assert kit.ended(kit.end(producer, commit, version=5)) == after
        assert kit.add(producer, A, version=5) == FENCED
        producer = after
    kit.check()


def test_an_abort_of_nothing_bumps_the_epoch_without_markers() -> None:
    kit = TxnKit(TV2)
    first = kit.producer()
    second = kit.ended(kit.end(first, False, version=5))
    assert second == (first.producer_id, 1)
    assert kit.state() == "CompleteAbort"
    assert kit.ended(kit.end(second, False, version=5)) == (first.producer_id, 2)
    assert kit.markers_asked == []
    assert kit.last().txn.start_ms == kit.now.wall_ms
    kit.check()


def test_a_zombie_is_not_handed_the_epoch_of_an_older_client() -> None:
    """Where we deviate from Apache Kafka 4.3."""
    kit = TxnKit(TV2)
    zombie = kit.producer()
    producer = kit.open_transaction(A)
    assert kit.error(kit.end(producer, version=4)) == NONE
    for commit in (False, True):
        assert kit.error(kit.end(zombie, commit, version=5)) == FENCED


@pytest.mark.parametrize("version", [1, 5])
def test_old_and_new_clients_share_a_broker(version: int) -> None:
    """transaction.version 2 is finalised; a client that does not know it is served the old way."""
    kit = TxnKit(TV2)
    producer = kit.open_transaction(A)
    after = kit.ended(kit.end(producer, version=version))
    assert after == ((-1, -1) if version == 1 else (producer.producer_id, 1))
    assert kit.markers_asked[-1].transaction_version == (0 if version == 1 else 2)
    assert kit.entry().txn.producer_epoch == (0 if version == 1 else 1)


def test_the_level_changes_while_a_transaction_is_open() -> None:
    kit = TxnKit()
    producer = kit.open_transaction(A)
    kit.set_config(TV2)
    assert kit.ended(kit.end(producer, version=5)) == (producer.producer_id, 1)
    assert kit.log[-1].value[:2] == b"\0\1"
    kit.restart()
    kit.set_config(TxnConfig())
    assert kit.add(Producer(producer.producer_id, 1), A) == NONE
    assert kit.log[-1].value[:2] == b"\0\0"
