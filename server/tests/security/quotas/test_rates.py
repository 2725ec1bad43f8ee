"""Rates, buckets and delays, against figures worked out by hand and against the definition."""

from __future__ import annotations

import random

import pytest

from barnabas.server.security.quotas.rates import Rate, TokenBucket, Window

WINDOW = Window(samples=11, sample_s=1.0)


def test_a_fresh_client_may_take_ten_seconds_worth_at_once() -> None:
    rate = Rate(WINDOW, 100.0)
    rate.record(10_000, 100.0)
    assert rate.observed(100.0) == (1000.0, 10.0)
    assert rate.delay_ms(1000, 100.0) == 0
    rate.record(500, 100.0)
    # (1050 - 1000) / 1000 of the 10 s
    assert rate.delay_ms(1000, 100.0) == 500


def test_after_the_delay_the_rate_is_what_it_may_be() -> None:
    rate = Rate(WINDOW, 0.0)
    rate.record(15_000, 0.0)
    delay_ms = rate.delay_ms(1000, 0.0)
    assert delay_ms == 5000
    # The window has 10 full samples at least, so after 5 s it is 5 of them and 5 more: the delay was computed for
    # what the window was then.
    assert rate.observed(5.0) == (1500.0, 10.0)
    assert rate.observed(10.9)[0] == pytest.approx(15_000 / 10.9)


def test_what_is_older_than_the_window_counts_no_more() -> None:
    rate = Rate(WINDOW, 0.0)
    rate.record(15_000, 0.0)
    rate.record(100, 10.99)
    assert rate.observed(10.99)[0] == pytest.approx(15_100 / 10.99)
    assert rate.observed(11.0)[0] == pytest.approx(100 / 10.01)


def test_a_sample_that_reaches_into_the_window_is_counted_whole() -> None:
    rate = Rate(WINDOW, 0.0)
    rate.record(100, 0.0)
    rate.record(100, 0.9)
    assert rate.observed(11.5) == (pytest.approx(200 / 11.5), 11.5)


def test_it_can_be_taken_back() -> None:
    rate = Rate(WINDOW, 0.0)
    rate.record(20_000, 0.0)
    rate.record(-20_000, 0.0)
    assert rate.delay_ms(1, 0.0) == 0


def _definition(events: list[tuple[float, float]], now: float) -> tuple[float, float]:
    """The rate, from all that ever happened: events fall into samples, a sample begins with the first event that is a
    second or more behind the beginning of the one before; the last 12 are kept, those last used 11 s ago are not.
    """
    samples: list[list[tuple[float, float]]] = []
    for event in events:
        if not samples or event[0] - samples[-1][0][0] >= WINDOW.sample_s:
            samples.append([])
        samples[-1].append(event)
    kept = [sample for sample in samples[-12:] if now - sample[-1][0] < 11]
    over = max(now - kept[0][0][0], 0.0)
    while over < 10:
        over += 1
    return sum(value for sample in kept for _, value in sample) / over, over


@pytest.mark.parametrize("seed", range(30))
def test_the_rate_is_what_the_definition_says(seed: int) -> None:
    source = random.Random(seed)
    now = source.randrange(1000) / 8
    rate = Rate(WINDOW, now)
    events = []
    for _ in range(300):
        events.append((now, float(source.randrange(1, 1000))))
        rate.record(events[-1][1], now)
        expected, over = _definition(events, now)
        assert rate.observed(now) == (pytest.approx(expected), over), (seed, now)
        # Eighths of a second are exact, so that sums and differences of them are.
        now += source.choice([0, 1, 1, 2, 8, 8, 9, 30, 100]) / 8


@pytest.mark.parametrize("seed", range(10))
def test_a_client_that_waits_out_its_delays_gets_its_rate(seed: int) -> None:
    source = random.Random(seed)
    # Not evenly: ten seconds' worth at once, ten seconds at the limit, then a wait for what came at once; and again.
    rate, now, total, limit = Rate(WINDOW, 0.0), 0.0, 0.0, 10_000.0
    while now < 600:
        size = source.randrange(100, 3_000)
        rate.record(size, now)
        total += size
        now += max(rate.delay_ms(limit, now) / 1000, 0.001)
    assert total / now == pytest.approx(limit, rel=0.03), seed


def test_a_bucket_starts_full_and_is_overdrawn_once() -> None:
    bucket = TokenBucket(WINDOW, 2.0, 50.0)
    assert bucket.tokens(50.0) == 22
    bucket.take(30, 50.0)
    assert bucket.tokens(50.0) == -8
    assert bucket.delay_ms(50.0) == 4000
    assert bucket.delay_ms(53.0) == 1000
    assert bucket.delay_ms(54.0) == 0
    assert bucket.tokens(1000.0) == 22


def test_a_bucket_whose_rate_changes_keeps_what_it_has() -> None:
    bucket = TokenBucket(WINDOW, 2.0, 0.0)
    bucket.take(22, 0.0)
    bucket.rate = 100.0
    assert bucket.tokens(1.0) == 100
    bucket.rate = 1.0
    assert bucket.tokens(1.0) == 11
