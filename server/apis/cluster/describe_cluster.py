"""DescribeCluster (key 60, versions 0-2): cluster id, controller, brokers (KIP-700).

Behaviour: the brokers alive on the listener the request came in on; the controller's id, or -1 if it is not among
them. Asked for controllers (`endpoint_type` 2) a broker answers MISMATCHED_ENDPOINT_TYPE, for anything else
UNSUPPORTED_ENDPOINT_TYPE (both INVALID_REQUEST in version 0, which cannot ask).

Versions:

- 1: endpoint types (KIP-919)
- 2: fenced brokers (KIP-1073), of which a cluster without KRaft has none

A caller that may not describe the cluster gets no operations on it.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import DescribeClusterRequest, DescribeClusterResponse
from barnabas.server.requests.access import AccessCheck, amended
from barnabas.server.requests.api import Api
from barnabas.server.requests.authorized_operations import ALL_CLUSTER_OPERATIONS, NOT_ASKED, cluster_operations
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

BROKERS = 1
CONTROLLERS = 2

_Broker = DescribeClusterResponse.DescribeClusterBroker


def handle(svc: Services, ctx: RequestContext, req: DescribeClusterRequest) -> DescribeClusterResponse:
    if req.endpoint_type != BROKERS:
        if req.endpoint_type == CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to a broker, but asks for controllers."
        else:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"Unsupported endpoint type {req.endpoint_type}"
        return DescribeClusterResponse(error_code=code, error_message=message)
    image = svc.image
    brokers = [
        _Broker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in image.brokers.values()
        if (endpoint := broker.endpoint(ctx.listener)) is not None
    ]
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id if any(b.broker_id == image.controller_id for b in brokers) else -1,
        brokers=brokers,
    )
    if req.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def _operations(check: AccessCheck, response: DescribeClusterResponse) -> Steps[None]:
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations = cluster_operations(check)
    yield 1


API = Api(ApiKey.DESCRIBE_CLUSTER, (0, 2), handle, access=amended(_operations))
