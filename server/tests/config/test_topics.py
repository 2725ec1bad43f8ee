"""A topic's settings over the broker's."""

import dataclasses

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config import topics as topic_config
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.settings import TOPIC

LONG_MAX = 2**63 - 1


def broker(static: dict[str, str] | None = None, **layers: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_values(static or {}).with_dynamic(**layers)


@pytest.mark.parametrize(
    ("static", "name", "value"),
    [
        ({}, "retention.ms", 604800000),
        ({"log.retention.hours": "2"}, "retention.ms", 7200000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", 180000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, "retention.ms", 5),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.retention.ms": "-5"}, "retention.ms", -1),
        ({"log.retention.hours": "2000000"}, "retention.ms", 7200000000000),
        ({"log.roll.hours": "1"}, "segment.ms", 3600000),
        ({"log.roll.ms": "9"}, "segment.ms", 9),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3600000),
        ({}, "flush.ms", LONG_MAX),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush.ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, "flush.ms", 8),
        ({"message.max.bytes": "1000"}, "max.message.bytes", 1000),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", ("compact", "delete")),
        ({"log.segment.delete.delay.ms": "1"}, "file.delete.delay.ms", 1),
        ({"log.message.timestamp.difference.max.ms": "5"}, "message.timestamp.before.max.ms", 5),
        (
            {"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.after.max.ms": "6"},
            "message.timestamp.after.max.ms",
            6,
        ),
    ],
)
def test_defaults_of_the_broker(static: dict[str, str], name: str, value: object) -> None:
    assert topic_config.default_value(broker(static), name) == value


def test_precedence() -> None:
    static = {"message.max.bytes": "1"}
    for layers, overrides, value in (
        ({}, {}, 1),
        ({"cluster": {"message.max.bytes": "2"}}, {}, 2),
        ({"cluster": {"message.max.bytes": "2"}, "broker": {"message.max.bytes": "3"}}, {}, 3),
        ({"broker": {"message.max.bytes": "3"}}, {"max.message.bytes": "4"}, 4),
    ):
        assert topic_config.log_config(broker(static, **layers), overrides).max_message_bytes == value


def test_every_setting_has_its_field() -> None:
    """`log_config` passes names it builds itself: hold them together with LogConfig."""
    made = topic_config.log_config(broker(), {})
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    values = topic_config.values_of(broker(), {})
    ours = {name.replace(".", "_") for name in TOPIC if name not in topic_config.NOT_OF_THE_LOG}
    assert set(TOPIC) > topic_config.NOT_OF_THE_LOG
    assert set(fields) - ours == {"validate_records"}
    assert ours <= set(fields)
    for name in set(TOPIC) - topic_config.NOT_OF_THE_LOG - {"cleanup.policy"}:
        assert fields[name.replace(".", "_")] == values[name]
        assert type(fields[name.replace(".", "_")]) is type(values[name])
    assert made.cleanup_policy == frozenset({"delete"})


