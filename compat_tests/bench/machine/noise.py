"""How much of the machine others took while something was measured, from /proc.

What counts is the CPU time of all cores since boot (/proc/stat: user, nice, system, and interrupts, which mostly are of
the work they interrupt), without that of this process and its descendants, who are the benchmark and its brokers, and
without that of the kernel's own threads, which write back what the brokers wrote. Steal is what the hypervisor gave to
other machines. Both are parts of what all cores could have done in the time.

The kernel counts the first by sampling and a process by the clock: over five seconds they differ by a percent or two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from compat_tests.bench.machine.processes import TICKS_PER_SECOND, family, processes

NOISE_MAX = 0.06
"""Others may take so much of the machine, steal included, in a round that counts."""
KERNEL_THREADS = 2
"""The process of which all threads of the kernel are children."""


@dataclass(frozen=True)
class Noise:
    """Parts of the machine's CPU time, 0 to 1: taken by others here, and by other machines."""

    others: float
    steal: float

    @property
    def total(self) -> float:
        """Both."""
        return self.others + self.steal


@dataclass(frozen=True)
class _Counters:
    """Seconds since boot."""

    busy: float
    idle: float
    steal: float
    own: float
    kernel: float


class Watch:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._before = _now()

    def noise(self) -> Noise:
        """Since then."""
        before, after = self._before, _now()
        busy = after.busy - before.busy
        steal = after.steal - before.steal
        whole = busy + steal + after.idle - before.idle
        own = after.own - before.own + after.kernel - before.kernel
        if whole <= 0:
            return Noise(0.0, 0.0)
        return Noise(max(0.0, busy - own) / whole, steal / whole)


def _now() -> _Counters:
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(field) / TICKS_PER_SECOND for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    known = processes()
    own = sum(known[pid].cpu_seconds for pid in family(os.getpid(), known))
    # In a container the kernel's threads cannot be seen, and count as others.
    kernel = sum(process.cpu_seconds for process in known.values() if process.parent == KERNEL_THREADS)
    return _Counters(user + nice + system + irq + softirq, idle + iowait, steal, own, kernel)
