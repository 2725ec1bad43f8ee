"""A broker's disk: what it writes is there for the next process, and after a loss of power only what was synced.

`SimDisk.disk` is handed to a broker's `LogDir`. When the process ends, `killed()` or `lost_power()` gives the next one
a new handle on what is left, and the old handle fails every call: whatever still unwinds in the dead process changes
nothing. How bad a loss of power is stands in `barnabas.logdir.files.memory_disk`.

`fail` lets one call fail, once; `watch` notes of what kind the calls are.
"""

from __future__ import annotations

import errno
from random import Random

from barnabas.logdir import OURS
from barnabas.logdir.files.memory_disk import MemoryDisk

GONE = "by a process that is gone"
FAULT = "said the simulated disk"


class SimDisk:
    """See the module."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.calls: list[str] = []
        """What kind each call had, from the first on that was watched."""
        self.struck: str | None = None
        self.may_fail = self.has_ended = False
        """A call has failed in a way that takes the log directory along; a broker has ended."""
        self._left = 0
        self._code = 0

    def watch(self) -> None:
        """Note the calls from now on."""
        self.disk.on_call = self._called

    def rest(self) -> None:
        """Note no more, and let nothing fail any more."""
        self._left = 0
        self.disk.on_call = None

    def fail(self, number: int, code: int) -> None:
        """Of the calls from now on let the one with that number fail, from 1 on; `struck` says then which it was."""
        self._left, self._code = number, code
        self.watch()

    def _called(self, call: str, path: str) -> None:
        kind = f"{call} {_kind(path)}"
        self.calls.append(kind)
        self._left -= 1
        if self._left == 0:
            self.struck = kind
            # An entry of the transaction index that cannot be written when its marker is must not be left out.
            self.may_fail = self._code not in OURS or kind == "pwritev .txnindex"
            raise OSError(self._code, FAULT, path)

    def killed(self) -> None:
        """The process is gone; the operating system keeps what it was given."""
        self.may_fail, self.has_ended = False, True
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


def _kind(path: str) -> str:
    """What sort of file it is: its suffix, or its name where that is always the same."""
    name = path.rpartition("/")[2]
    if name[:20].isdigit():
        return name[20:]
    return "a partition's directory" if name[-1:].isdigit() else name


def _gone(call: str, path: str) -> None:
    raise OSError(errno.EIO, f"{call} {GONE}", path)
