"""AlterConfigs (key 33, versions 0-2): replace all settings of topics, brokers, groups and
client-metrics subscriptions.

Behaviour: what is not named goes back to its default; each resource succeeds or fails by itself and as a whole. The
older of the two APIs (IncrementalAlterConfigs replaces it), still sent by old tools.

Versions:

- 2: flexible

Not done: log levels (not part of this API, as in Apache Kafka).
"""

from __future__ import annotations

from functools import partial

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import AlterConfigsRequest, AlterConfigsResponse
from barnabas.server.config.changes import Change, Operation, check_count, check_request
from barnabas.server.requests.api import Api
from barnabas.server.requests.config_access import may_alter
from barnabas.server.requests.config_alteration import alter_each, alter_stored, refuse_each
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: AlterConfigsRequest) -> AlterConfigsResponse:
    replace = partial(_replace, svc, validate_only=req.validate_only)
    return AlterConfigsResponse(
        responses=await alter_each(req.resources, AlterConfigsResponse.AlterConfigsResourceResponse, replace)
    )


async def _replace(svc: Services, resource: AlterConfigsRequest.AlterConfigsResource, *, validate_only: bool) -> None:
    check_count(len(resource.configs))
    changes = [Change(config.name, Operation.SET, config.value) for config in resource.configs]
    check_request(changes)
    await alter_stored(svc, resource, changes, keep=False, validate_only=validate_only)


def _on_error(req: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=refuse_each(req.resources, AlterConfigsResponse.AlterConfigsResourceResponse, code)
    )


API = Api(ApiKey.ALTER_CONFIGS, versions=(0, 2), handle=handle, access=may_alter, on_error=_on_error)
