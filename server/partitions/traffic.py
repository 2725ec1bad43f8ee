"""What a partition has written and read since it is on this broker: counted always, and looked at by metrics alone."""

from __future__ import annotations

from barnabas.kproto import ErrorCode
from barnabas.replication import Proposal


class Traffic:
    """appends: batches that were to be appended, refused ones included; bytes_in, records_in: of those that were
    written. rejected_bytes: of batches that were too large. reads: for fetches, a waiting one's each time. bytes_out:
    to consumers. replication_bytes_in, replication_bytes_out: from the leader, to followers. isr_shrinks, isr_expands:
    accepted by the controller; isr_refusals: not accepted.
    """

    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "isr_expands",
        "isr_refusals",
        "isr_shrinks",
        "reads",
        "records_in",
        "rejected_bytes",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.appends = self.bytes_in = self.records_in = self.rejected_bytes = 0
        self.reads = self.bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.isr_shrinks = self.isr_expands = self.isr_refusals = 0

    def wrote(self, size: int, records: int) -> None:
        """As leader, in bytes."""
        self.bytes_in += size
        self.records_in += records

    def rejected(self, code: ErrorCode, size: int) -> None:
        """A batch of so many bytes was not appended."""
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            self.rejected_bytes += size

    def isr_changed(self, proposal: Proposal) -> None:
        """The controller has accepted it."""
        self.isr_shrinks += bool(proposal.removed)
        self.isr_expands += bool(proposal.added)
