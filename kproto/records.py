"""Record batches of message format v2 (KIP-98): header, check, offset assignment, building, iteration.

A batch is 61 bytes of header and the records; with a codec set, the records alone are compressed:

    offset size field
         0    8 base offset
         8    4 batch length: bytes after this field (whole batch - 12)
        12    4 partition leader epoch
        16    1 magic = 2
        17    4 CRC-32C of byte 21 to the end
        21    2 attributes: 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon set
        23    4 last offset delta
        27    8 base timestamp (delete horizon when bit 6 is set)
        35    8 max timestamp (the append time when bit 3 is set)
        43    8 producer id, -1 none
        51    2 producer epoch
        53    4 base sequence
        57    4 record count
        61      records

    record: varint length, int8 attributes (unused), varlong timestamp delta, varint offset delta, varint key length
    (-1 null), key, varint value length (-1 null), value, varint header count, headers: varint key length, key, varint
    value length (-1 null), value

All integers are big-endian, varints zigzag. Base offset and leader epoch lie outside the CRC, so `assign` patches
them in place, without touching records or checksum. Timestamps are milliseconds since 1970, sizes bytes. Older
formats: `barnabas.kproto.records_legacy`. What a broker refuses of a client's batch: `validate_records`, which lives in
`barnabas.kproto.records_scan`.

Not done: nothing is known here of delete horizons beyond keeping them (compaction sets them).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.kproto.compression import MAX_DECOMPRESSED_BYTES, UNLIMITED, CorruptRecords, compress, decompress
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.varint import read_varint, read_varlong, varint, wrap64

__all__ = [
    "BATCH_OVERHEAD",
    "LOG_OVERHEAD",
    "BatchHeader",
    "CorruptRecords",
    "Record",
    "RecordsRefused",
    "assign",
    "build_batch",
    "build_control_batch",
    "check_batch",
    "iter_headers",
    "iter_records",
    "magic_of",
    "parse_control_record",
    "read_header",
    "rebuild_batch",
    "stamp_log_append_time",
    "stamp_max_timestamp",
]

LOG_OVERHEAD: Final = 12
"""Bytes of offset and length in front of every batch or message, in all formats."""
BATCH_OVERHEAD: Final = 61
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
MAX_TIMESTAMP_OFFSET: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__


class RecordsRefused(KafkaError):
    """A well-formed batch that the topic does not take: INVALID_RECORD or INVALID_TIMESTAMP. The whole batch
    is refused.

    `record_errors`: (index in the batch, message) of the bad records when it is about single ones, for
    ProduceResponse v8 and later.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, as they stand there."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + 12

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
        return self.attributes & 0x07

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & 0x08 != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & 0x10 != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & 0x20 != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones and markers; None when not set."""
        return self.base_timestamp if self.attributes & 0x40 else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences run from 0 to 2**31-1 and start over. -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


class Record(NamedTuple):
    """One record. `headers` are (key, value) pairs; keys that are not UTF-8 survive as surrogates."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def magic_of(buf: Buffer, offset: int = 0) -> int:
    """The message format (0, 1 or 2) of the batch or message at `offset`: the byte stands at the same place in all
    three.

    Raises `CorruptRecords` when it is another number or beyond the end.
    """
    if offset + MAGIC_OFFSET >= len(buf):
        raise CorruptRecords("records end before the magic byte")
    magic = buf[offset + MAGIC_OFFSET]
    if magic > 2:
        raise CorruptRecords(f"unknown magic {magic}")
    return magic


def read_header(buf: Buffer, offset: int = 0) -> BatchHeader:
    """The header of the v2 batch at `offset`; neither its records nor its CRC are looked at, and the records need not
    be there.

    Raises `CorruptRecords` when fewer than 61 bytes are there, the magic is not 2 or the length is impossible.
    """
    try:
        header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf, offset))
    except struct.error:
        raise CorruptRecords(f"records end inside a batch header: {len(buf) - offset} bytes left") from None
    if header[3] != 2:
        raise CorruptRecords(f"magic {header[3]} where 2 is expected")
    if header[1] < 49:
        raise CorruptRecords(f"batch length {header[1]} is less than the batch header needs")
    return header


def check_batch(buf: Buffer, offset: int = 0) -> BatchHeader:
    """The header of the v2 batch at `offset` after checking that the batch is whole and its CRC right.

    Raises `CorruptRecords` otherwise. Bytes behind the batch are not looked at.
    """
    header = read_header(buf, offset)
    end = offset + 12 + header[1]
    if end > len(buf):
        raise CorruptRecords(f"batch of {header[1] + 12} bytes, but only {len(buf) - offset} are there")
    view = buf if type(buf) is memoryview else memoryview(buf)
    crc = crc32c(view[offset + 21 : end])
    if crc != header[4]:
        raise CorruptRecords(f"batch checksum is {crc:#010x}, the header says {header[4]:#010x}")
    return header


