"""Batches of records that have one time and no headers: what coordinators write, many of them and small.

A batch grows until it is sealed, so that the decisions of many requests can become one batch. The bytes are those that
`barnabas.kproto.records.build_batch` makes, in two thirds of its time (one record) to two fifths (a hundred).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.kproto.records import BATCH_OVERHEAD, LOG_APPEND_TIME, TRANSACTIONAL, seal_batch
from barnabas.kproto.varint import varint

_NO_HEADER: Final = bytes(BATCH_OVERHEAD)
_VARINTS: Final = tuple(varint(value) for value in range(512))


class KeyAndValue(Protocol):
    """A record to be written; a value of None is a tombstone."""

    @property
    def key(self) -> bytes: ...

    @property
    def value(self) -> bytes | None: ...


def plain_records(records: Sequence[KeyAndValue], first_delta: int = 0) -> bytes:
    """Records as they stand in a batch; `first_delta`: how far the first one's offset is behind the batch's."""
    parts: list[bytes] = []
    add = parts.append
    for delta, record in enumerate(records, first_delta):
        key, value = record.key, record.value
        offset_delta, key_length = short_varint(delta), short_varint(len(key))
        # Attributes and timestamp delta are 0; so is the number of headers.
        size = 3 + len(offset_delta) + len(key_length) + len(key)
        if value is None:
            add(short_varint(size + 1) + b"\0\0" + offset_delta + key_length)
            add(key)
            add(b"\x01\0")
        else:
            value_length = short_varint(len(value))
            add(short_varint(size + len(value_length) + len(value)) + b"\0\0" + offset_delta + key_length)
            add(key)
            add(value_length)
            add(value)
            add(b"\0")
    return b"".join(parts)


class PlainRecords:
    """Records that are encoded when it is known where in a batch they stand."""

    __slots__ = ("_records",)

    def __init__(self, records: Sequence[KeyAndValue]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def encoded(self, first_delta: int) -> bytes:
        return plain_records(self._records, first_delta)


class PlainBatch:
    """An uncompressed batch without sequence numbers. count: its records so far; size: its bytes so far, the header's
    included. producer: id and epoch of the transaction that it is part of. log_append_time: whether the time is marked
    as the broker's.
    """

    __slots__ = ("_attributes", "_parts", "_producer", "base_offset", "count", "leader_epoch", "size", "timestamp_ms")

    def __init__(
        self,
        base_offset: int,
        leader_epoch: int,
        timestamp_ms: int,
        *,
        producer: tuple[int, int] | None = None,
        log_append_time: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.timestamp_ms = timestamp_ms
        self.count = 0
        self.size = BATCH_OVERHEAD
        self._parts = [_NO_HEADER]
        self._producer = (-1, -1) if producer is None else producer
        self._attributes = (TRANSACTIONAL if producer is not None else 0) | (LOG_APPEND_TIME if log_append_time else 0)

    def add(self, records: bytes, count: int) -> None:
        """`count` more records, which `plain_records` has made with the batch's `count` before as their first delta."""
        self._parts.append(records)
        self.size += len(records)
        self.count += count

    def sealed(self) -> bytearray:
        """The batch, with its header and checksum; it has one record at least."""
        data = bytearray().join(self._parts)
        times = self.timestamp_ms, self.timestamp_ms
        producer = (*self._producer, -1)
        count = self.count
        seal_batch(data, self.base_offset, self.leader_epoch, self._attributes, count - 1, times, producer, count)
        return data


def short_varint(value: int) -> bytes:
    """As `varint`; quicker for most lengths."""
    return _VARINTS[value] if value < 512 else varint(value)
