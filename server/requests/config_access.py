"""Who may see and change settings: a permission on each resource, on the cluster for those of brokers.

A denied resource is refused alone, without settings. Invalid resources are left to the handlers, which refuse them for
any caller: an unknown type, another broker's settings, a resource to be changed that is named twice, one with a setting
twice or without its value. Source: `ConfigHelper.scala`, `ConfigAdminManager.scala`, `ControllerApis.scala` (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from copy import copy
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.server.config.changes import Operation
from barnabas.server.requests.access import CLUSTER, DENIED, GROUP, TOPIC, AccessCheck, Admitted, Op, Outcome
from barnabas.server.requests.config_resources import ResourceType
from barnabas.server.security.acls.model import CLUSTER_NAME
from barnabas.server.security.acls.model import ResourceType as Kind

_KINDS = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.BROKER: CLUSTER,
    ResourceType.BROKER_LOGGER: CLUSTER,
    ResourceType.CLIENT_METRICS: CLUSTER,
}
_Key = tuple[int, str]


def may_describe(check: AccessCheck) -> Generator[int, None, Outcome]:
    """The declaration of DescribeConfigs."""
    return _decide(check, Op.DESCRIBE_CONFIGS, "results", frozenset())


def may_alter(check: AccessCheck) -> Generator[int, None, Outcome]:
    """The declaration of AlterConfigs and IncrementalAlterConfigs."""
    times = Counter(_key(resource) for resource in check.request.resources)
    own = str(check.services.config.broker_id)
    others = {key for key in times if key[0] == ResourceType.BROKER and key[1] not in ("", own)}
    twice = {key for key, count in times.items() if count > 1}
    malformed = {_key(resource) for resource in check.request.resources if _is_malformed(resource.configs)}
    return _decide(check, Op.ALTER_CONFIGS, "responses", others | twice | malformed)


def _is_malformed(configs: list[Any]) -> bool:
    """Whether a setting is named twice, or has no value and is not deleted."""
    return len({config.name for config in configs}) != len(configs) or any(
        config.value is None and getattr(config, "config_operation", Operation.SET) != Operation.DELETE
        for config in configs
    )


def _key(resource: Any) -> _Key:
    return resource.resource_type, resource.resource_name


def _decide(
    check: AccessCheck, operation: Op, answers: str, refused_anyway: frozenset[_Key] | set[_Key]
) -> Generator[int, None, Outcome]:
    request = check.request
    denied: dict[_Key, ErrorCode] = {}
    for resource in request.resources:
        yield 1
        key = _key(resource)
        kind: Kind | None = _KINDS.get(key[0])  # type: ignore[call-overload]
        if kind is None or key in refused_anyway or key in denied:
            continue
        if not check.allows(operation, kind, CLUSTER_NAME if kind is CLUSTER else key[1]):
            denied[key] = DENIED[kind]
    if not denied:
        return Admitted(request)
    kept = copy(request)
    kept.resources = [resource for resource in request.resources if _key(resource) not in denied]
    refusals: list[Any] = []
    for code in dict.fromkeys(denied.values()):
        refused = copy(request)
        refused.resources = [resource for resource in request.resources if denied.get(_key(resource)) == code]
        refusals += getattr(check.answer(code, refused), answers)
    order = {_key(resource): number for number, resource in enumerate(request.resources)}

    def amend(response: Any) -> Generator[int, None, None]:
        everything = sorted([*getattr(response, answers), *refusals], key=lambda answer: order[_key(answer)])
        setattr(response, answers, everything)
        yield len(everything) // 8

    return Admitted(kept, amend)
