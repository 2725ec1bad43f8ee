"""What a field of a name may hold: mostly something that exists and fits the rest of the request, often something at
an edge, sometimes nonsense. Strings are bytes, because not all of them are UTF-8.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.kproto import ApiKey, uuid_to_text
from compat_tests.fuzz.batches import Batches
from compat_tests.fuzz.pools import (
    FIXED_TOPICS,
    GROUPS,
    INTERNAL_TOPICS,
    SHARE_GROUPS,
    TRANSACTIONAL_IDS,
    Member,
    Pools,
    Producer,
)
from compat_tests.fuzz.schema_writer import RANGES, Shape

EDGES = (0, 0, 1, 1, 2, 3, -1, -2, -3, -4, -5, -6, 5, 10, 100, 2**31 - 1)
OFFSETS = (*EDGES, 2**63 - 1, -(2**63))
BOUNDARIES = (0, 1, -1, 2, 127, 128, 255, 32_767, -32_768, 65_535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
OTHER_TOPICS = ("new-0", "new-1", "new-2", "new-3", "no such name", "", ".", "..", "a/b", "x" * 249, "x" * 250)
# Small patterns, and how often they are repeated: a length of 10,923 in two bytes is 32,769 when written with U+FFFD.
GROWN_PATTERNS = (b"x", b"\xff", b"\xc3", b"\xed\xa0\x80", "ß".encode(), "€".encode(), "😀".encode(), b"/", b"%", b"\0")
GROWN_LENGTHS = (100, 249, 250, 255, 1000, 10_922, 10_923, 12_000, 16_384, 30_000, 32_700, 32_767)
TOO_LONG = (32_768, 65_535, 65_536, 100_000)
ODD_TEXTS = (
    b"",
    b"\0",
    b"\xff",
    b"\xc3\x28",
    b"\xf8\x88\x80\x80\x80",
    b"\xed\xa0\x80",
    b"../../etc",
    b"%2e",
    b"a\nb",
    b"<default>",
    b"[",
    b"(a+)+$",
    *(text.encode() for text in ("😀", "\ufffd", "\u202e", "ß")),
)
SETTINGS = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "compression.type",
    "segment.bytes",
    "segment.ms",
    "min.insync.replicas",
    "message.timestamp.type",
    "message.timestamp.after.max.ms",
    "index.interval.bytes",
    "num.partitions",
    "log.retention.ms",
    "log.segment.bytes",
    "connections.max.idle.ms",
    "advertised.listeners",
    "log.dirs",
    "no.such.setting",
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "follower.replication.throttled.replicas",
    "flush.messages",
    "",
)
SETTING_VALUES = (
    "1",
    "0",
    "-1",
    "1000",
    "1048576",
    "2147483648",
    "compact",
    "delete",
    "compact,delete",
    "true",
    "x",
    "",
)
GOOD_TOPIC_SETTINGS = (
    ("retention.ms", "1"),
    ("retention.ms", "-1"),
    ("retention.bytes", "1"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("compression.type", "gzip"),
    ("compression.type", "zstd"),
    ("compression.type", "uncompressed"),
    ("compression.type", "producer"),
    ("segment.bytes", "1048576"),
    ("segment.ms", "1"),
    ("max.message.bytes", "1000"),
    ("max.message.bytes", "1048588"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "CreateTime"),
    ("message.timestamp.after.max.ms", "1"),
    ("message.timestamp.before.max.ms", "5"),
    ("flush.messages", "1"),
    ("flush.messages", "9223372036854775807"),
)
GOOD_BROKER_SETTINGS = (
    ("log.retention.ms", "1"),
    ("log.segment.bytes", "1048576"),
    ("message.max.bytes", "100000"),  # less, and no group of the honest could commit
    ("message.max.bytes", "1048588"),
    ("max.connections", "2147483647"),  # fewer, and the honest would wait at the door
    ("log.message.timestamp.type", "LogAppendTime"),
    ("compression.type", "lz4"),
    ("num.io.threads", "3"),
)
GOOD_GROUP_SETTINGS = (
    ("consumer.session.timeout.ms", "46000"),
    ("consumer.heartbeat.interval.ms", "5001"),
    ("share.auto.offset.reset", "earliest"),
    ("share.isolation.level", "read_committed"),
    ("share.record.lock.duration.ms", "15000"),
    ("share.delivery.count.limit", "2"),
)
RESOURCE_TYPES = (2, 2, 2, 4, 4, 8, 16, 32, 32, 0, 1, 3, 99, -1)
INTEGERS = frozenset(RANGES)
BROKER, TOPIC, GROUP = 4, 2, 32
SHARE_APIS = frozenset(
    map(
        int,
        (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.SHARE_FETCH,
            ApiKey.SHARE_ACKNOWLEDGE,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ),
    )
)
CONFIG_APIS = frozenset({int(ApiKey.ALTER_CONFIGS), int(ApiKey.INCREMENTAL_ALTER_CONFIGS)})
DELETING = frozenset({int(ApiKey.DELETE_TOPICS), int(ApiKey.DELETE_RECORDS)})


class Turn(Protocol):
    """The request that is being written: who seems to ask, about what."""

    rng: random.Random
    pools: Pools
    batches: Batches
    key: int
    version: int
    member: Member
    producer: Producer
    topic: bytes
    resource: int
    setting: tuple[str, str] | None
    session: tuple[int, int]
    acks: int
    lone: bool


Maker = Callable[[Turn, Shape], Any]


def number(turn: Turn, shape: Shape) -> int:
    """Any, mostly at an edge."""
    rng = turn.rng
    if rng.random() < 0.15:
        return rng.getrandbits(64)
    return rng.choice(BOUNDARIES)


def text(turn: Turn, shape: Shape) -> bytes:
    """Strange or long."""
    rng = turn.rng
    if rng.random() < 0.6:
        return rng.choice(ODD_TEXTS)
    return grown(rng, rng.choice(GROWN_LENGTHS))


def grown(rng: random.Random, length: int) -> bytes:
    """`length` bytes at most, of one pattern."""
    pattern = rng.choice(GROWN_PATTERNS)
    return pattern * max(1, length // len(pattern))


def anything(turn: Turn, shape: Shape) -> Any:
    """By type alone."""
    rng = turn.rng
    match shape.type:
        case "str":
            return text(turn, shape)
        case "bytes":
            return rng.randbytes(rng.choice((0, 1, 3, 30, 200, 2000)))
        case "records":
            return turn.batches.records(turn.producer)
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        case "f64":
            return rng.choice((0.0, -1.5, 1e300, float("nan"), float("inf")))
    return number(turn, shape)


def fits(kind: str, value: Any) -> bool:
    """Whether a field of this type can hold it."""
    if kind in INTEGERS:
        return isinstance(value, int)
    if kind in ("bool", "f64"):
        return type(value) is (bool if kind == "bool" else float)
    if kind == "uuid":
        return isinstance(value, bytes) and len(value) == 16
    return value is None or isinstance(value, bytes)


def of(*choices: Any) -> Maker:
    """One of these."""
    encoded = tuple(choice.encode() if isinstance(choice, str) else choice for choice in choices)
    return lambda turn, shape: turn.rng.choice(encoded)


def topic(turn: Turn, shape: Shape) -> bytes:
    rng = turn.rng
    dice = rng.random()
    if dice < 0.6:
        return turn.topic
    if turn.key in DELETING and dice < 0.9:
        return rng.choice(OTHER_TOPICS).encode()
    if dice < 0.85:
        return rng.choice(turn.pools.topics.all).encode()
    if dice < 0.9:
        return rng.choice(INTERNAL_TOPICS).encode()
    return rng.choice(OTHER_TOPICS).encode()


def partition(turn: Turn, shape: Shape) -> int:
    return turn.rng.choice((0, 0, 0, 0, 1, 1, 2, -1, 99, 2**31 - 1))


def group(turn: Turn, shape: Shape) -> bytes:
    rng = turn.rng
    if turn.key in SHARE_APIS and rng.random() < 0.8:
        return rng.choice(SHARE_GROUPS).encode()
    if turn.key == ApiKey.FIND_COORDINATOR and rng.random() < 0.2:
        topic_id = uuid_to_text(rng.choice(turn.pools.topic_ids.all))
        return f"{rng.choice(SHARE_GROUPS)}:{topic_id}:{rng.choice((0, 1, -1))}".encode()
    if rng.random() < 0.7:
        return turn.member.group.encode()
    return rng.choice((*GROUPS, "", "group with spaces")).encode()


def member_id(turn: Turn, shape: Shape) -> bytes:
    rng = turn.rng
    dice = rng.random()
    if turn.key in SHARE_APIS and dice < 0.9:
        return b"share-%d" % rng.randrange(4)
    if dice < 0.6:
        return turn.member.member_id.encode()
    if dice < 0.8 and turn.key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        return b"member-%d" % rng.randrange(4)
    return b"" if dice < 0.9 else rng.choice(turn.pools.members.all).member_id.encode()


def instance(turn: Turn, shape: Shape) -> bytes | None:
    return turn.rng.choice((None, None, None, b"instance", b"other", b""))


def generation(turn: Turn, shape: Shape) -> int:
    rng = turn.rng
    if turn.key == ApiKey.SHARE_GROUP_HEARTBEAT and rng.random() < 0.7:
        return rng.choice((0, 0, 0, 0, 1, 2, 3, -1))
    if turn.key == ApiKey.CONSUMER_GROUP_HEARTBEAT and rng.random() < 0.4:
        return rng.choice((0, 0, 0, -1, -2))
    return turn.member.epoch if rng.random() < 0.75 else rng.choice((-1, -2, 0, 1, 2, 2**31 - 1))


def producer_id(turn: Turn, shape: Shape) -> int:
    return turn.producer.producer_id if turn.rng.random() < 0.85 else turn.rng.choice((-1, 0, 1, 2**63 - 1))


def producer_epoch(turn: Turn, shape: Shape) -> int:
    return turn.producer.epoch if turn.rng.random() < 0.85 else turn.rng.choice((-1, 0, 1, 32_766, 32_767))


def transactional_id(turn: Turn, shape: Shape) -> bytes | None:
    rng = turn.rng
    if turn.key == ApiKey.PRODUCE:
        known = turn.producer.transactional_id
        return None if known is None or rng.random() < 0.3 else known.encode()
    if turn.key == ApiKey.INIT_PRODUCER_ID:
        found = rng.choice((None, *TRANSACTIONAL_IDS, *TRANSACTIONAL_IDS, ""))
        return None if found is None else found.encode()
    if turn.producer.transactional_id is not None and rng.random() < 0.8:
        return turn.producer.transactional_id.encode()
    return rng.choice((*TRANSACTIONAL_IDS, "")).encode()


def session_id(turn: Turn, shape: Shape) -> int:
    return turn.session[0]


def session_epoch(turn: Turn, shape: Shape) -> int:
    return turn.session[1]


def acks(turn: Turn, shape: Shape) -> int:
    # Nothing answers acks=0, so what stands behind such a request may be closed without a word.
    turn.acks = turn.rng.choice((-1, -1, -1, 1, 1, 1, 0 if turn.lone else 1, 2))
    return turn.acks


def topic_id(turn: Turn, shape: Shape) -> bytes:
    known = turn.pools.topic_ids.all
    return turn.rng.choice(known[:3] if turn.key in DELETING else known)


def records(turn: Turn, shape: Shape) -> bytes | None:
    if turn.version < 3:
        return turn.batches.message_set()
    return turn.batches.records(turn.producer)


def offset(turn: Turn, shape: Shape) -> int:
    rng = turn.rng
    return rng.choice(turn.pools.offsets.all) if rng.random() < 0.5 else rng.choice(OFFSETS)


def timestamp(turn: Turn, shape: Shape) -> int:
    return turn.rng.choice((-1, -2, -3, -4, -5, -6, 0, 1_750_000_000_000, 2**63 - 1))


def resource_type(turn: Turn, shape: Shape) -> int:
    rng = turn.rng
    turn.resource = rng.choice(RESOURCE_TYPES)
    if turn.key in CONFIG_APIS and rng.random() < 0.6:
        turn.resource = rng.choice((TOPIC, TOPIC, TOPIC, BROKER, GROUP))
    turn.setting = None
    return turn.resource


def resource_name(turn: Turn, shape: Shape) -> bytes:
    rng = turn.rng
    if turn.resource == BROKER:
        return rng.choice((b"", b"1", b"1", b"2", b"x"))
    if turn.resource == GROUP:
        return rng.choice((*GROUPS, *SHARE_GROUPS)).encode()
    names: tuple[str, ...] = (
        FIXED_TOPICS if turn.key in CONFIG_APIS else (*FIXED_TOPICS, *INTERNAL_TOPICS, "nobody", "")
    )
    return rng.choice(names).encode()


def setting_name(turn: Turn, shape: Shape) -> bytes:
    rng = turn.rng
    if turn.key in CONFIG_APIS and turn.resource in (BROKER, GROUP):
        good = GOOD_BROKER_SETTINGS if turn.resource == BROKER else GOOD_GROUP_SETTINGS
    else:
        good = GOOD_TOPIC_SETTINGS
    turn.setting = rng.choice(good) if rng.random() < 0.7 else None
    return (turn.setting[0] if turn.setting else rng.choice(SETTINGS)).encode()


def setting_value(turn: Turn, shape: Shape) -> bytes | None:
    rng = turn.rng
    # With smaller messages or fewer connections than these nobody could commit or connect, with Apache Kafka as well.
    if turn.setting is not None and (turn.setting[0].startswith(("message", "max.")) or rng.random() < 0.8):
        return turn.setting[1].encode()
    return rng.choice((None, *(value.encode() for value in SETTING_VALUES)))


def name(turn: Turn, shape: Shape) -> bytes | None:
    """Of whatever the structure around it is."""
    match shape.owner:
        case "JoinGroupRequestProtocol":
            return turn.rng.choice((b"range", b"range", b"sticky"))
        case "CreatableTopicConfig" | "AlterableConfig" | "AlterConfigsResource":
            return setting_name(turn, shape)
        case "CreatableTopic":
            turn.resource = TOPIC
            return turn.rng.choice((*OTHER_TOPICS, *FIXED_TOPICS)).encode()
        case "DeleteTopicState":
            return None if turn.rng.random() < 0.3 else topic(turn, shape)
    return topic(turn, shape)


def metadata(turn: Turn, shape: Shape) -> bytes:
    """Of a classic member: a consumer's subscription, or what is none."""
    rng = turn.rng
    if rng.random() < 0.7:
        return b"\x00\x01\x00\x00\x00\x01\x00\x02t0\xff\xff\xff\xff\x00\x00\x00\x00"
    return rng.choice((b"", b"\x00", b"\x00\x03" + rng.randbytes(20), rng.randbytes(3000)))


