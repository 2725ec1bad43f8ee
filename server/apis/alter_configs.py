"""AlterConfigs (key 33, versions 0-2): replace all settings of topics and brokers.

Behaviour: what is not named goes back to its default; each resource succeeds or fails by itself and as a whole. The
older of the two APIs (IncrementalAlterConfigs replaces it), still sent by old tools.

Versions: 2 is flexible, nothing else.

Not done: log levels (not part of this API, as in Apache Kafka), client metrics and groups (INVALID_REQUEST);
authorization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import AlterConfigsRequest, AlterConfigsResponse
from server.api import Api
from server.apis.config_resources import ResourceType, outcome, stored_broker, stored_topic, unsupported
from server.config_changes import (
    Change,
    Operation,
    apply,
    broker_row,
    check_broker,
    check_request,
    check_topic,
    topic_row,
)
from server.context import RequestContext
from server.services import Services

_Response = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(svc: Services, ctx: RequestContext, req: AlterConfigsRequest) -> AlterConfigsResponse:
    seen = Counter((resource.resource_type, resource.resource_name) for resource in req.resources)
    responses = []
    for resource in req.resources:
        code, message = ErrorCode.NONE, None
        try:
            if seen[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may stand in a request once")
            await _replace(svc, resource, validate_only=req.validate_only)
        except KafkaError as error:
            code, message = outcome(error)
        responses.append(
            _Response(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


async def _replace(svc: Services, resource: AlterConfigsRequest.AlterConfigsResource, *, validate_only: bool) -> None:
    changes = [Change(config.name, Operation.SET, config.value) for config in resource.configs]
    check_request(changes)
    name = resource.resource_name

    def edit_topic(_: Mapping[str, str]) -> Mapping[str, str]:
        after = apply({}, changes, topic_row)
        check_topic(svc.config, name, after)
        return after

    def edit_broker(_: Mapping[str, str]) -> Mapping[str, str]:
        after = apply({}, changes, broker_row)
        check_broker(svc.config, after, per_broker=bool(name))
        return after

    match resource.resource_type:
        case ResourceType.TOPIC:
            stored = stored_topic(svc, name)
            if validate_only:
                edit_topic(stored)
            else:
                await svc.controller.alter_topic_config(name, edit_topic)
        case ResourceType.BROKER:
            stored = stored_broker(svc, name)
            if validate_only:
                edit_broker(stored)
            else:
                await svc.controller.alter_broker_config(int(name) if name else None, edit_broker)
        case other:
            raise unsupported(other)


API = Api(ApiKey.ALTER_CONFIGS, versions=(0, 2), handle=handle)
