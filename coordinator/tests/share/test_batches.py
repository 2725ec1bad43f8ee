"""Merging ranges of offsets, against a dictionary that has each offset."""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random

from barnabas.coordinator.share import StateBatch
from barnabas.coordinator.share.batches import are_in_order, merge, settled_count

SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40")) * 20
B = StateBatch


def test_what_was_delivered_more_often_wins() -> None:
    stored, written = B(10, 20, 0, 1), B(15, 17, 2, 1)
    assert merge(0, [stored, written]) == (B(10, 14, 0, 1), B(15, 17, 2, 1), B(18, 20, 0, 1))
    assert merge(0, [B(14, 25, 0, 2), B(16, 18, 2, 1)]) == (B(14, 25, 0, 2),)
    assert merge(0, [B(0, 3, 2, 1), B(0, 3, 4, 1)]) == (B(0, 3, 4, 1),)


def test_the_start_cuts() -> None:
    assert merge(15, [B(0, 9, 2, 1), B(10, 20, 0, 1)]) == (B(15, 20, 0, 1),)
    assert merge(21, [B(10, 20, 0, 1)]) == ()
    assert merge(-1, [B(0, 0, 0, 1)]) == (B(0, 0, 0, 1),)
    assert merge(0, []) == ()


def test_neighbours_become_one() -> None:
    assert merge(0, [B(0, 4, 2, 1), B(5, 9, 2, 1), B(11, 12, 2, 1)]) == (B(0, 9, 2, 1), B(11, 12, 2, 1))
    assert merge(0, [B(5, 9, 2, 1), B(0, 4, 2, 2)]) == (B(0, 4, 2, 2), B(5, 9, 2, 1))


def test_nonsense_is_left_out() -> None:
    assert merge(0, [B(5, 4, 2, 1)]) == ()
    assert merge(0, [B(5, 4, 2, 1), B(4, 5, 0, 1)]) == (B(4, 5, 0, 1),)


def test_order_and_counting() -> None:
    good = (B(3, 4, 0, 1), B(5, 9, 2, 1), B(11, 11, 4, 1))
    assert are_in_order(good, 3)
    assert not are_in_order(good, 4)
    assert not are_in_order(good[::-1], 0)
    assert not are_in_order((B(3, 4, 0, 1), B(4, 5, 0, 1)), 0)
    assert not are_in_order((B(3, 2, 0, 1),), 0)
    assert settled_count(good) == 6


def content(start: int, batches: tuple[StateBatch, ...] | list[StateBatch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start), last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


def test_random_lists() -> None:
    for seed in range(SEEDS):
        rng = Random(seed)

        def some(rng: Random = rng) -> list[StateBatch]:
            made = []
            for _ in range(rng.randrange(6)):
                first = rng.randrange(30)
                made.append(B(first, first + rng.randrange(8), rng.choice((0, 2, 4)), rng.randint(1, 3)))
            return made

        one, two, start = some(), some(), rng.randrange(10)
        merged = merge(start, [*one, *two])
        assert content(start, merged) == content(start, [*one, *two]), seed
        assert are_in_order(merged, start), seed
        assert merge(start, [*two, *one]) == merged, seed
        assert merge(start, [*merged, *one]) == merged, seed
        assert merge(start, [*merge(0, one), *merge(0, two)]) == merged, seed
        for left, right in pairwise(merged):
            assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:], seed
