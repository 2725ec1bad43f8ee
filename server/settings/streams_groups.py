"""Settings of streams groups (KIP-1071): the broker's, and those that one group may have.

Names, types, ranges and defaults are those of Apache Kafka 4.3.1. A group's own settings (resource type GROUP) stand
over the broker setting that the row names, and must lie within its bounds. Streams groups are served while the feature
`streams.version` is 1. Milliseconds throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.server.settings.group_bounds import GroupSetting, not_above, out_of_bounds
from barnabas.server.settings.model import INT_MAX, Scope, Setting, Type, Value, at_least, works

BOUNDS: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Of each there is a `group.streams.` setting, a least and a most value of it, and a setting of single groups."""


def _bounded(
    name: str, default: int, least: int, most: int, doc: str, subject: str, *, scope: Scope = Scope.READ_ONLY
) -> Iterator[Setting]:
    """A broker setting and the bounds of what a group may have. subject: of the documentation of bounds."""
    check = at_least(0 if name == "assignment.interval.ms" else 1)
    yield works(f"group.streams.{name}", Type.INT, default, doc, check, scope=scope)
    yield works(
        f"group.streams.min.{name}", Type.INT, least, f"The least {subject} that a streams group may be given.", check
    )
    yield works(
        f"group.streams.max.{name}", Type.INT, most, f"The most {subject} that a streams group may be given.", check
    )


SETTINGS: tuple[Setting, ...] = (
    *_bounded(
        "session.timeout.ms",
        45000,
        45000,
        60000,
        "How long a member of a streams group may be silent before it is removed.",
        "session time-out",
    ),
    *_bounded(
        "heartbeat.interval.ms",
        5000,
        5000,
        15000,
        "How often members of streams groups should send a heartbeat.",
        "heartbeat interval",
    ),
    *_bounded(
        "assignment.interval.ms",
        1000,
        0,
        15000,
        "Least time between two assignments of a streams group: what changes meanwhile is taken together.",
        "assignment interval",
        scope=Scope.CLUSTER,
    ),
    works(
        "group.streams.initial.rebalance.delay.ms",
        Type.INT,
        3000,
        "How long the first members of an empty streams group wait for others before they are given tasks.",
        at_least(0),
    ),
    works("group.streams.max.size", Type.INT, INT_MAX, "How many members a streams group may have.", at_least(1)),
    works(
        "group.streams.num.standby.replicas",
        Type.INT,
        0,
        "How many standbys each task with state has.",
        at_least(0),
    ),
    works(
        "group.streams.max.standby.replicas",
        Type.INT,
        2,
        "The most standbys that a streams group may be given.",
        at_least(0),
    ),
)


def faults(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """What is wrong among the values of `SETTINGS` together: (key, why, as the end of a sentence)."""
    yield from out_of_bounds("group.streams.", BOUNDS, values)
    yield from not_above("group.streams.session.timeout.ms", "group.streams.heartbeat.interval.ms", values)
    standbys, most_standbys = (values[f"group.streams.{name}.standby.replicas"] for name in ("num", "max"))
    if isinstance(standbys, int) and isinstance(most_standbys, int) and standbys > most_standbys:
        yield (
            "group.streams.num.standby.replicas",
            f"it must not be above group.streams.max.standby.replicas={most_standbys}",
        )


def _own(name: str, default: int, doc: str, least: int) -> GroupSetting:
    return GroupSetting(works(f"streams.{name}", Type.INT, default, doc, at_least(least)), f"group.streams.{name}")


GROUP_SETTINGS: tuple[GroupSetting, ...] = (
    _own("session.timeout.ms", 45000, "How long a member may be silent before it is removed.", 1),
    _own("heartbeat.interval.ms", 5000, "How often members should send a heartbeat.", 1),
    _own("assignment.interval.ms", 1000, "Least time between two assignments of the group.", 0),
    _own("initial.rebalance.delay.ms", 3000, "How long the first members of an empty group wait for others.", 0),
    _own("num.standby.replicas", 0, "How many standbys each task with state has.", 0),
)
