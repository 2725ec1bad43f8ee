"""The settings that streams groups read; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordinator.group.config import GroupSettings


class StreamsSettings(NamedTuple):
    """What one streams group may have of its own. `num_standby_replicas`: how many standbys a stateful task is to have.
    `initial_rebalance_delay_ms`: how long the first members of an empty group wait for others.
    """

    usual: GroupSettings
    initial_rebalance_delay_ms: int
    num_standby_replicas: int

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """What the assignor goes by, as it is stored."""
        return (("num.standby.replicas", str(self.num_standby_replicas)),)


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """Defaults are Apache Kafka's (`group.streams.…`), times milliseconds. `max_size`: members of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    max_size: int = 2**31 - 1

    @property
    def settings(self) -> StreamsSettings:
        """Of a group that has none of its own."""
        return StreamsSettings(
            GroupSettings(self.session_timeout_ms, self.heartbeat_interval_ms, self.assignment_interval_ms),
            self.initial_rebalance_delay_ms,
            self.num_standby_replicas,
        )
