"""What AlterConfigs and IncrementalAlterConfigs share: each resource is altered by itself; settings of topics,
brokers, groups and client-metrics subscriptions are in the store.

The two differ in what a change starts from: nothing, or the stored settings (`keep`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.changes import (
    Change,
    apply,
    broker_row,
    check_broker,
    check_group,
    check_topic,
    client_metrics_row,
    group_row,
    topic_row,
)
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.network.open_listeners import endpoints_of
from barnabas.server.requests.config_resources import (
    ResourceType,
    stored_broker,
    stored_client_metrics,
    stored_group,
    stored_topic,
    unsupported,
)
from barnabas.server.requests.services import Services


async def alter_each(
    resources: Sequence[Any], response: type[Any], alter: Callable[[Any], Awaitable[None]]
) -> list[Any]:
    """`response`s for all `resources`, each altered by itself; one that is named twice is refused both times."""
    seen = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = []
    for resource in resources:
        await trio.lowlevel.checkpoint()  # validation and refusals have none of their own
        code, message = ErrorCode.NONE, None
        try:
            if seen[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may be named only once in a request")
            await alter(resource)
        except KafkaError as error:
            code, message = error.code, error.message or None
        answers.append(
            response(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return answers


def refuse_each(resources: Sequence[Any], response: type[Any], code: ErrorCode) -> list[Any]:
    """`response`s for all `resources`, when the whole request failed."""
    return [
        response(
            error_code=code, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
        )
        for each in resources
    ]


async def alter_stored(
    svc: Services, resource: Any, changes: Sequence[Change], *, keep: bool, validate_only: bool
) -> None:
    """Change the stored settings of a topic, a broker, a group or a subscription. `keep`: stored settings that are not
    named stay. Raises KafkaError.
    """
    name = resource.resource_name

    def edit_topic(stored: Mapping[str, str]) -> Mapping[str, str]:
        after = apply(stored if keep else {}, changes, topic_row)
        check_topic(svc.config, name, after)
        return after

    def edit_broker(stored: Mapping[str, str]) -> Mapping[str, str]:
        after = apply(stored if keep else {}, changes, broker_row)
        check_broker(svc.config, after, per_broker=bool(name))
        return after

    def edit_group(stored: Mapping[str, str]) -> Mapping[str, str]:
        after = apply(stored if keep else {}, changes, group_row)
        check_group(svc.config, name, after)
        return after

    def edit_client_metrics(stored: Mapping[str, str]) -> Mapping[str, str]:
        from barnabas.server.config import client_metrics  # few ask

        after = apply(stored if keep else {}, changes, client_metrics_row)
        client_metrics.check(after)
        return after

    match resource.resource_type:
        case ResourceType.TOPIC:
            stored = stored_topic(svc, name)
            if validate_only:
                edit_topic(stored)
            else:
                await svc.topics.alter_topic_config(name, edit_topic)
        case ResourceType.BROKER:
            after = edit_broker(stored_broker(svc, name))
            if name:
                await _check_listeners(svc, check_broker(svc.config, after, per_broker=True))
            if not validate_only:
                await svc.topics.alter_broker_config(int(name) if name else None, edit_broker)
                await svc.listeners.applied()
        case ResourceType.GROUP:
            stored = stored_group(svc, name)
            if validate_only:
                edit_group(stored)
            else:
                await svc.topics.alter_group_config(name, edit_group)
        case ResourceType.CLIENT_METRICS:
            stored = stored_client_metrics(svc, name)
            if validate_only:
                edit_client_metrics(stored)
            else:
                await svc.topics.alter_client_metrics(name, edit_client_metrics)
        case other:
            raise unsupported(other)


async def _check_listeners(svc: Services, changed: BrokerConfig) -> None:
    """Whether this broker could have these settings, as far as its listeners go. Raises KafkaError INVALID_REQUEST."""
    try:
        await svc.listeners.validate(changed)
    except SettingsRefused as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    here, others = svc.config.broker_id, svc.image.brokers
    known = others[here].endpoints if here in others else ()
    taken = {(each.host, each.port): broker.id for broker in others.values() for each in broker.endpoints}
    for endpoint in endpoints_of(changed, defaultdict(int), [each.name for each in changed.listeners]):
        other = taken.get((endpoint.host, endpoint.port), here)
        if other != here and endpoint not in known:
            key = "advertised.listeners" if changed.is_set("advertised.listeners") else "listeners"
            why = f"{endpoint.listener} would be advertised where broker {other} is, at {endpoint.host}:{endpoint.port}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, refusal(key, changed.get_str(key), why))
