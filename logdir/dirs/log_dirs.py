"""`LogDirs`: all log directories of a broker (JBOD), each usually a disk of its own (KIP-112, KIP-113).

    dirs = LogDirs(paths, wall_ms=clock);  dirs.open();  dirs.check_identity(cluster_id=..., node_id=...)
    dirs.load(config_of)
    log = dirs.open_or_create(topic, partition, topic_id, config, is_new=...)
    dirs.close(high_watermarks)

Each directory is a `LogDir` with its own lock, identity, checkpoints, removals and clean-shutdown mark; a partition
is in one of them. A new one goes where the fewest are, unless an administrator has chosen another place (`prefer`).

A directory that fails, at the start or later, is offline (`LogDir.failure`): nothing in it is touched, and the others
work on. Its content is not known while it is offline, so a partition that is not new is not created again elsewhere.

Moving: `create_future` makes an empty copy in the target, the mover fills it; when it has everything and is synced
it is marked (`LogDirs.mark_whole`); `promote` puts it in the place of the original; when the target is synced
(`LogDir.sync_names`), `Promoted.finish` gives the original up, and when that is synced, too, `Promoted.settle` takes
the mark away. In this order there is a whole partition at every moment. If the broker ends in between there are two,
one of them marked, of which the next start keeps the one that has all that the other has: mostly the marked one, but
its last records may be lost with the power as long as the original is there. Any other partition that is there twice
is refused, as all are by Apache Kafka. Source: `LogManager.scala` (core, 3.9).

Threads: as `LogDir`.
"""

from __future__ import annotations

import logging
import random as random_module
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir.dirs.dir_state import TopicPartition
from barnabas.logdir.dirs.log_dir import LogDir
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.errors import InconsistentMeta, LogDirError, StorageError, duplicate
from barnabas.logdir.files.layout import MAX_NAME, META_PROPERTIES, MetaProperties, future_dir
from barnabas.logdir.files.open_files import half_of_the_limit
from barnabas.logdir.logs.log import PartitionLog

log = logging.getLogger("barnabas.logdir")

PREFERENCES_MAX = 100_000
"""For so many partitions that are not there yet the wanted place is kept; then the oldest is forgotten."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """A copy that has taken the place of its original. Nothing is given up before `finish`; `settle` comes last."""

    log: PartitionLog
    target: LogDir
    key: TopicPartition
    source: LogDir
    _original: PartitionLog

    def finish(self) -> None:
        """The copy's name is safe: give the original up. Raises `StorageError`."""
        if self.source.failure is None:
            self.source.partition_dirs.give_up(self.key, self._original)
        else:
            self._original.abandon()

    def settle(self) -> None:
        """The original is deleted, so remove the mark; while its directory is offline the mark is still needed. From
        any thread. Raises `StorageError`.
        """
        if self.source.failure is None:
            self.source.sync_names()
            if self.target.logs.get(self.key) is self.log:
                self.target.copies.remove_mark(*self.key)


