"""The C heap of a process that takes in requests of up to a megabyte.

A block from 128 KiB on is a mapping of its own in glibc, given back as soon as it is freed. Whoever receives megabyte
requests then has the kernel map, clear and unmap 256 pages for each buffer: measured, 60 % of the broker's CPU time
under a librdkafka producer (1.9 s for a GiB, 0.7 s with what is set here). glibc adapts its limit as it goes, but
gives the pages at the heap's end back all the same.

What a burst leaves is given back too, but only now and then: holes once a minute, and all that is free when the broker
is at rest, which is when spare pages help nobody (`give_back`).

Threads have no heaps of their own, which would each keep as much: they take turns with the interpreter anyhow, and
codecs, which work without it, ask for memory a few times per batch.

Source: mallopt(3), malloc_trim(3); other C libraries know nothing of them and are left as they are.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

MAPPED_FROM_BYTES: Final = 4 << 20
"""Blocks above come and go as mappings; `message.max.bytes` is 1 MiB unless set otherwise."""
SPARE_BYTES_MAX: Final = 16 << 20
"""So much is kept at the heap's end for the next requests."""
TRIM_INTERVAL_S: Final = 60.0
"""How often holes are given back: seldom enough to cost nothing under load, which fills them again."""
AT_REST: Final = 0.02
"""Who uses less than this share of a core is at rest: consumers may wait at it, and ask again and again."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_freed_pages() -> bool:
    """Tell the C library, for the whole process; whether it took it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = (_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, SPARE_BYTES_MAX), (_M_ARENA_MAX, 1)
    return all(mallopt(which, value) for which, value in wanted)


def give_back(cpu_seconds: float) -> bool:
    """Give free pages back to the system; whether there were any. Microseconds to a few milliseconds.

    cpu_seconds: what the process has used in the last `TRIM_INTERVAL_S`. A busy one keeps its spare pages. Of one at
    rest what lately became garbage in cycles is collected first: the collector comes by when objects are made.
    """
    spare_bytes = SPARE_BYTES_MAX
    if cpu_seconds < AT_REST * TRIM_INTERVAL_S:
        spare_bytes = 0
        gc.collect(1)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(spare_bytes))
