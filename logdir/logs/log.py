"""One partition's log: a row of segments that is appended to at the end, read anywhere, and cut at both ends.

`PartitionLog` is the face of parts that share one `LogState` (state.py, which says which part uses which):

    appender.py, append_rules.py  checking batches, offsets      roller.py, roll_limits.py    the next segment
    writer.py, tail_repair.py     writing what is staged         flusher.py                   making it safe
    reader.py                     where bytes and times are      compacted.py                 compaction
    truncation.py                 cutting the end off            head.py                      the start, retention
    making.py                     the files of a new one

Here: what concerns several of them, which is what the log is, and closing, moving and abandoning it.

Offsets count records, sizes are bytes, `now_ms` is the wall clock in milliseconds.
Threads: a log belongs to the loop; `flush` (or `begin_flush` and what it returns), `make_files` and `FileSlice.read`
may run in threads meanwhile.

Not done: tiered storage, down-conversion (the answer's business), `preallocate`.
"""

from __future__ import annotations

import errno
import threading

from barnabas.kproto.allowance import Allowance
from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.compaction.plan import CleanedSegment, CompactionPlan, CompactionState
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.files.open_files import FileSlice
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.logs.appender import Appender
from barnabas.logdir.logs.compacted import Compaction, Swap
from barnabas.logdir.logs.flusher import Flusher
from barnabas.logdir.logs.head import LogHead
from barnabas.logdir.logs.making import call_off, make
from barnabas.logdir.logs.reader import Reader
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState, Unmade
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.logs.truncation import Truncation
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.flush import Flush
from barnabas.logdir.segments.incoming import AppendInfo, AppendOrigin
from barnabas.logdir.segments.producers import InTransaction, Producers
from barnabas.logdir.segments.segment import Segment


