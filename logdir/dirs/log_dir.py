"""`LogDir`: all logs of one log directory, and what they share. A broker's directories together are `dirs.LogDirs`.

    log_dir = LogDir(path, wall_ms=clock);  log_dir.open();  log_dir.check_identity(cluster_id=..., node_id=...)
    log_dir.load(config_of)                       every partition found, recovering where the last stop was not clean
    log = log_dir.open_or_create(topic, partition, topic_id, config)
    log_dir.close()                               everything safe, then the clean-shutdown mark

One directory has one broker at a time (`.lock`) and belongs to it for good (`meta.properties`). Deleting a partition
renames its directory at once and removes it after `file.delete.delay.ms`; so are single segments. A failed disk ends
the directory: `failure` says so, its logs refuse appends, and no clean-shutdown mark is left, so that the next start
recovers. `go_offline` lets go of everything in it.

A `-future` directory holds a copy of a partition of another directory, on its way here (`dirs.py`, KIP-113): it is
opened into `futures`, counts in the checkpoints under the partition's name as in Apache Kafka, and is not served.

A name that is made, renamed or removed is synced with the next flush of its log, as its data is, not before; the
rename of a deletion by `sync_names`, which whoever deletes calls before he reports it.

Times are milliseconds of the wall clock. Threads: `load` and `close` may run in one while nobody else uses the
directory; `remove`, `write_checkpoint` and `flush` of a log may at any time; everything else belongs to the loop.

A directory that belongs to another topic of its name than the metadata know now is set aside (`-stray`), as Apache
Kafka does with KRaft. Nobody serves or removes those.
"""

from __future__ import annotations

import logging
import random as random_module
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.dirs.closing import make_safe, tried
from barnabas.logdir.files import checkpoint, layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk, Entry, read_file, replace_file, write_file
from barnabas.logdir.files.errors import CorruptFile, LogDirError, LogDirLocked, StorageError, duplicate
from barnabas.logdir.files.layout import MetaProperties
from barnabas.logdir.files.open_files import Pool, half_of_the_limit
from barnabas.logdir.files.removal import Removal, Removals, remove_dir
from barnabas.logdir.logs.log import PartitionLog
from barnabas.logdir.logs.recovery import open_log

log = logging.getLogger("barnabas.logdir")

TopicPartition = tuple[str, int]
METADATA_LOG = "__cluster_metadata"


class Checkpoint(NamedTuple):
    """Offsets to be written to the checkpoint file `name`; a later `serial` has later offsets."""

    name: str
    serial: int
    offsets: dict[TopicPartition, int]