def test_old_timestamp_bound_stands_in_for_the_new_ones() -> None:
    made = topic_config.log_config(broker(), {"message.timestamp.difference.max.ms": "5"})
    assert (made.message_timestamp_before_max_ms, made.message_timestamp_after_max_ms) == (5, 5)
    made = topic_config.log_config(
        broker(), {"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "9"}
    )
    assert (made.message_timestamp_before_max_ms, made.message_timestamp_after_max_ms) == (9, 5)


def test_bad_stored_values_fall_back() -> None:
    stored = {"segment.bytes": "x", "retention.ms": "-7", "no.such": "1", "max.message.bytes": "77"}
    made = topic_config.log_config(broker({"log.segment.bytes": "555"}), stored)
    assert (made.segment_bytes, made.retention_ms, made.max_message_bytes) == (555, 604800000, 77)
    assert topic_config.remarks(stored) == [
        "segment.bytes=x is ignored: it must be a whole number",
        "retention.ms=-7 is ignored: it must be at least -1",
        "no.such=1 is unknown and is ignored",
    ]


def test_what_was_made_of_the_same_settings_is_made_once() -> None:
    config = broker({"log.segment.bytes": "555"})
    configs = topic_config.LogConfigs(lambda: config)
    made = configs({"retention.ms": "5", "segment.ms": "6"})
    assert made == topic_config.log_config(config, {"retention.ms": "5", "segment.ms": "6"})
    assert configs({"segment.ms": "6", "retention.ms": "5"}) is made
    assert configs({"segment.ms": "6"}).retention_ms != 5
    config = broker({"log.segment.bytes": "777"})
    assert configs({"retention.ms": "5", "segment.ms": "6"}).segment_bytes == 777
    for number in range(topic_config.REMEMBERED_MAX + 5):
        assert configs({"retention.ms": str(number)}).retention_ms == number


def test_remarks() -> None:
    assert topic_config.remarks({"retention.ms": "5"}) == []
    (line,) = topic_config.remarks({"preallocate": "true"})
    assert line.startswith("preallocate=true has no effect here: ")


GOOD = [
    {},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact, delete"},
    {"retention.ms": "-1", "retention.bytes": "-5"},
    {"compression.type": "zstd", "compression.zstd.level": "-7"},
    {"leader.replication.throttled.replicas": "*"},
    {"leader.replication.throttled.replicas": "0:1,1:2"},
    {"follower.replication.throttled.replicas": ""},
    {"message.format.version": "2.8"},
    {"message.format.version": "0.10.1-IV2"},
    {"message.format.version": "3.9.1"},
    {"remote.storage.enable": "false", "local.retention.ms": "-2"},
    {"min.insync.replicas": "3"},
]


@pytest.mark.parametrize("overrides", GOOD, ids=str)
def test_accepted(overrides: dict[str, str | None]) -> None:
    topic_config.check(broker(), overrides)


BAD = [
    ({"no.such.setting": "1"}, "no.such.setting"),
    ({"message.max.bytes": "1"}, "message.max.bytes"),  # the broker's name of max.message.bytes
    ({"segment.bytes": "13"}, "segment.bytes=13 is refused: it must be at least 14"),
    (
        {"message.format.version": "9.9"},
        "message.format.version=9.9 is refused: it must be a version from 0.8.0 to 4.0",
    ),
    ({"retention.ms": "-2"}, "retention.ms=-2 is refused: it must be at least -1"),
    ({"retention.ms": "soon"}, "retention.ms=soon is refused: it must be a whole number"),
    ({"cleanup.policy": "compact,shred"}, "cleanup.policy=compact,shred is refused"),
    ({"compression.type": "none"}, "compression.type=none is refused"),
    ({"compression.gzip.level": "0"}, "compression.gzip.level=0 is refused: it must be from 1 to 9, or -1"),
    ({"message.timestamp.type": "createtime"}, "message.timestamp.type=createtime is refused"),
    ({"min.cleanable.dirty.ratio": "1.5"}, "min.cleanable.dirty.ratio=1.5 is refused"),
    ({"preallocate": "maybe"}, "preallocate=maybe is refused"),
    ({"leader.replication.throttled.replicas": "all"}, "leader.replication.throttled.replicas=all is refused"),
    ({"remote.storage.enable": "true"}, "remote.storage.enable=true is refused: there is no tiered storage"),
    ({"local.retention.bytes": "5"}, "local.retention.bytes=5 is refused: there is no tiered storage; allowed: -2"),
    ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "min.compaction.lag.ms=9 must not be above"),
    ({"retention.ms": None}, "retention.ms"),
]


@pytest.mark.parametrize(("overrides", "text"), BAD, ids=lambda value: str(value))
def test_refused(overrides: dict[str, str | None], text: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config.check(broker(), overrides)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert caught.value.message is not None
    assert text in caught.value.message


def test_rules_count_the_brokers_defaults() -> None:
    config = broker(cluster={"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=11"):
        topic_config.check(config, {"min.compaction.lag.ms": "11"})
