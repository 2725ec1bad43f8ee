"""Batches of records that have one time and no headers: what coordinators write, many of them and small.

The same bytes as `barnabas.kproto.records.build_batch` makes, in two thirds of its time (one record) to two fifths (a
hundred).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.kproto.records import BATCH_OVERHEAD, TRANSACTIONAL, seal_batch
from barnabas.kproto.varint import varint

_VARINTS: Final = tuple(varint(value) for value in range(512))


class KeyAndValue(Protocol):
    """A record to be written; a value of None is a tombstone."""

    @property
    def key(self) -> bytes: ...

    @property
    def value(self) -> bytes | None: ...


def build_plain_batch(
    records: Sequence[KeyAndValue],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """An uncompressed batch of at least one record, with offsets from 0 and without sequence numbers."""
    parts = [bytes(BATCH_OVERHEAD)]
    add = parts.append
    for delta, record in enumerate(records):
        key, value = record.key, record.value
        offset_delta, key_length = _short(delta), _short(len(key))
        # Attributes and timestamp delta are 0; so is the number of headers.
        size = 3 + len(offset_delta) + len(key_length) + len(key)
        if value is None:
            add(_short(size + 1) + b"\0\0" + offset_delta + key_length)
            add(key)
            add(b"\x01\0")
        else:
            value_length = _short(len(value))
            add(_short(size + len(value_length) + len(value)) + b"\0\0" + offset_delta + key_length)
            add(key)
            add(value_length)
            add(value)
            add(b"\0")
    data = bytearray().join(parts)
    attributes = TRANSACTIONAL if transactional else 0
    times = timestamp_ms, timestamp_ms
    producer = producer_id, producer_epoch, -1
    seal_batch(data, 0, -1, attributes, len(records) - 1, times, producer, len(records))
    return data


def _short(value: int) -> bytes:
    return _VARINTS[value] if value < 512 else varint(value)
