"""What EndTxn does in which state, as tables: one for clients of transaction.version 0 and 1, one for version 2.

An entry is the event to take, or the error to answer; NONE repeats the success of an earlier request. The columns are
(abort, commit).

Version 2 bumps the epoch at every end, so the epoch distinguishes a repeated request (one below the present one, or
32766 of the previous producer id) from the next transaction's end (equal). A producer may abort without knowing whether
any of its partitions is part of a transaction: the epoch rises all the same. A repetition before all markers are
written, and any request while a record is being written, is answered CONCURRENT_TRANSACTIONS. Source: KIP-890 and
`TransactionCoordinator.endTransaction` of Apache Kafka 4.3.

Difference from it: only an end of version 2 can be repeated. When the last end was one of an older client, Apache Kafka
4.3 takes any EndTxn 5 with the epoch before for a repetition, and so hands the present epoch to a producer that an
older client has fenced.
"""

from __future__ import annotations

from typing import Final

from barnabas.coordinator.txn.states import DECIDED, Event, State
from barnabas.coordinator.txn.transaction import EPOCH_BUMPING, EXHAUSTED_FROM, Txn
from barnabas.kproto import ErrorCode

Verdict = Event | ErrorCode
_Row = tuple[Verdict, Verdict]

_WRONG = ErrorCode.INVALID_TXN_STATE
_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
_DONE = ErrorCode.NONE
_FENCED = ErrorCode.PRODUCER_FENCED

STRICT: Final[dict[State, _Row]] = {
    State.EMPTY: (_WRONG, _WRONG),
    State.ONGOING: (Event.ABORT, Event.COMMIT),
    State.PREPARE_COMMIT: (_WRONG, _BUSY),
    State.PREPARE_ABORT: (_BUSY, _WRONG),
    State.COMPLETE_COMMIT: (_WRONG, _DONE),
    State.COMPLETE_ABORT: (_DONE, _WRONG),
}
"""Versions 0 and 1; the epoch is the present one."""

BUMPING: Final[dict[State, _Row]] = {
    State.EMPTY: (Event.ABORT_NOTHING, _WRONG),
    State.ONGOING: (Event.ABORT, Event.COMMIT),
    State.PREPARE_COMMIT: (_FENCED, _FENCED),
    State.PREPARE_ABORT: (_FENCED, _FENCED),
    State.COMPLETE_COMMIT: (Event.ABORT_NOTHING, _WRONG),
    State.COMPLETE_ABORT: (Event.ABORT_NOTHING, _WRONG),
}
"""Version 2, the epoch is the present one."""

BUMPING_REPEATED: Final[dict[State, _Row]] = {
    State.EMPTY: (_FENCED, _FENCED),
    State.ONGOING: (_FENCED, _FENCED),
    State.PREPARE_COMMIT: (_WRONG, _BUSY),
    State.PREPARE_ABORT: (_BUSY, _WRONG),
    State.COMPLETE_COMMIT: (_WRONG, _DONE),
    State.COMPLETE_ABORT: (_DONE, _WRONG),
}
"""Version 2, the epoch is the one before."""


def verdict_strict(txn: Txn, is_busy: bool, producer_id: int, epoch: int, commit: bool) -> Verdict:
    """For clients of versions 0 and 1 (EndTxn 0-4). `is_busy`: a record is being written, or markers are."""
    if txn.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != epoch:
        return _FENCED
    if is_busy:
        return _BUSY
    return STRICT[txn.state][commit]


def verdict_bumping(txn: Txn, is_busy: bool, producer_id: int, epoch: int, commit: bool) -> Verdict:
    """For clients of version 2 (EndTxn 5)."""
    # First of all: when the epoch overflows, the producer's new id is not in the value yet while it is being written.
    if is_busy:
        return _BUSY
    overflowed = txn.previous_producer_id == producer_id and epoch == EXHAUSTED_FROM and txn.producer_epoch == 0
    if txn.producer_id != producer_id and not overflowed:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Until the markers are written the id is still the old one, and its epoch 32767.
    if txn.producer_epoch == epoch + 1 or (overflowed and txn.state not in DECIDED):
        if txn.client_version < EPOCH_BUMPING:
            # The last end did not bump the epoch, so this is not its repetition.
            return _FENCED
        return BUMPING_REPEATED[txn.state][commit]
    if txn.producer_epoch == epoch:
        return BUMPING[txn.state][commit]
    return _FENCED
