"""Checks log directories, partitions and single files, and names every problem (problems.py), not only the first.

A directory is taken as stopped cleanly if `.kafka_cleanshutdown` is there. If not, the broker died, still writes, or
the files were copied meanwhile: what a broker would mend at its start is a warning then.

Beside the segments (verify_segment.py): names; producer snapshots, their checksum and whether they speak of
offsets below their own; leader epochs, rising and within the log; the offset checkpoints of the directory, each
within its log; whose directory it is; one topic id per topic. Nothing is written; memory does not grow with the log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.logdir.files import layout
from barnabas.logdir.files.checkpoint import HIGH_WATERMARK, LEADER_EPOCH, LOG_START, decode_lines, decode_offsets
from barnabas.logdir.files.disk import Entry, ReadOnlyDisk, read_file
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import CorruptFile, LogDirError
from barnabas.logdir.offline.directory import CHECKPOINTS, PARTITION_FILES, are_of_log_dir
from barnabas.logdir.offline.errors import NotALog
from barnabas.logdir.offline.log import LogReader
from barnabas.logdir.offline.problems import Problem
from barnabas.logdir.offline.verify_index import LogState
from barnabas.logdir.offline.verify_segment import Progress, SegmentCheck
from barnabas.logdir.segments.producers import Producers

KRAFT_FILES = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint(\.deleted|\.part)?|quorum-state")
KRAFT_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
JOURNAL: Final = "metadata.journal"
"""Where a broker of ours that is alone keeps its metadata."""
DIRECTORY_FILES: Final = frozenset(
    {*CHECKPOINTS, layout.LOCK, layout.CLEAN_SHUTDOWN, layout.META_PROPERTIES, "bootstrap.checkpoint", JOURNAL}
)
NO_PARTITIONS: Final = frozenset({"remote-log-index-cache"})
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def no_progress(size: int) -> None:
    """The default: report no progress."""


def verify(path: str, progress: Progress = no_progress) -> Iterator[Problem]:
    """Everything wrong with a log directory, a partition's directory, or one file of either. `progress` is called with
    bytes as they are done, `size_to_verify` in all.

    Raises `NotALog` for a path that is none of these, OSError for one that cannot be looked at.
    """
    path = os.path.abspath(path)
    disk = ReadOnlyDisk()
    try:
        entries = disk.list(path)
    except NotADirectoryError:
        return _verify_file(disk, path, progress)
    if are_of_log_dir(entries):
        return _DirectoryCheck(disk, path, entries, progress).run()
    clean = _exists(disk, f"{path.rpartition('/')[0]}/{layout.CLEAN_SHUTDOWN}")
    return _verify_log(disk, LogReader(path), entries, clean, progress)


def size_to_verify(path: str) -> int:
    """Bytes of the log files that `verify` would read. Raises as it does."""
    disk = ReadOnlyDisk()
    try:
        entries = disk.list(path)
    except NotADirectoryError:
        return LogReader(path).size if path.endswith((layout.LOG, ".checkpoint")) else 0
    if not are_of_log_dir(entries):
        return _logs_size(entries)
    found = (entry for entry in entries if entry.is_dir and layout.parse_partition_dir(entry.name))
    return sum(_logs_size(disk.list(f"{path}/{entry.name}")) for entry in found)


def _logs_size(entries: list[Entry]) -> int:
    return sum(entry.size for entry in entries if (layout.parse_file_name(entry.name) or (0, ""))[1] == layout.LOG)


def _exists(disk: ReadOnlyDisk, path: str) -> bool:
    try:
        disk.identity(path)
    except OSError:
        return False
    return True


def _trouble(path: str, error: Exception, kind: str) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem("gone", path, "was removed meanwhile", warning=True)
    if isinstance(error, OSError):
        return Problem("unreadable", path, error.strerror or str(error))
    return Problem(kind, path, str(error).removeprefix(f"{path} "))


# ---- one partition


def _verify_log(
    disk: ReadOnlyDisk,
    log: LogReader,
    entries: list[Entry],
    clean: bool,
    progress: Progress,
    checkpoints: dict[str, int] | None = None,
) -> Iterator[Problem]:
    yield from _check_names(disk, log, entries)
    try:
        epochs: LeaderEpochs | None = log.leader_epochs
    except (LogDirError, OSError):
        epochs = None  # said below
    state = LogState(epochs)
    broken = False
    for segment in log.segments:
        for problem in SegmentCheck(segment, state, clean=clean, progress=progress).run():
            broken = broken or problem.kind in ("frame", "gone", "unreadable")
            yield problem
    end = state.last_offset + 1
    if log.segments:
        end = max(end, log.segments[-1].base_offset)
    # Where a segment could not be read to its end, the end of the log is not known.
    known_end = None if broken else end
    for entry in sorted(entries):
        known = layout.parse_file_name(entry.name)
        if known is not None and known[1] == layout.SNAPSHOT:
            yield from _check_snapshot(disk, f"{log.directory}/{entry.name}", known[0], known_end, clean)
        elif KRAFT_SNAPSHOT.fullmatch(entry.name):
            yield from _verify_segment(LogReader(f"{log.directory}/{entry.name}"), True, no_progress, None)
    yield from _check_epochs(disk, log, known_end)
    try:
        _ = log.topic_id
    except (LogDirError, OSError) as error:
        yield _trouble(f"{log.directory}/{layout.PARTITION_METADATA}", error, "metadata")
    if checkpoints is not None and known_end is not None:
        yield from _check_offsets(log, checkpoints, known_end, clean)


def _check_names(disk: ReadOnlyDisk, log: LogReader, entries: list[Entry]) -> Iterator[Problem]:
    name = log.directory.rpartition("/")[2]
    if log.topic is None:
        yield Problem("name", log.directory, f"{name} is not <topic>-<partition>", warning=True)
    bases = {segment.base_offset for segment in log.segments}
    for entry in sorted(entries):
        path = f"{log.directory}/{entry.name}"
        known = layout.parse_file_name(entry.name)
        if known is not None:
            if known[1] not in (layout.LOG, layout.SNAPSHOT) and known[0] not in bases:
                if _exists(disk, f"{log.directory}/{layout.file_name(known[0], layout.LOG)}"):
                    continue  # made since
                yield Problem("index-orphan", path, "there is no such segment", warning=True)
        elif layout.parse_marked_name(entry.name) is not None:
            yield Problem("leftover", path, "was being removed or put in place", warning=True)
        elif layout.parse_aside_name(entry.name) is not None:
            yield Problem("leftover", path, "recovery took it out of the log; its records may be needed", warning=True)
        elif entry.name not in PARTITION_FILES and not KRAFT_FILES.fullmatch(entry.name):
            yield Problem("unknown-file", path, "does not belong in a partition's directory", warning=True)


def _check_snapshot(
    disk: ReadOnlyDisk, path: str, offset: int | None, end: int | None, clean: bool
) -> Iterator[Problem]:
    producers = Producers()
    try:
        producers.load(read_file(disk, path), path)
    except (CorruptFile, OSError) as error:
        yield _trouble(path, error, "snapshot")
        return
    if offset is None:
        return
    if end is not None and offset > end:
        yield Problem("snapshot-ahead", path, f"the log ends at {end}", offset=offset, warning=not clean)
    for producer_id, producer in producers.entries.items():
        last = producer.batches[-1].last_offset if producer.batches else -1
        if last >= offset or producer.txn_start >= offset:
            place = max(last, producer.txn_start)
            yield Problem("snapshot", path, f"knows offset {place} of producer {producer_id} already", offset=place)


def _check_epochs(disk: ReadOnlyDisk, log: LogReader, end: int | None) -> Iterator[Problem]:
    path = f"{log.directory}/{LEADER_EPOCH}"
    try:
        entries = [(int(epoch), int(start)) for epoch, start in decode_lines(read_file(disk, path), path)]
    except FileNotFoundError:
        return
    except ValueError:
        yield Problem("checkpoint", path, "has an entry that is not an epoch and an offset")
        return
    except (CorruptFile, OSError) as error:
        yield _trouble(path, error, "checkpoint")
        return
    before = (-1, -1)
    for epoch, start in entries:
        if epoch <= before[0] or start <= before[1]:
            yield Problem("checkpoint", path, f"epoch {epoch} from offset {start} on follows epoch {before[0]}")
        before = (epoch, start)
    if end is not None and before[1] > end:
        yield Problem("checkpoint", path, f"epoch {before[0]} starts at {before[1]}, the log ends at {end}")


def _check_offsets(log: LogReader, checkpoints: dict[str, int], end: int, clean: bool) -> Iterator[Problem]:
    """The entries of the directory's checkpoint files for this log, by file name."""
    parent = log.directory.rpartition("/")[0]
    for name, offset in checkpoints.items():
        if 0 <= offset <= end:
            continue
        # A recovery point is written after the log is on the disk, the others are not.
        excused = name in (HIGH_WATERMARK, LOG_START) and not clean and offset > end
        yield Problem(
            "checkpoint-ahead" if excused else "checkpoint",
            f"{parent}/{name}",
            f"{offset} for {log.topic}-{log.partition}, whose log ends at {end}",
            offset=offset,
            warning=excused,
        )


