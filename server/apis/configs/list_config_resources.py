"""ListConfigResources (key 74, versions 0-1): names of the resources that have settings.

Behaviour: topics by name, brokers and their loggers by id, groups that have settings of their own, client-metrics
subscriptions. An unknown type is answered with UNSUPPORTED_VERSION, as in Apache Kafka.

Versions:

- 0: client-metrics subscriptions alone (KIP-714)
- 1: any types, all of them for an empty list (KIP-1142)
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.config_resources import ResourceType
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Resource = ListConfigResourcesResponse.ConfigResource


def handle(svc: Services, ctx: RequestContext, req: ListConfigResourcesRequest) -> Steps[ListConfigResourcesResponse]:
    wanted = {int(ResourceType.CLIENT_METRICS)} if ctx.api_version == 0 else set(req.resource_types)
    wanted = wanted or set(ResourceType)
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = svc.image
    brokers = [str(broker_id) for broker_id in image.brokers]
    names = {
        ResourceType.TOPIC: image.topic_names,
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: sorted(image.client_metrics),
        ResourceType.GROUP: sorted(image.group_configs),
    }
    resources = []
    for kind in sorted(wanted):
        for name in names.get(ResourceType(kind), ()):
            resources.append(_Resource(resource_name=name, resource_type=kind))
            yield 1
    return ListConfigResourcesResponse(config_resources=resources)


API = Api(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), handle=handle, access=needs(on_cluster(Op.DESCRIBE_CONFIGS)))
