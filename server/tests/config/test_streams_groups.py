"""What one streams group may have of its own."""

from __future__ import annotations

from barnabas.coordinator import GroupSettings
from barnabas.coordinator.group.streams import StreamsGroupConfig
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.streams_groups import group_settings
from barnabas.server.coordinators.streams.groups import streams_config


def test_the_brokers_settings_are_those_of_groups_without_any() -> None:
    config = BrokerConfig.from_values({})
    assert streams_config(config) == StreamsGroupConfig()
    assert group_settings(config, {}) == StreamsGroupConfig().settings
    config = BrokerConfig.from_values(
        {"group.streams.num.standby.replicas": "1", "group.streams.initial.rebalance.delay.ms": "7"}
    )
    assert streams_config(config) == StreamsGroupConfig(num_standby_replicas=1, initial_rebalance_delay_ms=7)
    assert group_settings(config, {}) == streams_config(config).settings


def test_a_groups_own_stand_over_these_within_the_brokers_bounds() -> None:
    own = {
        "streams.session.timeout.ms": "50000",
        "streams.heartbeat.interval.ms": "6000",
        "streams.assignment.interval.ms": "0",
        "streams.initial.rebalance.delay.ms": "0",
        "streams.num.standby.replicas": "2",
    }
    settings = group_settings(BrokerConfig.from_values({}), own)
    assert settings.usual == GroupSettings(50_000, 6_000, 0)
    assert (settings.initial_rebalance_delay_ms, settings.num_standby_replicas) == (0, 2)
    assert settings.assignment_configs == (("num.standby.replicas", "2"),)
    low = BrokerConfig.from_values(
        {"group.streams.max.standby.replicas": "1", "group.streams.max.session.timeout.ms": "46000"}
    )
    settings = group_settings(low, own)
    assert (settings.num_standby_replicas, settings.usual.session_timeout_ms) == (1, 46_000)
