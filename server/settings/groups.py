"""Settings of consumer groups and of the internal topic that holds their offsets.

Those of KIP-848 groups are in `consumer_groups`, those of share groups in `share_groups`,
of streams groups in `streams_groups`.
"""

from __future__ import annotations

from barnabas.server.settings.model import (
    INT_MAX,
    LEAST_SEGMENT_BYTES,
    PARTITIONS_AT_ONCE,
    Setting,
    Type,
    at_least,
    between,
    no_effect,
    only,
    works,
)

_ONE_LOOP = "one event loop runs every group"

SETTINGS: tuple[Setting, ...] = (
    works(
        "group.min.session.timeout.ms",
        Type.INT,
        6000,
        "Shortest session time-out that a group member may ask for.",
    ),
    works(
        "group.max.session.timeout.ms",
        Type.INT,
        1800000,
        "Longest session time-out that a group member may ask for.",
    ),
    works(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        3000,
        "How long the first rebalance of an empty group waits for more members. 0 suits tests and development.",
        note="0 for a broker alone that is given no settings file",
    ),
    works("group.max.size", Type.INT, INT_MAX, "How many members a group may have.", at_least(1)),
    works(
        "offset.metadata.max.bytes",
        Type.INT,
        4096,
        "Largest text that a consumer may store with a committed offset, in UTF-16 units (nearly always characters).",
    ),
    works(
        "offsets.retention.minutes",
        Type.INT,
        10080,
        "How long the offsets of an empty group, or of a topic that a group has left, are kept.",
        at_least(1),
    ),
    works(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        600000,
        "How often the broker removes expired offsets.",
        at_least(1),
    ),
    works(
        "offsets.topic.num.partitions",
        Type.INT,
        50,
        "How many partitions __consumer_offsets is created with. It must not change afterwards.",
        between(1, PARTITIONS_AT_ONCE),
    ),
    works(
        "offsets.topic.replication.factor",
        Type.SHORT,
        1,
        "How many replicas __consumer_offsets is created with. Without this setting it is 3 in a cluster, and 1 on a "
        "broker that runs alone. With fewer brokers alive it is not made, and groups must wait.",
        at_least(1),
        kafka_default="3",
    ),
    works(
        "offsets.topic.segment.bytes",
        Type.INT,
        104857600,
        "Size of a log file of __consumer_offsets in bytes.",
        at_least(LEAST_SEGMENT_BYTES),
    ),
    only(
        "offsets.topic.compression.codec",
        Type.INT,
        0,
        "Number of the codec for the records of __consumer_offsets (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).",
        "group records are written uncompressed",
    ),
    works(
        "offsets.commit.timeout.ms",
        Type.INT,
        5000,
        "How long an offset commit may wait to be stored before it fails.",
        at_least(1),
    ),
    works(
        "offsets.commit.required.acks",
        Type.SHORT,
        -1,
        "How many replicas must have an offset commit before it succeeds: -1 for all in sync, 1 or 0 for the "
        "coordinator alone, which may lose commits when it fails.",
        between(-1, 1),
    ),
    no_effect(
        "offsets.load.buffer.size", Type.INT, 5242880, "stored groups are read in pieces of a fixed size", at_least(1)
    ),
    no_effect("group.coordinator.new.enable", Type.BOOLEAN, False, "one coordinator runs groups of both protocols"),
    no_effect("group.coordinator.threads", Type.INT, 1, _ONE_LOOP, at_least(1)),
    no_effect("group.coordinator.background.threads", Type.INT, 2, _ONE_LOOP, at_least(1)),
    no_effect(
        "group.coordinator.append.linger.ms", Type.INT, 10, "group records are stored without delay", at_least(-1)
    ),
    no_effect(
        "group.coordinator.cached.buffer.max.bytes", Type.INT, 1048588, "no buffers are cached", at_least(524288)
    ),
)
