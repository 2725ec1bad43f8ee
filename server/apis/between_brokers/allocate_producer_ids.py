"""AllocateProducerIds (key 67, version 0): a broker requests a block of producer ids (KIP-730). Between brokers.

Behaviour: the controller takes the next 1000 ids from the store. NOT_CONTROLLER elsewhere; BROKER_ID_NOT_REGISTERED for
an unknown broker, STALE_BROKER_EPOCH for an outdated registration.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    block = await svc.controller.allocate_producer_ids(req.broker_id, req.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)


API = Api(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)))
