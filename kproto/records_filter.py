"""A stored batch without some of its records: what compaction needs of the formats.

`keyed_records` finds the records of a v2 batch without making objects of them; `batch_of` writes a v2 batch with some
of them (in two steps: `rewritten` records, and the `batch_around` them), `empty_batch` one with none. What is written
is what Apache Kafka's cleaner writes: base offset, last offset delta, sequence, producer and codec stay, whatever is
missing inside; the base timestamp is that of the first record that is left or, with attribute bit 6, the time from
which tombstones and markers of the batch may go (the delete horizon, KIP-534), and the max timestamp is the largest
that is left (of an empty batch: the old one).

Messages of formats 0 and 1 come as single ones or as a wrapper around several; `legacy_messages` looks into both and
`legacy_of` rewrites what is left, the wrapper with the offset of the last message inside.

Offsets count records, timestamps are milliseconds, sizes bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
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

__all__ = [
    "Keyed",
    "Legacy",
    "Rewritten",
    "batch_around",
    "batch_of",
    "empty_batch",
    "keyed_records",
    "legacy_messages",
    "legacy_of",
    "rewritten",
]


class Keyed(NamedTuple):
    """The records of a batch: of each its offset delta, its key, 1 for a tombstone else 0, and where it starts; behind
    the last start stands where the last one ends, for each ends where the next one starts.
    """

    deltas: list[int]
    keys: list[bytes | None]
    nulls: bytearray
    starts: list[int]


_new_tuple = tuple.__new__

Rewritten = tuple[bytes, int, int]
"""Records for another batch: they, the time from which their timestamps count, and the largest of these."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")


def keyed_records(data: bytes, count: int) -> Keyed:
    """The `count` records that are `data` (`barnabas.kproto.records.records_data`). Values and headers are not looked
    into.

    Raises `CorruptRecords`.
    """
    if count < 0:
        raise CorruptRecords(f"negative record count {count}")
    deltas: list[int] = []
    keys: list[bytes | None] = []
    nulls = bytearray()
    starts: list[int] = []
    found: Keyed = _new_tuple(Keyed, (deltas, keys, nulls, starts))
    add_delta, add_key, add_null, add_start = deltas.append, keys.append, nulls.append, starts.append
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
            add_delta(delta >> 1)
            add_key(key)
            add_null(data[position] & 1)  # the sign of the value's length: a negative one is no value
            add_start(start)
            position = end
            index += 1
            if index >= attempt and end < size and data[end] == data[start] and key:
                alike = _add_alike(found, data, start, end, count - index + 1)
                if alike:
                    index += alike
                    position += alike * (end - start)
                else:
                    attempt = index + 16
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if position != size:
        raise CorruptRecords(f"{size - position} bytes left over behind the last of {count} records")
    add_start(size)
    return found


