"""Settings of consumer groups and of the internal topic that holds their offsets.

Those of KIP-848 groups are in `consumer_groups`.
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
    family,
    no_effect,
    only,
    works,
)

_ONE_LOOP = "one event loop runs every group"
_NO_SHARE = "share groups are not served"
_NO_STREAMS = "streams groups are not served"

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
    only("group.share.enable", Type.BOOLEAN, False, "Whether share groups are offered.", _NO_SHARE),
    *family(
        no_effect,
        "Belongs to share groups.",
        _NO_SHARE,
        (
            ("group.share.session.timeout.ms", Type.INT, 45000, at_least(1)),
            ("group.share.min.session.timeout.ms", Type.INT, 45000, at_least(1)),
            ("group.share.max.session.timeout.ms", Type.INT, 60000, at_least(1)),
            ("group.share.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
            ("group.share.min.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
            ("group.share.max.heartbeat.interval.ms", Type.INT, 15000, at_least(1)),
            ("group.share.max.size", Type.SHORT, 200, between(1, 1000)),
            ("group.share.max.groups", Type.SHORT, 10, between(1, 100)),
            ("group.share.delivery.count.limit", Type.INT, 5, between(2, 25)),
            ("group.share.min.delivery.count.limit", Type.INT, 2, between(2, 5)),
            ("group.share.max.delivery.count.limit", Type.INT, 10, between(5, 25)),
            ("group.share.record.lock.duration.ms", Type.INT, 30000, between(1000, 3600000)),
            ("group.share.min.record.lock.duration.ms", Type.INT, 15000, between(1000, 30000)),
            ("group.share.max.record.lock.duration.ms", Type.INT, 60000, between(30000, 3600000)),
            ("group.share.partition.max.record.locks", Type.INT, 2000, between(100, 10000)),
            ("group.share.min.partition.max.record.locks", Type.INT, 100, between(100, 2000)),
            ("group.share.max.partition.max.record.locks", Type.INT, 4000, between(2000, 10000)),
            ("group.share.assignment.interval.ms", Type.INT, 1000, at_least(0)),
            ("group.share.min.assignment.interval.ms", Type.INT, 0, at_least(0)),
            ("group.share.max.assignment.interval.ms", Type.INT, 15000, at_least(0)),
            ("group.share.assignors", Type.LIST, ("simple",)),
            ("group.share.initialize.retry.interval.ms", Type.INT, 30000, at_least(1)),
            ("group.share.max.share.sessions", Type.INT, 2000, at_least(1)),
            (
                "group.share.persister.class.name",
                Type.STRING,
                "org.apache.kafka.server.share.persister.DefaultStatePersister",
            ),
            ("share.fetch.purgatory.purge.interval.requests", Type.INT, 1000),
            ("share.coordinator.append.linger.ms", Type.INT, -1, at_least(-1)),
            ("share.coordinator.cached.buffer.max.bytes", Type.INT, 1048588, at_least(524288)),
            ("share.coordinator.cold.partition.snapshot.interval.ms", Type.INT, 300000, at_least(1)),
            ("share.coordinator.load.buffer.size", Type.INT, 5242880, at_least(1)),
            ("share.coordinator.snapshot.update.records.per.snapshot", Type.INT, 500, between(0, 500)),
            ("share.coordinator.state.topic.compression.codec", Type.INT, 0),
            ("share.coordinator.state.topic.num.partitions", Type.INT, 50, between(1, PARTITIONS_AT_ONCE)),
            ("share.coordinator.state.topic.prune.interval.ms", Type.INT, 300000, at_least(1)),
            ("share.coordinator.state.topic.segment.bytes", Type.INT, 104857600, at_least(LEAST_SEGMENT_BYTES)),
            ("share.coordinator.threads", Type.INT, 1, at_least(1)),
            ("share.coordinator.write.timeout.ms", Type.INT, 5000, at_least(1)),
        ),
    ),
    no_effect(
        "share.coordinator.state.topic.replication.factor",
        Type.SHORT,
        1,
        _NO_SHARE,
        at_least(1),
        doc="Belongs to share groups. Without this setting it is 3 in a cluster, and 1 on a broker that runs alone.",
        kafka_default="3",
    ),
    no_effect(
        "share.coordinator.state.topic.min.isr",
        Type.SHORT,
        1,
        _NO_SHARE,
        at_least(1),
        doc="Belongs to share groups. Without this setting it is 2 in a cluster, and 1 on a broker that runs alone.",
        kafka_default="2",
    ),
    *family(
        no_effect,
        "Belongs to streams groups (KIP-1071).",
        _NO_STREAMS,
        (
            ("group.streams.session.timeout.ms", Type.INT, 45000, at_least(1)),
            ("group.streams.min.session.timeout.ms", Type.INT, 45000, at_least(1)),
            ("group.streams.max.session.timeout.ms", Type.INT, 60000, at_least(1)),
            ("group.streams.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
            ("group.streams.min.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
            ("group.streams.max.heartbeat.interval.ms", Type.INT, 15000, at_least(1)),
            ("group.streams.initial.rebalance.delay.ms", Type.INT, 3000, at_least(0)),
            ("group.streams.max.size", Type.INT, INT_MAX, at_least(1)),
            ("group.streams.num.standby.replicas", Type.INT, 0, at_least(0)),
            ("group.streams.max.standby.replicas", Type.INT, 2, at_least(0)),
            ("group.streams.assignment.interval.ms", Type.INT, 1000, at_least(0)),
            ("group.streams.min.assignment.interval.ms", Type.INT, 0, at_least(0)),
            ("group.streams.max.assignment.interval.ms", Type.INT, 15000, at_least(0)),
        ),
    ),
)
