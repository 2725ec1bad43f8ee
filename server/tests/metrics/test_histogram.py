"""Durations by powers of two, and their quantiles."""

from random import Random

import pytest

from barnabas.server.metrics.histogram import BOUNDS, BOUNDS_S, BUCKETS, Histogram, Recent, quantile


def test_counts_and_sum() -> None:
    histogram = Histogram()
    for duration in (0, 1, 2, 3, 1000, 1 << 60):
        histogram.add(duration)
    histogram.add(-5)
    histogram.add(1000, weight=3)
    assert histogram.count == 10
    assert histogram.sum_ns == 6 + 4 * 1000 + (1 << 60)
    assert histogram.counts[0] == 2
    assert histogram.counts[10 * 4 + 3] == 4
    assert histogram.counts[BUCKETS - 1] == 1


def test_limits_include_what_lies_below_them() -> None:
    histogram = Histogram()
    for bits in BOUNDS:
        histogram.add(2**bits - 1)
        histogram.add(2**bits)
    counts = histogram.up_to()
    assert counts == [1 + 2 * n for n in range(len(counts))]
    assert [float(text) for text in BOUNDS_S] == [2**bits / 1e9 for bits in BOUNDS]


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_are_exact_to_an_eighth(share: float) -> None:
    rng = Random(1)
    durations = sorted(int(rng.uniform(1e5, 1e7)) for _ in range(20_000))
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    true = durations[int(share * len(durations))]
    assert quantile(histogram.counts, share) == pytest.approx(true, rel=0.125)


def test_no_durations_have_no_quantiles() -> None:
    assert quantile([0] * BUCKETS, 0.5) == 0.0
    histogram = Histogram()
    histogram.add(0)
    assert quantile(histogram.counts, 0.99) == 0.0


def test_quantiles_are_of_the_last_minutes() -> None:
    histogram = Histogram()
    recent = Recent(histogram, 0.0)
    histogram.add(1000)
    assert sum(recent.counts(30.0)) == 1
    assert sum(recent.counts(61.0)) == 1  # of the first minute, still shown
    histogram.add(2_000_000)
    assert sum(recent.counts(100.0)) == 2
    assert sum(recent.counts(122.0)) == 1
    assert quantile(recent.counts(123.0), 0.5) > 1_000_000
    assert sum(recent.counts(200.0)) == 0
