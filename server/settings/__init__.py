"""The one table of settings: every broker and topic setting of Apache Kafka, with what this broker makes of it.

`BROKER`, `TOPIC`, `GROUP` and `CLIENT_METRICS` are looked up by Kafka's dotted name. Files by subject: `network`,
`log`, `groups`, `consumer_groups`, `share_groups`, `streams_groups`, `transactions`, `cluster`, `zookeeper`, `metrics`,
`console`, `tls`, `sasl`, `security`, `topic`, `client_metrics`; the row type is in `model`.
server/config/broker.py turns rows into values; docs/settings.md is printed from here (`barnabas config --markdown`).

**Add a setting**: one row in the file of its subject; read it through `BrokerConfig`; print docs/settings.md again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.server.settings import (
    client_metrics,
    cluster,
    console,
    consumer_groups,
    groups,
    log,
    metrics,
    network,
    sasl,
    security,
    share_groups,
    streams_groups,
    tls,
    topic,
    transactions,
    zookeeper,
)
from barnabas.server.settings.group_bounds import GroupSetting
from barnabas.server.settings.model import (
    BadValue,
    Check,
    Scope,
    Setting,
    Support,
    Type,
    Value,
    parse,
    render,
)
from barnabas.server.settings.topic import BrokerKey, TopicSetting

SUBJECTS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    ("The broker and its connections", network.SETTINGS),
    ("Data and logs", log.SETTINGS),
    (
        "Groups and transactions",
        (
            *groups.SETTINGS,
            *consumer_groups.SETTINGS,
            *share_groups.SETTINGS,
            *streams_groups.SETTINGS,
            *transactions.SETTINGS,
        ),
    ),
    ("Cluster", cluster.SETTINGS),
    ("ZooKeeper", zookeeper.SETTINGS),
    ("Metrics", metrics.SETTINGS),
    ("Console", console.SETTINGS),
    ("Security", (*tls.SETTINGS, *sasl.SETTINGS, *security.SETTINGS)),
)

BROKER: Final[Mapping[str, Setting]] = MappingProxyType({row.name: row for _, rows in SUBJECTS for row in rows})
TOPIC: Final[Mapping[str, TopicSetting]] = MappingProxyType({row.setting.name: row for row in topic.TOPIC_SETTINGS})
GROUP: Final[Mapping[str, GroupSetting]] = MappingProxyType(
    {row.setting.name: row for kind in (consumer_groups, share_groups, streams_groups) for row in kind.GROUP_SETTINGS}
)
CLIENT_METRICS: Final[Mapping[str, Setting]] = MappingProxyType({row.name: row for row in client_metrics.SETTINGS})

# Broker settings that say the same in different units; the first that is set counts (Kafka's brokerConfigSynonyms).
_UNITS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {name: names for names in _UNITS for name in names} | {_FLUSH[0]: _FLUSH}
)


def synonyms(name: str) -> tuple[str, ...]:
    """The broker settings that decide `name`'s value, in falling precedence; `name` alone for most."""
    return SYNONYMS.get(name, (name,))


__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "GROUP",
    "SUBJECTS",
    "SYNONYMS",
    "TOPIC",
    "BadValue",
    "BrokerKey",
    "Check",
    "GroupSetting",
    "Scope",
    "Setting",
    "Support",
    "TopicSetting",
    "Type",
    "Value",
    "parse",
    "render",
    "synonyms",
]
