"""The two sparse indexes of a segment: offset to file position, timestamp to offset. Apache Kafka's bytes.

`<base>.index`, 8 bytes an entry, rising in both fields:

    0  4  offset - base offset: the *last* offset of a batch
    4  4  file position where that batch starts

`<base>.timeindex`, 12 bytes an entry, rising in both fields:

    0  8  timestamp, milliseconds: the largest so far in the segment
    8  4  offset - base offset: the last offset of the batch that has it

All big-endian. An entry is made when more than `index.interval.bytes` were appended since the last one, so the first
batch has none; when a segment is closed or rolled, the time index gets a last entry with the segment's largest
timestamp (one place is kept for it). `segment.index.bytes` limits both. There is no checksum: an index that looks
wrong is rebuilt from the log (recovery.py).

While in use an index lives in memory, and what is new of it is saved now and then (segment.py), at the latest by
flush, roll and close. Apache Kafka maps the active segment's index files, made 10 MiB long in advance: their trailing
zeros, seen after a crash, are no entries. We do not map them: see disk.py, and 2,000 partitions would need 4,000
descriptors more. (Timestamp 0, relative offset 0) can be a first entry all the same, so a time index of one such entry
is taken for what it says here, and looked at with the log beside it in reindex.py.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from barnabas.logdir.files.errors import CorruptFile

OFFSET_ENTRY = 8
TIME_ENTRY = 12
_LITTLE = sys.byteorder == "little"
_TIME = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")


class OffsetIndex:
    """Entries are kept as `relative offset << 32 | position`, so that one bisection in C finds one.

    `saved`: how many of the file's entries are right; `stale`: others follow there, to be cut off.
    """

    __slots__ = ("_entries", "base_offset", "saved", "stale")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        """`data`: the file's content. Raises `CorruptFile`."""
        self.base_offset = base_offset
        if len(data) % OFFSET_ENTRY:
            raise CorruptFile(f"offset index of {base_offset} has {len(data)} bytes, not a multiple of {OFFSET_ENTRY}")
        entries = array("q", data)
        if _LITTLE:
            entries.byteswap()
        if entries and entries[-1] == 0:
            del entries[entries.index(0) :]
        if entries and not 0 <= entries[0] <= entries[-1]:
            raise CorruptFile(f"offset index of {base_offset} does not rise")
        self._entries = entries
        self.saved = len(entries)
        self.stale = self.size < len(data)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return len(self._entries) * OFFSET_ENTRY

    def add(self, last_offset: int, position: int) -> None:
        self._entries.append(last_offset - self.base_offset << 32 | position)

    def entries(self) -> list[tuple[int, int]]:
        """(last offset, position) of every entry."""
        return [(self.base_offset + (entry >> 32), entry & 0xFFFFFFFF) for entry in self._entries]

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch whose last offset is at most `offset`; 0 if there is none."""
        entries = self._entries
        slot = bisect_right(entries, offset - self.base_offset << 32 | 0xFFFFFFFF) - 1
        return entries[slot] & 0xFFFFFFFF if slot >= 0 else 0

    def upper_bound(self, position: int) -> int | None:
        """The last offset of the first indexed batch that starts at `position` or later; None if there is none."""
        entries = self._entries
        slot = bisect_left(entries, position, key=_position)
        return self.base_offset + (entries[slot] >> 32) if slot < len(entries) else None

    def last(self) -> tuple[int, int]:
        """(last offset, position) of the last entry, (base offset, 0) if there is none."""
        if not self._entries:
            return self.base_offset, 0
        entry = self._entries[-1]
        return self.base_offset + (entry >> 32), entry & 0xFFFFFFFF

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches whose last offset is `offset` or more."""
        relative = offset - self.base_offset
        del self._entries[bisect_right(self._entries, (relative << 32) - 1) if relative > 0 else 0 :]
        if len(self) < self.saved:
            self.saved = len(self)
            self.stale = True

    def encode(self, first: int = 0) -> bytes:
        """The entries from number `first` on, as they stand in the file."""
        entries = self._entries[first:]
        if _LITTLE:
            entries.byteswap()
        return entries.tobytes()


class TimeIndex:
    """Entries are kept as they stand in the file. `saved` and `stale` as in `OffsetIndex`."""

    __slots__ = ("_data", "base_offset", "saved", "stale")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        """`data`: the file's content. Raises `CorruptFile`."""
        self.base_offset = base_offset
        if len(data) % TIME_ENTRY:
            raise CorruptFile(f"time index of {base_offset} has {len(data)} bytes, not a multiple of {TIME_ENTRY}")
        self._data = bytearray(data)
        if len(data) > TIME_ENTRY and not any(data[-TIME_ENTRY:]):
            # A mapped file that was not cut: the entries end at the last byte that is not zero.
            used = len(data.rstrip(b"\0"))
            del self._data[-(-used // TIME_ENTRY) * TIME_ENTRY :]
        self.saved = len(self)
        self.stale = self.size < len(data)
        if self._data:
            first, last = self._entry(0), self._entry(len(self) - 1)
            if not (first[0] <= last[0] and 0 <= first[1] <= last[1]):
                raise CorruptFile(f"time index of {base_offset} does not rise")

    def __len__(self) -> int:
        return len(self._data) // TIME_ENTRY

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return len(self._data)

    def _entry(self, slot: int) -> tuple[int, int]:
        timestamp, relative = _TIME.unpack_from(self._data, slot * TIME_ENTRY)
        return timestamp, relative

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of every entry."""
        return [(timestamp, self.base_offset + relative) for timestamp, relative in _TIME.iter_unpack(self._data)]

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) if there is none."""
        if not self._data:
            return -1, self.base_offset
        timestamp, relative = self._entry(len(self) - 1)
        return timestamp, self.base_offset + relative

    def add(self, timestamp: int, offset: int) -> bool:
        """Add an entry unless its timestamp is no larger than the last one's; whether it was."""
        data = self._data
        if data and timestamp <= _TIMESTAMP.unpack_from(data, len(data) - TIME_ENTRY)[0]:
            return False
        data += _TIME.pack(timestamp, offset - self.base_offset)
        return True

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry at or before `timestamp`, (-1, base offset) if there is none."""
        data, unpack = self._data, _TIMESTAMP.unpack_from
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * TIME_ENTRY)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        if not low:
            return -1, self.base_offset
        found, relative = self._entry(low - 1)
        return found, self.base_offset + relative

    def truncate(self, offset: int) -> None:
        """Drop the entries for `offset` and later ones."""
        slots = len(self)
        while slots and self.base_offset + self._entry(slots - 1)[1] >= offset:
            slots -= 1
        del self._data[slots * TIME_ENTRY :]
        if slots < self.saved:
            self.saved = slots
            self.stale = True

    def encode(self, first: int = 0) -> bytes:
        """The entries from number `first` on, as they stand in the file."""
        return bytes(self._data[first * TIME_ENTRY :])


def _position(entry: int) -> int:
    return entry & 0xFFFFFFFF
