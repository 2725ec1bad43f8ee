"""Message sets of formats v0 and v1: what clients before 0.11 send and read, and what old logs hold.

    int64 offset, int32 size of what follows,
    uint32 CRC-32 (IEEE) of magic...end, int8 magic, int8 attributes, v1 only: int64 timestamp,
    int32 key length (-1 null), key, int32 value length (-1 null), value

    attributes: bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4), bit 3 (v1) log-append time

A compressed message ("wrapper") has a message set as its value. In v0 the inner offsets are absolute; in v1 they
count from the first inner message, the wrapper carries the last absolute offset, the greatest timestamp, or, with
log-append time, the time of all (KIP-31, KIP-32).

`up_convert` makes what a produce request below version 3 carries into one v2 batch; `down_convert` makes stored
batches fit for a fetch below version 4. Headers, producer ids and sequences are lost on the way down, control batches
are left out. Timestamps are milliseconds, -1 where there is none (all of v0).

Not done: assigning offsets within a stored legacy log; Barnabas writes v2 only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kproto.compression import GZIP, LZ4, MAX_DECOMPRESSED_BYTES, SNAPPY, ZSTD, CorruptRecords, compress, decompress
from kproto.errors import ErrorCode, KafkaError
from kproto.records import Buffer, Record, RecordsRefused, build_batch, iter_records, magic_of, read_header

__all__ = ["Message", "build_message_set", "down_convert", "iter_any", "iter_legacy", "iter_messages", "up_convert"]

OVERHEAD_V0: Final = 14
"""Bytes of a message without key and value, behind offset and size."""
OVERHEAD_V1: Final = 22
_LOG_APPEND_TIME: Final = 0x08
_NO_TIMESTAMP: Final = -1

_OUTER: Final = struct.Struct(">qiIbb")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CODECS: Final = (0, GZIP, SNAPPY, LZ4)


class Message(NamedTuple):
    """One message as it stands in a set, not looked into when compressed."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size: int
    """Bytes, offset and size field included."""

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & _LOG_APPEND_TIME != 0


# ---- reading


def iter_messages(buf: Buffer, offset: int = 0) -> Iterator[Message]:
    """The messages of a set, CRC-checked, wrappers unopened. One that is cut off at the end is left out, as in
    answers to fetches.

    Raises `CorruptRecords` for an impossible size, a wrong CRC, another magic, fields that do not fit the size.
    """
    end = len(buf)
    while offset + 12 <= end:
        (size,) = _INT32.unpack_from(buf, offset + 8)
        if size < OVERHEAD_V0:
            raise CorruptRecords(f"message size {size} is less than {OVERHEAD_V0}")
        if offset + 12 + size > end:
            return
        yield _read_message(buf, offset, size)
        offset += 12 + size


def _read_message(buf: Buffer, offset: int, size: int) -> Message:
    view = memoryview(buf)[offset : offset + 12 + size]
    message_offset, _, crc, magic, attributes = _OUTER.unpack_from(view)
    actual = zlib.crc32(view[16:])
    if actual != crc:
        raise CorruptRecords(f"message checksum is {actual:#010x}, the message says {crc:#010x}")
    timestamp = _NO_TIMESTAMP
    position = 18
    if magic == 1:
        if size < OVERHEAD_V1:
            raise CorruptRecords(f"message size {size} is less than {OVERHEAD_V1}")
        (timestamp,) = _INT64.unpack_from(view, 18)
        position = 26
    elif magic != 0:
        raise CorruptRecords(f"magic {magic} where 0 or 1 is expected")
    key, position = _read_bytes(view, position)
    value, position = _read_bytes(view, position)
    if position != len(view):
        raise CorruptRecords("message of another length than it says")
    return Message(message_offset, magic, attributes, timestamp, key, value, len(view))


def _read_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    try:
        (length,) = _INT32.unpack_from(view, position)
    except struct.error:
        raise CorruptRecords("message ends inside a length") from None
    position += 4
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise CorruptRecords(f"field of {length} bytes where {len(view) - position} are left")
    return bytes(view[position : position + length]), position + length


