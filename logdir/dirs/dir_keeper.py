"""What the logs of one directory report to it (`barnabas.logdir.files.keeper.Keeper`)."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.logdir.dirs.checkpoints import Checkpoints
from barnabas.logdir.dirs.dir_state import DirState
from barnabas.logdir.files import layout
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.open_files import Pool
from barnabas.logdir.logs.log import PartitionLog


class DirKeeper:
    """See the module. pool: of the open files. `random` returns numbers in [0, 1). on_rolled(log): a segment is
    complete, so a flush of its log is due.
    """

    __slots__ = ("_checkpoints", "_random", "_state", "on_rolled", "pool")

    def __init__(self, state: DirState, checkpoints: Checkpoints, pool: Pool, random: Callable[[], float]) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._random = random
        self.pool = pool
        self.on_rolled: Callable[[PartitionLog], None] | None = None

    def rolled(self, log: PartitionLog) -> None:
        # A copy that is being made is flushed by the move that makes it.
        if self.on_rolled is not None and not log.directory.endswith(layout.FUTURE_DIR):
            self.on_rolled(log)

    def remove_later(self, paths: list[str], due_ms: int) -> None:
        self._state.removals.add(paths, due_ms, is_dir=False)

    def recovery_point_fell(self, log: PartitionLog) -> None:
        """Raises `StorageError`."""
        self._checkpoints.follow(log)

    def storage_failed(self, error: StorageError) -> None:
        self._state.fail(error)

    def jitter(self) -> float:
        return self._random()
