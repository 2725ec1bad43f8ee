"""Batches of coordinators are byte for byte those of `build_batch`."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from barnabas.kproto.records import Record, build_batch, check_batch
from barnabas.kproto.records_plain import build_plain_batch


class Pair(NamedTuple):
    key: bytes
    value: bytes | None


@pytest.mark.parametrize("transactional", [False, True])
def test_the_same_bytes_as_build_batch(transactional: bool) -> None:
    rng = Random(3)
    producer = (7, 3) if transactional else (-1, -1)
    for count in (1, 2, 63, 64, 65, 600):
        sizes = (0, 1, 8, 60, 64, 130, 511, 512, 9_000)
        pairs = [
            Pair(rng.randbytes(rng.choice(sizes)), rng.choice((None, rng.randbytes(rng.choice(sizes)))))
            for _ in range(count)
        ]
        found = build_plain_batch(
            pairs, 1_700_000_000_000, producer_id=producer[0], producer_epoch=producer[1], transactional=transactional
        )
        assert found == build_batch(
            [Record(0, 1_700_000_000_000, pair.key, pair.value, []) for pair in pairs],
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=transactional,
        )
        assert check_batch(found).record_count == count
