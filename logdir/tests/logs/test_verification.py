"""The first batch of a transaction in a partition: nobody but a verified producer opens one, and no late marker ends
the next.
"""

from __future__ import annotations

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import build_control_batch
from barnabas.logdir import AppendOrigin, InTransaction, LogConfig, PartitionLog
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.segments.producers import Producers, Verification
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir

E = ErrorCode
WHO = 7


class Log:
    """A log, one producer, and short words for what comes to it."""

    def __init__(self) -> None:
        self.log: PartitionLog = open_dir(MemoryDisk()).open_or_create("t", 0, TOPIC_ID, LogConfig())

    def verify(self, epoch: int = 0, sequence: int = 0, *, bumps: bool = False) -> Verification | None:
        return self.log.producers.verify(WHO, epoch, sequence, bumps, NOW)

    def write(
        self,
        verification: Verification | None = None,
        *,
        epoch: int = 0,
        sequence: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: bool = True,
    ) -> ErrorCode | int:
        """The error, or the base offset."""
        data = batch("v", producer=(WHO, epoch, sequence), transactional=True)
        in_txn = InTransaction(verification) if checked else None
        try:
            info = self.log.append(data, leader_epoch=0, now_ms=NOW, origin=origin, in_txn=in_txn)
        except KafkaError as error:
            return error.code
        self.log.write()
        return info.base_offset

    def end(self, *, epoch: int = 0, version: int = 0, coordinator_epoch: int = 1, commit: bool = True) -> ErrorCode:
        marker = build_control_batch(
            producer_id=WHO, producer_epoch=epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=NOW
        )
        try:
            self.log.append(
                marker,
                leader_epoch=0,
                now_ms=NOW,
                origin=AppendOrigin.COORDINATOR,
                in_txn=InTransaction(transaction_version=version),
            )
        except KafkaError as error:
            return error.code
        self.log.write()
        return E.NONE

    @property
    def open_since(self) -> int:
        entry = self.log.producers.entries.get(WHO)
        return -1 if entry is None else entry.txn_start


def test_a_transaction_opens_with_a_verification_alone() -> None:
    log = Log()
    assert log.write() == E.INVALID_TXN_STATE
    verification = log.verify()
    assert verification is not None
    assert log.write(Verification(0, 0, False, NOW)) == E.INVALID_TXN_STATE  # somebody else's
    assert log.open_since == -1
    assert log.write(verification) == 0
    assert log.open_since == 0
    assert log.verify() is None
    assert log.write(sequence=1) == 1


def test_an_answer_that_comes_after_the_marker_opens_nothing() -> None:
    log = Log()
    verification = log.verify()
    assert verification is not None
    assert log.log.producers.is_verifying(WHO, verification)
    assert log.end() == E.NONE
    assert not log.log.producers.is_verifying(WHO, verification)
    assert log.write(verification) == E.INVALID_TXN_STATE
    assert log.write(log.verify()) == 1
    assert log.end() == E.NONE
    assert log.write(verification, sequence=1) == E.INVALID_TXN_STATE
    assert log.open_since == -1


def test_a_repeated_batch_of_a_transaction_that_is_over_is_a_success() -> None:
    log = Log()
    assert log.write(log.verify()) == 0
    assert log.end() == E.NONE
    assert log.write() == 0
    assert (log.open_since, log.log.log_end_offset) == (-1, 2)


def test_one_verification_serves_all_batches_that_wait_for_it() -> None:
    log = Log()
    first, second = log.verify(sequence=0), log.verify(sequence=1)
    assert first is second
    # The second came first after all: it must not be written before the first, which would be out of order for ever.
    assert log.write(second, sequence=1) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(first, sequence=0) == 0
    assert log.write(sequence=1) == 1


def test_a_lower_sequence_and_a_higher_epoch_change_what_must_come_first() -> None:
    verification = Verification(3, 5, False, NOW)
    verification.note(3, 4)
    assert (verification.epoch, verification.lowest_sequence) == (3, 4)
    verification.note(2, 0)
    assert (verification.epoch, verification.lowest_sequence) == (3, 4)
    verification.note(4, 9)
    assert (verification.epoch, verification.lowest_sequence) == (4, 9)


def test_with_version_2_an_unknown_producer_starts_at_sequence_0() -> None:
    log = Log()
    verification = log.verify(sequence=3, bumps=True)
    assert log.write(verification, sequence=3) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = Log()
    assert older.write(older.verify(sequence=3), sequence=3) == 0


