"""Key to last offset: what compaction must remember of a log, in a memory of fixed size.

Keys are kept as they are as long as they take a quarter of the memory: exact, and a tenth of a microsecond each. From
then on 128 bits of BLAKE2s stand for a key, in a table of 24 bytes a slot (two arrays of hash halves and one of
offsets) that takes the other three quarters: about two microseconds, and two keys fall together with a probability of
n**2 / 2**129, as in Apache Kafka, whose table has the same size and uses MD5. So a memory of 128 MiB holds about
3,700,000 keys at load factor 0.9; 16-byte keys cost 110 to 150 bytes each in the first form. The hash starts from a
secret: who writes the keys can choose none that crowd one part of the table.

`barnabas-native` has the second form compiled (`KeyMap`), for as many keys. Keys are never taken out. Offsets count
records, -1 stands for none.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2s
from itertools import repeat

SLOT = 24
_OBJECTS = 33 + 15 + 32
"""Bytes of a `bytes` object beside its content, of rounding, and of an offset."""
_halves = struct.Struct("<QQ").unpack


def capacity(memory_bytes: int, load_factor: float) -> tuple[int, int]:
    """(slots of the table, how many keys it may hold). Raises ValueError for a memory that holds none."""
    slots = (memory_bytes - memory_bytes // 4) // SLOT
    room = int(min(slots * load_factor, slots - 1))  # a full table has no end of a search
    if room < 1:
        raise ValueError(
            f"{memory_bytes} bytes at load factor {load_factor} hold no key: give log.cleaner.dedupe.buffer.size "
            "more, or log.cleaner.threads less"
        )
    return slots, room


class OffsetMap:
    """See the module. `secret`: 16 random bytes. Raises ValueError for a memory that holds no key."""

    __slots__ = (
        "_entries",
        "_exact",
        "_exact_limit",
        "_highs",
        "_key_bytes",
        "_lows",
        "_offsets",
        "_room",
        "_salts",
        "_slots",
    )

    def __init__(self, memory_bytes: int, load_factor: float, secret: bytes) -> None:
        self._exact_limit = memory_bytes // 4
        self._slots, self._room = capacity(memory_bytes, load_factor)
        self._salts = secret[:8], secret[8:]
        self._exact: dict[bytes, int] | None = {}
        self._key_bytes = 0
        self._entries = 0
        self._highs = self._lows = self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._exact) if self._exact is not None else self._entries

    @property
    def is_hashed(self) -> bool:
        """The keys themselves became too many."""
        return self._exact is None

    def put(self, keys: list[bytes], offsets: Sequence[int]) -> int:
        """Note the offsets of keys, of which later ones are larger. How many of them, from the first on, were taken:
        fewer than all when there is no room for another key.
        """
        exact = self._exact
        if exact is not None:
            before = len(exact)
            room = self._room - before
            if len(keys) <= room:
                exact.update(zip(keys, offsets, strict=True))
                new = len(exact) - before
                if new:
                    # What is new of them is not looked for: the average will do.
                    self._key_bytes += sum(map(len, keys)) * new // len(keys)
                    held = sys.getsizeof(exact) + self._key_bytes + len(exact) * _OBJECTS
                    if held > self._exact_limit:
                        self._hash_all(exact)
                return len(keys)
            self._hash_all(exact)
        return self._put_hashed(zip(keys, offsets, strict=True))

    def _hash_all(self, exact: dict[bytes, int]) -> None:
        self._exact = None
        self._highs, self._lows, self._offsets = (array("Q", (0,)) * self._slots for _ in range(3))
        while exact:
            self._put_hashed([exact.popitem() for _ in range(min(len(exact), 1024))])

    def _put_hashed(self, records: Iterable[tuple[bytes, int]]) -> int:
        highs, lows, offsets, slots = self._highs, self._lows, self._offsets, self._slots
        room = self._room
        salt, person = self._salts
        taken = 0
        for key, offset in records:
            high, low = _halves(blake2s(key, digest_size=16, salt=salt, person=person).digest())
            high = high or 1  # 0 marks an empty slot
            slot = high % slots
            found = highs[slot]
            while found and (found != high or lows[slot] != low):
                slot = slot + 1 if slot + 1 < slots else 0
                found = highs[slot]
            if not found:
                if self._entries >= room:
                    return taken
                self._entries += 1
                highs[slot] = high
                lows[slot] = low
            offsets[slot] = offset
            taken += 1
        return taken

    def get(self, keys: list[bytes | None]) -> list[int]:
        """The offset of every key, -1 for one that is not known or None."""
        exact = self._exact
        if exact is not None:
            return list(map(exact.get, keys, repeat(-1)))  # type: ignore[arg-type]
        highs, lows, offsets, slots = self._highs, self._lows, self._offsets, self._slots
        salt, person = self._salts
        out = []
        for key in keys:
            if key is None:
                out.append(-1)
                continue
            high, low = _halves(blake2s(key, digest_size=16, salt=salt, person=person).digest())
            high = high or 1
            slot = high % slots
            found = highs[slot]
            while found and (found != high or lows[slot] != low):
                slot = slot + 1 if slot + 1 < slots else 0
                found = highs[slot]
            out.append(offsets[slot] if found else -1)
        return out
