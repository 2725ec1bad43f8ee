"""The settings of group machines, out of the broker's."""

from __future__ import annotations

from barnabas.coordinator import GroupConfig
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.settings.consumer_groups import ASSIGNORS


def machine_config(config: BrokerConfig) -> GroupConfig:
    """The machine's settings out of the broker's."""
    assignors = config.get_value("group.consumer.assignors")
    assert isinstance(assignors, tuple)
    return GroupConfig(
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_max_size=config.get_int("group.max.size"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        consumer_assignors=tuple(ASSIGNORS[name] for name in assignors),
        consumer_migration_policy=config.get_str("group.consumer.migration.policy").lower(),
        consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
    )
