"""Removal of transactional ids that were not used for `transactional.id.expiration.ms`, by tombstones."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from barnabas.coordinator.machine import Decision, Now, Result
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.ids import TransactionalId
from barnabas.coordinator.txn.states import AT_REST, TRANSITIONS, Event
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.stored import txn_record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.transactions")

_REMOVALS_PER_BATCH: Final = 1_000
"""Keeps a batch of tombstones far below `message.max.bytes`: ids have 50 bytes in practice."""


class Removal:
    """See the module."""

    def __init__(self, store: TxnStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def remove_expired(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up: tombstones for ids without a change in `transactional_id_expiration_ms`."""
        before_ms = now.wall_ms - self._store.config.transactional_id_expiration_ms
        batch: list[TransactionalId] = []
        for entry in list(self._store.ids.values()):
            txn = entry.txn
            if txn is None or entry.is_busy or txn.state not in AT_REST or txn.update_ms > before_ms:
                continue
            batch.append(entry)
            if len(batch) == _REMOVALS_PER_BATCH:
                yield self._remove(batch)
                batch = []
        if batch:
            yield self._remove(batch)

    def _remove(self, batch: list[TransactionalId]) -> Result:
        out = Decision()
        for entry in batch:
            # A batch that was yielded before may have changed this one.
            txn = entry.txn
            if txn is None or entry.is_busy or self._store.ids.get(entry.transactional_id) is not entry:
                continue
            entry.pending = TRANSITIONS[txn.state][Event.EXPIRED]
            out.records.append(txn_record(entry.transactional_id, None, 0))
            out.when_committed(partial(self._changes.committed, entry))
            out.if_failed(partial(self._not_removed, entry))
        log.info("removing %d expired transactional ids", len(out.records))
        return out.result()

    def _not_removed(self, entry: TransactionalId, out: Decision, code: ErrorCode, appended: bool, now: Now) -> None:
        if not appended:
            entry.pending = None
