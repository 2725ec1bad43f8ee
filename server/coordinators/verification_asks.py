"""Verifications to request of transaction coordinators on behalf of partitions, and the callbacks that wait for them.

Waiting requests for the same id are merged if they come from the same producer; of two epochs the lower one is fenced
(INVALID_PRODUCER_EPOCH). Difference from Apache Kafka: there the earlier of two requests for the same id and epoch
fails with a network error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.transactions")

TopicPartition = tuple[str, int]
Errors = dict[TopicPartition, ErrorCode]
Done = Callable[[Errors], None]
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Operation(Enum):
    """The operation, and which errors the client knows; both follow from the version of its request."""

    VERIFY_FOR_OLD = "verify; the client does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "make it part of the transaction: transaction.version 2"

    @property
    def bumps_epoch(self) -> bool:
        """The client has transaction.version 2."""
        return self is Operation.ADD


def operation_of_produce(version: int) -> Operation:
    if version >= 12:
        return Operation.ADD
    return Operation.VERIFY if version == 11 else Operation.VERIFY_FOR_OLD


def operation_of_offset_commit(version: int) -> Operation:
    """For TxnOffsetCommit."""
    if version >= 5:
        return Operation.ADD
    return Operation.VERIFY if version == 4 else Operation.VERIFY_FOR_OLD


class Ask:
    """The verification of one transactional id, and the callbacks that wait for it."""

    __slots__ = ("operation", "partitions", "producer_epoch", "producer_id", "transactional_id", "waiting")

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int, operation: Operation) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.operation = operation
        self.partitions: dict[TopicPartition, None] = {}
        self.waiting: list[tuple[tuple[TopicPartition, ...], Done]] = []

    def is_like(self, other: Ask) -> bool:
        return (self.producer_id, self.producer_epoch, self.operation) == (
            other.producer_id,
            other.producer_epoch,
            other.operation,
        )

    def add(self, partitions: Iterable[TopicPartition], done: Done) -> None:
        wanted = tuple(partitions)
        self.partitions.update(dict.fromkeys(wanted))
        self.waiting.append((wanted, done))

    def answered(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        for wanted, done in self.waiting:
            _call(done, {each: errors[each] for each in wanted if errors.get(each)})

    def refused(self, code: ErrorCode) -> None:
        self.answered(dict.fromkeys(self.partitions, code))

    def transaction(self) -> _Transaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return _Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=self.operation is not Operation.ADD,
            topics=[_Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
        )


class Asks:
    """The verifications for the next request, at most one for each transactional id."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, Ask] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, ask: Ask) -> None:
        """Add a verification: merge it with the one for the same id, or let it replace that one; or reject it."""
        earlier = self._by_id.get(ask.transactional_id)
        if earlier is not None:
            if ask.producer_epoch < earlier.producer_epoch:
                ask.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            if ask.is_like(earlier):
                for wanted, done in ask.waiting:
                    earlier.add(wanted, done)
                return
            is_older = earlier.producer_epoch < ask.producer_epoch
            earlier.refused(ErrorCode.INVALID_PRODUCER_EPOCH if is_older else ErrorCode.NETWORK_EXCEPTION)
        self._by_id[ask.transactional_id] = ask

    def take(self) -> list[Ask]:
        """Remove and return all of them."""
        asks, self._by_id = list(self._by_id.values()), {}
        return asks


def request_of(asks: Iterable[Ask]) -> AddPartitionsToTxnRequest:
    """One request for all of them, of version 4 or later."""
    return AddPartitionsToTxnRequest(transactions=[ask.transaction() for ask in asks])


def settle(asks: Sequence[Ask], response: AddPartitionsToTxnResponse | None) -> None:
    """Call all callbacks with the coordinator's response; None: there was none. Partitions that are missing in the
    response are confirmed, as in Apache Kafka.
    """
    if response is None:
        for ask in asks:
            ask.refused(ErrorCode.NETWORK_EXCEPTION)
        return
    code = response.error_code
    if code != ErrorCode.NONE:
        log.error("the coordinator rejected the verification of transactions: %s", ErrorCode.of(code).name)
        # Clients know nothing of the brokers' permissions.
        refused = ErrorCode.INVALID_TXN_STATE if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ErrorCode.of(code)
        for ask in asks:
            ask.refused(refused)
        return
    from barnabas.coordinator.txn import verification_error  # a broker without transactions does not load it

    results = {result.transactional_id: result for result in response.results_by_transaction}
    for ask in asks:
        errors: Errors = {}
        result = results.get(ask.transactional_id)
        for topic in () if result is None else result.topic_results:
            for row in topic.results_by_partition:
                knows = ask.operation is not Operation.VERIFY_FOR_OLD
                errors[topic.name, row.partition_index] = verification_error(
                    ErrorCode.of(row.partition_error_code), knows
                )
        ask.answered(errors)


def _call(done: Done, errors: Errors) -> None:
    try:
        done(errors)
    except Exception as error:
        contain(log, "what waited for a transaction's verification", error, done)
