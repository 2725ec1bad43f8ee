"""The settings that share groups read; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.group.config import GroupSettings


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Defaults are Apache Kafka's (`group.share.…`), times milliseconds. `max_size`: members of one group.
    `initialize_retry_interval_ms`: after which the share coordinator is told again of partitions about which it has not
    answered.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000

    @property
    def settings(self) -> GroupSettings:
        """Of a group that has none of its own."""
        return GroupSettings(self.session_timeout_ms, self.heartbeat_interval_ms, self.assignment_interval_ms)
