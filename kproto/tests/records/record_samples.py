"""Random records and hand-made batches for the tests of the record modules."""

from __future__ import annotations

import random
import struct

from barnabas.kproto.compression import compress
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import BATCH_OVERHEAD, Record

NOW = 1_763_700_000_000


def some_records(rng: random.Random, count: int | None = None, *, plain: bool = False) -> list[Record]:
    """Records with offsets 0, 1, ...; `plain` ones look alike, as those of a load generator do."""
    count = rng.randrange(1, 150) if count is None else count
    timestamp = NOW
    size: int | None = rng.randrange(300)
    key_size = rng.choice([None, 0, 3, 40, 100])
    steps = rng.choice([[0, 1], [0, 0, 1, 7], [40], [20_000]])
    out = []
    for i in range(count):
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if not plain:
            size = rng.choice([None, 0, rng.randrange(10), rng.randrange(500), rng.randrange(20_000)])
            key_size = rng.choice([None, 0, rng.randrange(200)])
            steps = [0, -3, 1, 100, 10_000, 3_000_000]
            if rng.random() < 0.3:
                headers = tuple(
                    (rng.choice(["", "trace", "größe", "x" * 200]), rng.choice([None, b"", rng.randbytes(9)]))
                    for _ in range(rng.randrange(1, 5))
                )
        key = None if key_size is None else rng.randbytes(key_size)
        value = None if size is None else rng.randbytes(size)
        out.append(Record(i, timestamp, key, value, headers))
        timestamp += rng.choice(steps)
    return out


def with_crc(batch: bytearray) -> bytearray:
    """The batch after an edit, with its checksum made right: what a buggy or hostile client would send."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def batch_around(data: bytes, count: int, *, codec: int = 0, max_timestamp: int = NOW) -> bytearray:
    """A right header around any bytes."""
    batch = bytearray(BATCH_OVERHEAD) + compress(codec, data)
    fields = (0, len(batch) - 12, -1, 2, 0, codec, count - 1, NOW, max_timestamp, -1, -1, -1, count)
    struct.pack_into(">qiibIhiqqqhii", batch, 0, *fields)
    return with_crc(batch)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))
