"""How the lag of groups went: a sample every `SAMPLE_S`, of the last hour, for as long as this process runs.

A cluster does not keep it, and lag alone does not say whether a group catches up. It costs what the page of groups
costs, and is shared with it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from barnabas.server.client.failures import ClientError
from barnabas.server.client.lag import GroupLag
from barnabas.server.console.desk import Desk, Groups

log = logging.getLogger("barnabas.console")

SAMPLE_S: Final = 10.0
SAMPLES: Final = 360
TREND_MS: Final = 60_000
"""Over how long a trend is looked at."""

Sample = tuple[int, int]
"""When, ms; lag, records."""


class History:
    """See the module."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def add(self, now_ms: int, groups: Groups) -> None:
        """Groups that are gone are forgotten."""
        kept = {}
        for name, lag in groups.behind.items():
            samples = self._samples.get(name, deque(maxlen=SAMPLES))
            if isinstance(lag, GroupLag):
                samples.append((now_ms, lag.lag))
            if samples:
                kept[name] = samples
        self._samples = kept

    def of(self, name: str) -> list[Sample]:
        """Oldest first."""
        return list(self._samples.get(name, ()))

    async def run(self, desk: Desk, now_ms: Callable[[], int]) -> None:
        """Take samples until cancelled. A cluster that cannot be asked leaves a gap."""
        was_there = True
        while True:
            try:
                self.add(now_ms(), await desk.groups())
                was_there = True
            except ClientError as error:
                if was_there:
                    log.warning("the lag of groups cannot be followed now: %s", error)
                was_there = False
            await trio.sleep(SAMPLE_S)


def trend(samples: list[Sample]) -> float | None:
    """Records a minute by which the lag grows; negative: it shrinks; None: not known yet."""
    if len(samples) < 2:
        return None
    last_ms, last = samples[-1]
    before_ms, before = next((each for each in reversed(samples) if each[0] <= last_ms - TREND_MS), samples[0])
    if last_ms - before_ms < TREND_MS // 2:
        return None
    return (last - before) * 60_000 / (last_ms - before_ms)
