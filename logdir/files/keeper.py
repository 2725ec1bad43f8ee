"""What a log needs of its keeper: the log directory (`barnabas.logdir.dirs.dir_keeper`)."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.open_files import Pool


class Keeper(Protocol):
    """See the module."""

    pool: Pool

    def rolled(self, log: Any) -> None:
        """A segment is complete: `flush` is due, in a thread."""

    def remove_later(self, paths: list[str], due_ms: int) -> None:
        """Files marked `.deleted` whose time comes at `due_ms`."""

    def recovery_point_fell(self, log: Any) -> None:
        """The log was truncated below its recovery point, or its log start: the checkpoints must say so before more
        is appended.
        """

    def storage_failed(self, error: StorageError) -> None:
        """The disk failed, or is full; may be called from a thread that flushes."""

    def jitter(self) -> float:
        """A random number in [0, 1): segments are not to be rolled all at once."""
