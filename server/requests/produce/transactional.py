"""Produce with transactional batches, up to the point where they are appended (KIP-98, KIP-890).

    batches → one producer? → a transaction open in the partition? → append
                                     │ no
                                     └→ the coordinator verifies → append what it confirms

During a verification (`server.coordinators.verification`) no further request of the connection is handled, as the
producer's next batches would overtake these, and the records are copied out of the round's receive buffer.
Transient errors become NOT_ENOUGH_REPLICAS, after which every client retries without looking for another leader; only
clients of transaction.version 2 get CONCURRENT_TRANSACTIONS. Source: `ReplicaManager.handleProduceAppend` of Apache
Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ProduceRequest
from barnabas.kproto.records import BATCH_OVERHEAD, MAGIC_OFFSET, TRANSACTIONAL
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE, producer_of
from barnabas.logdir import InTransaction, Verification
from barnabas.server.coordinators.verification_asks import Errors, Operation, operation_of_produce
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.api import PENDING

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services

log = logging.getLogger("barnabas.requests")

_OPEN = InTransaction()
"""There must be an open transaction."""
_UNANSWERED = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)

Admission = Callable[[Partition], InTransaction | None]
"""How a batch may go into a partition: see `PartitionLog.append`. Raises KafkaError if it may not."""


class _Batch(NamedTuple):
    topic: str
    topic_id: bytes
    partition_index: int
    producer_id: int
    producer_epoch: int
    first_sequence: int


def produce_in_transaction(
    svc: Services, ctx: RequestContext, req: ProduceRequest, append: Callable[[Admission | None], object]
) -> object:
    """Handle a request with a transactional id; `append` continues with it, now or later. Returns what the handler
    returns.
    """
    batches = _transactional(req)
    if not batches:
        return append(None)
    producer_id, producer_epoch = batches[0].producer_id, batches[0].producer_epoch
    if any((each.producer_id, each.producer_epoch) != (producer_id, producer_epoch) for each in batches):
        return append(
            _refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The request has batches of more than one producer.")
        )
    if not svc.verification.is_enabled:
        return append(None)
    operation = operation_of_produce(ctx.api_version)
    return _Request(svc, ctx, req, batches, operation, append).begin()


def _transactional(req: ProduceRequest) -> list[_Batch]:
    batches = []
    for topic in req.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                isinstance(records, memoryview)
                and len(records) >= BATCH_OVERHEAD
                and records[MAGIC_OFFSET] == 2
                and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL
            ):
                batches.append(_Batch(topic.name, topic.topic_id, data.index, *producer_of(records)))
    return batches


def _refusal(code: ErrorCode, message: str) -> Admission:
    def refuse(partition: Partition) -> InTransaction | None:
        raise KafkaError(code, message)

    return refuse


class _Request:
    """One request that is being verified."""

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        req: ProduceRequest,
        batches: list[_Batch],
        operation: Operation,
        append: Callable[[Admission | None], object],
    ) -> None:
        self._svc = svc
        self._ctx = ctx
        self._req = req
        self._batches = batches
        self._operation = operation
        self._append = append
        self._since = svc.now()
        self._admitted: dict[tuple[str, int], InTransaction | KafkaError] = {}
        self._asked: dict[tuple[str, int], tuple[Partition, Verification]] = {}
        self._release: Callable[[], None] | None = None
        self._is_done = False

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()

    def begin(self) -> object:
        self._verify()
        if self._is_done:
            return self._append(self._admit)
        for topic in self._req.topic_data:
            for data in topic.partition_data:
                if isinstance(data.records, memoryview):
                    data.records = memoryview(bytearray(data.records))
        self._release = self._ctx.hold()
        return PENDING

    def _verify(self) -> None:
        self._admitted.clear()
        self._asked.clear()
        for batch in self._batches:
            self._examine(batch)
        if not self._asked:
            self._done()
            return
        who = self._batches[0]
        transactional_id = str(self._req.transactional_id)
        self._svc.verification.check(
            transactional_id, who.producer_id, who.producer_epoch, list(self._asked), self._operation, self._verified
        )

    def _examine(self, batch: _Batch) -> None:
        """Decide whether to ask the coordinator about a batch. Errors of its partition are left to `append`."""
        partitions = self._svc.partitions
        try:
            if self._ctx.api_version >= 13:
                partition = partitions.get_by_id(batch.topic_id, batch.partition_index)
            else:
                partition = partitions.get(batch.topic, batch.partition_index)
            partition.check_leader_epoch(-1)
        except KafkaError:
            return
        key = (partition.topic, partition.index)
        try:
            verification = partition.log.producers.verify(
                batch.producer_id,
                batch.producer_epoch,
                batch.first_sequence,
                self._operation.bumps_epoch,
                self._svc.wall_ms(),
            )
        except KafkaError as error:
            self._admitted[key] = error.as_value()
        else:
            if verification is not None:
                self._asked[key] = (partition, verification)

    def _verified(self, errors: Errors) -> None:
        """Continue with the coordinator's verdict."""
        if self._svc.verification.tries_again(self._operation, errors, self._since, self._verify):
            return
        if self._operation.bumps_epoch and self._is_overtaken(errors):
            self._verify()
            return
        for key, (partition, verification) in self._asked.items():
            code = errors.get(key)
            if code is None:
                self._admitted[key] = InTransaction(verification)
                continue
            self._admitted[key] = refusal = self._error(code)
            if refusal.code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
                who = self._batches[0]
                partition.log.producers.refuse_verification(who.producer_id, who.producer_epoch, verification)
        self._done()

    def _is_overtaken(self, errors: Errors) -> bool:
        """Whether the last transaction's marker came while the coordinator was asked about the next one, and revoked
        what it has confirmed now. It must be asked again: INVALID_TXN_STATE would be fatal for a client that did
        nothing wrong (KAFKA-18575).
        """
        producer_id = self._batches[0].producer_id
        return any(
            key not in errors and not partition.log.producers.is_verifying(producer_id, verification)
            for key, (partition, verification) in self._asked.items()
        )

    def _done(self) -> None:
        self._is_done = True
        if self._release is None:
            return
        self._release()
        try:
            self._append(self._admit)
        except Exception:
            log.exception("a verified Produce of client %r failed", self._ctx.client_id)
            self._ctx.connection.abort()

    def _error(self, code: ErrorCode) -> KafkaError:
        """The error for the producer."""
        if code in _UNANSWERED or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not self._operation.bumps_epoch):
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"Whether the partition is part of the transaction cannot be verified now: {code.name}",
            )
        if code == ErrorCode.INVALID_TXN_STATE:
            return KafkaError(code, "The partition was not added to the transaction.")
        return KafkaError(code)

    def _admit(self, partition: Partition) -> InTransaction:
        admitted = self._admitted.get((partition.topic, partition.index), _OPEN)
        if isinstance(admitted, KafkaError):
            raise admitted
        return admitted
