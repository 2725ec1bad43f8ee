"""The records of a commit of offsets, in columns: a commit of a hundred partitions is a handful of objects.

`CommitLayout` is what commits of one group for the same partitions have in common, and makes their bytes: the same as
`barnabas.coordinator.stored.OffsetRecords` and `barnabas.kproto.records_plain.plain_records`. Only records without an
expiry of their own (value 3). `CommitRecords` is one commit, as the machine decides it and replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from struct import Struct
from typing import Final, NamedTuple, overload

from barnabas.coordinator.machine import Record
from barnabas.coordinator.stored import CommittedOffset, OffsetRecords, key_prefix
from barnabas.kproto.records_plain import short_varint

TopicPartition = tuple[str, int]
Entry = tuple[int, int, str, int, int, int]
"""The fields of a `CommittedOffset`, and the offset of its record. No object with names: these are made by the
hundred.
"""

_PARTITION: Final = Struct(">i")
_INT16: Final = Struct(">h")
_VALUE_BYTES: Final = 24
"""Of a value without metadata: version, offset, leader epoch, length of the metadata, time."""
_numbers = Struct(">qi").pack
_numbers_and_time = Struct(">qi2xqx").pack
_time = Struct(">qx").pack
"""What follows the key, but for the metadata: a record ends with the number of its headers, 0."""
_PACKED_FROM: Final = 8
"""For so many records it pays to make a `Struct` of all of them."""
_SHORT_DELTAS: Final = 64
"""Offset deltas below are one byte, of twice their value."""


class CommitLayout:
    """See the module. partitions, metadata: of the commit's records, in order; lengths are equal and not 0.
    has_metadata: one of them is not empty.

    Raises `barnabas.kproto.EncodeError` for names that no record can hold.
    """

    __slots__ = ("_one", "_pack", "_pieces", "_template", "group_id", "has_metadata", "metadata", "partitions")

    def __init__(self, group_id: str, partitions: Sequence[TopicPartition], metadata: Sequence[str]) -> None:
        self.group_id = group_id
        self.partitions = partitions
        self.metadata = metadata
        self.has_metadata = any(metadata)
        self._pack: Struct | None = None
        self._one: tuple[Callable[..., bytes], bytes, bytes] | None = None
        self._template: list[object] = []
        pieces: list[tuple[int, bytes, bytes]] = []
        self._pieces = pieces
        topic, prefix, key_length = "", b"", b""
        for (name, index), text in zip(partitions, metadata, strict=True):
            if name != topic or not prefix:
                topic, prefix = name, key_prefix(group_id, name)
                key_length = short_varint(len(prefix) + _PARTITION.size)
            encoded = text.encode() if text else b""
            value_bytes = _VALUE_BYTES + len(encoded)
            key = b"".join((key_length, prefix, _PARTITION.pack(index), short_varint(value_bytes), b"\0\3"))
            # Attributes, timestamp delta and number of headers are 0; two of the value's bytes belong to `key`.
            size = 2 + len(key) + value_bytes - 2 + 1
            pieces.append((size, key, _INT16.pack(len(encoded)) + encoded if encoded else b""))

    def prepare(self) -> None:
        """There will be more commits of this layout."""
        if self.has_metadata:
            return
        if len(self._pieces) == 1:
            ((size, key, _),) = self._pieces
            before = _head(size, 0)[:-1]
            self._one = Struct(f">{len(before)}sB{len(key)}sqi2xqx").pack, before, key
        if len(self._pieces) < _PACKED_FROM:
            return
        form = [">"]
        template = self._template = [b"", 0, 0, 0] * len(self._pieces)
        for delta, (size, key, _) in enumerate(self._pieces):
            head = _head(size, delta) + key
            form.append(f"{len(head)}sqi2xqx")
            template[delta * 4] = head
        self._pack = Struct("".join(form))

    @property
    def is_packed(self) -> bool:
        """It is prepared, and of so many partitions that what may be spared of each counts."""
        return self._pack is not None

    def encoded(
        self, offsets: Sequence[int], leader_epochs: Sequence[int], times_ms: Sequence[int], first_delta: int
    ) -> bytes:
        """As `plain_records` of a commit's records."""
        if self._one is not None and first_delta < _SHORT_DELTAS:
            pack, before, key = self._one
            return pack(before, first_delta << 1, key, offsets[0], leader_epochs[0], times_ms[0])
        if self._pack is not None and first_delta == 0:
            values = self._template.copy()
            values[1::4] = offsets
            values[2::4] = leader_epochs
            values[3::4] = times_ms
            return self._pack.pack(*values)
        if len(self._pieces) == 1:
            ((size, key, text),) = self._pieces
            if not text:
                return _head(size, first_delta) + key + _numbers_and_time(offsets[0], leader_epochs[0], times_ms[0])
        parts: list[bytes] = []
        add = parts.append
        delta = first_delta
        for (size, key, text), offset, epoch, time_ms in zip(
            self._pieces, offsets, leader_epochs, times_ms, strict=True
        ):
            add(_head(size, delta) + key)
            if text:
                add(_numbers(offset, epoch) + text)
                add(_time(time_ms))
            else:
                add(_numbers_and_time(offset, epoch, time_ms))
            delta += 1
        return b"".join(parts)


class RepeatedCommit(NamedTuple):
    """What commits of one caller have in common, if they differ in offsets and leader epochs alone: the fields of
    OffsetCommit, whose version it is, and the layout, `prepare`d.
    """

    layout: CommitLayout
    generation: int
    member_id: str
    instance_id: str | None
    version: int


class CommitRecords(Sequence[Record]):
    """The records of one commit. As a sequence it makes a `Record` of each that is asked for."""

    __slots__ = ("layout", "leader_epochs", "offsets", "times_ms")

    def __init__(
        self, layout: CommitLayout, offsets: Sequence[int], leader_epochs: Sequence[int], times_ms: Sequence[int]
    ) -> None:
        self.layout = layout
        self.offsets = offsets
        self.leader_epochs = leader_epochs
        self.times_ms = times_ms

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        layout = self.layout
        committed = CommittedOffset(
            self.offsets[index], self.leader_epochs[index], layout.metadata[index], self.times_ms[index]
        )
        return OffsetRecords(layout.group_id).record(*layout.partitions[index], committed)

    def encoded(self, first_delta: int) -> bytes:
        """As `barnabas.kproto.records_plain.plain_records` of them."""
        return self.layout.encoded(self.offsets, self.leader_epochs, self.times_ms, first_delta)

    def entries(self, base_offset: int) -> Iterable[tuple[TopicPartition, Entry]]:
        """For the group's `Offsets`, when they are written from `base_offset` on."""
        layout, offsets, epochs, times_ms = self.layout, self.offsets, self.leader_epochs, self.times_ms
        # No commit that has its own expiry comes here.
        if len(offsets) == 1:
            return ((layout.partitions[0], (offsets[0], epochs[0], layout.metadata[0], times_ms[0], -1, base_offset)),)
        columns = zip(offsets, epochs, layout.metadata, times_ms, repeat(-1), count(base_offset))
        return zip(layout.partitions, columns)  # noqa: B905


def _head(size: int, delta: int) -> bytes:
    offset_delta = short_varint(delta)
    return short_varint(size + len(offset_delta)) + b"\0\0" + offset_delta
