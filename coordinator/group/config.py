"""The settings that the group machine reads; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

SETTLING_HEARTBEAT_MS: Final = 250
"""How soon after a new target its members are asked for their next heartbeat; later it is longer by and by."""
SETTLING_PART: Final = 4
"""Namely this part of the target's age, so that a group is as it usually is after 20 s: 17 heartbeats instead of 4."""
SETTLING_MEMBER_MS: Final = 1
"""And for each member: a group sends no more than 1,000 heartbeats per second because of it."""


class GroupSettings(NamedTuple):
    """What one next-generation, share or streams group may have of its own, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    def may_assign(self, assigned_at_ms: int, now_ms: int) -> bool:
        """Whether the last target is old enough for the next. assigned_at_ms: 0 if there was none."""
        interval_ms = self.assignment_interval_ms
        return assigned_at_ms == 0 or interval_ms == 0 or now_ms >= assigned_at_ms + interval_ms

    def next_heartbeat_ms(self, age_ms: int, is_target_late: bool, members: int) -> int:
        """When a member should be heard of again. age_ms: of the target. is_target_late: the group has moved on since.

        Members cannot be called: a group settles as fast as they ask. So it is soon while the group has changed lately,
        as those who have partitions to revoke do not know it, and those who wait for them do not know when they are
        free; or when the next target may be made. Clients keep to what the last answer said. Apache Kafka always says
        the group's usual interval.
        """
        usual_ms = self.heartbeat_interval_ms
        if age_ms < 0:  # the clock was set back
            return usual_ms
        if is_target_late:
            wait_ms = self.assignment_interval_ms - age_ms
        else:
            wait_ms = max(SETTLING_HEARTBEAT_MS, SETTLING_MEMBER_MS * members, age_ms // SETTLING_PART)
        return min(max(wait_ms, 1), usual_ms)


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
