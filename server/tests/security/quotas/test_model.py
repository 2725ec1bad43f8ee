"""Random histories against models written from the rules, in whole numbers and fractions: every delay must be theirs.

The rules are Apache Kafka's (`SampledStat`, `Rate`, `TokenBucket`, `QuotaUtils`, `ClientQuotaManager`, 4.3). Times are
multiples of 1/1024 s, so that both sides see the same moments, and the ends of windows are hit.
`BARNABAS_QUOTA_SEEDS`: how many histories of each kind.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

import pytest

from barnabas.server.security.quotas.limits import DEFAULT, Entity
from barnabas.server.security.quotas.rates import Rate, TokenBucket, Window
from barnabas.server.security.quotas.shares import MutationQuota, RateQuota

SEEDS = int(os.environ.get("BARNABAS_QUOTA_SEEDS", "8"))
FIRST = random.randrange(1 << 32)
STEPS = 300
TICKS = 1024
Ticks = int
WINDOWS = (Window(), Window(2, 1.0), Window(11, 3.0), Window(5, 0.5))


@dataclass
class Sample:
    start: Ticks
    last: Ticks
    value: Fraction = Fraction(0)


@dataclass
class ModelRate:
    """A rate: samples, the oldest first."""

    window: Window
    samples: list[Sample] = field(default_factory=list)

    @property
    def sample_ticks(self) -> int:
        return round(self.window.sample_s * TICKS)

    def record(self, value: Fraction, now: Ticks) -> None:
        if not self.samples:
            self.samples.append(Sample(now, now))
        elif now - self.samples[-1].start >= self.sample_ticks:
            self.samples.append(Sample(now, now))
            # One more than the window has: the one that reaches into it.
            del self.samples[: -(self.window.samples + 1)]
        self.samples[-1].value += value
        self.samples[-1].last = now

    def exact_delay_ms(self, limit: Fraction, now: Ticks) -> Fraction:
        """Before it is rounded; 0: the rate is not above the limit."""
        for sample in self.samples:
            if now - sample.last >= self.window.samples * self.sample_ticks:
                sample.start, sample.last, sample.value = now, now, Fraction(0)
        elapsed = now - min(sample.start for sample in self.samples)
        missing = self.window.samples - 1 - elapsed // self.sample_ticks
        seconds = Fraction(elapsed + max(missing, 0) * self.sample_ticks, TICKS)
        observed = sum((sample.value for sample in self.samples), Fraction(0)) / seconds
        return max((observed - limit) / limit * seconds * 1000, Fraction(0))


@dataclass
class ModelBucket:
    """A token bucket, full at first."""

    window: Window
    tokens: Fraction | None = None
    at: Ticks = 0

    def refill(self, rate: Fraction, now: Ticks) -> Fraction:
        burst = Fraction(self.window.samples) * Fraction(self.window.sample_s) * rate
        held = burst if self.tokens is None else self.tokens + rate * Fraction(now - self.at, TICKS)
        self.tokens, self.at = min(burst, held), now
        return self.tokens

    def take(self, count: int, rate: Fraction, now: Ticks) -> None:
        self.tokens = self.refill(rate, now) - count

    def exact_delay_ms(self, rate: Fraction, now: Ticks) -> Fraction:
        return max(-self.refill(rate, now) / rate * 1000, Fraction(0))


def same(delay_ms: int, exact_ms: Fraction, longest_ms: int | None = None) -> bool:
    """Whether it is the exact one, a half rounded up. What lies on a half, floats may round either way."""
    allowed = {floor(exact_ms + Fraction(1, 2) + nudge) for nudge in (Fraction(-1, 10**5), Fraction(1, 10**5))}
    return delay_ms in {each if longest_ms is None else min(each, longest_ms) for each in allowed}


def seeded(number: int) -> random.Random:
    seed = FIRST + number
    print("seed", seed)
    return random.Random(seed)


def later(rng: random.Random, now: Ticks, window: Window) -> Ticks:
    """The next moment: at once, soon, at the end of a sample or of the window, or after it."""
    sample = round(window.sample_s * TICKS)
    whole = sample * window.samples
    if rng.random() < 0.2:
        return now + rng.choice([0, 1, rng.randrange(sample), sample - 1, sample, 3 * sample, whole, 2 * whole])
    return now + rng.choice([0, rng.randrange(1, 50), rng.randrange(sample)])


@pytest.mark.parametrize("number", range(SEEDS))
def test_rates(number: int) -> None:
    rng = seeded(number)
    window = rng.choice(WINDOWS)
    now = rng.randrange(1 << 30)
    limit = rng.choice([1, 10, 1000, 10**6])
    rate, model, over = Rate(window, now / TICKS), ModelRate(window), 0
    for _ in range(STEPS):
        if rng.random() < 0.02:
            limit = rng.choice([1, 7, 1000, 10**6])
        value = rng.choice([0, 1, limit, rng.randrange(3 * limit), limit * rng.randrange(20)])
        rate.record(value, now / TICKS)
        model.record(Fraction(value), now)
        exact = model.exact_delay_ms(Fraction(limit), now)
        assert same(rate.delay_ms(limit, now / TICKS), exact), (now, exact)
        if exact and rng.random() < 0.5:  # an answer that is withheld
            rate.record(-value, now / TICKS)
            model.record(Fraction(-value), now)
        elif exact and rng.random() < 0.5:  # who waits as long as it is told
            now += floor(exact * TICKS / 1000) + 1
        over += bool(exact)
        now = later(rng, now, window)
    assert over


@pytest.mark.parametrize("number", range(SEEDS))
def test_token_buckets(number: int) -> None:
    rng = seeded(number)
    window, rate = rng.choice(WINDOWS), rng.choice([0.5, 1, 5, 100])
    now = rng.randrange(1 << 30)
    bucket, model = TokenBucket(window, rate, now / TICKS), ModelBucket(window)
    for _ in range(STEPS):
        count = rng.choice([1, 1, rng.randrange(1, 50), round(20 * rate)])
        bucket.take(count, now / TICKS)
        model.take(count, Fraction(rate), now)
        assert same(bucket.delay_ms(now / TICKS), model.exact_delay_ms(Fraction(rate), now))
        now = later(rng, now, window)
        assert same(bucket.delay_ms(now / TICKS), model.exact_delay_ms(Fraction(rate), now))


# -- who shares what --------------------------------------------------------------------------------------------------

USERS, CLIENT_IDS = ("alice", "bob", "carol"), ("one", "two")
ENTITIES = [
    Entity(user, client_id)
    for user in (*USERS, DEFAULT, None)
    for client_id in (*CLIENT_IDS, DEFAULT, None)
    if (user, client_id) != (None, None)
]
Bucket = tuple[str | None, str | None]


def limit_of(limits: dict[Entity, float], user: str, client_id: str) -> tuple[float, Bucket] | None:
    """The limit that counts for a client, and who shares it, by KIP-124's list."""
    for entity, bucket in (
        (Entity(user, client_id), (user, client_id)),
        (Entity(user, DEFAULT), (user, client_id)),
        (Entity(user, None), (user, None)),
        (Entity(DEFAULT, client_id), (user, client_id)),
        (Entity(DEFAULT, DEFAULT), (user, client_id)),
        (Entity(DEFAULT, None), (user, None)),
        (Entity(None, client_id), (None, client_id)),
        (Entity(None, DEFAULT), (None, client_id)),
    ):
        if entity in limits:
            return limits[entity], bucket
    return None


