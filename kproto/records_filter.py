"""A stored batch without some of its records: what compaction needs of the formats.

`keyed_records` finds the records of a v2 batch without making objects of them; `batch_of` writes a v2 batch with some
of them, `empty_batch` one with none. What is written is what Apache Kafka's cleaner writes: base offset, last offset
delta, sequence, producer and codec stay, whatever is missing inside; the base timestamp is that of the first record
that is left or, with attribute bit 6, the time from which tombstones and markers of the batch may go (the delete
horizon, KIP-534), and the max timestamp is the largest that is left (of an empty batch: the old one).

Messages of formats 0 and 1 come as single ones or as a wrapper around several; `legacy_messages` looks into both and
`legacy_of` rewrites what is left, the wrapper with the offset of the last message inside.

Offsets count records, timestamps are milliseconds, sizes bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.kproto.compression import CorruptRecords, compress
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import (
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
from barnabas.kproto.records_legacy import Message, build_message_set, iter_messages, unwrap
from barnabas.kproto.varint import read_varint, read_varlong, varint, wrap64

__all__ = ["Legacy", "Span", "batch_of", "empty_batch", "keyed_records", "legacy_messages", "legacy_of"]

Span = tuple[int, bytes | None, int, int, int]
"""A record of a batch: (offset delta, key, 1 for a tombstone else 0, where it starts, where it ends)."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")


def keyed_records(data: bytes, count: int) -> list[Span]:
    """The `count` records that are `data` (`barnabas.kproto.records.records_data`). Values and headers are not looked
    into.

    Raises `CorruptRecords`.
    """
    spans: list[Span] = []
    add = spans.append
    position = index = attempt = 0
    size = len(data)
    try:
        while index < count:
            start = position
            # Numbers are zigzag varints: twice the value, odd if negative; the usual one has one or two bytes.
            n = data[start]
            if n < 128:
                end = start + 1 + (n >> 1)
                position = start + 2  # one byte of attributes
            else:
                m = data[start + 1]
                if m < 128:
                    end = start + 2 + ((m << 7) + (n & 127) >> 1)
                    position = start + 3
                else:
                    m, position = read_varint(data, start)
                    n = m < 0
                    end = position + m
                    position += 1
            while data[position] > 127:  # timestamp delta
                position += 1
            position += 1
            delta = data[position]
            position += 1
            if delta > 127:
                m = data[position]
                if m < 128:
                    delta += (m << 7) - 128
                    position += 1
                else:
                    m, position = read_varint(data, position - 1)
                    delta = m << 1 if m >= 0 else 1
            m = data[position]
            position += 1
            if m > 127:
                m, position = read_varint(data, position - 1)
                m = m << 1 if m >= 0 else 1
            if m & 1:
                key = None
            else:
                stop = position + (m >> 1)
                key = data[position:stop]
                position = stop
            if position >= end or (n | delta) & 1:
                raise CorruptRecords(f"impossible record {start} bytes into the batch")
            # The lowest bit of the value's length is its sign: a negative one is no value.
            add((delta >> 1, key, data[position] & 1, start, end))
            position = end
            index += 1
            if index >= attempt and end < size and data[end] == data[start] and key:
                like = _alike(data, start, end, count - index + 1)
                if like:
                    spans.pop()
                    spans += like
                    index += len(like) - 1
                    position = like[-1][4]
                else:
                    attempt = index + 16
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if position != size:
        raise CorruptRecords(f"{size - position} bytes left over behind the last of {count} records")
    return spans


