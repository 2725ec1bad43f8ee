"""A page cache as that of a machine that has been up for a while: full, of pages that may go at once.

On a virtual machine that matters. A page of memory that its guest never touched costs the first who writes it a trap
into the hypervisor, 1.5 CPU seconds for each GiB of log, and what a guest frees in large pieces is taken from it again
after two seconds ("free page reporting" of virtio's balloon). So whether a broker pays depends on which files were
deleted before its turn, and it may pay more than for all its own work.

So the memory that is free is touched before each measure: a sparse file of its size is read, which puts clean pages
into the cache that the kernel gives away again, least recently used first, to who writes a log.
"""

from __future__ import annotations

import os
from pathlib import Path

BLOCK_BYTES = 1 << 20


class PageCache:
    """Keeps the cache full; its files, which take no place on the disk, are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0
        directory.mkdir(parents=True, exist_ok=True)

    def fill(self, size_bytes: int | None = None) -> int:
        """Touch so much (default: what is free now); return how many bytes that was."""
        # The earlier files stay: removing one would free its pages.
        path = self._directory / f"sparse-{self._files}"
        self._files += 1
        if size_bytes is None:
            size_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        block = bytearray(BLOCK_BYTES)
        with path.open("w+b", buffering=0) as file:
            file.truncate(size_bytes)
            while file.readinto(block):
                pass
        return size_bytes
