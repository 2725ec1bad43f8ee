"""The settings of one share group: those of its own (`barnabas.server.config.groups`), else the broker's.

What is stored is brought within the broker's bounds, which may have moved since, as in Apache Kafka. Milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator import GroupSettings
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.groups import bounded, value_of
from barnabas.server.settings.share_groups import duration_ms

if TYPE_CHECKING:
    from barnabas.coordinator.share import ShareSettings


class Reading(NamedTuple):
    """How a group reads. `is_committed`: only what is committed. Where it begins: `back_ms` ago, or else at the log's
    start or end (`from_earliest`).
    """

    is_committed: bool = False
    from_earliest: bool = False
    back_ms: int | None = None


def group_settings(config: BrokerConfig, stored: Mapping[str, str]) -> GroupSettings:
    """For the group machine."""
    return GroupSettings(
        session_timeout_ms=bounded(config, stored, "share.session.timeout.ms"),
        heartbeat_interval_ms=bounded(config, stored, "share.heartbeat.interval.ms"),
        assignment_interval_ms=bounded(config, stored, "share.assignment.interval.ms"),
    )


def record_settings(config: BrokerConfig, stored: Mapping[str, str]) -> ShareSettings:
    """For share partitions."""
    from barnabas.coordinator.share import ShareSettings

    return ShareSettings(
        record_lock_duration_ms=bounded(config, stored, "share.record.lock.duration.ms"),
        delivery_count_limit=bounded(config, stored, "share.delivery.count.limit"),
        max_record_locks=bounded(config, stored, "share.partition.max.record.locks"),
        may_renew=value_of(config, stored, "share.renew.acknowledge.enable") is True,
    )


def reading(config: BrokerConfig, stored: Mapping[str, str]) -> Reading:
    """How the group reads."""
    start = value_of(config, stored, "share.auto.offset.reset")
    assert isinstance(start, str)
    _, _, duration = start.partition(":")
    return Reading(
        value_of(config, stored, "share.isolation.level") == "read_committed",
        start == "earliest",
        duration_ms(duration) if duration else None,
    )
