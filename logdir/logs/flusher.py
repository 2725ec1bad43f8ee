"""Making one log safe: what is written is synced, and only then the recovery point moves.

A flush syncs the log files, then what is made from them (indexes, snapshots, leader epochs), then the directory, and
only then moves the recovery point: whatever a crash tears is above it, where recovery rebuilds it. The steps are in
flush.py. Everything here may be called from any thread.
"""

from __future__ import annotations

import threading

from barnabas.logdir.files.checkpoint import LEADER_EPOCH
from barnabas.logdir.files.disk import replace_file
from barnabas.logdir.logs.making import make
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.flush import Flush


class Flusher:
    """See the module."""

    __slots__ = ("_flushing", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._flushing = threading.Lock()  # one flush at a time: they share the name of a temporary file

    def note_created(self, directory: str, *files: str) -> None:
        """`directory` has new names, and `files` new contents: the next flush syncs them."""
        state = self._state
        with state.lock:
            state.note_unsynced(dirs=(directory,), files=files)

    def begin(self) -> Flush:
        """Note what is to be synced; see flush.py. Raises OSError."""
        state = self._state
        with state.lock:
            make(state)
            end_offset = state.log_end_offset
            segments = []
            for segment in state.segments:
                segment.save_indexes()
                if segment.dirty or segment.indexes_dirty:
                    segments.append(segment)
            flush = Flush(
                state.disk,
                state.directory,
                end_offset=end_offset,
                generation=state.generation,
                segments=segments,
                files=set(state.unsynced_files),
                dirs=set(state.unsynced_dirs),
                epochs=state.epochs.encode() if state.epochs.changed else None,
            )
            state.unsynced_files = ()
            state.unsynced_dirs = ()
            state.epochs.changed = False
            return flush

    def end(self, flush: Flush) -> None:
        """All steps of `flush` are done."""
        state = self._state
        with state.lock:
            if flush.generation == state.generation and flush.end_offset > state.recovery_point:
                state.recovery_point = flush.end_offset

    def undo(self, flush: Flush) -> None:
        """Not all steps of `flush` were done: the next one does what this one was to do. (Segments know themselves
        what they have to sync.)
        """
        state = self._state
        with state.lock:
            state.note_unsynced(dirs=flush.dirs, files=flush.files)
            if flush.epochs is not None:
                state.epochs.changed = True

    def flush(self) -> None:
        """Sync everything that is written, and move the recovery point. Raises `StorageError`.

        After a failure of the disk the log takes no more appends: the kernel may have dropped what it could not write.
        """
        with self._flushing:
            flush = None
            try:
                flush = self.begin()
                flush.sync_files()
                flush.put_in_place()
                flush.sync_dirs()
            except OSError as error:
                if self._state.abandoned:
                    return
                if flush is not None:
                    self.undo(flush)
                raise self._state.refused("flushing", error) from error
            self.end(flush)

    def save_epochs(self) -> None:
        """Save the leader epochs at once, synced, unless a flush is under way: the next one saves them. Raises
        OSError.
        """
        if self._flushing.acquire(blocking=False):
            try:
                state = self._state
                replace_file(state.disk, state.directory, LEADER_EPOCH, state.epochs.encode())
                state.epochs.changed = False
            finally:
                self._flushing.release()

    @property
    def is_needed(self) -> bool:
        """Something is written or saved that is not synced."""
        state = self._state
        return (
            state.recovery_point < state.log_end_offset
            or state.epochs.changed
            or bool(state.unsynced_dirs)
            or state.unmade is not None
            or any(segment.dirty or segment.indexes_dirty for segment in state.segments)
        )
