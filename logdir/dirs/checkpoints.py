"""The checkpoint files of one log directory: up to where each log is synced (recovery points), where logs start, and
their high watermarks. (The cleaner's has a writer of its own; here it is read when the logs are opened.)

What is to be written is put together on the loop, from the logs (`recovery_points`, `log_starts`, `high_watermarks`),
and written in any thread (`write`). A later one is never replaced by an earlier one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.logdir.dirs.dir_state import DirState, TopicPartition
from barnabas.logdir.files import checkpoint
from barnabas.logdir.files.errors import CorruptFile, StorageError
from barnabas.logdir.logs.log import PartitionLog

log = logging.getLogger("barnabas.logdir")


class Checkpoint(NamedTuple):
    """Offsets to be written to the checkpoint file `name`; a later `serial` has later offsets."""

    name: str
    serial: int
    offsets: dict[TopicPartition, int]


class Known(NamedTuple):
    """What the files said of a partition when the directory was opened; 0 where they said nothing."""

    recovery_point: int
    log_start: int
    cleaned_to: int


class Checkpoints:
    """See the module. The offsets are those of the last call for each file, or of the file before that."""

    __slots__ = (
        "_cleaned_to",
        "_high_watermarks",
        "_lock",
        "_log_starts",
        "_recovery_points",
        "_serial",
        "_state",
        "_written",
    )

    def __init__(self, state: DirState) -> None:
        self._state = state
        self._serial = 0
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._cleaned_to: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()
        self._written: dict[str, Checkpoint] = {}

    # ---- what is known

    def read(self) -> None:
        """Read all files. An invalid one is logged and ignored. Raises OSError."""
        self._recovery_points = self._read(checkpoint.RECOVERY_POINT)
        self._log_starts = self._read(checkpoint.LOG_START)
        self._high_watermarks = self._read(checkpoint.HIGH_WATERMARK)
        self._cleaned_to = self._read(checkpoint.CLEANER)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(self._state.disk, self._state.path, name)
        except CorruptFile as error:
            log.warning("%s/%s is not used: %s", self._state.path, name, error)
            return {}

    def known(self, key: TopicPartition) -> Known:
        return Known(self._recovery_points.get(key, 0), self._log_starts.get(key, 0), self._cleaned_to.get(key, 0))

    def high_watermark(self, key: TopicPartition, opened: PartitionLog) -> int:
        """That of the last checkpoint, within what the log has."""
        known = self._high_watermarks.get(key, 0)
        return min(max(known, opened.log_start_offset), opened.log_end_offset)

    # ---- what is to be written

    def recovery_points(self) -> Checkpoint:
        """Up to where every log is synced."""
        self._recovery_points = {key: opened.recovery_point for key, opened in self._state.all_logs()}
        return self._next(checkpoint.RECOVERY_POINT, self._recovery_points)

    def log_starts(self) -> Checkpoint:
        """Where logs start that do not start with a segment."""
        self._log_starts = {
            key: opened.log_start_offset
            for key, opened in self._state.all_logs()
            if opened.log_start_offset > opened.first_base_offset
        }
        return self._next(checkpoint.LOG_START, self._log_starts)

    def high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Checkpoint:
        """`offsets`, and for partitions that are not in it what was known before."""
        known = {**self._high_watermarks, **offsets}
        here = self._state.logs.keys() | self._state.futures.keys()
        self._high_watermarks = {key: offset for key, offset in known.items() if key in here}
        return self._next(checkpoint.HIGH_WATERMARK, self._high_watermarks)

    def _next(self, name: str, offsets: dict[TopicPartition, int]) -> Checkpoint:
        self._serial += 1
        return Checkpoint(name, self._serial, dict(offsets))

    # ---- writing

    def is_written(self, offsets: Checkpoint) -> bool:
        """The file says the same already."""
        written = self._written.get(offsets.name)
        return written is not None and written.offsets == offsets.offsets

    def write(self, offsets: Checkpoint) -> None:
        """Write the file, synced, unless a later one was written meanwhile. From any thread. Raises `StorageError`."""
        state = self._state
        with self._lock:
            written = self._written.pop(offsets.name, None)
            if written is not None and written.serial > offsets.serial:
                self._written[offsets.name] = written
                return
            try:  # what the file says after a failure is not known
                checkpoint.write_offsets(state.disk, state.path, offsets.name, offsets.offsets)
            except OSError as error:
                raise state.failed(f"writing {state.path}/{offsets.name}", error) from error
            self._written[offsets.name] = offsets

    def forget(self, key: TopicPartition) -> None:
        """A partition of this name that is gone is in no file any more: a new one must not be opened with its offsets.
        All others that are gone leave the files with it, as they may be created again next. Raises `StorageError`.
        """
        for name, known in (
            (checkpoint.RECOVERY_POINT, self._recovery_points),
            (checkpoint.LOG_START, self._log_starts),
            (checkpoint.HIGH_WATERMARK, self._high_watermarks),
        ):
            if known.get(key, 0):
                here = self._state.logs.keys() | self._state.futures.keys()
                gone = {each for each in known if each == key or each not in here}
                self.write(self._next(name, {each: offset for each, offset in known.items() if each not in gone}))
                for each in gone:
                    del known[each]
            known.pop(key, None)

    def follow(self, cut: PartitionLog) -> None:
        """The log was truncated below its recovery point, or its start: the files must say so before more is written
        to it. Raises `StorageError`.
        """
        state = self._state
        try:
            self.write(self.recovery_points())
            if any(
                start > cut.log_start_offset and cut in (state.logs.get(key), state.futures.get(key))
                for key, start in self._log_starts.items()
            ):
                self.write(self.log_starts())
        except StorageError as error:
            # The log is cut, and the files say otherwise: nothing is written there until they do not.
            if not error.is_ours:
                state.fail(error)
            raise
