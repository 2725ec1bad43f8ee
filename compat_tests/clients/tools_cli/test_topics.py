"""kafka-topics, kafka-configs, kafka-log-dirs, kafka-broker-api-versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.tools import MAIN_CLASSES, RUN_TIMEOUT_S, Tools
from compat_tests.harness.checks import wait_until

CLIENT = "tools 4.3.1"
Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]


def case(title: str) -> pytest.MarkDecorator:
    """The place of a case of the tools."""
    return pytest.mark.case("command-line tools", title, CLIENT)


@case("kafka-topics: create, list, describe")
def test_create(tools: Tools, unique: Names) -> None:
    name = unique()
    made = tools(
        *("kafka-topics", "--create", "--topic", name, "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=86400000"),
    )
    assert f"Created topic {name}." in made
    assert name in tools("kafka-topics", "--list").split()
    described = tools("kafka-topics", "--describe", "--topic", name)
    head, *rows = [line.split("\t") for line in described.splitlines()]
    fields = dict(field.strip().split(": ", 1) for field in head if field.strip())
    assert fields["Topic"] == name
    assert (fields["PartitionCount"], fields["ReplicationFactor"]) == ("3", "1")
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", fields["TopicId"])
    assert "retention.ms=86400000" in fields["Configs"]
    assert len(rows) == 3
    for index, row in enumerate(rows):
        found = {name.strip(): value.strip() for name, _, value in (field.partition(":") for field in row)}
        assert found["Partition"] == str(index)
        assert found["Leader"] == found["Replicas"] == found["Isr"]


@case("kafka-topics: an existing topic, --if-not-exists, a bad name")
def test_create_refused(tools: Tools, topic: str) -> None:
    assert f"Topic '{topic}' already exists" in tools("kafka-topics", "--create", "--topic", topic, expect=1)
    tools("kafka-topics", "--create", "--topic", topic, "--if-not-exists")
    assert "InvalidTopicException" in tools("kafka-topics", "--create", "--topic", "two words", expect=1)
    text = tools("kafka-topics", "--create", "--topic", f"{topic}-b", "--config", "no.such=1", expect=1)
    assert "Unknown topic config name: no.such" in text


@case("kafka-topics: add partitions, delete")
def test_alter_delete(tools: Tools, topic: str) -> None:
    tools("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools("kafka-topics", "--describe", "--topic", topic)
    tools("kafka-topics", "--delete", "--topic", topic)
    assert topic not in tools("kafka-topics", "--list").split()
    assert "does not exist as expected" in tools("kafka-topics", "--describe", "--topic", topic, expect=1)


@case("kafka-topics: filters of unhealthy partitions find none")
def test_filters(tools: Tools, topic: str) -> None:
    for choice in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in tools("kafka-topics", "--describe", choice)


@case("kafka-configs: a topic's configuration")
def test_topic_config(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = tools("kafka-configs", *entity, "--describe")
    assert "retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in described
    tools("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=1000" not in tools("kafka-configs", *entity, "--describe")
    everything = tools("kafka-configs", *entity, "--describe", "--all")
    assert "retention.ms=604800000" in everything
    assert "segment.bytes=1073741824" in everything
    refused = tools("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=soon", expect=1)
    assert "InvalidConfigurationException" in refused


@case("kafka-configs: a broker's configuration, changed at run time")
def test_broker_config(tools: Tools, topic: str) -> None:
    broker = re.search(r"Leader: (\d+)", tools("kafka-topics", "--describe", "--topic", topic))
    assert broker is not None
    entity = ("--entity-type", "brokers", "--entity-name", broker[1])
    everything = tools("kafka-configs", *entity, "--describe", "--all")
    assert "num.partitions=" in everything
    assert "message.max.bytes=" in everything
    _set_and_unset(tools, entity, "log.cleaner.backoff.ms=12345")


@case("kafka-configs: the default of all brokers")
def test_default_config(tools: Tools) -> None:
    entity = ("--entity-type", "brokers", "--entity-default")
    _set_and_unset(tools, entity, "log.cleaner.backoff.ms=23456")


def _set_and_unset(tools: Tools, entity: tuple[str, ...], setting: str) -> None:
    """With KRaft the controller answers before the broker that is asked next has heard of it."""
    tools("kafka-configs", *entity, "--alter", "--add-config", setting)
    try:
        wait_until(lambda: setting in tools("kafka-configs", *entity, "--describe"), f"{setting} is set")
    finally:
        tools("kafka-configs", *entity, "--alter", "--delete-config", setting.partition("=")[0])
    wait_until(lambda: setting not in tools("kafka-configs", *entity, "--describe"), f"{setting} is gone")


@case("kafka-leader-election, kafka-reassign-partitions: nothing to do")
def test_nothing_to_move(tools: Tools, topic: str) -> None:
    text = tools("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in text
    assert "No partition reassignments found" in tools("kafka-reassign-partitions", "--list")


@case("kafka-log-dirs: sizes of partitions")
def test_log_dirs(tools: Tools, topic: str) -> None:
    tools.produce(topic, [f"line {n}" for n in range(100)])
    text = tools("kafka-log-dirs", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    partitions = [
        one for broker in found["brokers"] for directory in broker["logDirs"] for one in directory["partitions"]
    ]
    assert {one["partition"] for one in partitions} == {f"{topic}-0", f"{topic}-1"}
    assert sum(one["size"] for one in partitions) > 100
    assert all(one["offsetLag"] == 0 and not one["isFuture"] for one in partitions)


@case("kafka-broker-api-versions: every API of a stock client is usable")
def test_api_versions(tools: Tools) -> None:
    text = tools("kafka-broker-api-versions")
    found = dict(re.findall(r"(\w+)\(\d+\): .*?\[usable: (\d+)\]", text))
    needed = (
        *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup"),
        *("Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "ApiVersions", "CreateTopics"),
        *("DeleteTopics", "DeleteRecords", "InitProducerId", "DescribeConfigs", "CreatePartitions", "DeleteGroups"),
        *("IncrementalAlterConfigs", "OffsetDelete", "DescribeCluster", "DescribeLogDirs"),
    )
    assert [name for name in needed if name not in found] == []


@pytest.mark.campaign
@pytest.mark.parametrize(
    "arguments",
    [
        ("kafka-topics", "--describe", "--topic", "TOPIC"),
        ("kafka-topics", "--describe", "--topic", "no.such.topic"),
        ("kafka-topics", "--create", "--topic", "TOPIC"),
        ("kafka-topics", "--no-such-option"),
        ("kafka-console-consumer", "--topic", "TOPIC", "--from-beginning", "--max-messages", "2"),
        ("kafka-transactions", "describe", "--transactional-id", "nobody"),
    ],
    ids=" ".join,
)
def test_a_shared_jvm_changes_nothing(tools: Tools, topic: str, arguments: tuple[str, ...]) -> None:
    """What a tool says and how it ends in the JVM that the other cases share is what its own process says."""
    tools.produce(topic, ["a", "b"])
    script, *words = (topic if word == "TOPIC" else word for word in arguments)
    alone = tools.process(script, *words)
    given = ["--bootstrap-server", tools.bootstrap, *words]
    warm = tools.jvms.run(tools.jars, MAIN_CLASSES[script], given, timeout=RUN_TIMEOUT_S)
    assert (warm.returncode, plain(warm.stdout)) == (alone.returncode, plain(alone.stdout))
    assert plain(warm.stderr) == plain(alone.stderr)


def plain(printed: bytes) -> list[str]:
    """The lines without times, warnings that depend on them, and the frames of stack traces, whose ends differ."""
    lines = [line for line in printed.decode().splitlines() if not line.startswith("\t") and " WARN " not in line]
    return [re.sub(r"^\[[-0-9 :,]+\] ", "", line) for line in lines]
