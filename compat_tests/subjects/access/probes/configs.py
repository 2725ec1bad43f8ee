"""Settings of topics, groups, brokers."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import Of, always, cluster, group, topic

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def _resources(kind: int, names: Names) -> list[str]:
    return {
        TOPIC: [names.topic, names.other_topic, names.no_topic],
        BROKER: [str(names.broker_id)],
        LOGGER: [str(names.broker_id)],
        METRICS: ["metrics"],
        GROUP: [names.group, names.other_group],
    }[kind]


def _describe(kind: int) -> Of:
    return lambda names: {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for name in _resources(kind, names)
        ]
    }


_SETTINGS = {
    TOPIC: ("retention.ms", "5000"),
    BROKER: ("log.cleaner.threads", "1"),
    LOGGER: ("org.apache.kafka", "WARN"),
    METRICS: ("interval.ms", "5000"),
    GROUP: ("consumer.session.timeout.ms", "45000"),
}


def _alter(kind: int, names: Names, *, incrementally: bool) -> Values:
    name, value = _SETTINGS[kind]
    config = {"name": name, "value": value, **({"config_operation": 0} if incrementally else {})}
    resources = [
        {"resource_type": kind, "resource_name": resource, "configs": [config]} for resource in _resources(kind, names)
    ]
    return {"resources": resources, "validate_only": True}


def _altering(kind: int, *, incrementally: bool = False) -> Of:
    return lambda names: _alter(kind, names, incrementally=incrementally)


_KINDS = {
    TOPIC: ("a topic", topic),
    BROKER: ("a broker", cluster),
    LOGGER: ("loggers", cluster),
    GROUP: ("a group", group),
    METRICS: ("client metrics", cluster),
}

PROBES = (
    *(
        Probe(
            f"DescribeConfigs of {title}",
            ApiKey.DESCRIBE_CONFIGS,
            _describe(kind),
            (need(Op.DESCRIBE_CONFIGS),),
            # Who serves version 0 knows no settings of groups and of client metrics.
            versions=(1, 99) if kind in (GROUP, METRICS) else None,
        )
        for kind, (title, need) in _KINDS.items()
    ),
    *(
        Probe(f"AlterConfigs of {title}", ApiKey.ALTER_CONFIGS, _altering(kind), (need(Op.ALTER_CONFIGS),))
        for kind, (title, need) in _KINDS.items()
        if kind != LOGGER
    ),
    *(
        Probe(
            f"IncrementalAlterConfigs of {title}",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _altering(kind, incrementally=True),
            (need(Op.ALTER_CONFIGS),),
        )
        for kind, (title, need) in _KINDS.items()
    ),
    Probe(
        "ListConfigResources",
        ApiKey.LIST_CONFIG_RESOURCES,
        always(resource_types=[METRICS]),
        (cluster(Op.DESCRIBE_CONFIGS),),
    ),
)
