"""Errors of the transaction protocol, in one place.

Log errors do not reach producers as they are (`TransactionStateManager.appendTransactionToLog` of Apache Kafka),
and PRODUCER_FENCED became an error of its own in some version of each request; before it, it is INVALID_PRODUCER_EPOCH
(KIP-588).
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto import ApiKey, ErrorCode

_LOG_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_KNOWS_FENCED_FROM: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """What answers a producer when a change of its transaction could not be written."""
    return _LOG_ERRORS.get(code, code)


def error_for(api: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """`code` as a client of this request version knows it."""
    if code == ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED_FROM[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def verification_error(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """What answers a *producer* when the coordinator did not confirm a partition (KIP-890): Produce always knows the
    epoch error, and TRANSACTION_ABORTABLE from Produce 11 and TxnOffsetCommit 4 on.
    """
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
