"""DescribeConfigs (key 32, versions 0-4): the settings of topics, brokers, groups and client-metrics subscriptions, and
the log levels.

Behaviour: every resource is answered by itself, with its own error. A topic shows all topic settings with the broker
settings behind them as synonyms; a broker must be asked by its own id, or with an empty name for what is set for all
brokers; a broker logger shows the level in force of every logger. A group, which need not exist, shows its own settings
with the broker settings behind them; a client-metrics subscription, which need not exist either, its three, of which
those that are not set have no synonyms. Sensitive values and those of unknown keys are null. A resource that is asked
for twice in the same way is answered once, and what resources have alike (topics without settings of their own, most of
all) is put together once.

Versions:

- 0: has `is_default` in place of the source
- 1: synonyms
- 3: types and documentation
- 4: flexible
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.replication import name_fault
from barnabas.server.config import groups as group_config
from barnabas.server.config.describe import ConfigEntry, Source, broker_entries, cluster_entries, topic_entries
from barnabas.server.requests.api import Api
from barnabas.server.requests.config_access import may_describe
from barnabas.server.requests.config_resources import (
    ResourceType,
    check_broker_id,
    stored_client_metrics,
    stored_group,
    unsupported,
)
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime import logs
from barnabas.server.runtime.turns import Steps

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


_ALIKE_MAX = 1000
"""How many different sets of settings a request keeps, to reuse them for another resource."""

_FRESH_UNITS = 100
"""The steps of putting settings together, beside those of each setting."""


def handle(svc: Services, ctx: RequestContext, req: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    results = []
    asked: set[tuple[int, str, frozenset[str]]] = set()
    alike: dict[tuple[frozenset[tuple[str, str]], frozenset[str]], list[_Entry]] = {}
    for resource in req.resources:
        names = frozenset(resource.configuration_keys or ())
        yield 1 + len(names) // 10
        key = resource.resource_type, resource.resource_name, names
        if key in asked:
            continue
        asked.add(key)
        result = _Result(error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name)
        results.append(result)
        topic = svc.image.topics.get(resource.resource_name) if resource.resource_type == ResourceType.TOPIC else None
        settings = None if topic is None else (frozenset(topic.config.items()), names)
        configs = None if settings is None else alike.get(settings)
        if configs is None:
            try:
                entries = _entries(svc, resource, names)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message or None
                continue
            configs = [_described(entry, req, ctx.api_version, resource.resource_type) for entry in entries]
            yield _FRESH_UNITS + len(configs)
            if settings is not None and len(alike) < _ALIKE_MAX:
                alike[settings] = configs
        result.configs = configs
        yield len(configs)  # which stand in the answer each time
    return DescribeConfigsResponse(results=results)


def _entries(
    svc: Services, resource: DescribeConfigsRequest.DescribeConfigsResource, keys: frozenset[str]
) -> list[ConfigEntry]:
    name = resource.resource_name
    config = svc.config
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = svc.image.topics.get(name)
            if topic is None:
                fault = name_fault(name)
                if fault is not None:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name: {fault}")
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entries(config, topic.config, keys)
        case ResourceType.BROKER:
            check_broker_id(name, config.broker_id, or_empty=True)
            return broker_entries(config, keys) if name else cluster_entries(config, keys)
        case ResourceType.BROKER_LOGGER:
            check_broker_id(name, config.broker_id, or_empty=False)
            return [
                ConfigEntry(logger, level, Source.BROKER_LOGGER, False, False, 0, None)
                for logger, level in logs.current_levels().items()
                if not keys or logger in keys
            ]
        case ResourceType.GROUP:
            return group_config.entries(config, stored_group(svc, name), keys)
        case ResourceType.CLIENT_METRICS:
            from barnabas.server.config import client_metrics  # few ask

            return client_metrics.entries(stored_client_metrics(svc, name), keys)
        case other:
            raise unsupported(other)


def _described(
    entry: ConfigEntry, req: DescribeConfigsRequest, version: int, resource_type: int
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    is_default = False
    if version == 0:
        # What a topic inherits is not its own: clients of that time read "not default" as "set on the topic".
        is_topic = resource_type == ResourceType.TOPIC
        is_default = entry.source != Source.TOPIC if is_topic else entry.source == Source.DEFAULT
    synonyms = [_Synonym(name=one.name, value=one.value, source=one.source) for one in entry.synonyms]
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=is_default,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=synonyms if req.include_synonyms else [],
        config_type=entry.type,
        documentation=entry.doc if req.include_documentation else None,
    )


def _on_error(req: DescribeConfigsRequest, code: ErrorCode, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            _Result(
                error_code=code, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in req.resources
        ]
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, versions=(0, 4), handle=handle, access=may_describe, on_error=_on_error)