# ---- one file


def _verify_file(disk: ReadOnlyDisk, path: str, progress: Progress) -> Iterator[Problem]:
    """Raises `NotALog`."""
    directory, _, name = path.rpartition("/")
    known = layout.parse_file_name(name)
    if known is not None and known[1] == layout.SNAPSHOT:
        return _check_snapshot(disk, path, known[0], None, False)
    if name == LEADER_EPOCH:
        return _check_epochs(disk, LogReader(directory), None)
    if name in CHECKPOINTS:
        return _check_readable(path, lambda: decode_offsets(read_file(disk, path), path), "checkpoint")
    if name == layout.META_PROPERTIES:
        return _check_readable(path, lambda: layout.MetaProperties.decode(read_file(disk, path), path), "metadata")
    if name == layout.PARTITION_METADATA:
        return _check_readable(path, lambda: layout.decode_partition_metadata(read_file(disk, path), path), "metadata")
    only = None
    if known is not None and known[1] != layout.LOG:
        # An index is held against its segment.
        only = path
        path = f"{directory}/{layout.file_name(known[0], layout.LOG)}"
        if not _exists(disk, path):
            raise NotALog(f"{only} cannot be checked without {path}")
    clean = _exists(disk, f"{directory.rpartition('/')[0]}/{layout.CLEAN_SHUTDOWN}")
    return _verify_segment(LogReader(path), clean, progress, only)


