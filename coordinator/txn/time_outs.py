"""Open transactions that are out of time: the coordinator aborts them, and shuts out their producer."""

from __future__ import annotations

import logging
from functools import partial

from barnabas.coordinator.machine import NOTHING, Decision, Now, Result
from barnabas.coordinator.txn.changes import Changes, due_s, retry_s
from barnabas.coordinator.txn.ids import Due, TransactionalId
from barnabas.coordinator.txn.needs import NeedProducerId
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.transaction import NO_ID, NO_TIMEOUT_MS, needs_next_id

log = logging.getLogger("barnabas.transactions")


class TimeOuts:
    """See the module."""

    def __init__(self, store: TxnStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def time_out(self, entry: TransactionalId, new_id: int, now: Now, out: Decision) -> None:
        """The deadline of an id has come. new_id: -1 until it turned out that one is needed, and was fetched."""
        txn = entry.txn
        key = (entry.transactional_id, Due.TIME_OUT)
        if txn is None or txn.state is not State.ONGOING or txn.timeout_ms == NO_TIMEOUT_MS:
            return
        if entry.is_busy or due_s(txn, now) > now.seconds:
            # When the change is committed it is armed again; should it not come about, here.
            self._store.deadlines.set(
                key, max(due_s(txn, now), now.seconds + retry_s(self._store.config) if entry.is_busy else 0.0)
            )
            return
        if new_id == NO_ID and needs_next_id(txn, self._store.config.transaction_version):
            self._store.deadlines.set(key, now.seconds + retry_s(self._store.config))
            out.effects.append(
                NeedProducerId(partial(self._time_out_with, entry), lambda code, then: NOTHING),
            )
            return
        log.info(
            "transactional id %r: producer %d, epoch %d is aborted after %d ms",
            entry.transactional_id,
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
        )
        self._changes.abort_open(entry, txn, new_id, now, out)

    def _time_out_with(self, entry: TransactionalId, new_id: int, now: Now) -> Result:
        out = Decision()
        if self._store.has(entry):
            self.time_out(entry, new_id, now, out)
        return out.result()