def test_a_zombie_is_fenced_before_anybody_is_asked() -> None:
    log = Log()
    assert log.write(log.verify(epoch=1), epoch=1) == 0
    with pytest.raises(KafkaError) as raised:
        log.verify(epoch=0)
    assert raised.value.code == E.INVALID_PRODUCER_EPOCH
    # With another epoch the transaction that is open is not this one's.
    assert log.verify(epoch=2) is not None
    assert log.write(epoch=2) == E.INVALID_TXN_STATE


def test_group_coordinators_are_checked_too_and_have_no_sequences() -> None:
    log = Log()
    assert log.write(sequence=-1, origin=AppendOrigin.COORDINATOR) == E.INVALID_TXN_STATE
    verification = log.verify(sequence=-1, bumps=True)
    assert log.write(verification, sequence=-1, origin=AppendOrigin.COORDINATOR) == 0
    assert log.write(sequence=-1, origin=AppendOrigin.COORDINATOR) == 1


def test_what_is_replicated_or_unverified_by_choice_is_let_in() -> None:
    log = Log()
    assert log.write(checked=False) == 0
    assert log.end() == E.NONE
    waiting = log.verify(sequence=1)
    assert log.write(sequence=1, checked=False) == 2  # takes the permission with it
    assert log.end() == E.NONE
    assert log.write(waiting, sequence=2) == E.INVALID_TXN_STATE


def test_a_batch_that_could_not_be_written_needs_a_new_verification() -> None:
    producers = Producers()
    verification = producers.verify(WHO, 0, 0, False, NOW)
    taken = InTransaction(verification)
    assert producers.append(WHO, 0, 0, 0, 0, NOW, True, from_client=True, in_txn=taken) is None
    producers.rollback()
    with pytest.raises(KafkaError):
        producers.append(WHO, 0, 0, 0, 0, NOW, True, from_client=True, in_txn=taken)
    again = InTransaction(producers.verify(WHO, 0, 0, False, NOW))
    assert producers.append(WHO, 0, 0, 0, 0, NOW, True, from_client=True, in_txn=again) is None


def test_a_fenced_producer_does_not_revoke_its_successors_verification() -> None:
    log = Log()
    for first, second in ((2, 4), (8, 6)):
        verification = log.verify(first)
        assert log.verify(second) is verification
        fenced, winner = sorted((first, second))
        log.log.producers.refuse_verification(WHO, fenced, verification)
        log.write(verification, epoch=winner)
        assert log.open_since >= 0
        log.end(epoch=winner)


def test_verifications_are_forgotten_when_refused_or_old() -> None:
    producers = Producers()
    refused = producers.verify(1, 0, 0, False, NOW)
    producers.verify(2, 0, 0, False, NOW)
    producers.verify(3, 0, 0, False, NOW + 1)
    assert refused is not None
    producers.refuse_verification(2, 0, refused)  # not that one's
    producers.refuse_verification(1, 0, refused)
    assert sorted(producers.verifying) == [2, 3]
    producers.expire(NOW + 1000, 1000)
    assert sorted(producers.verifying) == [3]


@pytest.mark.parametrize(
    ("version", "marker_epoch", "expected"),
    [
        (0, 4, E.INVALID_PRODUCER_EPOCH),
        (0, 5, E.NONE),
        (1, 5, E.NONE),
        (2, 5, E.INVALID_PRODUCER_EPOCH),  # the end of version 2 bumps the epoch: this is the last one's marker
        (2, 6, E.NONE),
    ],
)
def test_the_epoch_of_a_marker(version: int, marker_epoch: int, expected: ErrorCode) -> None:
    log = Log()
    assert log.write(log.verify(epoch=5), epoch=5) == 0
    assert log.end(epoch=marker_epoch, version=version) == expected
    assert log.open_since == (-1 if expected == E.NONE else 0)


def test_a_marker_of_version_2_may_come_twice() -> None:
    log = Log()
    assert log.write(log.verify(epoch=5), epoch=5) == 0
    assert log.end(epoch=6, version=2) == E.NONE
    assert log.end(epoch=6, version=2) == E.NONE
    # … but not end what the producer has begun since.
    assert log.write(log.verify(epoch=6), epoch=6) == 3
    assert log.end(epoch=6, version=2) == E.INVALID_PRODUCER_EPOCH
    assert log.end(epoch=7, version=2, coordinator_epoch=0) == E.TRANSACTION_COORDINATOR_FENCED
    assert log.end(epoch=7, version=2) == E.NONE


def test_the_last_epoch_cannot_rise() -> None:
    log = Log()
    assert log.write(log.verify(epoch=32767), epoch=32767) == 0
    assert log.end(epoch=32767, version=2) == E.NONE
    assert log.open_since == -1
