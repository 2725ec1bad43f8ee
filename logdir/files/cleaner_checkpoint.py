"""`cleaner-offset-checkpoint`: up to where each compacted log of a directory is clean (the first dirty offset).

One per log directory, in the format of checkpoint.py. It may be older than the logs: then what is clean is cleaned
once more. A file that cannot be read stands for an empty one, as everything is dirty then. Logs that are not compacted
any more keep their entry: recovery knows by it that gaps between segments are no loss (recovery.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from barnabas.logdir.files.checkpoint import CLEANER, read_offsets, write_offsets
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.errors import CorruptFile, StorageError

log = logging.getLogger("barnabas.logdir")

TopicPartition = tuple[str, int]


class CleanerCheckpoint:
    """`offsets`: first dirty offset by (topic, partition). Belongs to the loop; `save` may run in a thread."""

    __slots__ = ("_directory", "_disk", "_lock", "_saved", "offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        """`directory`: the log directory."""
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self._saved: dict[TopicPartition, int] | None = {}
        """What the file holds, as far as that is known."""
        self.offsets: dict[TopicPartition, int] = {}

    def load(self) -> None:
        """Read the file; none is as good as an empty one. Raises `StorageError`."""
        try:
            self.offsets = read_offsets(self._disk, self._directory, CLEANER)
            self._saved = dict(self.offsets)
        except CorruptFile as error:
            log.warning("%s/%s is not used, so all logs are cleaned again: %s", self._directory, CLEANER, error)
            self.offsets, self._saved = {}, None
        except OSError as error:
            raise StorageError(f"reading {self._directory}/{CLEANER}", error) from error

    def put(self, partition: TopicPartition, first_dirty_offset: int) -> None:
        self.offsets[partition] = first_dirty_offset

    def drop(self, partition: TopicPartition) -> int | None:
        """Forget a log that is deleted, or moves; what was known of it."""
        return self.offsets.pop(partition, None)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all others: their logs are not there any more."""
        for partition in [known for known in self.offsets if known not in partitions]:
            del self.offsets[partition]

    def save(self) -> None:
        """Write the file if anything changed, at once or not at all, and synced. Raises `StorageError`."""
        with self._lock:
            offsets = dict(self.offsets)
            if offsets == self._saved:
                return
            try:
                write_offsets(self._disk, self._directory, CLEANER, offsets)
            except OSError as error:
                self._saved = None
                raise StorageError(f"writing {self._directory}/{CLEANER}", error) from error
            self._saved = offsets
