"""What the parts of one log directory share: which logs are in it, what is to be removed, and whether its disk works.

    identity                                the broker it belongs to: creating, locking, reading meta.properties
    state <- checkpoints <- keeper          the checkpoint files; what the logs report to their directory
             partition_dirs <- copies       the directories of partitions, and those being copied here
    new_logs                                logs whose files are to be made
             loading                        opening all of them

`log_dir.LogDir` makes the parts and hands them out. Each can be made, and tested, without those above it. Times are
milliseconds of the wall clock. Threads: as `LogDir`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from barnabas.logdir.dirs.new_logs import NewLogs
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.removal import Removals
from barnabas.logdir.logs.log import PartitionLog

log = logging.getLogger("barnabas.logdir")

TopicPartition = tuple[str, int]


class DirState:
    """See the module.

    logs: those that are served; futures: copies being moved here. failure: why nothing here is touched any more.
    on_failure(error): the disk failed, for the first time; may be called from a thread. `unique_hex` returns 32 digits
    that never repeat.
    """

    __slots__ = (
        "disk",
        "failure",
        "futures",
        "logs",
        "new_logs",
        "on_failure",
        "path",
        "removals",
        "unique_hex",
        "wall_ms",
    )

    def __init__(self, path: str, disk: Disk, *, wall_ms: Callable[[], int], unique_hex: Callable[[], str]) -> None:
        self.path = path
        self.disk = disk
        self.wall_ms = wall_ms
        self.unique_hex = unique_hex
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.removals = Removals(disk)
        self.new_logs = NewLogs()
        self.failure: StorageError | None = None
        self.on_failure: Callable[[StorageError], None] | None = None

    def all_logs(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        """Copies first: of a partition that is here twice, the one that is served comes last."""
        yield from self.futures.items()
        yield from self.logs.items()

    def fail(self, error: StorageError) -> None:
        """The disk failed: the directory is offline from now on. From any thread."""
        if self.failure is None:
            log.error("the log directory %s failed: %s", self.path, error)
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def failed(self, doing: str, error: OSError) -> StorageError:
        """What to raise. If the process did not just lack something, the disk has failed. From any thread."""
        failed = StorageError(doing, error)
        if not failed.is_ours:
            self.fail(failed)
        return failed
