"""Changes of transactional ids, by any operation: writing one, and its consequences.

The consequences of a committed change (`Changes.follow_up`) are the same after a load: a decided transaction sends its
markers, an open one gets its deadline. When all partitions have their marker one more record completes the transaction;
should the log refuse that one, it is tried again until it is written, and the id stays busy.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from barnabas.coordinator.machine import Decision, Now, Result
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.ids import Due, TransactionalId
from barnabas.coordinator.txn.markers import Marked, MarkersToWrite
from barnabas.coordinator.txn.states import DECIDED, TRANSITIONS, Event, State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.stored import txn_record, value_version
from barnabas.coordinator.txn.transaction import (
    EPOCH_BUMPING,
    NO_ID,
    NO_TIMEOUT_MS,
    Txn,
    completed,
    fenced,
    needs_next_id,
)
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.transactions")

_COMPLETE_RETRY_S: Final = 1.0


class Changes:
    """See the module. Methods that decide write into the `Decision` of the operation."""

    def __init__(self, store: TxnStore) -> None:
        self._store = store

    def write(self, entry: TransactionalId, target: Txn, out: Decision) -> None:
        """`entry` is to become `target`, which came out of the table of states. It is busy until that is committed."""
        version = value_version(self._store.config.transaction_version)
        out.records.append(txn_record(entry.transactional_id, target, version))
        entry.pending, entry.target = target.state, target
        out.when_committed(partial(self.committed, entry))
        out.if_failed(partial(self._not_written, entry))

    def committed(self, entry: TransactionalId, out: Decision, now: Now) -> None:
        """What was written for an id, or its tombstone, is committed."""
        if not self._store.has(entry):
            return
        entry.settle()
        if entry.logged is None:
            del self._store.ids[entry.transactional_id]
        else:
            self.follow_up(entry, now, out)

    def _not_written(self, entry: TransactionalId, out: Decision, code: ErrorCode, appended: bool, now: Now) -> None:
        if appended or self._store.is_gone:
            return
        log.info("transactional id %r: no change, for the log refuses it: %s", entry.transactional_id, code.name)
        entry.target, deadlines = None, self._store.deadlines
        if entry.logged is not None and entry.logged.state in DECIDED:
            # The markers are written; only this record is missing, and the id stays busy until it is there.
            deadlines.set((entry.transactional_id, Due.COMPLETE), now.seconds + _COMPLETE_RETRY_S)
            return
        entry.pending = None
        if entry.logged is None:
            del self._store.ids[entry.transactional_id]
        elif entry.logged.state is State.ONGOING and (entry.transactional_id, Due.TIME_OUT) not in deadlines:
            deadlines.set((entry.transactional_id, Due.TIME_OUT), now.seconds + retry_s(self._store.config))

    def follow_up(self, entry: TransactionalId, now: Now, out: Decision) -> None:
        """After a change is committed, or read from the log: what has to happen next."""
        txn = entry.txn
        assert txn is not None
        if txn.state in DECIDED:
            self._store.deadlines.cancel((entry.transactional_id, Due.TIME_OUT))
            entry.pending = TRANSITIONS[txn.state][Event.MARKED]
            entry.unmarked = set(txn.partitions)
            entry.markers = None
            if txn.partitions:
                entry.markers = MarkersToWrite(
                    entry.transactional_id,
                    txn.producer_id,
                    txn.producer_epoch,
                    txn.state is State.PREPARE_COMMIT,
                    txn.partitions,
                    self._store.coordinator_epoch,
                    txn.client_version,
                )
                out.effects.append(entry.markers)
            elif self._store.is_loaded:
                self.maybe_complete(entry, now, out)
            else:
                # One record at a time: there may be very many.
                self._store.deadlines.set((entry.transactional_id, Due.COMPLETE), now.seconds)
        elif txn.state is State.ONGOING and txn.timeout_ms != NO_TIMEOUT_MS:
            self._store.deadlines.set((entry.transactional_id, Due.TIME_OUT), due_s(txn, now))

    def marked(self, marked: Marked, now: Now) -> Result:
        """Partitions need no marker any more, see `barnabas.coordinator.txn.markers`."""
        out = Decision()
        entry = self._store.ids.get(marked.markers.transactional_id)
        if entry is not None and entry.markers is marked.markers:
            entry.unmarked -= marked.partitions
            self.maybe_complete(entry, now, out)
        return out.result()

    def maybe_complete(self, entry: TransactionalId, now: Now, out: Decision) -> None:
        """Write the last record of a decided transaction, if every partition has its marker."""
        txn = entry.txn
        if txn is not None and txn.state in DECIDED and not entry.unmarked and entry.target is None:
            self.write(entry, completed(txn, now.wall_ms), out)

    def abort_open(self, entry: TransactionalId, txn: Txn, new_id: int, now: Now, out: Decision) -> None:
        """The coordinator itself ends an open transaction and shuts out its producer."""
        level = self._store.config.transaction_version
        base = txn
        if entry.fence_failed and level < EPOCH_BUMPING:
            # The epoch in `txn` is the fencing one already.
            base = txn._replace(producer_epoch=txn.producer_epoch - 1)
        next_id = new_id if needs_next_id(txn, level) else NO_ID
        self.write(entry, fenced(base, level, next_id, now.wall_ms), out)

        def not_fenced(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended and level < EPOCH_BUMPING:
                entry.fence_failed = True

        out.if_failed(not_fenced)


def retry_s(config: TxnConfig) -> float:
    """After how many seconds an abort that could not be written is tried again."""
    return config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000


def due_s(txn: Txn, now: Now) -> float:
    """When the open transaction is out of time, in seconds of the monotonic clock."""
    return now.seconds + (txn.start_ms + txn.timeout_ms + 1 - now.wall_ms) / 1000
