"""The keys of a log, and what they decide about a batch's records.

A map from keys to offsets (offset_map.py) with the two things that a run asks of it, each in one call for all records
of a batch of format 2: to `note` their keys, and which of them to `keep`. Where `barnabas-native` is installed, the map
and both are compiled. What is compiled takes no damaged records and some odd ones neither; these are done here then,
with the same map, so nobody can tell which did it but by the time.

Offsets count records, times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import ge
from typing import Any

from barnabas.kproto import compiled
from barnabas.kproto.records import BatchHeader
from barnabas.kproto.records_filter import Rewritten, keyed_records, rewritten
from barnabas.logdir.compaction.offset_map import OffsetMap, capacity

SECRET_BYTES = 16


Noted = tuple[bool, int | None]
"""Whether there was room for all keys; the offset of the last record that was noted, None if none was."""
Left = tuple[int, int, bool, Rewritten | None]
"""What is left of a batch: how many records; how many went because they have no key; whether a tombstone stays; the
records, None if none stays, or all and as they are.
"""


class KeyMap:
    """See the module. `secret`: 16 random bytes; what they are changes nothing that can be seen. Raises ValueError for
    a memory that holds no key.
    """

    __slots__ = ("_compiled", "_map", "_slots")

    def __init__(self, memory_bytes: int, load_factor: float, secret: bytes) -> None:
        self._slots, room = capacity(memory_bytes, load_factor)
        self._compiled: Any = None if compiled.KeyMap is None else compiled.KeyMap(self._slots, room, secret)
        self._map: OffsetMap = (
            OffsetMap(memory_bytes, load_factor, secret) if self._compiled is None else self._compiled
        )

    @property
    def fill(self) -> float:
        """How much of the table's slots is taken, 0 to 1."""
        return len(self._map) / self._slots

    def put(self, keys: list[bytes], offsets: Sequence[int]) -> int:
        """See `OffsetMap.put`."""
        return self._map.put(keys, offsets)

    def get(self, keys: list[bytes | None]) -> list[int]:
        """See `OffsetMap.get`."""
        return self._map.get(keys)

    def note(self, data: bytes, count: int, base: int, first: int) -> Noted:
        """Note the keys of the `count` records that are `data`, of those from offset `first` on. base: the batch's
        base offset. Raises `CorruptRecords`, and then none is noted.
        """
        found: Noted | None = self._compiled.note(data, count, base, first) if self._compiled is not None else None
        return _note(self._map, data, count, base, first) if found is None else found

    def keep(self, header: BatchHeader, data: bytes, latest: int, past_horizon: bool, new_horizon_ms: int) -> Left:
        """Which records of the batch of `header`, which are `data`, stay: those above the offset `latest`, which are
        newer than the map; and of the others the last of each key, but for tombstones if these are `past_horizon`.

        If a tombstone stays in a batch without horizon, it is written with `new_horizon_ms`. Raises `CorruptRecords`.
        """
        if self._compiled is not None:
            append_time = header.max_timestamp if header.is_log_append_time else None
            batch = (
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                append_time,
                header.delete_horizon_ms,
            )
            found: Left | None = self._compiled.keep(data, batch, (latest, past_horizon, new_horizon_ms))
            if found is not None:
                return found
        return _keep(self._map, header, data, latest, past_horizon, new_horizon_ms)


def _note(map_: OffsetMap, data: bytes, count: int, base: int, first: int) -> Noted:
    deltas, keys, _, _ = keyed_records(data, count)
    if count == 1:
        offset = base + deltas[0]
        if offset < first or keys[0] is None:
            return True, None
        return (True, offset) if map_.put(keys, (offset,)) else (False, None)  # type: ignore[arg-type]
    offsets = [base + delta for delta in deltas]
    if base < first or None in keys:
        wanted = [(key, at) for key, at in zip(keys, offsets, strict=True) if key is not None and at >= first]
        keys, offsets = [key for key, _ in wanted], [at for _, at in wanted]
    taken = map_.put(keys, offsets)  # type: ignore[arg-type]
    return taken == len(keys), offsets[taken - 1] if taken else None


def _keep(
    map_: OffsetMap, header: BatchHeader, data: bytes, latest: int, past_horizon: bool, new_horizon_ms: int
) -> Left:
    deltas, keys, nulls, starts = keyed_records(data, header.record_count)
    base = header.base_offset
    if len(keys) == 1 and not nulls[0]:
        # Of busy producers nobody has as many batches as those who send one record at a time.
        offset, key = base + deltas[0], keys[0]
        if offset > latest:
            return 1, 0, False, None
        if key is None:
            return 0, 1, False, None
        return (1 if offset >= map_.get(keys)[0] else 0), 0, False, None
    known = map_.get(keys)
    offsets = [base + delta for delta in deltas]
    keyless = 0
    if offsets and max(offsets) <= latest:
        kept = list(compress(range(len(keys)), map(ge, offsets, known)))
        if None in keys:
            keyless = keys.count(None)
            kept = [at for at in kept if keys[at] is not None]
        if past_horizon:
            kept = [at for at in kept if not nulls[at]]
    else:
        kept = []
        for at, offset in enumerate(offsets):
            if offset <= latest:
                if keys[at] is None:
                    keyless += 1
                    continue
                if offset < known[at] or (nulls[at] and past_horizon):
                    continue
            kept.append(at)
    has_tombstone = 1 in nulls and 1 in map(nulls.__getitem__, kept)
    horizon = header.delete_horizon_ms
    if not kept or (len(kept) == len(keys) and (horizon is not None or not has_tombstone)):
        return len(kept), keyless, has_tombstone, None
    if has_tombstone and horizon is None:
        horizon = new_horizon_ms
    places = [(starts[at], starts[at + 1]) for at in kept]
    return len(kept), keyless, has_tombstone, rewritten(header, data, places, horizon)
