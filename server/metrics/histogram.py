"""Durations in nanoseconds, counted by powers of two and quarters of these: adding one needs no search.

A bucket holds the durations of so many bits whose next two bits after the first are the same: its limits are an eighth
to a quarter apart. Quantiles are interpolated between the
limits, so that their error is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BITS: Final = 42
"""More bits, from 2^41 ns or 37 minutes on, count as these."""
_PARTS: Final = 4
BUCKETS: Final = (_BITS + 1) * _PARTS

BOUNDS: Final = range(14, 37, 2)
"""The bits of the limits that are shown: from 16 us to 69 s, each four times the one before."""
BOUNDS_S: Final = tuple(repr(2**bits / 1e9) for bits in BOUNDS)
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Histogram:
    """counts: by bucket. sum_ns: of all."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_ns = 0

    def add(self, duration_ns: int, weight: int = 1) -> None:
        """Count a duration, as often as `weight` says. A clock that went back counts as no time."""
        if duration_ns < 0:
            duration_ns = 0
        bits = duration_ns.bit_length()
        if bits > _BITS:
            bucket = BUCKETS - 1
        elif bits > 2:
            bucket = bits * _PARTS + ((duration_ns >> (bits - 3)) & 3)
        else:
            bucket = bits * _PARTS
        self.counts[bucket] += weight
        self.sum_ns += duration_ns * weight

    @property
    def count(self) -> int:
        return sum(self.counts)

    def up_to(self) -> list[int]:
        """How many durations are below each of `BOUNDS`."""
        totals = []
        total = at = 0
        for bits in BOUNDS:
            end = (bits + 1) * _PARTS
            total += sum(self.counts[at:end])
            at = end
            totals.append(total)
        return totals


def quantile(counts: Sequence[int], share: float) -> float:
    """The duration in nanoseconds below which `share` of those in `counts` lie; 0.0 if there are none."""
    left = share * sum(counts)
    if not left:
        return 0.0
    for bucket, count in enumerate(counts):
        if count and left <= count:
            bits, part = divmod(bucket, _PARTS)
            if bits <= 2:
                return float((1 << bits) - 1)
            width = 2.0 ** (bits - 3)
            return (_PARTS + part + left / count) * width
        left -= count
    return float(2**_BITS)


class Recent:
    """The quantiles of a histogram over the last minute or so: from the first to the second look at least `SPAN_S`."""

    SPAN_S = 60.0

    __slots__ = ("_at", "_before", "_histogram", "_latest")

    def __init__(self, histogram: Histogram, now: float) -> None:
        self._histogram = histogram
        self._at = now
        self._before = self._latest = [0] * BUCKETS

    def counts(self, now: float) -> list[int]:
        """Of the durations that were added in the last one to two minutes; of all, in the first."""
        counts = self._histogram.counts
        if now - self._at >= self.SPAN_S:
            self._before, self._latest, self._at = self._latest, list(counts), now
        return [after - before for after, before in zip(counts, self._before, strict=True)]
