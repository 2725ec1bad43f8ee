"""Incoming batches: their origins, what a log rejects, what it changes.

The order of checks and their errors are Apache Kafka's. The common case is written out in `PartitionLog.append`;
here is what lies beside it.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from typing import NamedTuple

from barnabas.kproto.allowance import Allowance, TooMuchWork
from barnabas.kproto.compression import MAX_DECOMPRESSED_BYTES, ZSTD, TooBig
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import (
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecords,
    check_batch,
    read_header,
    rebuild_batch,
    stamp_max_timestamp,
)
from barnabas.kproto.records_recode import recode_batch
from barnabas.kproto.records_scan import RecordsRefused, check_client_header, validate_records
from barnabas.logdir.files.config import LONG_MAX, LogConfig
from barnabas.logdir.segments.familiar import has_further_rules

Buffer = bytearray | memoryview
RECODED_BYTES_MAX = 64 * 1024
"""What is compressed with an `Allowance`: one to three milliseconds, at the highest levels ten times as long."""
RECODED_UNITS = 2000
OLD_MESSAGE_MIN = 14
"""Bytes after the length of a message of format 0 without key and value: CRC, magic, attributes, two lengths."""
_unpack_old = struct.Struct(">qi").unpack_from


class AppendOrigin(Enum):
    """Who appends decides what is checked."""

    CLIENT = "client"
    """A producer: exactly one batch, no control records, sequences checked."""
    COORDINATOR = "coordinator"
    """The broker itself: one or more batches, control records allowed, sequences not checked."""
    REPLICATION = "replication"
    """From a leader: offsets and epochs stay as they are, only their order and the checksums are checked. A last batch
    that is cut off does not count."""


class AppendInfo(NamedTuple):
    """What became of an append. Offsets of the first and last record; of the earlier batch if it is a `duplicate`,
    which is not written again.

    `log_append_time_ms` is -1 unless the broker's time was put into the records (or, for a duplicate, that batch's
    timestamp, as in Apache Kafka).
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Accepted(NamedTuple):
    """A client's batch after a closer look: what to write. `buf` is the caller's buffer or a new one;
    `log_append_time_ms` is to be stamped into it unless it is -1.
    """

    buf: memoryview
    max_timestamp: int
    log_append_time_ms: int


def must_rewrite(config: LogConfig) -> bool:
    """Whether batches for the topic may be stored otherwise than they come: `rewrite` is to see them all."""
    return config.log_append_time or config.codec is not None


def must_validate(config: LogConfig) -> bool:
    """Whether the records of every batch for the topic are to be checked, not of suspicious ones only."""
    return config.validate_records or has_further_rules(config)


def refuse_shape(view: memoryview) -> None:
    """Raise for what is not exactly one batch of format 2 with base offset 0: KafkaError CORRUPT_MESSAGE or
    INVALID_RECORD.
    """
    if not view:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "There is no batch.")
    if len(view) >= 17 and view[16] < 2:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"Records of format {view[16]} where 2 is expected.")
    header = read_header(view)
    if header.base_offset:
        check_client_header(header)
    if header.size > len(view):
        raise CorruptRecords(f"batch of {header.size} bytes, but only {len(view)} are there")
    check_batch(view)
    raise RecordsRefused(ErrorCode.INVALID_RECORD, "The records are more than one batch.")


def refuse_header(header: BatchHeader) -> None:
    """Raise for a header that a client must not send: KafkaError INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE or
    INVALID_RECORD.
    """
    check_client_header(header)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {header.codec}.")


def too_large(size: int, limit: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"The batch has {size} bytes, max.message.bytes is {limit}.")


def validate(
    view: memoryview, config: LogConfig, now_ms: int, max_timestamp: int, allowance: Allowance | None = None
) -> Accepted:
    """Check every record of a client's batch whose header and checksum are valid; `max_timestamp` is the header's.

    Puts a wrong max timestamp right, and numbers odd offsets again. Raises KafkaError MESSAGE_TOO_LARGE,
    INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD (`RecordsRefused` with the bad records);
    `TooMuchWork` beyond the allowance, and then nothing has happened.
    """
    if allowance is not None and allowance.prepared_for is config:
        return Accepted(view, max_timestamp, -1)
    newest = oldest = None
    if not config.log_append_time:
        after, before = config.message_timestamp_after_max_ms, config.message_timestamp_before_max_ms
        newest = now_ms + after if after != LONG_MAX else None
        oldest = now_ms - before if before != LONG_MAX else None
    scan = validate_records(view, keys_required=config.compact, oldest_ms=oldest, newest_ms=newest, allowance=allowance)
    codec, renumber = 0, False
    if not scan.consecutive:
        codec = view[22] & 7 if config.codec is None else config.codec
        renumber = bool(codec or view[22] & 7)
        if renumber and allowance is not None:
            raise TooMuchWork(is_for_now=False)
    if scan.max_timestamp != max_timestamp:
        stamp_max_timestamp(view, 0, scan.max_timestamp)
    if renumber:
        view = _rebuilt(view, codec, config)
    return Accepted(view, scan.max_timestamp, -1)


