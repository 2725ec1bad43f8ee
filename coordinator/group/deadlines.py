"""What falls due in groups, and when: one table of deadlines for all groups of a partition."""

from __future__ import annotations

from enum import Enum

from barnabas.coordinator.machine import Deadlines


class Due(Enum):
    """What a deadline of a group is about: the first four of a classic one, the next two of a next-generation or a
    streams group, the others of one of these kinds.
    """

    SESSION = "a member sent no heartbeat for its session time-out"
    PENDING = "a member id was assigned and no member joined with it"
    JOIN = "the time to join is up"
    SYNC = "the time to sync is up"
    HEARTBEAT = "a member of a group with epochs sent no heartbeat for its session time-out"
    REVOKE = "a member did not give up what it was to within its rebalance time-out"
    REJOIN = "a classic member of a next-generation group did not join again"
    RESYNC = "a classic member of a next-generation group did not ask for its assignment"
    INITIAL_DELAY = "the first members of a streams group had their time to join"
    SHARE_HEARTBEAT = "a member of a share group sent no heartbeat for its session time-out"


GroupDeadlines = Deadlines[tuple[str, Due, str]]
"""By (group id, what, member id or "")."""
