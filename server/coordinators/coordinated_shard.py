"""A partition of an internal topic that this broker leads, with its machine; and the interfaces that the runtime needs
of the machine and of its coordinator.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas.coordinator import Now, Record, Reply, Result
from barnabas.server.coordinators.loading import Replayed
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.timers import Timer


class Shard(Protocol):
    """What the runtime itself asks of a machine."""

    def loaded(self, now: Now) -> Result: ...

    def deadline(self) -> float | None: ...

    def expire(self, now: Now) -> Result: ...


S = TypeVar("S", bound=Shard)


class ShardState(Enum):
    """What a shard may be asked. From the first to the second and back, as often as it is loaded; from both to the
    last.
    """

    LOADING = "the log is being read, or has been and is not committed"
    ACTIVE = "clients are served"
    CLOSED = "the partition is led elsewhere, or another shard has taken this one's place"


class Held(NamedTuple):
    """A result that waits until the high watermark reaches `end_offset`; its clients until `due` (seconds)."""

    end_offset: int
    due: float
    result: Result


class CoordinatedShard(Generic[S]):
    """A partition that this broker leads, and its shard.

    is_active, is_closed: what `state` is, for callers in every request.
    loaded_to, appended_to: the offsets behind the last record that was replayed from the log, and that was written for
    it. held: rising by offset, and by time. late: results whose clients were answered with a time-out; all of them come
    before those that are held. is_watching: the partition will call when the first of these is committed. next_steps:
    to call after the write that is under way. failed_steps: the keys of deadlines whose steps have failed, and were
    logged. timer: for the shard's next deadline; commit_timer: for the first of `held`.
    """

    __slots__ = (
        "appended_to",
        "commit_timer",
        "failed_steps",
        "held",
        "is_active",
        "is_closed",
        "is_watching",
        "late",
        "loaded_to",
        "next_steps",
        "partition",
        "shard",
        "state",
        "timer",
    )

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.shard = shard
        self.state = ShardState.LOADING
        self.is_active = self.is_closed = False
        self.appended_to = 0
        self.loaded_to = 0
        self.held: deque[Held] = deque()
        self.late: deque[Held] = deque()
        self.is_watching = False
        self.next_steps: list[Callable[[Now], Result]] = []
        self.failed_steps: set[Hashable] = set()
        self.timer: Timer | None = None
        self.commit_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    def activate(self) -> None:
        """It is loaded: serve clients."""
        assert not self.is_closed
        self.state, self.is_active = ShardState.ACTIVE, True

    def suspend(self) -> None:
        """Serve no clients until it is loaded again. A closed shard stays closed."""
        if not self.is_closed:
            self.state, self.is_active = ShardState.LOADING, False

    def close(self) -> None:
        """Serve no clients any more."""
        self.state, self.is_active, self.is_closed = ShardState.CLOSED, False, True


class Subject(Protocol[S]):
    """What a runtime needs of its coordinator.

    topic: the internal topic. log: where the subject's messages go. open_s: how many seconds a loaded shard waits at
    most for the high watermark to pass what was loaded; None: until it does.
    """

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> logging.Logger: ...

    @property
    def open_s(self) -> float | None: ...

    def new_shard(self, partition: Partition) -> S:
        """An empty machine for a partition that is led from now on."""

    def replayed(self, shard: S) -> Replayed:
        """What takes the records of the log."""

    def replay_decided(
        self, shard: S, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        """Let the machine have what it decided, now that it is in the log."""

    def activated(self, led: CoordinatedShard[S]) -> None:
        """A shard has been loaded, and is served from now on."""

    def unloaded(self, led: CoordinatedShard[S], now: Now) -> Iterable[Reply]:
        """Another broker leads the partition: end the machine. Returns the answers for clients that wait in it."""

    def carry_out(self, led: CoordinatedShard[S], effect: Any) -> None:
        """One of `Result.effects`."""

    @property
    def required_acks(self) -> int:
        """-1: answers wait for all in-sync replicas."""

    @property
    def commit_timeout_s(self) -> float:
        """The time after which clients whose write is not committed get an error."""

    def size(self, shard: S) -> int:
        """How many groups or ids there are, for the log."""
