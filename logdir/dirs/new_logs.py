"""New logs of one directory whose files are to be made: by a thread, a few at a time, in the order of their creation.

A log that is written to, flushed or closed before its turn makes its files itself (`barnabas.logdir.logs.making`); so
it does where nobody calls `make`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.logs.log import PartitionLog


class NewLogs:
    """See the module. `make` may run in any thread, the rest belongs to the loop. on_added(): there is another one."""

    __slots__ = ("_waiting", "on_added")

    def __init__(self) -> None:
        self._waiting: dict[PartitionLog, None] = {}
        self.on_added: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, logs: Iterable[PartitionLog]) -> None:
        """Put `logs` behind those that wait."""
        self._waiting.update(dict.fromkeys(logs))
        if self.on_added is not None:
            self.on_added()

    def take(self, count: int) -> list[PartitionLog]:
        """The next `count` logs, to be handed to `make`."""
        taken = list(islice(self._waiting, count))
        for each in taken:
            del self._waiting[each]
        return taken

    def forget(self) -> None:
        """Nothing is to be made any more: the directory is closed, or has failed."""
        self._waiting.clear()

    @staticmethod
    def make(logs: Sequence[PartitionLog]) -> list[tuple[PartitionLog, StorageError]]:
        """Make the files of `logs`; those that could not be made, though the disk works (`StorageError.is_ours`), with
        their errors. Raises `StorageError` of the disk: the directory has failed.
        """
        failed = []
        for each in logs:
            try:
                each.make_files()
            except StorageError as error:
                if not error.is_ours:
                    raise
                failed.append((each, error))
        return failed
