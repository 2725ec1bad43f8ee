"""Settings of share groups (KIP-932): the broker's, of its share coordinator, and those that one group may have.

Names, types, ranges and defaults are those of Apache Kafka 4.3.1. A group's own settings (resource type GROUP) stand
over the broker setting that the row names, and must lie within its bounds. Share groups are served while the feature
`share.version` is 1; no setting switches them on. Milliseconds throughout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.server.settings.group_bounds import GroupSetting, not_above, out_of_bounds
from barnabas.server.settings.model import (
    LEAST_SEGMENT_BYTES,
    PARTITIONS_AT_ONCE,
    Check,
    Scope,
    Setting,
    Type,
    Value,
    at_least,
    between,
    no_effect,
    one_of,
    only,
    works,
)

_ONE_LOOP: Final = "one event loop runs every coordinator"

BOUNDS: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
)
"""Of each there is a `group.share.` setting, a least and a most value of it, and a setting of single groups."""


def _bounded(
    name: str,
    default: int,
    least: int,
    most: int,
    doc: str,
    subject: str,
    *checks: Check,
    scope: Scope = Scope.READ_ONLY,
) -> Iterator[Setting]:
    """A broker setting and the bounds of what a group may have. subject: of the documentation of bounds. checks: of the
    three.
    """
    check, low, high = checks
    yield works(f"group.share.{name}", Type.INT, default, doc, check, scope=scope)
    yield works(
        f"group.share.min.{name}", Type.INT, least, f"The least {subject} that a share group may be given.", low
    )
    yield works(f"group.share.max.{name}", Type.INT, most, f"The most {subject} that a share group may be given.", high)


SETTINGS: tuple[Setting, ...] = (
    *_bounded(
        "session.timeout.ms",
        45000,
        45000,
        60000,
        "How long a member of a share group may be silent before it is removed.",
        "session time-out",
        *(at_least(1),) * 3,
    ),
    *_bounded(
        "heartbeat.interval.ms",
        5000,
        5000,
        15000,
        "How often members of share groups should send a heartbeat.",
        "heartbeat interval",
        *(at_least(1),) * 3,
    ),
    *_bounded(
        "assignment.interval.ms",
        1000,
        0,
        15000,
        "Least time between two assignments of a share group: what changes meanwhile is taken together.",
        "assignment interval",
        *(at_least(0),) * 3,
        scope=Scope.CLUSTER,
    ),
    *_bounded(
        "record.lock.duration.ms",
        30000,
        15000,
        60000,
        "How long a member may take for a record before others get it.",
        "lock duration",
        between(1000, 3600000),
        between(1000, 30000),
        between(30000, 3600000),
    ),
    *_bounded(
        "delivery.count.limit",
        5,
        2,
        10,
        "How often a record is delivered at most; then it is settled without having been accepted.",
        "limit of deliveries",
        between(2, 10),
        between(2, 5),
        between(5, 25),
    ),
    *_bounded(
        "partition.max.record.locks",
        2000,
        100,
        4000,
        "How many records of a partition may be on their way in a share group, from the first that is not settled on.",
        "limit of records on their way",
        between(100, 10000),
        between(100, 2000),
        between(2000, 10000),
    ),
    works("group.share.max.size", Type.INT, 200, "How many members a share group may have.", between(1, 1000)),
    works(
        "group.share.max.share.sessions",
        Type.INT,
        2000,
        "How many members of share groups may fetch from this broker at a time; more must wait.",
        at_least(1),
    ),
    works(
        "group.share.initialize.retry.interval.ms",
        Type.INT,
        30000,
        "After which time share coordinators are told again of partitions that a share group begins with.",
        at_least(1),
    ),
    only(
        "group.share.assignors",
        Type.LIST,
        ("simple",),
        "The assignor of share groups.",
        "there is one assignor of share groups",
    ),
    only(
        "group.share.persister.class.name",
        Type.STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "What keeps the state of share partitions: share coordinators, in __share_group_state.",
        "the state of share partitions is kept by share coordinators",
    ),
    no_effect(
        "group.share.enable",
        Type.BOOLEAN,
        False,
        "the feature share.version decides whether share groups are offered, as in Apache Kafka 4.3",
    ),
    no_effect(
        "group.share.max.groups",
        Type.SHORT,
        10,
        "the number of share groups is not limited, as in Apache Kafka 4.3",
        between(1, 100),
    ),
    no_effect(
        "share.fetch.purgatory.purge.interval.requests",
        Type.INT,
        1000,
        "requests that are done leave the lists of waiters at once",
    ),
    works(
        "share.coordinator.state.topic.num.partitions",
        Type.INT,
        50,
        "How many partitions __share_group_state is created with. It must not change afterwards.",
        between(1, PARTITIONS_AT_ONCE),
    ),
    works(
        "share.coordinator.state.topic.replication.factor",
        Type.SHORT,
        1,
        "How many replicas __share_group_state is created with. Without this setting it is 3 in a cluster, and 1 on a "
        "broker that runs alone. With fewer brokers alive it is not made, and share groups must wait.",
        at_least(1),
        kafka_default="3",
    ),
    works(
        "share.coordinator.state.topic.min.isr",
        Type.SHORT,
        1,
        "How many replicas of __share_group_state must be in sync for a write. Without this setting it is 2 in a "
        "cluster, and 1 on a broker that runs alone.",
        at_least(1),
        kafka_default="2",
    ),
    works(
        "share.coordinator.state.topic.segment.bytes",
        Type.INT,
        104857600,
        "Size of a log file of __share_group_state in bytes.",
        at_least(LEAST_SEGMENT_BYTES),
    ),
    works(
        "share.coordinator.state.topic.prune.interval.ms",
        Type.INT,
        300000,
        "How often what is redundant at the start of __share_group_state is cut off.",
        at_least(1),
    ),
    only(
        "share.coordinator.state.topic.compression.codec",
        Type.INT,
        0,
        "Number of the codec for the records of __share_group_state (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).",
        "the state of share partitions is written uncompressed",
    ),
    works(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Type.INT,
        500,
        "After how many updates of a share partition its whole state is written.",
        between(0, 500),
    ),
    works(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        Type.INT,
        300000,
        "How often the whole state of share partitions is written that has not been for as long.",
        at_least(1),
    ),
    works(
        "share.coordinator.write.timeout.ms",
        Type.INT,
        5000,
        "How long a change of a share partition's state may wait to be stored before it fails.",
        at_least(1),
    ),
    no_effect("share.coordinator.append.linger.ms", Type.INT, -1, "share state is stored without delay", at_least(-1)),
    no_effect(
        "share.coordinator.cached.buffer.max.bytes", Type.INT, 1048588, "no buffers are cached", at_least(524288)
    ),
    no_effect(
        "share.coordinator.load.buffer.size",
        Type.INT,
        5242880,
        "stored share state is read in pieces of a fixed size",
        at_least(1),
    ),
    no_effect("share.coordinator.threads", Type.INT, 1, _ONE_LOOP, at_least(1)),
)


def faults(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """What is wrong among the values of `SETTINGS` together: (key, why, as the end of a sentence)."""
    yield from out_of_bounds("group.share.", BOUNDS, values)
    yield from not_above("group.share.session.timeout.ms", "group.share.heartbeat.interval.ms", values)
    most, sessions = values["group.share.max.size"], values["group.share.max.share.sessions"]
    if isinstance(most, int) and isinstance(sessions, int) and sessions < most:
        yield "group.share.max.share.sessions", f"it must be at least group.share.max.size={most}"


_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:[.,](\d{1,9}))?S)?)?", re.IGNORECASE
)
"""An ISO 8601 duration as Java's `Duration.parse` has it: of days, hours, minutes and seconds."""


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration like P7D or PT1H30M. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text} is no duration like P7D or PT1H30M")
    days, hours, minutes, seconds = (int(found[number] or 0) for number in range(1, 5))
    fraction_ms = int((found[5] or "0").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms


def _has_reset_form(value: Value) -> bool:
    if not isinstance(value, str):
        return False
    kind, _, duration = value.partition(":")
    if kind != "by_duration":
        return value in ("earliest", "latest")
    try:
        duration_ms(duration)
    except ValueError:
        return False
    return True


def _own(name: str, default: int, doc: str, check: Check) -> GroupSetting:
    return GroupSetting(works(f"share.{name}", Type.INT, default, doc, check), f"group.share.{name}")


GROUP_SETTINGS: tuple[GroupSetting, ...] = (
    _own("session.timeout.ms", 45000, "How long a member may be silent before it is removed.", at_least(1)),
    _own("heartbeat.interval.ms", 5000, "How often members should send a heartbeat.", at_least(1)),
    _own("assignment.interval.ms", 1000, "Least time between two assignments of the group.", at_least(0)),
    _own("delivery.count.limit", 5, "How often a record is delivered at most.", between(2, 25)),
    _own(
        "record.lock.duration.ms",
        30000,
        "How long a member may take for a record before others get it.",
        between(1000, 3600000),
    ),
    _own(
        "partition.max.record.locks",
        2000,
        "How many records of a partition may be on their way.",
        between(100, 10000),
    ),
    GroupSetting(
        works(
            "share.auto.offset.reset",
            Type.STRING,
            "latest",
            "Where the group begins in a partition that it has not read: at its end, at its start, or so long ago.",
            Check("earliest, latest or by_duration:<ISO 8601 duration>", _has_reset_form),
        )
    ),
    GroupSetting(
        works(
            "share.isolation.level",
            Type.STRING,
            "read_uncommitted",
            "Whether the group is given records of transactions before they are committed, and of aborted ones.",
            one_of("read_committed", "read_uncommitted"),
        )
    ),
    GroupSetting(
        works(
            "share.renew.acknowledge.enable",
            Type.BOOLEAN,
            True,
            "Whether members may prolong the lock of a record.",
        )
    ),
)
