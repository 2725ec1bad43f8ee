"""One transactional id: its state in the log, the state being written, and the markers being sent.

A change of an id is one record, and until it is committed the id is *busy*: further changes are rejected, and readers
see the previous value.
"""

from __future__ import annotations

from enum import Enum

from barnabas.coordinator.txn.markers import MarkersToWrite
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.transaction import TopicPartition, Txn, with_fencing_epoch


class Due(Enum):
    TIME_OUT = "the open transaction is out of time"
    COMPLETE = "the end of the transaction could not be written, or is still to be"


class TransactionalId:
    """One id. Hard: `logged`, what the log says, changed by `replay` alone. The rest is soft."""

    __slots__ = (
        "_committed",
        "fence_failed",
        "logged",
        "markers",
        "pending",
        "target",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.logged: Txn | None = None
        self.pending: State | None = None
        """The state after the record that is being written, or the markers that are being sent. The id is busy."""
        self.target: Txn | None = None
        """The value that is being written; it knows what a record does not hold (`Txn.last_epoch`)."""
        self.unmarked: set[TopicPartition] = set()
        """Partitions of a decided transaction that still need their marker."""
        self.markers: MarkersToWrite | None = None
        """What was asked for them."""
        self.fence_failed = False
        """The epoch that was to fence the producer could not be written: it is in force here all the same, and the next
        attempt does not raise it again, as no producer got it.
        """
        self._committed: Txn | None = None

    @property
    def is_busy(self) -> bool:
        return self.pending is not None

    @property
    def txn(self) -> Txn | None:
        """The last value that is committed: what decisions start from, and what readers get."""
        if self.fence_failed and self._committed is not None:
            return with_fencing_epoch(self._committed)
        return self._committed

    def settle(self) -> None:
        """What the log says is committed."""
        self._committed = self.logged
        self.pending = self.target = None
        self.fence_failed = False
