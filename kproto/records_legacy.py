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
are left out. Timestamps are milliseconds, -1 where there is none (all of v0). Both exist as generators that come up
for air every `STEP` messages, for an event loop that has other things to do (30 to 60 ms per megabyte).

Not done: assigning offsets within a stored legacy log; Barnabas writes v2 only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.kproto.compression import (
    GZIP,
    LZ4,
    MAX_DECOMPRESSED_BYTES,
    SNAPPY,
    ZSTD,
    Compressor,
    CorruptRecords,
    decompress,
)
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import (
    ATTRIBUTES_OFFSET,
    BATCH_OVERHEAD,
    CRC_OFFSET,
    LOG_OVERHEAD,
    Buffer,
    Record,
    RecordsRefused,
    append_record,
    iter_records,
    magic_of,
    read_header,
)
from barnabas.kproto.varint import wrap64

__all__ = [
    "Message",
    "build_message_set",
    "down_convert",
    "down_converting",
    "iter_any",
    "iter_legacy",
    "iter_messages",
    "unwrap",
    "up_convert",
    "up_converting",
]

STEP: Final = 256
"""Messages between two steps of a conversion: about a millisecond. Fewer when they take STEP_BYTES together."""
STEP_BYTES: Final = 64 * 1024
WRAPPER_PIECES_MAX: Final = 16 * 1024
"""Members, frames or blocks of a wrapper. Java writes blocks of 32 KiB and more, so these would be half a GiB."""

OVERHEAD_V0: Final = 14
"""Bytes of a message without key and value, behind offset and size."""
OVERHEAD_V1: Final = 22
_LOG_APPEND_TIME: Final = 0x08
_NO_TIMESTAMP: Final = -1

_OUTER: Final = struct.Struct(">qiIbb")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_CODECS: Final = (0, GZIP, SNAPPY, LZ4)


class WrongChecksum(CorruptRecords):
    """A message whose CRC-32 is not that of its bytes."""


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
        raise WrongChecksum(f"message checksum is {actual:#010x}, the message says {crc:#010x}")
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
            for inner in unwrap(message, max_bytes):
                yield Record(inner.offset, inner.timestamp, inner.key, inner.value)
        else:
            yield Record(message.offset, message.timestamp, message.key, message.value)


def unwrap(wrapper: Message, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Message]:
    """The messages inside of a compressed one, with absolute offsets and their own or, with log-append time, the
    wrapper's timestamp. Raises `CorruptRecords`.
    """
    data = _open_wrapper(wrapper, max_bytes)
    base = 0
    if wrapper.magic == 1 and wrapper.offset != 0:
        # Some builds of librdkafka leave the wrapper's offset at 0: then the inner ones are taken as they are.
        last = _last_offset(data)
        base = wrapper.offset - last
        if base < 0:
            raise CorruptRecords(
                f"compressed message at offset {wrapper.offset}, but its last message is number {last}"
            )
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None
    for message in _inner(data):
        yield message._replace(
            offset=base + message.offset,
            timestamp=message.timestamp if append_time is None or message.magic == 0 else append_time,
        )


def _open_wrapper(wrapper: Message, max_bytes: int) -> bytes:
    """The plain message set inside."""
    if wrapper.codec not in _CODECS:
        raise CorruptRecords(f"codec {wrapper.codec} in a message of format v{wrapper.magic}")
    if wrapper.value is None:
        raise CorruptRecords("compressed message without a value")
    return decompress(
        wrapper.codec,
        wrapper.value,
        max_bytes=max_bytes,
        lz4_v0=wrapper.codec == LZ4 and wrapper.magic == 0,
        pieces_max=WRAPPER_PIECES_MAX,
    )


def _inner(data: bytes) -> Iterator[Message]:
    empty = True
    for message in iter_messages(data):
        if message.codec:
            raise CorruptRecords("compressed message inside a compressed message")
        empty = False
        yield message
    if empty:
        raise CorruptRecords("compressed message with no messages inside")


def _last_offset(data: bytes) -> int:
    """Offset field of the last whole message; 0 without one."""
    position = last = 0
    while position + 12 <= len(data):
        (size,) = _INT32.unpack_from(data, position + 8)
        if size < OVERHEAD_V0:
            raise CorruptRecords(f"message size {size} is less than {OVERHEAD_V0}")
        if position + 12 + size > len(data):
            break
        (last,) = _INT64.unpack_from(data, position)
        position += 12 + size
    return last


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
    while offset + 12 <= end:
        (size,) = _INT32.unpack_from(buf, offset + 8)
        if size < OVERHEAD_V0:
            raise CorruptRecords(f"batch or message size {size} is less than {OVERHEAD_V0}")
        if offset + 17 > end:
            return
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
    if magic not in (0, 1) or codec not in _CODECS:
        raise ValueError(f"no messages of format v{magic} with codec {codec}")
    if codec:
        data = b"".join(_wrap(records, magic, codec, level, log_append_time_ms))
    else:
        data = b"".join(_singles(records, magic, -(1 << 63), log_append_time_ms))
    if not data:
        raise ValueError("a message set needs a record")
    return data


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


