"""Opening all logs that a log directory holds, recovering them where the last stop was not clean.

A directory without the clean-shutdown mark (`.kafka_cleanshutdown`) was left by a crash; the mark is removed before
anything else is touched, so that a crash while loading is recognised, too. Deleted directories are noted for removal;
unknown and stray ones are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.dir_state import DirState, TopicPartition
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Entry, read_file
from barnabas.logdir.files.errors import CorruptFile, LogDirError, duplicate
from barnabas.logdir.files.keeper import Keeper
from barnabas.logdir.logs.recovery import open_log

log = logging.getLogger("barnabas.logdir")

METADATA_LOG = "__cluster_metadata"


class Loading:
    """See the module; for one call of `run`. only_copies: no other broker has replicas. `config_of` says the settings
    of a topic. was_clean: the last stop was.
    """

    __slots__ = ("_checkpoints", "_config_of", "_keeper", "_only_copies", "_state", "was_clean")

    def __init__(
        self,
        state: DirState,
        checkpoints: Checkpoints,
        keeper: Keeper,
        config_of: Callable[[str], LogConfig],
        *,
        only_copies: bool,
    ) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._keeper = keeper
        self._config_of = config_of
        self._only_copies = only_copies
        self.was_clean = False

    def run(self) -> None:
        """Raises `LogDirError`, OSError."""
        state = self._state
        entries = state.disk.list(state.path)
        self.was_clean = any(entry.name == layout.CLEAN_SHUTDOWN for entry in entries)
        if self.was_clean:
            # Gone before anything else is touched: should we crash while loading, the next start recovers.
            state.disk.remove(f"{state.path}/{layout.CLEAN_SHUTDOWN}")
            state.disk.sync_dir(state.path)
        self._checkpoints.read()
        now_ms = state.wall_ms()
        for entry in sorted(entries):
            if entry.is_dir:
                self._load(entry, now_ms)
        if not self.was_clean and (state.logs or state.futures):
            # A killed process leaves unsynced files, and no record of which; recovery has cut others.
            state.disk.sync_all(state.path)

    def _load(self, entry: Entry, now_ms: int) -> None:
        state = self._state
        parsed = layout.parse_partition_dir(entry.name)
        path = f"{state.path}/{entry.name}"
        if parsed is None:
            log.warning("%s is not the directory of a partition: left alone", path)
            return
        topic, partition, mark = parsed
        if mark == layout.DELETE_DIR:
            state.removals.add((path,), now_ms + self._config_of(topic).file_delete_delay_ms, is_dir=True)
            return
        if mark == layout.STRAY_DIR or topic == METADATA_LOG:
            log.warning("%s is not served: left alone", path)
            return
        key = topic, partition
        into = state.futures if mark else state.logs
        if key in into:
            raise duplicate(key, into[key].directory, path)
        known = self._checkpoints.known(key)
        try:
            opened = open_log(
                state.disk,
                path,
                self._config_of(topic),
                self._keeper,
                now_ms=now_ms,
                recovery_point=known.recovery_point,
                log_start_offset=known.log_start,
                clean=self.was_clean,
                topic_id=self._read_topic_id(path, key),
                cleaned_to=known.cleaned_to,
                only_copy=self._only_copies,
                synced_later=not self.was_clean,
            )
        except (CorruptRecords, CorruptFile) as error:
            raise LogDirError(
                f"{path} cannot be opened: {error}. Start again to have it recovered, which cuts off what is not "
                "right; to give it up, remove the directory"
            ) from error
        if not self.was_clean:
            log.info("recovered %s: offsets %d to %d", path, opened.log_start_offset, opened.log_end_offset)
        into[key] = opened

    def _read_topic_id(self, path: str, key: TopicPartition) -> bytes | None:
        name = f"{path}/{layout.PARTITION_METADATA}"
        try:
            return layout.decode_partition_metadata(read_file(self._state.disk, name), name)
        except FileNotFoundError:
            return None
        except CorruptFile as error:
            # Written without a sync, so a crash may have torn it. The metadata say which topic it is.
            log.warning("%s: it is written again with the topic id that the metadata have for %s-%d", error, *key)
            return None
