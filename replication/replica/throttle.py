"""Replication throttles (KIP-73): a limit in bytes per second for replicas that are named, and are behind.

The rate is measured over a window of `samples` × `sample_s` seconds (`replication.quota.window.num` and
`.size.seconds`). Samples older than the window do not count; a younger measurement counts as if it had lasted at least
one sample, so that the first answer of a fetch does not look like an endless burst. Over the limit, throttled
replicas rest until the rate has fallen. The limit is on what goes *on*: one answer may exceed it, the average does not.

Which replicas: `follower.replication.throttled.replicas` and `leader.replication.throttled.replicas` of the topic,
`partition:broker` pairs or `*`. In-sync replicas are never held back, whatever the rate.

Times are seconds of the monotonic clock. Source: `ReplicationQuotaManager.scala`, `SimpleRate.java`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

UNLIMITED = 2**63 - 1


class ReplicationThrottle:
    """One direction of one broker. rate: bytes per second, to be set again when the setting changes."""

    __slots__ = ("_window", "rate", "sample_s", "samples")

    def __init__(self, rate: int = UNLIMITED, samples: int = 11, sample_s: float = 1.0) -> None:
        self.rate = rate
        self.samples = samples
        self.sample_s = sample_s
        self._window: deque[list[float]] = deque()  # [start, bytes] each, the oldest first

    def record(self, size: int, now: float) -> None:
        """`size` bytes went to or came from a throttled replica."""
        window = self._window
        if not window or now - window[-1][0] >= self.sample_s:
            self._forget(now)
            window.append([now, float(size)])
        else:
            window[-1][1] += size

    def _forget(self, now: float) -> None:
        window = self._window
        oldest = now - self.samples * self.sample_s
        while window and window[0][0] <= oldest:
            window.popleft()

    def bytes_per_s(self, now: float) -> float:
        """The rate of the window."""
        self._forget(now)
        window = self._window
        if not window:
            return 0.0
        return sum(size for _, size in window) / max(now - window[0][0], self.sample_s)

    def exceeded(self, now: float) -> bool:
        """Throttled replicas that are behind are to rest."""
        return self.rate != UNLIMITED and self.bytes_per_s(now) > self.rate


ALL: Collection[int] = range(2**31)


def throttled_partitions(setting: Iterable[str], broker_id: int) -> Collection[int]:
    """The partitions of a topic whose replica on `broker_id` is throttled, of its setting's parsed list."""
    found = set()
    for item in setting:
        if item == "*":
            return ALL
        partition, colon, broker = item.partition(":")
        if colon and broker.isdecimal() and partition.isdecimal() and int(broker) == broker_id:
            found.add(int(partition))
    return found
