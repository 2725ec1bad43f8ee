"""One partition's log: a row of segments that is appended to at the end, read anywhere, and cut at both ends.

Appending is in appender.py, compaction in compacted.py. Here: reading (no bytes are read, a `FileSlice` says where
they are), truncating what a new leader does not have, giving up what is too old, and making what was written safe.

    log_start_offset <= ... <= recovery_point <= log_end_offset <= next_offset

Below the recovery point everything is synced. A flush syncs the log files, then what is made from them (indexes,
snapshots, leader epochs), then the directory, and only then moves the recovery point: whatever a crash tears is above
it, where recovery makes it anew.

Offsets count records, sizes are bytes, `now_ms` is the wall clock in milliseconds.
Threads: a log belongs to the loop; `flush` (or `begin_flush` and what it returns) and `FileSlice.read` may run in
threads meanwhile. `_lock` guards the list of segments and the index files; appends and reads, which touch neither, do
not take it.

Not done: tiered storage, down-conversion (the answer's business), `preallocate`.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files import layout
from barnabas.logdir.files.checkpoint import LEADER_EPOCH
from barnabas.logdir.files.disk import remove_if_there, replace_file
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.open_files import FileSlice
from barnabas.logdir.files.txn_index import AbortedTxn, overlapping
from barnabas.logdir.logs.compacted import CompactedLog
from barnabas.logdir.segments.cutting import Cut, find_cut
from barnabas.logdir.segments.flush import Flush
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.replay import aborted_of, rebuild_producers
from barnabas.logdir.segments.retention import breached
from barnabas.logdir.segments.segment import Segment
from barnabas.logdir.segments.timed_batch import LongBatch


class PartitionLog(CompactedLog):
    """See the module. Made by `recovery.open_log`."""

    __slots__ = ()

    # ---- what it is

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def first_base_offset(self) -> int:
        """Base offset of the first segment: what is below it is gone for good."""
        return self._segments[0].base_offset

    @property
    def segment_bases(self) -> list[int]:
        """Base offsets of the segments, rising."""
        return [segment.base_offset for segment in self._segments]

    def segment_times(self) -> list[int]:
        """For each of `segment_bases` its largest timestamp, or when it was last written if no record in it has one;
        milliseconds. Raises `StorageError`.
        """
        try:
            return [segment.retention_timestamp() for segment in self._segments]
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last entry, -1 if there is none."""
        return self.epochs.latest

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> Producers:
        """The state of idempotent and transactional producers; to look at."""
        return self._producers

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction starts."""
        return self._producers.first_undecided_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where `read_committed` may see: the high watermark, or the first transaction whose end is not below
        it.
        """
        producers = self._producers
        if not producers.open_txns and not producers.completed:
            return high_watermark
        unstable = producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def high_watermark_reached(self, offset: int) -> None:
        """Transactions that ended below `offset` need not be remembered any more: call it now and then."""
        self._producers.first_unstable_offset(offset)

    # ---- reading

    def _segment_at(self, offset: int) -> int:
        """Number of the segment that holds `offset`, -1 if it is before the first."""
        return bisect_right(self._segments, offset, key=_base_offset) - 1

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool) -> FileSlice | None:
        """Bytes from the batch that holds `offset` on, none at or above `upper_offset`, of one segment; None if there
        are none.

        At most `max_bytes`, which may end inside a batch, as in Apache Kafka; with `min_one_batch` at least the first
        batch, without it nothing if the first one does not fit. Raises KafkaError 1 outside [log start, log end], 2,
        `StorageError`.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            told = f"Offset {offset} is not in [{self.log_start_offset}, {end_offset}]."
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, told)
        if upper_offset > end_offset:
            upper_offset = end_offset
        if offset >= upper_offset:
            return None
        try:
            segment = self._active
            if offset >= segment.base_offset:
                found = segment.find(offset)
                is_last = True
            else:
                number = max(self._segment_at(offset), 0)
                segment = self._segments[number]
                found = segment.find(offset)
                while found is None and number + 1 < len(self._segments):
                    # Compaction and lost files leave gaps.
                    number += 1
                    segment = self._segments[number]
                    found = segment.find(offset)
                is_last = segment is self._active or self._segments[number + 1].base_offset > upper_offset
            if found is None:
                return None
            position, first_size = found
            end = segment.size
            if is_last and upper_offset < end_offset:
                bound = segment.find(upper_offset)
                if bound is not None:
                    end = bound[0]
            length = end - position
            if length > max_bytes:
                if max_bytes >= first_size:
                    length = max_bytes
                elif min_one_batch:
                    length = min(first_size, length)
                else:
                    return None
            if length <= 0:
                return None
            return FileSlice(segment.file(), position, length)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error

    def is_at_end(self, found: FileSlice) -> bool:
        """Whether `found` is of the newest segment."""
        return found.file.path == self._active.path()

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int = 0, *, leave_long: bool = False
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp_ms`, and from `start_offset` on;
        None if there is none.

        It may lie above the high watermark. Decodes one batch, mostly. Raises KafkaError 2, `StorageError`; with
        `leave_long` `LongBatch` instead of decoding one that takes long.
        """
        start_offset = max(start_offset, self.log_start_offset)
        try:
            for segment in list(self._segments):
                if segment.size and segment.retention_timestamp() >= timestamp_ms:
                    found = _first_in(segment, timestamp_ms, start_offset, leave_long)
                    if found is not None:
                        return found
            return None
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error

    def offset_of_max_timestamp(self, *, leave_long: bool = False) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp (ListOffsets -3). Raises
        as `offset_for_timestamp`.
        """
        try:
            newest = max(self._segments, key=lambda segment: segment.max_timestamp)
            if newest.max_timestamp < 0:
                return None
            return _first_in(newest, newest.max_timestamp, newest.base_offset, leave_long)
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [offset, upper_offset), in the order of their ends. Raises
        KafkaError 2, `StorageError`.
        """
        found: list[AbortedTxn] = []
        try:
            for segment in self._segments[max(self._segment_at(offset), 0) :]:
                entries = aborted_of(self._disk, self.directory, self._segments, self._snapshots, segment)
                if entries:
                    some, complete = overlapping(entries, offset, upper_offset)
                    found += some
                    if complete:
                        break
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error
        return found

    def aborted_in(self, found: FileSlice, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that whoever gets `found` must know, which is what `read` gave for `offset` and
        `upper_offset`. There may be more than have records in it, as the offset index is coarse. Raises KafkaError 2,
        `StorageError`.
        """
        number = max(self._segment_at(offset), 0)
        segments = self._segments
        while number + 1 < len(segments) and segments[number].path() != found.file.path:
            number += 1
        try:
            bound = segments[number].upper_bound(found.position + found.length)
        except OSError as error:
            raise StorageError(f"reading {self.directory}", error) from error
        if bound is None:
            bound = segments[number + 1].base_offset if number + 1 < len(segments) else self.log_end_offset
        return self.aborted_transactions(offset, min(bound, upper_offset))

    # ---- cutting

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop the records from `offset` on, because the leader does not have them; a batch that holds `offset` goes
        whole.

        False if there were none. It is synced, lest a crash bring the old records back behind new ones. Producer state
        is made anew from the newest snapshot. Raises `StorageError`; when that is not the disk's call it again.
        """
        assert offset >= 0
        self.write()
        self.end_cut()
        self._stop_for_truncation(offset)
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            self._epoch = self.epochs.latest
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return True
        keep = self._segment_at(offset) + 1
        active = self._segments[keep - 1]
        producers = Producers()
        try:
            with self._lock:
                aborted = len(aborted_of(self._disk, self.directory, self._segments, self._snapshots, active))
                end, position, newest = find_cut(active, offset)
                rebuild_producers(self._disk, self.directory, self._segments, self._snapshots, producers, end)
        except (OSError, CorruptRecords) as error:
            raise self._refused("truncating", error) from error
        with self._lock:
            doomed = self._segments[keep:]
            del self._segments[keep:]
            self._active = active
            active.cut(offset, end, position, newest)
            fell = self._ends_at(end)
            self.epochs.truncate_from_end(end)
            if end < self.log_start_offset:
                self.log_start_offset = end
                fell = True
            self._producers = producers
            self._epoch = self.epochs.latest
            left = len(active.aborted())
            due_ms = now_ms + self._config.file_delete_delay_ms
            self._cut = Cut(doomed, due_ms, False, end, left if left < aborted else None, fell)
            self._torn = True
        self.end_cut()
        return True

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Drop everything; the log starts, and ends, at `offset`. Raises `StorageError` as `truncate_to`."""
        self._forget_staged()
        self.end_cut()
        self._stop_for_truncation(0)
        with self._lock:
            doomed = self._segments[:]
            del self._segments[:]
            self._go_on_with(self._new_segment(offset, now_ms))
            fell = self._ends_at(offset) or offset < self.log_start_offset
            self.log_start_offset = offset
            self.epochs.clear()
            self._producers.clear()
            self._epoch = self.epochs.latest
            self._cut = Cut(doomed, now_ms + self._config.file_delete_delay_ms, True, -1, None, fell)
            self._torn = True
        self.end_cut()

    def end_cut(self) -> None:
        """Do what is left of a truncation, or of a failed write. Raises `StorageError`."""
        if self._torn:
            try:
                self._cut_back()
            except OSError as error:
                raise self._refused("truncating", error) from error

    def _cut_back(self) -> None:
        cut = self._cut
        if cut is None:
            super()._cut_back()
            return
        if cut.fell:
            # First: of what lies below the checkpoint recovery believes that nothing is lacking.
            self._keeper.recovery_point_fell(self)
            cut.fell = False
        with self._lock:
            cut.delete_segments(self._keeper)
            self._drop_snapshots(lambda at: at > cut.snapshots_to)
            if cut.is_new:
                self._active.make_files()
            else:
                self._active.save_cut(cut.aborted)
            self._disk.sync_dir(self.directory)
        if cut.is_new:
            self._save_epochs()
        self._cut = None
        self._torn = False

    def _save_epochs(self) -> None:
        """After a new start nothing in the log would contradict the old epochs, should a crash bring them back: the
        next fetch would cut the log for nothing. A flush that is under way is not waited for; the next one saves them.
        """
        if self._flushing.acquire(blocking=False):
            try:
                replace_file(self._disk, self.directory, LEADER_EPOCH, self.epochs.encode())
                self.epochs.changed = False
            finally:
                self._flushing.release()

    def _ends_at(self, offset: int) -> bool:
        """The log is shorter now. True if its checkpoint on the disk says that more than this is safe."""
        fell = self.recovery_point > offset
        self.log_end_offset = self.next_offset = offset
        self._position = self._active.size
        self._generation += 1
        self._note_truncation(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._set_roll_limits()
        return fell

    def _drop_snapshots(self, unwanted: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self._snapshots if unwanted(offset)]:
            remove_if_there(self._disk, f"{self.directory}/{layout.file_name(offset, layout.SNAPSHOT)}")
            self._snapshots.remove(offset)

    def write_failure(self, error: Exception) -> StorageError:
        """What `write` has raised, as a failure of the log. If it was a fault of ours, nobody knows whether memory and
        disk agree: nothing staged is kept, and the log cannot be used until it is opened again.
        """
        if isinstance(error, StorageError):
            return error
        self._forget_staged()
        failed = self._broken("writing to", OSError(errno.EIO, f"{type(error).__name__}: {error}"))
        failed.__cause__ = error
        return failed

    def _broken(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        """Half done: the log cannot be trusted until it is opened again."""
        failed = self._failed(doing, error)
        self._fail(failed)
        return failed

    def _refused(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        """Nothing is half done, or it can be gone on with: if it is not the disk that failed, it can be tried again."""
        failed = self._failed(doing, error)
        if not failed.is_ours:
            self._fail(failed)
        return failed

    def _failed(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        cause = OSError(errno.EIO, error.message) if isinstance(error, CorruptRecords) else error
        return StorageError(f"{doing} {self.directory}", cause)

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        """Records below `before_offset` are gone (-1: all committed ones); returns the log start. Segments go with
        the next `retain`.

        Raises KafkaError 1 for an offset above the high watermark.
        """
        if before_offset == -1:
            before_offset = high_watermark
        if not 0 <= before_offset <= high_watermark:
            told = f"Offset {before_offset} is above the high watermark {high_watermark}."
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, told)
        self._start_at(before_offset)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self._producers.log_start_moved(offset)

    def retain(self, now_ms: int, high_watermark: int | None = None) -> int:
        """Give up segments that are below the log start, too many or too old (retention.py); returns how many.

        Only below the high watermark, which is the log end if it is not given; none while the log is being compacted,
        or once it is abandoned: whoever goes over all logs may come to one that was deleted meanwhile. Raises
        `StorageError`.
        """
        if self.compacting or self.abandoned:
            return 0
        try:
            gone = breached(
                self._segments,
                self._config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.log_end_offset if high_watermark is None else high_watermark,
                now_ms=now_ms,
            )
        except OSError as error:
            raise self._refused("reading", error) from error
        if not gone:
            return 0
        try:
            if gone == len(self._segments):
                self.roll(now_ms)
            with self._lock:
                self._start_at(self._segments[gone].base_offset)
                for segment in self._segments[:gone]:
                    # One by one from the head: a crash leaves no gap. What is left after a failure goes next time.
                    paths = segment.mark_deleted()
                    self._segments.remove(segment)
                    self._unsynced_dirs.add(self.directory)
                    self._keeper.remove_later(paths, now_ms + self._config.file_delete_delay_ms)
                first = self._segments[0].base_offset
                self._drop_snapshots(lambda at: at < first)
        except StorageError:
            raise
        except OSError as error:
            raise self._refused("deleting segments of", error) from error
        return gone

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for `expiration_ms` (`producer.id.expiration.ms`); returns how many."""
        return self._producers.expire(now_ms, expiration_ms)

    # ---- making safe

    def created_in(self, directory: str, *files: str) -> None:
        """`directory` has new names, and `files` new contents: the next flush syncs them."""
        with self._lock:
            self._unsynced_dirs.add(directory)
            self._unsynced_files.update(files)

    def begin_flush(self) -> Flush:
        """Take down what is to be synced; see flush.py. From any thread. Raises OSError."""
        with self._lock:
            end_offset = self.log_end_offset
            segments = []
            for segment in self._segments:
                segment.save_indexes()
                if segment.dirty or segment.indexes_dirty:
                    segments.append(segment)
            flush = Flush(
                self._disk,
                self.directory,
                end_offset=end_offset,
                generation=self._generation,
                segments=segments,
                files=self._unsynced_files,
                dirs=self._unsynced_dirs,
                epochs=self.epochs.encode() if self.epochs.changed else None,
            )
            self._unsynced_files = set()
            self._unsynced_dirs = set()
            self.epochs.changed = False
            return flush

    def end_flush(self, flush: Flush) -> None:
        """All steps of `flush` are done."""
        with self._lock:
            if flush.generation == self._generation and flush.end_offset > self.recovery_point:
                self.recovery_point = flush.end_offset

    def undo_flush(self, flush: Flush) -> None:
        """Not all of its steps were done: the next one has to do what this one had taken down. (What segments have to
        sync they know themselves.)
        """
        with self._lock:
            self._unsynced_files |= flush.files
            self._unsynced_dirs |= flush.dirs
            if flush.epochs is not None:
                self.epochs.changed = True

    def flush(self) -> None:
        """Sync everything that is written, and move the recovery point. From any thread. Raises `StorageError`.

        After a failure of the disk the log takes no more appends: the kernel may have dropped what it could not write.
        """
        with self._flushing:  # one at a time: they share the name of a temporary file
            flush = None
            try:
                flush = self.begin_flush()
                flush.sync_files()
                flush.put_in_place()
                flush.sync_dirs()
            except OSError as error:
                if self.abandoned:
                    return
                if flush is not None:
                    self.undo_flush(flush)
                raise self._refused("flushing", error) from error
            self.end_flush(flush)

    @property
    def needs_flush(self) -> bool:
        """Something is written or saved that is not synced."""
        return (
            self.recovery_point < self.log_end_offset
            or self.epochs.changed
            or bool(self._unsynced_dirs)
            or any(segment.dirty or segment.indexes_dirty for segment in self._segments)
        )

    def prepare_close(self) -> None:
        """Write and save everything as a closed log has it, unsynced: the final time index entry, a snapshot. Raises
        `StorageError`.
        """
        self.write()
        self.stop_compaction()
        try:
            with self._lock:
                active = self._active
                # What a failed write may have left behind, or a truncation has to do.
                self._cut_back()
                active.finish()
                self._take_snapshot(self.log_end_offset)
                # Older snapshots serve truncations; two of them are plenty.
                bases = {segment.base_offset for segment in self._segments[-2:]}
                self._drop_snapshots(lambda at: at < self.log_end_offset and at not in bases)
        except (OSError, CorruptRecords) as error:
            raise self._refused("closing", error) from error

    def close(self) -> None:
        """Everything saved and synced; the log is not usable any more. Raises `StorageError`."""
        if self.needs_close:
            self.prepare_close()
            self.flush()
        self.abandon()

    @property
    def needs_close(self) -> bool:
        """Something happened since it was opened, or it was recovered and has no snapshot of its producers yet."""
        return (
            self.needs_flush
            or self.next_offset != self.log_end_offset
            or self._active.unfinished
            or self._torn
            or (len(self._producers) > 0 and self.log_end_offset not in self._snapshots)
        )

    def skip_to(self, offset: int, now_ms: int) -> None:
        """There are no records up to `offset`, behind the log's end: it ends there now. Raises `StorageError`."""
        if self._active.size == 0 and len(self._segments) == 1:
            self.truncate_fully(offset, now_ms)
            return
        self.roll(now_ms, offset)
        self.log_end_offset = self.next_offset = offset

    def moved_to(self, directory: str) -> None:
        """Its directory has another name now. Nobody flushes it meanwhile."""
        old = self.directory
        with self._lock:
            self.directory = directory
            self._unsynced_files = {path.replace(old, directory, 1) for path in self._unsynced_files}
            self._unsynced_dirs = {path.replace(old, directory, 1) for path in self._unsynced_dirs}
            for segment in [*self._segments, *(self._cut.segments if self._cut else ())]:
                segment.moved_to(directory)

    def abandon(self) -> None:
        """Let go of everything without saving: the log was deleted, or its directory failed."""
        self.abandoned = True
        self._let_go_of_compaction()
        with self._lock:
            for segment in self._segments:
                segment.close()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _first_in(segment: Segment, target_ms: int, start_offset: int, leave_long: bool) -> tuple[int, int, int] | None:
    """As `PartitionLog.offset_for_timestamp`, in one segment."""
    while (batch := segment.timed_batch(target_ms, start_offset)) is not None:
        if batch.is_long and leave_long:
            raise LongBatch(batch, target_ms, start_offset)
        found = batch.first_at(target_ms, start_offset)
        if found is not None:
            return found
        start_offset = batch.last_offset + 1
    return None
