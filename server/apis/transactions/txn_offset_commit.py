"""TxnOffsetCommit (key 28, versions 0-5): offsets that a group gets when a producer's transaction commits (KIP-98).

Behaviour: topics and partitions that do not exist get their own error. The others are stored as a batch of the
transaction in the group's partition of `__consumer_offsets`, after the transaction's coordinator has confirmed that the
partition is part of it (`barnabas.server.coordinators.verification`); they are visible from the marker on. An error of
the log or of the verification is set at every offset:

- the coordinator rejects it: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
  CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE
- the coordinator cannot be reached: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR

Without verification (`transaction.partition.verification.enable=false`) a producer without id or epoch gets
UNKNOWN_SERVER_ERROR, as in Apache Kafka: there can be no transactional batch for it.

Versions:

- 2: adds the leader epoch; below it COORDINATOR_NOT_AVAILABLE stands for COORDINATOR_LOAD_IN_PROGRESS, which older
  clients do not expect
- 3: flexible; names member and generation, which must be right (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID; KIP-447), though the group may rebalance meanwhile
- 4: may answer TRANSACTION_ABORTABLE
- 5: comes from clients of transaction.version 2: the verification adds the partition to the transaction (KIP-890)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.coordinator import OffsetToCommit
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.logdir import InTransaction, Verification
from barnabas.server.coordinators.verification_asks import Errors, operation_of_offset_commit
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.access import Op, both, for_each, needs, on_group, on_transactional_id
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, Codes, Portion, in_portions
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
_NO_SEQUENCE = -1


class _Commit:
    """One request: errors of single partitions are in `response`, those in `open` wait for the coordinator."""

    __slots__ = ("_ctx", "_req", "_since", "_svc", "offsets", "open", "response")

    def __init__(self, svc: Services, ctx: RequestContext, req: TxnOffsetCommitRequest) -> None:
        self._svc = svc
        self._ctx = ctx
        self._req = req
        self._since = svc.now()
        self.response = TxnOffsetCommitResponse()
        self.open: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = []
        self.offsets: list[OffsetToCommit] = []

    def reply(self, codes: list[ErrorCode]) -> None:
        """The coordinator's answer."""
        for partition, code in zip(self.open, codes, strict=True):
            partition.error_code = _result_of(code, self._ctx.api_version)
        self._ctx.reply(self.response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()

    def refuse(self, code: ErrorCode) -> None:
        self.reply([code] * len(self.open))

    def begin(self) -> None:
        """Make sure that the transaction's coordinator knows of the group's partition, then commit."""
        try:
            self._verify()
        except KafkaError as error:
            self.refuse(error.code)

    def _verify(self) -> None:
        svc, req = self._svc, self._req
        partition = svc.groups.partition_of(req.group_id)
        if not svc.verification.is_enabled:
            if req.producer_id < 0 or req.producer_epoch < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._commit(None)
            return
        operation = operation_of_offset_commit(self._ctx.api_version)
        verification = partition.log.producers.verify(
            req.producer_id, req.producer_epoch, _NO_SEQUENCE, operation.bumps_epoch, svc.wall_ms()
        )
        if verification is None:
            self._commit(InTransaction())
            return
        svc.verification.check(
            req.transactional_id,
            req.producer_id,
            req.producer_epoch,
            [(partition.topic, partition.index)],
            operation,
            lambda errors: self._result_of(partition, verification, errors),
        )

    def _result_of(self, partition: Partition, verification: Verification, errors: Errors) -> None:
        """Continue with the coordinator's verdict."""
        operation = operation_of_offset_commit(self._ctx.api_version)
        if self._svc.verification.tries_again(operation, errors, self._since, self.begin):
            return
        code = errors.get((partition.topic, partition.index))
        producers = partition.log.producers
        if code is None and operation.bumps_epoch and not producers.is_verifying(self._req.producer_id, verification):
            # Confirmed, but the last transaction's marker was faster; as with Produce, it must be verified again.
            self.begin()
            return
        if code is None:
            try:
                self._commit(InTransaction(verification))
            except KafkaError as error:
                self.refuse(error.code)
            return
        # The nearest error that a group's client knows: retry.
        self.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code == ErrorCode.NETWORK_EXCEPTION else code)

    def _commit(self, in_txn: InTransaction | None) -> None:
        if len(self.offsets) > AT_ONCE:
            self._svc.turns.start(f"committing for {self._ctx}", partial(self._in_portions, in_txn))
        else:
            self._commit_some(in_txn, self.offsets, self)

    async def _in_portions(self, in_txn: InTransaction | None) -> None:
        count = len(self.offsets)
        codes = Codes(count, self.reply, self)

        def commit(first: int, end: int) -> None:
            # The first portion uses the verification; the others find the transaction open, or are rejected.
            how = in_txn if first == 0 or in_txn is None else InTransaction()
            token = codes.portion(first, end)
            try:
                self._commit_some(how, self.offsets[first:end], token)
            except KafkaError as error:
                token.reply(error.code)

        await in_portions(self._svc, count, commit)

    def _commit_some(
        self, in_txn: InTransaction | None, offsets: list[OffsetToCommit], token: _Commit | Portion
    ) -> None:
        req = self._req
        self._svc.groups.commit_in_transaction(
            req.group_id,
            req.generation_id,
            req.member_id,
            req.group_instance_id,
            offsets,
            req.producer_id,
            req.producer_epoch,
            in_txn,
            token,
        )


def handle(svc: Services, ctx: RequestContext, req: TxnOffsetCommitRequest) -> Steps[Any]:
    image = svc.image
    commit = _Commit(svc, ctx, req)
    topics: dict[str, TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = {}
    for topic in req.topics:
        known = image.topics.get(topic.name)
        answers = topics.setdefault(topic.name, _Topic(name=topic.name)).partitions
        yield 1
        for partition in topic.partitions:
            yield 1
            answer = _Partition(partition_index=partition.partition_index)
            answers.append(answer)
            if known is None or not 0 <= partition.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commit.open.append(answer)
                commit.offsets.append(
                    OffsetToCommit(
                        topic.name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                    )
                )
    commit.response.topics.extend(topics.values())
    if not commit.offsets:
        return commit.response
    commit.begin()
    return PENDING


def _result_of(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _on_error(req: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(partition_index=partition.partition_index, error_code=_result_of(code, version))
                    for partition in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    (0, 5),
    handle,
    access=both(needs(on_transactional_id(Op.WRITE)), needs(on_group(Op.READ)), for_each("topics", "topics", Op.READ)),
    on_error=_on_error,
)