class LogDirs:
    """See the module.

    max_open_files: of all directories together. only_copies: no other broker has replicas. `on_rolled(log)` as for
    `LogDir`; `on_failure(dir)`: a directory failed while it was in use, for the first time; may be called from a
    thread.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        wall_ms: Callable[[], int],
        disk: Disk | None = None,
        max_open_files: int | None = None,
        only_copies: bool = False,
        random: Callable[[], float] = random_module.random,
        unique_hex: Callable[[], str] = lambda: uuid.uuid4().hex,
        on_rolled: Callable[[PartitionLog], None] | None = None,
        on_failure: Callable[[LogDir], None] | None = None,
    ) -> None:
        disk = disk or Disk()
        # Not one pool of open files for all: directories are loaded at the same time, and a pool has one user.
        each_open = max((half_of_the_limit() if max_open_files is None else max_open_files) // len(paths), 1)
        self.dirs = tuple(
            LogDir(
                path,
                wall_ms=wall_ms,
                disk=disk,
                max_open_files=each_open,
                only_copies=only_copies,
                random=random,
                unique_hex=unique_hex,
            )
            for path in paths
        )
        self.on_failure = on_failure
        self._preferred: dict[TopicPartition, LogDir] = {}
        for each in self.dirs:
            each.listen(on_rolled=on_rolled, on_failure=partial(self._failed, each))

    def __repr__(self) -> str:
        return f"LogDirs({[each.path for each in self.dirs]!r}, {sum(len(each.logs) for each in self.dirs)} logs)"

    def _failed(self, failed: LogDir, _error: StorageError) -> None:
        if self.on_failure is not None:
            self.on_failure(failed)

    def set_on_rolled(self, on_rolled: Callable[[PartitionLog], None]) -> None:
        for each in self.dirs:
            each.listen(on_rolled=on_rolled)

    def set_on_created(self, on_created: Callable[[], None]) -> None:
        """A log was created, and waits in `LogDir.new_logs` for its files."""
        for each in self.dirs:
            each.new_logs.on_added = on_created

    # ---- what there is

    @property
    def online(self) -> list[LogDir]:
        """The directories that work."""
        return [each for each in self.dirs if each.failure is None]

    @property
    def offline(self) -> list[LogDir]:
        """The directories that have failed."""
        return [each for each in self.dirs if each.failure is not None]

    @property
    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """All partitions' logs, of all directories; a copy of the tables."""
        merged: dict[TopicPartition, PartitionLog] = {}
        for each in self.dirs:
            merged.update(each.logs)
        return merged

    @property
    def meta(self) -> MetaProperties | None:
        """Whose the directories are, as the one says that says most; None while all are new."""
        found = [each.meta for each in self.online if each.meta is not None]
        return next((meta for meta in found if meta.is_complete), found[0] if found else None)

    @property
    def was_clean(self) -> bool:
        """All that was opened had been closed cleanly."""
        return all(each.was_clean for each in self.online if each.logs)

    def home(self, topic: str, partition: int) -> LogDir | None:
        """The directory that a partition lies in."""
        key = topic, partition
        return next((each for each in self.dirs if key in each.logs), None)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        home = self.home(topic, partition)
        return None if home is None else home.logs[topic, partition]

    def future_home(self, topic: str, partition: int) -> LogDir | None:
        """The directory that a partition is being moved to."""
        key = topic, partition
        return next((each for each in self.dirs if key in each.futures), None)

    def future(self, topic: str, partition: int) -> PartitionLog | None:
        """The copy of a partition that is being moved to another directory."""
        home = self.future_home(topic, partition)
        return None if home is None else home.futures[topic, partition]

    # ---- opening

    def open(self) -> None:
        """Open every directory; those that cannot be are offline from the beginning.

        Raises `LogDirLocked`, `InconsistentMeta`, and `LogDirError` when none can be opened.
        """
        try:
            for each in self.dirs:
                try:
                    each.open()
                except OSError as error:
                    self._is_lost(each, "opening", error)
            self._refuse_strangers()
            self._refuse_none()
        except BaseException:
            self.unlock()
            raise

    @staticmethod
    def _is_lost(lost: LogDir, doing: str, error: OSError) -> None:
        """A directory cannot be used from the start on. Raises `LogDirError` where that is not the disk's fault: it
        would stay away until the next start.
        """
        failure = error if isinstance(error, StorageError) else StorageError(f"{doing} {lost.path}", error)
        if failure.is_ours:
            raise LogDirError(f"{failure.message}. That is no fault of the disk: look at ulimit -n, and start again")
        lost.failure = failure
        log.error("the log directory %s is offline: %s", lost.path, lost.failure.message)
        lost.go_offline()

    def _refuse_none(self) -> None:
        if not self.online:
            reasons = "; ".join(str(each.failure.message) for each in self.dirs if each.failure is not None)
            raise LogDirError(f"no log directory can be used ({reasons}); repair one, or choose another in log.dirs")

    def _refuse_strangers(self) -> None:
        known = [(each.path, each.meta) for each in self.online if each.meta is not None]
        for path, meta in known[1:]:
            first_path, first = known[0]
            for what, one, other in (
                ("cluster", first.cluster_id, meta.cluster_id),
                ("broker", first.node_id, meta.node_id),
            ):
                if one is not None and other is not None and one != other:
                    raise InconsistentMeta(
                        f"{first_path}/{META_PROPERTIES} belongs to {what} {one!r} and {path}/{META_PROPERTIES} to "
                        f"{what} {other!r}; take the directories that do not belong together out of log.dirs"
                    )

    def check_identity(self, *, cluster_id: str | None, node_id: int) -> None:
        """Refuse another broker's directories; make new ones ours, once the cluster's id is known (until then None).
        Raises `InconsistentMeta`, and `LogDirError` when none can be used.
        """
        for each in self.online:
            try:
                each.check_identity(cluster_id=cluster_id, node_id=node_id)
            except OSError as error:
                self._is_lost(each, "writing meta.properties in", error)
        self._refuse_none()

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """`load_dir` for one after the other, then `check_loaded`."""
        for each in self.online:
            self.load_dir(each, config_of)
        self.check_loaded()

    def load_dir(self, one: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        """Open all partitions of a directory; it is offline if that fails. From any thread, each directory in its own.

        Raises `LogDirError` for what a person has to decide.
        """
        try:
            one.load(config_of)
        except OSError as error:
            self._is_lost(one, "reading", error)

    def check_loaded(self) -> None:
        """All directories are loaded. Raises `LogDirError` for a partition that is there twice, and when no directory
        is left.
        """
        self._refuse_none()
        logs: dict[TopicPartition, LogDir] = {}
        futures: dict[TopicPartition, LogDir] = {}
        for each in self.online:
            for key in list(each.logs):
                logs[key] = each if key not in logs else self._keep_one(key, logs[key], each)
            for key, opened in each.futures.items():
                if key in futures:
                    raise duplicate(key, futures[key].futures[key].directory, opened.directory)
                futures[key] = each
            for key in each.logs.keys() & each.futures.keys():
                log.warning("%s is a copy of what is beside it: given up", each.futures[key].directory)
                each.copies.drop(*key)
        if not self.offline:
            # No original is left. A mark that stays would speak for its partition in quarrels of another kind.
            for key, home in logs.items():
                try:
                    home.copies.remove_mark(*key)
                except OSError as error:
                    self._is_lost(home, "looking through", error)
                    break

    @staticmethod
    def _keep_one(key: TopicPartition, one: LogDir, other: LogDir) -> LogDir:
        """The directory that a partition which is in two is in from now on. Raises `LogDirError`, OSError."""
        first, second = one.logs[key], other.logs[key]
        if one.copies.is_marked_whole(*key) != other.copies.is_marked_whole(*key) and first.topic_id == second.topic_id:
            pairs = [(one, other), (other, one)]
            if other.copies.is_marked_whole(*key):
                pairs.reverse()
            for kept, lost in pairs:  # the marked one is asked first
                if _has_all_of(kept.logs[key], lost.logs[key]):
                    given_up = lost.logs[key]
                    log.warning(
                        "%s is what a move to or from %s has left, which has all of it: given up",
                        given_up.directory,
                        kept.path,
                    )
                    lost.partition_dirs.give_up(key, given_up)
                    del lost.logs[key]
                    lost.sync_names()
                    kept.copies.remove_mark(*key)
                    # Where the log starts may be known in one of the directories only.
                    kept.logs[key].delete_records(
                        min(given_up.log_start_offset, kept.logs[key].log_end_offset), kept.logs[key].log_end_offset
                    )
                    return kept
        for kept, blank in ((one, other), (other, one)):
            if _is_blank(blank.logs[key], kept.logs[key]):
                log.warning("%s is empty, and %s is not: given up", blank.logs[key].directory, kept.logs[key].directory)
                blank.partition_dirs.give_up(key, blank.logs[key])
                del blank.logs[key]
                blank.sync_names()
                return kept
        raise duplicate(key, first.directory, second.directory)

    def unlock(self) -> None:
        for each in self.dirs:
            each.unlock()

    # ---- partitions

    def prefer(self, topic: str, partition: int, where: LogDir) -> None:
        """If the partition is made one day, let it be there."""
        self._preferred.pop((topic, partition), None)
        self._preferred[topic, partition] = where
        if len(self._preferred) > PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def open_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        is_new: bool = True,
        is_known: bool = False,
    ) -> PartitionLog:
        """The partition's log with `config`; an empty one if there is none. `topic_id`: 16 bytes. is_new: the
        partition has never been on this broker. is_known: the metadata have this id for the topic, so a log with
        another one is a stray (its topic was deleted while its directory was offline, or the deletion was lost in a
        power failure) and is set aside.

        Raises KafkaError INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR for a partition that may lie in a directory which
        is offline, `StorageError`.
        """
        home = self.home(topic, partition)
        if home is not None and is_known and topic_id is not None:
            found = home.logs[topic, partition].topic_id
            if found is not None and found != topic_id:
                home.set_stray_aside(topic, partition)
                home = None
        if home is not None:
            return home.open_or_create(topic, partition, topic_id, config)
        if not is_new and self.offline:
            away = ", ".join(each.path for each in self.offline)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may lie in {away}, which is offline")
        error: StorageError | None = None
        for each in self._places((topic, partition)):
            try:
                opened = each.open_or_create(topic, partition, topic_id, config)
            except StorageError as failed:
                error = failed
                if not failed.is_ours:
                    each.storage_failed(failed)
            else:
                self._preferred.pop((topic, partition), None)
                if not is_new:
                    log.warning(
                        "%s-%d starts empty in %s: the metadata say that this broker has had it, and it is not "
                        "in %s. If it lies elsewhere, stop the broker before more is written, remove the empty "
                        "directory, and name the other one in log.dirs",
                        topic,
                        partition,
                        each.path,
                        ", ".join(one.path for one in self.dirs),
                    )
                return opened
        if error is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory works")
        raise error

    def _places(self, key: TopicPartition) -> list[LogDir]:
        """Where a new partition may go, the best place first."""
        online = self.online
        preferred = self._preferred.get(key)
        if preferred in online:
            online.remove(preferred)
            return [preferred, *_emptiest(online)]
        return _emptiest(online)

    def high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark of the last checkpoint, within what the log has. Raises KeyError."""
        home = self.home(topic, partition)
        if home is None:
            raise KeyError(f"{topic}-{partition}")
        return home.high_watermark(topic, partition)

    def delete(self, topic: str, partition: int) -> None:
        """Give a partition up, and a copy of it that is being made. Raises `StorageError`."""
        self.drop_future(topic, partition)
        home = self.home(topic, partition)
        if home is not None:
            home.delete(topic, partition)

    # ---- moves

    @staticmethod
    def can_move(topic: str, partition: int) -> bool:
        """The name of a copy is not too long for a file system."""
        return len(future_dir(topic, partition, "0" * 32)) <= MAX_NAME

    def create_future(self, topic: str, partition: int, target: LogDir) -> PartitionLog:
        """An empty copy of a partition that lies elsewhere. Raises `StorageError`."""
        original = self.get(topic, partition)
        assert original is not None
        start_offset = original.log_start_offset
        return target.copies.create(topic, partition, original.topic_id, original.config, start_offset)

    def drop_future(self, topic: str, partition: int) -> None:
        """The copy, if there is one, is not wanted any more. Raises `StorageError`."""
        home = self.future_home(topic, partition)
        if home is not None:
            home.copies.drop(topic, partition)

    def mark_whole(self, topic: str, partition: int) -> None:
        """The copy is complete, and synced: write the mark that distinguishes it from its original, if the broker ends
        before that is given up. From any thread. Raises `StorageError`.
        """
        source, target = self.home(topic, partition), self.future_home(topic, partition)
        if source is not None and target is not None:
            source.copies.remove_mark(topic, partition)  # of an earlier move: two marks would be ambiguous
            target.copies.mark_whole(topic, partition)

    def promote(self, topic: str, partition: int) -> Promoted:
        """The copy is as long as the original and takes its place. Raises `StorageError`; nothing has changed then."""
        source, target = self.home(topic, partition), self.future_home(topic, partition)
        assert source is not None
        assert target is not None
        promoted = target.copies.promote(topic, partition)
        original = source.logs.pop((topic, partition))
        return Promoted(promoted, target, (topic, partition), source, original)

    # ---- closing

    def save(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """See `LogDir.save`: for every directory. Raises `StorageError`, OSError; of a directory that is offline,
        too.
        """
        for each in self.dirs:
            if each.failure is not None:
                raise each.failure
            each.save(high_watermarks)

    def abandon(self) -> None:
        """Release every directory as it is, as the end of the process would: nothing is saved."""
        for each in self.dirs:
            each.go_offline()

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, mark: bool = True) -> None:
        """Close every directory; those that have failed, or all without `mark`, get no clean-shutdown mark. Raises the
        first `StorageError`, after the others are closed.
        """
        first: StorageError | None = None
        for each in self.dirs:
            try:
                each.close(high_watermarks, mark=mark)
            except StorageError as error:
                log.error("%s was not closed cleanly: %s", each.path, error.message)
                first = first or error
        if first is not None:
            raise first


def _has_all_of(one: PartitionLog, other: PartitionLog) -> bool:
    """Of two logs of a partition: `one` is `other`, and perhaps more behind it. Raises OSError."""
    end = other.log_end_offset
    if end > one.log_end_offset or other.latest_epoch > one.latest_epoch:
        return False
    if end <= max(one.log_start_offset, other.log_start_offset) or one.config.compact:
        return True  # there is nothing to compare, or compaction may have changed it
    # Both were one log once: where they have parted, what follows is not the same.
    return _batch_at(one, end - 1) == _batch_at(other, end - 1)


def _is_blank(one: PartitionLog, other: PartitionLog) -> bool:
    """Of two logs of a partition: there has never been anything in `one`. Its directory failed when it had just been
    created, and the partition was created again in another one.
    """
    same = one.topic_id in (None, other.topic_id)
    return same and one.log_end_offset == 0 and one.segment_count == 1


def _batch_at(opened: PartitionLog, offset: int) -> bytes | None:
    found = opened.read(offset, 1, upper_offset=opened.log_end_offset, min_one_batch=True)
    return None if found is None else found.read()


def _emptiest(dirs: Sequence[LogDir]) -> list[LogDir]:
    return sorted(dirs, key=lambda each: len(each.logs) + len(each.futures))
