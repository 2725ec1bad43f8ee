"""IncrementalAlterConfigs (key 44, versions 0-1): change single settings of topics and brokers, and log levels.

Behaviour: every resource succeeds or fails by itself and as a whole. Operations: set, delete, and append or subtract
for lists (KIP-339). The outcome is checked before anything is stored; `validate_only` stops there. Topic and broker
settings are stored by the controller and hold over restarts; log levels (KIP-412) change in this process and do not.

Versions: 1 is flexible, nothing else.

Not done: client metrics and groups (INVALID_REQUEST); authorization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from server import logs
from server.api import Api
from server.apis.config_resources import (
    ResourceType,
    check_broker_id,
    outcome,
    stored_broker,
    stored_topic,
    unsupported,
)
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

_Response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    svc: Services, ctx: RequestContext, req: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    seen = Counter((resource.resource_type, resource.resource_name) for resource in req.resources)
    responses = []
    for resource in req.resources:
        code, message = ErrorCode.NONE, None
        try:
            if seen[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may stand in a request once")
            await _change(svc, resource, validate_only=req.validate_only)
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
    return IncrementalAlterConfigsResponse(responses=responses)


async def _change(svc: Services, resource: _Resource, *, validate_only: bool) -> None:
    changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
    check_request(changes)
    name = resource.resource_name

    def edit_topic(stored: Mapping[str, str]) -> Mapping[str, str]:
        after = apply(stored, changes, topic_row)
        check_topic(svc.config, name, after)
        return after

    def edit_broker(stored: Mapping[str, str]) -> Mapping[str, str]:
        after = apply(stored, changes, broker_row)
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
        case ResourceType.BROKER_LOGGER:
            check_broker_id(name, svc.config.broker_id, or_empty=False)
            _change_levels(changes, validate_only=validate_only)
        case other:
            raise unsupported(other)


def _change_levels(changes: Sequence[Change], *, validate_only: bool) -> None:
    """All or none: a wrong level changes nothing."""
    for change in changes:
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name}: a log level can be set or deleted")
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.operation} is no operation on {change.name}")
        if not logs.has_logger(change.name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger called {change.name}")
        if change.operation == Operation.DELETE and change.name == logs.ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger can be set, not deleted")
        if change.value is not None and change.operation == Operation.SET:
            try:
                logs.parse_level(change.value)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name}: {error}") from None
    if not validate_only:
        for change in changes:
            logs.set_level(change.name, change.value if change.operation == Operation.SET else None)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=handle)
