"""One partition on this broker: its log, its role, its high watermark, and its waiters.

Appending has two steps so that a round of requests shares one file write: `append` checks, assigns offsets and
*stages*; `write` writes all that is staged, moves the log end offset and the high watermark, and wakes the waiters.
Outside of a round call both.

Consumers wait for the high watermark to rise, followers for the log end offset. Of a partition with one replica both
are the same, `leader` is None and replication costs nothing. A replicated one has, on its leader, a `LeaderState`
(`barnabas.replication.replica.leader`): it gets every fetch of a follower (`follower_fetched`), moves the high
watermark, and proposes another ISR to the controller (`PartitionHost.propose`; then `isr_accepted` or `isr_refused`). A
follower takes its high watermark from the leader's responses (`append_as_follower`), and serves consumers up to it
(KIP-392). The high watermark survives changes of role. It falls only when the log is truncated below it.

While the partition is copied to another log directory, `future` is the copy (`server/storage/dir_moves.py`), which is
truncated with the log. When the copy is complete, it becomes `log`.

A write may fail after its offsets were assigned, in any `append` that starts a segment, at the round's end, or because
the whole log directory failed meanwhile. From then on nothing more is appended in that round (`write_error`), so that
no lost offset is assigned twice, and `outcome_of` says of each staged batch whether it was written.

When `flush.messages` records are not synced the host is asked for a flush, and until `flushed` confirms it, appended
records are held back: beyond the offset `held_at` nothing is acknowledged or committed.
"""

from __future__ import annotations

import logging

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.allowance import Allowance
from barnabas.logdir import (
    AppendInfo,
    AppendOrigin,
    FileSlice,
    InTransaction,
    OwnProducer,
    OwnRecords,
    PartitionLog,
    StorageError,
)
from barnabas.replication import LeaderState, PartitionImage, Proposal, Refusal
from barnabas.server.partitions.commit_queue import CommitCallback, CommitQueue
from barnabas.server.partitions.host import PartitionHost, ProgressWaiter, notify_progress
from barnabas.server.partitions.traffic import Traffic
from barnabas.server.partitions.uncommitted import Uncommitted

log = logging.getLogger("barnabas.partition")

NEVER = 2**63


class Partition:
    """See the module. All offsets are log offsets; the high watermark is the first offset that is *not* yet
    committed.

    `leader_id` -1: no leader. `partition_epoch`: version of the state that the role was taken from. `isr`: the
    committed one, empty where this broker does not lead. `leader`: set where this broker leads and is not the only
    replica. `truncations`: how often records were truncated from the log's end. `resigned_with`: the error of
    callbacks that come after the end of leadership. `traffic`: what was written and read, for metrics.
    """

    __slots__ = (
        "_commits",
        "_flushes",
        "_held_bytes",
        "_host",
        "_is_flushing",
        "_stage",
        "_staged_bytes",
        "_tail_waiters",
        "_uncommitted",
        "_waiters",
        "adding_replicas",
        "epoch_start_offset",
        "future",
        "held_at",
        "high_watermark",
        "index",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
        "resigned_with",
        "topic",
        "topic_id",
        "traffic",
        "truncations",
        "write_error",
    )

    def __init__(
        self,
        host: PartitionHost[Partition],
        topic: str,
        index: int,
        topic_id: bytes,
        partition_log: PartitionLog,
        high_watermark: int,
    ) -> None:
        self._host = host
        self._stage = host.stage
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = partition_log
        self.future: PartitionLog | None = None
        self.truncations = 0
        self.traffic = Traffic()
        self.resigned_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.is_leader = self._is_flushing = False
        self.leader: LeaderState | None = None
        self.leader_id = self.leader_epoch = self.partition_epoch = self.epoch_start_offset = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.high_watermark = high_watermark
        self.write_error: KafkaError | None = None
        self._staged_bytes = self._held_bytes = 0
        self._waiters: dict[ProgressWaiter, None] = {}
        self._tail_waiters: dict[ProgressWaiter, None] = {}
        self._uncommitted = Uncommitted()
        self._commits = CommitQueue()
        self.held_at: int | None = None
        self._flushes = CommitQueue()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic}-{self.index}, {role} in epoch {self.leader_epoch})"

    # -- role --------------------------------------------------------------------------------------------------------

    def lead(self, image: PartitionImage) -> None:
        """Become leader, or remain leader with a new epoch, assignment or ISR."""
        host = self._host
        end = self.log.state.next_offset
        if image.leader_epoch > self.leader_epoch:
            self.epoch_start_offset = end
            self.log.assign_leader_epoch(image.leader_epoch)
        if all(replica == host.broker_id for replica in image.replicas):
            self.leader = None
        elif self.leader is not None:
            self.leader.lead(image, end, host.now())
        else:
            self.leader = LeaderState(host.broker_id, image, end, host.now())
        self.is_leader = True
        self.leader_id = host.broker_id
        self._take(image)
        self.isr = tuple(image.isr)
        # Records just appended as a follower may not be synced; a leader must not count them before.
        self._hold_unflushed()
        if self.leader is None:
            self._uncommitted.clear()
            self.announce(0)
        else:
            self._advance_replicated()
            self.wake_all()

    def follow(self, image: PartitionImage) -> None:
        """Become a follower, perhaps without a leader. Callbacks that wait for a commit get NOT_LEADER_OR_FOLLOWER."""
        self.leader_id = image.leader
        self._take(image)
        self.resign()

    def _take(self, image: PartitionImage) -> None:
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = tuple(image.replicas)
        self.adding_replicas = tuple(image.adding_replicas)

    def resign(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop leading (deleted, offline, or another broker leads): all waiters are notified."""
        self.resigned_with = code
        self.is_leader = False
        self.leader = None
        self.epoch_start_offset = -1
        self.isr = ()
        self._give_up(code)
        self.wake_all()

    def _give_up(self, code: ErrorCode) -> None:
        """Call all callbacks that wait for a commit or a flush."""
        self._flushes.give_up(code)
        self._commits.give_up(code)

    def wake_all(self) -> None:
        """Notify waiters of another change than new records: of the role, of the log start offset."""
        notify_progress(self.waiters, 0)

    @property
    def waiters(self) -> list[ProgressWaiter]:
        """The waiters for readable bytes, each once."""
        return list({**self._tail_waiters, **self._waiters})

    # -- offsets -----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.state.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that `read_committed` may not see: of the earliest transaction whose end is not committed, else
        the high watermark.
        """
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas, as far as the leader knows (DeleteRecords)."""
        start = self.log.state.log_start_offset
        return start if self.leader is None else self.leader.low_watermark(start, self._host.is_alive)

    @property
    def lags_behind_its_epoch(self) -> bool:
        """Whether this is a new leader whose high watermark has not reached its own epoch."""
        return self.epoch_start_offset > self.high_watermark

    def check_leader_epoch(self, current_leader_epoch: int, *, only_leader: bool = True) -> None:
        """Fence by epoch (KIP-320), -1 skips. Raises FENCED_ or UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            is_old = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if only_leader and not self.is_leader:
            raise KafkaError(self.resigned_with)

    # -- write -------------------------------------------------------------------------------------------------------

    def append(
        self,
        buf: memoryview | bytearray,
        *,
        origin: AppendOrigin,
        now_ms: int,
        required_acks: int = 1,
        in_txn: InTransaction | None = None,
        allowance: Allowance | None = None,
    ) -> AppendInfo:
        """Check and stage; `buf` is patched in place and unchanged until `write`. Raises KafkaError, `TooMuchWork`."""
        self.traffic.appends += 1
        if not self.is_leader or self.write_error is not None or (required_acks == -1 and self._lacks_replicas()):
            raise self._refusal()
        try:
            info = self.log.appender.append(
                buf, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, in_txn=in_txn, allowance=allowance
            )
        except StorageError as error:
            self._write_failed(error)
            raise
        except KafkaError as error:
            self.traffic.rejected(error.code, len(buf))
            raise
        if not info.duplicate:
            self._staged_bytes += len(buf)
            self._stage(self)
        return info

    def append_own(
        self, records: OwnRecords, now_ms: int, required_acks: int, producer: OwnProducer | None = None
    ) -> int:
        """Stage records of the broker itself, as `Appender.append_own`; the offset of the first. Raises KafkaError."""
        if not self.is_leader or self.write_error is not None or (required_acks == -1 and self._lacks_replicas()):
            raise self._refusal()
        try:
            base_offset, size = self.log.appender.append_own(records, self.leader_epoch, now_ms, producer)
        except StorageError as error:
            self._write_failed(error)
            raise
        self._staged_bytes += size
        self._stage(self)
        self.traffic.appends += 1
        return base_offset

    def _refusal(self) -> KafkaError:
        """Why nothing can be appended."""
        if not self.is_leader:
            return KafkaError(self.resigned_with)
        reason = f"{len(self.isr)} in-sync replicas, min.insync.replicas is {self.log.config.min_insync_replicas}"
        return self.write_error or KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)

    def _write_failed(self, error: StorageError) -> None:
        self.write_error = error
        self._host.write_failed(self, error)

    def outcome_of(self, last_offset: int) -> KafkaError | None:
        """The outcome of the batch that `append` has staged up to `last_offset`, after the round's write: None if it is
        written, else the error. A duplicate has the outcome of the batch that it repeats.
        """
        if last_offset < self.log.state.log_end_offset:
            return None
        if self.write_error is not None:
            return self.write_error
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if self.is_leader else self.resigned_with)

    def _lacks_replicas(self) -> bool:
        """Whether the ISR is too small for acks=-1. `min.insync.replicas` is capped at the number of replicas."""
        return len(self.isr) < len(self.replicas) and len(self.isr) < self.log.state.config.min_insync_replicas

    def append_run(self, batches: list[memoryview], *, now_ms: int, required_acks: int) -> list[int]:
        """As `Appender.append_run`: batches that are not plain are left to `append`."""
        if not self.is_leader or self.write_error is not None or (required_acks == -1 and self._lacks_replicas()):
            return []
        lasts = self.log.appender.append_run(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if lasts:
            self._staged_bytes += sum(map(len, batches[: len(lasts)]))
            self._stage(self)
            self.traffic.appends += len(lasts)
        return lasts

    def write(self) -> None:
        """Write what is staged, then make it visible to readers and waiters. Raises `StorageError`: it is offline."""
        self.announce(self.write_quietly())

    def write_quietly(self) -> int:
        """The first half of `write`; pass its result to `announce`. A round first writes all partitions."""
        added, self._staged_bytes = self._staged_bytes, 0
        partition_log, end = self.log, self.log.state.log_end_offset
        try:
            partition_log.writer.write()
        except Exception as caught:
            error = partition_log.write_failure(caught)
            self._write_failed(error)
            raise error  # noqa: B904
        self.traffic.wrote(added, partition_log.state.log_end_offset - end)
        self._hold_unflushed()
        return added

    def _hold_unflushed(self) -> None:
        """Request the flush that `flush.messages` demands, and hold records back until then."""
        if (self.log.flush_due or self.held_at is not None) and not self._is_flushing:
            if self.held_at is None:
                self.held_at = max(self.high_watermark, self.log.state.recovery_point)
            self._is_flushing = True
            self._host.flush(self)

    def flush_again(self) -> None:
        """Retry a failed flush, some time later."""
        if not self.log.abandoned:
            self._hold_unflushed()

    def flushed(self, error: StorageError | None = None) -> None:
        """The requested flush is done, or has failed. If the log can be used all the same, records stay held back until
        the next flush, which the next write or `flush_again` requests.
        """
        self._is_flushing = False
        if error is not None:
            if not error.is_ours:
                self.write_error = error
            self._give_up(error.code)
            return
        if self.log.flush_due and not self.log.abandoned:
            # More came meanwhile: what this flush did not cover stays held back.
            self.held_at = end = max(self.high_watermark, self.log.state.recovery_point)
            self._is_flushing = True
            self._host.flush(self)
        else:
            self.held_at = None
            end = NEVER
        added, self._held_bytes = self._held_bytes, 0
        self._flushes.answer(end, ErrorCode.NONE)
        if self.is_leader:
            self.announce(added)

    def when_flushed(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` once what is below `offset`, which is above `held_at`, is synced as far as
        `flush.messages` demands; with an error when that failed or leadership is lost.
        """
        if not self.is_leader:
            callback(self.resigned_with)
        else:
            self._flushes.add(offset, callback)

    def announce(self, added_bytes: int) -> None:
        """The second half of `write`: advance the high watermark as far as in-sync replicas allow, notify waiters."""
        if not self.is_leader:
            return  # leadership or log was lost since the write
        if self.leader is not None:
            if added_bytes:
                self._uncommitted.add(self.log.state.log_end_offset, added_bytes)
            self._advance_replicated()
            notify_progress(self._tail_waiters, added_bytes)
            return
        end = self.log.state.log_end_offset
        if self.held_at is not None:
            self._held_bytes += added_bytes
            end = self.held_at
        if end > self.high_watermark:
            self.high_watermark = end
            if self._commits:
                self._commits.answer(end, self._outcome())
        if self._waiters:
            notify_progress(self._waiters, added_bytes)

    def _advance_replicated(self) -> None:
        leader = self.leader
        if leader is None:
            return
        host = self._host
        reached = leader.high_watermark(
            self.high_watermark,
            self.log.state.log_end_offset if self.held_at is None else self.held_at,
            min_insync_replicas=self.log.state.config.min_insync_replicas,
            lag_s=host.lag_s,
            is_alive=host.is_alive,
            now=host.now(),
        )
        if reached > self.high_watermark:
            self._commit_up_to(reached)

    def _commit_up_to(self, offset: int) -> None:
        """The high watermark of a replicated partition rises to `offset`."""
        self.high_watermark = offset
        if self._commits:
            self._commits.answer(offset, self._outcome())
        readable = self._uncommitted.take(offset)
        if self._waiters:
            notify_progress(self._waiters, readable)

    def _outcome(self) -> ErrorCode:
        """The error for what is committed with acks=all: the ISR may have shrunk since the append."""
        if self.leader is None or self.leader.has_enough(self.log.state.config.min_insync_replicas):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def when_committed(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` once the high watermark reaches `offset`, immediately if it has; with
        NOT_ENOUGH_REPLICAS_AFTER_APPEND when fewer than `min.insync.replicas` are in sync by then, with another error
        when leadership is lost.
        """
        if not self.is_leader:
            callback(self.resigned_with)
        elif self.high_watermark >= offset:
            callback(self._outcome())
        else:
            self._commits.add(offset, callback)

    def drop_commit(self, callback: CommitCallback) -> None:
        """Drop a `callback` that was given to `when_committed`, once, and was not called."""
        self._commits.drop(callback)

    # -- the leader's side of replication ----------------------------------------------------------------------------

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Check that this broker may fetch as a follower. Raises as `check_leader_epoch`.

        A broker that is no replica is one of an assignment that this leader has not received yet: it must retry.
        """
        self.check_leader_epoch(current_leader_epoch)
        if self.leader is None or replica_id not in self.leader.followers:
            known = current_leader_epoch >= 0
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now: float
    ) -> None:
        """A follower (`check_follower`) fetches from `fetch_offset` on, so it has what is before; an offset within
        the log. May move the high watermark and propose the follower for the ISR.
        """
        leader = self.leader
        if leader is None:
            return
        follower = leader.followers[replica_id]
        end = self.log.state.log_end_offset
        moved = leader.fetched(follower, broker_epoch, fetch_offset, log_start_offset, end, now)
        if replica_id not in leader.maximal_isr:
            proposal = leader.expand(follower, self.high_watermark, self._host.is_alive)
            if proposal is not None:
                self._host.propose(self, proposal)
        # Even if nothing moved: the high watermark may have waited for a replica that is dead by now.
        if moved or self.high_watermark < end:
            self._advance_replicated()

    def shrink_isr(self, now: float) -> None:
        """Propose to remove replicas that lag for longer than `replica.lag.time.max.ms` from the ISR, and stop waiting
        for lagging ones outside of it.
        """
        leader = self.leader
        if leader is None:
            return
        if self.high_watermark < self.log.state.log_end_offset:
            self._advance_replicated()  # a replica that was about to join may have stopped
        proposal = leader.shrink(self.log.state.log_end_offset, self._host.lag_s, now)
        if proposal is not None:
            self._host.propose(self, proposal)

    def isr_accepted(self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> bool:
        """The controller accepted `proposal`, and this is the new state. False if that is outdated."""
        leader = self.leader
        if leader is None or not leader.accepted(proposal, isr, leader_epoch, partition_epoch):
            return False
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.traffic.isr_changed(proposal)
        log.info("%s-%d: ISR is %s with partition epoch %d", self.topic, self.index, isr, partition_epoch)
        self._advance_replicated()
        return True

    def isr_refused(self, proposal: Proposal, code: ErrorCode) -> Refusal:
        """The controller refused `proposal`. On RETRY it is to be resent."""
        if self.leader is None:
            return Refusal.STALE
        self.traffic.isr_refusals += 1
        outcome = self.leader.refused(proposal, code)
        if outcome is Refusal.REVERTED:
            self._advance_replicated()  # replicas that were to join no longer count
        return outcome

    # -- the follower's side -----------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, leader_high_watermark: int, leader_log_start_offset: int
    ) -> AppendInfo | None:
        """Append whole batches of the leader as they are (none: `records` is empty), and follow its high watermark
        and log start. `records` is not kept.

        leader_epoch: the one in which they were fetched. Raises KafkaError FENCED_LEADER_EPOCH if that is over or this
        broker leads now, CORRUPT_MESSAGE, `UnexpectedOffset`, `StorageError`.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        partition_log = self.log
        info = None
        if len(records):
            info = partition_log.appender.append(
                records, leader_epoch=leader_epoch, now_ms=self._host.wall_ms(), origin=AppendOrigin.REPLICATION
            )
            partition_log.writer.write()
            self._uncommitted.add(partition_log.state.log_end_offset, len(records))
            self.traffic.replication_bytes_in += len(records)
        self.follow_offsets(leader_high_watermark, leader_log_start_offset)
        return info

    def follow_offsets(self, leader_high_watermark: int, leader_log_start_offset: int) -> None:
        """Adopt the leader's high watermark and log start offset, within the local log."""
        partition_log = self.log
        reached = min(leader_high_watermark, partition_log.state.log_end_offset)
        if reached > self.high_watermark:
            self._commit_up_to(reached)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > partition_log.state.log_start_offset:
            partition_log.delete_records(start, self.high_watermark)
            self.wake_all()

    def truncate_to(self, offset: int) -> None:
        """Drop the records from `offset` on, which the leader does not have. Raises `StorageError`."""
        try:
            self.log.truncate_to(offset, self._host.wall_ms())
        finally:
            self._truncated()  # the log may be truncated or not; without a disk error it is usable

    def restart_at(self, offset: int) -> None:
        """Drop all records and restart the log, empty, at `offset`. Raises `StorageError`."""
        try:
            self.log.truncate_fully(offset, self._host.wall_ms())
        finally:
            self._truncated()

    def _truncated(self) -> None:
        self.truncations += 1
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.log_end_offset)
        self._uncommitted.clear()
        if self.future is not None:
            try:
                self.future.truncate_to(self.log.log_end_offset, self._host.wall_ms())
            except StorageError as error:
                log.error("stopped the move of %s-%d to another log directory: %s", self.topic, self.index, error)
        self.wake_all()

    # -- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool) -> FileSlice | None:
        """The slice from `offset` on, below `upper_offset`. Raises as `barnabas.logdir.logs.reader.Reader.read`."""
        partition_log = self.log
        self.traffic.reads += 1
        if offset >= upper_offset or (max_bytes <= 0 and not min_one_batch):
            if partition_log.state.log_start_offset <= offset <= partition_log.state.log_end_offset:
                return None
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            return partition_log.reader.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)
        except StorageError as error:
            if not (error.is_ours or partition_log.abandoned):
                self._host.storage_failed(self, error)
            raise

    def add_waiter(self, waiter: ProgressWaiter, *, at_log_end: bool = False) -> None:
        """Notify `waiter` of readable bytes: below the high watermark, or at the log end (followers)."""
        (self._tail_waiters if at_log_end else self._waiters)[waiter] = None

    def remove_waiter(self, waiter: ProgressWaiter) -> None:
        self._waiters.pop(waiter, None)
        if self._tail_waiters:
            self._tail_waiters.pop(waiter, None)