class LogDir:
    """See the module.

    `only_copies`: no other broker has replicas. `random` returns numbers in [0, 1), `unique_hex` 32 digits that never
    repeat. `on_rolled(log)`: a segment is complete, so a flush of its log is due; `on_failure(error)`: the disk failed
    (may be called from a thread).
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
        self.pool = Pool(half_of_the_limit() if max_open_files is None else max_open_files)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.failure: StorageError | None = None
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self._only_copies = only_copies
        self.on_rolled = on_rolled
        self.on_failure = on_failure
        self._wall_ms = wall_ms
        self._random = random
        self._unique_hex = unique_hex
        self._lock_fd = -1
        self._removals = Removals(self.disk)
        self._half_made: set[str] = set()  # directories of partitions that could be neither made nor removed
        self._serial = 0
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._cleaned_to: dict[TopicPartition, int] = {}
        self._checkpoint_lock = threading.Lock()
        self._written: dict[str, Checkpoint] = {}

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {len(self.logs)} logs)"

    # ---- opening

    def open(self) -> None:
        """Make the directory if it is not there, lock it, read whose it is. Raises `LogDirLocked`,
        `InconsistentMeta`, OSError.
        """
        missing = []
        path = self.path
        while True:
            try:
                self.disk.list(path)
                break
            except FileNotFoundError:
                missing.append(path)
                path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        for path in reversed(missing):
            self.disk.make_dir(path)
            self.disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
        try:
            self._lock_fd = self.disk.lock(f"{self.path}/{layout.LOCK}")
        except BlockingIOError:
            raise LogDirLocked(
                f"{self.path} is in use by another broker (it holds {layout.LOCK}); stop that one, or choose another "
                "log directory"
            ) from None
        name = f"{self.path}/{layout.META_PROPERTIES}"
        try:
            self.meta = MetaProperties.decode(read_file(self.disk, name), name)
        except FileNotFoundError:
            self.meta = None
        except Exception:
            self.unlock()
            raise

    def check_identity(self, *, cluster_id: str | None, node_id: int) -> None:
        """Refuse another broker's directory; one that does not say whose it is becomes ours, unless the cluster's id is
        not known yet (None). Raises `InconsistentMeta`, OSError.
        """
        known = self.meta or MetaProperties()
        known.check(f"{self.path}/{layout.META_PROPERTIES}", cluster_id=cluster_id, node_id=node_id)
        if cluster_id is not None and not known.is_complete:
            self.write_meta(replace(known, cluster_id=cluster_id, node_id=node_id))

    def write_meta(self, meta: MetaProperties) -> None:
        """Raises OSError."""
        replace_file(self.disk, self.path, layout.META_PROPERTIES, meta.encode())
        self.meta = meta

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            self.disk.close(self._lock_fd)
            self._lock_fd = -1

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every partition's log with the configuration of its topic. Raises `LogDirError`, OSError."""
        entries = self.disk.list(self.path)
        names = {entry.name for entry in entries}
        self.was_clean = layout.CLEAN_SHUTDOWN in names
        if self.was_clean:
            # Gone before anything else is touched: should we crash while loading, the next start recovers.
            self.disk.remove(f"{self.path}/{layout.CLEAN_SHUTDOWN}")
            self.disk.sync_dir(self.path)
        self._recovery_points = self._read_checkpoint(checkpoint.RECOVERY_POINT)
        self._log_starts = self._read_checkpoint(checkpoint.LOG_START)
        self._high_watermarks = self._read_checkpoint(checkpoint.HIGH_WATERMARK)
        self._cleaned_to = self._read_checkpoint(checkpoint.CLEANER)
        now_ms = self._wall_ms()
        for entry in sorted(entries):
            if entry.is_dir:
                self._load_dir(entry, config_of, now_ms)
        if not self.was_clean and self.logs:
            # A killed process leaves files that nobody knows to be unsynced any more, in the hands of the system.
            self.disk.sync_all(self.path)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(self.disk, self.path, name)
        except CorruptFile as error:
            log.warning("%s/%s is not used: %s", self.path, name, error)
            return {}

    def _load_dir(self, entry: Entry, config_of: Callable[[str], LogConfig], now_ms: int) -> None:
        parsed = layout.parse_partition_dir(entry.name)
        path = f"{self.path}/{entry.name}"
        if parsed is None:
            log.warning("%s is not the directory of a partition: left alone", path)
            return
        topic, partition, mark = parsed
        if mark == layout.DELETE_DIR:
            self._removals.add((path,), now_ms + config_of(topic).file_delete_delay_ms, is_dir=True)
            return
        if mark == layout.STRAY_DIR or topic == METADATA_LOG:
            log.warning("%s is not served: left alone", path)
            return
        key = topic, partition
        into = self.futures if mark else self.logs
        if key in into:
            raise duplicate(key, into[key].directory, path)
        try:
            opened = open_log(
                self.disk,
                path,
                config_of(topic),
                self,
                now_ms=now_ms,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._log_starts.get(key, 0),
                clean=self.was_clean,
                topic_id=self._read_topic_id(path, key),
                cleaned_to=self._cleaned_to.get(key, 0),
                only_copy=self._only_copies,
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
            return layout.decode_partition_metadata(read_file(self.disk, name), name)
        except FileNotFoundError:
            return None
        except CorruptFile as error:
            # Written without a sync, so a crash may have torn it. Whoever opens the partition says which topic it is.
            log.warning("%s: it is made anew with the topic id that the metadata have for %s-%d", error, *key)
            return None

    # ---- partitions

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        return iter(list(self.logs.items()))

    def open_or_create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        """The partition's log with `config`; an empty one if there is none. `topic_id`: 16 bytes.

        Raises KafkaError INCONSISTENT_TOPIC_ID if the directory is that of another topic of the same name,
        `StorageError`.
        """
        opened = self.logs.get((topic, partition))
        try:
            if opened is None:
                return self._create(topic, partition, topic_id, config)
            if topic_id is not None:
                if opened.topic_id is None:
                    self._write_topic_id(opened, topic_id)
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

    def _create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        name = layout.partition_dir(topic, partition)
        created = self.logs[topic, partition] = self._make((topic, partition), name, topic_id, config, 0)
        return created

    def _make(
        self, key: TopicPartition, name: str, topic_id: bytes | None, config: LogConfig, start_offset: int
    ) -> PartitionLog:
        if self.failure is not None:
            raise self.failure
        self._forget_checkpoints(key)
        directory = f"{self.path}/{name}"
        if directory in self._half_made:
            remove_dir(self.disk, directory)
            self._half_made.discard(directory)
        self.disk.make_dir(directory)
        try:
            created = open_log(
                self.disk, directory, config, self, now_ms=self._wall_ms(), log_start_offset=start_offset
            )
            if topic_id is not None:
                self._write_topic_id(created, topic_id)
        except OSError:
            self._unmake(directory, layout.deleted_dir(*key, self._unique_hex()))
            raise
        created.created_in(self.path)
        return created

    def _unmake(self, directory: str, deleted: str) -> None:
        """Half a partition must not be found by the next start, nor by whoever makes it next."""
        try:
            remove_dir(self.disk, directory)
        except OSError as error:
            log.warning("%s could not be removed yet: %s", directory, error)
            try:
                tried(partial(self.disk.rename, directory, f"{self.path}/{deleted}"))
                self._removals.add((f"{self.path}/{deleted}",), self._wall_ms(), is_dir=True)
            except OSError:
                self._half_made.add(directory)

    def _write_topic_id(self, opened: PartitionLog, topic_id: bytes) -> None:
        path = f"{opened.directory}/{layout.PARTITION_METADATA}"
        # Torn by a crash it is forgiven to a new log only; one from before topic ids may have records.
        old = opened.log_end_offset > 0
        write_file(self.disk, path + ".tmp", layout.encode_partition_metadata(topic_id), sync=old)
        self.disk.rename(path + ".tmp", path)
        opened.topic_id = topic_id
        opened.created_in(opened.directory, path)

    def _forget_checkpoints(self, key: TopicPartition) -> None:
        """A partition of that name was deleted since the checkpoints were written: a new one must not be opened with
        its offsets.
        """
        for name, known in (
            (checkpoint.RECOVERY_POINT, self._recovery_points),
            (checkpoint.LOG_START, self._log_starts),
            (checkpoint.HIGH_WATERMARK, self._high_watermarks),
        ):
            if known.get(key, 0):
                self._serial += 1
                others = {each: offset for each, offset in known.items() if each != key}
                self.write_checkpoint(Checkpoint(name, self._serial, others))
            known.pop(key, None)

    def set_stray_aside(self, topic: str, partition: int) -> None:
        """The log is of a topic that is gone: it is served and removed by nobody from now on. Raises `StorageError`."""
        opened = self.logs[topic, partition]
        opened.abandon()
        path = f"{self.path}/{layout.stray_dir(topic, partition, self._unique_hex())}"
        self._rename(opened.directory, path, "setting aside")
        del self.logs[topic, partition]
        what = "belongs to another topic than the metadata know by that name: set aside, to be removed by hand"
        log.warning("%s %s: %s", opened.directory, what, path)

    def high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark of the last checkpoint, within what the log has."""
        opened = self.logs[topic, partition]
        known = self._high_watermarks.get((topic, partition), 0)
        return min(max(known, opened.log_start_offset), opened.log_end_offset)

    def delete(self, topic: str, partition: int) -> None:
        """Give a partition up: not served from now on, removed after `file.delete.delay.ms`. Does nothing if it is
        not there.

        Raises `StorageError`.
        """
        opened = self.logs.get((topic, partition))
        if opened is not None:
            self.give_up((topic, partition), opened)
            del self.logs[topic, partition]

    def give_up(self, key: TopicPartition, opened: PartitionLog) -> None:
        """`delete` for a log, whichever table it is in. Raises `StorageError`."""
        opened.abandon()
        path = f"{self.path}/{layout.deleted_dir(*key, self._unique_hex())}"
        self._rename(opened.directory, path, "deleting")
        self._removals.add((path,), self._wall_ms() + opened.config.file_delete_delay_ms, is_dir=True)

    def _rename(self, source: str, target: str, doing: str) -> None:
        try:
            self.disk.rename(source, target)
        except OSError as error:
            failed = StorageError(f"{doing} {source}", error)
            if not failed.is_ours:
                self.storage_failed(failed)
            raise failed from error

    # ---- partitions on their way here

    def create_future(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, start_offset: int
    ) -> PartitionLog:
        """An empty log that starts at `start_offset`, for the copy of a partition of another directory. Raises
        `StorageError`.
        """
        name = layout.future_dir(topic, partition, self._unique_hex())
        try:
            created = self._make((topic, partition), name, topic_id, config, start_offset)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"making {self.path}/{name}", error) from error
        self.futures[topic, partition] = created
        return created

    def drop_future(self, topic: str, partition: int) -> None:
        """The copy is not wanted any more. Raises `StorageError`."""
        opened = self.futures.get((topic, partition))
        if opened is not None:
            self.give_up((topic, partition), opened)
            del self.futures[topic, partition]

    def mark_whole(self, topic: str, partition: int) -> None:
        """See `LogDirs.mark_whole`."""
        opened = self.futures.get((topic, partition))
        if opened is None:
            return
        directory = opened.directory
        try:
            write_file(self.disk, f"{directory}/{layout.MOVED}", b"", sync=True)
            self.disk.sync_dir(directory)
        except OSError as error:
            raise StorageError(f"marking {directory}", error) from error

    def is_marked_whole(self, topic: str, partition: int) -> bool:
        """See `mark_whole`. Raises OSError."""
        directory = self.logs[topic, partition].directory
        return any(entry.name == layout.MOVED for entry in self.disk.list(directory))

    def remove_mark(self, topic: str, partition: int) -> None:
        """There is no other copy: take the mark away for good, if there is one. From any thread. Raises `StorageError`,
        KeyError.
        """
        directory = self.logs[topic, partition].directory
        try:
            self.disk.remove(f"{directory}/{layout.MOVED}")
            self.disk.sync_dir(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(f"removing the mark from {directory}", error) from error

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """The copy becomes the partition itself. Not safe until `sync_names`, and until then the original must stay.
        Raises `StorageError`.
        """
        opened = self.futures[topic, partition]
        path = f"{self.path}/{layout.partition_dir(topic, partition)}"
        self._rename(opened.directory, path, "putting in place")
        opened.moved_to(path)
        self.logs[topic, partition] = self.futures.pop((topic, partition))
        return opened

    def sync_names(self) -> None:
        """What was made and renamed in the directory itself is safe. From any thread. Raises `StorageError`."""
        try:
            self.disk.sync_dir(self.path)
        except OSError as error:
            failed = StorageError(f"syncing {self.path}", error)
            if not failed.is_ours:
                self.storage_failed(failed)
            raise failed from error

    # ---- for the logs (appender.Keeper)

    def rolled(self, log: Any) -> None:
        # A copy that is being made is flushed by whoever makes it.
        if self.on_rolled is not None and not log.directory.endswith(layout.FUTURE_DIR):
            self.on_rolled(log)

    def remove_later(self, paths: list[str], due_ms: int) -> None:
        self._removals.add(paths, due_ms, is_dir=False)

    def recovery_point_fell(self, log: Any) -> None:
        try:
            self.write_checkpoint(self.recovery_points())
            if any(
                start > log.log_start_offset and log in (self.logs.get(key), self.futures.get(key))
                for key, start in self._log_starts.items()
            ):
                self.write_checkpoint(self.log_starts())
        except StorageError as error:
            # The log is cut, and the files say otherwise: nothing is written there until they do not.
            if not error.is_ours:
                self.storage_failed(error)
            raise

    def storage_failed(self, error: StorageError) -> None:
        if self.failure is None:
            log.error("the log directory %s failed: %s", self.path, error)
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def jitter(self) -> float:
        return self._random()

    # ---- removing

    @property
    def next_removal_ms(self) -> int | None:
        """When the next removal is due."""
        return self._removals.next_ms

    def take_removals(self, now_ms: int) -> list[Removal]:
        """What is due by `now_ms`; to be handed to `remove`."""
        return self._removals.take(now_ms)

    def remove(self, removals: Iterable[Removal]) -> None:
        """Remove the files for good. From any thread (removal.py)."""
        self._removals.remove(removals)

    # ---- checkpoints

    def recovery_points(self) -> Checkpoint:
        """Up to where every log is synced."""
        self._recovery_points = {key: opened.recovery_point for key, opened in self._all()}
        return self._checkpoint(checkpoint.RECOVERY_POINT, self._recovery_points)

    def log_starts(self) -> Checkpoint:
        """Where logs start that do not start with a segment."""
        self._log_starts = {
            key: opened.log_start_offset
            for key, opened in self._all()
            if opened.log_start_offset > opened.first_base_offset
        }
        return self._checkpoint(checkpoint.LOG_START, self._log_starts)

    def high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Checkpoint:
        """`offsets`, and for partitions that are not in it what was known before."""
        known = {**self._high_watermarks, **offsets}
        here = self.logs.keys() | self.futures.keys()
        self._high_watermarks = {key: offset for key, offset in known.items() if key in here}
        return self._checkpoint(checkpoint.HIGH_WATERMARK, self._high_watermarks)

    def _all(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        yield from self.futures.items()
        yield from self.logs.items()

    def _checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> Checkpoint:
        self._serial += 1
        return Checkpoint(name, self._serial, dict(offsets))

    def is_written(self, offsets: Checkpoint) -> bool:
        """The file says the same already."""
        written = self._written.get(offsets.name)
        return written is not None and written.offsets == offsets.offsets

    def write_checkpoint(self, offsets: Checkpoint) -> None:
        """Write the file, synced, unless a later one was written meanwhile. From any thread. Raises `StorageError`."""
        with self._checkpoint_lock:
            written = self._written.pop(offsets.name, None)
            if written is not None and written.serial > offsets.serial:
                self._written[offsets.name] = written
                return
            try:  # what the file says after a failure is not known
                checkpoint.write_offsets(self.disk, self.path, offsets.name, offsets.offsets)
            except OSError as error:
                failed = StorageError(f"writing {self.path}/{offsets.name}", error)
                if not failed.is_ours:
                    self.storage_failed(failed)
                raise failed from error
            self._written[offsets.name] = offsets

    # ---- closing

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, mark: bool = True) -> None:
        """Make everything safe, leave the clean-shutdown mark (or not), unlock. After a failure: let go without it.

        Raises `StorageError` if something could not be made safe; the directory is then let go all the same.
        """
        try:
            if self.failure is None:
                make_safe(self.disk, self.path, [opened for _, opened in self._all() if opened.needs_close])
                ends, starts = self.recovery_points(), self.log_starts()
                for offsets in (ends, starts, self.high_watermarks(high_watermarks or {})):
                    tried(partial(self.write_checkpoint, offsets))
                if mark:
                    content = layout.encode_clean_shutdown()
                    tried(partial(replace_file, self.disk, self.path, layout.CLEAN_SHUTDOWN, content))
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"closing {self.path}", error) from error
        finally:
            self._let_go()

    def go_offline(self) -> None:
        """After a failure: let go of everything, nothing here is touched any more."""
        self._removals.forget()
        try:
            self._let_go()
        except OSError as error:
            log.warning("letting go of %s: %s", self.path, error)

    def _let_go(self) -> None:
        for _, opened in self._all():
            opened.abandon()
        self.logs = {}
        self.futures = {}
        self.unlock()
