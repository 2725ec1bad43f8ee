"""Requests of clients that are wrong, careless or hostile, from a seed: random values in every field of every API, with
names, ids and epochs of things that exist often enough to get past the first check, and frames damaged afterwards.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from kproto import ZERO_UUID, ApiKey, request_class
from kproto.classes import Record, SharedDefault
from kproto.frame import request_frame
from kproto.notation import Struct
from kproto.records import Record as DataRecord
from kproto.records import build_batch
from kproto.tests.randoms import random_message
from server.api import Api
from server.app import Broker

NOW_MS = 1_750_000_000_000
FIXED_TOPICS = ("t0", "t1", "compacted", "__consumer_offsets")
TOPIC_NAMES = (*FIXED_TOPICS, "new-0", "new-1", "new-2", "new-3", "no such name", "", ".", "x" * 249, "x" * 250)
GROUPS = ("g0", "g1", "g2", "", "group with spaces", "g" * 1000)
EDGES = (0, 0, 1, 1, 2, 3, -1, -2, -3, -4, -5, -6, 5, 10, 100, 2**31 - 1)
OFFSETS = (*EDGES, 2**63 - 1, -(2**63))
SETTINGS = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "compression.type",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
    "message.timestamp.after.max.ms",
    "index.interval.bytes",
    "num.partitions",
    "log.retention.ms",
    "message.max.bytes",
    "log.segment.bytes",
    "connections.max.idle.ms",
    "advertised.listeners",
    "log.dirs",
    "no.such.setting",
    "",
)
VALUES = ("1", "0", "-1", "1000", "1048576", "2147483648", "compact", "delete", "compact,delete", "true", "x", "", None)
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
)
GOOD_BROKER_SETTINGS = (
    ("log.retention.ms", "1"),
    ("log.segment.bytes", "1048576"),
    ("message.max.bytes", "500"),
    ("message.max.bytes", "1048588"),
    ("max.connections", "2147483647"),  # fewer, and the test itself would wait at the door
    ("log.message.timestamp.type", "LogAppendTime"),
    ("compression.type", "lz4"),
    ("num.io.threads", "3"),
)
RESOURCE_TYPES = (2, 2, 4, 4, 0, 1, 3, 8, 16, 32, 99, -1)
RESOURCES = (*FIXED_TOPICS, "1", "1", "", "2", "nobody")


class World:
    """What a client could know of a broker: `see` learns from answers, `look` from the broker itself."""

    def __init__(self, rng: random.Random, secret_topics: tuple[str, ...]) -> None:
        self.rng = rng
        self._secret = secret_topics
        self.topic_ids: list[bytes] = [ZERO_UUID, bytes(15) + b"\x01"]
        self.members: list[str] = ["", "nobody"]
        self.generations: list[int] = [-1, 0, 1]
        self.sessions: list[tuple[int, int]] = [(0, -1), (0, 0)]
        self.producers: list[tuple[int, int]] = [(-1, -1), (0, 0)]

    def look(self, broker: Broker) -> None:
        topics = broker.services.image.topics
        self.topic_ids[2:] = [topic.topic_id for name, topic in topics.items() if name not in self._secret]

    def see(self, key: ApiKey, answer: Any) -> None:
        if key == ApiKey.JOIN_GROUP and answer.member_id:
            self.members = [*self.members[:2], *self.members[-5:], answer.member_id]
            self.generations = [*self.generations[:3], *self.generations[-3:], answer.generation_id]
        elif key == ApiKey.FETCH and answer.session_id:
            self.sessions = [*self.sessions[:2], *self.sessions[-5:], (answer.session_id, 1)]
        elif key == ApiKey.INIT_PRODUCER_ID and answer.producer_id >= 0:
            self.producers = [*self.producers[:2], *self.producers[-5:], (answer.producer_id, answer.producer_epoch)]

    # -- values ------------------------------------------------------------------------------------------------------

    def request(self, api: Api, version: int) -> Any:
        """A request of the API with sense in about every second field."""
        cls = request_class(api.key)
        message = random_message(self.rng, cls, version, unknown_tags=True)
        if self.rng.random() < 0.9:
            self._make_plausible(message, cls.__description__.struct, version, api.key)
        return message

    def _make_plausible(self, record: Record, struct: Struct, version: int, key: ApiKey) -> None:
        rng = self.rng
        for field in struct.fields:
            if not field.versions.has(version):
                continue
            value = getattr(record, field.name)
            if field.struct is not None:
                for each in value if isinstance(value, list) else [value]:
                    if each is not None and not isinstance(each, SharedDefault):
                        self._make_plausible(each, field.struct, version, key)
            elif rng.random() < 0.8 and not (field.is_array and value is None):
                if isinstance(value, list):
                    value = [self._value(field.name, each, key) for each in value[:4]]
                else:
                    value = self._value(field.name, value, key)
                if value is not None or field.type == "records" or field.is_nullable(version):
                    setattr(record, field.name, value)
        if struct.name in ("AlterConfigsResource", "CreatableTopic") and rng.random() < 0.5:
            self._set_well(record, struct.name == "CreatableTopic")
        if key == ApiKey.FETCH and version >= 7 and hasattr(record, "session_id") and rng.random() < 0.5:
            record.session_id, record.session_epoch = rng.choice(self.sessions)  # type: ignore[attr-defined]

    def _set_well(self, record: Any, new_topic: bool) -> None:
        """Make the settings of a resource fit together, so that they are taken."""
        rng = self.rng
        good = GOOD_TOPIC_SETTINGS
        if not new_topic:
            of_topic = rng.random() < 0.8
            record.resource_type = 2 if of_topic else 4
            record.resource_name = rng.choice(("t0", "t1", "compacted") if of_topic else ("1", ""))
            good = GOOD_TOPIC_SETTINGS if of_topic else GOOD_BROKER_SETTINGS
        else:
            record.name = rng.choice(TOPIC_NAMES)
            record.num_partitions, record.replication_factor, record.assignments = 2, 1, []
        for setting in record.configs:
            setting.name, setting.value = rng.choice(good)
            if hasattr(setting, "config_operation"):
                setting.config_operation = rng.choice((0, 0, 1))
        if rng.random() < 0.7:
            del record.configs[1:]

    def _value(self, name: str, value: Any, key: ApiKey) -> Any:
        """Something that makes sense for a field of this name; `value` itself if nothing is known of it."""
        rng = self.rng
        name = name.removeprefix("v3_and_below_")
        if name in ("topic", "topic_name", "topic_names") or (name == "name" and key not in _OTHER_NAMES):
            # Often enough one that is there, and not so often to those that delete.
            return rng.choice(FIXED_TOPICS if rng.random() < 0.7 and key != ApiKey.DELETE_TOPICS else TOPIC_NAMES)
        if name in ("group_id", "groups", "groups_names", "key", "coordinator_keys"):
            return rng.choice(GROUPS)
        if name == "topic_id":
            return rng.choice(self.topic_ids[: 3 if key == ApiKey.DELETE_TOPICS else None])
        if name in ("partition", "partition_index", "partition_indexes", "partitions", "index"):
            return rng.choice((0, 0, 0, 1, 1, 2, -1, 99))
        if name == "member_id":
            return rng.choice(self.members)
        if name == "group_instance_id":
            return rng.choice(("instance", "other", "")) if value is not None else None
        if name in ("generation_id", "generation_id_or_member_epoch"):
            return rng.choice(self.generations)
        if name == "protocol_type":
            return rng.choice(("consumer", "consumer", "connect", ""))
        if name in ("protocol_name", "protocols") or (name == "name" and key == ApiKey.JOIN_GROUP):
            return rng.choice(("range", "range", "sticky"))
        if name == "session_timeout_ms":
            return rng.choice((6000, 10_000, 1, 1_800_000))
        if name == "rebalance_timeout_ms":
            return rng.choice((-1, 0, 100, 10_000))
        if name in ("num_partitions", "count"):
            return rng.choice((-1, 0, 1, 1, 2, 3, 4, 5, 20_000, 2**31 - 1))
        if name in ("replication_factor", "broker_ids", "replicas"):
            return rng.choice((1, 1, -1, 2, 0))
        if name == "acks":
            return rng.choice((-1, 1, 0)) if rng.random() < 0.95 else 2
        if name == "isolation_level":
            return rng.choice((0, 1))
        if name == "key_type":
            return rng.choice((0, 0, 1, 2))
        if name in ("replica_id", "replica_epoch"):
            return -1
        if name == "max_wait_ms":
            return rng.choice((0, 0, 1, 50, 500, -1))
        if name in ("min_bytes", "max_bytes", "partition_max_bytes", "max_num_offsets"):
            return rng.choice((0, 1, 100, 1000, 1 << 20, 2**31 - 1, -1))
        if name in ("producer_id", "producer_epoch"):
            return rng.choice(self.producers)[name == "producer_epoch"]
        if name == "records":
            return self.records()
        if name in ("resource_type", "resource_types"):
            return rng.choice(RESOURCE_TYPES)
        if name == "resource_name":
            return rng.choice(RESOURCES)
        if (name == "name" and key in _CONFIG_NAMES) or name == "configuration_keys":
            return rng.choice(SETTINGS)
        if name == "value":
            return rng.choice(VALUES)
        if name == "config_operation":
            return rng.choice((0, 0, 1, 2, 3, 4, -1))
        if name == "transactional_id":
            return rng.choice((None, None, "", "tx"))
        if name == "validate_only":
            return rng.random() < 0.3
        if name in ("states_filter", "types_filter"):
            return rng.choice(("Stable", "Empty", "classic", "consumer", "x"))
        if "offset" in name and isinstance(value, int):
            return rng.choice(OFFSETS)
        if "epoch" in name or name == "timestamp":
            return rng.choice(EDGES)
        return value

    def records(self) -> bytes | None:
        """A batch: right, with damage, or no batch at all."""
        rng = self.rng
        if rng.random() < 0.05:
            return None
        if rng.random() < 0.1:
            return rng.randbytes(rng.choice((0, 1, 60, 61, 62, 200)))
        records = [
            DataRecord(
                at,
                NOW_MS + rng.randint(-10, 10),
                rng.choice((None, b"", b"key %d" % rng.randrange(5))),
                rng.choice((None, b"", rng.randbytes(rng.choice((1, 50, 2000))))),
                [("h", b"v"), ("", None)][: rng.randrange(3)],
            )
            for at in range(rng.choice((1, 1, 2, 5)))
        ]
        producer_id, producer_epoch = rng.choice(self.producers)
        batch: bytes | bytearray = build_batch(
            records,
            codec=rng.choice((0, 0, 0, 1, 2, 3, 4)),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=rng.choice((0, 0, 1, 2, 5)) if producer_id >= 0 else -1,
            transactional=producer_id >= 0 and rng.random() < 0.1,
        )
        if rng.random() < 0.2:
            batch = damaged(rng, batch)
        if rng.random() < 0.1:
            batch = bytes(batch) * 2
        return batch

    def frame(self, api: Api, version: int, correlation_id: int) -> tuple[bytes, bool]:
        """A request as bytes, and whether it will be answered: Produce with acks=0 is not."""
        client_id = self.rng.choice((None, "", "client", "__admin_client", "ß" * 100))
        message = self.request(api, version)
        frame = request_frame(version, correlation_id, client_id, message)
        return frame, not (api.key == ApiKey.PRODUCE and message.acks == 0)


_CONFIG_NAMES = {ApiKey.CREATE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
_OTHER_NAMES = {ApiKey.JOIN_GROUP, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with some of its bytes changed, missing, doubled, or replaced by lengths that promise much."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(6):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[at : at + rng.choice((1, 4, 100))]
            case 3:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
            case 4:
                out[at : at + 4] = struct.pack(">i", rng.choice((-1, -2, 0, 1000, 2**31 - 1, -(2**31))))
            case _:
                out[at:at] = out[at : at + rng.choice((1, 8, 50))]
    return bytes(out)


def damaged_frame(rng: random.Random, frame: bytes) -> bytes:
    """A frame whose length is right again after the damage, or mostly not: then what follows is out of step."""
    body = damaged(rng, frame[4:])
    if rng.random() < 0.1:
        return damaged(rng, frame)
    return struct.pack(">i", len(body)) + body
