"""AlterPartition (key 56, versions 0-3): a leader reports which replicas are in sync (KIP-497). Between brokers.

Behaviour: the controller writes the state of each partition if its leader, leader epoch and partition epoch are as the
leader thinks, and answers what is in the store then; see `barnabas.replication.controller.in_sync` for the errors per
partition. Answers when the store has accepted all. Elsewhere NOT_CONTROLLER; an unknown or older broker epoch is
STALE_BROKER_EPOCH.

Versions:

- 1: recovery after an unclean election
- 2: topic ids, and INELIGIBLE_REPLICA (OPERATION_NOT_ATTEMPTED before)
- 3: the broker epochs of the replicas
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AlterPartitionRequest, AlterPartitionResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: AlterPartitionRequest) -> AlterPartitionResponse:
    return await svc.controller.alter_partition(req, ctx.api_version)


API = Api(ApiKey.ALTER_PARTITION, (0, 3), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)))
