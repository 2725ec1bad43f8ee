"""Making all logs of a directory safe, when the broker stops.

Each is written, saved and synced; of many, one sync of the file system stands for those of all files (flush.py). What
fails for want of something that the process lacks (`StorageError.is_ours`) is tried again when the others are done,
whose descriptors are free by then, and harms none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.errors import OURS, StorageError
from barnabas.logdir.logs.log import PartitionLog

MANY = 8
"""From so many logs on, one sync of the file system is cheaper than one of each file."""
TRIES = 4
"""How often anything is tried."""


def make_safe(disk: Disk, path: str, logs: Sequence[PartitionLog]) -> None:
    """Leave `logs` of the directory `path` as a clean stop has them. Raises OSError, `StorageError` among them."""
    errors: list[StorageError] = []
    saved = _each(logs, PartitionLog.prepare_close, errors)
    is_synced = False
    if len(saved) >= MANY:
        try:
            _sync_together(disk, path, saved)
            is_synced = True
        except OSError as error:
            if error.errno not in OURS:
                raise
    if not is_synced:
        _each(saved, PartitionLog.flush, errors)
    if errors:
        raise errors[0]


def _each(
    logs: Sequence[PartitionLog], step: Callable[[PartitionLog], None], errors: list[StorageError]
) -> list[PartitionLog]:
    """Those for which the step was done; `errors` gets those of the others. Raises `StorageError` of the disk."""
    done: list[PartitionLog] = []
    left = list(logs)
    failed: dict[PartitionLog, StorageError] = {}
    for _ in range(TRIES):
        failed = {}
        for each in left:
            try:
                step(each)
                done.append(each)
            except StorageError as error:
                if not error.is_ours:
                    raise
                failed[each] = error
        left = list(failed)
    errors += failed.values()
    return done


def tried(step: Callable[[], None]) -> None:
    """Do something that can be done again, again. Raises OSError."""
    for left in reversed(range(TRIES)):
        try:
            step()
            return
        except OSError as error:
            if not left or error.errno not in OURS:
                raise


def _sync_together(disk: Disk, path: str, logs: Sequence[PartitionLog]) -> None:
    flushes = []
    try:
        for each in logs:
            flushes.append((each, each.begin_flush()))
        disk.sync_all(path)
        for _, flush in flushes:
            flush.put_in_place()
        disk.sync_all(path)
    except OSError:
        for each, flush in flushes:
            each.undo_flush(flush)
        raise
    for each, flush in flushes:
        each.end_flush(flush)
