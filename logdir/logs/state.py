"""What the parts of one partition's log share: its segments, its offsets, what is known of producers and epochs.

    log_start_offset <= ... <= recovery_point <= log_end_offset <= next_offset

Below the recovery point everything is synced, below the log end offset everything is written; what lies between that
and the next offset is staged (writer.py). The parts hold the same `LogState` and no reference to `log.PartitionLog`,
so each of them can be made, and tested, without the others above it:

    state <- making <- flusher <- tail_repair, roll_limits <- writer <- roller <- appender
    state <- reader <- compacted                    (which segments are cleaned, and swapped)
    truncation, head                                the two ends, over all of these

A broker has thousands of logs, most of them at rest: what only some need, or seldom, is made when it is needed
(compacted, truncation, head), and what is the same for many is shared (append_rules).

Offsets count records. Threads: everything belongs to the loop; `lock` guards the list of segments, the index files and
what is unsynced, which a thread that flushes uses too. Appends and reads touch none of these and do not take it.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk, remove_if_there, write_file
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.replay import aborted_of
from barnabas.logdir.segments.segment import Segment


@dataclass(slots=True)
class Unmade:
    """A new log's directory, `parent`, and whether its own is there: more is not, or not yet."""

    parent: str
    has_dir: bool = False


class LogState:
    """See the module.

    config: replaced whole, by `Appender.configure`. segments: rising, never empty once opened; active: the last one.
    snapshots: offsets of the files of producer state, rising. leader_epoch: of the last batch, as appends compare it;
    epochs: all of them. generation: how often the log was truncated; a flush that began before such a truncation does
    not move the recovery point. unsynced_files, unsynced_dirs: paths for the next flush, mostly none. failure: why the
    log refuses to append. abandoned: it was closed, deleted or moved away, or its directory failed. truncated_to: where
    the log ended after the truncation that cut most since the last compaction began. known_as: the `PartitionLog`, for
    the keeper, who knows the log by it. unmade: of a new log, until its files are there (making.py).
    """

    __slots__ = (
        "abandoned",
        "active",
        "config",
        "directory",
        "disk",
        "epochs",
        "failure",
        "generation",
        "keeper",
        "known_as",
        "leader_epoch",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "next_offset",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "topic_id",
        "truncated_to",
        "unmade",
        "unsynced_dirs",
        "unsynced_files",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        keeper: Keeper,
        lock: threading.RLock,
        *,
        segments: list[Segment],
        producers: Producers,
        snapshots: list[int],
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None,
        unmade: Unmade | None = None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.keeper = keeper
        self.lock = lock
        self.segments = segments
        self.active = segments[-1]
        self.producers = producers
        self.snapshots = snapshots
        self.epochs = epochs
        self.leader_epoch = epochs.latest
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.next_offset = log_end_offset
        self.recovery_point = recovery_point
        self.topic_id = topic_id
        self.unsynced_files: tuple[str, ...] = ()
        self.unsynced_dirs: tuple[str, ...] = ()
        self.generation = 0
        self.failure: StorageError | None = None
        self.abandoned = False
        self.truncated_to: int | None = None
        self.known_as: Any = None
        self.unmade = unmade

    # ---- segments

    def segment_at(self, offset: int) -> int:
        """Number of the segment that holds `offset`, -1 if it is before the first."""
        return bisect_right(self.segments, offset, key=_base_offset) - 1

    def aborted_of(self, segment: Segment) -> list[AbortedTxn]:
        """The transaction index of one of `segments`, rebuilt from the log if it is damaged. Raises OSError,
        `CorruptRecords`.
        """
        return aborted_of(self.disk, self.directory, self.segments, self.snapshots, segment)

    def start_at(self, offset: int) -> None:
        """Records below `offset` are gone."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)

    # ---- snapshots of the producer state

    def take_snapshot(self, offset: int) -> None:
        """Save the producer state before `offset`, for the next start; not synced. Raises OSError."""
        if offset <= (self.snapshots[-1] if self.snapshots else self.segments[0].base_offset):
            return
        path = f"{self.directory}/{layout.file_name(offset, layout.SNAPSHOT)}"
        write_file(self.disk, path, self.producers.encode(), sync=False)
        self.snapshots.append(offset)
        self.note_unsynced(dirs=(self.directory,), files=(path,))

    def drop_snapshots(self, unwanted: Callable[[int], bool]) -> None:
        """Remove those whose offset is `unwanted`. Raises OSError."""
        for offset in [offset for offset in self.snapshots if unwanted(offset)]:
            remove_if_there(self.disk, f"{self.directory}/{layout.file_name(offset, layout.SNAPSHOT)}")
            self.snapshots.remove(offset)

    # ---- what the next flush syncs

    def note_unsynced(self, *, dirs: Iterable[str] = (), files: Iterable[str] = ()) -> None:
        """`dirs` have new names, and `files` new contents. The caller holds the lock, if the log is shared already."""
        for path in dirs:
            if path not in self.unsynced_dirs:
                self.unsynced_dirs += (path,)
        for path in files:
            if path not in self.unsynced_files:
                self.unsynced_files += (path,)

    # ---- failures

    def fail(self, error: StorageError) -> None:
        """Refuse appends from now on, and report the disk."""
        self.failure = error
        if not self.abandoned:  # nothing is where it was: that says nothing about the disk
            self.keeper.storage_failed(error)

    def broken(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        """What to raise when something is half done: the log cannot be trusted until it is opened again."""
        failed = self._failed(doing, error)
        self.fail(failed)
        return failed

    def refused(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        """What to raise when nothing is half done, or the rest can be done later: unless the disk has failed, it can be
        tried again.
        """
        failed = self._failed(doing, error)
        if not failed.is_ours:
            self.fail(failed)
        return failed

    def _failed(self, doing: str, error: OSError | CorruptRecords) -> StorageError:
        cause = OSError(errno.EIO, error.message) if isinstance(error, CorruptRecords) else error
        return StorageError(f"{doing} {self.directory}", cause)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
