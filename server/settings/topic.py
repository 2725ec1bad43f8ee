"""The settings of a topic, and which broker settings stand behind each as its default.

Names, types, defaults and ranges are Apache Kafka 3.9.1's (LogConfig); `broker_keys` is its synonym table: the first
broker setting that is set gives the topic's default, multiplied by `factor` where it counts in hours or minutes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.server.settings.log import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    MESSAGE_FORMAT,
    NO_PREALLOCATION,
    TIMESTAMP_TYPES,
)
from barnabas.server.settings.model import (
    GZIP_LEVEL,
    LEAST_SEGMENT_BYTES,
    LONG_MAX,
    Check,
    Setting,
    Type,
    Value,
    at_least,
    between,
    no_effect,
    one_of,
    only,
    some_of,
    works,
)

_HOUR_MS = 3600 * 1000
_MINUTE_MS = 60 * 1000


class BrokerKey(NamedTuple):
    """A broker setting that gives a topic setting its default. `factor` turns its unit into the topic setting's."""

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    setting: Setting
    broker_keys: tuple[BrokerKey, ...] = ()


def _throttled(value: Value) -> bool:
    """`*`, or partition:broker pairs (KIP-73); `none` is what kafka-reassign-partitions writes for an empty list."""
    if not isinstance(value, tuple):
        return False
    texts = [item.strip() for item in value]
    return texts in ([], ["*"], ["none"]) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in texts)


_THROTTLED = Check("partition:broker pairs, or *", _throttled)
_NO_TIERS = "there is no tiered storage"


def _row(setting: Setting, *broker_keys: str | BrokerKey) -> TopicSetting:
    return TopicSetting(setting, tuple(BrokerKey(k) if isinstance(k, str) else k for k in broker_keys))


