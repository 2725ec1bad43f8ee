"""What is measured: a rate over the last seconds, and a token bucket.

Both give the delays of Apache Kafka (`SampledStat.java`, `Rate.java`, `TokenBucket.java`, `QuotaUtils.java`).

`now` is in seconds of any clock that does not go back. Delays are whole milliseconds, a half rounded up.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple


class Window(NamedTuple):
    """Over how long a rate is taken: `quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    sample_s: float = 1.0

    @property
    def least_s(self) -> float:
        """The shortest time that a rate is taken over."""
        return (self.samples - 1) * self.sample_s

    @property
    def span_s(self) -> float:
        """What was recorded so long ago counts no more."""
        return self.samples * self.sample_s


class _Sample:
    """What was recorded from `start` on, up to `last`."""

    __slots__ = ("last", "start", "value")

    def __init__(self, now: float) -> None:
        self.value = 0.0
        self.start = self.last = now


class Rate:
    """Units per second over a window. One sample more than the window has is kept: the one that reaches into it."""

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Window, now: float) -> None:
        self._window = window
        self._samples = [_Sample(now)]
        self._current = 0

    @property
    def last_recorded(self) -> float:
        """When something was recorded last, or the rate was made."""
        return self._samples[self._current].last

    def record(self, value: float, now: float) -> None:
        """Count `value`, which is negative to take something back."""
        sample = self._samples[self._current]
        if now - sample.start >= self._window.sample_s:
            sample = self._advance(now)
        sample.value += value
        sample.last = now

    def _advance(self, now: float) -> _Sample:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now))
        else:
            self._samples[self._current] = _Sample(now)
        return self._samples[self._current]

    def observed(self, now: float) -> tuple[float, float]:
        """The rate, and the seconds that it was taken over."""
        total, start = 0.0, now
        for sample in self._samples:
            if now - sample.last >= self._window.span_s:
                sample.value, sample.start, sample.last = 0.0, now, now
            total += sample.value
            start = min(start, sample.start)
        return self._over(total, now - start)

    def seen(self, now: float) -> float:
        """The rate, for who only looks: `observed` may change what later rates are taken over."""
        used = [sample for sample in self._samples if now - sample.last < self._window.span_s]
        total = sum(sample.value for sample in used)
        return self._over(total, now - min((sample.start for sample in used), default=now))[0]

    def _over(self, total: float, elapsed: float) -> tuple[float, float]:
        full = floor(elapsed / self._window.sample_s)
        if full < self._window.samples - 1:
            elapsed += (self._window.samples - 1 - full) * self._window.sample_s
        elapsed = max(elapsed, 0.001)
        return total / elapsed, elapsed

    def delay_ms(self, limit: float, now: float) -> int:
        """How long nothing may be recorded until the rate is down at `limit` (more than 0); 0: it is."""
        rate, elapsed = self.observed(now)
        if rate <= limit:
            return 0
        return floor((rate - limit) / limit * elapsed * 1000 + 0.5)


class TokenBucket:
    """Starts full, fills by `rate` tokens a second up to what a whole window gives, and may be overdrawn (KIP-599)."""

    __slots__ = ("_filled_at", "_tokens", "_window", "rate")

    def __init__(self, window: Window, rate: float, now: float) -> None:
        self._window = window
        self.rate = rate
        self._tokens = self.burst
        self._filled_at = now

    @property
    def burst(self) -> float:
        """The most that it holds."""
        return self._window.span_s * self.rate

    @property
    def last_recorded(self) -> float:
        """When it was filled or asked last."""
        return self._filled_at

    def tokens(self, now: float) -> float:
        """What is in it; below 0: overdrawn."""
        self._tokens = min(self.burst, self._tokens + self.rate * (now - self._filled_at))
        self._filled_at = now
        return self._tokens

    def left(self, now: float) -> float:
        """`tokens`, for who only looks: the bucket is not used by that."""
        return min(self.burst, self._tokens + self.rate * (now - self._filled_at))

    def take(self, count: float, now: float) -> None:
        """Take tokens out of it, more than it has if need be."""
        self._tokens = min(self.burst, self.tokens(now) - count)

    def delay_ms(self, now: float) -> int:
        """How long until it is overdrawn no more."""
        tokens = self.tokens(now)
        if tokens >= 0:
            return 0
        return floor(-tokens / self.rate * 1000 + 0.5)
