"""How the lag of groups went: a sample every `SAMPLE_S`, of the last hour, for as long as this process runs.

A cluster does not keep it, and lag alone does not say whether a group catches up. It costs what the page of groups
costs, and is shared with it; and the log's ends that come with it make rates (`rates.py`).

Seconds are those of the group's page: the age of the first record that is not read. That record is read once, and not
again while the group stands there; `READS` records a sample at most, those of partitions with most lag first. A group
of which none could be read has no seconds in that sample.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from barnabas.server.client.client import Client
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.groups.lag import GroupLag, Unread, times_of, unread, with_times
from barnabas.server.client.offsets import Span
from barnabas.server.console.desk import Desk, Groups
from barnabas.server.console.rates import Rates

log = logging.getLogger("barnabas.console")

SAMPLE_S: Final = 10.0
SAMPLES: Final = 360
READS: Final = 200
TREND_MS: Final = 60_000
"""Over how long a trend is looked at."""


class Sample(NamedTuple):
    """`time_ms`: when. `lag`: records. `lag_s`: seconds; None: not known."""

    time_ms: int
    lag: int
    lag_s: float | None = None


class History:
    """See the module."""

    def __init__(self) -> None:
        self.rates = Rates()
        self._samples: dict[str, deque[Sample]] = {}
        self._times: dict[Unread, int | None] = {}

    def add(self, now_ms: int, groups: Groups) -> None:
        """Groups that are gone are forgotten."""
        times = {place: at for place, at in self._times.items() if at is not None}
        kept = {}
        for name, lag in with_times(groups.behind, times).items():
            samples = self._samples.get(name, deque(maxlen=SAMPLES))
            if isinstance(lag, GroupLag):
                samples.append(Sample(now_ms, lag.lag, lag.lag_s(now_ms)))
            if samples:
                kept[name] = samples
        self._samples = kept
        self.rates.look(now_ms, _ends(groups))

    async def read_times(self, client: Client, groups: Groups) -> None:
        """Find out since when the first unread records wait, as far as it is not known. Raises ClientError."""
        behind = unread(groups.behind)
        self._times = {place: at for place, at in self._times.items() if place in behind}
        new = sorted(
            (place for place in behind if place not in self._times), key=lambda place: place[1] - behind[place]
        )
        wanted = {place: behind[place] for place in new[:READS]}
        if wanted:
            found = await times_of(client, wanted)
            self._times.update((place, found.get(place)) for place in wanted)

    def of(self, name: str) -> list[Sample]:
        """Oldest first."""
        return list(self._samples.get(name, ()))

    async def run(self, desk: Desk, now_ms: Callable[[], int]) -> None:
        """Take samples until cancelled. A cluster that cannot be asked leaves a gap."""
        was_there = True
        while True:
            try:
                groups = await desk.groups()
                with trio.move_on_after(SAMPLE_S):
                    await self.read_times(desk.client, groups)
                self.add(now_ms(), groups)
                await self.rates.follow(desk.client, now_ms)
                was_there = True
            except ClientError as error:
                if was_there:
                    log.warning("the lag of groups cannot be followed now: %s", error)
                was_there = False
            await trio.sleep(SAMPLE_S)


def _ends(groups: Groups) -> dict[tuple[str, int], int]:
    return {
        (each.topic, each.partition): each.span.end
        for lag in groups.behind.values()
        if not isinstance(lag, Failed)
        for each in lag.partitions
        if isinstance(each.span, Span)
    }


def trend(samples: list[Sample]) -> float | None:
    """Records a minute by which the lag grows; negative: it shrinks; None: not known yet."""
    if len(samples) < 2:
        return None
    last = samples[-1]
    before = next((each for each in reversed(samples) if each.time_ms <= last.time_ms - TREND_MS), samples[0])
    if last.time_ms - before.time_ms < TREND_MS // 2:
        return None
    return (last.lag - before.lag) * 60_000 / (last.time_ms - before.time_ms)
