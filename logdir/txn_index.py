"""The transaction index: which transactions of a segment were aborted, for consumers that read committed records only.

`<base>.txnindex`, 34 bytes an entry, big-endian, in the order of the abort markers:

    0   2  version 0
    2   8  producer id
    10  8  first offset of the transaction
    18  8  last offset: its marker's
    26  8  last stable offset when the marker was written: no transaction that ends later starts below it

The file is there only if the segment has an abort marker. Entries are appended when the marker's batch is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from logdir.errors import CorruptFile

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


def overlapping(entries: Iterable[AbortedTxn], fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
    """(those that have records in [fetch_offset, upper_offset), whether later segments need not be looked at)."""
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False
