"""Opening a log, after a clean stop or after none.

First whatever was under way is ended, by file names alone:

- `.deleted` files go; `.cleaned` ones too, as compaction had not finished them, and with them `.swap` files at or
  above their lowest offset;
- the other `.swap` files are complete: segments that they cover go, then they take their names;
- indexes and transaction indexes without a log file go.

After a clean stop the files are believed. Otherwise every segment from the recovery point on is read: checksums,
order of offsets; its indexes, the producer state and the leader epochs are rebuilt. At the first batch that is not
right the file is truncated. What is behind a gap is treated by whether other replicas have it:

- a broker alone keeps it, as Apache Kafka does: no other broker has these records, and consumers skip a gap;
- a replica with a hole would never be filled by replication, so the log ends at the gap and the rest comes from the
  leader. But this may be the only replica, or the one that leads next: the segments are *set aside*
  (`<base>.log.<milliseconds>.aside`, a name that neither Apache Kafka nor we load), for a person to decide. They go
  when `retention.ms` has passed since then (at a start), and with the partition; under other policies they stay;
- gaps that compaction has left are none.

Then, both ways: the log start comes from its checkpoint (a log that ends below it starts there, empty), epochs
beyond the end go, and the producer state is that of the newest snapshot plus what the log says since.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk, Entry, remove_if_there, write_file
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import OffsetIndex, TimeIndex
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.files.scan import StoredBatch, iter_batches
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.logs.log import PartitionLog
from barnabas.logdir.logs.roll_limits import MAX_RELATIVE_OFFSET
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.replay import load_snapshot, note_batch, rebuild_producers, replay
from barnabas.logdir.segments.segment import Segment

log = logging.getLogger("barnabas.logdir")
MAX_OFFSET = 2**63 - 1


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    keeper: Keeper,
    *,
    now_ms: int,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    topic_id: bytes | None = None,
    cleaned_to: int = 0,
    only_copy: bool = False,
    synced_later: bool = False,
) -> PartitionLog:
    """The log in `directory`, which is there; an empty directory becomes an empty log. Reads no file that it need
    not. Raises OSError.

    `recovery_point`, `log_start_offset` and `cleaned_to` (the cleaner's) are those of the checkpoints, `clean` says
    that the last stop was, `only_copy` that no other broker can have the records. synced_later: the caller syncs the
    file system before anything is appended; otherwise what recovery cuts off is synced here, log by log.
    """
    opening = _Opening(disk, directory, config, keeper, now_ms, cleaned_to, only_copy, synced_later)
    return opening.run(recovery_point, log_start_offset, clean, topic_id)


class _Opening:
    """What is known while a log is being opened."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        keeper: Keeper,
        now_ms: int,
        cleaned_to: int,
        only_copy: bool,
        synced_later: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.keeper = keeper
        self.now_ms = now_ms
        self.only_copy = only_copy
        self.synced_later = synced_later
        self.gaps_to = MAX_OFFSET if config.compact else cleaned_to
        """Compaction leaves gaps between segments, also in a log that is not compacted any more."""
        self.lock = threading.RLock()
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.producers = Producers()
        self.epochs = LeaderEpochs()
        self.cut = False

    def run(self, recovery_point: int, log_start_offset: int, clean: bool, topic_id: bytes | None) -> PartitionLog:
        self._list()
        self._load_epochs()
        stored_epochs = None if self.epochs.changed else self.epochs.entries
        end = self._end_after_clean_stop() if clean else None
        recovered = end is None
        if end is None:
            end = self._recover(recovery_point)
        log_end = end
        self._drop_snapshots(lambda at: at > log_end)
        if self.segments and end < log_start_offset:
            log.warning(
                "%s ends at %d, before its start at %d: it starts there, empty", self.directory, end, log_start_offset
            )
            self._drop(self.segments)
            self.epochs.clear()
            self.producers.clear()
            self._drop_snapshots(lambda at: True)
        created = not self.segments
        if created:
            end = log_start_offset
            self.segments.append(
                Segment.new(self.disk, self.directory, end, self.keeper.pool, self.lock, now_ms=self.now_ms)
            )
            self.segments[-1].make_files()
        if self.cut and not self.synced_later:
            # Before anything is appended: another crash must not bring old records back behind new ones.
            self.segments[-1].sync()
            self.disk.sync_dir(self.directory)
        start = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        if self.epochs.entries == stored_epochs:
            self.epochs.changed = False
        if not recovered and self.snapshots:
            rebuild_producers(self.disk, self.directory, self.segments, self.snapshots, self.producers, end)
        opened = PartitionLog(
            LogState(
                self.disk,
                self.directory,
                self.config,
                self.keeper,
                self.lock,
                segments=self.segments,
                producers=self.producers,
                snapshots=self.snapshots,
                epochs=self.epochs,
                log_start_offset=start,
                log_end_offset=end,
                recovery_point=min(recovery_point, end) if recovered else end,
                topic_id=topic_id,
            )
        )
        if created:
            opened.created_in(self.directory)
        for segment in self.segments:
            segment.release()
            self.keeper.pool.discard(segment)
        return opened

    # ---- names

    def _list(self) -> None:
        entries = [entry for entry in self.disk.list(self.directory) if not entry.is_dir]
        entries = self._end_what_was_under_way(entries)
        sizes: dict[int, int] = {}
        others: list[tuple[int, str, str]] = []
        for entry in entries:
            parsed = layout.parse_file_name(entry.name)
            if parsed is None:
                self._forget_old_aside(entry.name)
                continue
            base_offset, suffix = parsed
            if suffix == layout.LOG:
                sizes[base_offset] = entry.size
            elif suffix == layout.SNAPSHOT:
                self.snapshots.append(base_offset)
            else:
                others.append((base_offset, suffix, entry.name))
        for base_offset, _, name in others:
            if base_offset not in sizes:
                log.warning("%s/%s has no log file: removed", self.directory, name)
                self._remove(name)
        self.snapshots.sort()
        self.segments = [
            Segment(self.disk, self.directory, base, sizes[base], self.keeper.pool, self.lock, now_ms=self.now_ms)
            for base in sorted(sizes)
        ]
        indexed = {base_offset for base_offset, suffix, _ in others if suffix == layout.TXN_INDEX}
        for segment in self.segments:
            if segment.base_offset not in indexed:
                segment.set_aborted([], save=False)

    def _end_what_was_under_way(self, entries: list[Entry]) -> list[Entry]:
        marked = [(entry, layout.parse_marked_name(entry.name)) for entry in entries]
        if not any(parsed for _, parsed in marked):
            return entries
        cleaned = [parsed[0] for _, parsed in marked if parsed and parsed[2] == layout.CLEANED]
        swaps: list[tuple[Entry, int, str]] = []
        for entry, parsed in marked:
            if parsed is None:
                continue
            base_offset, suffix, mark = parsed
            if mark == layout.SWAP and base_offset < min(cleaned, default=base_offset + 1):
                swaps.append((entry, base_offset, suffix))
            else:
                self._remove(entry.name)
        logs = [(entry, base) for entry, base, suffix in swaps if suffix == layout.LOG]
        if logs:
            first = min(base for _, base in logs)
            end = max(first + 1, *(self._end_of_swap(entry, base) for entry, base in logs))
            covered = [entry.name for entry, parsed in marked if parsed is None and _covers(first, end, entry.name)]
            # The log files first: what is left of a segment without it is nothing.
            for name in sorted(covered, key=lambda name: not name.endswith(layout.LOG)):
                self._remove(name)
            # Another crash must not bring them back beside what takes their place.
            self.disk.sync_dir(self.directory)
        for entry, _, _ in sorted(swaps, key=lambda swap: swap[2] != layout.LOG):
            path = f"{self.directory}/{entry.name}"
            self.disk.rename(path, path.removesuffix(layout.SWAP))
        if swaps:
            self.disk.sync_dir(self.directory)
        return [entry for entry in self.disk.list(self.directory) if not entry.is_dir]

    def _end_of_swap(self, entry: Entry, base_offset: int) -> int:
        fd = self.disk.open(f"{self.directory}/{entry.name}")
        try:
            end = base_offset
            for batch in iter_batches(self.disk, fd, 0, entry.size):
                end = batch.last_offset + 1
            return end
        finally:
            self.disk.close(fd)

    def _remove(self, name: str) -> None:
        remove_if_there(self.disk, f"{self.directory}/{name}")

    def _drop(self, segments: list[Segment]) -> None:
        """Take segments out of the log, and their files out of the directory, the last first."""
        for segment in reversed(list(segments)):
            for path in segment.mark_deleted():
                remove_if_there(self.disk, path)
            self.segments.remove(segment)
            self.cut = True

    def _set_aside(self, segments: list[Segment], why: str) -> None:
        """Take segments out of the log and keep their records under names that no broker loads, the last first."""
        for segment in reversed(list(segments)):
            path = segment.path()
            if self._holds_records(segment):
                aside = f"{path}.{self.now_ms}{layout.ASIDE}"
                self.disk.rename(path, aside)
                log.warning("%s %s: set aside as %s, and the log continues without it", path, why, aside)
            else:
                remove_if_there(self.disk, path)
                log.warning("%s %s: removed, there are no records in it", path, why)
            for suffix in layout.SEGMENT_SUFFIXES[1:]:
                remove_if_there(self.disk, segment.path(suffix))
            self.segments.remove(segment)
            self.cut = True

    @staticmethod
    def _holds_records(segment: Segment) -> bool:
        try:
            return next(segment.batches(whole=True), None) is not None
        except CorruptRecords:
            return False
        finally:
            segment.close()

    def _forget_old_aside(self, name: str) -> None:
        """What was set aside goes as it would have gone in the log."""
        set_aside_ms = layout.parse_aside_name(name)
        limit_ms = self.config.retention_ms
        if set_aside_ms is None or not self.config.delete or limit_ms < 0:
            return
        if self.now_ms - set_aside_ms > limit_ms:
            log.warning("%s/%s was set aside longer ago than retention.ms: removed", self.directory, name)
            self._remove(name)

    def _drop_snapshots(self, unwanted: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.snapshots if unwanted(offset)]:
            self._remove(layout.file_name(offset, layout.SNAPSHOT))
            self.snapshots.remove(offset)
            self.cut = True

    # ---- contents

    def _load_epochs(self) -> None:
        try:
            self.epochs = LeaderEpochs.load(self.disk, self.directory)
        except CorruptFile as error:
            log.warning("%s: leader epochs are rebuilt from the log", error)
            for segment in self.segments:
                try:
                    for batch in segment.batches():
                        self._note_epoch(batch)
                except CorruptRecords:
                    break
            self.epochs.changed = True

    def _note_epoch(self, batch: StoredBatch) -> None:
        if batch.header is not None and batch.header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(batch.header.partition_leader_epoch, batch.base_offset)

    def _end_after_clean_stop(self) -> int | None:
        """The log end, if the last segment ends with a whole batch as it must; else None."""
        if not self.segments:
            return 0
        active = self.segments[-1]
        try:
            end, position = active.end()
        except CorruptRecords as error:
            log.warning("%s was closed cleanly, but cannot be read: %s", active.path(), error.message)
            return None
        if position != active.size:
            log.warning("%s was closed cleanly, but ends inside a batch at %d", active.path(), position)
            return None
        return end

    def _recover(self, recovery_point: int) -> int:
        """Read every segment from the one that holds the recovery point on. Returns the log end."""
        bases = [segment.base_offset for segment in self.segments]
        if not bases:
            return 0
        first = max(bisect_right(bases, recovery_point) - 1, 0)
        if first and bases[first] == recovery_point:
            # It was synced, and then closed: the sync did not cover that.
            self.segments[first - 1].renew_max_timestamp()
            self.segments[first - 1].finish()
        # Later snapshots may be torn, or of batches that are not there any more; those that are needed are rebuilt.
        # Earlier ones than the log are of no use.
        self._drop_snapshots(lambda at: not bases[0] <= at <= bases[first])
        start = load_snapshot(self.disk, self.directory, self.snapshots, self.producers, bases[0], bases[first])
        replay(self.segments[:first], self.producers, start, bases[first])
        # The file of epochs may be older than a truncation; from here on the batches know better.
        self.epochs.truncate_from_end(bases[first])
        end = bases[first]
        for segment in self.segments[first:]:
            rest = self.segments[self.segments.index(segment) :]
            if segment.base_offset < end:
                self._set_aside(rest, f"begins before {end}, where the log ends, or follows such a segment")
                break
            if self.gaps_to < segment.base_offset and end < segment.base_offset <= end + MAX_RELATIVE_OFFSET:
                # The end of the segment before was lost, and no sign of it is left there.
                if not self.only_copy:
                    self._set_aside(rest, f"lies behind a gap: the log ends at {end}")
                    break
                log.warning("%s follows a gap: what there was from offset %d on is lost", segment.path(), end)
            end, cut = self._recover_segment(segment)
            following = rest[1:]
            if cut:
                self.cut = True
                log.warning("%s: cut %d bytes behind offset %d", segment.path(), cut, end)
                if not self.synced_later:
                    segment.sync()
                if following and following[0].base_offset != end and not self.only_copy:
                    self._set_aside(following, f"lies behind damage: the log ends at {end}")
                    break
            if following:
                self._snapshot(following[0].base_offset)
        return end

    def _snapshot(self, offset: int) -> None:
        path = f"{self.directory}/{layout.file_name(offset, layout.SNAPSHOT)}"
        write_file(self.disk, path, self.producers.encode(), sync=False)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
            self.snapshots.sort()

    def _recover_segment(self, segment: Segment) -> tuple[int, int]:
        """Check all batches and rebuild everything else from them. Returns (end offset, bytes that were cut)."""
        base = end = segment.base_offset
        offsets, times = OffsetIndex(base), TimeIndex(base)
        aborted: list[AbortedTxn] = []
        position = indexed = 0
        newest, newest_offset = -1, base
        try:
            for batch in segment.batches(whole=True):
                if not end <= batch.base_offset <= batch.last_offset <= base + MAX_RELATIVE_OFFSET:
                    raise CorruptRecords(f"batch of offsets {batch.base_offset} to {batch.last_offset} after {end - 1}")
                if batch.header is not None:
                    assert batch.data is not None
                    entry = note_batch(self.producers, batch.data, batch.header, batch.base_offset, True)
                    self.producers.commit(batch.last_offset + 1)
                    if entry is not None:
                        aborted.append(entry)
                    self._note_epoch(batch)
                if batch.max_timestamp > newest:
                    newest, newest_offset = batch.max_timestamp, batch.last_offset
                if batch.position - indexed > self.config.index_interval_bytes:
                    offsets.add(batch.last_offset, batch.position)
                    if newest >= 0:
                        times.add(newest, newest_offset)
                    indexed = batch.position
                end = batch.last_offset + 1
                position = batch.position + batch.size
        except CorruptRecords as error:
            log.warning("%s at position %d: %s", segment.path(), position, error.message)
        self.producers.commit(end)
        cut = segment.size - position
        segment.rebuilt(position, offsets, times, aborted, newest, newest_offset)
        return end, cut


def _covers(first: int, end: int, name: str) -> bool:
    """Whether a file belongs to what a new segment with offsets from `first` to `end` stands for. The producers' state
    before it stays.
    """
    plain = layout.parse_file_name(name)
    return plain is not None and first <= plain[0] < end and plain != (first, layout.SNAPSHOT)
