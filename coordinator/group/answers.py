"""Answers of the classic group protocol, and the errors of the log in answers to all, in one place.

Log errors do not reach group clients as they are: Apache Kafka maps them to what a client of the coordinator
expects (`GroupMetadataManager.storeGroup`, `maybeConvertOffsetCommitError`).
"""

from __future__ import annotations

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupResponse, SyncGroupResponse

NO_GENERATION = -1

_COMMON = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def group_write_error(code: ErrorCode) -> ErrorCode:
    """What answers a member when the group's metadata could not be written: it joins again, or looks for the
    coordinator.
    """
    if code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _COMMON.get(code, code)


def commit_write_error(code: ErrorCode) -> ErrorCode:
    """What answers a client when its offsets could not be written."""
    if code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _COMMON.get(code, code)


def write_error(code: ErrorCode) -> ErrorCode:
    """What answers others when records could not be written: a heartbeat of the next generation, a share partition's
    leader.
    """
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return commit_write_error(code)


def join_error(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    """A refused JoinGroup. `version`: the protocol name became nullable with 7."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None if version >= 7 else "",
        member_id=member_id,
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
