"""A stored batch without some of its records: what compaction needs of the formats.

`keyed_records` finds the records of a v2 batch without making objects of them; `batch_of` writes a v2 batch with some
of them, `empty_batch` one with none. What is written is what Apache Kafka's cleaner writes: base offset, last offset
delta, sequence, producer and codec stay, whatever is missing inside; the base timestamp is that of the first record
that is left or, with attribute bit 6, the time from which tombstones and markers of the batch may go (the delete
horizon, KIP-534), and the max timestamp is the largest that is left (of an empty batch: the old one).

Messages of formats 0 and 1 come as single ones or as a wrapper around several; `legacy_messages` looks into both and
`legacy_of` writes anew what is left, the wrapper with the offset of the last message inside.

Offsets count records, timestamps are milliseconds, sizes bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kproto.compression import CorruptRecords, compress
from kproto.crc32c import crc32c
from kproto.records import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Record,
)
from kproto.records_legacy import Message, build_message_set, iter_messages, unwrap
from kproto.varint import read_varint, read_varlong, varint, wrap64

__all__ = ["Legacy", "Span", "batch_of", "empty_batch", "keyed_records", "legacy_messages", "legacy_of"]

Span = tuple[int, bytes | None, int, int, int]
"""A record of a batch: (offset delta, key, 1 for a tombstone else 0, where it starts, where it ends)."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")


def keyed_records(data: bytes, count: int) -> list[Span]:
    """The `count` records that are `data` (`kproto.records.records_data`). Values and headers are not looked into.

    Raises `CorruptRecords`.
    """
    spans: list[Span] = []
    add = spans.append
    position = 0
    try:
        for _ in range(count):
            start = position
            # Length; n is the zigzag form, twice the value. The usual one has one or two bytes.
            n = data[position]
            position += 1
            if n > 127:
                m = data[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_varint(data, start)
                    n <<= 1
            if n & 1 or n < 0:
                raise CorruptRecords(f"record of negative length, {start} bytes into the batch")
            end = position + (n >> 1)
            position += 1  # attributes
            while data[position] > 127:  # timestamp delta
                position += 1
            position += 1
            # offset delta
            n = data[position]
            position += 1
            if n > 127:
                m = data[position]
                if m < 128:
                    n += (m << 7) - 128
                    position += 1
                else:
                    n, position = read_varint(data, position - 1)
                    n <<= 1
            delta = n >> 1
            if n & 1:
                delta = -1
            # key
            n = data[position]
            position += 1
            if n > 127:
                n, position = read_varint(data, position - 1)
                n <<= 1
            if n & 1 or n < 0:
                key = None
            else:
                stop = position + (n >> 1)
                key = data[position:stop]
                position = stop
            # The lowest bit of a zigzag number is its sign: a value of negative length is none.
            if position >= end or delta < 0:
                raise CorruptRecords(f"a field reaches beyond its record, {start} bytes into the batch")
            add((delta, key, data[position] & 1, start, end))
            position = end
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes left over behind the last of {count} records")
    return spans


def batch_of(header: BatchHeader, data: bytes, spans: Iterable[Span], delete_horizon_ms: int | None) -> bytes:
    """The v2 batch of `header` and `data` with the records `spans` of it, at least one, and no others.

    Raises `CorruptRecords`; `KafkaError` 76 for a codec whose library is missing.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base = delete_horizon_ms if delete_horizon_ms is not None and delete_horizon_ms >= 0 else None
    attributes = header.attributes & ~DELETE_HORIZON
    if base is not None:
        attributes |= DELETE_HORIZON
    max_timestamp = NO_TIMESTAMP
    body = bytearray()
    count = 0
    for _, _, _, start, end in spans:
        _, at = read_varint(data, start)
        delta, rest = read_varlong(data, at + 1)
        timestamp = wrap64(header.base_timestamp + delta) if append_time is None else append_time
        if base is None:
            base = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta_bytes = varint(wrap64(timestamp - base))
        body += varint(1 + len(delta_bytes) + end - rest)
        body.append(0)
        body += delta_bytes
        body += data[rest:end]
        count += 1
    if base is None:
        raise ValueError("a batch of no records is `empty_batch`")
    if append_time is not None:
        max_timestamp = append_time
    codec = attributes & CODEC_MASK
    packed = compress(codec, body) if codec else body
    return _packed(header, packed, attributes, base, max_timestamp, count)


def empty_batch(header: BatchHeader) -> bytes:
    """The 61 bytes that keep a producer's last sequence number, or the last offset of what was cleaned."""
    attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    return _packed(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _packed(
    header: BatchHeader, records: Buffer, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    batch = bytearray(BATCH_OVERHEAD)
    _HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(records),
        header.partition_leader_epoch,
        2,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    batch += records
    with memoryview(batch) as view:
        crc = crc32c(view[_CRC_AT + 4 :])
    _CRC.pack_into(batch, _CRC_AT, crc)
    return bytes(batch)


# ---- formats 0 and 1


class Legacy(NamedTuple):
    """One stored message of format 0 or 1, opened. `clean`: it can stay as it is when all inside stays; an old fault of
    Apache Kafka (KAFKA-4298) wrote wrappers around messages of another format, which are to be written anew.
    """

    magic: int
    codec: int
    append_time: int | None
    messages: list[Message]
    clean: bool


def legacy_messages(data: Buffer) -> Legacy:
    """The message that is `data`, with what is inside of it if it is compressed; offsets are absolute. Checksums are
    checked. Raises `CorruptRecords`.
    """
    outer = next(iter_messages(data), None)
    if outer is None:
        raise CorruptRecords("the message is cut off")
    if not outer.codec:
        return Legacy(outer.magic, 0, None, [outer], True)
    messages = list(unwrap(outer))
    append_time = outer.timestamp if outer.attributes & LOG_APPEND_TIME and outer.magic else None
    return Legacy(
        outer.magic, outer.codec, append_time, messages, all(message.magic == outer.magic for message in messages)
    )


def legacy_of(legacy: Legacy, kept: Iterable[Message]) -> bytes:
    """A message of the same kind with the messages `kept`, at least one. Raises `KafkaError` 76."""
    records = [Record(message.offset, message.timestamp, message.key, message.value) for message in kept]
    return build_message_set(records, magic=legacy.magic, codec=legacy.codec, log_append_time_ms=legacy.append_time)
