"""`LogDir`: all logs of one log directory, and what they share. A broker's directories together are
`log_dirs.LogDirs`.

    log_dir = LogDir(path, wall_ms=clock);  log_dir.open();  log_dir.check_identity(cluster_id=..., node_id=...)
    log_dir.load(config_of)                       every partition found, recovering where the last stop was not clean
    log = log_dir.open_or_create(topic, partition, topic_id, config)
    log_dir.close()                               everything safe, then the clean-shutdown mark

Its parts share one `DirState` (dir_state.py, which says which part uses which):

    identity.py        whose it is: one broker at a time, and the same one for good
    checkpoints.py     recovery points, log starts, high watermarks
    partition_dirs.py  making, renaming, giving up the directories of partitions
    new_logs.py        logs whose files are to be made
    copies.py          partitions being moved here from another directory
    loading.py         opening all of it                 dir_keeper.py  what its logs report to it
    closing.py         making all logs safe              removal.py     (in `files`) delayed removals

A failed disk ends the directory: `failure` says so, its logs refuse appends, and no clean-shutdown mark is left, so
that the next start recovers. `go_offline` releases everything in it.

Times are milliseconds of the wall clock. Threads: `load` and `close` may run in one while the loop does not use the
directory; `removals.remove`, `new_logs.make`, `checkpoints.write` and `flush` of a log may at any time; everything else
belongs to the loop.

A directory of a former topic with the name of a present one is set aside (`-stray`), as Apache Kafka does with KRaft.
It is neither served nor removed.
"""

from __future__ import annotations

import logging
import random as random_module
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.closing import make_safe, tried
from barnabas.logdir.dirs.copies import Copies
from barnabas.logdir.dirs.dir_keeper import DirKeeper
from barnabas.logdir.dirs.dir_state import DirState, TopicPartition
from barnabas.logdir.dirs.identity import Identity
from barnabas.logdir.dirs.loading import Loading
from barnabas.logdir.dirs.new_logs import NewLogs
from barnabas.logdir.dirs.partition_dirs import PartitionDirs
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk, replace_file
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.layout import MetaProperties
from barnabas.logdir.files.open_files import Pool, half_of_the_limit
from barnabas.logdir.files.removal import Removals
from barnabas.logdir.logs.log import PartitionLog

log = logging.getLogger("barnabas.logdir")