def iter_legacy(buf: Buffer, offset: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of a set, wrappers opened (each to at most `max_bytes`). Raises `CorruptRecords`."""
    for message in iter_messages(buf, offset):
        if message.codec:
            for inner in _unwrap(message, max_bytes):
                yield Record(inner.offset, inner.timestamp, inner.key, inner.value)
        else:
            yield Record(message.offset, message.timestamp, message.key, message.value)


def _unwrap(wrapper: Message, max_bytes: int) -> list[Message]:
    """The inner messages with absolute offsets and their own or, with log-append time, the wrapper's timestamp."""
    if wrapper.codec not in _CODECS:
        raise CorruptRecords(f"codec {wrapper.codec} in a message of format v{wrapper.magic}")
    if wrapper.value is None:
        raise CorruptRecords("compressed message without a value")
    data = decompress(
        wrapper.codec, wrapper.value, max_bytes=max_bytes, lz4_v0=wrapper.codec == LZ4 and wrapper.magic == 0
    )
    messages = list(iter_messages(data))
    if not messages:
        raise CorruptRecords("compressed message with no messages inside")
    if any(message.codec for message in messages):
        raise CorruptRecords("compressed message inside a compressed message")
    base = 0
    if wrapper.magic == 1 and wrapper.offset != 0:
        # Some builds of librdkafka leave the wrapper's offset at 0: then the inner ones are taken as they are.
        base = wrapper.offset - messages[-1].offset
        if base < 0:
            raise CorruptRecords(
                f"compressed message at offset {wrapper.offset}, but its last message is number {messages[-1].offset}"
            )
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None
    return [
        message._replace(
            offset=base + message.offset,
            timestamp=message.timestamp if append_time is None or message.magic == 0 else append_time,
        )
        for message in messages
    ]


def iter_any(buf: Buffer, offset: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of data in any mixture of formats v0, v1 and v2 (control records included). Raises
    `CorruptRecords`.
    """
    for position, size, magic in _iter_entries(buf, offset):
        if magic == 2:
            yield from iter_records(buf, position, max_bytes=max_bytes)
        else:
            yield from iter_legacy(memoryview(buf)[position : position + size], max_bytes=max_bytes)


def _iter_entries(buf: Buffer, offset: int) -> Iterator[tuple[int, int, int]]:
    """(position, size, magic) of every whole batch or message."""
    end = len(buf)
    while offset + 17 <= end:
        (size,) = _INT32.unpack_from(buf, offset + 8)
        if size < OVERHEAD_V0:
            raise CorruptRecords(f"batch or message size {size} is less than {OVERHEAD_V0}")
        magic = magic_of(buf, offset)
        if offset + 12 + size > end:
            return
        yield offset, 12 + size, magic
        offset += 12 + size


# ---- building


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    codec: int = 0,
    level: int | None = None,
    log_append_time_ms: int | None = None,
) -> bytes:
    """A message set of format `magic` (0 or 1) with the records' own offsets; with a codec, one wrapper around all of
    them.

    Headers are dropped, in v0 timestamps too. `log_append_time_ms` (v1) gives all records that time. Raises
    ValueError for no records, another magic, or zstd, which these formats do not know.
    """
    batch = list(records)
    if not batch:
        raise ValueError("a message set needs a record")
    if magic not in (0, 1) or codec not in _CODECS:
        raise ValueError(f"no messages of format v{magic} with codec {codec}")
    attributes = 0
    if magic == 1 and log_append_time_ms is not None:
        attributes = _LOG_APPEND_TIME
        batch = [record._replace(timestamp=log_append_time_ms) for record in batch]
    if not codec:
        return b"".join(
            _message(record.offset, magic, attributes, record.timestamp, record.key, record.value) for record in batch
        )
    base = batch[0].offset if magic == 1 else 0
    inner = b"".join(
        _message(record.offset - base, magic, attributes, record.timestamp, record.key, record.value)
        for record in batch
    )
    value = compress(codec, inner, level=level, lz4_v0=codec == LZ4 and magic == 0)
    return _message(batch[-1].offset, magic, attributes | codec, max(record.timestamp for record in batch), None, value)


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"".join(
        (
            bytes((magic, attributes)),
            _INT64.pack(timestamp) if magic else b"",
            _INT32.pack(-1 if key is None else len(key)),
            key or b"",
            _INT32.pack(-1 if value is None else len(value)),
            value or b"",
        )
    )
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


# ---- conversion


def up_convert(buf: Buffer, *, codec: int | None = None, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
    """What an old producer sent, as one v2 batch with base offset 0, ready for the checks and the append of any other
    batch.

    `codec`: of the new batch; None keeps the producer's. A set may hold plain messages of one magic or one wrapper.

    Raises `CorruptRecords` for damaged data, `RecordsRefused` for what Apache Kafka refuses: an empty set, mixed
    magics, more beside a wrapper, log-append time set by a producer.
    """
    messages = list(iter_messages(buf))
    if not messages:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "The message set is empty.")
    codecs = {message.codec for message in messages}
    if len(messages) > 1 and codecs != {0}:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "A compressed message must be the only one of its message set.")
    if len({message.magic for message in messages}) > 1:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "The message set mixes message formats.")
    if any(message.is_log_append_time for message in messages):
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, "Producers should not set the timestamp type to LogAppendTime."
        )
    source = messages[0].codec
    if source:
        wrapper_magic = messages[0].magic
        messages = _unwrap(messages[0], max_bytes)
        wrong = [
            (i, f"A message of format v{m.magic} inside one of v{wrapper_magic}.")
            for i, m in enumerate(messages)
            if m.magic != wrapper_magic
        ]
        if wrong:
            raise RecordsRefused(ErrorCode.INVALID_RECORD, "The compressed message mixes message formats.", wrong)
    return build_batch(
        (Record(0, message.timestamp, message.key, message.value) for message in messages),
        codec=source if codec is None else codec,
    )


def down_convert(buf: Buffer, magic: int, *, first_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Stored data (any formats, cut off or not at the end) as message sets of format `magic` (0 or 1) for an old
    consumer.

    Entries of that format or an older one pass unchanged. Control batches are left out. Of an uncompressed batch the
    records before `first_offset` are left out, as some builds of librdkafka rely on; a compressed one stays one
    wrapper with all its records.

    Raises `CorruptRecords` for damaged data; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE (76) at a zstd batch, which no
    such consumer can read.
    """
    parts: list[bytes] = []
    view = memoryview(buf)
    for position, size, entry_magic in _iter_entries(buf, 0):
        entry = view[position : position + size]
        if entry_magic <= magic:
            parts.append(bytes(entry))
            continue
        append_time = None
        records: Sequence[Record]
        if entry_magic == 2:
            header = read_header(entry)
            if header.is_control:
                continue
            codec = header.codec
            if codec == ZSTD:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd batches cannot be converted for consumers this old."
                )
            records = list(iter_records(entry, max_bytes=max_bytes))
            if header.is_log_append_time:
                append_time = header.max_timestamp
        else:
            codec = entry[17] & 7
            records = list(iter_legacy(entry, max_bytes=max_bytes))
        if not codec:
            records = [record for record in records if record.offset >= first_offset]
        if records:
            parts.append(build_message_set(records, magic=magic, codec=codec, log_append_time_ms=append_time))
    return b"".join(parts)
