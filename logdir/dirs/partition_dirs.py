"""The directories of partitions: made whole or not at all, renamed when their partition goes.

A deleted partition's directory is renamed immediately, and removed after `file.delete.delay.ms`. One that could not be
created completely is removed; if that fails, too, it is renamed; if even that fails, it is remembered, and removed
before it is created again.

The name of a new directory is synced with the next flush of its log, as its data is; that of a renamed one by
`sync_names`.
"""

from __future__ import annotations

import logging
from functools import partial

from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.closing import tried
from barnabas.logdir.dirs.dir_state import DirState, TopicPartition
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import write_file
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.files.removal import remove_dir
from barnabas.logdir.logs.log import PartitionLog
from barnabas.logdir.logs.recovery import open_log

log = logging.getLogger("barnabas.logdir")


class PartitionDirs:
    """See the module. It knows names; which log is in which table (`DirState.logs`, `futures`) its callers decide."""

    __slots__ = ("_checkpoints", "_half_made", "_keeper", "_state")

    def __init__(self, state: DirState, checkpoints: Checkpoints, keeper: Keeper) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._keeper = keeper
        self._half_made: set[str] = set()  # paths of those that could be neither made nor removed

    # ---- making

    def make(
        self, key: TopicPartition, name: str, topic_id: bytes | None, config: LogConfig, start_offset: int = 0
    ) -> PartitionLog:
        """An empty log of the partition `key` in a new directory `name`. Raises OSError, `StorageError` among them."""
        state = self._state
        if state.failure is not None:
            raise state.failure
        self._checkpoints.forget(key)
        directory = f"{state.path}/{name}"
        if directory in self._half_made:
            remove_dir(state.disk, directory)
            self._half_made.discard(directory)
        state.disk.make_dir(directory)
        try:
            created = open_log(
                state.disk, directory, config, self._keeper, now_ms=state.wall_ms(), log_start_offset=start_offset
            )
            if topic_id is not None:
                self.write_topic_id(created, topic_id)
        except OSError:
            self._unmake(directory, layout.deleted_dir(*key, state.unique_hex()))
            raise
        created.created_in(state.path)
        return created

    def _unmake(self, directory: str, deleted: str) -> None:
        """Half a partition must not be found by the next start, nor by the next attempt to make it."""
        state = self._state
        try:
            remove_dir(state.disk, directory)
        except OSError as error:
            log.warning("%s could not be removed yet: %s", directory, error)
            try:
                tried(partial(state.disk.rename, directory, f"{state.path}/{deleted}"))
                state.removals.add((f"{state.path}/{deleted}",), state.wall_ms(), is_dir=True)
            except OSError:
                self._half_made.add(directory)

    def write_topic_id(self, opened: PartitionLog, topic_id: bytes) -> None:
        """The partition belongs to this topic from now on. Raises OSError."""
        disk = self._state.disk
        path = f"{opened.directory}/{layout.PARTITION_METADATA}"
        # Torn by a crash it is forgiven to a new log only; one from before topic ids may have records.
        old = opened.log_end_offset > 0
        write_file(disk, path + ".tmp", layout.encode_partition_metadata(topic_id), sync=old)
        disk.rename(path + ".tmp", path)
        opened.topic_id = topic_id
        opened.created_in(opened.directory, path)

    # ---- renaming

    def give_up(self, key: TopicPartition, opened: PartitionLog) -> None:
        """Give up the log, which is not used any more; its directory is removed after `file.delete.delay.ms`. Raises
        `StorageError`.
        """
        state = self._state
        opened.abandon()
        path = f"{state.path}/{layout.deleted_dir(*key, state.unique_hex())}"
        self.rename(opened.directory, path, "deleting")
        state.removals.add((path,), state.wall_ms() + opened.config.file_delete_delay_ms, is_dir=True)

    def set_aside(self, key: TopicPartition, opened: PartitionLog) -> None:
        """Set the log aside, which is of a deleted topic: it is neither served nor removed from now on. Raises
        `StorageError`.
        """
        state = self._state
        opened.abandon()
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
