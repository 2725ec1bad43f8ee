"""Client quotas: DescribeClientQuotas 0-1, of any broker; AlterClientQuotas 0-1, of the controller (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from barnabas.server.client.client import Client, Job
from barnabas.server.client.failures import Failed

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of kind (`user`, `client-id`, `ip`) and name, None: whoever has no quota of its own."""


class Quota(NamedTuple):
    """What counts for one entity: limits by name (`producer_byte_rate`, …)."""

    entity: Entity
    limits: Mapping[str, float]


async def describe_quotas(client: Client) -> list[Quota]:
    """All quotas. Raises ClientError."""
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await client.ask_patiently(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda version: request, lambda answer: answer.error_code
    )
    found = [
        Quota(
            tuple(sorted((each.entity_type, each.entity_name) for each in row.entity)),
            {each.key: each.value for each in row.values},
        )
        for row in answer.entries or ()
    ]
    return sorted(found, key=lambda quota: [(kind, name or "") for kind, name in quota.entity])


async def alter_quota(client: Client, entity: Entity, changes: Mapping[str, float | None]) -> Failed | None:
    """Set limits of an entity; None: take it away. Raises ClientError."""
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)

    def read(answer: Any, items: list[Entity]) -> Iterator[tuple[Entity, Failed | None]]:
        for row in answer.entries:
            yield items[0], Failed.of(row.error_code, row.error_message) if row.error_code else None

    job: Job[Entity, Failed | None] = Job(ApiKey.ALTER_CLIENT_QUOTAS, lambda items, version: request, read)
    return (await client.by_controller([entity], job, repeatable=False))[entity]
