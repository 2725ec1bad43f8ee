"""States of a classic group and what moves it from one to another, as a table.

    Empty ──rebalance──▶ PreparingRebalance ──formed──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                     │    ▲    ▲                        │                            │
      └──────no members─────┘    │    └───────rebalance────────┘                            │
                                 └─────────────────────────rebalance────────────────────────┘

Any state ends in Dead: the group was deleted (only when Empty) or its partition went to another broker. A group that
is read from the log starts Empty and is `LOADED` into Stable when the stored generation has members.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final


class State(Enum):
    """Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    """No members: only committed offsets, or not even those."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """JoinGroup requests are held until every known member has sent one, or the rebalance time-out passes. Offsets of
    the old generation are accepted.
    """
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The new generation is formed; SyncGroup requests are held until the leader's brings the assignment. No offsets
    are accepted.
    """
    STABLE = "Stable"
    """The assignment is in the log; members heartbeat and commit."""
    DEAD = "Dead"
    """Removed; requests do not reach it any more."""


class Event(Enum):
    REBALANCE = "a member came, left, failed or changed, or the leader asked"
    FORMED = "the members of the next generation are known"
    NO_MEMBERS = "the rebalance ended with no members in the group"
    ASSIGNED = "the leader's assignment was replayed"
    LOADED = "members of a stored generation were read from the log"
    DELETED = "an administrator or the expiry of its last offset removed it"
    UNLOADED = "the partition is no longer led here"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.LOADED: State.STABLE,
        Event.DELETED: State.DEAD,
        Event.UNLOADED: State.DEAD,
    },
    State.PREPARING_REBALANCE: {
        Event.FORMED: State.COMPLETING_REBALANCE,
        Event.NO_MEMBERS: State.EMPTY,
        Event.UNLOADED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Event.ASSIGNED: State.STABLE,
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.UNLOADED: State.DEAD,
    },
    State.STABLE: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.UNLOADED: State.DEAD,
    },
    State.DEAD: {},
}


class Why(Enum):
    """Why a group of any kind rebalances; values are what metrics show."""

    JOINED = "member joined"
    JOINED_AGAIN = "member joined again"
    """Of a classic group: it subscribes to something else, or has seen that topics have changed."""
    LEFT = "member left"
    TIMED_OUT = "member timed out"
    NOT_SYNCED = "members did not sync"
    STATIC_CHANGED = "static member changed"
    TOO_MANY = "too many members"
    NOT_WRITTEN = "assignment not written"
    SUBSCRIPTION = "subscription changed"
    TOPICS = "topics changed"
    PROTOCOL = "group changed its protocol"


Rebalances = Counter[Why]
"""How many began here. Soft state."""