def iter_headers(buf: Buffer, offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole v2 batch from `offset` on; a batch cut off at the end is left out, as in
    answers to fetches.

    CRCs are not checked. Raises `CorruptRecords` for another magic or an impossible length.
    """
    end = len(buf)
    while offset + 61 <= end:
        header = read_header(buf, offset)
        after = offset + 12 + header[1]
        if after > end:
            return
        yield offset, header
        offset = after


def assign(buf: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `offset`, in place; neither is covered by the CRC."""
    _INT64.pack_into(buf, offset, base_offset)
    _INT32.pack_into(buf, offset + 12, leader_epoch)


def stamp_log_append_time(buf: bytearray | memoryview, offset: int, append_time_ms: int) -> None:
    """Give all records of the batch at `offset` the broker's time (`message.timestamp.type=LogAppendTime`), in place;
    the CRC is computed again.
    """
    _stamp(buf, offset, append_time_ms, LOG_APPEND_TIME)


def stamp_max_timestamp(buf: bytearray | memoryview, offset: int, max_timestamp: int) -> None:
    """Correct the max timestamp of the batch at `offset`, in place, and mark it as made by the producer; the CRC is
    computed again.

    Apache Kafka does this for every batch whose header is wrong about its records, as the time index relies on it.
    """
    _stamp(buf, offset, max_timestamp, 0)


def _stamp(buf: bytearray | memoryview, offset: int, max_timestamp: int, time_type: int) -> None:
    (attributes,) = _INT16.unpack_from(buf, offset + ATTRIBUTES_OFFSET)
    _INT16.pack_into(buf, offset + ATTRIBUTES_OFFSET, attributes & ~LOG_APPEND_TIME | time_type)
    _INT64.pack_into(buf, offset + MAX_TIMESTAMP_OFFSET, max_timestamp)
    (batch_length,) = _INT32.unpack_from(buf, offset + 8)
    view = memoryview(buf)
    _UINT32.pack_into(buf, offset + CRC_OFFSET, crc32c(view[offset + ATTRIBUTES_OFFSET : offset + 12 + batch_length]))


# ---- reading records


def records_data(
    buf: Buffer,
    offset: int,
    header: BatchHeader,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    pieces_max: int = UNLIMITED,
) -> bytes:
    """The plain bytes of the batch's records: copied, or decompressed to at most `max_bytes`, out of at most
    `pieces_max` pieces (see `decompress`). Raises `CorruptRecords`.
    """
    view = memoryview(buf)[offset + 61 : offset + 12 + header.batch_length]
    if len(view) != header.batch_length - 49:
        raise CorruptRecords(f"batch of {header.size} bytes, but only {len(buf) - offset} are there")
    codec = header.attributes & CODEC_MASK
    return decompress(codec, view, max_bytes=max_bytes, pieces_max=pieces_max) if codec else bytes(view)


def iter_records(buf: Buffer, offset: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of the one batch at `offset`, decompressed. The CRC is not checked (`check_batch` does).

    Raises `CorruptRecords`, at the latest with the last record: bad varints, a count that does not fit, bytes left
    over, undecodable data.
    """
    header = read_header(buf, offset)
    count = header.record_count
    if count < 0:
        raise CorruptRecords(f"negative record count {count}")
    if count == 0:  # compaction leaves such shells; what follows the header is not looked at, as in Apache Kafka
        return
    data = records_data(buf, offset, header, max_bytes)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(count):
        try:
            record, position = _read_record(data, position, base_offset, base_timestamp, append_time)
        except IndexError:
            raise CorruptRecords("records end inside a record") from None
        yield record
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes left over behind the last of {count} records")


def _read_record(
    data: bytes, position: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    """The record at `position` and where the next one starts. Raises `CorruptRecords` or IndexError."""
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptRecords(f"record length {length} where {len(data) - position} bytes are left")
    timestamp_delta, position = read_varlong(data, position + 1)
    offset_delta, position = read_varint(data, position)

    length, position = read_varint(data, position)
    key = None
    if length >= 0:
        key = data[position : position + length]
        position += length
    length, position = read_varint(data, position)
    value = None
    if length >= 0:
        value = data[position : position + length]
        position += length

    count, position = read_varint(data, position)
    headers: Headers = ()
    if count:
        if not 0 <= count <= end - position:
            raise CorruptRecords(f"record with {count} headers")
        headers, position = _read_headers(data, position, count)
    if position != end:
        raise CorruptRecords("record of another length than it says")
    timestamp = append_time
    if timestamp is None:
        timestamp = base_timestamp + timestamp_delta
        if not -0x8000000000000000 <= timestamp <= 0x7FFFFFFFFFFFFFFF:
            timestamp = wrap64(timestamp)
    return Record(base_offset + offset_delta, timestamp, key, value, headers), position


def _read_headers(data: bytes, position: int, count: int) -> tuple[Headers, int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecords(f"record header with key length {length}")
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = read_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


# ---- building


_NULL: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"


def append_record(
    out: bytearray, offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    """Add one record to `out`, which may already hold others."""
    parts = [
        b"\x00",
        varint(timestamp_delta),
        varint(offset_delta),
        _NULL if key is None else varint(len(key)),
        key or b"",
        _NULL if value is None else varint(len(value)),
        value or b"",
    ]
    if headers:
        parts.append(varint(len(headers)))
        for header_key, header_value in headers:
            encoded = header_key.encode("utf-8", "surrogateescape")
            parts.append(varint(len(encoded)))
            parts.append(encoded)
            parts.append(_NULL if header_value is None else varint(len(header_value)))
            parts.append(header_value or b"")
    else:
        parts.append(_NO_HEADERS)
    body = b"".join(parts)
    out += varint(len(body))
    out += body


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One v2 batch, in a new writable buffer.

    Records get the offsets `base_offset`, `base_offset + 1`, ..., whatever they carry; with `keep_offsets` their own,
    rising, which is how compaction keeps gaps (and `last_offset_delta` the range of the batch). `log_append_time_ms`
    gives every record that time; `delete_horizon_ms` sets the horizon of compaction. `level` is the codec's
    compression level.

    Raises ValueError for no records without `last_offset_delta`; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec
    whose library is missing.
    """
    batch = list(records)
    if last_offset_delta is None:
        if not batch:
            raise ValueError("a batch needs a record")
        last_offset_delta = batch[-1].offset - base_offset if keep_offsets else len(batch) - 1
    attributes = codec if batch else 0
    max_timestamp = NO_TIMESTAMP
    base_timestamp = batch[0].timestamp if batch else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    data = bytearray(BATCH_OVERHEAD)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
        if delete_horizon_ms is None:
            base_timestamp = log_append_time_ms
    for i, (offset, timestamp, key, value, headers) in enumerate(batch):
        if log_append_time_ms is not None:
            timestamp = log_append_time_ms
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = offset - base_offset if keep_offsets else i
        append_record(data, delta, wrap64(timestamp - base_timestamp), key, value, headers)
    if codec and batch:
        packed = compress(codec, memoryview(data)[BATCH_OVERHEAD:], level=level)
        data = bytearray(BATCH_OVERHEAD) + packed
    times = base_timestamp, max_timestamp
    producer = producer_id, producer_epoch, base_sequence
    seal_batch(data, base_offset, leader_epoch, attributes, last_offset_delta, times, producer, len(batch))
    return data


def seal_batch(
    data: bytearray,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    times: tuple[int, int],
    producer: tuple[int, int, int],
    count: int,
) -> None:
    """Write the header in front of `count` records in `data`, and the checksum. times: base and greatest timestamp.
    producer: id, epoch, first sequence number.
    """
    size = len(data) - LOG_OVERHEAD
    _HEADER.pack_into(
        data, 0, base_offset, size, leader_epoch, 2, 0, attributes, last_offset_delta, *times, *producer, count
    )
    with memoryview(data) as view:
        _UINT32.pack_into(data, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))


def rebuild_batch(
    buf: Buffer,
    offset: int = 0,
    *,
    codec: int | None = None,
    level: int | None = None,
    renumber: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """The batch at `offset` rewritten in a new buffer: with another codec (`compression.type`), with offsets
    counted from the base offset (`renumber`), or with the broker's time. Producer state, offsets and flags are kept.
    Raises `CorruptRecords` as `iter_records` does.
    """
    header = read_header(buf, offset)
    if log_append_time_ms is None and header.is_log_append_time:
        log_append_time_ms = header.max_timestamp
    records = list(iter_records(buf, offset))
    return build_batch(
        records,
        base_offset=header.base_offset,
        codec=header.codec if codec is None else codec,
        level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.partition_leader_epoch,
        log_append_time_ms=log_append_time_ms,
        keep_offsets=not renumber,
        last_offset_delta=len(records) - 1 if renumber and records else header.last_offset_delta,
        delete_horizon_ms=header.delete_horizon_ms,
    )


# ---- control batches

_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKER: Final = struct.Struct(">hi")
ABORT: Final = 0
COMMIT: Final = 1


def build_control_batch(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The end marker of a transaction: 78 bytes, one record, no sequence, never compressed."""
    record = Record(
        timestamp=timestamp,
        key=_CONTROL_KEY.pack(0, COMMIT if commit else ABORT),
        value=_END_MARKER.pack(0, coordinator_epoch),
    )
    return build_batch(
        (record,),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def parse_control_record(record: Record) -> tuple[int, int | None]:
    """(type, coordinator epoch) of a record of a control batch: type 0 is abort, 1 commit; the epoch is None for
    other types.

    Raises `CorruptRecords` when key or value are too short or of a negative version.
    """
    if record.key is None or len(record.key) < 4:
        raise CorruptRecords("control record without a whole key")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptRecords(f"control record key of version {version}")
    if kind not in (ABORT, COMMIT):
        return kind, None
    if record.value is None or len(record.value) < 6:
        raise CorruptRecords("transaction marker without a whole value")
    version, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    if version < 0:
        raise CorruptRecords(f"transaction marker of version {version}")
    return kind, coordinator_epoch
