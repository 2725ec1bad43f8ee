"""What the kernel knows about processes: CPU seconds (user and system) and resident memory (bytes), from /proc.

Children are added, those that have ended too: a broker of several processes is charged for all of them. Who is whose
child is found by a look at all processes: the kernel's own lists of children are not whole while processes come and go.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """CPU seconds are its own and those of children that have ended and been waited for."""

    parent: int
    cpu_seconds: float


def processes() -> dict[int, Process]:
    """All that can be seen now, by their ids."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            # The second field, the name in parentheses, may hold blanks.
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(entry.name)] = Process(int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_SECOND)
    return found


def family(pid: int, known: Mapping[int, Process]) -> Iterator[int]:
    """A process and its living descendants."""
    children = defaultdict(list)
    for one, process in known.items():
        children[process.parent].append(one)
    found = [pid]
    for one in found:
        yield one
        found += children[one]


def cpu_seconds(pid: int) -> float:
    """The CPU time used so far. Raises ProcessLookupError when the process is gone."""
    known = processes()
    if pid not in known:
        raise ProcessLookupError(f"process {pid} has ended")
    return sum(known[one].cpu_seconds for one in family(pid, known))


def resident_bytes(pid: int) -> int:
    """The resident memory now. Raises FileNotFoundError when the process is gone."""
    total = 0
    for one in family(pid, processes()):
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            if one == pid:
                raise
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return total


def read_bytes(pid: int) -> int:
    """What the process has read through system calls, from the page cache or not."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))
