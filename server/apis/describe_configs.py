"""DescribeConfigs (key 32, versions 0-4): the settings of topics, brokers and groups, and the log levels.

Behaviour: every resource is answered by itself, with its own error. A topic shows all topic settings with the broker
settings behind them as synonyms; a broker must be asked by its own id, or with an empty name for what is set for all
brokers; a broker logger shows the level in force of every logger. A group, which need not exist, shows its own settings
with the broker settings behind them. Sensitive values and those of unknown keys are null.

Versions: 0 has `is_default` in place of the source; 1 synonyms; 3 types and documentation; 4 flexible.

Not done: client metrics, which have no settings here (INVALID_REQUEST); authorization.
"""

from __future__ import annotations

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResponse
from replication import name_fault
from server import group_config, logs
from server.api import Api
from server.apis.config_resources import ResourceType, check_broker_id, outcome, stored_group, unsupported
from server.config_view import ConfigEntry, Source, broker_entries, cluster_entries, topic_entries
from server.context import RequestContext
from server.services import Services

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def handle(svc: Services, ctx: RequestContext, req: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in req.resources:
        try:
            entries = _entries(svc, resource)
        except KafkaError as error:
            code, message = outcome(error)
            results.append(
                _Result(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
            continue
        results.append(
            _Result(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_told(entry, req, ctx.api_version, resource.resource_type) for entry in entries],
            )
        )
    return DescribeConfigsResponse(results=results)


def _entries(svc: Services, resource: DescribeConfigsRequest.DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    keys = frozenset(resource.configuration_keys or ())
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
        case other:
            raise unsupported(other)


def _told(
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


API = Api(ApiKey.DESCRIBE_CONFIGS, versions=(0, 4), handle=handle)
