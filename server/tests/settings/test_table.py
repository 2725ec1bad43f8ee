"""The table of settings against Apache Kafka's own: names, types, defaults, ranges, and what may change at run time.

data/kafka_settings.tsv was read out of the running classes of Apache Kafka 3.9.1 (ZooKeeper mode), and of 4.3.1 for
what came after. Every difference is listed here; a new one fails.
"""

import csv
import re
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.logdir.compaction.offset_map import capacity
from barnabas.replication.planning.topics import MAX_NEW_PARTITIONS
from barnabas.server.settings import BROKER, SUBJECTS, SYNONYMS, TOPIC, BadValue, Setting, Support, Type, parse, render
from barnabas.server.settings.model import LEAST_SEGMENT_BYTES, PARTITIONS_AT_ONCE


class Fact(NamedTuple):
    version: str
    level: str
    name: str
    type: str
    default: str
    default_is: str
    range: str
    scope: str

    @property
    def row(self) -> Setting | None:
        if self.level == "broker":
            return BROKER.get(self.name)
        return TOPIC[self.name].setting if self.name in TOPIC else None


with (Path(__file__).parent / "data" / "kafka_settings.tsv").open() as file:
    FACTS = [Fact(*line) for line in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]]
FACT_IDS = [f"{fact.level} {fact.name}" for fact in FACTS]

# What 4.3.1 has and we have not: test hooks of Apache Kafka's own.
NOT_KNOWN = {"internal.segment.bytes"}

# Settings of listeners that cannot be changed here while the broker runs.
OTHER_SCOPE = {
    "sasl.jaas.config",  # passwords cannot be set while the broker runs
    "sasl.mechanism.inter.broker.protocol",  # the listener between brokers stays as it is
}

# Default texts that differ without a `kafka_default`, since the meaning is the same or the row has no effect.
SAME_MEANING = {
    "group.consumer.assignors",  # short names as in 4.x
    "group.share.partition.max.record.locks",  # 4.x
    "listener.security.protocol.map",  # the order of pairs
}
OTHER_DEFAULTS = {
    "broker.id",
    "node.id",
    "log.dir",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    # KIP-848 as in 4.3.1: 3.9.1 has it as a preview.
    "group.consumer.migration.policy",
    "group.coordinator.rebalance.protocols",
}

# Values that Apache Kafka takes, and then its own topics can never be made.
NARROWER = {
    "offsets.topic.segment.bytes": 14,
    "transaction.state.log.segment.bytes": 14,
    "share.coordinator.state.topic.segment.bytes": 14,
}

# Settings we know beyond AbstractKafkaConfig: dynamic-only ones (DynamicConfig.Broker), Kafka's own authorizers', and
# where the login for ZooKeeper is; and our own.
BEYOND = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "java.security.auth.login.config",  # a system property
    "metadata.store.socket",  # ours: brokers of one machine without ZooKeeper
    # Ours.
    "metrics.listener",
    "metrics.partitions.max",
    "metrics.groups.max",
    "metrics.clients.max",
    "metrics.telemetry.series.max",
    "metrics.telemetry.client.series.max",
    "console.listener",
    "console.read.only",
    "console.password.file",
    "console.proxy.addresses",
    "console.command.config",
    "console.host.names",
    "console.avro.schemas",
    "console.schema.registry.url",
}


@pytest.mark.parametrize("fact", FACTS, ids=FACT_IDS)
def test_every_setting_of_kafka_is_known_with_its_type_and_default(fact: Fact) -> None:
    row = fact.row
    if fact.name in NOT_KNOWN:
        assert row is None
        return
    assert row is not None
    assert row.type.name == fact.type
    default = None if fact.default_is == "null" else fact.default
    if fact.name in SAME_MEANING:
        assert row.default_text != default
    elif fact.level == "broker" and fact.name in OTHER_DEFAULTS:
        assert row.kafka_default == default
        assert row.default_text != default
    else:
        assert row.default_text == default
        assert row.kafka_default is None


@pytest.mark.parametrize(
    "fact", [f for f in FACTS if f.level == "broker" and f.version == "3.9.1"], ids=lambda fact: fact.name
)
def test_scope(fact: Fact) -> None:
    assert fact.row is not None
    if fact.name in OTHER_SCOPE:
        assert fact.row.scope.value == "read-only"
    else:
        assert fact.row.scope.value == fact.scope


@pytest.mark.parametrize(
    "fact",
    [f for f in FACTS if f.version == "3.9.1" and re.fullmatch(r"\[-?[\d.]+,\.\.\.(,-?[\d.]+)?\]", f.range)],
    ids=lambda fact: f"{fact.level} {fact.name}",
)
def test_ranges(fact: Fact) -> None:
    row = fact.row
    assert row is not None
    if row.name.startswith("group.share."):
        return  # 4.3.1 widened these
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", fact.range)]
    low, high = NARROWER.get(row.name, numbers[0]), numbers[1] if len(numbers) > 1 else None
    if row.name in ("broker.id", "node.id", "group.coordinator.append.linger.ms"):
        return  # no range in Apache Kafka's definition of the first two; the last begins at -1 in 4.x
    step = 0.5 if row.type is Type.DOUBLE else 1
    shown = (lambda number: str(number)) if row.type is Type.DOUBLE else (lambda number: str(int(number)))
    row.parse(shown(low))
    with pytest.raises(BadValue):
        row.parse(shown(low - step))
    if high is not None:
        row.parse(shown(high))
        with pytest.raises(BadValue):
            row.parse(shown(high + step))