def _check_readable(path: str, read: Callable[[], object], kind: str) -> Iterator[Problem]:
    try:
        read()
    except (LogDirError, OSError) as error:
        yield _trouble(path, error, kind)


def _verify_segment(log: LogReader, clean: bool, progress: Progress, only: str | None) -> Iterator[Problem]:
    for segment in log.segments:
        for problem in SegmentCheck(segment, LogState(), clean=clean, progress=progress).run():
            if only is None or problem.path == only:
                yield problem


# ---- a whole directory


class _DirectoryCheck:
    def __init__(self, disk: ReadOnlyDisk, path: str, entries: list[Entry], progress: Progress) -> None:
        self._disk = disk
        self._path = path
        self._entries = sorted(entries)
        self._progress = progress
        self._clean = any(entry.name == layout.CLEAN_SHUTDOWN for entry in entries)
        self._checkpoints: dict[tuple[str, int], dict[str, int]] = {}
        self._topic_ids: dict[str, tuple[bytes, str]] = {}

    def run(self) -> Iterator[Problem]:
        # The checkpoints first: of a log that grows, they are then not ahead.
        yield from self._read_checkpoints()
        for entry in self._entries:
            path = f"{self._path}/{entry.name}"
            if entry.is_dir:
                yield from self._check_dir(path, entry.name)
            elif entry.name == layout.META_PROPERTIES:
                yield from _verify_file(self._disk, path, self._progress)
            elif entry.name not in DIRECTORY_FILES and not entry.name.endswith(".tmp"):
                yield Problem("unknown-file", path, "does not belong in a log directory", warning=True)
        for (topic, partition), found in sorted(self._checkpoints.items()):
            for name in found:
                message = f"{topic}-{partition} is not there"
                yield Problem("checkpoint-orphan", f"{self._path}/{name}", message, warning=True)

    def _read_checkpoints(self) -> Iterator[Problem]:
        for name in CHECKPOINTS:
            path = f"{self._path}/{name}"
            try:
                offsets = decode_offsets(read_file(self._disk, path), path)
            except FileNotFoundError:
                continue
            except (CorruptFile, OSError) as error:
                yield _trouble(path, error, "checkpoint")
                continue
            for key, offset in offsets.items():
                self._checkpoints.setdefault(key, {})[name] = offset

    def _check_dir(self, path: str, name: str) -> Iterator[Problem]:
        named = layout.parse_partition_dir(name)
        if name in NO_PARTITIONS:
            return
        if named is None:
            yield Problem("name", path, "is no partition's directory; a broker refuses to start")
            return
        if named.mark:
            if named.mark == layout.FUTURE_DIR:  # on its way to this directory, with checkpoints of its own
                self._checkpoints.pop((named.topic, named.partition), None)
            yield Problem("leftover", path, f"set aside ({named.mark}), not looked into", warning=True)
            return
        if not TOPIC.fullmatch(named.topic) or named.topic in (".", ".."):
            yield Problem("name", path, f"{named.topic!r} is no name of a topic")
        try:
            entries = self._disk.list(path)
            log = LogReader(path)
        except NotALog:
            yield Problem("unreadable", path, "holds no segment", warning=True)
            return
        except OSError as error:
            yield _trouble(path, error, "unreadable")
            return
        checkpoints = self._checkpoints.pop((named.topic, named.partition), {})
        yield from _verify_log(self._disk, log, entries, self._clean, self._progress, checkpoints)
        yield from self._check_topic_id(log, named.topic)

    def _check_topic_id(self, log: LogReader, topic: str) -> Iterator[Problem]:
        try:
            topic_id = log.topic_id
        except (LogDirError, OSError):
            return
        if topic_id is None:
            return
        known, where = self._topic_ids.setdefault(topic, (topic_id, log.directory))
        if known != topic_id:
            path = f"{log.directory}/{layout.PARTITION_METADATA}"
            yield Problem("metadata", path, f"has another topic id than {where}")
