"""InitProducerId: a producer gets an id, and the epoch that shuts out the producers before it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.stored import fits
from barnabas.coordinator.txn.answers import error_for, write_error
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.ids import TransactionalId
from barnabas.coordinator.txn.needs import need_id
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.transaction import (
    NO_EPOCH,
    NO_ID,
    NO_TIMEOUT_MS,
    Owner,
    Txn,
    fresh,
    initialised,
    may_be,
    needs_new_id,
    needs_next_id,
    rotated,
)
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger("barnabas.transactions")


class Producers:
    """See the module."""

    def __init__(self, store: TxnStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        version: int,
        token: Any,
        now: Now,
        *,
        enable_two_phase_commit: bool = False,
        keep_prepared_txn: bool = False,
    ) -> Result:
        """InitProducerId with a transactional id; without one it is none of this machine's business. The two switches
        are of version 6 (KIP-939). Answers `InitProducerIdResponse`.
        """
        refusal = self._init_refusal(request, enable_two_phase_commit, keep_prepared_txn)
        if refusal is not None:
            return answer(token, _init_error(version, refusal))
        owner = None if request.producer_id == NO_ID else Owner(request.producer_id, request.producer_epoch)
        timeout_ms = NO_TIMEOUT_MS if enable_two_phase_commit else request.transaction_timeout_ms
        return self._init(str(request.transactional_id), owner, timeout_ms, version, token, NO_ID, now)

    def _init_refusal(
        self, request: InitProducerIdRequest, enable_two_phase_commit: bool, keep_prepared_txn: bool
    ) -> ErrorCode | None:
        """What is wrong with the request, whatever the state."""
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH) or not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not fits(request.transactional_id):
            return ErrorCode.INVALID_REQUEST
        if enable_two_phase_commit and not self._store.config.transaction_two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if keep_prepared_txn:
            # Apache Kafka knows the switch, and refuses it, too.
            return ErrorCode.UNSUPPORTED_VERSION
        if not enable_two_phase_commit and not (
            0 < request.transaction_timeout_ms <= self._store.config.transaction_max_timeout_ms
        ):
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return None

    def _init(
        self,
        transactional_id: str,
        owner: Owner | None,
        timeout_ms: int,
        version: int,
        token: Any,
        new_id: int,
        now: Now,
    ) -> Result:
        """`new_id`: -1 until it turned out that one is needed, and was fetched; the state may be another by then."""

        def refuse(code: ErrorCode) -> Result:
            return answer(token, _init_error(version, code))

        def with_new_id() -> Result:
            return need_id(
                lambda got, then: self._init(transactional_id, owner, timeout_ms, version, token, got, then),
                lambda code, then: refuse(code),
            )

        if self._store.is_gone:
            return refuse(ErrorCode.NOT_COORDINATOR)
        entry = self._store.ids.get(transactional_id)
        if entry is not None and entry.is_busy:
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        txn = None if entry is None else entry.txn
        if entry is None or txn is None:
            if new_id == NO_ID:
                return with_new_id()
            entry = TransactionalId(transactional_id)
            txn = fresh(new_id, timeout_ms)
        if owner is not None and not may_be(txn, owner):
            return refuse(ErrorCode.PRODUCER_FENCED)
        if txn.state is State.ONGOING:
            return self._fence(entry, txn, version, token, new_id, with_new_id, now)
        if needs_new_id(txn, owner):
            if new_id == NO_ID:
                return with_new_id()
            target: Txn | None = rotated(txn, owner, new_id, timeout_ms, now.wall_ms)
        else:
            target = initialised(txn, owner, timeout_ms, now.wall_ms)
        if target is None:
            return refuse(ErrorCode.PRODUCER_FENCED)
        log.info("transactional id %r: producer %d, epoch %d", transactional_id, *target[:2])
        out = Decision()
        self._changes.write(entry, target, out)
        self._store.ids[transactional_id] = entry
        out.reply_when_committed(
            token,
            InitProducerIdResponse(producer_id=target.producer_id, producer_epoch=target.producer_epoch),
            lambda code: _init_error(version, write_error(code)),
        )
        return out.result()

    def _fence(
        self,
        entry: TransactionalId,
        txn: Txn,
        version: int,
        token: Any,
        new_id: int,
        with_new_id: Callable[[], Result],
        now: Now,
    ) -> Result:
        """Another producer comes while a transaction is open: that is aborted first, and the newcomer asks again."""
        if new_id == NO_ID and needs_next_id(txn, self._store.config.transaction_version):
            return with_new_id()
        out = Decision()
        self._changes.abort_open(entry, txn, new_id, now, out)
        out.reply_when_committed(
            token,
            _init_error(version, ErrorCode.CONCURRENT_TRANSACTIONS),
            lambda code: _init_error(version, write_error(code)),
        )
        return out.result()


def _init_error(version: int, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error_for(ApiKey.INIT_PRODUCER_ID, version, code), producer_id=NO_ID, producer_epoch=NO_EPOCH
    )
