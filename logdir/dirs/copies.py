"""Copies of partitions being moved here from another directory (KIP-113): logs in `-future` directories, which count in
the checkpoints under the partition's name, as in Apache Kafka, and are not served. `log_dirs.py` says in which order
a move does what.
"""

from __future__ import annotations

from barnabas.logdir.dirs.dir_state import DirState
from barnabas.logdir.dirs.partition_dirs import PartitionDirs
from barnabas.logdir.files import layout
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import write_file
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.logs.log import PartitionLog


class Copies:
    """See the module. They are in `DirState.futures`."""

    __slots__ = ("_dirs", "_state")

    def __init__(self, state: DirState, dirs: PartitionDirs) -> None:
        self._state = state
        self._dirs = dirs

    def create(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, start_offset: int
    ) -> PartitionLog:
        """An empty log that starts at `start_offset`. Raises `StorageError`."""
        state = self._state
        name = layout.future_dir(topic, partition, state.unique_hex())
        try:
            created = self._dirs.make((topic, partition), name, topic_id, config, start_offset)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"making {state.path}/{name}", error) from error
        try:
            created.make_files()  # a move in progress is to be found by the next start
        except StorageError:
            self._dirs.unmake((topic, partition), created)
            raise
        state.futures[topic, partition] = created
        return created

    def drop(self, topic: str, partition: int) -> None:
        """The copy, if there is one, is not wanted any more. Raises `StorageError`."""
        opened = self._state.futures.get((topic, partition))
        if opened is not None:
            self._dirs.give_up((topic, partition), opened)
            del self._state.futures[topic, partition]

    def mark_whole(self, topic: str, partition: int) -> None:
        """See `LogDirs.mark_whole`."""
        opened = self._state.futures.get((topic, partition))
        if opened is None:
            return
        directory = opened.directory
        disk = self._state.disk
        try:
            write_file(disk, f"{directory}/{layout.MOVED}", b"", sync=True)
            disk.sync_dir(directory)
        except OSError as error:
            raise StorageError(f"marking {directory}", error) from error

    def is_marked_whole(self, topic: str, partition: int) -> bool:
        """Whether a partition that is served has the mark. Raises OSError."""
        directory = self._state.logs[topic, partition].directory
        return any(entry.name == layout.MOVED for entry in self._state.disk.list(directory))

    def remove_mark(self, topic: str, partition: int) -> None:
        """There is no other copy: take the mark away for good, if there is one. From any thread. Raises `StorageError`,
        KeyError.
        """
        directory = self._state.logs[topic, partition].directory
        disk = self._state.disk
        try:
            disk.remove(f"{directory}/{layout.MOVED}")
            disk.sync_dir(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(f"removing the mark from {directory}", error) from error

    def promote(self, topic: str, partition: int) -> PartitionLog:
        """The copy becomes the partition itself. Not safe until `PartitionDirs.sync_names`, and until then the original
        must stay. Raises `StorageError`.
        """
        state = self._state
        opened = state.futures[topic, partition]
        path = f"{state.path}/{layout.partition_dir(topic, partition)}"
        self._dirs.rename(opened.directory, path, "putting in place")
        opened.moved_to(path)
        state.logs[topic, partition] = state.futures.pop((topic, partition))
        return opened
