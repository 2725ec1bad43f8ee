"""States of a transactional id and what moves it from one to another, as a table.

    Empty ──partitions──▶ Ongoing ──commit──▶ PrepareCommit ──marked──▶ CompleteCommit
      ▲                   ▲  │ │                                              │
      │                   │  │ └──fence──▶ PrepareEpochFence ─┐               │
      │                   │  └──abort──▶ PrepareAbort ◀─abort─┘               │
      │                   │                  │ ▲                              │
      │                   │               marked└──abort nothing── Empty, Complete… (transaction.version 2)
      │                   │                  ▼                                │
      └─InitProducerId─ Complete… ◀──── CompleteAbort                         │
                          ▲───────────────────────────────────────────────────┘

Complete… stands for both outcomes: the next partitions start the next transaction, InitProducerId makes the id Empty.
Dead is an expired id whose tombstone is being written. PrepareEpochFence lasts for no time: an open transaction is
fenced and aborted in one record. Neither of the two is ever stored. The numbers are those of the stored
records (`TransactionLogValue`), the names those that DescribeTransactions and ListTransactions show. Sources: KIP-98,
KIP-360, KIP-890, `TransactionState` of Apache Kafka.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Values are the names that clients see."""

    EMPTY = "Empty"
    """A producer has the id and an epoch, and no transaction since it got them."""
    ONGOING = "Ongoing"
    """Partitions are part of a transaction that is open; its time-out runs."""
    PREPARE_COMMIT = "PrepareCommit"
    """Decided: committed. Markers go to the partitions until all have one, whatever happens meanwhile."""
    PREPARE_ABORT = "PrepareAbort"
    """Decided: aborted. Else as PrepareCommit."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has its marker."""
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class Event(Enum):
    INITIALISED = "InitProducerId handed out an epoch"
    PARTITIONS_ADDED = "the producer is about to write to partitions, or to commit offsets"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts, or was fenced"
    ABORT_NOTHING = "a producer of transaction.version 2 aborts without knowing whether a transaction was open"
    FENCE = "another producer came, or the transaction's time is up"
    MARKED = "every partition has its marker"
    EXPIRED = "the id was not used for transactional.id.expiration.ms"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {
        Event.INITIALISED: State.EMPTY,
        Event.PARTITIONS_ADDED: State.ONGOING,
        Event.ABORT_NOTHING: State.PREPARE_ABORT,
        Event.EXPIRED: State.DEAD,
    },
    State.ONGOING: {
        Event.PARTITIONS_ADDED: State.ONGOING,
        Event.COMMIT: State.PREPARE_COMMIT,
        Event.ABORT: State.PREPARE_ABORT,
        Event.FENCE: State.PREPARE_EPOCH_FENCE,
    },
    State.PREPARE_EPOCH_FENCE: {
        Event.ABORT: State.PREPARE_ABORT,
    },
    State.PREPARE_COMMIT: {
        Event.MARKED: State.COMPLETE_COMMIT,
    },
    State.PREPARE_ABORT: {
        Event.MARKED: State.COMPLETE_ABORT,
    },
    State.COMPLETE_COMMIT: {
        Event.INITIALISED: State.EMPTY,
        Event.PARTITIONS_ADDED: State.ONGOING,
        Event.ABORT_NOTHING: State.PREPARE_ABORT,
        Event.EXPIRED: State.DEAD,
    },
    State.COMPLETE_ABORT: {
        Event.INITIALISED: State.EMPTY,
        Event.PARTITIONS_ADDED: State.ONGOING,
        Event.ABORT_NOTHING: State.PREPARE_ABORT,
        Event.EXPIRED: State.DEAD,
    },
    State.DEAD: {},
}

STORED: Final[dict[State, int]] = {
    State.EMPTY: 0,
    State.ONGOING: 1,
    State.PREPARE_COMMIT: 2,
    State.PREPARE_ABORT: 3,
    State.COMPLETE_COMMIT: 4,
    State.COMPLETE_ABORT: 5,
}
"""Numbers in the records. Apache Kafka numbers Dead 6 and PrepareEpochFence 7 and writes neither."""

DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is in the log and has to reach the partitions."""
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open."""
