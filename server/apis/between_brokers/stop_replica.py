"""StopReplica (5), versions 0–4: the controller says which partitions to stop following, and which to delete.

A partition that is not known here is deleted from the disk if that was asked for: the topic may have been deleted while
this broker was down. Versions up to 2 say for all partitions whether to delete, and no leader epochs. Between brokers
only.

| error | where | when |
| --- | --- | --- |
| CLUSTER_AUTHORIZATION_FAILED | whole, and each partition | the caller has no ClusterAction on the cluster |
| STALE_CONTROLLER_EPOCH | whole | a newer controller epoch is known |
| STALE_BROKER_EPOCH | whole | meant for an earlier registration of this broker |
| FENCED_LEADER_EPOCH | partition | its leader epoch is older than ours (−2, deletion, and −1, none, are not compared) |
| KAFKA_STORAGE_ERROR | partition | its log cannot be deleted |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import StopReplicaRequest, StopReplicaResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: StopReplicaRequest) -> StopReplicaResponse:
    from barnabas.replication.messages import wire  # a broker alone starts without it

    return wire.stop_replica_response(await svc.cluster.receive(wire.stop_replica(req)))


def _on_error(req: StopReplicaRequest, code: ErrorCode, version: int) -> StopReplicaResponse:
    """With the partitions, but for what is out of date as a whole."""
    from barnabas.replication.messages import wire  # a broker alone starts without it

    codes = {}
    if code not in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH):
        codes = {(stopped.topic, stopped.index): code for stopped in wire.stop_replica(req).partitions}
    response = wire.stop_replica_response(codes)
    response.error_code = code
    return response


API = Api(ApiKey.STOP_REPLICA, (0, 4), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)), on_error=_on_error)
