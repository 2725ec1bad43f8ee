"""The follower side of replication: the state of one followed partition, where to truncate, and what there is to do.

`fetcher.Fetcher` is the machine that puts these together for all partitions of one leader. A partition is in one of
these states:

    TRUNCATING    before the first fetch of an epoch: ask OffsetForLeaderEpoch where its log parts from the leader's.
                  Only before IBP 2.7-IV1, or without any epoch in the log: then the high watermark is where to truncate
    FETCHING      ask for what is behind the log end; a diverging epoch in the answer says where to truncate (KIP-595)
    OUT_OF_RANGE  the leader does not have that offset: ask ListOffsets for its end, then for its start
    FAILED        nothing is asked until the controller names a leader and epoch again: FENCED_LEADER_EPOCH, or the disk

Where to truncate (KIP-101, KIP-279, KIP-595): `truncation`. Offsets are log offsets, −1 stands for an unknown epoch or
offset. Source: `AbstractFetcherThread.scala`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.replication.replica.fetch_session import Key

UNDEFINED = -1


class ReplicaLog(Protocol):
    """The own log of a partition, as far as decisions need it. Offsets are log offsets."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last entry, −1 if none is known."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch ≤ `epoch`, its end offset), (−1, −1) if unknown."""


class State(Enum):
    TRUNCATING = "truncating"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"
    FAILED = "failed"


class Truncation(NamedTuple):
    """Cut the log at `offset`; not `complete`: then ask again with the epoch that is the last one now."""

    offset: int
    complete: bool


def truncation(log: ReplicaLog, epoch: int, end_offset: int) -> Truncation:
    """Where to truncate: the leader said that `epoch` is its largest one not above ours, and ends at `end_offset`."""
    own_end = log.log_end_offset
    if end_offset == UNDEFINED:  # it knows no epoch as small as ours
        return Truncation(min(log.high_watermark, own_end), True)
    if epoch == UNDEFINED:  # it answered by KIP-101, without the epoch
        return Truncation(min(end_offset, own_end), True)
    own_epoch, own_epoch_end = log.end_offset_for_epoch(epoch)
    if own_epoch_end == UNDEFINED:  # nothing of the kind was tracked here
        return Truncation(min(end_offset, own_end), True)
    if own_epoch != epoch:  # KIP-279: the leader has an epoch in between; truncate before it and compare again
        return Truncation(min(own_epoch_end, own_end), False)
    return Truncation(min(own_epoch_end, end_offset, own_end), True)


class Followed:
    """One partition of a fetcher. lag: records behind the leader's high watermark, None before the first answer; due:
    until when it rests; refusals: how often in a row the leader did not know its role yet.
    """

    __slots__ = (
        "due",
        "fetch_offset",
        "index",
        "key",
        "lag",
        "last_fetched_epoch",
        "leader_end_offset",
        "leader_epoch",
        "log",
        "log_start_offset",
        "refusals",
        "state",
        "topic_id",
    )
    fetch_offset: int
    last_fetched_epoch: int

    def __init__(self, key: Key, topic_id: bytes, leader_epoch: int, log: ReplicaLog) -> None:
        self.key = key
        self.index = key[1]
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.state = State.FETCHING
        self.due = 0.0
        self.refusals = 0
        self.lag: int | None = None
        self.leader_end_offset: int | None = None
        self.look()

    def __repr__(self) -> str:
        return f"Followed({self.key[0]}-{self.index}, epoch {self.leader_epoch}, {self.state.value})"

    def look(self) -> bool:
        """Take over what the log says; whether it is anything new."""
        log = self.log
        before = (self.fetch_offset, self.last_fetched_epoch) if hasattr(self, "fetch_offset") else None
        self.fetch_offset = log.log_end_offset
        self.last_fetched_epoch = log.latest_epoch
        self.log_start_offset = log.log_start_offset
        return before != (self.fetch_offset, self.last_fetched_epoch)

    @property
    def in_sync(self) -> bool:
        """Not behind the leader's high watermark."""
        return self.lag is not None and self.lag <= 0


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """How a fetcher asks. Versions are those of the inter-broker protocol; sizes are bytes."""

    broker_id: int
    fetch_version: int = 17
    list_offsets_version: int = 9
    epoch_version: int = 4
    truncates_on_fetch: bool = True
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10_485_760
    partition_max_bytes: int = 1_048_576
    backoff_s: float = 1.0


class Ask(NamedTuple):
    """A request to the leader. about: the partitions of it that are compared when the answer comes."""

    request: Any
    version: int
    about: dict[Key, Followed]


class Append(NamedTuple):
    """Append what the leader sent, which may be nothing and may end inside a batch, and take over its offsets."""

    partition: Followed
    records: Any
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Cut the log at `offset`. complete: see `Truncation`; it may be at or behind the end, when only epochs go."""

    partition: Followed
    offset: int
    complete: bool


class Restart(NamedTuple):
    """Truncate the whole log and start it at `offset`: the leader has deleted the records between."""

    partition: Followed
    offset: int


FollowerAction = Append | Truncate | Restart


class Do(NamedTuple):
    actions: list[FollowerAction]


class Wait(NamedTuple):
    """until: seconds of the monotonic clock, None for as long as nothing is added."""

    until: float | None
