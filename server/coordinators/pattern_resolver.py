"""Finds the topics that match the regular expressions of KIP-848 groups: between two rounds of the loop, or in a thread
where that takes longer than a few milliseconds (`INLINE_MATCHES`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import trio

from barnabas.coordinator import GroupShard, ResolvePatterns
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.runtime.containment import attempt
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.wakeup import Wakeup

INLINE_MATCHES = 500
"""Names times expressions that are matched on the loop: one takes some 7 us."""


MaySee = Callable[[str], bool]
"""Whether the caller may know a topic of that name."""


class ToResolve(NamedTuple):
    """The expressions of one group, as a shard requested them. may_see: which topics they may match; None: all."""

    led: CoordinatedShard[GroupShard]
    shard: GroupShard
    effect: ResolvePatterns
    may_see: MaySee | None = None


Found = Mapping[str, Collection[str]] | None
"""The names of topics by expression; None: they could not be found."""


class PatternResolver:
    """See the module. `run` must be running. resolved: gets what was found, and when looking for it began
    (milliseconds), unless the shard has gone meanwhile; outside of a round.
    """

    def __init__(
        self,
        ground: CoordinatorGround,
        log: logging.Logger,
        offload: Offload,
        resolved: Callable[[ToResolve, Found, int], None],
    ) -> None:
        self._wall_ms = ground.wall_ms
        self._log = log
        self._offload = offload
        self._resolved = resolved
        self._to_resolve: deque[ToResolve] = deque()
        self._wanted = Wakeup()

    def add(self, wanted: ToResolve) -> None:
        """Resolve these, after those that wait for it already."""
        self._to_resolve.append(wanted)
        self._wanted.set()

    async def run(self) -> None:
        """One group's expressions after the other, until cancelled."""
        while True:
            while self._to_resolve:
                wanted = self._to_resolve.popleft()
                await attempt(self._log, f"resolving expressions in {wanted.led!r}", partial(self._resolve, wanted))
                await trio.lowlevel.checkpoint()
            await self._wanted.wait()

    async def _resolve(self, wanted: ToResolve) -> None:
        from barnabas.server.coordinators import group_patterns  # few groups have expressions

        led, shard, effect, may_see = wanted
        started_ms = self._wall_ms()
        names = effect.topics.by_name.keys()
        found = None
        try:
            if len(names) * len(effect.patterns) <= INLINE_MATCHES:
                found = group_patterns.matches(effect.patterns, names)
            else:
                found = await self._offload(group_patterns.matches, effect.patterns, names)
            if may_see is not None:
                found = {pattern: frozenset(filter(may_see, topics)) for pattern, topics in found.items()}
        except Exception:
            self._log.exception("expressions of group %r cannot be resolved", effect.group_id)
        if not led.is_closed and led.shard is shard:
            self._resolved(wanted, found, started_ms)
