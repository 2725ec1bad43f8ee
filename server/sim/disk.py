"""A broker's disk: what it writes is there for the next process, and after a loss of power only what was synced.

`SimDisk.disk` is handed to a broker's `LogDir`. When the process ends, `killed()` or `lost_power()` gives the next one
a new handle on what is left, and the old handle fails every call: whatever still unwinds in the dead process changes
nothing. How bad a loss of power is stands in `logdir.memory_disk`.
"""

from __future__ import annotations

import errno
from random import Random

from logdir.memory_disk import MemoryDisk

GONE = "by a process that is gone"


class SimDisk:
    """See the module."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def killed(self) -> None:
        """The process is gone; the operating system keeps what it was given."""
        old, self.disk = self.disk, MemoryDisk()
        self.disk.root = old.root
        old.on_call = _gone

    def lost_power(self, rng: Random) -> None:
        """The machine stopped: of what was not synced, chance leaves something or nothing."""
        self.killed()
        self.disk.crash(rng)

    def forget_changes(self) -> None:
        """Everything is synced: what was written up to now survives."""
        self.disk.sync_all("/")


def _gone(call: str, path: str) -> None:
    raise OSError(errno.EIO, f"{call} {GONE}", path)
