"""Produce (key 0, versions 0-13): append record batches.

Behaviour: each partition takes exactly one batch of format 2. It is checked, given its offsets and staged while the
request is handled; the round's end writes all partitions that got something, each with one call, and then this
request is answered: immediately for acks=1, when the high watermark passes for acks=all, never for acks=0, where any
error closes the connection, the only sign a client can see. acks=all needs `min.insync.replicas` in sync before the
append (NOT_ENOUGH_REPLICAS) and still when the high watermark passes (NOT_ENOUGH_REPLICAS_AFTER_APPEND); a leader that
is deposed answers NOT_LEADER_OR_FOLLOWER. Where `flush.messages` requires a flush, no answer is sent before it is done
(`Partition.held_at`). An error of one partition is a value in its answer. Requests of one connection are pipelined: the
next is handled while an acks=all one waits, and answers are sent in order.

Versions:

- 0-2: carry message sets, of either format in any of them, which are converted first
  (`barnabas.server.requests.old_formats`) by a task, so these are not pipelined; a set without a whole message is a
  success at offset -1
- 2: log-append time
- 3: batches of format 2 alone
- 5: log start offset
- 7: zstd
- 8: errors of single records
- 9: flexible
- 10: with NOT_LEADER_OR_FOLLOWER the leader and its address (KIP-951)
- 11: knows TRANSACTION_ABORTABLE
- 12: comes from clients of transaction.version 2, whose partitions are added to the transaction on the way
- 13: topic ids instead of names

Transactional batches need the request to have a transactional id (else TRANSACTIONAL_ID_AUTHORIZATION_FAILED), and one
producer id (else INVALID_PRODUCER_ID_MAPPING); what else is checked before they are appended is
`barnabas.server.requests.produce.transactional`'s. A request without that id does not pass there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.server.requests.api import PENDING, Api, Old
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.produce import learn
from barnabas.server.requests.fast_paths.produce_frames import FIRST_VERSION
from barnabas.server.requests.old_formats import up_converted
from barnabas.server.requests.produce.access import may_produce
from barnabas.server.requests.produce.pending import Nothing, Outcome, PendingProduce
from barnabas.server.requests.produce.transactional import Admission, produce_in_transaction
from barnabas.server.requests.services import Services

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse


def handle(svc: Services, ctx: RequestContext, req: ProduceRequest) -> object:
    if req.transactional_id is not None:
        return produce_in_transaction(svc, ctx, req, partial(_append, svc, ctx, req))
    PendingProduce(svc, ctx, req, ProduceResponse(responses=[])).begin(req)
    return PENDING


def _append(svc: Services, ctx: RequestContext, req: ProduceRequest, admission: Admission | None) -> object:
    """Stage what can be appended. admission: of transactional batches, None if they need none."""
    PendingProduce(svc, ctx, req, ProduceResponse(responses=[]), admission).begin(req)
    return PENDING


async def handle_old(svc: Services, ctx: RequestContext, req: ProduceRequest) -> object:
    """Versions 0-2: convert everything, then continue as in later versions."""
    converted: list[Outcome] = []
    for topic in req.topic_data:
        for data in topic.partition_data:
            sent: Any = data.records
            data.records = None
            if sent is None:
                converted.append(None)
                continue
            partition = svc.partitions.find(topic.name, data.index)
            if partition is None:
                # It may be made while others are converted: what is not converted does not go into it.
                unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown when the request came")
                converted.append(unknown)
                continue
            try:
                outcome = await up_converted(bytes(sent), partition.log.config, svc.held.elsewhere)
            except KafkaError as error:
                converted.append(error.as_value())
            else:
                converted.append(Nothing.WHOLE if outcome is None else outcome)
            await trio.lowlevel.checkpoint()
    # Also if the client is gone by now: it may have asked for no answer and left.
    PendingProduce(svc, ctx, req, ProduceResponse(responses=[])).begin(req, converted)
    svc.partitions.write_staged()
    return PENDING


def _on_error(req: ProduceRequest, code: ErrorCode, version: int) -> ProduceResponse:
    """Raises KafkaError for acks=0, where the only error report is a closed connection."""
    if req.acks == 0:
        raise KafkaError(code, "the client expects no answer")
    return ProduceResponse(
        responses=[
            _TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _PartitionResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in req.topic_data
        ]
    )


API = Api(
    ApiKey.PRODUCE,
    (0, 13),
    handle,
    access=may_produce,
    old=Old(2, handle_old),
    on_error=_on_error,
    pipelined=True,
    learn=learn,
    learn_from=FIRST_VERSION,
)
