"""The indexes of a segment, rebuilt from its log file: for missing or invalid ones, and after a crash.

Reads the headers of all batches. A time index of one entry (timestamp 0, relative offset 0) looks like the beginning of
a preallocated file (index.py), or of one that lost its content: the first batch decides.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.logdir.files.disk import Disk, read_file
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import TIME_ENTRY, OffsetIndex, TimeIndex
from barnabas.logdir.files.scan import iter_batches

INTERVAL_BYTES = 4096
"""`index.interval.bytes`, as it is by default."""


def made_anew(disk: Disk, fd: int, base_offset: int, size: int) -> tuple[OffsetIndex, TimeIndex]:
    """The indexes of a log file of `size` bytes. Raises CorruptRecords, OSError."""
    offsets, times = OffsetIndex(base_offset), TimeIndex(base_offset)
    indexed = 0
    newest, newest_offset = -1, base_offset
    for batch in iter_batches(disk, fd, 0, size):
        if batch.max_timestamp > newest:
            newest, newest_offset = batch.max_timestamp, batch.last_offset
        if batch.position - indexed > INTERVAL_BYTES:
            offsets.add(batch.last_offset, batch.position)
            times.add(newest, newest_offset)
            indexed = batch.position
    if newest >= 0:
        times.add(newest, newest_offset)
    # Makes `save_indexes` cut and write the files.
    offsets.saved = times.saved = 0
    return offsets, times


def is_padding(disk: Disk, log_fd: Callable[[], int], size: int, times: TimeIndex) -> bool:
    """Whether what `times` says is nothing but zeros. Raises CorruptRecords, OSError."""
    if len(times) != 1 or times.last() != (0, times.base_offset):
        return False
    first = next(iter_batches(disk, log_fd(), 0, size), None)
    return first is None or (first.max_timestamp, first.last_offset) != times.last()


def note_saved(disk: Disk, path: str, index: OffsetIndex | TimeIndex) -> None:
    """Find out what of `index`, which was rebuilt, its file holds already: `save_indexes` writes the rest. A killed
    process leaves most files as they are to be, and on ext4 emptying one to fill it again takes a millisecond. Raises
    OSError.
    """
    try:
        found = read_file(disk, path)
    except FileNotFoundError:
        index.stale = True
        return
    if found.startswith(index.encode()):
        index.saved = len(index)
        index.stale = len(found) > index.size
    else:
        index.stale = True


def last_saved_time(disk: Disk, path: str, base_offset: int) -> tuple[int, int] | None:
    """The last entry of a time index, (timestamp, offset), without reading the others; None if there is none to be
    believed. Raises OSError.
    """
    try:
        fd = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        size = disk.size(fd)
        data = disk.pread(fd, TIME_ENTRY, max(size - TIME_ENTRY, 0))
        return TimeIndex(base_offset, data).last() if size % TIME_ENTRY == 0 and any(data[:8]) else None
    except CorruptFile:
        return None  # found out, and put right, by whoever reads all of it
    finally:
        disk.close(fd)
