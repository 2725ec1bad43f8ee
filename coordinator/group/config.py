"""The settings that the group machine reads; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Defaults are Apache Kafka's. All `_ms` are milliseconds, `offset_metadata_max_bytes` is compared with
    characters, as there.

    `group_max_size`: members of one group. `new_member_join_timeout_ms`: how long the JoinGroup of a member nobody
    has heard of before may stay parked (not a setting in Apache Kafka: 5 minutes).
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
