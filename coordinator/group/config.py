"""The settings that the group machine reads; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class GroupSettings(NamedTuple):
    """What one next-generation group may have of its own, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Defaults are Apache Kafka's. All `_ms` are milliseconds, `offset_metadata_max_bytes` is compared with UTF-16
    units, as there.

    `group_max_size`: members of one group. `new_member_join_timeout_ms`: how long the JoinGroup of a new member may
    stay parked (not a setting in Apache Kafka: 5 minutes).

    Next-generation groups (KIP-848): `consumer_max_size` members; `consumer_assignors`, of which the first serves those
    who ask for none; `consumer_migration_policy`: whether groups migrate from the classic protocol while they live
    ("upgrade"), back to it ("downgrade"), both ("bidirectional") or neither ("disabled");
    `consumer_regex_refresh_interval_ms`: how old the topics that match a pattern may get;
    `consumer_assignment_interval_ms`: two targets of a group are at least so far apart.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_assignment_interval_ms: int = 1_000

    @property
    def may_upgrade(self) -> bool:
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

    @property
    def settings(self) -> GroupSettings:
        """Of a group that has none of its own."""
        return GroupSettings(
            self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms, self.consumer_assignment_interval_ms
        )
