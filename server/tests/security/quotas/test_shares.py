"""Whose limit counts, who shares it, and what becomes of buckets."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from barnabas.server.security.quotas.limits import DEFAULT, Entity, Limits, Share
from barnabas.server.security.quotas.rates import Window
from barnabas.server.security.quotas.shares import ConnectionRates, MutationQuota, RateQuota, Usage

WINDOW = Window()

# The most specific first (KIP-124), with who shares a bucket of user "u", client "c".
ORDER = [
    (Entity("u", "c"), Share("u", "c")),
    (Entity("u", DEFAULT), Share("u", "c")),
    (Entity("u", None), Share("u", None)),
    (Entity(DEFAULT, "c"), Share("u", "c")),
    (Entity(DEFAULT, DEFAULT), Share("u", "c")),
    (Entity(DEFAULT, None), Share("u", None)),
    (Entity(None, "c"), Share(None, "c")),
    (Entity(None, DEFAULT), Share(None, "c")),
]


@pytest.mark.parametrize("chosen", [*combinations(range(8), 1), *combinations(range(8), 2), tuple(range(8))])
def test_the_most_specific_limit_counts(chosen: tuple[int, ...]) -> None:
    limits = Limits({ORDER[at][0]: float(at + 1) for at in reversed(chosen)})
    found = limits.find("u", "c")
    assert found is not None
    assert (found.value, found.share) == (min(chosen) + 1, ORDER[min(chosen)][1])


def test_limits_of_others_do_not_count() -> None:
    limits = Limits({Entity("x", "c"): 1.0, Entity("u", "x"): 1.0, Entity("x"): 1.0, Entity(None, "x"): 1.0})
    assert limits.find("u", "c") is None
    assert not Limits()
    assert limits


def test_a_client_without_an_id_has_the_default_limit() -> None:
    assert Limits({Entity(None, DEFAULT): 5.0}).find("u", "") == (5.0, Share(None, ""))


def test_a_change_counts_at_once() -> None:
    limits = Limits()
    assert limits.find("u", "c") is None
    assert limits.put(Entity("u"), 3.0)
    assert not limits.put(Entity("u"), 3.0)
    assert limits.find("u", "c") == (3.0, Share("u", None))
    assert limits.put(Entity("u"), None)
    assert not limits.put(Entity("u"), None)
    assert limits.find("u", "c") is None


def test_clients_of_a_user_share_the_users_limit_and_others_do_not() -> None:
    quota = RateQuota(WINDOW)
    quota.limits.put(Entity("u"), 1000.0)
    assert quota.record("u", "a", 8000, 0.0) == 0
    assert quota.record("u", "b", 4000, 0.0) == 2000
    assert quota.record("x", "a", 1e9, 0.0) == 0
    assert quota.at_once("u", "a") == 10_000
    assert quota.at_once("x", "a") is None


def test_a_limit_that_is_raised_ends_the_delays() -> None:
    quota = RateQuota(WINDOW)
    quota.limits.put(Entity(None, "c"), 1000.0)
    assert quota.record("u", "c", 20_000, 0.0) == 10_000
    quota.limits.put(Entity(None, "c"), 4000.0)
    assert quota.record("u", "c", 0, 0.0) == 0


def test_what_did_not_happen_is_taken_back() -> None:
    quota = RateQuota(WINDOW)
    quota.limits.put(Entity("u"), 1000.0)
    assert quota.record("u", "c", 20_000, 0.0) == 10_000
    quota.take_back("u", "c", 20_000, 0.0)
    assert quota.record("u", "c", 10_000, 0.0) == 0


def test_a_delay_can_be_bounded() -> None:
    quota = RateQuota(WINDOW, delay_ms_max=1000)
    quota.limits.put(Entity("u"), 1.0)
    assert quota.record("u", "c", 1000, 0.0) == 1000


def test_buckets_of_clients_that_are_gone_are_dropped() -> None:
    quota = RateQuota(WINDOW)
    quota.limits.put(Entity(None, DEFAULT), 1000.0)
    now = 0.0
    for number in range(20_000):
        quota.record("u", f"client-{number}", 1, now)
        now += 0.01
    # Those of the last twelve seconds are in use.
    assert len(quota) < 2 * 1200 + 1


def test_a_strict_request_gets_nothing_while_the_bucket_is_overdrawn() -> None:
    quota = MutationQuota(WINDOW)
    quota.limits.put(Entity("u"), 1.0)
    assert quota.take("u", "c", 15, 0.0, strict=True) == 0
    assert quota.take("u", "c", 1, 0.0, strict=True) == 4000
    assert quota.take("u", "c", 1, 3.0, strict=True) == 1000
    assert quota.take("u", "c", 1, 4.0, strict=True) == 0
    assert quota.take("x", "c", 1e6, 4.0, strict=True) == 0


def test_another_one_is_served_and_waits_afterwards() -> None:
    quota = MutationQuota(WINDOW)
    quota.limits.put(Entity("u"), 1.0)
    assert quota.take("u", "c", 15, 0.0, strict=False) == 4000
    assert quota.take("u", "c", 1, 0.0, strict=False) == 5000


def test_usage_is_a_rate_and_the_mean_of_delays() -> None:
    quota = RateQuota(WINDOW)
    quota.limits.put(Entity("u"), 1000.0)
    assert list(quota.usage(0.0)) == []
    quota.record("u", "c", 5_000, 0.0)
    assert list(quota.usage(0.0)) == [Usage(Share("u", None), 500.0, 0.0)]
    delays = [quota.record("u", "c", 10_000, 1.0) for _ in range(2)]
    assert all(delays)
    (usage,) = quota.usage(1.0)
    assert usage.value == 2500.0
    assert usage.delay_ms == pytest.approx(sum(delays) / 2)
    assert list(quota.usage(12.1)) == []


def test_to_look_changes_nothing() -> None:
    """Who is scraped has the delays of who is not, and is forgotten as soon."""
    looked_at, other = RateQuota(WINDOW), RateQuota(WINDOW)
    buckets, others = MutationQuota(WINDOW), MutationQuota(WINDOW)
    rng = Random(5)
    for quota in (looked_at, other, buckets, others):
        quota.limits.put(Entity("u"), 100.0)
    now = 0.0
    for _ in range(2000):
        now += rng.choice((0.01, 0.5, 3.0, 12.0))
        for quota in (looked_at, buckets):
            list(quota.usage(now))
        value = rng.uniform(0, 500)
        assert looked_at.record("u", "c", value, now) == other.record("u", "c", value, now)
        strict = rng.random() < 0.5
        assert buckets.take("u", "c", value, now, strict=strict) == pytest.approx(
            others.take("u", "c", value, now, strict=strict), abs=1
        )
    assert list(buckets.usage(now + 12)) == []


def test_addresses_may_connect_so_fast_and_refused_connections_do_not_count() -> None:
    rates = ConnectionRates(WINDOW)
    assert rates.record("127.0.0.1", 0.0) == 0
    rates.default = 1.0
    rates.limits["127.0.0.2"] = 2.0
    assert [rates.record("127.0.0.1", 0.0) for _ in range(12)] == [0] * 10 + [1000] * 2
    assert [rates.record("127.0.0.2", 0.0) for _ in range(21)] == [0] * 20 + [500]
    assert rates.record("127.0.0.1", 11.0) == 0
