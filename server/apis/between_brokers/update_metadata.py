"""UpdateMetadata (6), versions 0–8: the controller sends all live brokers, and the partitions that have changed.

It fills the image that Metadata and all other APIs answer from. It has all live brokers each time, partitions only when
they changed; leader −2: the topic is being deleted, remove it. Between brokers only.

Errors, of the whole: STALE_CONTROLLER_EPOCH (a newer one is known), STALE_BROKER_EPOCH (meant for an earlier
registration of this broker).
Not done: type Full, which only controllers of a migration to KRaft send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: UpdateMetadataRequest) -> UpdateMetadataResponse:
    from barnabas.replication.messages import wire  # a broker alone starts without it

    await svc.cluster.receive(wire.update_metadata(req, ctx.api_version))
    return UpdateMetadataResponse()


API = Api(ApiKey.UPDATE_METADATA, (0, 8), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)))