def _alike(data: bytes, start: int, end: int, count: int) -> list[Span]:
    """The good record at `start` ... `end` and those behind it that have its length and whose fields stand at the same
    places, at most `count` together; none if they are too few. A strided slice looks at one byte of all of them.
    """
    stride = end - start
    at = start
    repeated = []
    while data[at] > 127:
        repeated.append(at)
        at += 1
    repeated.append(at)
    times_at = at + 2
    delta_at = times_at + 1
    if data[times_at] > 127 or len(repeated) > 2:
        return []
    wide = data[delta_at] > 127
    key_at = delta_at + 2 if wide else delta_at + 1
    repeated.append(key_at)
    key_size = data[key_at]
    if key_size > 127 or key_size & 1:
        return []
    key_at += 1
    value_at = key_at + (key_size >> 1)

    count = min(count, (len(data) - start) // stride)
    limit = start + (count - 1) * stride
    for place in repeated:
        column = data[place : limit + place - start + 1 : stride]
        same = len(column) - len(column.lstrip(column[:1]))
        if same < count:
            count = same
            limit = start + (count - 1) * stride
    times = data[times_at : limit + times_at - start + 1 : stride]
    lows = data[delta_at : limit + delta_at - start + 1 : stride]
    if count < 4 or not times.isascii():
        return []
    if wide:
        highs = data[delta_at + 1 : limit + delta_at - start + 2 : stride]
        if not highs.isascii() or lows.translate(None, _EVEN_LOW):
            return []
        deltas = [(high << 7) + low - 128 >> 1 for low, high in zip(lows, highs, strict=True)]
    else:
        # A batch's 65th record has a wider delta, so up to there at most.
        narrow = len(lows) - len(lows.lstrip(_EVEN_ONE))
        if narrow < 4:
            return []
        deltas = [low >> 1 for low in lows[:narrow]]
    count = len(deltas)
    limit = start + (count - 1) * stride
    span = value_at - key_at
    keys = [data[place : place + span] for place in range(key_at, limit + key_at - start + 1, stride)]
    nulls = data[value_at : limit + value_at - start + 1 : stride].translate(_LOWEST_BIT)
    return list(
        zip(deltas, keys, nulls, range(start, limit + 1, stride), range(end, limit + stride + 1, stride), strict=True)
    )


_EVEN_ONE: Final = bytes(range(0, 128, 2))
_EVEN_LOW: Final = bytes(range(128, 256, 2))
"""First bytes of varints that are not negative: the only one, and the first of several."""
_LOWEST_BIT: Final = bytes(byte & 1 for byte in range(256))


def batch_of(header: BatchHeader, data: bytes, spans: Iterable[Span], delete_horizon_ms: int | None) -> bytes:
    """The v2 batch of `header` and `data` with the records `spans` of it, at least one, and no others.

    Raises `CorruptRecords`; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec whose library is missing.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base = delete_horizon_ms if delete_horizon_ms is not None and delete_horizon_ms >= 0 else None
    attributes = header.attributes & ~DELETE_HORIZON
    if base is not None:
        attributes |= DELETE_HORIZON
    kept = list(spans)
    if not kept:
        raise ValueError("a batch of no records is `empty_batch`")
    places = [_timestamp_at(data, span[3]) for span in kept]
    newest = header.base_timestamp + max(places)[0]
    if base is None and append_time is None and not places[0][0] and newest == wrap64(newest):
        # The usual case: the timestamps count from the same time, so the records stay as they are.
        base = header.base_timestamp
        body = b"".join([data[span[3] : span[4]] for span in kept])
        max_timestamp = newest
    else:
        times = [wrap64(header.base_timestamp + delta) if append_time is None else append_time for delta, _ in places]
        base = times[0] if base is None else base
        max_timestamp = max(times)
        parts = []
        for timestamp, (_, rest), span in zip(times, places, kept, strict=True):
            delta_bytes = varint(wrap64(timestamp - base))
            parts += [varint(1 + len(delta_bytes) + span[4] - rest), b"\0", delta_bytes, data[rest : span[4]]]
        body = b"".join(parts)
    max_timestamp = max(max_timestamp, NO_TIMESTAMP)
    if append_time is not None:
        max_timestamp = append_time
    codec = attributes & CODEC_MASK
    packed = compress(codec, body) if codec else body
    return _packed(header, packed, attributes, base, max_timestamp, len(kept))


def _timestamp_at(data: bytes, start: int) -> tuple[int, int]:
    """(timestamp delta, position behind it) of the record at `start`."""
    position = start
    while data[position] > 127:  # length
        position += 1
    position += 2
    byte = data[position]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), position + 1
    return read_varlong(data, position)


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
    Apache Kafka (KAFKA-4298) wrote wrappers around messages of another format, which are to be rewritten.
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
    """A message of the same kind with the messages `kept`, at least one. Raises `KafkaError`
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    records = [Record(message.offset, message.timestamp, message.key, message.value) for message in kept]
    return build_message_set(records, magic=legacy.magic, codec=legacy.codec, log_append_time_ms=legacy.append_time)
