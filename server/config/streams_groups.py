"""The settings of one streams group: those of its own (`barnabas.server.config.groups`), else the broker's.

What is stored is brought within the broker's bounds, which may have moved since, as in Apache Kafka. Milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.coordinator import GroupSettings
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.groups import bounded

if TYPE_CHECKING:
    from barnabas.coordinator.group.streams import StreamsSettings


def group_settings(config: BrokerConfig, stored: Mapping[str, str]) -> StreamsSettings:
    """For the group machine."""
    from barnabas.coordinator.group.streams import StreamsSettings

    usual = GroupSettings(
        session_timeout_ms=bounded(config, stored, "streams.session.timeout.ms"),
        heartbeat_interval_ms=bounded(config, stored, "streams.heartbeat.interval.ms"),
        assignment_interval_ms=bounded(config, stored, "streams.assignment.interval.ms"),
    )
    return StreamsSettings(
        usual,
        bounded(config, stored, "streams.initial.rebalance.delay.ms"),
        bounded(config, stored, "streams.num.standby.replicas"),
    )