def prepare(view: memoryview, config: LogConfig, now_ms: int) -> memoryview:
    """Do beforehand, in any thread, what may take long when a client's batch is appended to a log with this
    configuration: check its records, and recompress them. Returns what to append, with
    `Allowance(prepared_for=config)`. `view` may be changed in place.

    Raises KafkaError as `validate` does. What `append` would refuse for other reasons is returned as it is.
    """
    try:
        header = check_batch(view)
        if header.size != len(view) or header.size > config.max_message_bytes or header.codec > ZSTD:
            return view
        check_client_header(header)
    except KafkaError:
        return view
    if must_validate(config) or header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        view = validate(view, config, now_ms, header.max_timestamp).buf
    return rewrite(view, config, now_ms).buf


def rewrite(view: memoryview, config: LogConfig, now_ms: int, allowance: Allowance | None = None) -> Accepted:
    """Give a client's good batch the topic's codec where the topic asks for it, and say which time of the broker's is
    to be stamped into it. That is the caller's to do, when nothing can refuse the batch any more: a buffer that is
    refused must stay as it came.

    Raises KafkaError MESSAGE_TOO_LARGE if it is too large then, INVALID_RECORD if it cannot be read; `TooMuchWork`
    beyond the allowance.
    """
    codec = config.codec
    if codec is not None and codec != view[22] & 7:
        view = _recoded(view, codec, config, allowance)
    if config.log_append_time:
        return Accepted(view, now_ms, now_ms)
    return Accepted(view, read_header(view).max_timestamp, -1)


def _rebuilt(view: memoryview, codec: int, config: LogConfig) -> memoryview:
    try:
        rebuilt = rebuild_batch(view, codec=codec, level=config.compression_level, renumber=True)
    except CorruptRecords as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The batch cannot be read: {error.message}") from None
    if len(rebuilt) > config.max_message_bytes:
        raise too_large(len(rebuilt), config.max_message_bytes)
    return memoryview(rebuilt)


def _recoded(view: memoryview, codec: int, config: LogConfig, allowance: Allowance | None) -> memoryview:
    if allowance is None:
        if not must_validate(config):
            return _rebuilt(view, codec, config)  # the records were not checked
        max_bytes = MAX_DECOMPRESSED_BYTES
    else:
        if not must_validate(config) or len(view) > RECODED_BYTES_MAX:
            raise TooMuchWork(is_for_now=False)
        if allowance.left < RECODED_UNITS:
            raise TooMuchWork(is_for_now=True)
        allowance.left -= RECODED_UNITS
        max_bytes = RECODED_BYTES_MAX
    try:
        recoded = recode_batch(view, codec, level=config.compression_level, max_bytes=max_bytes)
    except CorruptRecords as error:
        if allowance is not None and isinstance(error, TooBig):
            raise TooMuchWork(is_for_now=False) from None
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The batch cannot be read: {error.message}") from None
    if len(recoded) > config.max_message_bytes:
        raise too_large(len(recoded), config.max_message_bytes)
    return memoryview(recoded)


def split(view: memoryview, *, cut_off: bool = False) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch, all whole and with right checksums. Raises `CorruptRecords`.

    cut_off: the last one may be cut off, as in an answer to a fetch; it is left out, and there may be no other. Then
    there may be messages of formats 0 and 1 as well: an old leader's log may still have some.
    """
    batches: list[tuple[int, BatchHeader]] = []
    position = 0
    end = len(view)
    while position < end:
        if cut_off and is_cut_off(view, position):
            return batches
        old = cut_off and end > position + 16 and view[position + 16] < 2
        header = _check_message(view, position) if old else check_batch(view, position)
        if header.last_offset_delta < 0:
            raise CorruptRecords(f"last offset delta {header.last_offset_delta}")
        batches.append((position, header))
        position += header.size
    if not batches and not cut_off:
        raise CorruptRecords("no batch")
    return batches


def is_cut_off(view: memoryview, position: int) -> bool:
    """The batch at `position` ends behind the end of the buffer."""
    left = len(view) - position
    if left < LOG_OVERHEAD:
        return True
    length = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
    return length + LOG_OVERHEAD > left


def _check_message(view: memoryview, position: int) -> BatchHeader:
    """What the header of a batch would say of one message of format 0 or 1, which may hold compressed ones. Its offset
    is that of the last. Raises `CorruptRecords`.
    """
    offset, length = _unpack_old(view, position)
    end = position + LOG_OVERHEAD + length
    magic = view[position + 16] if length > 4 else 0
    if length < (OLD_MESSAGE_MIN + 8 if magic else OLD_MESSAGE_MIN):
        raise CorruptRecords(f"message of {length} bytes at position {position}")
    crc = int.from_bytes(view[position + 12 : position + 16], "big")
    if zlib.crc32(view[position + 16 : end]) != crc:
        raise CorruptRecords(f"wrong checksum of the message at position {position}")
    timestamp = int.from_bytes(view[position + 18 : position + 26], "big", signed=True) if magic else -1
    return BatchHeader(offset, length, -1, magic, crc, view[position + 17], 0, timestamp, timestamp, -1, -1, -1, 1)