MAKERS: dict[str, Maker] = {
    "topic": topic,
    "topic_name": topic,
    "topic_names": topic,
    "subscribed_topic_names": topic,
    "name": name,
    "configuration_keys": setting_name,
    "value": setting_value,
    "group_id": group,
    "group_ids": group,
    "groups": group,
    "groups_names": group,
    "key": group,
    "coordinator_keys": group,
    "topic_id": topic_id,
    "partition": partition,
    "partition_index": partition,
    "partition_indexes": partition,
    "partitions": partition,
    "index": partition,
    "member_id": member_id,
    "group_instance_id": instance,
    "instance_id": instance,
    "generation_id": generation,
    "generation_id_or_member_epoch": generation,
    "member_epoch": generation,
    "protocol_type": of("consumer", "consumer", "consumer", "connect", ""),
    "protocol_name": of("range", "range", "sticky"),
    "metadata": metadata,
    "session_timeout_ms": of(6000, 10_000, 1, 2**31 - 1),
    "rebalance_timeout_ms": of(-1, 0, 100, 1000, 10_000),
    "server_assignor": of("uniform", "range", "x", None),
    "subscribed_topic_regex": of(None, "t.*", "[", "", "(t|s).*", ".*"),
    "num_partitions": of(-1, 0, 1, 1, 2, 3, 4, 5, 20_000, 2**31 - 1),
    "count": of(-1, 0, 1, 2, 3, 4, 5, 20_000, 2**31 - 1),
    "replication_factor": of(1, 1, 1, -1, 2, 0),
    "broker_ids": of(1, 1, -1, 2, 0),
    "replicas": of(1, 1, -1, 2, 0),
    "broker_id": of(1, 2, -1, 99),
    "acks": acks,
    "isolation_level": of(0, 1),
    "key_type": of(0, 0, 1, 1, 2),
    "election_type": of(0, 1, 2, -1),
    "endpoint_type": of(1, 2, 0),
    "replica_id": of(-1, -1, -1, -2, -3),
    "replica_epoch": of(-1),
    "max_wait_ms": of(0, 0, 0, 1, 50, 500, -1),
    "timeout_ms": of(0, 1, 100, 1000, 1000, 5000, -1),
    "share_session_epoch": of(0, 0, 0, 1, 1, 2, 3, -1, 2**31 - 1),
    "max_records": of(0, 1, 10, 500, 500, 2**31 - 1, -1),
    "batch_size": of(0, 1, 10, 500, 2**31 - 1, -1),
    "share_acquire_mode": of(0, 0, 0, 1, 1, 2, -1),
    "acknowledge_types": of(0, 1, 1, 2, 2, 3, 4, 5, -1),
    "first_offset": offset,
    "last_offset": offset,
    "start_offset": offset,
    "state_epoch": of(-1, 0, 1, 1, 2, 2**31 - 1),
    "delivery_state": of(0, 0, 1, 2, 2, 3, 4, 9),
    "delivery_count": of(0, 1, 1, 2, 5, 32_767, -1),
    "delivery_complete_count": of(-1, 0, 1, 10, 2**31 - 1),
    "min_bytes": of(0, 1, 1, 100, 2**31 - 1, -1),
    "max_bytes": of(0, 1, 1000, 1 << 20, 2**31 - 1, -1),
    "partition_max_bytes": of(0, 1, 1000, 1 << 20, 2**31 - 1, -1),
    "max_num_offsets": of(0, 1, 10, 2**31 - 1, -1),
    "response_partition_limit": of(0, 1, 2000, 2**31 - 1, -1),
    "producer_id": producer_id,
    "producer_epoch": producer_epoch,
    "v3_and_below_producer_id": producer_id,
    "v3_and_below_producer_epoch": producer_epoch,
    "producer_id_filters": producer_id,
    "transactional_id": transactional_id,
    "transactional_ids": transactional_id,
    "v3_and_below_transactional_id": transactional_id,
    "transaction_timeout_ms": of(1000, 10_000, 60_000, 0, -1, 2**31 - 1),
    "coordinator_epoch": of(-1, 0, 1, 2**31 - 1),
    "transaction_version": of(0, 1, 2, 3, -1),
    "session_id": session_id,
    "session_epoch": session_epoch,
    "records": records,
    "resource_type": resource_type,
    "resource_types": of(*RESOURCE_TYPES),
    "resource_name": resource_name,
    "resource_type_filter": of(1, 2, 2, 3, 4, 5, 6, 7, 99),
    "resource_pattern_type": of(3, 3, 4, 1, 2),
    "pattern_type_filter": of(1, 2, 3, 4),
    "operation": of(*range(1, 16), 99),
    "permission_type": of(1, 2, 3, 3),
    "principal": of("User:alice", "User:*", "alice"),
    "principal_filter": of(None, "User:alice", "User:*"),
    "host_filter": of(None, "*", "127.0.0.1"),
    "resource_name_filter": resource_name,
    "config_operation": of(0, 0, 0, 1, 2, 3, 4, -1),
    "states_filter": of("Stable", "Empty", "stable", "x"),
    "state_filters": of("Ongoing", "Empty", "x"),
    "types_filter": of("classic", "consumer", "share", "x"),
    "feature": of("transaction.version", "group.version", "share.version", "metadata.version", "x"),
    "max_version_level": of(0, 1, 2, 3, -1),
    "upgrade_type": of(1, 2, 3, 0, 4),
    "committed_offset": offset,
    "fetch_offset": offset,
    "offset": offset,
    "log_start_offset": offset,
    "timestamp": timestamp,
    "current_leader_epoch": of(-1, -1, -1, 0, 0, 1, 5, 2**31 - 1, -2),
    "leader_epoch": of(-1, 0, 0, 1, 5, 2**31 - 1, -2),
    "last_fetched_epoch": of(-1, -1, 0, 1, 2**31 - 1),
    "committed_leader_epoch": of(-1, -1, 0, 1, 2**31 - 1),
    "path": of("/", "", "/no/such/directory", "data"),
}
"""By the name of the field, whatever the API; the rest goes by type."""
