"""What the kernel knows about a broker process: CPU seconds (user and system) and resident memory (bytes), from /proc.

Children are added, those that have ended too: a broker of several processes is charged for all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return the process and its living descendants."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except FileNotFoundError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time used so far."""
    ticks = 0
    for one in family(pid):
        # The second field, the name in parentheses, may hold blanks.
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Return the resident memory now."""
    total = 0
    for one in family(pid):
        for line in Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total
