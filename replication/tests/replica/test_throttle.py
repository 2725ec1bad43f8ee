"""Replication throttles: the rate over a window, and who is meant."""

from __future__ import annotations

import random

import pytest

from barnabas.replication.replica.throttle import UNLIMITED, ReplicationThrottle, throttled_partitions


def test_unlimited() -> None:
    throttle = ReplicationThrottle()
    throttle.record(1 << 40, 0.0)
    assert throttle.rate == UNLIMITED
    assert not throttle.exceeded(0.0)


def test_rate_over_a_window() -> None:
    throttle = ReplicationThrottle(1000, samples=11, sample_s=1.0)
    assert not throttle.exceeded(0.0)
    throttle.record(1000, 0.0)
    assert throttle.bytes_per_s(0.1) == 1000, "counts as if it took a second"
    assert not throttle.exceeded(0.1)
    throttle.record(4000, 0.5)
    assert throttle.exceeded(0.5)
    assert throttle.exceeded(4.9)
    assert not throttle.exceeded(5.0)
    assert throttle.bytes_per_s(10.9) > 0
    assert throttle.bytes_per_s(11.0) == 0


def test_zero_stops_everything_that_is_recorded() -> None:
    throttle = ReplicationThrottle(0)
    assert not throttle.exceeded(0.0)
    throttle.record(1, 0.0)
    assert throttle.exceeded(5.0)


@pytest.mark.parametrize("seed", range(5))
def test_average_stays_near_the_limit(seed: int) -> None:
    """Answers of random size, asked for whenever the limit allows."""
    rng = random.Random(seed)
    throttle = ReplicationThrottle(100_000)
    now, total = 0.0, 0
    while now < 300:
        if not throttle.exceeded(now):
            size = rng.randint(1, 200_000)
            throttle.record(size, now)
            total += size
        now += rng.random()
    assert 80_000 < total / 300 < 120_000, f"seed {seed}: {total / 300}"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("", []),
        ("none", []),
        ("0:1,1:2,3:1", [0, 3]),
        ("*", [0, 1, 2, 3, 77]),
        ("0:1,*", [0, 1, 2, 3, 77]),
        ("x:1,1:y,2", []),
    ],
)
def test_which_replicas_are_throttled(setting: str, named: list[int]) -> None:
    found = throttled_partitions(setting.split(","), 1)
    assert [index for index in (0, 1, 2, 3, 77) if index in found] == named
