"""Transactions in compaction, as it reads through a log: which batches are of aborted ones, and which end markers are
not needed any more.

The records of aborted transactions are removed immediately. A marker stays as long as this run finds a batch of its
transaction, for it shows readers where the transaction ends, and after that for `delete.retention.ms` (by the filter);
only then its entry is left out of the cleaned segment's transaction index as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kproto.records import ABORT, COMMIT, BatchHeader
from barnabas.logdir.files.txn_index import AbortedTxn


class Transactions:
    """See the module. Batches come in the order of the log, each once."""

    __slots__ = ("_aborted", "_committed", "_kept", "_next", "_open")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted`: those with records in what is walked through."""
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset)
        self._next = 0
        self._open: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer id to its transaction, which will be aborted, and whether a batch of it was met."""
        self._committed: set[int] = set()
        """Producers of which a batch was met whose transaction will be committed."""
        self._kept: list[AbortedTxn] = []

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            entry = aborted[self._next]
            self._open.setdefault(entry.producer_id, (entry, False))
            self._next += 1

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch of data is part of an aborted transaction."""
        if self._next < len(self._aborted):
            self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._open[header.producer_id] = found[0], True
        return True

    def marker_may_go(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether nothing of the marker's transaction is left. `kind`: the type of the control record, None if the
        batch is the empty shell of a marker.
        """
        self._begin_up_to(header.last_offset)
        if kind == ABORT:
            found = self._open.pop(header.producer_id, None)
            if found is not None and found[1]:
                self._kept.append(found[0])
                return False
            return True
        if kind == COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return kind is None

    def take_kept(self) -> list[AbortedTxn]:
        """Entries of the transaction index since the last call, in the order of their markers."""
        kept, self._kept = self._kept, []
        return kept
