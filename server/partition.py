"""One partition on this broker: its log, its role, its high watermark, and who waits for either to move.

Appending has two steps so that a round of requests shares one file write: `append` checks, assigns offsets and
*stages*; `write` writes all that is staged, moves the log end offset and the high watermark, and wakes the waiters.
Whoever appends outside of a round calls both.

While the broker is the only in-sync replica the high watermark is the log end offset. Follower progress and ISR
changes come with the cluster (`replication.leader`); they will move `high_watermark` through `_advance` as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from kproto import ErrorCode, KafkaError
from logdir import AppendInfo, AppendOrigin, FileSlice, PartitionLog, StorageError
from replication import PartitionImage

log = logging.getLogger("barnabas.partition")

CommitCallback = Callable[[ErrorCode], None]


class ProgressWaiter(Protocol):
    """Waits for readable bytes. `progress` is called after `added_bytes` more became readable, or with 0 when
    something else changed.
    """

    def progress(self, added_bytes: int) -> None: ...


class Partition:
    """See the module. All offsets are log offsets; the high watermark is the first offset that is *not* yet
    committed.
    """

    __slots__ = (
        "_broker_id",
        "_commits",
        "_serial",
        "_stage",
        "_staged_bytes",
        "_waiters",
        "high_watermark",
        "index",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "replicas",
        "topic",
        "topic_id",
        "write_error",
    )

    def __init__(
        self,
        broker_id: int,
        topic: str,
        index: int,
        topic_id: bytes,
        partition_log: PartitionLog,
        stage: Callable[[Partition], None],
        high_watermark: int,
    ) -> None:
        self._broker_id = broker_id
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = partition_log
        self._stage = stage
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.high_watermark = high_watermark
        self.write_error: KafkaError | None = None
        self._staged_bytes = 0
        self._waiters: dict[ProgressWaiter, None] = {}
        self._commits: list[tuple[int, int, CommitCallback]] = []
        self._serial = count()

    # -- role --------------------------------------------------------------------------------------------------------

    def lead(self, image: PartitionImage) -> None:
        """Become leader, or stay it with a new epoch or ISR."""
        if image.leader_epoch > self.leader_epoch:
            self.log.assign_leader_epoch(image.leader_epoch)
        self.is_leader = True
        self.leader_id = self._broker_id
        self.leader_epoch = image.leader_epoch
        self.isr = tuple(image.isr)
        self.replicas = tuple(image.replicas)
        self._advance(0)

    def resign(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop leading (deleted, or somebody else leads): whoever waits is told."""
        self.is_leader = False
        commits, self._commits = self._commits, []
        for _, _, callback in commits:
            callback(code)
        for waiter in list(self._waiters):
            waiter.progress(0)

    # -- offsets -----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that `read_committed` may not see: of the earliest open transaction, else the high watermark."""
        unstable = self.log.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence by epoch (KIP-320): -1 skips. Raises KafkaError 6, 74 or 75."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # -- write -------------------------------------------------------------------------------------------------------

    def append(
        self, buf: memoryview | bytearray, *, origin: AppendOrigin, now_ms: int, required_acks: int = 1
    ) -> AppendInfo:
        """Check and stage; `buf` is patched in place and must stay unchanged until `write`. Raises KafkaError."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.write_error is not None:
            raise self.write_error
        # More in-sync replicas than there are replicas cannot be asked for.
        if required_acks == -1 and len(self.isr) < min(self.log.config.min_insync_replicas, len(self.replicas)):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in-sync replicas, min.insync.replicas is {self.log.config.min_insync_replicas}",
            )
        info = self.log.append(buf, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        if not info.duplicate:
            self._staged_bytes += len(buf)
            self._stage(self)
        return info

    def write(self) -> None:
        """Write what is staged, then let readers and waiters see it. Raises KafkaError(KAFKA_STORAGE_ERROR); the
        partition is then offline.
        """
        added, self._staged_bytes = self._staged_bytes, 0
        try:
            self.log.write()
        except StorageError as error:
            self.write_error = error
            raise
        self._advance(added)

    def _advance(self, added_bytes: int) -> None:
        """Move the high watermark as far as the in-sync replicas allow, and wake whom that concerns."""
        end = self.log.log_end_offset
        if end > self.high_watermark and len(self.isr) <= 1:
            self.high_watermark = end
            commits = self._commits
            while commits and commits[0][0] <= end:
                heappop(commits)[2](ErrorCode.NONE)
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.progress(added_bytes)

    def when_committed(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` once the high watermark reaches `offset`, at once if it has; with an error when
        leadership is lost.
        """
        if not self.is_leader:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.high_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            heappush(self._commits, (offset, next(self._serial), callback))

    # -- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool) -> FileSlice | None:
        """The slice from `offset` on, below `upper_offset`. Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [log
        start, log end].
        """
        partition_log = self.log
        if offset >= upper_offset or (max_bytes <= 0 and not min_one_batch):
            if partition_log.log_start_offset <= offset <= partition_log.log_end_offset:
                return None
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return partition_log.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)

    def add_waiter(self, waiter: ProgressWaiter) -> None:
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: ProgressWaiter) -> None:
        self._waiters.pop(waiter, None)
