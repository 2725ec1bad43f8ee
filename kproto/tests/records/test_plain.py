"""Batches of coordinators are byte for byte those of `build_batch`, in however many steps they have grown."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from barnabas.kproto.records import Record, build_batch, check_batch
from barnabas.kproto.records_plain import PlainBatch, plain_records

NOW = 1_700_000_000_000
SIZES = (0, 1, 8, 60, 64, 130, 511, 512, 9_000)


class Pair(NamedTuple):
    key: bytes
    value: bytes | None


def pairs(rng: Random, count: int) -> list[Pair]:
    return [
        Pair(rng.randbytes(rng.choice(SIZES)), rng.choice((None, rng.randbytes(rng.choice(SIZES)))))
        for _ in range(count)
    ]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_same_bytes_as_build_batch(transactional: bool, steps: int) -> None:
    rng = Random(3)
    producer_id, producer_epoch = producer = (7, 3) if transactional else (-1, -1)
    for count in (1, 2, 63, 64, 65, 600):
        batch = PlainBatch(1_000, 5, NOW, producer=producer if transactional else None)
        added: list[Pair] = []
        for _ in range(steps):
            more = pairs(rng, count)
            batch.add(plain_records(more, batch.count), count)
            added += more
        found = batch.sealed()
        assert found == build_batch(
            [Record(0, NOW, pair.key, pair.value, []) for pair in added],
            base_offset=1_000,
            leader_epoch=5,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        assert len(found) == batch.size
        assert check_batch(found).record_count == batch.count == count * steps


def test_the_brokers_time() -> None:
    batch = PlainBatch(0, 0, NOW, log_append_time=True)
    batch.add(plain_records([Pair(b"k", b"v")]), 1)
    records = [Record(0, 7, b"k", b"v", [])]
    assert batch.sealed() == build_batch(records, leader_epoch=0, log_append_time_ms=NOW)