@pytest.mark.parametrize(
    "fact",
    [f for f in FACTS if f.version == "3.9.1" and re.match(r"\[[a-zA-Z]", f.range) and ":" not in f.range],
    ids=lambda fact: f"{fact.level} {fact.name}",
)
def test_choices(fact: Fact) -> None:
    row = fact.row
    assert row is not None
    for choice in fact.range[1:-1].split(", "):
        row.parse(choice)
    if row.support is Support.WORKS:
        with pytest.raises(BadValue):
            row.parse("something-else")


def test_nothing_is_invented() -> None:
    assert set(BROKER) - {fact.name for fact in FACTS if fact.level == "broker"} == BEYOND
    assert set(TOPIC) - {fact.name for fact in FACTS if fact.level == "topic"} == set()


def test_no_name_stands_twice() -> None:
    assert sum(len(rows) for _, rows in SUBJECTS) == len(BROKER)


ROWS = [*BROKER.values(), *(row.setting for row in TOPIC.values())]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_are_complete(row: Setting) -> None:
    assert row.doc or row.support is Support.NO_EFFECT
    assert row.doc == "" or row.doc.endswith(".")
    if row.support is Support.WORKS:
        assert row.allowed is None
    else:
        assert row.note, "say why"
    assert not row.note.endswith(".")
    assert row.kafka_default is None or row.kafka_default != row.default_text
    if row.default is not None:
        text = row.default_text
        assert text is not None
        assert row.parse(text) == row.default
        assert not row.unsupported(row.default)


@pytest.mark.parametrize("row", TOPIC.values(), ids=lambda row: row.setting.name)
def test_topic_settings_and_the_broker_settings_behind_them_agree(row) -> None:
    for key in row.broker_keys:
        behind = BROKER[key.name]
        assert (behind.type is row.setting.type) or key.factor != 1
        if behind.default is not None:
            value = (
                behind.default * key.factor if isinstance(behind.default, int) and key.factor != 1 else behind.default
            )
            assert value == row.setting.default
    if row.broker_keys and BROKER[row.broker_keys[0].name].support is not row.setting.support:
        pytest.fail(f"{row.setting.name} and {row.broker_keys[0].name} are not supported alike")


def test_synonyms_are_the_ones_of_topics() -> None:
    for row in TOPIC.values():
        names = tuple(key.name for key in row.broker_keys)
        if len(names) > 1:
            assert SYNONYMS[names[0]] == names


@pytest.mark.parametrize("prefix", ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"])
def test_internal_topics_are_described_as_topics_can_be_made(prefix: str) -> None:
    assert PARTITIONS_AT_ONCE == MAX_NEW_PARTITIONS
    for key, low, high in (("num.partitions", 1, MAX_NEW_PARTITIONS), ("segment.bytes", 14, 2**31 - 1)):
        row = BROKER[f"{prefix}.{key}"]
        assert (row.parse(str(low)), row.parse(str(high))) == (low, high)
        for text in (str(low - 1), str(high + 1)):
            assert row.why_not(text) is not None
    assert TOPIC["segment.bytes"].setting.parse("14") == LEAST_SEGMENT_BYTES
    with pytest.raises(BadValue):
        TOPIC["segment.bytes"].setting.parse("13")


@pytest.mark.parametrize("text", ["0", "-1", "NaN", "-Infinity"])
def test_a_map_that_holds_nothing_is_refused(text: str) -> None:
    assert BROKER["log.cleaner.io.buffer.load.factor"].why_not(text) is not None


@pytest.mark.parametrize("load_factor", [inf, 1e300, 2.0, 1.0])
def test_a_map_never_gets_full(load_factor: float) -> None:
    assert capacity(1 << 20, load_factor) == capacity(1 << 20, 1.0)


PARSED = [
    (Type.INT, " 12 ", 12),
    (Type.INT, "-1", -1),
    (Type.INT, "+7", 7),
    (Type.INT, "2147483647", 2**31 - 1),
    (Type.LONG, "9223372036854775807", 2**63 - 1),
    (Type.BOOLEAN, "TRUE", True),
    (Type.BOOLEAN, "false ", False),
    (Type.DOUBLE, "0.5", 0.5),
    (Type.DOUBLE, "1e3", 1000.0),
    (Type.DOUBLE, "Infinity", inf),
    (Type.STRING, " a b ", "a b"),
    (Type.LIST, "a, b ,c", ("a", "b", "c")),
    (Type.LIST, "", ()),
    (Type.PASSWORD, " x ", " x "),
]


@pytest.mark.parametrize(("kind", "text", "value"), PARSED)
def test_parse(kind: Type, text: str, value: object) -> None:
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Type.INT, "x"),
        (Type.INT, ""),
        (Type.INT, "1_000"),
        (Type.INT, "1.0"),
        (Type.INT, "+-1"),
        (Type.INT, "٣"),
        (Type.INT, "2147483648"),
        (Type.SHORT, "32768"),
        (Type.LONG, "9223372036854775808"),
        (Type.BOOLEAN, "yes"),
        (Type.BOOLEAN, "1"),
        (Type.DOUBLE, "x"),
        (Type.DOUBLE, "NaN"),
        (Type.DOUBLE, "-nan"),
        (Type.DOUBLE, "1_0"),
        (Type.DOUBLE, "٣"),
    ],
)
def test_parse_refuses(kind: Type, text: str) -> None:
    with pytest.raises(BadValue):
        parse(kind, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1234567.0, "1234567.0"),
        (12345678.0, "1.2345678E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e16, "1.0E16"),
        (0.0001, "1.0E-4"),
        (inf, "Infinity"),
        (-inf, "-Infinity"),
    ],
)
def test_numbers_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert render(Type.DOUBLE, value) == text