def up_convert(
    buf: Buffer,
    *,
    codec: int | None = None,
    level: int | None = None,
    max_message_bytes: int | None = None,
    topic_append_time: bool = False,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytearray | None:
    """What an old producer sent, as one v2 batch with base offset 0, ready for the checks and the append of any other
    batch. None when there is no whole message, which Apache Kafka takes for success; a last one that is cut off is
    dropped, as there.

    `codec`, `level`: of the new batch; None keeps the producer's, at its default level. `max_message_bytes` bounds
    every single message, and what certainly stays larger than that when converted is refused early.
    `topic_append_time`: the topic's timestamps are the broker's. `max_bytes` bounds decompression. A set may hold plain
    messages of one magic or one wrapper.

    Raises `CorruptRecords` for damaged messages, `KafkaError` MESSAGE_TOO_LARGE and UNSUPPORTED_COMPRESSION_TYPE (an
    unknown codec), and `RecordsRefused` for what else Apache Kafka refuses: mixed magics, more beside a wrapper, a
    wrapper that cannot be read, log-append time on messages without a time or for such a topic, negative timestamps.
    """
    steps = up_converting(
        buf,
        codec=codec,
        level=level,
        max_message_bytes=max_message_bytes,
        topic_append_time=topic_append_time,
        max_bytes=max_bytes,
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            batch: bytearray | None = end.value
            return batch


def up_converting(
    buf: Buffer,
    *,
    codec: int | None = None,
    level: int | None = None,
    max_message_bytes: int | None = None,
    topic_append_time: bool = False,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Generator[None, None, bytearray | None]:
    """`up_convert` in steps; the batch is the value of its end."""
    limit = max_bytes if max_message_bytes is None or codec else max_message_bytes
    messages: list[Message] = []
    smallest = 0
    v2 = False
    for position, size, magic in _iter_entries(buf, 0):
        if max_message_bytes is not None and size > max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"The message has {size} bytes, max.message.bytes is {max_message_bytes}."
            )
        if magic == 2:
            v2 = True
            continue
        messages.append(_read_message(buf, position, size - 12))
        # Every message costs 7 bytes at least beside key and value, in the new format.
        smallest += size - (27 if magic else 19)
        if smallest > limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"The messages take more than {limit} bytes in one batch.")
        if len(messages) % STEP == 0:
            yield
    if not messages:
        if v2:
            raise CorruptRecords("magic 2 where 0 or 1 is expected")
        return None
    if v2 or len({message.magic for message in messages}) > 1:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "The message set mixes message formats.")
    source = max(message.codec for message in messages)
    if source and len(messages) > 1:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "A compressed message must be the only one of its message set.")
    if source > LZ4 and source != ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {source}.")
    batch = _Batch(source if codec is None else codec, level)
    yield from _add_messages(batch, messages, topic_append_time, max_bytes)
    return batch.build()


class _Batch:
    """A v2 batch that grows message by message: no producer, no headers, offsets counted from 0."""

    __slots__ = ("_base_timestamp", "_codec", "_count", "_max_timestamp", "_packer", "_plain")

    def __init__(self, codec: int, level: int | None) -> None:
        self._codec = codec
        self._packer = Compressor(codec, level=level)
        self._plain = bytearray()
        self._count = 0
        self._base_timestamp = self._max_timestamp = _NO_TIMESTAMP

    def add(self, timestamp: int, key: bytes | None, value: bytes | None) -> bool:
        """True when that was the end of a step."""
        if self._count == 0:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        append_record(self._plain, self._count, wrap64(timestamp - self._base_timestamp), key, value, ())
        self._count += 1
        if self._count % STEP and len(self._plain) < STEP_BYTES:
            return False
        self._packer.add(self._plain)
        self._plain.clear()
        return True

    def build(self) -> bytearray:
        self._packer.add(self._plain)
        data = bytearray(BATCH_OVERHEAD) + self._packer.finish()
        count = self._count
        times = self._base_timestamp, self._max_timestamp
        _BATCH.pack_into(
            data, 0, 0, len(data) - LOG_OVERHEAD, -1, 2, 0, self._codec, count - 1, *times, -1, -1, -1, count
        )
        with memoryview(data) as view:
            _UINT32.pack_into(data, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))
        return data


