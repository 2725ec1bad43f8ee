"""IncrementalAlterConfigs (key 44, versions 0-1): change single settings of topics, brokers, groups and
client-metrics subscriptions, and log levels.

Behaviour: every resource succeeds or fails by itself and as a whole. Operations: set, delete, and append or subtract
for lists (KIP-339). The outcome is checked before anything is stored; `validate_only` stops there. Settings of
topics, brokers, groups and subscriptions are stored by the controller and hold over restarts; a subscription whose last
setting is deleted is gone. Log levels (KIP-412) change in this process and are not stored.

Versions:

- 1: flexible
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from barnabas.server.config.changes import Change, Operation, check_count, check_request
from barnabas.server.requests.api import Api
from barnabas.server.requests.config_access import may_alter
from barnabas.server.requests.config_alteration import alter_each, alter_stored, refuse_each
from barnabas.server.requests.config_resources import ResourceType, check_broker_id
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime import logs

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    svc: Services, ctx: RequestContext, req: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    change = partial(_change, svc, validate_only=req.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=await alter_each(req.resources, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, change)
    )


async def _change(svc: Services, resource: _Resource, *, validate_only: bool) -> None:
    check_count(len(resource.configs))
    changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
    check_request(changes)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_broker_id(resource.resource_name, svc.config.broker_id, or_empty=False)
        _change_levels(changes, validate_only=validate_only)
    else:
        await alter_stored(svc, resource, changes, keep=True, validate_only=validate_only)


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


def _on_error(req: IncrementalAlterConfigsRequest, code: ErrorCode, version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=refuse_each(req.resources, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, code)
    )


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=handle, access=may_alter, on_error=_on_error)
