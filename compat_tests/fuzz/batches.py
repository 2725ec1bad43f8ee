"""What a Produce carries: batches that are right, that lie in their header, that are damaged inside, that unpack to
far more than they weigh, and the message sets of the old formats.

Building costs more than sending, so batches come from a stock that is renewed one by one; what differs from request to
request (producer, sequence, lies) is written into the header, and the checksum made right again, or not.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

from barnabas.kproto.compression import compress
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import BATCH_OVERHEAD, Record, build_batch, build_control_batch, seal_batch
from barnabas.kproto.records_legacy import build_message_set
from compat_tests.fuzz.damage import damaged
from compat_tests.fuzz.pools import Producer

STOCK = 64
NOW_MS = 1_750_000_000_000
CODECS = (0, 0, 0, 1, 2, 3, 4)
TRANSACTIONAL, CONTROL = 0x10, 0x20
# (offset, layout, values): the fields of a batch's header and what to put there.
LIES: tuple[tuple[int, str, tuple[int, ...]], ...] = (
    (0, ">q", (-1, 1, 2**63 - 1, -(2**63))),
    (8, ">i", (-1, 0, 48, 49, 50, 1000, 2**31 - 1)),
    (12, ">i", (-2, 0, 5, 2**31 - 1)),
    (16, ">b", (-1, 0, 1, 3, 127)),
    (21, ">h", (5, 6, 7, 8, 16, 32, 48, 64, 127, -1, 0x4000)),
    (23, ">i", (-1, 0, 1, 100, 2**31 - 1)),
    (27, ">q", (-1, 0, 1, 2**63 - 1, -(2**63), NOW_MS * 1000)),
    (35, ">q", (-1, 0, 1, 2**63 - 1, -(2**63))),
    (43, ">q", (-1, 0, 1, 2**63 - 1, -2)),
    (51, ">h", (-1, 0, 1, 32_767, -2)),
    (53, ">i", (-1, 0, 1, 2**31 - 1, -2)),
    (57, ">i", (-1, 0, 1, 2, 1000, 2**31 - 1)),
)


class Batches:
    """A stock of batches for one generator of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._plain = [self._built() for _ in range(STOCK)]
        self._odd: dict[Callable[[random.Random], bytes], bytes] = {}

    def records(self, producer: Producer) -> bytes | None:
        """The value of a `records` field."""
        rng = self._rng
        dice = rng.random()
        if dice < 0.03:
            return rng.choice((None, b"", rng.randbytes(rng.choice((1, 16, 17, 60, 61, 62, 200)))))
        if dice < 0.045:
            return self._special()
        batch = bytearray(rng.choice(self._plain))
        if rng.random() < 0.05:
            self._plain[rng.randrange(STOCK)] = self._built()
        self._sign(batch, producer)
        if dice < 0.2:
            self._lie(batch)
        elif dice < 0.28:
            return damaged(rng, batch)
        elif dice < 0.33:  # damage that the checksum does not tell of
            batch = bytearray(bytes(batch[:BATCH_OVERHEAD]) + damaged(rng, batch[BATCH_OVERHEAD:]))
            struct.pack_into(">i", batch, 8, len(batch) - 12)
        elif dice < 0.37:
            batch = batch * 2
        if rng.random() < 0.95 and len(batch) >= BATCH_OVERHEAD:
            seal(batch)
        return bytes(batch)

    def message_set(self) -> bytes | None:
        """The same for Produce 0 to 2."""
        rng = self._rng
        if rng.random() < 0.1:
            return self.records(Producer(None, -1, -1))
        magic = rng.randrange(2)
        data = build_message_set(self._some(), magic=magic, codec=rng.choice((0, 0, 1, 2, 3)))
        return damaged(rng, data) if rng.random() < 0.4 else data

    def _sign(self, batch: bytearray, producer: Producer) -> None:
        rng = self._rng
        if rng.random() < 0.5 or producer.producer_id < 0:
            return
        if producer.transactional_id is not None and rng.random() < 0.7:
            attributes = struct.unpack_from(">h", batch, 21)[0] | TRANSACTIONAL
            struct.pack_into(">h", batch, 21, attributes)
        sequence = rng.choice((0, 0, 1, 2, 5, 2**31 - 1))
        struct.pack_into(">qhi", batch, 43, producer.producer_id, producer.epoch, sequence)

    def _lie(self, batch: bytearray) -> None:
        for _ in range(self._rng.choice((1, 1, 2, 4))):
            at, layout, values = self._rng.choice(LIES)
            struct.pack_into(layout, batch, at, self._rng.choice(values))

    def _some(self) -> list[Record]:
        rng = self._rng
        return [
            Record(
                at,
                NOW_MS + rng.randint(-10, 10),
                rng.choice((None, b"", b"key %d" % rng.randrange(5))),
                rng.choice((None, b"", rng.randbytes(rng.choice((1, 50, 50, 2000))))),
                [("h", b"v"), ("", None), ("größe" * 5, b"x" * 30)][: rng.choice((0, 0, 0, 1, 2, 3))],
            )
            for at in range(rng.choice((1, 1, 1, 2, 5, 40)))
        ]

    def _built(self) -> bytes:
        return bytes(build_batch(self._some(), codec=self._rng.choice(CODECS)))

    def _special(self) -> bytes:
        make = self._rng.choice(SPECIAL)
        found = self._odd.get(make)
        if found is None or self._rng.random() < 0.05:
            found = self._odd[make] = make(self._rng)
        return found


