"""Making a log's files safe, off the loop.

`PartitionLog.begin_flush` takes down, on the loop or in a thread, what is to be synced; the steps here may run in
any thread, while the loop appends; then `PartitionLog.end_flush` moves the recovery point. For one log:

    flush = log.begin_flush();  flush.sync_files();  flush.put_in_place();  flush.sync_dirs();  log.end_flush(flush)

For thousands at once, as on a clean stop, one sync of the file system stands for `sync_files` of all, and a second one
after `put_in_place` for `sync_dirs`.
"""

from __future__ import annotations

from barnabas.logdir.files.checkpoint import LEADER_EPOCH
from barnabas.logdir.files.disk import Disk, sync_file, write_file
from barnabas.logdir.segments.segment import Segment


class Flush:
    """What one log has to sync up to `end_offset`."""

    __slots__ = ("_disk", "_epochs_path", "dirs", "end_offset", "epochs", "files", "generation", "segments")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        end_offset: int,
        generation: int,
        segments: list[Segment],
        files: set[str],
        dirs: set[str],
        epochs: bytes | None,
    ) -> None:
        self._disk = disk
        self._epochs_path = f"{directory}/{LEADER_EPOCH}"
        self.end_offset = end_offset
        self.generation = generation
        self.segments = segments
        self.files = files
        self.dirs = dirs
        self.epochs = epochs
        if epochs is not None:
            self.dirs.add(directory)
            write_file(disk, self._epochs_path + ".tmp", epochs, sync=False)

    def sync_files(self) -> None:
        """Raises OSError."""
        for segment in self.segments:
            segment.sync()
        for path in self.files:
            sync_file(self._disk, path)  # gone are snapshots that are not needed any more
        if self.epochs is not None:
            sync_file(self._disk, self._epochs_path + ".tmp")

    def put_in_place(self) -> None:
        """The leader epochs, once their bytes are safe. Raises OSError."""
        if self.epochs is not None:
            self._disk.rename(self._epochs_path + ".tmp", self._epochs_path)

    def sync_dirs(self) -> None:
        """Raises OSError."""
        for path in sorted(self.dirs):
            self._disk.sync_dir(path)