def _add_messages(
    batch: _Batch, messages: list[Message], topic_append_time: bool, max_bytes: int
) -> Generator[None, None, None]:
    outer_magic = messages[0].magic
    append_time = messages[0].is_log_append_time  # of a wrapper it counts for all inside
    source: Iterable[Message] = messages
    if wrapped := messages[0].codec:
        source = unwrap(messages[0], max_bytes)
    try:
        for number, message in enumerate(source):
            if message.magic != outer_magic:
                wrong = (number, f"A message of format v{message.magic} inside one of v{outer_magic}.")
                raise RecordsRefused(ErrorCode.INVALID_RECORD, "The compressed message mixes message formats.", [wrong])
            timestamp = message.timestamp
            if not wrapped:
                append_time = message.is_log_append_time
            if append_time and (topic_append_time or timestamp == _NO_TIMESTAMP):
                raise RecordsRefused(
                    ErrorCode.INVALID_TIMESTAMP, "Producers should not set the timestamp type to LogAppendTime."
                )
            if timestamp < _NO_TIMESTAMP:
                raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {timestamp} is negative.")
            if batch.add(timestamp, message.key, message.value):
                yield
    except WrongChecksum:
        raise
    except CorruptRecords as error:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"The compressed message cannot be read: {error.message}"
        ) from None


def down_convert(buf: Buffer, magic: int, *, first_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Stored data (any formats, cut off or not at the end) as message sets of format `magic` (0 or 1) for an old
    consumer.

    Entries of that format or an older one pass unchanged. Control batches are left out. Of an uncompressed batch the
    records before `first_offset` are left out, as some builds of librdkafka rely on; a compressed one stays one
    wrapper with all its records.

    Raises `CorruptRecords` for damaged data; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE at a zstd batch, which no such
    consumer can read.
    """
    return b"".join(down_converting(buf, magic, first_offset=first_offset, max_bytes=max_bytes))


def down_converting(
    buf: Buffer, magic: int, *, first_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[bytes]:
    """`down_convert` in steps: message by message, a wrapper as a whole, with empty bytes now and then where a step
    gives nothing. What came before an error is good.
    """
    view = memoryview(buf)
    for position, size, entry_magic in _iter_entries(buf, 0):
        entry = view[position : position + size]
        if entry_magic <= magic:
            yield bytes(entry)
            continue
        append_time = None
        records: Iterable[Record]
        if entry_magic == 2:
            header = read_header(entry)
            if header.is_control:
                yield b""
                continue
            codec = header.codec
            if codec == ZSTD:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd batches cannot be converted for consumers this old."
                )
            records = iter_records(entry, max_bytes=max_bytes)
            if header.is_log_append_time:
                append_time = header.max_timestamp
        else:
            codec = entry[17] & 7
            records = iter_legacy(entry, max_bytes=max_bytes)
        if codec:
            yield from _wrap(records, magic, codec, None, append_time)
        else:
            yield from _singles(records, magic, first_offset, append_time)


def _singles(records: Iterable[Record], magic: int, first_offset: int, append_time: int | None) -> Iterator[bytes]:
    attributes, append_time = _time_attributes(magic, append_time)
    skipped = 0
    for offset, timestamp, key, value, _ in records:
        if offset < first_offset:
            skipped += 1
            if skipped % STEP == 0:
                yield b""
            continue
        yield _message(offset, magic, attributes, timestamp if append_time is None else append_time, key, value)


def _wrap(
    records: Iterable[Record], magic: int, codec: int, level: int | None, append_time: int | None
) -> Iterator[bytes]:
    """One wrapper around all records, in steps of nothing; no wrapper around no records."""
    attributes, append_time = _time_attributes(magic, append_time)
    packer = Compressor(codec, level=level, lz4_v0=codec == LZ4 and magic == 0)
    inner = bytearray()
    base = offset = number = 0
    latest = _NO_TIMESTAMP
    for number, (offset, timestamp, key, value, _) in enumerate(records, 1):
        if append_time is not None:
            timestamp = append_time
        if number == 1 and magic == 1:
            base = offset
        if timestamp > latest:
            latest = timestamp
        inner += _message(offset - base, magic, attributes, timestamp, key, value)
        if number % STEP == 0 or len(inner) >= STEP_BYTES:
            packer.add(inner)
            inner.clear()
            yield b""
    if number:
        packer.add(inner)
        yield _message(offset, magic, attributes | codec, latest, None, packer.finish())


def _time_attributes(magic: int, append_time: int | None) -> tuple[int, int | None]:
    if magic == 0 or append_time is None:
        return 0, None
    return _LOG_APPEND_TIME, append_time
