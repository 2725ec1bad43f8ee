"""How much must still come, at least, until so much plaintext is there."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from barnabas.server.security.tls.record_bounds import HEADER_BYTES, PLAINTEXT_BYTES_MAX, RecordBounds

OVERHEAD_BYTES = HEADER_BYTES + 17
"""Of TLS 1.3: the kind of what is inside, and a tag."""


def record(plaintext_bytes: int) -> bytes:
    body_bytes = plaintext_bytes + OVERHEAD_BYTES - HEADER_BYTES
    return b"\x17\x03\x03" + body_bytes.to_bytes(2, "big") + bytes(body_bytes)


def test_between_records_each_needs_its_overhead() -> None:
    bounds = RecordBounds()
    bounds.add(memoryview(record(100)))
    assert bounds.bytes_before(1) == 1 + 21
    assert bounds.bytes_before(PLAINTEXT_BYTES_MAX) == PLAINTEXT_BYTES_MAX + 21
    assert bounds.bytes_before(PLAINTEXT_BYTES_MAX + 1) == PLAINTEXT_BYTES_MAX + 1 + 2 * 21


def test_a_record_that_has_begun_has_to_end() -> None:
    bounds = RecordBounds()
    bounds.add(memoryview(record(100))[:-10])
    assert bounds.bytes_before(1) == bounds.bytes_before(100) == 10
    bounds.add(memoryview(bytes(7)))
    assert bounds.bytes_before(100) == 3
    assert bounds.bytes_before(1000) == 3 + 1000 - 117


@pytest.mark.parametrize("held_bytes", range(1, HEADER_BYTES))
def test_a_header_that_has_begun_says_nothing_yet(held_bytes: int) -> None:
    bounds = RecordBounds()
    bounds.add(memoryview(record(30) + record(1000)[:held_bytes]))
    assert bounds.bytes_before(1000) == 1000
    bounds.add(memoryview(record(1000)[held_bytes:]))
    assert bounds.bytes_before(1) == 22


def test_in_pieces_of_any_size_it_never_asks_for_more_than_comes() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        sizes = [rng.choice((0, 1, rng.randrange(50), rng.randrange(PLAINTEXT_BYTES_MAX + 1))) for _ in range(8)]
        stream = b"".join(map(record, sizes))
        ends = list(accumulate(size + OVERHEAD_BYTES for size in sizes))
        readable = list(accumulate(sizes))
        bounds, at = RecordBounds(), 0
        while at < len(stream):
            step = rng.choice((1, 2, rng.randrange(1, 30), rng.randrange(1, 40_000)))
            bounds.add(memoryview(stream)[at : at + step])
            at = min(at + step, len(stream))
            there = max((sum_ for sum_, end in zip(readable, ends, strict=True) if end <= at), default=0)
            for sum_, end in zip(readable, ends, strict=True):
                if sum_ > there:
                    assert 1 <= bounds.bytes_before(sum_ - there) <= end - at