def changed(rng: random.Random, limits: dict[Entity, float]) -> tuple[Entity, float | None]:
    entity = rng.choice(ENTITIES)
    value = rng.choice([None, 1.0, 8.0, 100.0])
    if value is None:
        limits.pop(entity, None)
    else:
        limits[entity] = value
    return entity, value


@pytest.mark.parametrize("number", range(SEEDS))
@pytest.mark.parametrize("longest_ms", [None, 1000])
def test_rates_of_clients(number: int, longest_ms: int | None) -> None:
    rng = seeded(number)
    window, now = rng.choice(WINDOWS), rng.randrange(1 << 30)
    quota, limits, models = RateQuota(window, delay_ms_max=longest_ms), dict[Entity, float](), dict[Bucket, ModelRate]()
    for _ in range(STEPS):
        while not limits or rng.random() < 0.1:
            quota.limits.put(*changed(rng, limits))
        user, client_id, value = rng.choice(USERS), rng.choice(CLIENT_IDS), rng.randrange(200)
        delay_ms = quota.record(user, client_id, value, now / TICKS)
        found = limit_of(limits, user, client_id)
        if found is None:
            assert delay_ms == 0
            assert quota.at_once(user, client_id) is None
        else:
            limit, bucket = found
            model = models.setdefault(bucket, ModelRate(window))
            model.record(Fraction(value), now)
            assert same(delay_ms, model.exact_delay_ms(Fraction(limit), now), longest_ms)
            assert quota.at_once(user, client_id) == limit * (window.samples - 1) * window.sample_s
            if delay_ms and rng.random() < 0.5:
                quota.take_back(user, client_id, value, now / TICKS)
                model.record(Fraction(-value), now)
        now = later(rng, now, window)


@pytest.mark.parametrize("number", range(SEEDS))
def test_changes_of_clients(number: int) -> None:
    """A strict request passes while tokens are there, and may take more than that; another one always passes."""
    rng = seeded(number)
    window, now = rng.choice(WINDOWS), rng.randrange(1 << 30)
    quota, limits, models = MutationQuota(window), dict[Entity, float](), dict[Bucket, ModelBucket]()
    for _ in range(STEPS):
        while not limits or rng.random() < 0.05:
            quota.limits.put(*changed(rng, limits))
        user, client_id = rng.choice(USERS), rng.choice(CLIENT_IDS)
        count, strict = rng.choice([1, 5, 50, 500]), rng.random() < 0.5
        delay_ms = quota.take(user, client_id, count, now / TICKS, strict=strict)
        found = limit_of(limits, user, client_id)
        if found is None:
            assert delay_ms == 0
        else:
            limit, bucket = Fraction(found[0]), found[1]
            model = models.setdefault(bucket, ModelBucket(window))
            if not strict:
                model.take(count, limit, now)
            exact = model.exact_delay_ms(limit, now)
            assert same(delay_ms, exact)
            if strict and not delay_ms:  # a wait of less than half a millisecond is none
                model.take(count, limit, now)
        now = later(rng, now, window)
