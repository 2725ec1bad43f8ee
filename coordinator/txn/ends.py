"""EndTxn: the outcome of a transaction is decided. What is decided in which state: the tables of `ending`."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.txn.answers import error_for, write_error
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.ending import Verdict, verdict_bumping, verdict_strict
from barnabas.coordinator.txn.needs import need_id
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.transaction import EPOCH_BUMPING, NO_ID, completed, ended, needs_next_id
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import EndTxnRequest, EndTxnResponse


class Ends:
    """See the module."""

    def __init__(self, store: TxnStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def end(self, request: EndTxnRequest, version: int, token: Any, now: Now) -> Result:
        """EndTxn. Answers `EndTxnResponse` when the decision is committed; the markers follow. From version 5 on it
        carries the producer id and epoch to continue with.
        """
        return self._end(request, version, token, NO_ID, now)

    def _end(self, request: EndTxnRequest, version: int, token: Any, new_id: int, now: Now) -> Result:
        client_version = EPOCH_BUMPING if version > 4 else 0
        entry = self._store.ids.get(request.transactional_id)
        txn = None if entry is None else entry.txn
        verdict: Verdict
        if self._store.is_gone:
            verdict = ErrorCode.NOT_COORDINATOR
        elif not request.transactional_id:
            verdict = ErrorCode.INVALID_REQUEST
        elif entry is None or txn is None:
            verdict = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            decide = verdict_bumping if client_version >= EPOCH_BUMPING else verdict_strict
            verdict = decide(txn, entry.is_busy, request.producer_id, request.producer_epoch, request.committed)
        if isinstance(verdict, ErrorCode):
            if verdict == ErrorCode.NONE and txn is not None and client_version >= EPOCH_BUMPING:
                return answer(token, EndTxnResponse(producer_id=txn.producer_id, producer_epoch=txn.producer_epoch))
            return answer(token, _end_error(version, verdict))
        assert entry is not None
        assert txn is not None
        if new_id == NO_ID and needs_next_id(txn, client_version):
            return need_id(
                lambda got, then: self._end(request, version, token, got, then),
                lambda code, then: answer(token, _end_error(version, code)),
            )
        next_id = new_id if needs_next_id(txn, client_version) else NO_ID
        target = ended(txn, verdict, client_version, next_id, now.wall_ms)
        out = Decision()
        self._changes.write(entry, target, out)
        response = EndTxnResponse()
        if client_version >= EPOCH_BUMPING:
            goes_on = completed(target, now.wall_ms)
            response = EndTxnResponse(producer_id=goes_on.producer_id, producer_epoch=goes_on.producer_epoch)
        out.reply_when_committed(token, response, lambda code: _end_error(version, write_error(code)))
        return out.result()


def _end_error(version: int, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error_for(ApiKey.END_TXN, version, code))