class LogDir:
    """See the module.

    `only_copies`: no other broker has replicas. `random` returns numbers in [0, 1), `unique_hex` 32 digits that never
    repeat. `on_rolled(log)`: a segment is complete, so a flush of its log is due; `on_failure(error)`: the disk failed
    (may be called from a thread). identity, checkpoints, partition_dirs, copies: its parts, to be used. was_clean: what
    was loaded had been closed cleanly.
    """

    def __init__(
        self,
        path: str,
        *,
        wall_ms: Callable[[], int],
        disk: Disk | None = None,
        max_open_files: int | None = None,
        only_copies: bool = False,
        random: Callable[[], float] = random_module.random,
        unique_hex: Callable[[], str] = lambda: uuid.uuid4().hex,
        on_rolled: Callable[[PartitionLog], None] | None = None,
        on_failure: Callable[[StorageError], None] | None = None,
    ) -> None:
        self.path = path.rstrip("/") or "/"
        self.disk = disk or Disk()
        self.was_clean = False
        self._only_copies = only_copies
        state = self._state = DirState(self.path, self.disk, wall_ms=wall_ms, unique_hex=unique_hex)
        self.identity = Identity(self.disk, self.path)
        self.checkpoints = Checkpoints(state)
        pool = Pool(half_of_the_limit() if max_open_files is None else max_open_files)
        self._keeper = DirKeeper(state, self.checkpoints, pool, random)
        self.partition_dirs = PartitionDirs(state, self.checkpoints, self._keeper)
        self.copies = Copies(state, self.partition_dirs)
        self.listen(on_rolled=on_rolled, on_failure=on_failure)

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {len(self.logs)} logs)"

    def listen(
        self,
        *,
        on_rolled: Callable[[PartitionLog], None] | None = None,
        on_failure: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Set the callbacks; None leaves one as it is."""
        if on_rolled is not None:
            self._keeper.on_rolled = on_rolled
        if on_failure is not None:
            self._state.on_failure = on_failure

    # ---- what is in it

    def holds_partitions(self) -> bool:
        """Whether directories of partitions lie here, opened or not. Raises OSError."""
        return any(entry.is_dir and layout.parse_partition_dir(entry.name) for entry in self.disk.list(self.path))

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """The partitions that are served."""
        return self._state.logs

    @property
    def futures(self) -> dict[TopicPartition, PartitionLog]:
        """Copies of partitions that are being moved here."""
        return self._state.futures

    @property
    def loaded_index_bytes(self) -> int:
        """Bytes of indexes that are held in memory."""
        return self._keeper.pool.loaded_index_bytes

    @property
    def removals(self) -> Removals:
        """What is to be removed, and when."""
        return self._state.removals

    @property
    def new_logs(self) -> NewLogs:
        """Logs whose files are to be made."""
        return self._state.new_logs

    @property
    def failure(self) -> StorageError | None:
        """Why nothing here is touched any more. Set it for a directory that cannot be used from the start on, of which
        `on_failure` is not called; otherwise `storage_failed` does it.
        """
        return self._state.failure

    @failure.setter
    def failure(self, failure: StorageError | None) -> None:
        self._state.failure = failure

    def storage_failed(self, error: StorageError) -> None:
        """See `DirState.fail`."""
        self._state.fail(error)

    @property
    def meta(self) -> MetaProperties | None:
        """Whose it is; None while it is new."""
        return self.identity.meta

    # ---- opening

    def open(self) -> None:
        """See `Identity.open`."""
        self.identity.open()

    def check_identity(self, *, cluster_id: str | None, node_id: int) -> None:
        """See `Identity.check`."""
        self.identity.check(cluster_id=cluster_id, node_id=node_id)

    def unlock(self) -> None:
        """See `Identity.unlock`."""
        self.identity.unlock()

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every partition's log with the configuration of its topic. Raises `LogDirError`, OSError."""
        loading = Loading(self._state, self.checkpoints, self._keeper, config_of, only_copies=self._only_copies)
        try:
            loading.run()
        finally:
            self.was_clean = loading.was_clean

    # ---- partitions

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log, None if it is not here."""
        return self.logs.get((topic, partition))

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        return iter(list(self.logs.items()))

    def open_or_create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        """The partition's log with `config`; an empty one if there is none, whose files come later. `topic_id`: 16
        bytes.

        Raises KafkaError INCONSISTENT_TOPIC_ID if the directory is that of another topic of the same name,
        `StorageError`.
        """
        key = topic, partition
        opened = self.logs.get(key)
        try:
            if opened is None:
                name = layout.partition_dir(topic, partition)
                created = self.logs[key] = self.partition_dirs.make(key, name, topic_id, config)
                self.new_logs.add((created,))
                return created
            if topic_id is not None:
                if opened.topic_id is None:
                    self.partition_dirs.write_topic_id(opened, topic_id)
                elif opened.topic_id != topic_id:
                    raise KafkaError(
                        ErrorCode.INCONSISTENT_TOPIC_ID, f"{opened.directory} belongs to another topic of that name"
                    )
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"opening {topic}-{partition} in {self.path}", error) from error
        opened.config = config
        return opened

    def high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark of the last checkpoint, within what the log has."""
        return self.checkpoints.high_watermark((topic, partition), self.logs[topic, partition])

    def delete(self, topic: str, partition: int) -> None:
        """Give a partition up: not served from now on, removed after `file.delete.delay.ms`. Does nothing if it is
        not there. Raises `StorageError`.
        """
        opened = self.logs.get((topic, partition))
        if opened is not None:
            self.partition_dirs.give_up((topic, partition), opened)
            del self.logs[topic, partition]

    def set_stray_aside(self, topic: str, partition: int) -> None:
        """The log is of a deleted topic: it is neither served nor removed from now on. Raises `StorageError`."""
        self.partition_dirs.set_aside((topic, partition), self.logs[topic, partition])
        del self.logs[topic, partition]

    def sync_names(self) -> None:
        """See `PartitionDirs.sync_names`."""
        self.partition_dirs.sync_names()

    # ---- closing

    def save(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write all that a clean stop writes, but the clean-shutdown mark; the logs stay open. A copy of the directory
        with the mark, made before anything else is done here, is one of a broker that was stopped. Raises
        `StorageError`, OSError.
        """
        checkpoints = self.checkpoints
        make_safe(self.disk, self.path, [opened for _, opened in self._state.all_logs() if opened.needs_close])
        ends, starts = checkpoints.recovery_points(), checkpoints.log_starts()
        for offsets in (ends, starts, checkpoints.high_watermarks(high_watermarks)):
            tried(partial(checkpoints.write, offsets))

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, mark: bool = True) -> None:
        """Make everything safe, leave the clean-shutdown mark (or not), unlock. After a failure only unlock.

        Raises `StorageError` if something could not be made safe; the directory is released all the same.
        """
        try:
            if self.failure is None:
                self.save(high_watermarks or {})
                if mark:
                    content = layout.encode_clean_shutdown()
                    tried(partial(replace_file, self.disk, self.path, layout.CLEAN_SHUTDOWN, content))
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"closing {self.path}", error) from error
        finally:
            self._release()

    def go_offline(self) -> None:
        """After a failure: release everything, nothing here is touched any more."""
        self.removals.forget()
        try:
            self._release()
        except OSError as error:
            log.warning("releasing %s: %s", self.path, error)

    def _release(self) -> None:
        self.new_logs.forget()
        for _, opened in self._state.all_logs():
            opened.abandon()
        self._state.logs = {}
        self._state.futures = {}
        self.unlock()
