"""Looking through a batch stops where the allowance ends, whatever the batch is made of, and nothing has happened."""

from __future__ import annotations

import random
from collections.abc import Callable

import cramjam
import pytest

from barnabas.kproto.allowance import BATCH_MAX, ROUND_MAX, Allowance, TooMuchWork
from barnabas.kproto.compression import GZIP, LZ4, SNAPPY, ZSTD, TooBig, compress, decompress
from barnabas.kproto.records import BATCH_OVERHEAD, Record, build_batch, iter_records, read_header, seal_batch
from barnabas.kproto.records_recode import recode_batch
from barnabas.kproto.records_scan import RecordsRefused, validate_records
from barnabas.kproto.tests.records.record_samples import NOW
from barnabas.kproto.varint import varint

CODECS = range(5)


def sealed(codec: int, data: bytes, count: int = 1) -> bytearray:
    batch = bytearray(BATCH_OVERHEAD) + data
    seal_batch(batch, 0, -1, codec, count - 1, (NOW, NOW), (-1, -1, -1), count)
    return batch


def record_with_headers(count: int) -> bytes:
    body = b"\0\0\0\x01\x01" + varint(count) + b"\0\0" * count
    return varint(len(body)) + body


def many_records(count: int) -> bytes:
    out = bytearray()
    for i in range(count):
        body = b"\0\0" + varint(i) + b"\x01" + varint(i % 3) + bytes(i % 3) + b"\0"
        out += varint(len(body)) + body
    return bytes(out)


LONG: dict[str, Callable[[], bytearray]] = {
    "records": lambda: sealed(0, many_records(BATCH_MAX + 1), BATCH_MAX + 1),
    "records, compressed": lambda: sealed(ZSTD, compress(ZSTD, many_records(BATCH_MAX + 1)), BATCH_MAX + 1),
    "headers of one record": lambda: sealed(0, record_with_headers(BATCH_MAX + 1)),
    "headers of one record, compressed": lambda: sealed(LZ4, compress(LZ4, record_with_headers(BATCH_MAX))),
    "headers of many records": lambda: sealed(0, headers_of_many(200, 63), 200),
    "gzip that grows": lambda: sealed(GZIP, compress(GZIP, bytes(20_000_000))),
    "snappy that grows": lambda: sealed(SNAPPY, compress(SNAPPY, bytes(20_000_000))),
    "a snappy block that grows": lambda: sealed(SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(20_000_000)))),
    "lz4 that grows": lambda: sealed(LZ4, compress(LZ4, bytes(20_000_000))),
    "zstd that grows": lambda: sealed(ZSTD, compress(ZSTD, bytes(20_000_000))),
    "gzip members": lambda: sealed(GZIP, compress(GZIP, b"") * (BATCH_MAX + 1)),
    "snappy blocks": lambda: sealed(SNAPPY, compress(SNAPPY, b"a") * (BATCH_MAX // 2 + 1)),
    "lz4 frames": lambda: sealed(LZ4, compress(LZ4, b"") * (BATCH_MAX + 1)),
    "zstd frames": lambda: sealed(ZSTD, compress(ZSTD, b"") * (BATCH_MAX + 1)),
    "zstd blocks": lambda: sealed(ZSTD, b"\x28\xb5\x2f\xfd\x00\x58" + b"\x00\x00\x00" * BATCH_MAX + b"\x01\x00\x00"),
    "zstd that is to be skipped": lambda: sealed(ZSTD, (b"\x50\x2a\x4d\x18" + bytes(4)) * (BATCH_MAX + 1)),
}


def headers_of_many(records: int, headers: int) -> bytes:
    out = bytearray()
    for i in range(records):
        body = b"\0\0" + varint(i) + b"\x01\x01" + varint(headers) + b"\0\0" * headers
        out += varint(len(body)) + body
    return bytes(out)


@pytest.mark.parametrize("shape", LONG)
def test_what_is_too_much_for_one_go(shape: str) -> None:
    batch = LONG[shape]()
    before = bytes(batch)
    allowance = Allowance()
    with pytest.raises(TooMuchWork) as caught:
        validate_records(batch, allowance=allowance)
    assert not caught.value.is_for_now
    assert batch == before
    # What was done in vain counts, and is bounded.
    assert ROUND_MAX - BATCH_MAX - 1 <= allowance.left <= ROUND_MAX
    try:
        validate_records(batch)
    except RecordsRefused:
        assert "grows" in shape or shape in {
            "gzip members",
            "lz4 frames",
            "zstd frames",
            "zstd blocks",
            "zstd that is to be skipped",
            "snappy blocks",
        }


@pytest.mark.parametrize("codec", CODECS)
def test_an_ordinary_batch_is_charged(codec: int) -> None:
    records = [Record(0, NOW + i % 5, b"k", b"v" * (i % 50), [("h", b"")] * (i % 2)) for i in range(400)]
    batch = build_batch(records, codec=codec)
    allowance = Allowance()
    assert validate_records(batch, allowance=allowance) == validate_records(batch)
    used = ROUND_MAX - allowance.left
    plain = len(build_batch(records)) - BATCH_OVERHEAD
    assert used == 400 + 200 + (plain >> 9 if codec else 0)
    # In the end there is too little for another one; in the next round it can come again.
    for _ in range(ROUND_MAX // used - 1):
        validate_records(batch, allowance=allowance)
    with pytest.raises(TooMuchWork) as caught:
        validate_records(batch, allowance=allowance)
    assert caught.value.is_for_now
    allowance.renew()
    validate_records(batch, allowance=allowance)


def test_naming_many_bad_records_is_work_too() -> None:
    batch = build_batch([Record(0, NOW, None, b"v") for _ in range(9000)])
    with pytest.raises(TooMuchWork) as caught:
        validate_records(batch, keys_required=True, allowance=Allowance())
    assert not caught.value.is_for_now
    with pytest.raises(RecordsRefused):
        validate_records(batch, keys_required=True)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_pieces(codec: int) -> None:
    piece = compress(codec, b"plain")
    # A stream of snappy has a header and a block, as has a frame of zstd; one of lz4 has a block and its end.
    pieces = 3 if codec == GZIP else 6
    assert decompress(codec, piece * 3, pieces_max=pieces) == b"plain" * 3
    with pytest.raises(TooBig, match="pieces"):
        decompress(codec, piece * 3, pieces_max=pieces - 1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_large_data_is_put_together_in_steps(codec: int) -> None:
    rng = random.Random(codec)
    data = b"".join(rng.randbytes(1000) * rng.choice([1, 40, 900]) for _ in range(100))
    assert len(data) > 16 << 20
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, packed, max_bytes=len(data)) == data
    with pytest.raises(TooBig):
        decompress(codec, packed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recoded(source: int, target: int) -> None:
    seed = 10 * source + target
    rng = random.Random(seed)
    records = [
        Record(0, NOW + rng.randrange(100), rng.choice([None, b"k"]), rng.randbytes(rng.randrange(200)), [("h", b"x")])
        for _ in range(50)
    ]
    batch = build_batch(
        records, codec=source, producer_id=7, producer_epoch=1, base_sequence=5, transactional=True, leader_epoch=3
    )
    recoded = recode_batch(batch, target)
    before, after = read_header(batch), read_header(recoded)
    assert after == before._replace(
        attributes=before.attributes & ~7 | target, batch_length=after.batch_length, crc=after.crc
    ), f"seed {seed}"
    assert after.size == len(recoded)
    assert list(iter_records(recoded)) == list(iter_records(batch))
    validate_records(recoded)
