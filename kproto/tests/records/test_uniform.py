"""`UniformLayout`: what matches a learnt layout is as good as what the record-by-record check lets through."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.kproto.records import Record as Rec
from barnabas.kproto.records import build_batch, read_header, records_data
from barnabas.kproto.records_scan import RecordsRefused, validate_records
from barnabas.kproto.records_uniform import UniformLayout


def batch(
    count: int, *, key: bytes | None = b"k", value: bytes = b"v" * 100, step_ms: int = 1, headers: int = 0
) -> bytes:
    records = [
        Rec(offset=i, timestamp=1_700_000_000_000 + i * step_ms, key=key, value=value, headers=[("h", b"x")] * headers)
        for i in range(count)
    ]
    return bytes(build_batch(records))


def data_of(raw: bytes) -> bytes:
    return records_data(raw, 0, read_header(raw))


def learn(raw: bytes) -> UniformLayout | None:
    return UniformLayout.learn(data_of(raw), read_header(raw).record_count)


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 200])
@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 1000, 20_000])
@pytest.mark.parametrize("count", [1, 2, 15, 64])
def test_learns_and_matches(key: bytes | None, size: int, count: int) -> None:
    layout = learn(batch(count, key=key, value=b"a" * size, step_ms=0))
    assert layout is not None
    assert layout.all_keys is (key is not None)
    other = batch(count, key=None if key is None else b"x" * len(key), value=b"b" * size)
    assert layout.deltas(data_of(other)) == (0, count - 1 if count <= 64 else None)


@pytest.mark.parametrize(
    "raw",
    [batch(65), batch(10, step_ms=64), batch(10, headers=1), batch(1, headers=1)],
    ids=["many", "far apart in time", "headers", "one with headers"],
)
def test_learns_nothing(raw: bytes) -> None:
    assert learn(raw) is None


def test_mixed_sizes_are_not_learnt() -> None:
    records = [Rec(i, 0, None, b"a" * (10 + i % 2), []) for i in range(8)]
    assert learn(bytes(build_batch(records))) is None


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_passes_that_the_full_check_refuses(seed: int) -> None:
    random = Random(seed)
    count = random.choice([1, 2, random.randint(3, 64)])
    key = random.choice([None, b"", b"key", b"k" * 70])
    value = b"v" * random.choice([0, 5, 62, 64, 300])
    raw = batch(count, key=key, value=value, step_ms=random.randint(0, 1))
    layout = learn(raw)
    assert layout is not None
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(61, len(damaged))] = random.randrange(256)
        found = layout.deltas(data_of(bytes(damaged)))
        if found is None:
            continue
        try:
            scan = validate_records(damaged)
        except RecordsRefused as refused:
            pytest.fail(f"seed {seed}: {refused}")
        assert scan.consecutive, f"seed {seed}"
        assert scan.max_timestamp == read_header(damaged).base_timestamp + found[1], f"seed {seed}"
