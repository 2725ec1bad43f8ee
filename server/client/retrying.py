"""When to ask again, and whom: verdicts on error codes, and pauses that grow. Time is an argument, in seconds."""

from __future__ import annotations

from enum import Enum, auto
from random import Random
from typing import Final

from barnabas.kproto import ErrorCode


class Verdict(Enum):
    """What follows from an error code."""

    FINAL = auto()
    """Asking again changes nothing."""
    AGAIN = auto()
    """The same broker, later."""
    ELSEWHERE = auto()
    """Another broker is responsible: find out which, then ask."""


_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def verdict(code: ErrorCode) -> Verdict:
    """Of an answer for one item that may be asked for twice."""
    if code in _ELSEWHERE:
        return Verdict.ELSEWHERE
    return Verdict.AGAIN if code in _AGAIN else Verdict.FINAL


def of_leaders(code: ErrorCode) -> Verdict:
    """Of a leader's answer for one partition."""
    return verdict(code)


def of_coordinators(code: ErrorCode) -> Verdict:
    """Of a coordinator's answer for one group or transactional id, whose partitions it does not lead."""
    return Verdict.FINAL if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else verdict(code)


def of_controllers(code: ErrorCode) -> Verdict:
    """Of the controller's answer to a change. REQUEST_TIMED_OUT may mean that it is being made."""
    if code == ErrorCode.NOT_CONTROLLER:
        return Verdict.ELSEWHERE
    return (
        Verdict.AGAIN if code in (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NETWORK_EXCEPTION) else Verdict.FINAL
    )


def of_brokers(code: ErrorCode) -> Verdict:
    """Of a broker's answer about itself: nobody else can give it."""
    return Verdict.AGAIN if verdict(code) is not Verdict.FINAL else Verdict.FINAL


class Pauses:
    """Between tries: 50 ms at first, then twice as long each time, to one second; a fifth more or less by chance, so
    that many clients do not come back together.
    """

    FIRST_S: Final = 0.05
    LONGEST_S: Final = 1.0
    CHANCE: Final = 0.2

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def after(self, tries: int) -> float:
        """How long to wait after so many tries in vain, from 1 on."""
        pause_s = min(self.FIRST_S * 2.0 ** min(tries - 1, 30), self.LONGEST_S)
        return pause_s * self._rng.uniform(1 - self.CHANCE, 1 + self.CHANCE)
