"""Described settings: sources and synonyms as Apache Kafka describes them."""

import pytest

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.describe import (
    ConfigEntry,
    Source,
    broker_entries,
    cluster_entries,
    documentation,
    topic_entries,
)
from barnabas.server.settings import BROKER, TOPIC, Support


def broker(static: dict[str, str] | None = None, **layers: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_values(static or {}).with_dynamic(**layers)


def one(entries: list[ConfigEntry]) -> tuple[str | None, Source, list[tuple[str, str | None, Source]]]:
    (entry,) = entries
    return entry.value, entry.source, [(s.name, s.value, s.source) for s in entry.synonyms]


DEFAULT, STATIC, CLUSTER, BROKER_SOURCE, ON_TOPIC = (
    Source.DEFAULT,
    Source.STATIC_BROKER,
    Source.DYNAMIC_DEFAULT_BROKER,
    Source.DYNAMIC_BROKER,
    Source.TOPIC,
)


def test_topic_default() -> None:
    assert one(topic_entries(broker(), {}, ["segment.bytes"])) == (
        "1073741824",
        DEFAULT,
        [("log.segment.bytes", "1073741824", DEFAULT)],
    )


def test_topic_setting_over_all_layers() -> None:
    config = broker({"message.max.bytes": "1"}, cluster={"message.max.bytes": "2"}, broker={"message.max.bytes": "3"})
    assert one(topic_entries(config, {"max.message.bytes": "4"}, ["max.message.bytes"])) == (
        "4",
        ON_TOPIC,
        [
            ("max.message.bytes", "4", ON_TOPIC),
            ("message.max.bytes", "3", BROKER_SOURCE),
            ("message.max.bytes", "2", CLUSTER),
            ("message.max.bytes", "1", STATIC),
            ("message.max.bytes", "1048588", DEFAULT),
        ],
    )
    assert one(topic_entries(config, {}, ["max.message.bytes"]))[:2] == ("3", BROKER_SOURCE)


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({}, ("604800000", DEFAULT, [])),
        # Kafka tells nothing before the first entry of log.retention.ms itself
        ({"log.retention.hours": "1"}, ("3600000", DEFAULT, [])),
        (
            {"log.retention.hours": "1", "log.retention.ms": "5"},
            (
                "5",
                STATIC,
                [
                    ("log.retention.ms", "5", STATIC),
                    ("log.retention.hours", "1", STATIC),
                    ("log.retention.hours", "168", DEFAULT),
                ],
            ),
        ),
    ],
)
def test_units(static: dict[str, str], expected: object) -> None:
    assert one(topic_entries(broker(static), {}, ["retention.ms"])) == expected


def test_broker_entries_with_units() -> None:
    config = broker({"log.retention.minutes": "7"})
    assert one(broker_entries(config, ["log.retention.minutes"])) == (
        "7",
        STATIC,
        [("log.retention.minutes", "7", STATIC), ("log.retention.hours", "168", DEFAULT)],
    )
    assert one(broker_entries(config, ["log.retention.hours"])) == (
        "168",
        DEFAULT,
        [("log.retention.hours", "168", DEFAULT)],
    )
    assert one(broker_entries(config, ["log.retention.ms"])) == (None, DEFAULT, [])


def test_every_topic_setting_is_described() -> None:
    entries = topic_entries(broker(), {})
    assert [entry.name for entry in entries] == sorted(TOPIC)
    for entry in entries:
        row = TOPIC[entry.name].setting
        assert (entry.type, entry.read_only, entry.sensitive) == (row.type, False, False)
        assert entry.value == row.default_text
        assert entry.source is DEFAULT
        assert entry.doc


def test_unknown_topic_settings_of_a_store_are_shown_without_value() -> None:
    entries = topic_entries(broker(), {"vendor.key": "hush"})
    (entry,) = [entry for entry in entries if entry.name == "vendor.key"]
    assert (entry.value, entry.sensitive, entry.source, entry.type) == (None, True, ON_TOPIC, 0)


def test_broker_list() -> None:
    entries = {entry.name: entry for entry in broker_entries(broker({"num.io.threads": "4", "a.b": "c"}))}
    assert "num.partitions" in entries
    assert entries["inter.broker.protocol.version"].value == "3.9-IV0"
    assert entries["num.io.threads"].value == "4"
    assert "No effect here" in (entries["num.io.threads"].doc or "")
    assert "num.network.threads" not in entries
    assert (entries["a.b"].value, entries["a.b"].sensitive) == (None, True)
    assert "leader.replication.throttled.rate" not in entries
    for name, entry in entries.items():
        if name in BROKER:
            assert entry.read_only == (BROKER[name].scope.value == "read-only")
            assert BROKER[name].support is not Support.NO_EFFECT or name == "num.io.threads"


def test_named_settings_are_always_described() -> None:
    assert one(broker_entries(broker(), ["num.network.threads"])) == (
        "3",
        DEFAULT,
        [("num.network.threads", "3", DEFAULT)],
    )
    assert broker_entries(broker(), ["no.such"]) == []


def test_secrets_stay_hidden() -> None:
    config = broker({"password.encoder.secret": "hunter2", "my.password": "hunter2"})
    for entry in broker_entries(config):
        assert "hunter2" not in repr(entry)
    (entry,) = broker_entries(config, ["password.encoder.secret"])
    assert (entry.value, entry.sensitive) == (None, True)
    assert [synonym.value for synonym in entry.synonyms] == [None]


def test_cluster_defaults() -> None:
    config = broker(
        {"message.max.bytes": "1"},
        cluster={"message.max.bytes": "2", "vendor.key": "hush"},
        broker={"log.segment.bytes": "99"},
    )
    entries = cluster_entries(config)
    assert [(e.name, e.value, e.source, e.read_only) for e in entries] == [
        ("message.max.bytes", "2", CLUSTER, False),
        ("vendor.key", None, CLUSTER, True),
    ]
    assert [s.source for s in entries[0].synonyms] == [CLUSTER]
    assert cluster_entries(config, ["log.segment.bytes"]) == []


def test_a_setting_made_empty_counts_as_not_set() -> None:
    config = broker({"advertised.listeners": ""})
    assert one(broker_entries(config, ["advertised.listeners"])) == (None, DEFAULT, [])


def test_documentation_says_what_is_particular() -> None:
    assert documentation(BROKER["create.topic.policy.class.name"]).endswith(
        "Only nothing (leave it out) is allowed: Java classes cannot be loaded."
    )
    assert documentation(BROKER["num.partitions"]) == BROKER["num.partitions"].doc
    assert documentation(BROKER["num.io.threads"]).startswith("No effect here: ")
