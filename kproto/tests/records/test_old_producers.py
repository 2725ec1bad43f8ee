"""What old producers send, and what becomes of it: each row was sent to Apache Kafka 3.9.1 (Produce 0 to 2), which
answered the error of the row or stored the batch of the row.

Where Apache Kafka answers UNKNOWN_SERVER_ERROR because an exception escaped (undecodable wrappers, unknown codecs,
negative timestamps), the row has our more telling code and says so.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from barnabas.kproto.compression import compress
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import Record, build_batch, check_batch, iter_records
from barnabas.kproto.records_legacy import up_convert
from barnabas.kproto.tests.records.record_samples import NOW

CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
CODEC = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
APPEND_TIME = 8


def message(
    magic: int, key: bytes | None, value: bytes | None, offset: int = 0, timestamp: int = NOW, attributes: int = 0
) -> bytes:
    fields = b"".join(struct.pack(">i", -1 if field is None else len(field)) + (field or b"") for field in (key, value))
    body = bytes((magic & 255, attributes)) + (struct.pack(">q", timestamp) if magic == 1 else b"") + fields
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def m0(value: bytes | None = b"v", offset: int = 0, key: bytes | None = b"k") -> bytes:
    return message(0, key, value, offset)


def m1(value: bytes | None = b"v", offset: int = 0, timestamp: int = NOW, attributes: int = 0) -> bytes:
    return message(1, b"k", value, offset, timestamp, attributes)


def bad(data: bytes) -> bytes:
    """With a wrong checksum."""
    return data[:12] + bytes((data[12] ^ 1,)) + data[13:]


def wrap(magic: int, codec: int, inner: bytes, offset: int = 0, timestamp: int = NOW, attributes: int = 0) -> bytes:
    packed = compress(codec, inner, lz4_v0=magic == 0 and codec == 3)
    return message(magic, None, packed, offset, timestamp, codec | attributes)


def three(codec: int, magic: int) -> bytes:
    make = m1 if magic else m0
    return wrap(magic, codec, b"".join(make(b"v%d" % i, i) for i in range(3)), 2)


class Row(NamedTuple):
    name: str
    sent: bytes
    becomes: object
    """An error code, None for nothing (success without an append), or (codec, [(timestamp, value), ...])."""
    options: Mapping[str, object] = MappingProxyType({})


def plain(*values: tuple[int, bytes | None], codec: int = 0) -> tuple[int, list[tuple[int, bytes | None]]]:
    return codec, list(values)


V2 = bytes(build_batch([Record(0, NOW, b"k", b"v")]))
OLD_TIMES = plain((-1, b"v0"), (-1, b"v1"), (-1, b"v2"))[1]
TIMES = plain((NOW, b"v0"), (NOW, b"v1"), (NOW, b"v2"))[1]

ROWS = [
    Row("v0", m0(), plain((-1, b"v"))),
    Row("v1", m1(), plain((NOW, b"v"))),
    Row("null value, no key", m0(b"a") + m0(b"b", key=None) + m0(None), plain((-1, b"a"), (-1, b"b"), (-1, None))),
    Row("offsets do not matter", m0(b"a", 7) + m0(b"b", 5), plain((-1, b"a"), (-1, b"b"))),
    Row("times", m1(b"a") + m1(b"b", 0, NOW + 5) + m1(b"c", 0, -1), plain((NOW, b"a"), (NOW + 5, b"b"), (-1, b"c"))),
    Row("no times", m1(timestamp=-1), plain((-1, b"v"))),
    Row("time 0", m1(timestamp=0), plain((0, b"v"))),
    Row("negative time (-1 there)", m1(timestamp=-5), TIMESTAMP),
    *(Row(f"codec {codec} v0", three(codec, 0), (codec, OLD_TIMES)) for codec in (1, 2, 3)),
    *(Row(f"codec {codec} v1", three(codec, 1), (codec, TIMES)) for codec in (1, 2, 3)),
    Row("lz4 v0 with the right checksum", message(0, None, compress(3, m0()), 0, 0, 3), plain((-1, b"v"), codec=3)),
    Row("lz4 v1 with the faulty one (-1 there)", message(1, None, compress(3, m1(), lz4_v0=True), 0, 0, 3), INVALID),
    Row("nothing", b"", None),
    *(Row(f"{size} bytes", m0()[:size], None) for size in (5, 12, 16, 17, 27)),
    Row("v2 cut off", V2[:-1], None),
    Row("a cut one is dropped", m0() + m0(b"second")[:-1], plain((-1, b"v"))),
    Row("a few bytes are dropped", m1() + bytes(5), plain((NOW, b"v"))),
    Row("zeros are not", m1() + bytes(13), CORRUPT),
    Row("behind a wrapper too", three(1, 1) + m1()[:-1], (1, TIMES)),
    Row("wrong checksum", bad(m0()), CORRUPT),
    Row("wrong checksum later", m1() + bad(m1()), CORRUPT),
    Row("wrong checksum before other faults", m0() + bad(m1()), CORRUPT),
    *(Row(f"size {size}", struct.pack(">qi", 0, size) + bytes(20), CORRUPT) for size in (-1, 0, 13)),
    Row("magic 3", message(3, b"k", b"v"), CORRUPT),
    Row("magic -1", message(-1, b"k", b"v"), CORRUPT),
    Row("mixed", m0() + m1(), INVALID),
    Row("v1 and v2", m1() + V2, INVALID),
    Row("two wrappers", three(1, 1) * 2, INVALID),
    Row("plain and wrapper", m1() + three(1, 1), INVALID),
    Row("wrapper and plain", three(1, 1) + m1(), INVALID),
    Row("mixed inside", wrap(1, 1, m1() + m0(), 1), INVALID),
    Row("v0 inside v1", wrap(1, 1, m0() + m0(), 1), INVALID),
    Row("v1 inside v0", wrap(0, 1, m1() + m1(), 1), INVALID),
    Row("wrapper inside wrapper", wrap(1, 1, three(1, 1)), INVALID),
    Row("wrong checksum inside", wrap(1, 1, m1() + bad(m1(b"w", 1)), 1), CORRUPT),
    Row("wrong checksum of the wrapper", bad(three(1, 1)), CORRUPT),
    Row("cut off inside", wrap(1, 1, m1() + m1(b"w", 1)[:-1]), plain((NOW, b"v"), codec=1)),
    Row("only cut off inside", wrap(1, 1, m1()[:-1]), INVALID),
    Row("wrapper of nothing", wrap(1, 1, b""), INVALID),
    Row("wrapper without value", message(1, None, None, attributes=1), INVALID),
    *(
        Row(f"{name} (-1 there)", message(1, None, b"garbage!!", attributes=codec), INVALID)
        for codec, name in ((1, "gzip"), (2, "snappy"), (3, "lz4"))
    ),
    Row("zstd", wrap(1, 4, m1()), INVALID),
    *(Row(f"codec {codec} (-1 there)", message(0, None, b"x", attributes=codec), CODEC) for codec in (5, 6, 7)),
    Row("wrapper at offset 0", wrap(1, 1, m1(b"a", 0) + m1(b"b", 1), 0), plain((NOW, b"a"), (NOW, b"b"), codec=1)),
    Row("inner offsets 0, 0", wrap(1, 1, m1(b"a") + m1(b"b"), 1), plain((NOW, b"a"), (NOW, b"b"), codec=1)),
    Row("wrapper at 3, inner last 9", wrap(1, 1, m1(b"a", 8) + m1(b"b", 9), 3), INVALID),
    Row("v0 inner offsets odd", wrap(0, 1, m0(b"a", 5) + m0(b"b", 5), 1), plain((-1, b"a"), (-1, b"b"), codec=1)),
    Row("wrapper of another time", wrap(1, 1, m1(), 0, NOW - 1000), plain((NOW, b"v"), codec=1)),
    Row("unknown attributes", m1(attributes=0xF0), plain((NOW, b"v"))),
    Row("v0 has no append time", message(0, b"k", b"v", attributes=APPEND_TIME), plain((-1, b"v"))),
    Row("append time", m1(attributes=APPEND_TIME), plain((NOW, b"v"))),
    Row("append time without a time", m1(timestamp=-1, attributes=APPEND_TIME), TIMESTAMP),
    Row("append time, also the topic's", m1(attributes=APPEND_TIME), TIMESTAMP, {"topic_append_time": True}),
    Row("append time of a wrapper", wrap(1, 1, m1(), attributes=APPEND_TIME), plain((NOW, b"v"), codec=1)),
    Row("the same, also the topic's", wrap(1, 1, m1(), attributes=APPEND_TIME), TIMESTAMP, {"topic_append_time": True}),
    Row("append time inside", wrap(1, 1, m1(attributes=APPEND_TIME)), plain((NOW, b"v"), codec=1)),
    Row("too large", m0(b"x" * 300), TOO_LARGE, {"max_message_bytes": 200}),
    Row("too large, wrong checksum later", m0(b"x" * 300) + bad(m0()), TOO_LARGE, {"max_message_bytes": 200}),
    Row("wrong checksum, too large later", bad(m0()) + m0(b"x" * 300), CORRUPT, {"max_message_bytes": 200}),
    Row("many too large", m0(b"y" * 80) * 3, TOO_LARGE, {"max_message_bytes": 200}),
    Row("small when converted", m1(b"y") * 12, plain(*[(NOW, b"y")] * 12), {"max_message_bytes": 200}),
    Row("another codec", three(1, 0), (2, OLD_TIMES), {"codec": 2}),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_as_apache_kafka(row: Row) -> None:
    try:
        batch = up_convert(row.sent, **row.options)  # type: ignore[arg-type]
    except KafkaError as error:
        assert error.code is row.becomes, error.message  # noqa: PT017
        return
    if batch is None:
        assert row.becomes is None
        return
    header = check_batch(batch)
    records = list(iter_records(batch))
    assert (header.codec, [(record.timestamp, record.value) for record in records]) == row.becomes
    assert [record.offset for record in records] == list(range(len(records)))
    assert header.record_count == header.last_offset_delta + 1 == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.base_offset, header.attributes & ~7, header.producer_id) == (0, 0, -1)


def test_batches_are_no_message_sets() -> None:
    with pytest.raises(KafkaError) as caught:
        up_convert(V2)
    assert caught.value.code is CORRUPT
