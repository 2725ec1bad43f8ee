"""Deleted topics, as the machines of a coordinator are told of them: those that are served at once, those that are
being loaded when they are, for their logs may hold what was written before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

from barnabas.coordinator import Now, Result
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, S
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.runtime import CoordinatorRuntime
from barnabas.server.runtime.containment import contain

T = TypeVar("T", bound=Hashable)


class GoneTopics(Generic[S, T]):
    """See the module. T: what stands for a topic, its name or id. forget: what a machine decides, result by result."""

    def __init__(
        self,
        ground: CoordinatorGround,
        runtime: CoordinatorRuntime[S],
        forget: Callable[[S, Collection[T], Now], Iterable[Result]],
    ) -> None:
        self._ground = ground
        self._runtime = runtime
        self._forget = forget
        self._later: dict[CoordinatedShard[S], set[T]] = {}  # of those that are being loaded

    def deleted(self, topics: Collection[T]) -> None:
        """Topics are gone, and with them what is stored of them, before a topic of the same name comes."""
        for led in list(self._runtime.shards.values()):
            if led.is_active:
                try:
                    self._tell(led, topics)
                except Exception as error:
                    contain(self._runtime.log, f"removing what is stored of deleted topics in {led!r}", error)
            elif not led.is_closed:
                self._later.setdefault(led, set()).update(topics)
        self._ground.partitions.write_staged()

    def activated(self, led: CoordinatedShard[S]) -> None:
        """A shard is served from now on."""
        topics = self._later.pop(led, None)
        if topics:
            self._tell(led, topics)
            self._ground.partitions.write_staged()

    def unloaded(self, led: CoordinatedShard[S]) -> None:
        """A shard is dropped."""
        self._later.pop(led, None)

    def _tell(self, led: CoordinatedShard[S], topics: Collection[T]) -> None:
        for result in self._forget(led.shard, topics, self._ground.time()):
            self._runtime.results.apply(led, result)