def seal(batch: bytearray) -> None:
    """Make the checksum right."""
    with memoryview(batch) as view:
        struct.pack_into(">I", batch, 17, crc32c(view[21:]))


def around(data: bytes, codec: int, count: int = 1) -> bytes:
    """A right header around records that are packed already, or are none."""
    batch = bytearray(BATCH_OVERHEAD) + data
    seal_batch(batch, 0, -1, codec, max(count - 1, 0), (NOW_MS, NOW_MS), (-1, -1, -1), count)
    return bytes(batch)


def many_gzip_members(rng: random.Random) -> bytes:
    """Members without content: a reader that copies the rest for each of them is quadratic."""
    return around(zlib.compress(b"", 1, 31) * rng.choice((100, 2000, 20_000)), 1)


def many_lz4_frames(rng: random.Random) -> bytes:
    return around(compress(3, b"") * rng.choice((100, 2000, 20_000)), 3)


def many_zstd_frames(rng: random.Random) -> bytes:
    return around(compress(4, b"") * rng.choice((100, 2000, 20_000)), 4)


def many_snappy_blocks(rng: random.Random) -> bytes:
    block = b"\x01\x00a"
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return around(head + (struct.pack(">i", len(block)) + block) * rng.choice((100, 20_000)), 2)


def bomb(rng: random.Random) -> bytes:
    """Zeros: a thousandth of their size when packed."""
    return around(compress(rng.choice((1, 4)), bytes(rng.choice((1 << 20, 30 << 20)))), rng.choice((1, 4)))


def many_records(rng: random.Random) -> bytes:
    """Thousands of the smallest records in few bytes."""
    count = rng.choice((1000, 10_000, 60_000))
    records = [Record(0, NOW_MS, None, None)] * count
    return bytes(build_batch(records, codec=rng.choice((0, 4))))


def many_headers(rng: random.Random) -> bytes:
    return bytes(build_batch([Record(0, NOW_MS, b"", b"", [("", None)] * rng.choice((1000, 30_000)))]))


def control(rng: random.Random) -> bytes:
    return bytes(
        build_control_batch(
            producer_id=rng.choice((0, 1)),
            producer_epoch=0,
            commit=rng.random() < 0.5,
            coordinator_epoch=0,
            timestamp=NOW_MS,
        )
    )


def nothing_inside(rng: random.Random) -> bytes:
    return around(b"", rng.choice((0, 1, 2, 3, 4)), rng.choice((0, 1)))


def garbage_inside(rng: random.Random) -> bytes:
    return around(rng.randbytes(rng.choice((1, 20, 1000))), rng.randrange(8), rng.choice((0, 1, 1000)))


SPECIAL = (
    many_gzip_members,
    many_lz4_frames,
    many_zstd_frames,
    many_snappy_blocks,
    bomb,
    many_records,
    many_headers,
    control,
    nothing_inside,
    garbage_inside,
)
