"""What is left to be done on the disk before anything is written behind the log's end.

A failed write has left bytes there; or a truncation has shortened the log in memory and its files have not followed yet
(`cutting.Cut`); or the log is new and has no files (making.py). `run` does the rest. If it fails, though the disk has
not (`StorageError.is_ours`), it continues later where it stopped: the next write, roll, truncation or close calls it
first.
"""

from __future__ import annotations

from barnabas.logdir.logs.flusher import Flusher
from barnabas.logdir.logs.making import make
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.cutting import Cut


class TailRepair:
    """See the module. is_needed: `run` has something to do; the writer sets it before, and clears it after.
    cut: the truncation whose files have not followed.
    """

    __slots__ = ("_flusher", "_is_new", "_state", "cut", "is_needed")

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self.is_needed = self._is_new = state.unmade is not None
        self.cut: Cut | None = None

    def begin(self, cut: Cut) -> None:
        """The log was truncated in memory."""
        self.cut = cut
        self.is_needed = True

    def finish(self) -> None:
        """`run` if that is needed, on behalf of a truncation. Raises `StorageError`."""
        if self.is_needed:
            try:
                self.run()
            except OSError as error:
                raise self._state.refused("truncating", error) from error

    def run(self) -> None:
        """Make the files of a new log; cut those of another back to what it has in memory. Raises OSError."""
        cut = self.cut
        if self._is_new:
            with self._state.lock:
                make(self._state)  # unless a thread has done it
            self._is_new = False
        elif cut is None:
            self._state.active.cut_back()
        if cut is not None:
            self._finish_cut(cut)
            self.cut = None
        self.is_needed = False

    def _finish_cut(self, cut: Cut) -> None:
        state = self._state
        if cut.fell:
            # First: recovery believes that nothing is lacking below the checkpoint.
            state.keeper.recovery_point_fell(state.known_as)
            cut.fell = False
        with state.lock:
            cut.delete_segments(state.keeper)
            state.drop_snapshots(lambda at: at > cut.snapshots_to)
            if cut.is_new:
                state.active.make_files()
            else:
                state.active.save_cut(cut.aborted)
            state.disk.sync_dir(state.directory)
        if cut.is_new:
            # Nothing in the log would contradict the old epochs, should a crash bring them back: the next fetch would
            # cut the log for nothing.
            self._flusher.save_epochs()