def _add_alike(found: Keyed, data: bytes, start: int, end: int, count: int) -> int:
    """Add the good records behind the one at `start` ... `end` that have its length and whose fields stand at the same
    places; how many there are, 0 if they are too few. A strided slice looks at one byte of all of them. With the one
    at `start` there may be `count`.
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
        return 0
    wide = data[delta_at] > 127
    key_at = delta_at + 2 if wide else delta_at + 1
    repeated.append(key_at)
    key_size = data[key_at]
    if key_size > 127 or key_size & 1:
        return 0
    key_at += 1
    value_at = key_at + (key_size >> 1)

    count = min(count, (len(data) - start) // stride, _ALIKE_MAX)
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
        return 0
    first = found.deltas[-1]
    if wide:
        highs = data[delta_at + 1 : limit + delta_at - start + 2 : stride]
        if lows == _WIDE[0][first : first + count] and highs == _WIDE[1][first : first + count]:
            found.deltas.extend(range(first + 1, first + count))
        elif not highs.isascii() or lows.translate(None, _EVEN_LOW):
            return 0
        else:
            found.deltas.extend([(high << 7) + low - 128 >> 1 for low, high in zip(lows[1:], highs[1:], strict=True)])
    else:
        # A batch's 65th record has a wider delta, so up to there at most.
        count = len(lows) - len(lows.lstrip(_EVEN_ONE))
        if count < 4:
            return 0
        limit = start + (count - 1) * stride
        found.deltas.extend([low >> 1 for low in lows[1:count]])
    span = value_at - key_at
    found.keys.extend(
        [data[place : place + span] for place in range(key_at + stride, limit + key_at - start + 1, stride)]
    )
    found.nulls.extend(data[value_at + stride : limit + value_at - start + 1 : stride].translate(_LOWEST_BIT))
    found.starts.extend(range(end, limit + 1, stride))
    return count - 1


_ALIKE_MAX: Final = 256
"""How many are looked at at once: where something else follows soon, looking far ahead is in vain."""
_EVEN_ONE: Final = bytes(range(0, 128, 2))
_EVEN_LOW: Final = bytes(range(128, 256, 2))
"""First bytes of varints that are not negative: the only one, and the first of several."""
_WIDE: Final = (bytes(2 * i & 127 | 128 for i in range(8192)), bytes(2 * i >> 7 for i in range(8192)))
"""Low and high bytes of the deltas 64 to 8191, if nothing is missing."""
_LOWEST_BIT: Final = bytes(byte & 1 for byte in range(256))


def batch_of(
    header: BatchHeader, data: bytes, places: Sequence[tuple[int, int]], delete_horizon_ms: int | None
) -> bytearray:
    """The v2 batch of `header` and `data` with those records of it that are at `places` (start, end), at least one, and
    no others.

    Raises `CorruptRecords`; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec whose library is missing.
    """
    written = rewritten(header, data, places, delete_horizon_ms)
    return batch_around(header, written, len(places), delete_horizon_ms)


def rewritten(
    header: BatchHeader, data: bytes, places: Sequence[tuple[int, int]], delete_horizon_ms: int | None
) -> Rewritten:
    """The records of `header` and `data` at `places`, at least one, as they stand in a batch of their own. Raises
    `CorruptRecords`.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base = delete_horizon_ms if delete_horizon_ms is not None and delete_horizon_ms >= 0 else None
    if not places:
        raise ValueError("a batch of no records is `empty_batch`")
    deltas = [_timestamp_at(data, start) for start, _ in places]
    newest = header.base_timestamp + max(deltas)[0]
    if base is None and append_time is None and not deltas[0][0] and newest == wrap64(newest):
        # The usual case: the timestamps count from the same time, so the records stay as they are.
        body = b"".join([data[start:end] for start, end in places])
        return body, header.base_timestamp, max(newest, NO_TIMESTAMP)
    times = [wrap64(header.base_timestamp + delta) if append_time is None else append_time for delta, _ in deltas]
    base = times[0] if base is None else base
    parts = []
    for timestamp, (_, rest), (_, end) in zip(times, deltas, places, strict=True):
        delta_bytes = varint(wrap64(timestamp - base))
        parts += [varint(1 + len(delta_bytes) + end - rest), b"\0", delta_bytes, data[rest:end]]
    return b"".join(parts), base, max(*times, NO_TIMESTAMP) if append_time is None else append_time


def batch_around(header: BatchHeader, written: Rewritten, count: int, delete_horizon_ms: int | None) -> bytearray:
    """The v2 batch of `header` with the `count` records `written`, instead of its own. Raises `KafkaError`
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    body, base, max_timestamp = written
    attributes = header.attributes & ~DELETE_HORIZON
    if delete_horizon_ms is not None and delete_horizon_ms >= 0:
        attributes |= DELETE_HORIZON
    codec = attributes & CODEC_MASK
    packed = compress(codec, body) if codec else body
    return _packed(header, packed, attributes, base, max_timestamp, count)


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


def empty_batch(header: BatchHeader) -> bytearray:
    """The 61 bytes that keep a producer's last sequence number, or the last offset of what was cleaned."""
    attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    return _packed(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _packed(
    header: BatchHeader, records: Buffer, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
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
    return batch


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
