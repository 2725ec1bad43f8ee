"""InitProducerId (key 22, versions 0-5): a producer id for idempotent writing (KIP-98).

Behaviour: without a transactional id every request gets a fresh id, unique in the cluster for ever, with epoch 0;
also when the producer names the one it had (v3), for only transactional ids are remembered. Java, kafka-python and
other clients ask by default.

Transactions are not served. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: nobody is
allowed one on this broker. Of the codes that would fit it is the only one at which the Java client, librdkafka and
kafka-python all give up at once; librdkafka repeats the request on UNSUPPORTED_VERSION and the like until the
application's own time is over.

Versions: 1 is as 0; 2 flexible; 3 producer id and epoch, both or neither, else INVALID_REQUEST (KIP-360); 4 may
answer PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE: neither can happen without transactions.

Not done: transactional ids, their time-out check (50) and two-phase commit (KIP-939, version 6).
"""

from __future__ import annotations

import logging

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import InitProducerIdRequest, InitProducerIdResponse
from server.api import Api
from server.context import RequestContext
from server.services import Services

log = logging.getLogger("barnabas.transactions")


async def handle(svc: Services, ctx: RequestContext, req: InitProducerIdRequest) -> InitProducerIdResponse:
    if (req.producer_id == -1) != (req.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")
    if req.transactional_id is not None:
        if not req.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        log.warning(
            "client %r at %s asks for transactional id %r: this broker does not serve transactions",
            ctx.client_id,
            ctx.client_host,
            req.transactional_id,
        )
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served")
    return InitProducerIdResponse(producer_id=await svc.producer_ids.next_id(), producer_epoch=0)


def _on_error(req: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(ApiKey.INIT_PRODUCER_ID, (0, 5), handle, on_error=_on_error)
