"""AddPartitionsToTxn (key 24, versions 0-5): partitions that a transaction is about to write to.

Behaviour: answered when the record that holds the partitions is committed, so that a marker will reach each of them
whatever happens. If a partition does not exist nothing is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others
OPERATION_NOT_ATTEMPTED.

Versions:

- 2: may answer PRODUCER_FENCED, before it that is INVALID_PRODUCER_EPOCH
- 3: flexible, and the last that clients use
- 4: sent by partition leaders, for several transactions at once, which may only ask whether partitions are part of one
  (`verify_only`, KIP-890). An error of a transaction is set at each of its partitions
- 5: as version 4
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.replication import Image, is_internal
from barnabas.server.requests.access import (
    TOPIC,
    TRANSACTIONAL_ID,
    AccessCheck,
    Op,
    Outcome,
    Permission,
    Refused,
    needs,
    on_cluster,
)
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, in_portions
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Requested = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def handle(svc: Services, ctx: RequestContext, req: AddPartitionsToTxnRequest) -> Steps[object]:
    """Each partition of a transaction once, however often the request names it: so the cluster bounds the machine's
    work."""
    transactions: list[Any] = req.transactions if ctx.api_version >= 4 else [req]
    for transaction in transactions:
        name = "topics" if ctx.api_version >= 4 else "v3_and_below_topics"
        merged: dict[str, dict[int, None]] = {}
        for topic in getattr(transaction, name):
            yield 1 + len(topic.partitions) // 8
            merged.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=n, partitions=list(p)) for n, p in merged.items()
        ]
        setattr(transaction, name, topics)
    if ctx.api_version < 4:
        refused = yield from _refused(svc.image, req)
        if refused is not None:
            return refused
    elif len(transactions) > AT_ONCE:
        return _in_portions(svc, ctx, req)
    svc.transactions.add_partitions(req, ctx.api_version, ctx)
    return PENDING


def _refused(image: Image, req: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse | None]:
    """The answer if any of the partitions does not exist; there may be very many of those."""
    missing = False
    for topic in req.v3_and_below_topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        missing = missing or any(not 0 <= index < count for index in topic.partitions)
        yield 1 + len(topic.partitions) // 8
    if not missing:
        return None
    response = AddPartitionsToTxnResponse()
    for topic in req.v3_and_below_topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
        response.results_by_topic_v3_and_below.append(result)
        yield 1
        for index in topic.partitions:
            there = 0 <= index < count
            code = ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.results_by_partition.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code
                )
            )
            yield 1
    return response


class _Verified:
    """Answers a request when its portions have their answers; the token of each of them.

    Its class is no local one: classes are cycles, so all that a request was about, some 10 MiB, would stay in memory
    until the collector comes by.
    """

    __slots__ = ("_ctx", "_owed", "_results")

    def __init__(self, ctx: RequestContext, owed: int) -> None:
        self._ctx = ctx
        self._owed = owed
        self._results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = []

    def reply(self, response: AddPartitionsToTxnResponse) -> None:
        self._results += response.results_by_transaction
        if len(self._results) == self._owed:
            self._ctx.reply(AddPartitionsToTxnResponse(results_by_transaction=self._results))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


async def _in_portions(svc: Services, ctx: RequestContext, req: AddPartitionsToTxnRequest) -> object:
    """Transactions of many producers, in turns; they can only be verified, so nothing waits."""
    verified = _Verified(ctx, len(req.transactions))

    def add(first: int, end: int) -> None:
        some = AddPartitionsToTxnRequest(transactions=req.transactions[first:end])
        svc.transactions.add_partitions(some, ctx.api_version, verified)

    await in_portions(svc, len(req.transactions), add)
    return PENDING


def _on_error(req: AddPartitionsToTxnRequest, code: int, version: int) -> AddPartitionsToTxnResponse:
    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in req.v3_and_below_topics
        ]
    )


_between_brokers = needs(on_cluster(Op.CLUSTER_ACTION))
_may_write = needs(Permission(Op.WRITE, TRANSACTIONAL_ID, lambda req: req.v3_and_below_transactional_id))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """Producers, up to version 3, need Write on the id and on each topic, or nothing is added; internal topics are
    denied to all.
    """
    if check.version >= 4:
        return (yield from _between_brokers(check))
    outcome = yield from _may_write(check)
    if isinstance(outcome, Refused):
        return outcome
    req: AddPartitionsToTxnRequest = check.request
    denied = set()
    for topic in req.v3_and_below_topics:
        yield 1
        if is_internal(topic.name) or not check.allows(Op.WRITE, TOPIC, topic.name):
            denied.add(topic.name)
    if not denied:
        return outcome
    response = _on_error(req, ErrorCode.OPERATION_NOT_ATTEMPTED, check.version)
    for result in response.results_by_topic_v3_and_below:
        known = check.services.image.topics.get(result.name)
        count = 0 if known is None else len(known.partitions)
        for partition in result.results_by_partition:
            if result.name in denied:
                partition.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= partition.partition_index < count:
                partition.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield 1 + len(result.results_by_partition) // 8
    return Refused(response)


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), handle, access=_access, on_error=_on_error)
