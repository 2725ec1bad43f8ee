"""All transactional ids of one partition of `__transaction_state`: what the driver holds per partition it leads.

Life: `replay` every record from the log start to its end, then `loaded(now)`; operations from then on; `unload()` when
the partition is led elsewhere, after which whoever still comes is told NOT_COORDINATOR. Leading it again takes a new
shard. What must be refused before (loading, not the coordinator) is the driver's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `barnabas.coordinator.machine`. A change of an id is one record, and until it is committed
the id is *busy*: whoever asks for another change is told CONCURRENT_TRANSACTIONS, and readers see the state before. So
a partition is confirmed to its leader only when the record that holds it cannot be lost, and markers are written only
when the decision cannot be lost. While the markers are on their way the id stays busy.

Effects: `NeedProducerId` and `MarkersToWrite`.

Differences from Apache Kafka: a change that is in the log but takes too long to be committed stays pending until it is
(there it is forgotten in memory, though the log may bring it back); each transaction has a deadline of its own instead
of a scan every 10 s; an owner whose epoch is exhausted and who repeats its request is answered, or fenced (there the
request fails with an exception). Sources: `TransactionCoordinator`, `TransactionStateManager` of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.stored import fits
from barnabas.coordinator.txn.answers import error_for, write_error
from barnabas.coordinator.txn.ending import Verdict, verdict_bumping, verdict_strict
from barnabas.coordinator.txn.ids import NeedProducerId, TransactionalId, TransactionalIds
from barnabas.coordinator.txn.states import DECIDED, State
from barnabas.coordinator.txn.transaction import (
    EPOCH_BUMPING,
    NO_EPOCH,
    NO_ID,
    NO_TIMEOUT_MS,
    Owner,
    TopicPartition,
    Txn,
    completed,
    ended,
    fresh,
    initialised,
    may_be,
    needs_new_id,
    needs_next_id,
    rotated,
    with_partitions,
)
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsResponse,
)

log = logging.getLogger("barnabas.transactions")


class TxnShard(TransactionalIds):
    """See the module. `coordinator_epoch`: the leader epoch in which the broker began to lead the partition."""

    # -- InitProducerId ---------------------------------------------------------------------------

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
        if enable_two_phase_commit and not self.config.transaction_two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if keep_prepared_txn:
            # Apache Kafka knows the switch, and refuses it, too.
            return ErrorCode.UNSUPPORTED_VERSION
        if not enable_two_phase_commit and not (
            0 < request.transaction_timeout_ms <= self.config.transaction_max_timeout_ms
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
            return _need_id(
                lambda got, then: self._init(transactional_id, owner, timeout_ms, version, token, got, then),
                lambda code, then: refuse(code),
            )

        if self._is_gone:
            return refuse(ErrorCode.NOT_COORDINATOR)
        entry = self.ids.get(transactional_id)
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
        self._write(entry, target, out)
        self.ids[transactional_id] = entry
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
        if new_id == NO_ID and needs_next_id(txn, self.config.transaction_version):
            return with_new_id()
        out = Decision()
        self._abort_open(entry, txn, new_id, now, out)
        out.reply_when_committed(
            token,
            _init_error(version, ErrorCode.CONCURRENT_TRANSACTIONS),
            lambda code: _init_error(version, write_error(code)),
        )
        return out.result()

    # -- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------

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

        def told(code: ErrorCode) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(error_code=error_for(ApiKey.ADD_OFFSETS_TO_TXN, version, code))

        out = Decision()
        self._add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (offsets_partition,),
            0,
            lambda code: out.reply(token, told(code)),
            lambda: out.reply_when_committed(token, told(ErrorCode.NONE), lambda code: told(write_error(code))),
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
        refusal = self._refusal(transactional_id, producer_id, producer_epoch)
        if isinstance(refusal, ErrorCode):
            reply(refusal)
            return
        entry, txn = refusal
        if entry.is_busy or txn.state in DECIDED:
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif txn.state is State.ONGOING and txn.partitions.issuperset(partitions):
            reply(ErrorCode.NONE)
        else:
            self._write(entry, with_partitions(txn, partitions, client_version, now.wall_ms), out)
            reply_when_committed()

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with `verify_only` (KIP-890): a partition's leader asks whether a transaction that it
        does not know of is open. Nothing is written, so the answer is the result.
        """
        refusal = self._refusal(transactional_id, producer_id, producer_epoch)
        if isinstance(refusal, ErrorCode):
            return dict.fromkeys(partitions, refusal)
        _, txn = refusal
        if txn.state in DECIDED:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def _refusal(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> ErrorCode | tuple[TransactionalId, Txn]:
        """What is wrong with who asks, or who it is."""
        if self._is_gone:
            return ErrorCode.NOT_COORDINATOR
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        entry = self.ids.get(transactional_id)
        txn = None if entry is None else entry.txn
        if entry is None or txn is None or txn.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if txn.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return entry, txn

    # -- EndTxn -----------------------------------------------------------------------------------

    def end(self, request: EndTxnRequest, version: int, token: Any, now: Now) -> Result:
        """EndTxn. Answers `EndTxnResponse` when the decision is committed; the markers follow. From version 5 on it
        carries the producer id and epoch to go on with.
        """
        return self._end(request, version, token, NO_ID, now)

    def _end(self, request: EndTxnRequest, version: int, token: Any, new_id: int, now: Now) -> Result:
        client_version = EPOCH_BUMPING if version > 4 else 0
        entry = self.ids.get(request.transactional_id)
        txn = None if entry is None else entry.txn
        verdict: Verdict
        if self._is_gone:
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
            return _need_id(
                lambda got, then: self._end(request, version, token, got, then),
                lambda code, then: answer(token, _end_error(version, code)),
            )
        next_id = new_id if needs_next_id(txn, client_version) else NO_ID
        target = ended(txn, verdict, client_version, next_id, now.wall_ms)
        out = Decision()
        self._write(entry, target, out)
        told = EndTxnResponse()
        if client_version >= EPOCH_BUMPING:
            goes_on = completed(target, now.wall_ms)
            told = EndTxnResponse(producer_id=goes_on.producer_id, producer_epoch=goes_on.producer_epoch)
        out.reply_when_committed(token, told, lambda code: _end_error(version, write_error(code)))
        return out.result()

    # -- views ------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        """DescribeTransactions, for one id. A decided transaction shows the partitions that still need a marker."""
        told = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
        entry = self.ids.get(transactional_id)
        txn = None if entry is None else entry.txn
        if self._is_gone:
            told.error_code = ErrorCode.NOT_COORDINATOR
        elif not transactional_id:
            told.error_code = ErrorCode.INVALID_REQUEST
        elif entry is None or txn is None:
            told.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            told.transaction_state = txn.state.value
            told.transaction_timeout_ms = txn.timeout_ms
            told.transaction_start_time_ms = txn.start_ms
            told.producer_id = txn.producer_id
            told.producer_epoch = txn.producer_epoch
            topics: dict[str, list[int]] = {}
            for topic, partition in sorted(entry.unmarked if txn.state in DECIDED else txn.partitions):
                topics.setdefault(topic, []).append(partition)
            told.topics = [
                DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ]
        return told

    def listed(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        matches: Callable[[str], bool] | None,
        now: Now,
    ) -> Iterator[ListTransactionsResponse.TransactionState]:
        """ListTransactions. Each filter narrows the list, an empty one does not: names of states, exactly as shown;
        producer ids; `duration_ms`, if not negative: started longer ago than that; `matches`: of the whole id.
        """
        found = self.looked_through(states, producer_ids, duration_ms, matches, now)
        return (state for state in found if state is not None)

    def looked_through(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        matches: Callable[[str], bool] | None,
        now: Now,
    ) -> Iterator[ListTransactionsResponse.TransactionState | None]:
        """As `listed`, with None for each id that is not: whoever goes through very many may pause anywhere, and finds
        those that there were at the beginning.
        """
        for entry in list(self.ids.values()):
            txn = entry.txn
            if (
                txn is not None
                and (not producer_ids or txn.producer_id in producer_ids)
                and (not states or txn.state.value in states)
                and (duration_ms < 0 or now.wall_ms - txn.start_ms > duration_ms)
                and (matches is None or matches(entry.transactional_id))
            ):
                yield ListTransactionsResponse.TransactionState(
                    transactional_id=entry.transactional_id,
                    producer_id=txn.producer_id,
                    transaction_state=txn.state.value,
                )
            else:
                yield None


def unknown_state_filters(states: Iterable[str]) -> list[str]:
    """The names in a ListTransactions filter that are no state; they are told, and match nothing."""
    known: Mapping[str, State] = {state.value: state for state in State}
    return [name for name in states if name not in known]


def _need_id(given: Callable[[int, Now], Result], refused: Callable[[ErrorCode, Now], Result]) -> Result:
    return Result(effects=(NeedProducerId(given, refused),))


def _init_error(version: int, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error_for(ApiKey.INIT_PRODUCER_ID, version, code), producer_id=NO_ID, producer_epoch=NO_EPOCH
    )


def _end_error(version: int, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error_for(ApiKey.END_TXN, version, code))