class PartitionLog:
    """See the module. Made by `recovery.open_log`, and by `new_log`.

    state, appender, writer, reader: callers that need them for each request take the part itself, which saves a
    call.
    """

    __slots__ = (
        "_compaction_if_any",
        "_flusher",
        "_limits",
        "_repair",
        "_roller",
        "appender",
        "reader",
        "state",
        "writer",
    )

    def __init__(self, state: LogState) -> None:
        self.state = state
        state.known_as = self
        self._flusher = Flusher(state)
        self._repair = TailRepair(state, self._flusher)
        self._limits = RollLimits(state, state.active.size)
        self.writer = Writer(state, self._repair, self._limits)
        self._roller = Roller(state, self._repair, self._limits, self.writer)
        self.appender = Appender(state, self._limits, self.writer, self._roller)
        self.reader = Reader(state)
        self._compaction_if_any: Compaction | None = None

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, {self.log_start_offset}..{self.log_end_offset})"

    # ---- what it is

    @property
    def directory(self) -> str:
        return self.state.directory

    @property
    def config(self) -> LogConfig:
        """Set it to a new value to change the configuration; it counts from the next append on."""
        return self.state.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.appender.configure(config)

    @property
    def topic_id(self) -> bytes | None:
        return self.state.topic_id

    @topic_id.setter
    def topic_id(self, topic_id: bytes) -> None:
        self.state.topic_id = topic_id

    @property
    def failure(self) -> StorageError | None:
        """Why the log refuses appends."""
        return self.state.failure

    @property
    def abandoned(self) -> bool:
        """It was closed, deleted or moved away, or its directory failed."""
        return self.state.abandoned

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Everything below it is written."""
        return self.state.log_end_offset

    @property
    def next_offset(self) -> int:
        """The log end offset once what is staged is written."""
        return self.state.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is synced."""
        return self.state.recovery_point

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.state.segments)

    @property
    def segment_count(self) -> int:
        return len(self.state.segments)

    @property
    def first_base_offset(self) -> int:
        """Base offset of the first segment: what is below it is gone for good."""
        return self.state.segments[0].base_offset

    @property
    def segment_bases(self) -> list[int]:
        """Base offsets of the segments, rising."""
        return [segment.base_offset for segment in self.state.segments]

    @property
    def epochs(self) -> LeaderEpochs:
        return self.state.epochs

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last entry, -1 if there is none."""
        return self.state.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), (-1, -1) if unknown."""
        return self.state.epochs.end_offset_for(epoch, self.state.log_end_offset)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """This broker leads from the log's end on with a new epoch."""
        self.appender.assign_leader_epoch(leader_epoch)

    # ---- producers and transactions

    @property
    def producers(self) -> Producers:
        """The state of idempotent and transactional producers; read-only."""
        return self.state.producers

    @property
    def producer_count(self) -> int:
        return len(self.state.producers)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for `expiration_ms` (`producer.id.expiration.ms`); returns how many."""
        return self.state.producers.expire(now_ms, expiration_ms)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction starts."""
        return self.state.producers.first_undecided_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where `read_committed` may see: the high watermark, or the first transaction whose end is not below
        it.
        """
        state = self.state
        producers = state.producers
        if not producers.open_txns and not producers.completed:
            return high_watermark
        unstable = producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, state.log_start_offset), high_watermark)

    def high_watermark_reached(self, offset: int) -> None:
        """Transactions that ended below `offset` need not be remembered any more: call it now and then."""
        self.state.producers.first_unstable_offset(offset)

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """See `Reader.aborted_transactions`."""
        return self.reader.aborted_transactions(offset, upper_offset)

    def aborted_in(self, found: FileSlice, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """See `Reader.aborted_in`."""
        return self.reader.aborted_in(found, offset, upper_offset)

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool) -> FileSlice | None:
        """See `Reader.read`."""
        return self.reader.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)

    def is_at_end(self, found: FileSlice) -> bool:
        """Whether `found`, which `read` has returned, is of the newest segment."""
        return found.file.path == self.state.active.path()

    def segment_times(self) -> list[int]:
        """See `Reader.segment_times`."""
        return self.reader.segment_times()

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int = 0, *, leave_long: bool = False
    ) -> tuple[int, int, int] | None:
        """See `Reader.offset_for_timestamp`."""
        return self.reader.offset_for_timestamp(timestamp_ms, start_offset, leave_long=leave_long)

    def offset_of_max_timestamp(self, *, leave_long: bool = False) -> tuple[int, int, int] | None:
        """See `Reader.offset_of_max_timestamp`."""
        return self.reader.offset_of_max_timestamp(leave_long=leave_long)

    # ---- the end

    def append(
        self,
        buf: memoryview | bytearray,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        in_txn: InTransaction | None = None,
        allowance: Allowance | None = None,
    ) -> AppendInfo:
        """See `Appender.append`."""
        return self.appender.append(
            buf, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, in_txn=in_txn, allowance=allowance
        )

    def write(self) -> None:
        """See `Writer.write`."""
        self.writer.write()

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """See `Roller.roll`."""
        self._roller.roll(now_ms, base_offset)

    def write_failure(self, error: Exception) -> StorageError:
        """An exception of `write` as a failure of the log. After a fault of ours memory and disk may disagree: nothing
        staged is kept, and the log cannot be used until it is opened again.
        """
        if isinstance(error, StorageError):
            return error
        self.writer.forget()
        failed = self.state.broken("writing to", OSError(errno.EIO, f"{type(error).__name__}: {error}"))
        failed.__cause__ = error
        return failed

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """See `Truncation.truncate_to`."""
        return self._truncation().truncate_to(offset, now_ms)

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """See `Truncation.truncate_fully`."""
        self._truncation().truncate_fully(offset, now_ms)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """See `Truncation.skip_to`."""
        self._truncation().skip_to(offset, now_ms)

    def _truncation(self) -> Truncation:
        return Truncation(self.state, self._repair, self._limits, self.writer, self._roller, self._compaction_if_any)

    def end_cut(self) -> None:
        """Do what is left of a truncation, or of a failed write. Raises `StorageError`."""
        self._repair.finish()

    # ---- the head

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        """See `LogHead.delete_records`."""
        return LogHead(self.state, self._roller).delete_records(before_offset, high_watermark)

    def retain(self, now_ms: int, high_watermark: int | None = None, at_most: int | None = None) -> int:
        """See `LogHead.retain`. Nothing is deleted while the log is being compacted."""
        return 0 if self.compacting else LogHead(self.state, self._roller).retain(now_ms, high_watermark, at_most)

    # ---- compaction

    @property
    def _compaction(self) -> Compaction:
        compaction = self._compaction_if_any
        if compaction is None:
            compaction = self._compaction_if_any = Compaction(self.state, self.reader)
        return compaction

    def compaction_state(self, first_dirty_offset: int | None, now_ms: int, upper_bound: int) -> CompactionState:
        """See `Compaction.state`."""
        return self._compaction.state(first_dirty_offset, now_ms, upper_bound)

    @property
    def compacting(self) -> bool:
        """A compaction was begun and neither ended nor stopped."""
        return self._compaction_if_any is not None and self._compaction_if_any.is_under_way

    def begin_compaction(self, state: CompactionState, now_ms: int) -> CompactionPlan:
        """See `Compaction.begin`."""
        return self._compaction.begin(state, now_ms)

    def end_compaction(self, plan: CompactionPlan) -> None:
        """See `Compaction.end`."""
        self._compaction.end(plan)

    def stop_compaction(self) -> None:
        """See `Compaction.stop`."""
        if self._compaction_if_any is not None:
            self._compaction_if_any.stop()

    def begin_swap(self, plan: CompactionPlan, cleaned: CleanedSegment, now_ms: int) -> Swap:
        """See `Compaction.begin_swap`."""
        return self._compaction.begin_swap(plan, cleaned, now_ms)

    def replace_segments(self, swap: Swap) -> None:
        """See `Compaction.replace_segments`."""
        self._compaction.replace_segments(swap)

    def end_swap(self, swap: Swap) -> None:
        """See `Compaction.end_swap`."""
        self._compaction.end_swap(swap)

    def swap_in(self, plan: CompactionPlan, cleaned: CleanedSegment, now_ms: int) -> None:
        """See `Compaction.swap_in`."""
        self._compaction.swap_in(plan, cleaned, now_ms)

    # ---- making files

    @property
    def is_made(self) -> bool:
        """It has its directory and its files."""
        return self.state.unmade is None

    def make_files(self) -> None:
        """Make the directory and the files that a new log lacks, its indexes too, unsynced. From any thread. Raises
        `StorageError`; what is there stays, and a later call makes the rest.
        """
        state = self.state
        with state.lock:
            if state.abandoned:
                return
            try:
                make(state)
                state.active.save_indexes()
            except OSError as error:
                raise state.refused("making", error) from error

    def give_up(self) -> bool:
        """`abandon`; whether there is a directory on the disk that is to be removed."""
        self.abandon()
        with self.state.lock:
            return not call_off(self.state)

    # ---- making safe

    @property
    def flush_due(self) -> bool:
        """`flush.messages` records or more are not synced. Flushing is up to the caller, who may have a thread for
        it.
        """
        state = self.state
        return state.log_end_offset - state.recovery_point >= state.config.flush_messages

    @property
    def needs_flush(self) -> bool:
        """Something is written or saved that is not synced."""
        return self._flusher.is_needed

    def flush(self) -> None:
        """See `Flusher.flush`. From any thread."""
        self._flusher.flush()

    def begin_flush(self) -> Flush:
        """See `Flusher.begin`. From any thread."""
        return self._flusher.begin()

    def end_flush(self, flush: Flush) -> None:
        """See `Flusher.end`."""
        self._flusher.end(flush)

    def undo_flush(self, flush: Flush) -> None:
        """See `Flusher.undo`."""
        self._flusher.undo(flush)

    def created_in(self, directory: str, *files: str) -> None:
        """See `Flusher.note_created`."""
        self._flusher.note_created(directory, *files)

    # ---- closing

    @property
    def needs_close(self) -> bool:
        """Something happened since it was opened, or it was recovered and has no snapshot of its producers yet."""
        state = self.state
        return (
            self._flusher.is_needed
            or state.next_offset != state.log_end_offset
            or state.active.unfinished
            or self._repair.is_needed
            or (len(state.producers) > 0 and state.log_end_offset not in state.snapshots)
        )

    def prepare_close(self) -> None:
        """Write and save everything as a closed log has it, unsynced: the final time index entry, a snapshot. Raises
        `StorageError`.
        """
        self.write()
        self.stop_compaction()
        state = self.state
        try:
            with state.lock:
                if self._repair.is_needed:
                    self._repair.run()
                state.active.finish()
                end = state.log_end_offset
                # Without producers, now and before, there is nothing to say, and nothing to read at the next start.
                if state.snapshots or len(state.producers) > 0:
                    state.take_snapshot(end)
                # Older snapshots serve truncations; two of them are plenty.
                bases = {segment.base_offset for segment in state.segments[-2:]}
                state.drop_snapshots(lambda at: at < end and at not in bases)
        except (OSError, CorruptRecords) as error:
            raise state.refused("closing", error) from error

    def close(self) -> None:
        """Everything saved and synced; the log is not usable any more. Raises `StorageError`."""
        if self.needs_close:
            self.prepare_close()
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Close all files without saving: the log was deleted, or its directory failed."""
        state = self.state
        state.abandoned = True
        if self._compaction_if_any is not None:
            self._compaction_if_any.abandon()
        with state.lock:
            for segment in state.segments:
                segment.close()

    def moved_to(self, directory: str) -> None:
        """Its directory has another name now. To be called while no flush is running."""
        state = self.state
        cut = self._repair.cut
        with state.lock:
            old, state.directory = state.directory, directory
            state.unsynced_files = tuple(path.replace(old, directory, 1) for path in state.unsynced_files)
            state.unsynced_dirs = tuple(path.replace(old, directory, 1) for path in state.unsynced_dirs)
            for segment in [*state.segments, *(cut.segments if cut else ())]:
                segment.moved_to(directory)


def new_log(
    disk: Disk,
    parent: str,
    name: str,
    config: LogConfig,
    keeper: Keeper,
    *,
    now_ms: int,
    topic_id: bytes | None,
    log_start_offset: int = 0,
) -> PartitionLog:
    """An empty log in the directory `name` of `parent`, neither of which is touched: making.py."""
    directory = f"{parent}/{name}"
    lock = threading.RLock()
    first = Segment.new(disk, directory, log_start_offset, keeper.pool, lock, now_ms=now_ms)
    return PartitionLog(
        LogState(
            disk,
            directory,
            config,
            keeper,
            lock,
            segments=[first],
            producers=Producers(),
            snapshots=[],
            epochs=LeaderEpochs(),
            log_start_offset=log_start_offset,
            log_end_offset=log_start_offset,
            recovery_point=0,
            topic_id=topic_id,
            unmade=Unmade(parent),
        )
    )
