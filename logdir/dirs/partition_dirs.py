"""The directories of partitions: made after their logs (`logs/making.py`), renamed when their partition goes.

A deleted partition's directory is renamed immediately, and removed after `file.delete.delay.ms`. A copy's that could
not be made completely is removed; if that fails, too, it is renamed.

The name of a new directory is synced with the next flush of its log, as its data is; that of a renamed one by
`sync_names`.
"""

from __future__ import annotations

import errno
import logging
import os
from functools import partial

from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.closing import tried
from barnabas.logdir.dirs.dir_state import DirState, TopicPartition
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.files.removal import remove_dir
from barnabas.logdir.logs.log import PartitionLog, new_log
from barnabas.logdir.logs.making import write_topic_id

log = logging.getLogger("barnabas.logdir")


class PartitionDirs:
    """See the module. It knows names; which log is in which table (`DirState.logs`, `futures`) its callers decide."""

    __slots__ = ("_checkpoints", "_keeper", "_state")

    def __init__(self, state: DirState, checkpoints: Checkpoints, keeper: Keeper) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._keeper = keeper

    # ---- making

    def make(
        self, key: TopicPartition, name: str, topic_id: bytes | None, config: LogConfig, start_offset: int = 0
    ) -> PartitionLog:
        """An empty log of the partition `key` in a new directory `name`; that and its files come later
        (`PartitionLog.make_files`). Raises OSError, `StorageError` among them.
        """
        state = self._state
        if state.failure is not None:
            raise state.failure
        if len(name) > layout.MAX_NAME:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{state.path}/{name}")
        self._checkpoints.forget(key)
        return new_log(
            state.disk,
            state.path,
            name,
            config,
            self._keeper,
            now_ms=state.wall_ms(),
            topic_id=topic_id,
            log_start_offset=start_offset,
        )

    def unmake(self, key: TopicPartition, half_made: PartitionLog) -> None:
        """Its files could not be made: half a partition must not be found by the next start."""
        state = self._state
        if not half_made.give_up():
            return
        directory = half_made.directory
        try:
            remove_dir(state.disk, directory)
        except OSError as error:
            log.warning("%s could not be removed yet: %s", directory, error)
            deleted = f"{state.path}/{layout.deleted_dir(*key, state.unique_hex())}"
            try:
                tried(partial(state.disk.rename, directory, deleted))
                state.removals.add((deleted,), state.wall_ms(), is_dir=True)
            except OSError as second:
                log.error("%s could not be removed, and will be found by the next start: %s", directory, second)

    def write_topic_id(self, opened: PartitionLog, topic_id: bytes) -> None:
        """The partition belongs to this topic from now on. Raises OSError."""
        directory = opened.directory
        if opened.is_made:
            # Torn by a crash it is forgiven to a new log only; one from before topic ids may have records.
            write_topic_id(self._state.disk, directory, topic_id, sync=opened.log_end_offset > 0)
            opened.created_in(directory, f"{directory}/{layout.PARTITION_METADATA}")
        opened.topic_id = topic_id

    # ---- renaming

    def give_up(self, key: TopicPartition, opened: PartitionLog) -> None:
        """Give up the log, which is not used any more; its directory is removed after `file.delete.delay.ms`. Raises
        `StorageError`.
        """
        state = self._state
        if not opened.give_up():
            return
        path = f"{state.path}/{layout.deleted_dir(*key, state.unique_hex())}"
        self.rename(opened.directory, path, "deleting")
        state.removals.add((path,), state.wall_ms() + opened.config.file_delete_delay_ms, is_dir=True)

    def set_aside(self, key: TopicPartition, opened: PartitionLog) -> None:
        """Set the log aside, which is of a deleted topic: it is neither served nor removed from now on. Raises
        `StorageError`.
        """
        state = self._state
        if not opened.give_up():
            return
        path = f"{state.path}/{layout.stray_dir(*key, state.unique_hex())}"
        self.rename(opened.directory, path, "setting aside")
        what = "belongs to another topic than the metadata know by that name: set aside, to be removed by hand"
        log.warning("%s %s: %s", opened.directory, what, path)

    def rename(self, source: str, target: str, doing: str) -> None:
        """Raises `StorageError`, whose message says what the caller was `doing`."""
        try:
            self._state.disk.rename(source, target)
        except OSError as error:
            raise self._state.failed(f"{doing} {source}", error) from error

    def sync_names(self) -> None:
        """What was made and renamed in the log directory itself is safe. From any thread. Raises `StorageError`."""
        try:
            self._state.disk.sync_dir(self._state.path)
        except OSError as error:
            raise self._state.failed(f"syncing {self._state.path}", error) from error
