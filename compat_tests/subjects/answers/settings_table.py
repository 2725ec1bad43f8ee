"""DescribeConfigs of one topic and of the broker, with settings from everywhere: the file, for all brokers, for this
one, for the topic. Asked of either broker, as rows that can be stored and compared.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from barnabas.kproto import ApiKey
from compat_tests.harness.brokers import QUICK, Broker, start_barnabas, start_kafka
from compat_tests.harness.checks import wait_until
from compat_tests.harness.jars import NO_JVM
from compat_tests.subjects.access.connection import Connection, request

STORED = Path(__file__).with_name("kafka_settings.json")
TOPIC, BROKER = 2, 4
STATIC = (
    "compression.type=gzip",
    "log.cleaner.threads=2",
    "log.retention.hours=100",
    "log.retention.minutes=5000",
    "log.roll.hours=24",
    "message.max.bytes=2000000",
    "no.such.setting=1",
    "num.partitions=3",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "transaction.state.log.replication.factor=1",
)
"""What both are given in their file; `QUICK` and what a node needs stand there, too."""
OF_ALL = {"log.retention.ms": "3600000", "message.max.bytes": "1500000", "log.cleaner.backoff.ms": "14000"}
OF_ONE = {"log.cleaner.threads": "3", "message.max.bytes": "1600000"}
OF_TOPIC = {"retention.ms": "1000", "min.insync.replicas": "1", "compression.type": "lz4"}
ITS_OWN = frozenset(
    (
        *("advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.voters"),
        *("inter.broker.listener.name", "listeners", "log.dir", "log.dirs", "node.id", "process.roles"),
        "listener.security.protocol.map",  # in any order
        *("broker.session.timeout.ms", "broker.heartbeat.interval.ms", "group.initial.rebalance.delay.ms"),
        # One node of Apache Kafka is told of share groups' topic; and it sets this one for all brokers by itself.
        *("share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr"),
        *("min.insync.replicas",),
    )
)
"""Of the broker: what the place where it runs says, and not the same on both."""


class Described(NamedTuple):
    """One setting. synonyms: name, value, source, as they come."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int
    synonyms: tuple[tuple[str, str | None, int], ...]


Rows = dict[str, Described]
"""By resource and name: `topic retention.ms`."""


def describe(connection: Connection, topic: str, broker_id: int) -> Rows:
    """Set what is set while the broker runs, and ask."""
    made = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    made["configs"] = [{"name": name, "value": value} for name, value in OF_TOPIC.items()]  # type: ignore[assignment]
    answer = connection.ask(request(ApiKey.CREATE_TOPICS, 7, {"topics": [made], "timeout_ms": 30_000}), 7)
    assert [each.error_code for each in answer.topics] == [0]
    for name, settings in (("", OF_ALL), (str(broker_id), OF_ONE)):
        configs = [{"name": key, "config_operation": 0, "value": value} for key, value in settings.items()]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        altered = connection.ask(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}), 1)
        assert [each.error_code for each in altered.responses] == [0]
    wait_until(
        lambda: _asked(connection, BROKER, str(broker_id))["message.max.bytes"].value == OF_ONE["message.max.bytes"],
        "the settings of the broker",
    )
    rows = {f"topic {name}": row for name, row in _asked(connection, TOPIC, topic).items()}
    for name, row in _asked(connection, BROKER, str(broker_id)).items():
        if name not in ITS_OWN:
            rows[f"broker {name}"] = row
    return dict(sorted(rows.items()))


def _asked(connection: Connection, kind: int, name: str) -> Rows:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    asked = request(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True})
    [result] = connection.ask(asked, 4).results
    assert result.error_code == 0
    return {
        each.name: Described(
            each.value,
            each.config_source,
            each.read_only,
            each.is_sensitive,
            each.config_type,
            tuple((one.name, one.value, one.source) for one in each.synonyms),
        )
        for each in result.configs
    }


def stored() -> Rows:
    """What Apache Kafka 4.3.1 answered."""
    rows = json.loads(STORED.read_text(encoding="utf-8"))
    return {
        name: Described(*row[:-1], tuple((one[0], one[1], one[2]) for one in row[-1])) for name, row in rows.items()
    }


def store(rows: Rows) -> None:
    """A line for each, so that changes can be read."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def start(directory: Path, *, is_kafka: bool) -> Broker:
    """A broker with the settings of `STATIC`."""
    if is_kafka:
        os.environ.pop(NO_JVM, None)
        return start_kafka(directory, STATIC)
    return start_barnabas(directory, [f"log.dirs={directory / 'data'}", *QUICK, *STATIC])
