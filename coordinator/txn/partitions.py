"""AddPartitionsToTxn and AddOffsetsToTxn: which partitions belong to an open transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from barnabas.coordinator.machine import Decision, Now, Result
from barnabas.coordinator.txn.answers import error_for, write_error
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.states import DECIDED, State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.transaction import EPOCH_BUMPING, TopicPartition, with_partitions
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


class PartitionsOfTransactions:
    """See the module."""

    def __init__(self, store: TxnStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        version: int,
        token: Any,
        now: Now,
    ) -> Result:
        """AddPartitionsToTxn, one transaction of it, without `verify_only`. The partitions exist: if one does not,
        nothing is added. Answers an `ErrorCode` for all of them.
        """
        # From version 4 on brokers ask, on behalf of producers of transaction.version 2.
        client_version = EPOCH_BUMPING if version > 3 else 0
        out = Decision()
        self._add(
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            client_version,
            lambda code: out.reply(token, error_for(ApiKey.ADD_PARTITIONS_TO_TXN, version, code)),
            lambda: out.reply_when_committed(token, ErrorCode.NONE, write_error),
            now,
            out,
        )
        return out.result()

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, offsets_partition: TopicPartition, token: Any, now: Now
    ) -> Result:
        """AddOffsetsToTxn. `offsets_partition`: of `__consumer_offsets`, where the group lives. Answers
        `AddOffsetsToTxnResponse`.
        """

        def answer(code: ErrorCode) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(error_code=error_for(ApiKey.ADD_OFFSETS_TO_TXN, version, code))

        out = Decision()
        self._add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (offsets_partition,),
            0,
            lambda code: out.reply(token, answer(code)),
            lambda: out.reply_when_committed(token, answer(ErrorCode.NONE), lambda code: answer(write_error(code))),
            now,
            out,
        )
        return out.result()

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        reply: Callable[[ErrorCode], None],
        reply_when_committed: Callable[[], None],
        now: Now,
        out: Decision,
    ) -> None:
        refusal = self._store.owned_by(transactional_id, producer_id, producer_epoch)
        if isinstance(refusal, ErrorCode):
            reply(refusal)
            return
        entry, txn = refusal
        if entry.is_busy or txn.state in DECIDED:
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif txn.state is State.ONGOING and txn.partitions.issuperset(partitions):
            reply(ErrorCode.NONE)
        else:
            self._changes.write(entry, with_partitions(txn, partitions, client_version, now.wall_ms), out)
            reply_when_committed()

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with `verify_only` (KIP-890): a partition's leader asks whether a transaction that it
        does not know of is open. Nothing is written, so the answer is the result.
        """
        refusal = self._store.owned_by(transactional_id, producer_id, producer_epoch)
        if isinstance(refusal, ErrorCode):
            return dict.fromkeys(partitions, refusal)
        _, txn = refusal
        if txn.state in DECIDED:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }
