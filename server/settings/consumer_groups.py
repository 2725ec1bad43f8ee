"""Settings of next-generation consumer groups (KIP-848): the broker's, and those that one group may have of its own.

Names, types and ranges are Apache Kafka's; defaults those of 4.3.1, as 3.9.1 has the protocol as a preview and off.
A group's own settings (resource type GROUP) stand over the broker setting that the row names, and must lie within its
bounds. Those of share and of streams groups are in `share_groups` and `streams_groups`. Milliseconds throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from barnabas.server.settings.group_bounds import GroupSetting, not_above, out_of_bounds
from barnabas.server.settings.model import (
    INT_MAX,
    Check,
    Scope,
    Setting,
    Type,
    Value,
    at_least,
    only,
    some_of,
    works,
)

ASSIGNORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "uniform": "uniform",
        "range": "range",
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)
"""What `group.consumer.assignors` may name, and which assignor that is: Apache Kafka 3.9 knows classes only."""

_POLICIES: Final = ("disabled", "upgrade", "downgrade", "bidirectional")

BOUNDS: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Of each there is a `group.consumer.` setting, a least and a most value of it, and a setting of single groups."""


def _is_assignors(value: Value) -> bool:
    if not isinstance(value, tuple) or not value or any(item not in ASSIGNORS for item in value):
        return False
    return len({ASSIGNORS[item] for item in value}) == len(value)


def _is_policy(value: Value) -> bool:
    return isinstance(value, str) and value.lower() in _POLICIES


def _is_protocols(value: Value) -> bool:
    return isinstance(value, tuple) and "classic" in value and set(value) <= {"classic", "consumer", "share", "streams"}


SETTINGS: tuple[Setting, ...] = (
    only(
        "group.coordinator.rebalance.protocols",
        Type.LIST,
        ("classic", "consumer", "streams"),
        "Which group protocols the broker offers: classic always, consumer (KIP-848) if it stands here and the feature "
        "group.version is 1, streams (KIP-1071) if it stands here and streams.version is 1. Whether share groups are "
        "offered is for the feature share.version alone to say.",
        "classic groups always are served",
        some_of("classic", "consumer", "share", "streams", "unknown"),
        allowed=Check("a list of classic, consumer, streams and share, with classic", _is_protocols),
        kafka_default="classic",
    ),
    works(
        "group.consumer.session.timeout.ms",
        Type.INT,
        45000,
        "How long a member of a KIP-848 group may be silent before it is removed.",
        at_least(1),
    ),
    works(
        "group.consumer.min.session.timeout.ms",
        Type.INT,
        45000,
        "Shortest session time-out that a KIP-848 group may be given.",
        at_least(1),
    ),
    works(
        "group.consumer.max.session.timeout.ms",
        Type.INT,
        60000,
        "Longest session time-out that a KIP-848 group may be given.",
        at_least(1),
    ),
    works(
        "group.consumer.heartbeat.interval.ms",
        Type.INT,
        5000,
        "How often members of KIP-848 groups should send a heartbeat.",
        at_least(1),
    ),
    works(
        "group.consumer.min.heartbeat.interval.ms",
        Type.INT,
        5000,
        "Shortest heartbeat interval that a KIP-848 group may be given.",
        at_least(1),
    ),
    works(
        "group.consumer.max.heartbeat.interval.ms",
        Type.INT,
        15000,
        "Longest heartbeat interval that a KIP-848 group may be given.",
        at_least(1),
    ),
    works("group.consumer.max.size", Type.INT, INT_MAX, "How many members a KIP-848 group may have.", at_least(1)),
    works(
        "group.consumer.assignors",
        Type.LIST,
        ("uniform", "range"),
        "The assignors that members of KIP-848 groups may choose; the first is taken if they choose none.",
        Check("uniform, range or both, once each, by name or by the class's name in Apache Kafka", _is_assignors),
    ),
    works(
        "group.consumer.migration.policy",
        Type.STRING,
        "bidirectional",
        "Whether a group with members may change its protocol: from classic to consumer when the first consumer of the "
        "new kind joins (upgrade), back when the last one leaves (downgrade), both (bidirectional), or not (disabled).",
        Check("one of " + ", ".join(_POLICIES), _is_policy),
        kafka_default="disabled",
    ),
    works(
        "group.consumer.assignment.interval.ms",
        Type.INT,
        1000,
        "Least time between two assignments of a KIP-848 group: what changes meanwhile is taken together.",
        at_least(0),
        scope=Scope.CLUSTER,
    ),
    works(
        "group.consumer.min.assignment.interval.ms",
        Type.INT,
        0,
        "Shortest assignment interval that a KIP-848 group may be given.",
        at_least(0),
    ),
    works(
        "group.consumer.max.assignment.interval.ms",
        Type.INT,
        15000,
        "Longest assignment interval that a KIP-848 group may be given.",
        at_least(0),
    ),
    works(
        "group.consumer.regex.refresh.interval.ms",
        Type.INT,
        600000,
        "How often the topics that match a subscribed regular expression are looked up again, although none came or "
        "went.",
        at_least(10000),
    ),
)


def faults(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """What is wrong among the values of `SETTINGS` together: (key, why, as the end of a sentence)."""
    yield from out_of_bounds("group.consumer.", BOUNDS, values)
    yield from not_above("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms", values)


def _own(name: str, default: int, doc: str, check: Check) -> GroupSetting:
    return GroupSetting(works(f"consumer.{name}", Type.INT, default, doc, check), f"group.consumer.{name}")


GROUP_SETTINGS: tuple[GroupSetting, ...] = (
    _own("session.timeout.ms", 45000, "How long a member may be silent before it is removed.", at_least(1)),
    _own("heartbeat.interval.ms", 5000, "How often members should send a heartbeat.", at_least(1)),
    _own("assignment.interval.ms", 1000, "Least time between two assignments of the group.", at_least(0)),
)