TOPIC_SETTINGS: tuple[TopicSetting, ...] = (
    _row(
        works(
            "cleanup.policy",
            Type.LIST,
            ("delete",),
            "What happens to old data: delete (by time and size), compact (keep the last record of each key), or both.",
            some_of(*CLEANUP_POLICIES),
        ),
        "log.cleanup.policy",
    ),
    _row(
        works(
            "compression.type",
            Type.STRING,
            "producer",
            "How batches are stored: `producer` keeps what the producer sent; a codec or `uncompressed` rewrites them.",
            one_of(*COMPRESSION_TYPES),
        ),
        "compression.type",
    ),
    _row(
        works("compression.gzip.level", Type.INT, -1, "Effort of gzip when compression.type is gzip.", GZIP_LEVEL),
        "compression.gzip.level",
    ),
    _row(
        works("compression.lz4.level", Type.INT, 9, "Effort of lz4 when compression.type is lz4.", between(1, 17)),
        "compression.lz4.level",
    ),
    _row(
        works(
            "compression.zstd.level", Type.INT, 3, "Effort of zstd when compression.type is zstd.", between(-131072, 22)
        ),
        "compression.zstd.level",
    ),
    _row(
        works(
            "delete.retention.ms",
            Type.LONG,
            86400000,
            "How long compaction keeps the mark of a deleted key, in milliseconds, so that slow readers still see it.",
            at_least(0),
        ),
        "log.cleaner.delete.retention.ms",
    ),
    _row(
        works(
            "file.delete.delay.ms",
            Type.LONG,
            60000,
            "How long a deleted file stays on disk, renamed, so that readers of it can finish.",
            at_least(0),
        ),
        "log.segment.delete.delay.ms",
    ),
    _row(
        works(
            "flush.messages",
            Type.LONG,
            LONG_MAX,
            "After this many records the log is forced to disk. The default leaves it to the operating system.",
            at_least(1),
        ),
        "log.flush.interval.messages",
    ),
    _row(
        works(
            "flush.ms",
            Type.LONG,
            LONG_MAX,
            "Records are forced to disk after at most this many milliseconds.",
            at_least(0),
        ),
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    _row(
        works(
            "follower.replication.throttled.replicas",
            Type.LIST,
            (),
            "Replicas whose copying is limited on the follower, as partition:broker pairs or *.",
            _THROTTLED,
        )
    ),
    _row(
        works(
            "leader.replication.throttled.replicas",
            Type.LIST,
            (),
            "Replicas whose copying is limited on the leader, as partition:broker pairs or *.",
            _THROTTLED,
        )
    ),
    _row(
        works(
            "index.interval.bytes",
            Type.INT,
            4096,
            "How many bytes of records lie between two entries of the offset index.",
            at_least(0),
        ),
        "log.index.interval.bytes",
    ),
    _row(
        only(
            "local.retention.bytes",
            Type.LONG,
            -2,
            "How much data that is also in tiered storage stays on this disk.",
            _NO_TIERS,
            at_least(-2),
        ),
        "log.local.retention.bytes",
    ),
    _row(
        only(
            "local.retention.ms",
            Type.LONG,
            -2,
            "How long data that is also in tiered storage stays on this disk.",
            _NO_TIERS,
            at_least(-2),
        ),
        "log.local.retention.ms",
    ),
    _row(
        works(
            "max.compaction.lag.ms",
            Type.LONG,
            LONG_MAX,
            "How long a record may stay uncompacted, in milliseconds; then the dirty share of the log does not matter.",
            at_least(1),
        ),
        "log.cleaner.max.compaction.lag.ms",
    ),
    _row(
        works(
            "max.message.bytes",
            Type.INT,
            1048588,
            "Largest record batch taken from a producer, in bytes as sent (after compression).",
            at_least(0),
        ),
        "message.max.bytes",
    ),
    _row(
        works(
            "message.downconversion.enable",
            Type.BOOLEAN,
            True,
            "Whether clients older than Kafka 0.11 get records converted to a format they know, or an error.",
        ),
        "log.message.downconversion.enable",
    ),
    _row(
        no_effect(
            "message.format.version",
            Type.STRING,
            "3.0-IV1",
            "records are always stored in the current format, as in Apache Kafka from inter-broker protocol 3.0 on",
            MESSAGE_FORMAT,
            doc="The format of stored records; of historical interest.",
        ),
        "log.message.format.version",
    ),
    _row(
        works(
            "message.timestamp.after.max.ms",
            Type.LONG,
            LONG_MAX,
            "How far a producer's timestamp may lie after the broker's clock; later records are refused.",
            at_least(0),
        ),
        "log.message.timestamp.after.max.ms",
    ),
    _row(
        works(
            "message.timestamp.before.max.ms",
            Type.LONG,
            LONG_MAX,
            "How far a producer's timestamp may lie before the broker's clock; older records are refused.",
            at_least(0),
        ),
        "log.message.timestamp.before.max.ms",
    ),
    _row(
        works(
            "message.timestamp.difference.max.ms",
            Type.LONG,
            LONG_MAX,
            "Old name for both message.timestamp.before.max.ms and .after.max.ms; counts where those are not set.",
            at_least(0),
        ),
        "log.message.timestamp.difference.max.ms",
    ),
    _row(
        works(
            "message.timestamp.type",
            Type.STRING,
            "CreateTime",
            "Which time records carry: CreateTime, given by the producer, or LogAppendTime, set by the broker.",
            one_of(*TIMESTAMP_TYPES),
        ),
        "log.message.timestamp.type",
    ),
    _row(
        works(
            "min.cleanable.dirty.ratio",
            Type.DOUBLE,
            0.5,
            "Which share of the log must be uncompacted before it is compacted.",
            between(0, 1),
        ),
        "log.cleaner.min.cleanable.ratio",
    ),
    _row(
        works(
            "min.compaction.lag.ms",
            Type.LONG,
            0,
            "How long a record stays uncompacted at least, in milliseconds.",
            at_least(0),
        ),
        "log.cleaner.min.compaction.lag.ms",
    ),
    _row(
        works(
            "min.insync.replicas",
            Type.INT,
            1,
            "How many replicas must have a write before a producer with acks=all gets its answer.",
            at_least(1),
        ),
        "min.insync.replicas",
    ),
    _row(
        no_effect(
            "preallocate",
            Type.BOOLEAN,
            False,
            NO_PREALLOCATION,
            doc="Whether a new log file takes its full size on disk at once.",
        ),
        "log.preallocate",
    ),
    _row(
        only(
            "remote.storage.enable", Type.BOOLEAN, False, "Whether the topic's data goes to tiered storage.", _NO_TIERS
        )
    ),
    _row(
        only(
            "remote.log.copy.disable",
            Type.BOOLEAN,
            False,
            "Whether copying to tiered storage stops.",
            _NO_TIERS,
        )
    ),
    _row(
        only(
            "remote.log.delete.on.disable",
            Type.BOOLEAN,
            False,
            "Whether data in tiered storage is deleted when it is turned off.",
            _NO_TIERS,
        )
    ),
    _row(
        works(
            "retention.bytes",
            Type.LONG,
            -1,
            "Size in bytes that a partition's log may reach before its oldest files are deleted; -1 for no limit.",
        ),
        "log.retention.bytes",
    ),
    _row(
        works(
            "retention.ms",
            Type.LONG,
            604800000,
            "How long records are kept, in milliseconds; -1 sets no limit.",
            at_least(-1),
        ),
        "log.retention.ms",
        BrokerKey("log.retention.minutes", _MINUTE_MS),
        BrokerKey("log.retention.hours", _HOUR_MS),
    ),
    _row(
        works(
            "segment.bytes",
            Type.INT,
            1073741824,
            "Size of a log file in bytes at which the next one is started.",
            at_least(LEAST_SEGMENT_BYTES),
        ),
        "log.segment.bytes",
    ),
    _row(
        works(
            "segment.index.bytes",
            Type.INT,
            10485760,
            "Largest size of an offset index file, in bytes; a full index starts a new log file.",
            at_least(4),
        ),
        "log.index.size.max.bytes",
    ),
    _row(
        works(
            "segment.jitter.ms",
            Type.LONG,
            0,
            "Up to this many milliseconds are taken off segment.ms, at random per file, so that not all roll together.",
            at_least(0),
        ),
        "log.roll.jitter.ms",
        BrokerKey("log.roll.jitter.hours", _HOUR_MS),
    ),
    _row(
        works(
            "segment.ms",
            Type.LONG,
            604800000,
            "Age in milliseconds at which a log file is closed even if it is not full.",
            at_least(1),
        ),
        "log.roll.ms",
        BrokerKey("log.roll.hours", _HOUR_MS),
    ),
    _row(
        works(
            "unclean.leader.election.enable",
            Type.BOOLEAN,
            False,
            "Whether a replica that is behind may lead when no other is left, at the price of lost records.",
        ),
        "unclean.leader.election.enable",
    ),
)
