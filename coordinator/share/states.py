"""The vocabulary of share groups (KIP-932): states of records, what a member says about one, how records are acquired,
and what a broker has of a group's settings. Numbers are those of the wire and of the log.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """What a group has made of a record so far. The last two are final. 3 is reserved."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member works on it, until its lock expires. Never stored."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Nobody gets it any more: rejected, delivered too often, of an aborted transaction, or not a record at all."""


SETTLED: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
STORED: Final = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AcknowledgeType(IntEnum):
    """What a member says about an offset that it has acquired."""

    GAP = 0
    """There is no record for it: a control record, or one that compaction removed."""
    ACCEPT = 1
    RELEASE = 2
    """Somebody may have it again."""
    REJECT = 3
    RENEW = 4
    """The member works on, and needs a new lock."""


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """The limit of records is soft: whole batches of the log, and what is in flight as one piece, stay together."""
    RECORD_LIMIT = 1
    """The limit is hard."""


class ShareSettings(NamedTuple):
    """Of one group, as they are in force when asked for. `delivery_count_limit`: how often a record may be acquired.
    `max_record_locks`: how wide the window of a partition may get. `may_renew`: whether a lock may be renewed.
    """

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    may_renew: bool = True
