"""What metrics are read from: the parts of one broker, and what was counted on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.metrics.foreign_ends import ForeignEnds
    from barnabas.server.metrics.loop_watch import LoopWatch
    from barnabas.server.metrics.meter import Meter
    from barnabas.server.metrics.timed_disk import SyncTimes
    from barnabas.server.network.admission import Admission
    from barnabas.server.network.reactor import Reactor
    from barnabas.server.requests.services import Services
    from barnabas.server.storage.cleaner import Cleaner


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Counted:
    """What is counted and timed while the broker runs, from its start on. version: of the program."""

    meter: Meter
    syncs: SyncTimes
    loop: LoopWatch
    version: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sources:
    """A broker that serves. cleaner(): None without one. foreign_ends: None for a broker alone."""

    counted: Counted
    services: Services
    reactor: Reactor
    admission: Admission
    cleaner: Callable[[], Cleaner | None]
    foreign_ends: ForeignEnds | None

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.services.config
