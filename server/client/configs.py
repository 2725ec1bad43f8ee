"""Settings of topics and brokers: DescribeConfigs 0-4, IncrementalAlterConfigs 0-1.

Those of a broker, and its loggers, are asked of that broker; all others of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from barnabas.server.client.client import Client, Job
from barnabas.server.client.failures import Failed


class ResourceKind(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """`name`: the topic, the group, the broker's id; "" for BROKER: what holds for all of them."""

    kind: ResourceKind
    name: str


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Setting(NamedTuple):
    """`value` None: not set, or secret. `source`: before version 1 only DEFAULT or UNKNOWN. `synonyms`: where the value
    could come from, (name, value, source), the first one counts. `doc`: from brokers that tell.
    """

    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    is_read_only: bool
    synonyms: Sequence[tuple[str, str | None, Source]]
    doc: str | None

    @property
    def is_set(self) -> bool:
        """For this very resource; to be taken back with `None`."""
        return self.source in (Source.TOPIC, Source.DYNAMIC_BROKER, Source.BROKER_LOGGER, Source.GROUP)


async def describe_configs(
    client: Client, resources: Iterable[Resource], names: Sequence[str] | None = None, *, docs: bool = True
) -> dict[Resource, dict[str, Setting] | Failed]:
    """The settings of each resource by name. names: only these. Raises ClientError."""
    return await _ask(client, resources, _describe(names, docs))


async def alter_configs(
    client: Client,
    changes: Mapping[Resource, Mapping[str, str | None]],
    *,
    only_check: bool = False,
) -> dict[Resource, Failed | None]:
    """Set values; None: back to the default. Raises ClientError."""

    def make(items: list[Resource], version: int) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name=name, config_operation=_SET if value is not None else _DELETE, value=value
                        )
                        for name, value in changes[resource].items()
                    ],
                )
                for resource in items
            ],
            validate_only=only_check,
        )

    def read(answer: Any, items: list[Resource]) -> Iterator[tuple[Resource, Failed | None]]:
        for row in answer.responses:
            failed = Failed.of(row.error_code, row.error_message) if row.error_code else None
            yield Resource(ResourceKind(row.resource_type), row.resource_name), failed

    return await _ask(client, changes, Job(ApiKey.INCREMENTAL_ALTER_CONFIGS, make, read))


_SET, _DELETE = 0, 1
_OF_A_BROKER = (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)


async def _ask(client: Client, resources: Iterable[Resource], job: Job[Resource, Any]) -> dict[Resource, Any]:
    own: dict[int, list[Resource]] = {}
    others = []
    for resource in resources:
        if resource.kind in _OF_A_BROKER and resource.name.isdecimal():
            own.setdefault(int(resource.name), []).append(resource)
        else:
            others.append(resource)
    found: dict[Resource, Any] = {}
    if others:
        answer = await client.ask_any(job.key, lambda version: job.make(others, version))
        found |= dict(job.read(answer, others))
    if own:

        def make(ids: list[int], version: int) -> Any:
            return job.make(own[ids[0]], version)

        def read(answer: Any, ids: list[int]) -> Iterator[tuple[int, dict[Resource, Any]]]:
            yield ids[0], dict(job.read(answer, own[ids[0]]))

        for broker_id, result in (await client.by_broker(own, Job(job.key, make, read))).items():
            if isinstance(result, Failed):
                found |= dict.fromkeys(own[broker_id], result)
            else:
                found |= result
    return found


def _describe(names: Sequence[str] | None, docs: bool) -> Job[Resource, dict[str, Setting]]:
    def make(items: list[Resource], version: int) -> DescribeConfigsRequest:
        fields: dict[str, Any] = {"include_synonyms": True} if version >= 1 else {}
        if version >= 3:
            fields["include_documentation"] = docs
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
                for resource in items
            ],
            **fields,
        )

    def read(answer: Any, items: list[Resource]) -> Iterator[tuple[Resource, dict[str, Setting] | Failed]]:
        for row in answer.results:
            resource = Resource(ResourceKind(row.resource_type), row.resource_name)
            if row.error_code:
                yield resource, Failed.of(row.error_code, row.error_message)
            else:
                yield resource, {each.name: _setting(each) for each in sorted(row.configs, key=lambda each: each.name)}

    return Job(ApiKey.DESCRIBE_CONFIGS, make, read)


def _setting(row: Any) -> Setting:
    source = _source(row.config_source) if row.config_source >= 0 else Source.DEFAULT if row.is_default else Source(0)
    return Setting(
        row.name,
        row.value,
        source,
        row.is_sensitive,
        row.read_only,
        [(each.name, each.value, _source(each.source)) for each in row.synonyms],
        row.documentation,
    )


def _source(number: int) -> Source:
    return Source(number) if number in Source.__members__.values() else Source.UNKNOWN
