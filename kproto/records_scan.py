"""What a leader refuses of a client's v2 batch: the header check and the deep check of every record.

Apache Kafka checks every record of every batch that a client appends, decompressing where needed
(LogValidator.java). `check_client_header` is the part that needs the 61 header bytes only; `validate_records` is the
rest. Both refuse with `RecordsRefused`.

`validate_records` refuses: records that do not fill the batch exactly, a count that does not fit, bad varints,
lengths or header counts, undecodable or linked-lz4 data (Java consumers stop at linked blocks), a missing key where
the topic is compacted, a timestamp out of bounds. It does not refuse, but reports: a max timestamp in the header that
is not that of the records (Apache Kafka corrects it, `stamp_max_timestamp`) and offset deltas that are not 0, 1, 2,
... (Apache Kafka stores such a batch if it is uncompressed and fails on it otherwise; `rebuild_batch(renumber=True)`
repairs both). Large compressed batches with such deltas are refused.

Differences to Apache Kafka 4.3.1, found by sending it what the tests here hold: what does not decompress, and a varint
without end, get UNKNOWN_SERVER_ERROR there and INVALID_RECORD here, at which a producer abandons the batch, too; the
announced lengths of compressed records are not compared with their content there; a batch marked with log-append time
is taken there if the topic's own type is another, and the mark removed, here it is refused.

Cost on CPython 3.11 at 2.5 GHz, per batch 2 us and per record 0.6 us, or 0.35 us where it has the usual layout, or
0.1 us where neighbours have one length and layout (7 us for 15 records of 1 KB, 17 us for 160 of 100 bytes), plus
decompression. The header check costs 0.25 us. Producers of uniform records are spared most of this by
`barnabas.kproto.records_uniform`; where `barnabas-native` is installed a record costs 0.01 us whatever it is like, and
most producers are spared the rest (`barnabas.logdir.segments.familiar`).
Timestamps and their bounds are milliseconds since 1970.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

from barnabas.kproto import compiled
from barnabas.kproto.allowance import Allowance, TooMuchWork
from barnabas.kproto.compression import LZ4, MAX_DECOMPRESSED_BYTES, UNLIMITED, CorruptRecords, TooBig, lz4_is_linked
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import (
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    RecordsRefused,
    iter_records,
    read_header,
    records_data,
)
from barnabas.kproto.varint import read_varint, read_varlong

__all__ = ["RecordsRefused", "Scan", "check_client_header", "validate_records"]

MAX_RECORD_ERRORS: Final = 1000
"""How many bad records are named; one is enough to refuse the batch, and the list travels in the answer."""
SLOW_PASS_UNITS: Final = 5
"""The cost of a record that is checked again to be named."""
MAX_ODD_RECORDS: Final = 10_000
"""Up to how many records a compressed batch with odd offset deltas is accepted, since it must be rebuilt. No client
makes such batches, and 10 KB of zstd can hold ten millions of equal records.
"""


class Scan(NamedTuple):
    """What `validate_records` saw."""

    max_timestamp: int
    """The greatest timestamp of a record, -1 if none has one."""
    consecutive: bool
    """Whether the offset deltas are 0, 1, 2, ..."""


def check_client_header(
    header: BatchHeader, *, log_append_time: bool = False, oldest_ms: int | None = None, newest_ms: int | None = None
) -> None:
    """Refuse what the header alone shows to be wrong with a batch from a client.

    In the order of Apache Kafka: base offset other than 0, offset range and count at odds, control batch, producer id
    without sequence; then a batch marked with log-append time, and a max timestamp beyond `newest_ms` or, unless it
    is -1, before `oldest_ms`; the bounds are not looked at when the topic's own type is `log_append_time`. An honest
    header makes the last two complete for `newest_ms`.

    Raises `RecordsRefused`.
    """
    if header.base_offset != 0:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"The base offset of a batch to append must be 0, but it is {header.base_offset}."
        )
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"The batch has {count} records, but its last offset delta is {header.last_offset_delta}.",
        )
    attributes = header.attributes
    if attributes & 0x28:
        if attributes & 0x20:
            raise RecordsRefused(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records.")
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, "Producers should not set the timestamp type to LogAppendTime."
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"The batch has producer id {header.producer_id}, but its sequence number is {header.base_sequence}.",
        )
    if not log_append_time:
        newest = header.max_timestamp
        if newest_ms is not None and newest > newest_ms:
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP, f"The batch's max timestamp {newest} is later than {newest_ms}."
            )
        if oldest_ms is not None and newest < oldest_ms and newest != NO_TIMESTAMP:
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP, f"The batch's max timestamp {newest} is earlier than {oldest_ms}."
            )


def validate_records(
    buf: Buffer,
    offset: int = 0,
    *,
    keys_required: bool = False,
    oldest_ms: int | None = None,
    newest_ms: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    allowance: Allowance | None = None,
) -> Scan:
    """Check every record of the batch at `offset`, whose header and CRC are taken as checked.

    `keys_required`: the topic is compacted. `oldest_ms`, `newest_ms`: inclusive bounds for timestamps, None for no
    bound (and for topics of log-append time); records without timestamp (-1) pass. `max_bytes` bounds decompression.
    allowance: how much work it may be, None for any.

    Raises `TooMuchWork`; `RecordsRefused`; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec that is unknown or
    whose library is missing.
    """
    header = read_header(buf, offset)
    codec = header.codec
    if codec:
        if codec > 4:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {codec}.")
        if codec == LZ4 and lz4_is_linked(memoryview(buf)[offset + 61 : offset + 66]):
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD, "lz4 data with linked blocks; consumers can read independent ones only."
            )
    count = header.record_count
    room = UNLIMITED if allowance is None else allowance.ask(count)
    try:
        if codec:
            data = records_data(buf, offset, header, min(max_bytes, room << 9), room)
            found = _look_through(data, count, MAX_ODD_RECORDS, room - (len(data) >> 9))
        else:
            found = _look_through(records_data(buf, offset, header), count, count, room)
        all_keys, consecutive, low, high, left = found
    except (TooBig, _OutOfRoom) as exc:
        if allowance is not None:
            raise allowance.exceeded(count + room) from None
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The batch cannot be read: {exc.args[-1]}") from None
    except IndexError:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "The batch ends inside a record.") from None
    except CorruptRecords as exc:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The batch cannot be read: {exc.message}") from None

    if allowance is not None:
        allowance.left -= count + room - left
    base = header.base_timestamp
    earliest = base + low
    latest = base + high
    suspicious = (keys_required and not all_keys) or not -0x8000000000000000 <= earliest <= latest <= 0x7FFFFFFFFFFFFFFF
    if oldest_ms is not None and earliest < oldest_ms:
        suspicious = True
    if newest_ms is not None and latest > newest_ms:
        suspicious = True
    if suspicious:
        if allowance is not None and allowance.left < SLOW_PASS_UNITS * count:
            raise TooMuchWork(is_for_now=False)
        latest = _refuse_bad_records(buf, offset, max_bytes, keys_required, oldest_ms, newest_ms)
    return Scan(latest if latest > NO_TIMESTAMP else NO_TIMESTAMP, consecutive)


class _OutOfRoom(Exception):
    """More headers than are allowed."""


def _look_through(data: bytes, count: int, odd_max: int, room: int) -> compiled.Scanned:
    """As `_scan`, compiled where that is installed."""
    found = compiled.scan(data, count, odd_max, room) if compiled.scan is not None else None
    return _scan(data, count, odd_max, room) if found is None else found


def _scan(data: bytes, count: int, odd_max: int, room: int) -> compiled.Scanned:
    """(every record has a key, offset deltas are 0, 1, 2, ..., lowest and highest timestamp delta, room left) of the
    `count` records that are `data`. More than `odd_max` records must have consecutive offset deltas. room: how many
    headers there may be.

    One pass without objects. The usual record has one- or two-byte varints, so those are unrolled; a field that
    reaches beyond its record, or a record beyond the data, shows at the end of the record, where position and
    announced end must meet. Where neighbours have the same length, `_run` checks many at once, column by column; where
    they have the usual layout at least, `_hop` takes half the time.

    Raises `CorruptRecords`, IndexError or `_OutOfRoom`.
    """
    position = index = attempt = 0
    size = len(data)
    all_keys = consecutive = True
    low = 0x7FFFFFFFFFFFFFFF
    high = -0x8000000000000000
    while index < count:
        start = position
        # Length. In this and the later fields n is the zigzag form: the value twice, odd if negative (negative and
        # even from the slow reader).
        n = first = data[position]
        position += 1
        if n > 127:
            m = data[position]
            if m < 128:
                n += (m << 7) - 128
                position += 1
            else:
                n, position = read_varint(data, position - 1)
                n <<= 1
        end = position + (n >> 1) if not n & 1 else -1
        # one byte of attributes, timestamp delta
        n = data[position + 1]
        position += 2
        if n > 127:
            m = data[position]
            if m < 128:
                n += (m << 7) - 128
                position += 1
                delta = n >> 1 ^ -(n & 1)
            else:
                delta, position = read_varlong(data, position - 1)
        else:
            delta = n >> 1 ^ -(n & 1)
        if delta > high:
            high = delta
        if delta < low:
            low = delta
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
        if n != index + index:
            if count > odd_max:
                raise CorruptRecords(f"offsets are not consecutive, in a compressed batch of {count} records")
            consecutive = False
        # key
        n = data[position]
        position += 1
        if n > 127:
            n, position = read_varint(data, position - 1)
            n <<= 1
        if n & 1 or n < 0:
            all_keys = False
        else:
            position += n >> 1
        # value
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
        if not n & 1 and n > 0:
            position += n >> 1
        # headers
        if data[position]:
            position, room = _skip_headers(data, position, end, room)
        else:
            position += 1
        if position != end:
            raise CorruptRecords("record of another length than it says")
        index += 1
        if position < size and index >= attempt:
            if data[position] == first:
                like, low, high = _run(data, start, end, index - 1, count, low, high)
                index += like
                position += like * (end - start)
            else:
                like, position, low, high = _hop(data, position, index, count, low, high)
                index += like
            if like < 4:
                attempt = index + 16
    if position != size:
        raise CorruptRecords(f"{size - position} bytes left over behind the last of {count} records")
    return all_keys, consecutive, low, high, room


_DELTA_1: Final = bytes(2 * i for i in range(64))
_DELTA_2: Final = (bytes(2 * i & 127 | 128 for i in range(8192)), bytes(2 * i >> 7 for i in range(8192)))
"""The bytes of consecutive offset deltas: of one byte for 0 to 63, low and high of two bytes for 64 to 8191."""
ONE_BYTE_DELTAS: Final = bytes((i >> 1 ^ -(i & 1)) + 64 & 255 for i in range(256))
"""One-byte timestamp deltas, plus 64 so that their order is that of bytes."""
_EVEN_LOW: Final = bytes(range(128, 256, 2))
"""First bytes of a two-byte varint that is not negative."""


def _run(data: bytes, start: int, end: int, index: int, count: int, low: int, high: int) -> tuple[int, int, int]:
    """(how many records behind the good one at `start`...`end`, number `index` of `count`, are built exactly like it,
    new low and high).

    Records of one length and one layout repeat their length bytes, key and value lengths and the empty header count
    at a fixed stride, so one strided slice and one comparison check a field for all of them; offset deltas are
    compared with what they must be. Anything unusual gives 0: the caller continues by single records.
    """
    none = (0, low, high)
    stride = end - start
    limit = 64 if index < 64 else 8192
    records = min(count, limit) - index
    lengths = data[start : start + records * stride : stride]
    records = len(lengths) - len(lengths.lstrip(lengths[:1]))
    if start + records * stride > len(data):
        records -= 1
    if records < 4:
        return none
    span = (records - 1) * stride + 1

    at = start
    fixed = []
    if data[at] > 127:
        at += 1
        if data[at] > 127:
            return none
        fixed.append(at)
    at += 2
    time = data[at : at + span : stride]
    if time[0] < 128:
        if not time.isascii():
            return none
        time = time.translate(ONE_BYTE_DELTAS)
        low = min(low, min(time) - 64)
        high = max(high, max(time) - 64)
    else:
        at += 1
        time_high = data[at : at + span : stride]
        if not time_high.isascii() or time.translate(None, _EVEN_LOW):
            return none
        pairs = list(zip(time_high, time, strict=True))
        b, a = min(pairs)
        low = min(low, (b << 7) + a - 128 >> 1)
        b, a = max(pairs)
        high = max(high, (b << 7) + a - 128 >> 1)
    at += 1
    if index < 64:
        if data[at : at + span : stride] != _DELTA_1[index : index + records]:
            return none
    else:
        if data[at : at + span : stride] != _DELTA_2[0][index : index + records]:
            return none
        at += 1
        if data[at : at + span : stride] != _DELTA_2[1][index : index + records]:
            return none
    at += 1
    n = data[at]
    if n > 127:
        return none
    fixed.append(at)
    at += 1 if n & 1 else 1 + (n >> 1)
    length, after = read_varint(data, at)
    fixed += range(at, after)
    if length > 0:
        after += length
    if after != end - 1:  # headers
        return none
    fixed.append(after)
    for at in fixed:
        if data[at : at + span : stride].strip(data[at : at + 1]):
            return none
    return records - 1, low, high


_USUAL: Final = (struct.Struct("<BBxBBB").unpack_from, struct.Struct("<BBxBHB").unpack_from)
"""Two bytes of length, attributes, timestamp delta, one or two bytes of offset delta, key length."""
_DELTAS: Final = (
    array("H", range(0, 128, 2)),
    array("H", [delta for high in range(1, 128) for delta in range(high << 8 | 128, (high + 1) << 8, 2)]),
)


def _hop(data: bytes, position: int, index: int, count: int, low: int, high: int) -> tuple[int, int, int, int]:
    """(how many records from the one at `position` on, number `index` of `count`, have the usual layout, where they
    end, new low and high).

    Usual are 64 to 8191 bytes, a timestamp delta and a key length of one byte, a value, no headers. What is not usual,
    or not good, is left to the caller.
    """
    wide = index > 63
    unpack = _USUAL[wide]
    deltas = _DELTAS[wide][index - 64 : count - 64] if wide else _DELTAS[wide][index:count]
    fixed = 7 if wide else 6
    taken = 0
    last = -1
    times = set()
    try:
        for delta in deltas:
            n, n_high, time, found, key = unpack(data, position)
            at = position + fixed + (key >> 1)
            m = data[at]
            end = at + 2 + (m >> 1)
            if m > 127:
                m_high = data[at + 1]
                end += (m_high << 6) - 63
                if m_high > 127:
                    break
            # Bytes above 127 have a successor, odd lengths are negative.
            if (
                found != delta
                or (n + (n_high << 7) >> 1) - 62 + position != end
                or n < 128
                or n_high | time | key > 127
                or (n | m | key) & 1
                or data[end - 1]
            ):
                break
            position = end
            if time != last:
                last = time
                times.add(time)
            taken += 1
    except (struct.error, IndexError):  # the data ends
        pass
    for time in times:
        moved = time >> 1 ^ -(time & 1)
        low = min(low, moved)
        high = max(high, moved)
    return taken, position, low, high


def _skip_headers(data: bytes, position: int, end: int, room: int) -> tuple[int, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptRecords(f"record with {count} headers")
    if count and count > room:
        raise _OutOfRoom
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecords(f"record header with key length {length}")
        length, position = read_varint(data, position + length)
        if length > 0:
            position += length
    return position, room - count


def _refuse_bad_records(
    buf: Buffer, offset: int, max_bytes: int, keys_required: bool, oldest_ms: int | None, newest_ms: int | None
) -> int:
    """The slow pass: name the bad records, or find that there are none and return the max timestamp (only unstamped
    records looked bad).
    """
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    latest = NO_TIMESTAMP
    for index, record in enumerate(iter_records(buf, offset, max_bytes=max_bytes)):
        timestamp = record.timestamp
        latest = max(latest, timestamp)
        if keys_required and record.key is None:
            errors.append((index, "A compacted topic cannot take a record without key."))
        elif timestamp != NO_TIMESTAMP:
            if oldest_ms is not None and timestamp < oldest_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"Timestamp {timestamp} is earlier than {oldest_ms}."))
            elif newest_ms is not None and timestamp > newest_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"Timestamp {timestamp} is later than {newest_ms}."))
        if len(errors) == MAX_RECORD_ERRORS:
            break
    if errors:
        raise RecordsRefused(code, f"The batch is refused because of {len(errors)} of its records.", errors)
    return latest
