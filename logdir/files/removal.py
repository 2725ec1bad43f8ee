"""Files and directories that were deleted and are removed later: after `file.delete.delay.ms`, off the loop.

They carry a name that says so (`.deleted`, `-delete`), so a removal that did not happen is made up for by the next
start. Times are milliseconds of the wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from barnabas.logdir.files.disk import Disk, remove_if_there

log = logging.getLogger("barnabas.logdir")


class Removal(NamedTuple):
    """Files, or a directory with its files, to be removed at `due_ms`."""

    due_ms: int
    serial: int
    paths: tuple[str, ...]
    is_dir: bool


class Removals:
    """What one log directory has to remove. `remove` may run in any thread, the rest belongs to the loop."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[Removal] = []
        self._serial = count()

    def add(self, paths: Iterable[str], due_ms: int, *, is_dir: bool) -> None:
        """Remove `paths` when `due_ms` has come."""
        heappush(self._waiting, Removal(due_ms, next(self._serial), tuple(paths), is_dir))

    @property
    def next_ms(self) -> int | None:
        """When the next one is due."""
        return self._waiting[0].due_ms if self._waiting else None

    def take(self, now_ms: int) -> list[Removal]:
        """What is due by `now_ms`; to be handed to `remove`."""
        due = []
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            due.append(heappop(self._waiting))
        return due

    def forget(self) -> None:
        """Nothing is to be removed any more: the directory cannot be written."""
        self._waiting = []

    def remove(self, removals: Iterable[Removal]) -> None:
        """Remove the files for good. From any thread; a large file takes milliseconds. Trouble is logged: the next
        start tries again.
        """
        synced = set()
        for removal in removals:
            for path in removal.paths:
                parent = path.rpartition("/")[0]
                try:
                    if removal.is_dir:
                        remove_dir(self._disk, path)
                        continue
                    if parent not in synced:
                        # What took the place of the segments must be there for good before they go.
                        synced.add(parent)
                        self._disk.sync_dir(parent)
                    remove_if_there(self._disk, path)
                except FileNotFoundError:
                    continue  # the partition was deleted meanwhile
                except OSError as error:
                    log.warning("%s could not be removed: %s", path, error)


def remove_dir(disk: Disk, path: str) -> None:
    """Remove a directory with all that is in it. Raises OSError."""
    for entry in disk.list(path):
        if entry.is_dir:
            remove_dir(disk, f"{path}/{entry.name}")
        else:
            remove_if_there(disk, f"{path}/{entry.name}")
    disk.remove_dir(path)
