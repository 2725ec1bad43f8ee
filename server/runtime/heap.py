"""The memory of a process that takes in requests of up to a megabyte: the C heap, and the interpreter's small blocks.

A block from 128 KiB on is a mapping of its own in glibc, given back as soon as it is freed. Whoever receives megabyte
requests then has the kernel map, clear and unmap 256 pages for each buffer: measured, 60 % of the broker's CPU time
under a librdkafka producer (1.9 s for a GiB, 0.7 s with what is set here). glibc adapts its limit as it goes, but
gives the pages at the heap's end back all the same.

What a burst leaves is given back too, but only now and then: holes once a minute, and all that is free when the broker
is at rest, which is when spare pages help nobody (`give_back`).

Threads have no heaps of their own, which would each keep as much: they take turns with the interpreter anyhow, and
codecs, which work without it, ask for memory a few times per batch.

Small objects lie in arenas of the interpreter, which go back to the system when nothing at all lies in them. After a
burst, a few objects that stay, as the state of a producer, hold many of them: measured, 11 MiB of 38 were free after an
attack of 200,000 requests. At rest a `Balloon` takes hold of what is free and gives its pages back.

Source: mallopt(3), malloc_trim(3), madvise(2), "Memory Management" of Python's C API; other C libraries know nothing of
the first two and are left as they are.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

MAPPED_FROM_BYTES: Final = 4 << 20
"""Blocks above come and go as mappings; `message.max.bytes` is 1 MiB unless set otherwise."""
SPARE_BYTES_MAX: Final = 16 << 20
"""So much is kept at the heap's end for the next requests."""
TRIM_INTERVAL_S: Final = 60.0
"""How often holes are given back: seldom enough to cost nothing under load, which fills them again."""
AT_REST: Final = 0.02
"""Who uses less than this share of a core is at rest: consumers may wait at it, and ask again and again."""
SLICE_BLOCKS: Final = 512
"""What a `Balloon` does at a time: 256 KiB, less than a millisecond."""
_BLOCK_BYTES = 512
"""The largest that the interpreter takes from its arenas: the most bytes for a call."""
_STATM = Path("/proc/self/statm")
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


def is_at_rest(cpu_seconds: float) -> bool:
    """Whether a process that has used so much in the last `TRIM_INTERVAL_S` is."""
    return cpu_seconds < AT_REST * TRIM_INTERVAL_S


def give_back(cpu_seconds: float) -> bool:
    """Give free pages back to the system; whether there were any. Microseconds to a few milliseconds.

    cpu_seconds: what the process has used in the last `TRIM_INTERVAL_S`. A busy one keeps its spare pages. Of one at
    rest what lately became garbage in cycles is collected first: the collector comes by when objects are made.
    """
    spare_bytes = SPARE_BYTES_MAX
    if is_at_rest(cpu_seconds):
        spare_bytes = 0
        gc.collect(1)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(spare_bytes))


class Balloon:
    """Takes the free blocks of the interpreter's arenas, and gives the pages that lie wholly in them back.

    Blocks are its own while it holds them, whatever is in them, so nothing else can lie in a page that is full of
    them. That holds for any allocator: one that keeps notes between its blocks leaves no such page, and nothing is
    given back. Of CPython's, it is half of what is free.

    Whoever gets busy `deflate`s it, or the interpreter would take new arenas. Both are generators, so that others have
    their turn in between; one is run to its end before the next begins.
    """

    def __init__(self) -> None:
        self._blocks = array("Q")

    @property
    def held_bytes(self) -> int:
        """In blocks; up to half of it is given back."""
        return len(self._blocks) * _BLOCK_BYTES

    def inflate(self) -> Iterator[None]:
        """Take what is free and has pages; what it held already stays as it is."""
        python = getattr(ctypes, "pythonapi", None)
        madvise = getattr(ctypes.CDLL(None), "madvise", None)
        if python is None or madvise is None or not hasattr(mmap, "MADV_DONTNEED") or not _STATM.exists():
            return
        allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyObject_Malloc", python))
        while True:
            before = _resident_bytes()
            some = [block for _ in range(SLICE_BLOCKS) if (block := allocate(_BLOCK_BYTES))]
            if len(some) < SLICE_BLOCKS or _resident_bytes() - before > SLICE_BLOCKS * _BLOCK_BYTES // 2:
                _free(some)  # memory that was not there: nothing is left to be given back
                return
            self._blocks.extend(some)
            for start, end in _full_pages(sorted(some)):
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)
            yield

    def deflate(self) -> Iterator[None]:
        """Let the interpreter have all of it again."""
        while self._blocks:
            some = self._blocks[-SLICE_BLOCKS:]
            del self._blocks[-SLICE_BLOCKS:]
            _free(some)
            yield


def _free(blocks: Iterable[int]) -> None:
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyObject_Free", ctypes.pythonapi))
    for block in blocks:
        free(block)


def _full_pages(blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The pages that consist of blocks, as (first address, that behind the last); blocks: rising addresses."""
    page = mmap.PAGESIZE
    start = end = 0
    for block in (*blocks, 0):
        if block != end:
            first, behind = -(-start // page) * page, end // page * page
            if first < behind:
                yield first, behind
            start = block
        end = block + _BLOCK_BYTES


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE
