"""InitProducerId (key 22, versions 0-5): a producer id for idempotent writing (KIP-98).

Behaviour: without a transactional id every request gets a fresh id, unique in the cluster for good, with epoch 0;
also when the producer names the one it had (v3), for only transactional ids are remembered. Java, kafka-python and
other clients send it by default.

With a transactional id its coordinator answers, when that is committed: the same producer id each time, with an epoch
that fences the producer that had it before. An open transaction is aborted; until it has ended the producer gets
CONCURRENT_TRANSACTIONS, and retries. A time-out that is not positive or over `transaction.max.timeout.ms` is
INVALID_TRANSACTION_TIMEOUT.

Versions:

- 1: as version 0
- 2: flexible
- 3: producer id and epoch, both or neither, else INVALID_REQUEST (KIP-360): their present owner gets the next epoch,
  another producer is fenced
- 4: may answer PRODUCER_FENCED, before it that is INVALID_PRODUCER_EPOCH
- 5: may answer TRANSACTION_ABORTABLE, which does not happen here

Not done: two-phase commit (KIP-939, version 6).
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import InitProducerIdRequest, InitProducerIdResponse
from barnabas.server.requests.access import (
    CLUSTER,
    DENIED,
    TOPIC,
    AccessCheck,
    Admitted,
    Op,
    Outcome,
    needs,
    on_transactional_id,
)
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


async def handle(svc: Services, ctx: RequestContext, req: InitProducerIdRequest) -> object:
    if (req.producer_id == -1) != (req.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")
    if req.transactional_id is not None:
        svc.transactions.init_producer_id(req, ctx.api_version, ctx)
        svc.partitions.write_staged()
        return PENDING
    return InitProducerIdResponse(producer_id=await svc.producer_ids.next_id(), producer_epoch=0)


def _on_error(req: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


_may_write = needs(on_transactional_id(Op.WRITE))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """Without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
    if check.request.transactional_id is not None:
        return (yield from _may_write(check))
    if (
        check.would_allow(Op.IDEMPOTENT_WRITE, CLUSTER)
        or check.would_allow_any(Op.WRITE, TOPIC)
        or check.allows(Op.IDEMPOTENT_WRITE, CLUSTER)  # for the log
    ):
        return Admitted(check.request)
    return check.refuse(DENIED[CLUSTER])


API = Api(ApiKey.INIT_PRODUCER_ID, (0, 5), handle, access=_access, on_error=_on_error)
