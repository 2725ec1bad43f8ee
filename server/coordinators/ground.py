"""What coordinators need of their broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.coordinator import Now
from barnabas.replication import Image
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.registry import Partitions
from barnabas.server.runtime.timers import Timers

_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CoordinatorGround:
    """What groups and transactions stand on alike.

    create_topic: creates an internal topic, in the form that its coordinator needs; raises KafkaError. now: seconds of
    trio's clock, which is that of `timers`. wall_ms: milliseconds since the epoch.
    """

    partitions: Partitions
    timers: Timers
    current_image: Callable[[], Image]
    current_config: Callable[[], BrokerConfig]
    create_topic: Callable[[str], Awaitable[None]]
    now: Callable[[], float]
    wall_ms: Callable[[], int]

    def time(self) -> Now:
        """The time, as machines want it."""
        return _new_tuple(Now, (self.now(), self.wall_ms()))
