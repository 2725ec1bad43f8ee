"""The transaction index: which transactions of a segment were aborted, for consumers that read committed records only.

`<base>.txnindex`, 34 bytes an entry, big-endian, in the order of the abort markers:

    0   2  version 0
    2   8  producer id
    10  8  first offset of the transaction
    18  8  last offset: its marker's
    26  8  last stable offset when the marker was written: no transaction that ends later starts below it

The file is there only if the segment has an abort marker. Entries are appended when the marker's batch is written.
There is no checksum: an index that looks wrong is rebuilt from the log (replay.py).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.logdir.files.disk import Disk, read_file, remove_if_there, write_file, write_fully
from barnabas.logdir.files.errors import CorruptFile

VERSION = 0
ENTRY = 34
_ENTRY = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """One entry. Offsets are log offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(VERSION, *self)


def decode(data: bytes, base_offset: int) -> list[AbortedTxn]:
    """All entries of the segment at `base_offset`; a last one that is cut short is left out. Raises `CorruptFile`."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) // ENTRY * ENTRY]):
        entry = AbortedTxn(*fields)
        if version > VERSION:
            raise CorruptFile(f"transaction index of {base_offset} has an entry of version {version}")
        if entry.last_offset < base_offset:
            raise CorruptFile(
                f"transaction index of {base_offset} has an entry that ends before, at {entry.last_offset}"
            )
        entries.append(entry)
    return entries


def read(disk: Disk, path: str, base_offset: int) -> list[AbortedTxn]:
    """The entries of the file, none if there is no file. Raises OSError, `CorruptFile`."""
    try:
        return decode(read_file(disk, path), base_offset)
    except FileNotFoundError:
        return []


def append(disk: Disk, fd: int, count: int, entry: AbortedTxn) -> None:
    """Put `entry` behind the first `count` ones, not synced. Raises OSError."""
    write_fully(disk, fd, (entry.encode(),), count * ENTRY)


def cut(disk: Disk, path: str, count: int) -> None:
    """Keep the first `count` entries of a file that is there. Raises OSError."""
    fd = disk.open(path)
    try:
        disk.truncate(fd, count * ENTRY)
    finally:
        disk.close(fd)


def replace(disk: Disk, path: str, entries: Sequence[AbortedTxn]) -> None:
    """Make the file hold `entries`, not synced; without any it goes. Raises OSError."""
    if entries:
        write_file(disk, path, b"".join([entry.encode() for entry in entries]), sync=False)
    else:
        remove_if_there(disk, path)


def overlapping(entries: Sequence[AbortedTxn], fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
    """(those that have records in [fetch_offset, upper_offset), whether later segments need not be looked at). As the
    last offsets and the last stable offsets of `entries` rise, only what is between is looked at.
    """
    found = []
    for number in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
        entry = entries[number]
        if entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False


def _last_offset(entry: AbortedTxn) -> int:
    return entry.last_offset
