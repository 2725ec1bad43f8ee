"""Is the machine as fast as it was a moment ago?

Cores of a virtual machine share their silicon with strangers: the same loop takes between 0.34 and 0.92 s on one
that is otherwise idle, in waves of ten seconds to some minutes. A ratio of two runs at different speeds says something
about the neighbours. So each measure is framed by a probe, a fixed amount of work on each core in turn, and a round
counts only if its probes agree.
"""

from __future__ import annotations

import os
import time

WORK = 200_000
TIMES = 5
AGREE = 1.25
"""Slowest probe of a round divided by its fastest, at most."""


def probe() -> float:
    """Seconds that a fixed piece of work takes, summed over the cores. Of each core the fastest of some times counts: a
    broker that tidies up just then does not make it slower.
    """
    cores = os.sched_getaffinity(0)
    total = 0.0
    try:
        for core in sorted(cores):
            os.sched_setaffinity(0, {core})
            total += min(_work() for _ in range(TIMES))
    finally:
        os.sched_setaffinity(0, cores)
    return total


def _work() -> float:
    begun = time.perf_counter()
    total_of_numbers = 0
    for number in range(WORK):
        total_of_numbers += number
    return time.perf_counter() - begun


def spread(probes: list[float]) -> float:
    """How far the probes of a round differ: 1.0 is not at all."""
    return max(probes) / min(probes)
