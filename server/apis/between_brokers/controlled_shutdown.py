"""ControlledShutdown (key 7, versions 0-3): a broker is about to stop and resigns its leaderships. Between brokers.

Behaviour: the controller elects other leaders, removes the broker from ISRs and lets it stop following. The answer
lists the partitions that it still leads because no other replica is in sync; partitions with one replica are not
counted. A repeated request retries those. NOT_CONTROLLER elsewhere; BROKER_NOT_AVAILABLE for an unknown broker,
STALE_BROKER_EPOCH for one that has registered again since.

Versions:

- 2: broker epoch
- 3: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

_Remaining = ControlledShutdownResponse.RemainingPartition


async def handle(svc: Services, ctx: RequestContext, req: ControlledShutdownRequest) -> ControlledShutdownResponse:
    remaining = await svc.controller.controlled_shutdown(req.broker_id, req.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[_Remaining(topic_name=topic, partition_index=index) for topic, index in remaining]
    )


API = Api(ApiKey.CONTROLLED_SHUTDOWN, (0, 3), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)))
