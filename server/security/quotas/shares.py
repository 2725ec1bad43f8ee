"""What each user, client id or address has used, and how long it has to wait for more.

Buckets that were unused for longer than their window are dropped, which changes no delay: they would be as new.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.server.security.quotas.limits import Limits, Share
from barnabas.server.security.quotas.rates import Rate, TokenBucket, Window

_SWEEP_BUCKETS: Final = 1000
"""With fewer there is nothing to gain by dropping some."""


class _Bucket(Protocol):
    @property
    def last_recorded(self) -> float: ...


K = TypeVar("K", bound=Hashable)
B = TypeVar("B", bound=_Bucket)


class _Buckets(Generic[K, B]):
    """By entity. Dropped at the latest when there are twice as many as were in use."""

    def __init__(self, window: Window) -> None:
        self._forget_s = window.span_s + window.sample_s
        self._sweep_at = _SWEEP_BUCKETS
        self.known: dict[K, B] = {}

    def add(self, key: K, bucket: B, now: float) -> B:
        """Keep one more."""
        if len(self.known) >= self._sweep_at:
            used_since = now - self._forget_s
            self.known = {key: bucket for key, bucket in self.known.items() if bucket.last_recorded >= used_since}
            self._sweep_at = max(_SWEEP_BUCKETS, 2 * len(self.known))
        self.known[key] = bucket
        return bucket


class Usage(NamedTuple):
    """What one share has used of late. value: units per second, or tokens left; delay_ms: the mean of its delays in the
    window, 0 without any.
    """

    share: Share
    value: float
    delay_ms: float


class _Delays:
    """The delays of each share, for its metrics: their mean over the window, as Apache Kafka has it."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._sums: _Buckets[Share, Rate] = _Buckets(window)
        self._counts: _Buckets[Share, Rate] = _Buckets(window)

    def note(self, share: Share, delay_ms: int, now: float) -> None:
        for buckets, value in ((self._sums, delay_ms), (self._counts, 1)):
            rate = buckets.known.get(share)
            if rate is None:
                rate = buckets.add(share, Rate(self._window, now), now)
            rate.record(value, now)

    def mean_ms(self, share: Share, now: float) -> float:
        total, count = self._sums.known.get(share), self._counts.known.get(share)
        if total is None or count is None:
            return 0.0
        rate = count.seen(now)
        return total.seen(now) / rate if rate else 0.0


class RateQuota:
    """Limits of one kind, by user and client id, of what is counted as it comes: bytes, percents of a thread.

    delay_ms_max: no delay is longer; None: as long as it takes.
    """

    def __init__(self, window: Window, *, delay_ms_max: int | None = None) -> None:
        self.limits = Limits()
        self._window = window
        self._delay_ms_max = delay_ms_max
        self._buckets: _Buckets[Share, Rate] = _Buckets(window)
        self._delays = _Delays(window)

    def record(self, user: str, client_id: str, value: float, now: float) -> int:
        """Count `value`; returns for how many milliseconds the client shall wait. Without a limit for it: 0."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0
        rate = self._rate(limit.share, now)
        rate.record(value, now)
        delay_ms = rate.delay_ms(limit.value, now)
        if delay_ms:
            delay_ms = delay_ms if self._delay_ms_max is None else min(delay_ms, self._delay_ms_max)
            self._delays.note(limit.share, delay_ms, now)
        return delay_ms

    def usage(self, now: float) -> Iterator[Usage]:
        """Of all who have used some within the window."""
        since = now - self._window.span_s
        for share, rate in list(self._buckets.known.items()):
            if rate.last_recorded >= since:
                yield Usage(share, rate.seen(now), self._delays.mean_ms(share, now))

    def take_back(self, user: str, client_id: str, value: float, now: float) -> None:
        """What was recorded did not happen."""
        limit = self.limits.find(user, client_id)
        if limit is not None:
            self._rate(limit.share, now).record(-value, now)

    def at_once(self, user: str, client_id: str) -> float | None:
        """What the client may use at once after a pause; more would never pass. None: no limit."""
        limit = self.limits.find(user, client_id)
        return None if limit is None else limit.value * self._window.least_s

    def __len__(self) -> int:
        return len(self._buckets.known)

    def _rate(self, share: Share, now: float) -> Rate:
        rate = self._buckets.known.get(share)
        return rate or self._buckets.add(share, Rate(self._window, now), now)


class MutationQuota:
    """How many partitions may be created, added and deleted in a second, by user and client id (KIP-599)."""

    def __init__(self, window: Window) -> None:
        self.limits = Limits()
        self._window = window
        self._buckets: _Buckets[Share, TokenBucket] = _Buckets(window)
        self._delays = _Delays(window)

    def take(self, user: str, client_id: str, count: float, now: float, *, strict: bool) -> int:
        """Take tokens for `count` partitions. Returns for how many milliseconds the client shall wait, measured before
        a strict request, which gets nothing if that is more than 0, and after one that is not refused in any case.
        """
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0
        bucket = self._buckets.known.get(limit.share)
        if bucket is None:
            bucket = self._buckets.add(limit.share, TokenBucket(self._window, limit.value, now), now)
        bucket.rate = limit.value
        if strict:
            delay_ms = bucket.delay_ms(now)
            if not delay_ms:
                bucket.take(count, now)
        else:
            bucket.take(count, now)
            delay_ms = bucket.delay_ms(now)
        if delay_ms:
            self._delays.note(limit.share, delay_ms, now)
        return delay_ms

    def usage(self, now: float) -> Iterator[Usage]:
        """Of all who have asked within the window: the tokens that they have left."""
        since = now - self._window.span_s
        for share, bucket in list(self._buckets.known.items()):
            if bucket.last_recorded >= since:
                yield Usage(share, bucket.left(now), self._delays.mean_ms(share, now))


class ConnectionRates:
    """How fast addresses may connect (KIP-612). `limits`: by address; `default`: of all others; None: no limit."""

    def __init__(self, window: Window) -> None:
        self.limits: dict[str, float] = {}
        self.default: float | None = None
        self._window = window
        self._buckets: _Buckets[str, Rate] = _Buckets(window)

    def record(self, host: str, now: float) -> int:
        """One more connection of `host`; returns for how many milliseconds it shall not be served, at most those of
        one sample, and then be closed. Such a one is not counted.
        """
        limit = self.limits.get(host, self.default)
        if limit is None:
            return 0
        rate = self._buckets.known.get(host)
        if rate is None:
            rate = self._buckets.add(host, Rate(self._window, now), now)
        rate.record(1, now)
        delay_ms = rate.delay_ms(limit, now)
        if delay_ms:
            rate.record(-1, now)
        return min(delay_ms, round(self._window.sample_s * 1000))
