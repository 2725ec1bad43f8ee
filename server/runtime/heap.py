"""The memory of a process that receives requests of up to a megabyte: the C heap, and the interpreter's small blocks.

A block from 128 KiB on is a mapping of its own in glibc, given back as soon as it is freed. A process that receives
megabyte requests then has the kernel map, clear and unmap 256 pages for each buffer: measured, 60 % of the broker's CPU
time under a librdkafka producer (1.9 s for a GiB, 0.7 s with what is set here). glibc adapts its limit as it goes, but
gives the pages at the heap's end back all the same.

What a burst leaves is given back too, but only now and then: holes once a minute, and all that is free when the broker
is idle and needs no spare pages (`give_back`).

Threads have no heaps of their own, each of which would keep as much: they share the interpreter anyway, and codecs,
which release it, allocate only a few times per batch.

Small objects lie in arenas of the interpreter, which go back to the system when nothing at all lies in them. After a
burst, a few objects that stay, as the state of a producer, hold many of them: measured, 16 MiB of 42 were free after an
attack of 60,000 requests. At rest a `Balloon` takes hold of what is free and gives its pages back.

Source: mallopt(3), malloc_trim(3), madvise(2), "Memory Management" of Python's C API; other C libraries know nothing of
the first two and are left as they are.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

MAPPED_FROM_BYTES: Final = 4 << 20
"""Blocks above come and go as mappings; `message.max.bytes` is 1 MiB unless set otherwise."""
SPARE_BYTES_MAX: Final = 16 << 20
"""The free memory kept at the heap's end for the next requests."""
TRIM_INTERVAL_S: Final = 60.0
"""How often holes are given back: seldom enough to cost nothing under load, which fills them again."""
AT_REST: Final = 0.02
"""A process that uses less of a core is at rest: waiting consumers poll repeatedly."""
BUSY: Final = 0.1
"""A process that uses more needs what a `Balloon` holds. In between it stays: released pages become resident again."""
COLLECTED_BLOCKS_MAX: Final = 500_000
"""With more, a full collection would block the loop for too long; a broker starts with 200,000, which are frozen."""
SLICE_BLOCKS: Final = 512
"""What a `Balloon` does at a time: less than a millisecond."""
_LARGEST_BLOCK = 512
"""That the interpreter takes from its arenas."""
_ALIGNMENT = 16
_POOL_BYTES = 16384
_ARENA_POOLS = 64
_POOL_NOTES_BYTES = 48
_POOL_NOTES_WORDS = _POOL_NOTES_BYTES // 8
_POOL_NEXT = 40
"""Where a pool notes the offset of its first block that was never used."""
_HARDLY_ANY = 16
"""Blocks: reading a new pool takes some of it."""
_STATM = Path("/proc/self/statm")
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_freed_pages() -> bool:
    """Configure the C library, for the whole process; returns whether it accepted."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = (_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, SPARE_BYTES_MAX), (_M_ARENA_MAX, 1)
    return all(mallopt(which, value) for which, value in wanted)


def is_at_rest(cpu_s: float) -> bool:
    """Whether a process that has used so much in the last `TRIM_INTERVAL_S` is."""
    return cpu_s < AT_REST * TRIM_INTERVAL_S


def give_back(cpu_s: float) -> bool:
    """Give free pages back to the system; whether there were any. Microseconds to a few milliseconds.

    cpu_s: what the process has used in the last `TRIM_INTERVAL_S`. A busy one keeps its spare pages. Of one at
    rest what lately became garbage in cycles is collected first: the collector comes by when objects are made. If that
    is not too much it looks at all, and so releases the interpreter's own lists of tuples for reuse: thousands, each in
    a page with little else. What a rest begins with fills them again, so it does so each time.
    """
    spare_bytes = SPARE_BYTES_MAX
    if is_at_rest(cpu_s):
        spare_bytes = 0
        gc.collect(1 if sys.getallocatedblocks() > COLLECTED_BLOCKS_MAX else 2)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(spare_bytes))


class Balloon:
    """Takes the free blocks of the interpreter's arenas, and gives the pages that lie wholly in them back.

    CPython keeps blocks of one size together, in pools of four pages with notes at the start of the first. Blocks are
    the balloon's own while it holds them, whatever is in them: of a pool in use those pages go back that nothing lies
    in. If all of a pool is held, its notes are not read: they are kept elsewhere, and four pages go back. What gives no
    page is released at once. Another allocator is left as it is.

    A process that gets busy `deflate`s it, or the interpreter would take new arenas. Both are generators, so that
    others have their turn in between; one is run to its end before the next begins.
    """

    def __init__(self) -> None:
        self._blocks = _Blocks() if _has_pools() else None
        self._runs = array("Q")
        """Of blocks side by side: address of the first, bytes of each, how many; one run after the other."""
        self._notes = array("Q")
        """Of the pools that are held as a whole, in the order of their runs."""
        self._given_bytes = 0

    @property
    def given_bytes(self) -> int:
        """In pages that went back, and come again only when it is deflated."""
        return self._given_bytes

    def adapt(self, cpu_seconds: float) -> Iterator[None]:
        """Inflate it at rest, deflate it under load; what the process has used in the last `TRIM_INTERVAL_S`."""
        if is_at_rest(cpu_seconds):
            yield from self.inflate()
        elif cpu_seconds >= BUSY * TRIM_INTERVAL_S:
            yield from self.deflate()

    def inflate(self) -> Iterator[None]:
        """Take what is free and has pages; what it held already stays as it is."""
        blocks = self._blocks
        if blocks is None:
            return
        for size in range(_LARGEST_BLOCK, 0, -_ALIGNMENT):
            # The first size takes all empty pools, so that the others find what is free in those in use, and no more.
            taken, useless = array("Q"), array("Q")
            for some in blocks.free_ones(size, 0 if self._runs else _ARENA_POOLS):
                taken.extend(some)
                yield
            begin = 0
            for at in range(1, len(taken) + 1):
                if at == len(taken) or taken[at] // _POOL_BYTES != taken[begin] // _POOL_BYTES:
                    self._take(blocks, sorted(taken[begin:at]), size, useless)
                    begin = at
                if at % SLICE_BLOCKS == 0:
                    yield
            for at in range(0, len(useless), SLICE_BLOCKS):
                blocks.free(useless[at : at + SLICE_BLOCKS])
                yield

    def deflate(self) -> Iterator[None]:
        """Let the interpreter have all of it again."""
        freed = 0
        while self._runs and self._blocks is not None:
            first, size, count = self._runs[-3:]
            del self._runs[-3:]
            if _is_whole_pool(first, size, count):
                self._blocks.note(first - _POOL_NOTES_BYTES, self._notes[-_POOL_NOTES_WORDS:])
                del self._notes[-_POOL_NOTES_WORDS:]
            self._blocks.free(range(first, first + count * size, size))
            freed += count
            if freed >= SLICE_BLOCKS:
                freed = 0
                yield
        self._given_bytes = 0

    def _take(self, source: _Blocks, blocks: Sequence[int], size: int, useless: array[int]) -> None:
        """Keep those of a pool's blocks that lie in pages of nothing else; the rest is `useless`."""
        page = mmap.PAGESIZE
        for first, count in _side_by_side(blocks, size):
            end = first + count * size
            behind_pool = -(-end // _POOL_BYTES) * _POOL_BYTES
            covered = behind_pool if behind_pool - end < size else end  # nothing lies behind a pool's last block
            start, behind = -(-first // page) * page, covered // page * page
            if _is_whole_pool(first, size, count):
                start = first - _POOL_NOTES_BYTES
                self._notes.extend(source.notes(start))
            if start >= behind:
                useless.extend(range(first, end, size))
                continue
            source.give_pages(start, behind - start)
            kept = range(first + max(0, start - first) // size * size, min(end, behind), size)
            useless.extend(range(first, kept.start, size))
            useless.extend(range(kept.start + len(kept) * size, end, size))
            self._runs.extend((kept.start, size, len(kept)))
            self._given_bytes += behind - start


class _Blocks:
    """The interpreter's allocator, and how it is looked into."""

    def __init__(self) -> None:
        # A prototype is a class, made again each time.
        self._allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyObject_Malloc", ctypes.pythonapi))
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyObject_Free", ctypes.pythonapi))
        libc = ctypes.CDLL(None)
        self._madvise = libc.madvise
        self._mincore = libc.mincore
        self._mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def free_ones(self, size: int, untouched_max: int) -> Iterator[array[int]]:
        """The free blocks of a size, some at a time, until they would be memory that was not there.

        Of the largest size those of empty pools, too, and of up to so many in a row that were never used, as others may
        come after them.
        """
        pool = 0
        untouched = 0
        unused = _POOL_NOTES_BYTES + _HARDLY_ANY * size
        enough = _mapped_bytes() + _ARENA_POOLS * _POOL_BYTES * 2
        while _mapped_bytes() < enough:
            some = array("Q")
            for _ in range(SLICE_BLOCKS):
                block = self._allocate(size) or 0
                if block // _POOL_BYTES != pool:
                    pool = block // _POOL_BYTES
                    if not block:
                        is_over = True
                    elif size == _LARGEST_BLOCK:
                        untouched = 0 if self._is_resident(pool * _POOL_BYTES) else untouched + 1
                        is_over = untouched > untouched_max
                    else:
                        is_over = ctypes.c_uint32.from_address(pool * _POOL_BYTES + _POOL_NEXT).value <= unused
                    if is_over:
                        self.free((block,))
                        yield some
                        return
                some.append(block)
            yield some

    def _is_resident(self, pool: int) -> bool:
        """Whether any page but the first is."""
        pages = (ctypes.c_ubyte * (_POOL_BYTES // mmap.PAGESIZE))()
        return self._mincore(pool, _POOL_BYTES, pages) == 0 and any(pages[1:])

    def free(self, blocks: Iterable[int]) -> None:
        free = self._free
        for block in blocks:
            free(block)

    def notes(self, pool: int) -> array[int]:
        return array("Q", ctypes.string_at(pool, _POOL_NOTES_BYTES))

    def note(self, pool: int, notes: array[int]) -> None:
        """Back to where they were, before any of the pool's blocks is freed."""
        ctypes.memmove(pool, notes.tobytes(), _POOL_NOTES_BYTES)

    def give_pages(self, start: int, count_bytes: int) -> None:
        """To the system: they are zero when they are touched again."""
        self._madvise(start, count_bytes, mmap.MADV_DONTNEED)


def _side_by_side(blocks: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Runs, as (address of the first, how many); blocks: rising addresses."""
    first = end = 0
    for block in (*blocks, 0):
        if block != end:
            if first:
                yield first, (end - first) // size
            first = block
        end = block + size


def _is_whole_pool(first: int, size: int, count: int) -> bool:
    """Whether a run of blocks is all that its pool has."""
    return first % _POOL_BYTES == _POOL_NOTES_BYTES and count == (_POOL_BYTES - _POOL_NOTES_BYTES) // size


def _has_pools() -> bool:
    """Whether blocks come from CPython's allocator as it is since 3.10, without its checks, on a system to give to."""
    named = getattr(getattr(ctypes, "pythonapi", None), "_PyMem_GetCurrentAllocatorName", None)
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info < (3, 16) or named is None:
        return False
    named.restype = ctypes.c_char_p
    can_give = sys.platform == "linux" and mmap.PAGESIZE * 4 == _POOL_BYTES and sys.maxsize > 1 << 32
    return can_give and _STATM.exists() and bool(named() == b"pymalloc")


def _mapped_bytes() -> int:
    return int(_STATM.read_text().split()[0]) * mmap.PAGESIZE
